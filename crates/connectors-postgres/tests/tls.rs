//! TLS to the server: what is agreed on, and what is refused, for the sink and for the source.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresSink, PostgresSinks, PostgresSource, drop_replication_slot};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use support::{Database, Job, chain};

/// An authority, and where its files are.
struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let key = KeyPair::generate().unwrap();
        std::fs::write(directory.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A certificate for hosts, and its key.
    fn issue(&self, hosts: &[&str], name: &str) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// The same in files, as an address names them.
    fn client(&self, name: &str) -> String {
        let (certificate, key) = self.issue(&[], name);
        let path = |kind: &str| self.directory.path().join(format!("{name}-{kind}.pem"));
        std::fs::write(path("cert"), certificate).unwrap();
        std::fs::write(path("key"), key).unwrap();
        format!("sslcert={}&sslkey={}", path("cert").display(), path("key").display())
    }
}

/// A file of the server that only its owner may read.
fn give(database: &Database, name: &str, text: &str) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let data = database.directory().join("data");
    let (owner, path) = (std::fs::metadata(&data).unwrap(), data.join(name));
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// A server with a certificate for `localhost`, and a role `certified` that has to show its own.
fn start(authority: &Authority) -> Option<Database> {
    let database = Database::start()?;
    let (certificate, key) = authority.issue(&["localhost"], "localhost");
    give(&database, "server.crt", &certificate);
    give(&database, "server.key", &key);
    give(&database, "clients.crt", &std::fs::read_to_string(authority.path()).unwrap());
    let rules = "hostnossl all certified all reject\nhostssl all certified all cert\n";
    let former = std::fs::read_to_string(database.directory().join("data/pg_hba.conf")).unwrap();
    give(&database, "pg_hba.conf", &(rules.to_owned() + &former + "\nhostssl replication all all scram-sha-256\n"));
    database.sql("CREATE ROLE certified LOGIN REPLICATION SUPERUSER");
    database.sql("ALTER SYSTEM SET ssl_ca_file = 'clients.crt'");
    database.sql("ALTER SYSTEM SET ssl = on");
    database.sql("SELECT pg_reload_conf()");
    support::until("the server has TLS", || database.sql("SHOW ssl") == ["on"]);
    database.sql("CREATE TABLE items (id bigint PRIMARY KEY); INSERT INTO items VALUES (1), (2); CREATE PUBLICATION shop FOR TABLE items");
    Some(database)
}

/// Copies items to a table, and compares what is there then.
fn copy(database: &Database, url: &str) -> Result<(), String> {
    let table = "copies";
    database.sql(&format!("DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (id bigint)"));
    let (url, started) = (url.to_owned(), Instant::now());
    let outcome = Job::new(&MemoryStorage::new(), 1, 20).run(move |flow| {
        let items = PostgresSource::with(&url, "shop", "copier", |change| Ok(Some(change.row().decode::<i64>()?)));
        let items = items.deadline(Duration::from_secs(4)).patience(Duration::from_secs(1)).stop_at_latest();
        let sink = PostgresSink::table(&url, table).column("id", |id: &i64| *id);
        let sink = sink.deadline(Duration::from_secs(4)).patience(Duration::from_secs(1));
        flow.source("items", items).to_postgres("out", sink);
        Ok(())
    });
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    outcome.map_err(|error| chain(&error))?;
    assert_eq!(database.sql("SELECT id FROM copies ORDER BY 1"), ["1", "2"]);
    drop_replication_slot(&database.url, "copier").unwrap();
    Ok(())
}

/// The address of the server with these words about TLS.
fn with(database: &Database, host: &str, mode: &str, authority: &Path) -> String {
    let url = database.url.replace("127.0.0.1", host);
    format!("{url}?sslmode={mode}&sslrootcert={}", authority.display())
}

fn refused(outcome: Result<(), String>, words: &str) {
    let error = outcome.unwrap_err();
    assert!(error.contains(words), "{error}");
}

#[test]
fn source_and_sink_speak_tls_as_the_address_asks_for_it() {
    let authority = Authority::new();
    let Some(database) = start(&authority) else { return };
    for (host, mode) in [("localhost", "verify-full"), ("127.0.0.1", "verify-ca"), ("127.0.0.1", "require")] {
        copy(&database, &with(&database, host, mode, &authority.path())).unwrap();
    }
    copy(&database, &format!("{}?sslmode=require", database.url)).unwrap();
    copy(&database, &format!("{}?sslmode=disable", database.url)).unwrap();
    copy(&database, &database.url).unwrap();
    // With a certificate instead of a password.
    let url =
        with(&database, "localhost", "verify-full", &authority.path()).replace("millpond:not-a-secret", "certified");
    copy(&database, &format!("{url}&{}", authority.client("certified"))).unwrap();
    refused(copy(&database, &url), "refuses the credentials");
    refused(copy(&database, &format!("{url}&{}", authority.client("somebody"))), "refuses the credentials");
    let stranger = Authority::new();
    refused(copy(&database, &format!("{url}&{}", stranger.client("certified"))), "cannot agree with localhost");
}

#[test]
fn a_server_that_is_not_who_it_should_be_is_refused_and_so_is_one_without_tls() {
    let authority = Authority::new();
    let Some(database) = start(&authority) else { return };
    let stranger = Authority::new();
    for mode in ["verify-full", "verify-ca", "require"] {
        let wrong = copy(&database, &with(&database, "localhost", mode, &stranger.path()));
        refused(wrong, "cannot agree with localhost:");
    }
    let wrong_name = copy(&database, &with(&database, "127.0.0.1", "verify-full", &authority.path()));
    refused(wrong_name, "cannot agree with 127.0.0.1:");
    let plain = copy(&database, &format!("{}?sslmode=verify-full", database.url));
    refused(plain, "setting sslrootcert is invalid: the server is to be verified");
    let nowhere = authority.directory.path().join("nowhere.pem");
    refused(copy(&database, &with(&database, "localhost", "verify-full", &nowhere)), "setting sslrootcert is invalid");
    let empty = authority.directory.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    refused(copy(&database, &with(&database, "localhost", "verify-full", &empty)), "it holds no certificate");
    database.sql("ALTER SYSTEM SET ssl = off");
    database.sql("SELECT pg_reload_conf()");
    support::until("the server has no TLS", || database.sql("SHOW ssl") == ["off"]);
    let without = copy(&database, &with(&database, "localhost", "verify-full", &authority.path()));
    refused(without, "server does not support TLS");
}
