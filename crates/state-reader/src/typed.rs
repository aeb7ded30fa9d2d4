//! State as Rust types: the reading half of changing a savepoint in a program.
//!
//! A type may differ from the stored one as far as a job's own types may when it is restored: values are
//! read through the stored schema. Keys must not differ. Of a state with a time to live, values come without their
//! times, unless `Timed` values are asked for; expired ones that are still stored come too.

use std::marker::PhantomData;

use millpond_core::{Data, Key, KeyGroup, Schema, codec};
use millpond_state::Timed;

use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::json::damaged;
use crate::operator::OperatorStateReader;
use crate::reader::StateReader;
use crate::rows::{Row, Rows};

/// Decodes values of one type, fast where they were written by this very type.
struct Values<T> {
    now: Schema,
    held: PhantomData<fn() -> T>,
}

impl<T: Data> Values<T> {
    fn new() -> Self {
        Values { now: Schema::of::<T>(), held: PhantomData }
    }

    /// The value of a row that holds one, be it with its time.
    fn read_row(&self, row: &Row<'_>) -> Result<T, String> {
        let stored = &row.description.value;
        if row.written.ttl.is_none() || *stored == self.now {
            return self.read(stored, row.value);
        }
        let timed = stored.read::<Timed<T>>(row.value).map_err(|error| error.to_string())?;
        Ok(timed.into_value())
    }

    /// The elements of a row of a list, be they with their times.
    fn read_chunk(&self, row: &Row<'_>) -> Result<Vec<T>, String> {
        if row.description.value == self.now {
            return codec::decode(row.value).map_err(|error| error.to_string());
        }
        let chunk = Schema::Seq(Box::new(row.description.value.clone()));
        if row.written.ttl.is_none() {
            return chunk.read(row.value).map_err(|error| error.to_string());
        }
        let timed = chunk.read::<Vec<Timed<T>>>(row.value).map_err(|error| error.to_string())?;
        Ok(timed.into_iter().map(Timed::into_value).collect())
    }

    fn read(&self, stored: &Schema, bytes: &[u8]) -> Result<T, String> {
        if *stored == self.now {
            return codec::decode(bytes).map_err(|error| error.to_string());
        }
        stored.read(bytes).map_err(|error| error.to_string())
    }
}

/// The rows of one state, decoded by `decode`.
struct TypedRows<K, F> {
    info: StateInfo,
    rows: Rows,
    decode: F,
    failed: bool,
    held: PhantomData<fn() -> K>,
}

