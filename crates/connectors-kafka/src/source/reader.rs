//! Reads one partition out of the queue that the client fills.

use std::sync::Arc;
use std::time::Duration;

use millpond_connectors::BadRecords;
use millpond_core::{Data, UserResult};
use millpond_dataflow::{Output, ReadStatus, SplitReader};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message as _, Offset, TopicPartitionList};

use super::split::{BEGINNING, KafkaSplit};
use super::start::{Missing, watermarks};
use super::{BAD_MESSAGES, Decode, Settings};
use crate::KafkaError;
use crate::client::Watch;
use crate::error::{Classify, code_of};
use crate::message::{BadMessage, KafkaMessage};

/// Reads one partition.
pub struct KafkaReader<T> {
    consumer: Arc<BaseConsumer<Watch>>,
    split: KafkaSplit,
    settings: Settings,
    decode: Decode<T>,
    queue: Option<PartitionQueue<Watch>>,
}

/// What came out of the queue.
enum Next {
    /// A message was dealt with.
    Message,
    /// Everything that is readable now has been read.
    CaughtUp,
    /// Nothing at the moment.
    Nothing,
    /// The partition is at its end for good.
    End,
}

impl<T: Data> KafkaReader<T> {
    pub(super) fn open(
        consumer: Arc<BaseConsumer<Watch>>,
        split: KafkaSplit,
        settings: &Settings,
        decode: &Decode<T>,
    ) -> Result<Self, KafkaError> {
        let (settings, decode) = (settings.clone(), Arc::clone(decode));
        let mut reader = KafkaReader { consumer, split, settings, decode, queue: None };
        if !reader.is_at_stop() {
            reader.assign()?;
        }
        Ok(reader)
    }

    fn is_at_stop(&self) -> bool {
        self.split.stop.is_some_and(|stop| self.split.next >= stop)
    }

    /// Has the client fetch the partition from the split's position on.
    fn assign(&mut self) -> Result<(), KafkaError> {
        let KafkaSplit { topic, partition, next, .. } = &self.split;
        let failed =
            |error| KafkaError::call(format!("read partition {partition} of topic {topic}"), String::new(), error);
        // The queue first: what is fetched must not go anywhere else.
        let queue = self.consumer.split_partition_queue(topic, *partition);
        let mut list = TopicPartitionList::new();
        let offset = if *next == BEGINNING { Offset::Beginning } else { Offset::Offset(*next) };
        list.add_partition_offset(topic, *partition, offset).map_err(failed)?;
        self.consumer.incremental_assign(&list).map_err(failed)?;
        self.queue = Some(queue.ok_or_else(|| KafkaError::NoPartition {
            topic: topic.clone(),
            partition: *partition,
            offset: *next,
        })?);
        Ok(())
    }

    /// The client fetches the partition no more.
    fn release(&mut self) {
        if self.queue.take().is_some() {
            let mut list = TopicPartitionList::new();
            list.add_partition(&self.split.topic, self.split.partition);
            if let Err(error) = self.consumer.incremental_unassign(&list) {
                tracing::debug!(%error, topic = self.split.topic, "a partition was not given back");
            }
        }
    }

    fn read_some(&mut self, limit: usize, output: &mut Output<T>) -> Result<ReadStatus, KafkaError> {
        if self.is_at_stop() {
            self.release();
            return Ok(ReadStatus::Finished);
        }
        self.hear()?;
        for _ in 0..limit {
            match self.next(output)? {
                Next::Message if self.is_at_stop() => {
                    self.release();
                    return Ok(ReadStatus::Finished);
                }
                Next::Message => {}
                // Nothing before the stop is left, even if the last offsets hold no messages.
                Next::CaughtUp if self.split.stop.is_some_and(|stop| self.ends_before(stop)) => {
                    self.release();
                    return Ok(ReadStatus::Finished);
                }
                Next::CaughtUp | Next::Nothing => return Ok(ReadStatus::Idle),
                Next::End => {
                    self.release();
                    return Ok(ReadStatus::Finished);
                }
            }
        }
        Ok(ReadStatus::Ready)
    }

    /// Whether the end that the client has come to is at or behind `stop`.
    fn ends_before(&self, stop: i64) -> bool {
        let KafkaSplit { topic, partition, .. } = &self.split;
        // Offsets at the end may belong to markers of transactions, which are no messages.
        watermarks(&self.settings, &self.consumer, topic, *partition).is_ok_and(|(_, high)| high >= stop)
    }

