use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::{HandshakeError, Security, Socket, TlsError, TlsSettings, why_untrusted};

/// An authority and its certificates, as files.
struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { directory, issuer: Issuer::new(params, key) }
    }

    fn settings(&self, name: &str) -> TlsSettings {
        let at = |file: String| self.directory.path().join(file);
        TlsSettings {
            certificate: at(format!("{name}.pem")),
            key: at(format!("{name}.key")),
            authority: at("ca.pem".to_owned()),
            name: None,
        }
    }

    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TlsSettings {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let settings = self.settings(name);
        std::fs::write(&settings.certificate, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&settings.key, key.serialize_pem()).unwrap();
        settings
    }

    fn process(&self, name: &str) -> Security {
        Security::open(Some(&self.issue(name, |_| {})), name).unwrap()
    }
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let streams = (caller, listener.accept().unwrap().0);
    for stream in [&streams.0, &streams.1] {
        // Soon full; smaller ones for receiving would wait for timers of TCP.
        rustix::net::sockopt::set_socket_send_buffer_size(stream, 16 << 10).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, 128 << 10).unwrap();
    }
    streams
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

type Outcome = Result<Socket, HandshakeError>;

/// Both ends of a handshake in which `caller` calls `host`.
fn shake(caller: &Security, called: &Security, host: &str) -> (Outcome, Outcome) {
    let (near, far) = streams();
    std::thread::scope(|scope| {
        let answered = scope.spawn(|| called.answer(far, &[], soon()));
        (caller.call(near, host, soon()), answered.join().unwrap())
    })
}

fn pair(authority: &Authority) -> (Socket, Socket) {
    let (near, far) = shake(&authority.process("a.job"), &authority.process("b.job"), "b.job");
    (near.unwrap(), far.unwrap())
}

