//! Where partitions start and stop.

use std::collections::BTreeMap;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::Settings;
use super::split::{BEGINNING, KafkaSplit};
use crate::KafkaError;
use crate::client::Watch;

/// Where a source starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the first message that there is.
    Earliest,
    /// With the first message that comes after the start.
    Latest,
    /// Where the consumer group is, see [`KafkaSource::group`](super::KafkaSource::group).
    Group,
    /// With the first message whose timestamp, in milliseconds since 1970-01-01 UTC, is not before this.
    Timestamp(i64),
    /// At these offsets, by topic and partition; partitions that are not named start with the first message that
    /// there is.
    Offsets(BTreeMap<(String, i32), i64>),
}

/// Where a bounded source stops. The message at the offset is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// At the end that each partition has at the start: with what is committed by then.
    Latest,
    /// At these offsets, by topic and partition; partitions that are not named are not read.
    Offsets(BTreeMap<(String, i32), i64>),
}

/// Where to go on when the offset to go on from is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Nowhere: the attempt ends with an error that names the offset.
    #[default]
    Fail,
    /// With the first message that there is.
    Earliest,
    /// With the first message that comes.
    Latest,
}

/// The splits of a fresh start.
pub(super) fn started(
    settings: &Settings,
    consumer: &BaseConsumer<Watch>,
    found: Vec<(String, i32)>,
) -> Result<Vec<KafkaSplit>, KafkaError> {
    let mut starts = match &settings.start {
        StartAt::Group => committed(settings, consumer, &found)?,
        StartAt::Timestamp(ms) => at_time(settings, consumer, &found, *ms)?,
        StartAt::Offsets(offsets) => {
            check_known(offsets.keys(), &found, settings)?;
            offsets.clone()
        }
        StartAt::Earliest | StartAt::Latest => BTreeMap::new(),
    };
    if let Some(StopAt::Offsets(stops)) = &settings.stop {
        check_known(stops.keys(), &found, settings)?;
    }
    let mut splits = Vec::with_capacity(found.len());
    for (topic, partition) in found {
        let key = (topic.clone(), partition);
        let stop = match &settings.stop {
            None => None,
            Some(StopAt::Latest) => Some(watermarks(settings, consumer, &topic, partition)?.1),
            Some(StopAt::Offsets(stops)) => match stops.get(&key) {
                Some(stop) => Some(*stop),
                None => continue,
            },
        };
        let next = match (&settings.start, starts.remove(&key)) {
            (_, Some(offset)) => offset,
            (StartAt::Latest, None) => watermarks(settings, consumer, &topic, partition)?.1,
            (StartAt::Group, None) => {
                let missing = settings.no_group;
                without_group(settings, consumer, &topic, partition, missing)?
            }
            // Nothing is as late as that yet: what comes is.
            (StartAt::Timestamp(_), None) => watermarks(settings, consumer, &topic, partition)?.1,
            (StartAt::Earliest | StartAt::Offsets(_), None) => BEGINNING,
        };
        splits.push(KafkaSplit { topic, partition, next, stop });
    }
    Ok(splits)
}

fn without_group(
    settings: &Settings,
    consumer: &BaseConsumer<Watch>,
    topic: &str,
    partition: i32,
    missing: Missing,
) -> Result<i64, KafkaError> {
    match missing {
        Missing::Earliest => Ok(BEGINNING),
        Missing::Latest => Ok(watermarks(settings, consumer, topic, partition)?.1),
        Missing::Fail => {
            let (group, topic) = (settings.group.clone().unwrap_or_default(), topic.to_owned());
            Err(KafkaError::NotCommitted { group, topic, partition })
        }
    }
}

/// Partitions that somebody has named must be there.
fn check_known<'a>(
    named: impl Iterator<Item = &'a (String, i32)>,
    found: &[(String, i32)],
    settings: &Settings,
) -> Result<(), KafkaError> {
    for (topic, partition) in named {
        if !settings.topics.contains(topic) {
            let reason = format!("topic {topic} is not one that the source reads");
            return Err(KafkaError::Setting { setting: "offsets".to_owned(), reason });
        }
        if !found.contains(&(topic.clone(), *partition)) {
            return Err(KafkaError::NoPartition { topic: topic.clone(), partition: *partition, offset: 0 });
        }
    }
    Ok(())
}

/// The first offset of a partition, and the one after its last.
pub(super) fn watermarks(
    settings: &Settings,
    consumer: &BaseConsumer<Watch>,
    topic: &str,
    partition: i32,
) -> Result<(i64, i64), KafkaError> {
    consumer.fetch_watermarks(topic, partition, settings.connection.deadline).map_err(|error| {
        let operation = format!("ask for the offsets of partition {partition} of topic {topic}");
        KafkaError::call(operation, consumer.context().last_word(), error)
    })
}

/// What the group has committed.
fn committed(
    settings: &Settings,
    consumer: &BaseConsumer<Watch>,
    found: &[(String, i32)],
) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
    let Some(group) = &settings.group else {
        let reason = "there is no group to start from: set one".to_owned();
        return Err(KafkaError::Setting { setting: "group".to_owned(), reason });
    };
    let failed =
        |error| KafkaError::call(format!("read the offsets of group {group}"), consumer.context().last_word(), error);
    let asked = list(found, Offset::Invalid)?;
    let offsets = consumer.committed_offsets(asked, settings.connection.deadline).map_err(failed)?;
    offsets_of(&offsets, failed)
}

/// The first offsets whose messages are not before `ms`.
fn at_time(
    settings: &Settings,
    consumer: &BaseConsumer<Watch>,
    found: &[(String, i32)],
    ms: i64,
) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
    if ms < 0 {
        let reason = format!("{ms} is before 1970");
        return Err(KafkaError::Setting { setting: "start_at".to_owned(), reason });
    }
    let failed = |error| {
        let operation = format!("ask for the offsets at {ms} ms");
        KafkaError::call(operation, consumer.context().last_word(), error)
    };
    let asked = list(found, Offset::Offset(ms))?;
    let offsets = consumer.offsets_for_times(asked, settings.connection.deadline).map_err(failed)?;
    offsets_of(&offsets, failed)
}

fn list(found: &[(String, i32)], offset: Offset) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(found.len());
    for (topic, partition) in found {
        list.add_partition_offset(topic, *partition, offset)
            .map_err(|error| KafkaError::call("name a partition", String::new(), error))?;
    }
    Ok(list)
}

/// Those offsets that are known.
fn offsets_of(
    list: &TopicPartitionList,
    failed: impl Fn(rdkafka::error::KafkaError) -> KafkaError,
) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
    let mut offsets = BTreeMap::new();
    for element in list.elements() {
        element.error().map_err(&failed)?;
        if let Offset::Offset(offset) = element.offset() {
            offsets.insert((element.topic().to_owned(), element.partition()), offset);
        }
    }
    Ok(offsets)
}
