//! The bytes of an operator snapshot. The layout is in `docs/formats/operator-state.md`.

use std::sync::Arc;

use millpond_core::codec::{checksum, put_varint, take_varint};
use millpond_core::{KeyGroup, Schema};

use super::pieces::{Entries, Pieces};
use super::snapshot::{BroadcastSnapshot, ListMode, ListSnapshot, OperatorStateSnapshot};
use crate::error::StateError;

/// Version of the encoded form that is written.
pub const OPERATOR_STATE_FORMAT_VERSION: u16 = 1;

const MAGIC: &[u8; 4] = b"MPOS";
const HEADER_BYTES: usize = 6;
const CHECKSUM_BYTES: usize = 4;
const SPLIT: u8 = 0;
const UNION: u8 = 1;

impl OperatorStateSnapshot {
    /// The encoded form, with version and checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&OPERATOR_STATE_FORMAT_VERSION.to_le_bytes());
        put_varint(self.lists.len() as u64, &mut bytes);
        for list in &self.lists {
            put_bytes(list.name.as_bytes(), &mut bytes);
            bytes.push(if list.mode == ListMode::Split { SPLIT } else { UNION });
            put_schema(&list.schema, &mut bytes);
            put_pieces(&list.elements, &mut bytes);
        }
        put_varint(self.broadcasts.len() as u64, &mut bytes);
        for broadcast in &self.broadcasts {
            put_bytes(broadcast.name.as_bytes(), &mut bytes);
            put_schema(&broadcast.key, &mut bytes);
            put_schema(&broadcast.value, &mut bytes);
            put_varint(broadcast.entries.len() as u64, &mut bytes);
            for (key, value) in broadcast.entries.iter() {
                put_bytes(key, &mut bytes);
                put_bytes(value, &mut bytes);
            }
        }
        put_pieces(&self.raw_pieces, &mut bytes);
        put_varint(self.raw_keyed.len() as u64, &mut bytes);
        for (group, raw) in &self.raw_keyed {
            put_varint(u64::from(group.0), &mut bytes);
            put_bytes(raw, &mut bytes);
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The mirror of [`OperatorStateSnapshot::encode`].
    ///
    /// # Errors
    /// When the bytes are damaged, or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut input = Input::open(bytes)?;
        let mut snapshot = OperatorStateSnapshot::default();
        for _ in 0..input.varint()? {
            let name = input.text()?;
            let mode = match input.byte()? {
                SPLIT => ListMode::Split,
                UNION => ListMode::Union,
                _ => return Err(input.damaged("an unknown list mode")),
            };
            let (schema, elements) = (input.schema()?, input.pieces()?);
            snapshot.lists.push(ListSnapshot { name, mode, schema, elements });
        }
        for _ in 0..input.varint()? {
            let (name, key, value) = (input.text()?, input.schema()?, input.schema()?);
            let mut entries = Entries::default();
            for _ in 0..input.varint()? {
                entries.put(input.piece()?, input.piece()?);
            }
            snapshot.broadcasts.push(BroadcastSnapshot { name, key, value, entries });
        }
        snapshot.raw_pieces = input.pieces()?;
        for _ in 0..input.varint()? {
            let group = u16::try_from(input.varint()?).map_err(|_| input.damaged("a key group above 65535"))?;
            snapshot.raw_keyed.insert(KeyGroup(group), input.piece()?);
        }
        if input.rest.is_empty() { Ok(snapshot) } else { Err(input.damaged("bytes are left over")) }
    }
}

fn put_bytes(from: &[u8], bytes: &mut Vec<u8>) {
    put_varint(from.len() as u64, bytes);
    bytes.extend_from_slice(from);
}

fn put_schema(schema: &Schema, bytes: &mut Vec<u8>) {
    let json = serde_json::to_vec(schema).expect("schemas always have a JSON form");
    put_bytes(&json, bytes);
}

fn put_pieces(pieces: &Pieces, bytes: &mut Vec<u8>) {
    put_varint(pieces.len() as u64, bytes);
    pieces.iter().for_each(|piece| put_bytes(piece, bytes));
}

/// What is still to be decoded. Never allocates more than it has bytes for.
struct Input<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Input<'a> {
    /// Checks magic, version and checksum, in this order.
    fn open(bytes: &'a [u8]) -> Result<Self, StateError> {
        let damaged = |offset, reason| StateError::DamagedSnapshot { offset, length: bytes.len(), reason };
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
            return Err(damaged(bytes.len(), "it is cut off"));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(damaged(0, "it does not begin with MPOS"));
        }
        let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != OPERATOR_STATE_FORMAT_VERSION {
            let known = OPERATOR_STATE_FORMAT_VERSION;
            return Err(StateError::UnsupportedVersion { given: version, known });
        }
        if checksum(body).to_le_bytes() != *sum {
            return Err(damaged(body.len(), "the checksum differs"));
        }
        Ok(Input { rest: &body[HEADER_BYTES..], length: bytes.len() })
    }

    fn damaged(&self, reason: &'static str) -> StateError {
        let offset = self.length - CHECKSUM_BYTES - self.rest.len();
        StateError::DamagedSnapshot { offset, length: self.length, reason }
    }

    fn varint(&mut self) -> Result<u64, StateError> {
        let (value, rest) = take_varint(self.rest).ok_or_else(|| self.damaged("a number is cut off"))?;
        self.rest = rest;
        Ok(value)
    }

    fn byte(&mut self) -> Result<u8, StateError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.damaged("a byte is missing"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self) -> Result<&'a [u8], StateError> {
        let length = self.varint()?;
        let taken = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (bytes, rest) = taken.ok_or_else(|| self.damaged("bytes are cut off"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn piece(&mut self) -> Result<Arc<[u8]>, StateError> {
        self.bytes().map(Arc::from)
    }

    fn text(&mut self) -> Result<String, StateError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| self.damaged("a name is not UTF-8"))
    }

    fn schema(&mut self) -> Result<Schema, StateError> {
        let bytes = self.bytes()?;
        serde_json::from_slice(bytes).map_err(|_| self.damaged("a schema is not valid"))
    }

    fn pieces(&mut self) -> Result<Pieces, StateError> {
        let count = self.varint()?;
        (0..count).map(|_| self.piece()).collect()
    }
}
