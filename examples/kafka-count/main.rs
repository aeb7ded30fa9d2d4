//! Counts messages by key, from one topic of Kafka to another, exactly once.
//!
//! ```text
//! kafka-count run --state-dir DIR -- --servers HOST:PORT --in TOPIC --out TOPIC [--delivery exactly-once|at-least-once|idempotent]
//! ```
//!
//! For every message of the one topic there is one in the other, with the same key and the number of messages with
//! that key so far as value.

use millpond::kafka::{Delivery, KafkaSink, KafkaSinks, KafkaSource, Message};
use millpond::prelude::*;
use std::time::Duration;

/// What stands after `--`.
#[derive(Clone)]
struct Options {
    servers: String,
    input: String,
    output: String,
    delivery: Delivery,
}

impl Options {
    fn parse(arguments: &[String]) -> UserResult<Options> {
        let mut options = Options {
            servers: "localhost:9092".to_owned(),
            input: "in".to_owned(),
            output: "out".to_owned(),
            delivery: Delivery::ExactlyOnce,
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
            match (name.as_str(), value.as_str()) {
                ("--servers", _) => options.servers.clone_from(value),
                ("--in", _) => options.input.clone_from(value),
                ("--out", _) => options.output.clone_from(value),
                ("--delivery", "exactly-once") => options.delivery = Delivery::ExactlyOnce,
                ("--delivery", "at-least-once") => options.delivery = Delivery::AtLeastOnce,
                ("--delivery", "idempotent") => options.delivery = Delivery::Idempotent,
                _ => return Err(format!("unknown argument {name} {value}").into()),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    millpond::main(|flow| {
        let Options { servers, input, output, delivery } = Options::parse(&millpond::args())?;
        let messages = KafkaSource::with(&servers, &input, |message| {
            let key = message.key().ok_or("the message has no key")?;
            Ok(String::from_utf8(key.to_vec())?)
        });
        let counts = KafkaSink::with(&servers, &output, |(key, count): &(String, u64)| {
            Ok(Message::new(count.to_string()).key(key.as_bytes()))
        });
        flow.source("messages", messages.group("kafka-count").discover_every(Some(Duration::from_secs(5))))
            .key_by(|key| key.clone())
            .count("counts")
            .to_kafka("out", counts.delivery(delivery));
        Ok(())
    })
}
