//! The log: `tracing` events of Millpond and of the job, on standard error.

use std::sync::Arc;

use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, Settings};
use crate::terminal::{LogWriter, Terminal};

/// Starts the log. A subscriber that the job's `main` has installed already stays in place.
pub(crate) fn start(settings: &Settings, terminal: &Arc<Terminal>) {
    let colours = terminal.is_interactive() && std::env::var_os("NO_COLOR").is_none();
    let terminal = Arc::clone(terminal);
    let lines = fmt::layer().with_writer(move || LogWriter(Arc::clone(&terminal)));
    let registry = tracing_subscriber::registry().with(settings.log.clone());
    let _ = match settings.log_format {
        LogFormat::Text => registry.with(lines.with_ansi(colours).with_target(false)).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
}
