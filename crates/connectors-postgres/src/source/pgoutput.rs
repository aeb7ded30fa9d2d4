//! Messages of the output plugin `pgoutput`, protocol version 1: what PostgreSQL tells of changes.
//!
//! Pure: bytes in, a message or a typed error out. Begin and commit are told apart by the client. Text values only; binary ones
//! are never asked for.

use crate::PostgresError;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What a table looks like, told before its first change and after changes of the table.
    Relation(Relation),
    /// A row was inserted.
    Insert {
        /// The table's id.
        relation: u32,
        /// The row.
        new: Vec<Cell>,
    },
    /// A row was updated.
    Update {
        /// The table's id.
        relation: u32,
        /// The row before, as far as it is told.
        old: Option<Old>,
        /// The row after.
        new: Vec<Cell>,
    },
    /// A row was deleted.
    Delete {
        /// The table's id.
        relation: u32,
        /// The row before, as far as it is told.
        old: Old,
    },
    /// Tables were emptied at once.
    Truncate {
        /// Their ids.
        relations: Vec<u32>,
    },
    /// Something that is no change of a row.
    Other,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its id.
    pub id: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// `d`: by primary key, `n`: nothing, `f`: whole rows, `i`: by an index.
    pub identity: u8,
    /// Names and types.
    pub columns: Vec<(String, u32)>,
}

/// What is told of the row before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    /// Whether that is all of it; else its key only, and the other columns are null.
    pub whole: bool,
    /// The row.
    pub row: Vec<Cell>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// None.
    Null,
    /// A large value that did not change and is not repeated.
    Unchanged,
    /// Its text.
    Text(String),
}

struct Input<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn wrong(&self, what: &'static str) -> PostgresError {
        PostgresError::Stream { what, at: self.at, bytes: self.all.len() }
    }

    fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], PostgresError> {
        let taken = self.all[self.at..].get(..count).ok_or_else(|| self.wrong(what))?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], PostgresError> {
        let taken = self.all[self.at..].first_chunk::<N>().ok_or_else(|| self.wrong(what))?;
        self.at += N;
        Ok(*taken)
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, PostgresError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    fn short(&mut self, what: &'static str) -> Result<usize, PostgresError> {
        self.array(what).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    fn long(&mut self, what: &'static str) -> Result<u32, PostgresError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// A text that ends with a zero.
    fn name(&mut self, what: &'static str) -> Result<String, PostgresError> {
        let length = self.all[self.at..].iter().position(|byte| *byte == 0).ok_or_else(|| self.wrong(what))?;
        let bytes = self.take(length, what)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.wrong(what))?.to_owned();
        self.at += 1;
        Ok(text)
    }

    fn row(&mut self) -> Result<Vec<Cell>, PostgresError> {
        let count = self.short("the number of columns")?;
        // Each takes at least one byte.
        let mut row = Vec::with_capacity(count.min(self.all.len() - self.at));
        for _ in 0..count {
            row.push(match self.byte("the kind of a value")? {
                b'n' => Cell::Null,
                b'u' => Cell::Unchanged,
                b't' => {
                    let length = self.long("the length of a value")? as usize;
                    let bytes = self.take(length, "a value")?;
                    Cell::Text(std::str::from_utf8(bytes).map_err(|_| self.wrong("a text"))?.to_owned())
                }
                _ => return Err(self.wrong("the kind of a value")),
            });
        }
        Ok(row)
    }

    fn old(&mut self, kind: u8) -> Result<Old, PostgresError> {
        Ok(Old { whole: kind == b'O', row: self.row()? })
    }

    fn relation(&mut self) -> Result<Relation, PostgresError> {
        let id = self.long("the id of a table")?;
        let (schema, name) = (self.name("a schema")?, self.name("a table")?);
        let identity = self.byte("a replica identity")?;
        let count = self.short("the number of columns")?;
        let mut columns = Vec::with_capacity(count.min(self.all.len() - self.at));
        for _ in 0..count {
            self.byte("the flags of a column")?;
            let column = self.name("a column")?;
            let ty = self.long("the type of a column")?;
            self.long("the length of a column")?;
            columns.push((column, ty));
        }
        Ok(Relation { id, schema, name, identity, columns })
    }

    fn message(&mut self) -> Result<Message, PostgresError> {
        let message = match self.byte("the kind of a message")? {
            b'R' => Message::Relation(self.relation()?),
            b'I' => {
                let relation = self.long("the id of a table")?;
                match self.byte("a new row")? {
                    b'N' => Message::Insert { relation, new: self.row()? },
                    _ => return Err(self.wrong("a new row")),
                }
            }
            b'U' => {
                let relation = self.long("the id of a table")?;
                let mut kind = self.byte("a row")?;
                let mut old = None;
                if matches!(kind, b'K' | b'O') {
                    old = Some(self.old(kind)?);
                    kind = self.byte("a new row")?;
                }
                match kind {
                    b'N' => Message::Update { relation, old, new: self.row()? },
                    _ => return Err(self.wrong("a new row")),
                }
            }
            b'D' => {
                let relation = self.long("the id of a table")?;
                match self.byte("an old row")? {
                    kind @ (b'K' | b'O') => Message::Delete { relation, old: self.old(kind)? },
                    _ => return Err(self.wrong("an old row")),
                }
            }
            b'T' => {
                let count = self.long("the number of tables")? as usize;
                self.byte("the options of a truncation")?;
                let mut relations = Vec::with_capacity(count.min((self.all.len() - self.at) / 4));
                for _ in 0..count {
                    relations.push(self.long("the id of a table")?);
                }
                Message::Truncate { relations }
            }
            b'B' | b'C' | b'O' | b'Y' | b'M' => return Ok(Message::Other),
            _ => return Err(self.wrong("the kind of a message")),
        };
        if self.at < self.all.len() { Err(self.wrong("the end")) } else { Ok(message) }
    }
}

/// Reads a message.
///
/// # Errors
/// When it is none.
pub fn decode(bytes: &[u8]) -> Result<Message, PostgresError> {
    Input { all: bytes, at: 0 }.message()
}

/// The mirror of [`decode`], for tests and fuzzing; what is [`Message::Other`] has no bytes.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    match message {
        Message::Relation(relation) => {
            bytes.push(b'R');
            bytes.extend_from_slice(&relation.id.to_be_bytes());
            for name in [&relation.schema, &relation.name] {
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(0);
            }
            bytes.push(relation.identity);
            bytes.extend_from_slice(&(relation.columns.len() as u16).to_be_bytes());
            for (name, ty) in &relation.columns {
                bytes.push(0);
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(0);
                bytes.extend_from_slice(&ty.to_be_bytes());
                bytes.extend_from_slice(&(-1i32).to_be_bytes());
            }
        }
        Message::Insert { relation, new } => {
            put_head(b'I', *relation, &mut bytes);
            put_row(b'N', new, &mut bytes);
        }
        Message::Update { relation, old, new } => {
            put_head(b'U', *relation, &mut bytes);
            if let Some(old) = old {
                put_row(if old.whole { b'O' } else { b'K' }, &old.row, &mut bytes);
            }
            put_row(b'N', new, &mut bytes);
        }
        Message::Delete { relation, old } => {
            put_head(b'D', *relation, &mut bytes);
            put_row(if old.whole { b'O' } else { b'K' }, &old.row, &mut bytes);
        }
        Message::Truncate { relations } => {
            bytes.push(b'T');
            bytes.extend_from_slice(&(relations.len() as u32).to_be_bytes());
            bytes.push(0);
            relations.iter().for_each(|id| bytes.extend_from_slice(&id.to_be_bytes()));
        }
        Message::Other => {}
    }
    bytes
}