    /// Events that belong to no partition.
    fn hear(&mut self) -> Result<(), KafkaError> {
        while let Some(event) = self.consumer.poll(Duration::ZERO) {
            let Err(error) = event else { continue };
            match code_of(&error) {
                Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL) => {
                    self.consumer.context().verdict(&self.settings.connection.servers)?;
                }
                // The client goes on by itself once brokers are back.
                _ => tracing::debug!(%error, "kafka client"),
            }
        }
        Ok(())
    }

    fn next(&mut self, output: &mut Output<T>) -> Result<Next, KafkaError> {
        let Some(queue) = &self.queue else { return Ok(Next::Nothing) };
        let error = match queue.poll(Duration::ZERO) {
            None => return Ok(Next::Nothing),
            Some(Err(ClientError::PartitionEOF(_))) => return Ok(Next::CaughtUp),
            Some(Ok(message)) => {
                let next = message.offset() + 1;
                // A message at or behind the stop is none of ours.
                if self.split.stop.is_none_or(|stop| next <= stop) {
                    emit(&message, &self.settings, &self.decode, output)?;
                }
                self.split.next = next;
                return Ok(Next::Message);
            }
            Some(Err(error)) => error,
        };
        match code_of(&error) {
            Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => self.out_of_range(),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition) => self.gone(),
            Some(Code::TopicAuthorizationFailed) => {
                let operation = format!("reading topic {}", self.split.topic);
                Err(KafkaError::NotPermitted { operation, reason: error.to_string() })
            }
            _ => {
                let KafkaSplit { topic, partition, .. } = &self.split;
                tracing::warn!(%error, topic, partition, "cannot read a partition at the moment");
                Ok(Next::Nothing)
            }
        }
    }

    /// The offset to go on from is not there.
    fn out_of_range(&mut self) -> Result<Next, KafkaError> {
        let KafkaSplit { topic, partition, next: offset, .. } = self.split.clone();
        let (low, high) = match watermarks(&self.settings, &self.consumer, &topic, partition) {
            Ok(found) => found,
            Err(error) => return self.gone().map_err(|_| error),
        };
        let next = match self.settings.out_of_range {
            _ if offset == BEGINNING => low,
            Missing::Fail => return Err(KafkaError::OutOfRange { topic, partition, offset, low, high }),
            Missing::Earliest => low,
            Missing::Latest => high,
        };
        tracing::warn!(topic, partition, offset, low, high, next, "an offset is out of range: goes on elsewhere");
        self.release();
        self.split.next = next;
        self.assign()?;
        Ok(Next::Nothing)
    }

    /// The partition, or its topic, was deleted.
    fn gone(&mut self) -> Result<Next, KafkaError> {
        let KafkaSplit { topic, partition, next: offset, .. } = self.split.clone();
        if self.settings.deleted_ends {
            tracing::warn!(topic, partition, offset, "a partition was deleted: it has been read to its end");
            return Ok(Next::End);
        }
        Err(KafkaError::NoPartition { topic, partition, offset })
    }
}

/// Emits a message as a record, or does with it what is done with bad ones.
fn emit<T: Data>(
    message: &BorrowedMessage<'_>,
    settings: &Settings,
    decode: &Decode<T>,
    output: &mut Output<T>,
) -> Result<(), KafkaError> {
    let message = KafkaMessage::new(message);
    let cause = match decode(&message) {
        Ok(record) => {
            match message.timestamp_ms() {
                Some(time_ms) => output.emit_at(record, time_ms),
                None => output.emit(record),
            }
            return Ok(());
        }
        Err(cause) => millpond_core::error::chain(cause.as_ref()),
    };
    let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
    match settings.bad {
        BadRecords::Fail => Err(KafkaError::BadMessage { topic: topic.to_owned(), partition, offset, cause }),
        BadRecords::SkipAndCount => {
            let count = settings.counter.count_one();
            if count.is_power_of_two() {
                tracing::warn!(topic, partition, offset, cause, count, "skipped a bad message");
            }
            Ok(())
        }
        BadRecords::SideOutput => {
            output.emit_side(BAD_MESSAGES, BadMessage { message: message.to_owned(), error: cause });
            Ok(())
        }
    }
}

impl<T: Data> SplitReader for KafkaReader<T> {
    type Record = T;
    type Split = KafkaSplit;

    fn read(&mut self, limit: usize, output: &mut Output<T>) -> UserResult<ReadStatus> {
        self.read_some(limit, output).classify()
    }

    fn split(&self) -> KafkaSplit {
        self.split.clone()
    }
}

impl<T> Drop for KafkaReader<T> {
    fn drop(&mut self) {
        // Queues keep the client alive; it must not wait for them.
        self.queue = None;
    }
}
