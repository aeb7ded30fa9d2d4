//! Several processes of one job under mutual TLS, as threads of this one: the same sockets, the same certificates.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use millpond::ErrorKind;
use millpond::prelude::*;
use millpond::storage::{MemoryStorage, Storage};
use millpond::{ClusterSettings, Components, JobError, JobReport, JobSettings, RestartPolicy, TlsSettings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// How long process 0 waits where somebody is refused, in milliseconds.
const SHORT_WAIT_MS: u64 = 1_500;

/// An authority and its certificates, as files.
struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> TlsSettings {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let at = |file: String| -> std::path::PathBuf { Path::join(self.directory.path(), file) };
        let (certificate, own_key) = (at(format!("{name}.pem")), at(format!("{name}.key")));
        std::fs::write(&certificate, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&own_key, key.serialize_pem()).unwrap();
        TlsSettings { certificate, key: own_key, authority: at("ca.pem".to_owned()), name: None }
    }
}

/// Addresses of `hosts` that were free a moment ago.
fn free(hosts: &[&str]) -> Vec<String> {
    let listeners: Vec<_> = hosts.iter().map(|host| (host, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
    listeners.iter().map(|(host, listener)| format!("{host}:{}", listener.local_addr().unwrap().port())).collect()
}

type Run = Box<dyn FnOnce() -> Result<JobReport, JobError> + Send>;

fn run_all(processes: Vec<Run>) -> Vec<Result<JobReport, JobError>> {
    let threads: Vec<_> = processes.into_iter().map(std::thread::spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn counting(out: &Collector<(u64, u64)>) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let out = out.clone();
    move |flow: &mut Dataflow| {
        let numbers = flow.from_iter("numbers", 0..200_000u64).rebalance();
        numbers.key_by(|number| number % 1_000).count("counts").collect("out", &out);
        Ok(())
    }
}

/// Process `process` among `hosts`, which listens on loopback whatever they are called.
fn settings(hosts: &[String], process: u32, tls: Option<TlsSettings>) -> JobSettings {
    let listen = Some(hosts[process as usize].replace("localhost", "127.0.0.1"));
    let cluster = ClusterSettings { process, hosts: hosts.to_vec(), listen, tls, ..ClusterSettings::default() };
    JobSettings { workers: 2, cluster: Some(cluster), ..Default::default() }
}

fn process(settings: JobSettings, out: &Collector<(u64, u64)>, storage: Option<Arc<dyn Storage>>) -> Run {
    let job = counting(out);
    Box::new(move || millpond::run_with(job, &settings, &Components::new(storage)))
}

/// Runs all to their end, which must be a good one.
fn finish(runs: Vec<Run>, out: &Collector<(u64, u64)>) {
    for report in run_all(runs) {
        assert_eq!(report.unwrap().outcome, millpond::JobOutcome::Finished);
    }
    let mut last = std::collections::BTreeMap::<u64, u64>::new();
    for (key, count) in out.take() {
        let known = last.entry(key).or_default();
        *known = count.max(*known);
    }
    assert_eq!(last, (0..1_000).map(|key| (key, 200)).collect());
}

/// What process 0 and process 1 say when they cannot work together.
fn refusals(hosts: &[String], leader: Option<TlsSettings>, other: Option<TlsSettings>) -> [String; 2] {
    refusals_with(hosts, leader, hosts, other)
}

fn refusals_with(
    hosts: &[String],
    leader: Option<TlsSettings>,
    other_hosts: &[String],
    other: Option<TlsSettings>,
) -> [String; 2] {
    let mut hasty = settings(hosts, 0, leader);
    hasty.restart = RestartPolicy::Never;
    hasty.cluster.as_mut().unwrap().wait_ms = SHORT_WAIT_MS;
    // The other one is patient: only what it is told ends it.
    let mut patient = settings(other_hosts, 1, other);
    patient.restart = RestartPolicy::Never;
    let runs = [hasty, patient].map(|settings| process(settings, &Collector::new(), None)).into();
    let mut errors = run_all(runs).into_iter().map(Result::unwrap_err);
    let (first, second) = (errors.next().unwrap(), errors.next().unwrap());
    assert_eq!(second.kind(), ErrorKind::Invalid, "{second}");
    [first.to_string(), second.to_string()]
}

#[test]
fn processes_under_tls_give_what_one_process_gives() {
    let (authority, hosts) = (Authority::new(), free(&["localhost", "127.0.0.1", "localhost"]));
    let (out, storage) = (Collector::new(), Arc::new(MemoryStorage::new()));
    let runs = hosts.iter().zip(0..).map(|(address, index)| {
        let tls = authority.issue(address.rsplit_once(':').unwrap().0);
        let storage: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&storage);
        process(settings(&hosts, index, Some(tls)), &out, Some(storage))
    });
    finish(runs.collect(), &out);
}

#[test]
fn a_process_without_tls_is_refused_by_one_with_it() {
    let (authority, hosts) = (Authority::new(), free(&["127.0.0.1"; 2]));
    let [leader, other] = refusals(&hosts, Some(authority.issue("127.0.0.1")), None);
    assert!(leader.starts_with("waited 1500 ms for process 1; one was refused: the caller at 127.0.0.1:"), "{leader}");
    assert!(leader.ends_with(": it does not use TLS"), "{leader}");
    let reason = "process 1 does not use TLS, and this process does: both need tls-certificate, tls-key and tls-ca";
    assert_eq!(other, format!("process 0 at {} refuses process 1: {reason}", hosts[0]));
}

#[test]
fn a_process_with_tls_does_not_trust_one_without_it() {
    let (authority, hosts) = (Authority::new(), free(&["127.0.0.1"; 2]));
    let [leader, other] = refusals(&hosts, None, Some(authority.issue("127.0.0.1")));
    assert!(leader.ends_with(": it uses TLS, and this process does not"), "{leader}");
    let reason = "this process and process 0";
    assert_eq!(other, format!("{reason} at {} do not trust each other: it does not use TLS", hosts[0]));
}

#[test]
fn a_process_with_the_certificate_of_another_authority_is_refused() {
    let (ours, theirs, hosts) = (Authority::new(), Authority::new(), free(&["127.0.0.1"; 2]));
    let [leader, other] = refusals(&hosts, Some(ours.issue("127.0.0.1")), Some(theirs.issue("127.0.0.1")));
    assert!(leader.contains("it does not know the authority"), "{leader}");
    assert!(other.ends_with("its certificate was not signed by an authority of this process"), "{other}");
}

#[test]
fn a_process_that_trusts_and_is_not_trusted_is_told_so() {
    let (ours, theirs, hosts) = (Authority::new(), Authority::new(), free(&["127.0.0.1"; 2]));
    // Knows both authorities, but is known to one only.
    let mut other = theirs.issue("127.0.0.1");
    let both = [&ours, &theirs].map(|one| std::fs::read_to_string(one.directory.path().join("ca.pem")).unwrap());
    other.authority = theirs.directory.path().join("both.pem");
    std::fs::write(&other.authority, both.concat()).unwrap();
    let [leader, other] = refusals(&hosts, Some(ours.issue("127.0.0.1")), Some(other));
    assert!(leader.ends_with("its certificate was not signed by an authority of this process"), "{leader}");
    assert!(other.contains("it does not know the authority"), "{other}");
}

#[test]
fn a_process_cannot_call_itself_by_the_index_of_another() {
    let (authority, hosts) = (Authority::new(), free(&["127.0.0.1", "localhost"]));
    // It has a good certificate, but not that of process 1, and hosts of its own making.
    let mut pretended = hosts.clone();
    pretended[1] = hosts[1].replace("localhost", "127.0.0.1");
    let own = || Some(authority.issue("127.0.0.1"));
    let [leader, other] = refusals_with(&hosts, own(), &pretended, own());
    let reason = "it calls itself process 1, and shows a certificate that is not for localhost";
    assert!(leader.ends_with(reason), "{leader}");
    assert_eq!(other, format!("process 0 at {} refuses process 1: {reason}", hosts[0]));
}

#[test]
fn a_certificate_for_another_name_is_refused_before_anything_is_started() {
    let (authority, hosts) = (Authority::new(), free(&["localhost", "127.0.0.1"]));
    let run = process(settings(&hosts, 0, Some(authority.issue("127.0.0.1"))), &Collector::new(), None);
    let error = run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("is not for localhost, but for "), "{error}");
}

#[test]
fn strays_do_not_disturb_processes_under_tls() {
    let (authority, hosts) = (Authority::new(), free(&["127.0.0.1"; 2]));
    let out = Collector::new();
    let runs = (0..2).map(|index| process(settings(&hosts, index, Some(authority.issue("127.0.0.1"))), &out, None));
    let stray_to = |address: String| {
        move || {
            let says: [&[u8]; 4] =
                [b"", b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3], &[0; 300]];
            let mut held = Vec::new();
            for said in says.iter().cycle().take(40) {
                let Ok(mut stream) = TcpStream::connect(&address) else { continue };
                let _ = stream.write_all(said);
                held.push(stream);
            }
            // Until the process turns the last of them away.
            for mut stream in held {
                let _ = stream.read(&mut [0; 64]);
            }
        }
    };
    let strays: Vec<_> = hosts.iter().map(|host| std::thread::spawn(stray_to(host.clone()))).collect();
    finish(runs.collect(), &out);
    strays.into_iter().for_each(|stray| stray.join().unwrap());
}