impl<K: Key, R, F> Iterator for TypedRows<K, F>
where
    F: FnMut(&StateInfo, K, Row<'_>) -> Result<R, ReaderError>,
{
    type Item = Result<R, ReaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.step().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl<K: Key, R, F> TypedRows<K, F>
where
    F: FnMut(&StateInfo, K, Row<'_>) -> Result<R, ReaderError>,
{
    fn step(&mut self) -> Result<Option<R>, ReaderError> {
        if !self.rows.advance()? {
            return Ok(None);
        }
        let Some(row) = self.rows.current()? else { return Ok(None) };
        let key = part(&self.info, "key", row.group, codec::decode(row.key))?;
        (self.decode)(&self.info, key, row).map(Some)
    }
}

fn part<T, E: std::fmt::Display>(
    info: &StateInfo,
    part: &'static str,
    group: KeyGroup,
    decoded: Result<T, E>,
) -> Result<T, ReaderError> {
    decoded.map_err(|error| damaged(info, part, Some(group), error.to_string()))
}

impl StateReader {
    /// Keys and values of a value, reducing or aggregating state (of the last, accumulators).
    ///
    /// # Errors
    /// When there is no such state, it has another kind or other keys; a step, when what is stored is
    /// damaged or cannot be read as `V`.
    pub fn values<K: Key, V: Data>(
        &self,
        operator: &str,
        state: &str,
    ) -> Result<impl Iterator<Item = Result<(K, V), ReaderError>> + use<K, V>, ReaderError> {
        let values = Values::<V>::new();
        let kinds = [Kind::Value, Kind::Reducing, Kind::Aggregating];
        self.typed(operator, state, &kinds, move |info, key: K, row| {
            let value = values.read_row(&row);
            Ok((key, part(info, "value", row.group, value)?))
        })
    }

    /// Keys, user keys and values of a map state.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn map_entries<K: Key, UK: Key, UV: Data>(
        &self,
        operator: &str,
        state: &str,
    ) -> Result<impl Iterator<Item = Result<(K, UK, UV), ReaderError>> + use<K, UK, UV>, ReaderError> {
        let info = self.state_of_kind(operator, state, &[Kind::Map])?;
        check_key::<UK>(&info, "user key", info.user_key.as_ref())?;
        let values = Values::<UV>::new();
        self.typed(operator, state, &[Kind::Map], move |info, key: K, row| {
            let user_key = part(info, "user key", row.group, codec::decode(row.suffix))?;
            let value = values.read_row(&row);
            Ok((key, user_key, part(info, "value", row.group, value)?))
        })
    }

    /// Keys and whole lists of a list state; one key's list is in memory at a time.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn lists<K: Key, T: Data>(
        &self,
        operator: &str,
        state: &str,
    ) -> Result<impl Iterator<Item = Result<(K, Vec<T>), ReaderError>> + use<K, T>, ReaderError> {
        let values = Values::<T>::new();
        let chunks = self.typed(operator, state, &[Kind::List], move |info, key: K, row| {
            let chunk = values.read_chunk(&row);
            Ok((key, part(info, "value", row.group, chunk)?))
        })?;
        Ok(Joined { chunks: chunks.peekable() })
    }

    /// The elements of an operator list of all subtasks, in the order of subtasks; of a union list too.
    ///
    /// # Errors
    /// When there is no such state, it has another kind, is damaged, or cannot be read as `T`.
    pub fn operator_list<T: Data>(&self, operator: &str, state: &str) -> Result<Vec<T>, ReaderError> {
        let info = self.state_of_kind(operator, state, &[Kind::SplitList, Kind::UnionList])?;
        let values = Values::<T>::new();
        let held = OperatorStateReader::load(self, self.operator(operator)?)?;
        let elements = held.elements(&info);
        let read = |(schema, bytes): (&Schema, &[u8])| {
            values.read(schema, bytes).map_err(|reason| damaged(&info, "value", None, reason))
        };
        elements.map(read).collect()
    }

    fn state_of_kind(&self, operator: &str, state: &str, kinds: &[Kind]) -> Result<StateInfo, ReaderError> {
        let all = self.states(Some(operator))?;
        let fits = |info: &&StateInfo| info.state == state && kinds.contains(&info.kind);
        if let Some(info) = all.iter().find(fits) {
            return Ok(info.clone());
        }
        let info = self.state(operator, state, None)?;
        let (operator, state, kind) = (info.operator, info.state, info.kind.word());
        Err(ReaderError::WrongKind { operator, state, kind, what: wanted(kinds) })
    }

    fn typed<K: Key, R, F>(
        &self,
        operator: &str,
        state: &str,
        kinds: &[Kind],
        decode: F,
    ) -> Result<TypedRows<K, F>, ReaderError>
    where
        F: FnMut(&StateInfo, K, Row<'_>) -> Result<R, ReaderError>,
    {
        let info = self.state_of_kind(operator, state, kinds)?;
        check_key::<K>(&info, "key", info.key.as_ref())?;
        let rows = self.rows(&info)?;
        Ok(TypedRows { info, rows, decode, failed: false, held: PhantomData })
    }
}

fn wanted(kinds: &[Kind]) -> &'static str {
    match kinds {
        [Kind::Map] => "map entries",
        [Kind::List] => "lists by key",
        [Kind::Value, ..] => "value by key",
        _ => "operator list",
    }
}

/// Keys are found by their encoding, so they are not migrated.
fn check_key<K: Key>(info: &StateInfo, part: &'static str, stored: Option<&Schema>) -> Result<(), ReaderError> {
    let now = Schema::of::<K>();
    match stored {
        Some(stored) if *stored == now => Ok(()),
        _ => Err(ReaderError::WrongType {
            operator: info.operator.clone(),
            state: info.state.clone(),
            part,
            stored: stored.map_or_else(|| "nothing".to_owned(), ToString::to_string),
            now: now.to_string(),
        }),
    }
}

/// Puts the chunks of each key's list together.
struct Joined<I: Iterator> {
    chunks: std::iter::Peekable<I>,
}

impl<K: Key, T, I> Iterator for Joined<I>
where
    I: Iterator<Item = Result<(K, Vec<T>), ReaderError>>,
{
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, mut list) = match self.chunks.next()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        loop {
            match self.chunks.next_if(|chunk| chunk.as_ref().map_or(true, |(next, _)| *next == key)) {
                None => return Some(Ok((key, list))),
                Some(Ok((_, mut more))) => list.append(&mut more),
                Some(Err(error)) => return Some(Err(error)),
            }
        }
    }
}
