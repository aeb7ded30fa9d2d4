//! What travels through timely: one batch, or one mark of event time, with its two ends.

use std::io::Write;
use std::ops::Deref;

use millpond_dataflow::Element;
use timely::bytes::arc::Bytes;
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
    /// A batch or a mark on the wire; the reader knows its type.
    Encoded(Encoded),
}

/// Bytes of an element: to be sent, or as they came.
pub(crate) enum Encoded {
    Own(Vec<u8>),
    /// A piece of what timely has read, which it can use again once the piece is dropped.
    Received(Bytes),
}

impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoded({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Encoded::Own(bytes)
    }
}

impl Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Encoded::Own(bytes) => bytes,
            Encoded::Received(bytes) => bytes,
        }
    }
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

/// Length of the element, sender, receiver.
const HEAD_BYTES: usize = 16;

/// The wire form: length of the element, sender and receiver, little-endian; the element, padded to 8 bytes.
impl ContainerBytes for Parcel {
    /// Bytes that are no parcel become one whose element cannot be decoded, which the subtask that reads it reports.
    fn from_bytes(mut bytes: Bytes) -> Self {
        if bytes.len() < HEAD_BYTES {
            return Parcel { content: Content::Encoded(Encoded::Received(bytes)), ..Parcel::default() };
        }
        let head = bytes.extract_to(HEAD_BYTES);
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = number(0) as usize | (number(4) as usize) << 32;
        if length > bytes.len() {
            return Parcel { content: Content::Encoded(Encoded::Own(Vec::new())), ..Parcel::default() };
        }
        let element = bytes.extract_to(length);
        Parcel { sender: number(8), receiver: number(12), content: Content::Encoded(Encoded::Received(element)) }
    }

    fn length_in_bytes(&self) -> usize {
        HEAD_BYTES + self.element().len().next_multiple_of(8)
    }

    fn into_bytes<W: Write>(&self, writer: &mut W) {
        let element = self.element();
        let padding = element.len().next_multiple_of(8) - element.len();
        let mut head = (element.len() as u64).to_le_bytes().to_vec();
        head.extend(self.sender.to_le_bytes());
        head.extend(self.receiver.to_le_bytes());
        let written = writer.write_all(&head).and_then(|()| writer.write_all(element));
        let written = written.and_then(|()| writer.write_all(&[0; 8][..padding]));
        written.expect("timely offers a buffer of `length_in_bytes` bytes");
    }
}

impl Parcel {
    fn element(&self) -> &[u8] {
        match &self.content {
            Content::Encoded(bytes) => bytes,
            Content::Empty => &[],
            // Timely calls for bytes only towards other processes.
            Content::Element(_) => unreachable!("elements for other processes are encoded before they are shipped"),
        }
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
    fn bytes_that_are_no_parcel_are_an_element_that_cannot_be_decoded_and_never_a_panic() {
        let element = Element::from(Batch::from(vec![7u64, 8, 9]).boxed()).encode().unwrap();
        let mut sound = Vec::new();
        Parcel { sender: 1, receiver: 2, content: Content::Encoded(element.into()) }.into_bytes(&mut sound);
        let mut cases: Vec<Vec<u8>> = (0..sound.len()).map(|length| sound[..length].to_vec()).collect();
        // Lengths that are far too long, or a little.
        cases.extend([u64::MAX, 1 << 40, sound.len() as u64].map(|length| {
            let mut bytes = sound.clone();
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            bytes
        }));
        for case in cases {
            let length = case.len();
            let parcel = Parcel::from_bytes(timely::bytes::arc::BytesMut::from(case).freeze());
            let Content::Encoded(bytes) = parcel.content else { panic!("encoded") };
            // Cut within the padding, it is still whole.
            if length + 8 < sound.len() || length == sound.len() {
                assert!(Element::decode(&bytes, millpond_dataflow::batch::decode::<u64>).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn a_parcel_survives_the_wire() {
        let element = Element::from(Batch::from(vec!["a".to_owned(), "bcd".to_owned()]).boxed());
        let content = Content::Encoded(element.encode().unwrap().into());
        let parcel = Parcel { sender: 3, receiver: 70_000, content };
        let mut bytes = Vec::new();
        parcel.into_bytes(&mut bytes);
        assert_eq!(bytes.len(), parcel.length_in_bytes());
        assert_eq!(bytes.len() % 8, 0);
        let bytes = timely::bytes::arc::BytesMut::from(bytes).freeze();
        let back = Parcel::from_bytes(bytes);
        assert_eq!((back.sender, back.receiver), (3, 70_000));
        let Content::Encoded(batch) = back.content else { panic!("still encoded") };
        let element = Element::decode(&batch, millpond_dataflow::batch::decode::<String>).unwrap();
        assert_eq!(element.into_batch().unwrap().downcast::<String>().records, ["a", "bcd"]);
    }
}
