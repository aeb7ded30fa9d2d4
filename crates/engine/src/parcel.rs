//! What travels through timely: one batch, or one mark of event time, with its two ends.

use std::io::Write;

use millpond_core::codec;
use millpond_dataflow::Element;
use timely::communication::Push;
use timely::container::Accountable;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

/// The content of a parcel.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// Nothing: how timely leaves a container whose content it has taken.
    #[default]
    Empty,
    /// A batch or a mark of this process.
    Element(Element),
    /// A batch or a mark as it came over the wire; the reader knows its type.
    Encoded(Vec<u8>),
}

/// A batch on its way from a subtask to another.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    /// Index of the sending subtask.
    pub(crate) sender: u32,
    /// Index of the receiving subtask, which is its worker.
    pub(crate) receiver: u32,
    /// The batch.
    pub(crate) content: Content,
}

/// Timely counts parcels, not records.
impl Accountable for Parcel {
    fn record_count(&self) -> i64 {
        i64::from(!matches!(self.content, Content::Empty))
    }
}

/// The wire form: sender, receiver and the encoded batch, behind their length, padded to 8 bytes.
impl ContainerBytes for Parcel {
    fn from_bytes(bytes: timely::bytes::arc::Bytes) -> Self {
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("split at 8 bytes"));
        let (sender, receiver, batch) = codec::decode(&rest[..length as usize])
            .expect("timely hands over what `into_bytes` wrote on the other side");
        Parcel { sender, receiver, content: Content::Encoded(batch) }
    }

    fn length_in_bytes(&self) -> usize {
        8 + self.encode().len().next_multiple_of(8)
    }

    fn into_bytes<W: Write>(&self, writer: &mut W) {
        let mut encoded = self.encode();
        let length = encoded.len();
        encoded.resize(length.next_multiple_of(8), 0);
        let written = writer.write_all(&(length as u64).to_le_bytes()).and_then(|()| writer.write_all(&encoded));
        written.expect("timely offers a buffer of `length_in_bytes` bytes");
    }
}

impl Parcel {
    fn encode(&self) -> Vec<u8> {
        let batch = match &self.content {
            Content::Empty => Vec::new(),
            Content::Element(element) => element.encode().expect("records that cross an exchange can be encoded"),
            Content::Encoded(bytes) => bytes.clone(),
        };
        codec::encode(&(self.sender, self.receiver, batch)).expect("numbers and bytes can be encoded")
    }
}

/// Sends each parcel to the worker of its receiver.
pub(crate) struct ByReceiver;

impl Distributor<Parcel> for ByReceiver {
    fn partition<T: Clone, P: Push<Message<T, Parcel>>>(
        &mut self,
        parcel: &mut Parcel,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        let receiver = parcel.receiver as usize;
        Message::push_at(parcel, stamp.clone(), &mut pushers[receiver]);
    }

    fn flush<T: Clone, P: Push<Message<T, Parcel>>>(&mut self, _stamp: &Stamp<T>, _pushers: &mut [P]) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_dataflow::Batch;

    #[test]
    fn a_parcel_survives_the_wire() {
        let batch = Batch::from(vec!["a".to_owned(), "bcd".to_owned()]).boxed();
        let parcel = Parcel { sender: 3, receiver: 1, content: Content::Element(batch.into()) };
        let mut bytes = Vec::new();
        parcel.into_bytes(&mut bytes);
        assert_eq!(bytes.len(), parcel.length_in_bytes());
        assert_eq!(bytes.len() % 8, 0);
        let bytes = timely::bytes::arc::BytesMut::from(bytes).freeze();
        let back = Parcel::from_bytes(bytes);
        assert_eq!((back.sender, back.receiver), (3, 1));
        let Content::Encoded(batch) = back.content else { panic!("still encoded") };
        let element = Element::decode(&batch, millpond_dataflow::batch::decode::<String>).unwrap();
        assert_eq!(element.into_batch().unwrap().downcast::<String>().records, ["a", "bcd"]);
    }
}