fn put_head(kind: u8, relation: u32, bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend_from_slice(&relation.to_be_bytes());
}

fn put_row(kind: u8, row: &[Cell], bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend_from_slice(&(row.len() as u16).to_be_bytes());
    for cell in row {
        match cell {
            Cell::Null => bytes.push(b'n'),
            Cell::Unchanged => bytes.push(b'u'),
            Cell::Text(text) => {
                bytes.push(b't');
                bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = Vec<Cell>> {
        let cell = prop_oneof![Just(Cell::Null), Just(Cell::Unchanged), ".{0,9}".prop_map(Cell::Text)];
        proptest::collection::vec(cell, 0..5)
    }

    fn message() -> impl Strategy<Value = Message> {
        let old = || (any::<bool>(), row()).prop_map(|(whole, row)| Old { whole, row });
        let columns = proptest::collection::vec(("[a-z ß]{0,9}", any::<u32>()), 0..5);
        prop_oneof![
            (any::<u32>(), "[a-z]{0,5}", "[a-z]{0,5}", any::<u8>(), columns).prop_map(
                |(id, schema, name, identity, columns)| {
                    Message::Relation(Relation { id, schema, name, identity, columns })
                }
            ),
            (any::<u32>(), row()).prop_map(|(relation, new)| Message::Insert { relation, new }),
            (any::<u32>(), proptest::option::of(old()), row()).prop_map(|(relation, old, new)| Message::Update {
                relation,
                old,
                new
            }),
            (any::<u32>(), old()).prop_map(|(relation, old)| Message::Delete { relation, old }),
            proptest::collection::vec(any::<u32>(), 0..4).prop_map(|relations| Message::Truncate { relations }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(decode(&encode(&message)).unwrap(), message);
        }

        #[test]
        fn a_message_that_is_cut_short_or_has_more_behind_it_is_an_error(message in message(), cut in any::<prop::sample::Index>()) {
            let mut bytes = encode(&message);
            let cut = cut.index(bytes.len());
            prop_assert!(decode(&bytes[..cut]).is_err());
            bytes.push(0);
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
