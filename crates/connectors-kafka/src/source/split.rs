//! A partition and the position reached in it.

use millpond_dataflow::Split;
use serde::{Deserialize, Serialize};

/// The first offset that a partition has, whatever that is.
pub(super) const BEGINNING: i64 = -2;

/// A partition and the position reached in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaSplit {
    /// Its topic.
    pub topic: String,
    /// Which partition.
    pub partition: i32,
    /// The offset of the next message to read (KF-01); -2 for the first that there is.
    pub next: i64,
    /// The offset at which reading ends (KF-08).
    pub stop: Option<i64>,
}

impl KafkaSplit {
    pub(super) fn from_beginning(topic: String, partition: i32) -> Self {
        KafkaSplit { topic, partition, next: BEGINNING, stop: None }
    }
}

impl Split for KafkaSplit {
    fn id(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }
}