fn untrusted(outcome: Outcome) -> String {
    match outcome {
        Err(HandshakeError::Untrusted(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Bytes that differ at every place.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 40) as u8).collect()
}

#[test]
fn both_ends_may_write_a_lot_at_the_same_time() {
    const LENGTH: usize = 24 << 20;
    let (near, far) = pair(&Authority::new());
    std::thread::scope(|scope| {
        for (own, seed, other) in [(&near, 1, 2), (&far, 2, 1)] {
            let (writing, reading) = (own.try_clone().unwrap(), own.try_clone().unwrap());
            scope.spawn(move || {
                let bytes = bytes(seed, LENGTH);
                // Pieces of all sizes, and new keys in between, which the other side has to answer.
                let mut at = 0;
                for piece in 1.. {
                    let next = (at + piece * 977).min(LENGTH);
                    (&writing).write_all(&bytes[at..next]).unwrap();
                    if piece % 16 == 0 {
                        writing.session().unwrap().refresh_keys();
                    }
                    at = next;
                    if at == LENGTH {
                        break;
                    }
                }
                writing.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut read = Vec::new();
                (&reading).read_to_end(&mut read).unwrap();
                assert!(read == bytes(other, LENGTH));
            });
        }
    });
}

#[test]
fn who_only_reads_answers_nothing_and_waits_for_nobody() {
    let (near, far) = pair(&Authority::new());
    // Nobody reads at the near end, and the far end has filled the way to it.
    far.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let full = bytes(3, 1 << 16);
    let stuck = loop {
        if let Err(error) = (&far).write(&full) {
            break error;
        }
    };
    assert!(matches!(stuck.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{stuck}");
    near.session().unwrap().refresh_keys();
    (&near).write_all(b"after new keys").unwrap();
    let mut read = [0; 14];
    (&far).read_exact(&mut read).unwrap();
    assert_eq!(&read, b"after new keys");
    // Half a record was written: the stream is broken for writing, and stays so.
    assert_eq!((&far).write(b"more").unwrap_err().kind(), stuck.kind());
    assert!(far.shutdown(Shutdown::Write).is_ok());
    let mut all = Vec::new();
    assert_eq!((&near).read_to_end(&mut all).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn only_a_farewell_is_an_end_and_a_cut_is_an_error() {
    let authority = Authority::new();
    let (near, far) = pair(&authority);
    (&near).write_all(b"all").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&near).write(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let mut read = Vec::new();
    assert_eq!((&far).read_to_end(&mut read).unwrap(), 3);
    assert_eq!((&far).read(&mut [0; 8]).unwrap(), 0, "the end stays the end");
    // The other direction is still open.
    (&far).write_all(b"answer").unwrap();
    let mut answer = [0; 6];
    (&near).read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
    drop(far);
    assert_eq!((&near).read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

    let (near, far) = pair(&authority);
    far.shutdown(Shutdown::Both).unwrap();
    assert_eq!((&near).read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn silence_ends_reading_after_its_timeout_and_reading_can_go_on() {
    let (near, far) = pair(&Authority::new());
    near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let silent = (&near).read(&mut [0; 8]).unwrap_err();
    assert!(matches!(silent.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{silent}");
    near.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (&far).write_all(b"late").unwrap();
    let mut read = [0; 4];
    (&near).read_exact(&mut read).unwrap();
    assert_eq!(&read, b"late");
}

#[test]
fn a_reader_is_woken_when_the_stream_is_closed_from_outside() {
    let (near, _far) = pair(&Authority::new());
    let reading = near.try_clone().unwrap();
    let reader = std::thread::spawn(move || (&reading).read(&mut [0; 8]).unwrap_err().kind());
    near.shutdown(Shutdown::Both).unwrap();
    assert_eq!(reader.join().unwrap(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_stream_that_is_tampered_with_is_an_error() {
    let (near, far) = pair(&Authority::new());
    let mut tcp = near.session().unwrap().tcp();
    tcp.write_all(&[0x17, 3, 3, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]).unwrap();
    (&near).write_all(b"after").unwrap();
    assert_eq!((&far).read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!((&far).read(&mut [0; 8]).is_err());
}

#[test]
fn certificates_of_another_authority_are_refused_at_both_ends() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (caller, called) = shake(&ours.process("a.job"), &theirs.process("b.job"), "b.job");
    assert_eq!(untrusted(caller), "its certificate was not signed by an authority of this process");
    assert!(untrusted(called).contains("does not know the authority"));
    // The caller trusts, and is not trusted: it learns of that with the first reading.
    let mut settings = ours.issue("c.job", |_| {});
    settings.authority = theirs.settings("").authority;
    let mixed = Security { tls: Some(super::load::load_unchecked(&settings).into()) };
    let (caller, called) = shake(&mixed, &theirs.process("b.job"), "b.job");
    assert_eq!(untrusted(called), "its certificate was not signed by an authority of this process");
    let refused = (&caller.unwrap()).read(&mut [0; 8]).unwrap_err();
    assert!(why_untrusted(&refused).unwrap().contains("does not know the authority"), "{refused}");
}

#[test]
fn a_certificate_for_another_name_is_refused_whoever_shows_it() {
    let authority = Authority::new();
    let (a, b) = (authority.process("a.job"), authority.process("b.job"));
    let (caller, called) = shake(&a, &b, "c.job");
    assert!(untrusted(caller).starts_with("its certificate is not for c.job, but for "));
    assert!(untrusted(called).contains("does not accept the certificate"));
    let (_near, far) = shake(&a, &b, "b.job");
    let far = far.unwrap();
    assert_eq!(b.check_name(&far, "a.job"), Ok(()));
    assert_eq!(b.check_name(&far, "c.job").unwrap_err(), "shows a certificate that is not for c.job");
    let (plain, _other) = streams();
    assert!(b.check_name(&plain.into(), "a.job").is_err());
}

#[test]
fn one_name_for_all_processes_takes_the_place_of_their_hosts() {
    let authority = Authority::new();
    let settings = TlsSettings { name: Some("wordcount".to_owned()), ..authority.issue("wordcount", |_| {}) };
    let [a, b] = [(); 2].map(|()| Security::open(Some(&settings), "10.0.0.1").unwrap());
    let (near, far) = shake(&a, &b, "10.0.0.2");
    assert_eq!(b.check_name(&far.unwrap(), "10.0.0.1"), Ok(()));
    drop(near.unwrap());
    let (caller, _) = shake(&a, &authority.process("b.job"), "b.job");
    assert!(untrusted(caller).contains("is not for wordcount"));
}

#[test]
fn whoever_does_not_use_tls_is_told_apart() {
    let authority = Authority::new();
    let secure = authority.process("a.job");
    // A process without TLS answers with an alert.
    let (near, far) = streams();
    (&far).write_all(&Security::NO_TLS_HERE).unwrap();
    assert_eq!(untrusted(secure.call(near, "a.job", soon())), "it does not use TLS");
    // Something else answers something else, or nothing.
    let (near, far) = streams();
    (&far).write_all(b"220 mail.example.org ready\r\n").unwrap();
    assert!(matches!(secure.call(near, "a.job", soon()), Err(HandshakeError::Broken(_))));
    let (near, _silent) = streams();
    let Err(HandshakeError::Broken(late)) = secure.call(near, "a.job", Instant::now() + Duration::from_millis(50))
    else {
        panic!("silence is no handshake");
    };
    assert!(matches!(late.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{late}");
    // A caller that drips is turned away at the deadline.
    let (near, far) = streams();
    (&near).write_all(&[0x16, 3, 1]).unwrap();
    assert!(secure.answer(far, &[], Instant::now() + Duration::from_millis(50)).is_err());
}

fn refused(settings: &TlsSettings) -> String {
    let error = Security::open(Some(settings), "a.job").unwrap_err();
    assert_eq!(error.kind(), millpond_core::ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn wrong_files_are_named() {
    let authority = Authority::new();
    let good = authority.issue("a.job", |_| {});
    let file = |name: &str, content: &str| {
        let path = authority.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let named = |path: &Path, settings: TlsSettings| {
        let text = refused(&settings);
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        text
    };
    let missing = authority.directory.path().join("missing");
    let text = named(&missing, TlsSettings { key: missing.clone(), ..good.clone() });
    assert!(text.starts_with("cannot read the private key in"), "{text}");
    let nothing = file("nothing", "nothing");
    for settings in [
        TlsSettings { certificate: nothing.clone(), ..good.clone() },
        TlsSettings { key: nothing.clone(), ..good.clone() },
        TlsSettings { authority: nothing.clone(), ..good.clone() },
    ] {
        assert!(named(&nothing, settings).contains("that can be used"));
    }
    let broken = file("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    named(&broken, TlsSettings { certificate: broken.clone(), ..good.clone() });
    named(&broken, TlsSettings { authority: broken.clone(), ..good.clone() });
    let encrypted =
        file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    assert!(named(&encrypted, TlsSettings { key: encrypted.clone(), ..good.clone() }).ends_with("it is encrypted"));
    let other = authority.issue("b.job", |_| {});
    let text = named(&other.key, TlsSettings { key: other.key.clone(), ..good.clone() });
    assert!(text.contains("is not that of the certificate in"), "{text}");
    let stranger = Authority::new().settings("").authority;
    let text = refused(&TlsSettings { authority: stranger, ..good });
    assert!(text.starts_with("cannot read"), "the directory of the other authority is gone: {text}");
}

#[test]
fn a_certificate_that_others_would_not_trust_is_refused_at_the_start() {
    let authority = Authority::new();
    let expired = authority.issue("a.job", |params| params.not_after = date_time_ymd(2020, 1, 1));
    assert!(refused(&expired).contains("has expired "), "{}", refused(&expired));
    let early = authority.issue("a.job", |params| params.not_before = date_time_ymd(2999, 1, 1));
    assert!(refused(&early).contains("is valid only in "), "{}", refused(&early));
    let other = authority.issue("b.job", |_| {});
    assert!(refused(&other).contains("is not for a.job, but for "), "{}", refused(&other));
    let half = authority.issue("a.job", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert!(refused(&half).contains("must be allowed for clients and for servers"), "{}", refused(&half));
    let whole = authority.issue("a.job", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert!(Security::open(Some(&whole), "a.job").unwrap().is_tls());
    let error = Security::open(Some(&whole), "a b").unwrap_err();
    assert!(matches!(error, TlsError::BadName { .. }), "{error}");
}
