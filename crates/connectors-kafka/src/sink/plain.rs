//! A sink that sends at once and has everything delivered before a checkpoint.

use std::time::Duration;

use millpond_core::{Data, Epoch, UserResult};
use millpond_dataflow::{Sink, SinkContext};
use rdkafka::producer::Producer as _;

use super::Settings;
use super::entry;
use super::limits::Limits;
use super::producer::Producer;
use crate::KafkaError;
use crate::error::Classify;

/// Without transactions: what was written since a checkpoint is written again after a failure.
pub(super) struct PlainSink<T> {
    pub(super) settings: Settings<T>,
    pub(super) idempotent: bool,
    pub(super) open: Option<(Limits, Producer)>,
    pub(super) scratch: Vec<u8>,
}

impl<T: Data> PlainSink<T> {
    fn start(&mut self) -> Result<(), KafkaError> {
        let limits = self.settings.check()?;
        let batch_size = self.settings.batch_size(&limits);
        let idempotence = if self.idempotent { "true" } else { "false" };
        let timeout_ms = self.settings.delivery_timeout.as_millis().to_string();
        let own = [("enable.idempotence", idempotence), ("acks", "all"), ("message.timeout.ms", timeout_ms.as_str())];
        let batch_size = batch_size.as_ref().map(|(name, value)| (*name, value.as_str()));
        let own: Vec<_> = own.into_iter().chain(batch_size).collect();
        let (connection, topic) = (&self.settings.connection, &self.settings.topic);
        let producer = Producer::new(connection, topic, self.settings.delivery_timeout, &own)?;
        self.open = Some((limits, producer));
        Ok(())
    }

    fn send(&mut self, record: T) -> Result<(), KafkaError> {
        let (limits, producer) = self.open.as_mut().ok_or(KafkaError::NotOpen)?;
        let Some(message) = self.settings.message(&record, limits)? else { return Ok(()) };
        self.scratch.clear();
        entry::encode(&message, None, &mut self.scratch);
        producer.check_delivered()?;
        producer.send(&entry::decode(&self.scratch)?)
    }

    fn flush(&mut self) -> Result<(), KafkaError> {
        let (_, producer) = self.open.as_mut().ok_or(KafkaError::NotOpen)?;
        let patience = self.settings.delivery_timeout + Duration::from_secs(1);
        let flushed = producer.client.flush(patience);
        producer.check_delivered()?;
        flushed.map_err(|error| KafkaError::call("have everything delivered", producer.watch().last_word(), error))
    }
}

impl<T: Data> Sink for PlainSink<T> {
    type Record = T;
    type Committable = ();

    fn open(&mut self, _context: &SinkContext<'_>) -> UserResult {
        self.start().classify()
    }

    fn write(&mut self, record: T) -> UserResult {
        self.send(record).classify()
    }

    fn prepare(&mut self, _epoch: Epoch) -> UserResult<Vec<()>> {
        self.flush().classify()?;
        Ok(Vec::new())
    }

    fn commit(&mut self, (): ()) -> UserResult {
        Ok(())
    }
}
