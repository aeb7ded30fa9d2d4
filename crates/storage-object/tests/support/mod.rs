//! Real servers.

#[path = "../../../../scripts/servers/server.rs"]
mod server;

pub(crate) use server::Server;
