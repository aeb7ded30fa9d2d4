//! Wrong settings: one typed error each, within the deadline.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::time::{Duration, Instant};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_kafka::{KafkaSink, KafkaSinks, KafkaSource};
use support::{Broker, Job, chain};

const DEADLINE: Duration = Duration::from_secs(3);

/// The error with which a job with this source, and one with this sink, end.
fn errors(servers: &str, topic: &str, properties: &[(&str, &str)]) -> [String; 2] {
    let (servers, topic) = (servers.to_owned(), topic.to_owned());
    let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (properties, started) = (own(properties), Instant::now());
    let job = || Job::new(&MemoryStorage::new(), 1, 20);
    let source = {
        let (servers, topic, properties) = (servers.clone(), topic.clone(), properties.clone());
        job().run(move |flow| {
            let mut source = KafkaSource::bytes(&servers, &topic).deadline(DEADLINE);
            for (name, value) in &properties {
                source = source.property(name, value);
            }
            flow.source("in", source);
            Ok(())
        })
    };
    let sink = job().run(move |flow| {
        let mut sink = KafkaSink::<u64>::json(&servers, &topic).deadline(DEADLINE).patience(Duration::from_secs(1));
        for (name, value) in &properties {
            sink = sink.property(name, value);
        }
        flow.from_iter("numbers", 0..10u64).to_kafka("out", sink);
        Ok(())
    });
    // Both, each with time for an attempt to end.
    assert!(started.elapsed() < 6 * DEADLINE, "{:?}", started.elapsed());
    [source.unwrap_err(), sink.unwrap_err()].map(|error| chain(&error))
}

fn all_contain(errors: &[String; 2], words: &str) {
    for error in errors {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_topic_that_does_not_exist_is_named() {
    let Some(broker) = Broker::start() else { return };
    let words = format!("topic nowhere does not exist at {}", broker.servers);
    all_contain(&errors(&broker.servers, "nowhere", &[]), &words);
}

#[test]
fn brokers_that_do_not_answer_are_named_within_the_deadline() {
    // A port at which nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let servers = format!("127.0.0.1:{port}");
    let refused = errors(&servers, "in", &[]);
    all_contain(&refused, &format!("no broker of {servers} answers within"));
    all_contain(&refused, "Connection refused");
    // One that listens and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = silent.local_addr().unwrap().to_string();
    all_contain(&errors(&servers, "in", &[]), &format!("no broker of {servers} answers within"));
}

#[test]
fn a_property_that_is_unknown_wrong_or_not_the_users_is_named() {
    let servers = "127.0.0.1:1";
    all_contain(&errors(servers, "in", &[("no.such.thing", "1")]), "setting no.such.thing is invalid");
    all_contain(&errors(servers, "in", &[("security.protocol", "magic")]), "setting security.protocol is invalid");
    let [source, _] = errors(servers, "in", &[("isolation.level", "read_uncommitted")]);
    assert!(source.contains("setting isolation.level is invalid: it is decided by other settings"), "{source}");
}

#[test]
fn credentials_that_are_not_accepted_are_an_error_of_their_own() {
    let servers = support::refusing::start();
    let properties = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanisms", "PLAIN"),
        ("sasl.username", "nobody"),
        ("sasl.password", "nothing"),
    ];
    let found = errors(&servers, "in", &properties);
    all_contain(&found, &format!("{servers} refuses the credentials"));
    all_contain(&found, "no such user");
}

#[cfg(feature = "ssl")]
#[test]
fn tls_towards_a_broker_that_speaks_none_is_an_error_of_its_own() {
    let Some(broker) = Broker::start() else { return };
    all_contain(&errors(&broker.servers, "in", &[("security.protocol", "ssl")]), "on TLS (setting security.protocol)");
}

#[cfg(not(feature = "ssl"))]
#[test]
fn tls_without_the_feature_is_a_setting_that_is_refused() {
    all_contain(&errors("127.0.0.1:1", "in", &[("security.protocol", "ssl")]), "security.protocol");
}
