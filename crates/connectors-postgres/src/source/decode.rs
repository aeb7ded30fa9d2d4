//! Rows of texts as values of serde's types.

use std::fmt;

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::pgoutput::Cell;

// Ids of built-in types, which never change.
const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INTEGERS: [u32; 4] = [20, 21, 23, 26];
const FLOATS: [u32; 2] = [700, 701];
const JSON: [u32; 2] = [114, 3802];

/// A row that is no value of the type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    message: String,
    /// The column that was left out because its value is large and did not change.
    pub(crate) unchanged: Option<String>,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RowError {}

impl serde::de::Error for RowError {
    fn custom<M: fmt::Display>(message: M) -> Self {
        RowError { message: message.to_string(), unchanged: None }
    }
}

/// A value of names, types and texts.
pub(super) fn deserialize<T: DeserializeOwned>(columns: Vec<(&str, u32, &Cell)>) -> Result<T, RowError> {
    let cells = columns.into_iter().map(|(name, ty, cell)| Value { name, ty, cell });
    T::deserialize(Whole { cells: cells.collect() })
}

/// A row.
struct Whole<'a> {
    cells: Vec<Value<'a>>,
}

impl<'a> Whole<'a> {
    fn single(self) -> Result<Value<'a>, RowError> {
        match self.cells[..] {
            [cell] => Ok(cell),
            _ => Err(RowError::custom(format!(
                "{} columns are no single value: use a struct or a tuple",
                self.cells.len()
            ))),
        }
    }
}

/// Those that a single column can be.
macro_rules! of_single {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
            self.single()?.$method(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Whole<'_> {
    type Error = RowError;

    of_single! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_map(MapDeserializer::new(self.cells.into_iter().map(|cell| (cell.name, cell))))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        let mut cells = SeqDeserializer::new(self.cells.into_iter());
        let value = visitor.visit_seq(&mut cells)?;
        cells.end()?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.single()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }
}

/// A value of a row.
#[derive(Clone, Copy)]
struct Value<'a> {
    name: &'a str,
    ty: u32,
    cell: &'a Cell,
}

impl<'a> Value<'a> {
    fn text(&self) -> Result<&'a str, RowError> {
        match self.cell {
            Cell::Text(text) => Ok(text),
            Cell::Null => Err(RowError::custom(format!("column {} is null", self.name))),
            Cell::Unchanged => Err(self.unchanged()),
        }
    }

    fn unchanged(&self) -> RowError {
        let message = format!("column {} is left out because it did not change", self.name);
        RowError { message, unchanged: Some(self.name.to_owned()) }
    }

    fn parse<T: std::str::FromStr>(&self, what: &'static str) -> Result<T, RowError> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| RowError::invalid_value(Unexpected::Str(text), &what))
            .map_err(|error| self.of_column(error))
    }

    fn of_column(&self, error: impl fmt::Display) -> RowError {
        RowError::custom(format!("column {}: {error}", self.name))
    }

    /// What a `bytea` holds; of other types the text.
    fn bytes(&self) -> Result<Vec<u8>, RowError> {
        let text = self.text()?;
        let Some(digits) = text.strip_prefix("\\x").filter(|_| self.ty == BYTEA) else {
            return Ok(text.as_bytes().to_vec());
        };
        let pair = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(digits, 16).ok().filter(|_| pair.len() == 2)
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
        bytes.ok_or_else(|| self.of_column("it is no hexadecimal text"))
    }

    fn json(&self) -> Result<serde_json::Value, RowError> {
        if !JSON.contains(&self.ty) {
            return Err(
                self.of_column("only json and jsonb can be structs, maps and sequences; other types are read as texts")
            );
        }
        serde_json::from_str(self.text()?).map_err(|error| self.of_column(error))
    }
}

impl<'de> IntoDeserializer<'de, RowError> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $what:literal)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
            visitor.$visit(self.parse($what)?)
        })*
    };
}

macro_rules! from_json {
    ($($method:ident($($more:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $more,)* visitor: V) -> Result<V::Value, RowError> {
            self.json()?.deserialize_any(visitor).map_err(|error| self.of_column(error))
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = RowError;

    parsed! {
        deserialize_i8 visit_i8 "an integer of 8 bits" deserialize_i16 visit_i16 "an integer of 16 bits"
        deserialize_i32 visit_i32 "an integer of 32 bits" deserialize_i64 visit_i64 "an integer of 64 bits"
        deserialize_i128 visit_i128 "an integer of 128 bits" deserialize_u8 visit_u8 "an unsigned integer of 8 bits"
        deserialize_u16 visit_u16 "an unsigned integer of 16 bits" deserialize_u32 visit_u32 "an unsigned integer of 32 bits"
        deserialize_u64 visit_u64 "an unsigned integer of 64 bits" deserialize_u128 visit_u128 "an unsigned integer of 128 bits"
        deserialize_f32 visit_f32 "a number" deserialize_f64 visit_f64 "a number" deserialize_char visit_char "a character"
    }

    from_json! {
        deserialize_seq() deserialize_map() deserialize_tuple(usize) deserialize_tuple_struct(&'static str, usize)
        deserialize_struct(&'static str, &'static [&'static str])
    }

    forward_to_deserialize_any! { unit unit_struct }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match (self.cell, self.ty) {
            (Cell::Null, _) => visitor.visit_unit(),
            (_, BOOL) => self.deserialize_bool(visitor),
            (_, BYTEA) => self.deserialize_byte_buf(visitor),
            (_, ty) if INTEGERS.contains(&ty) => self.deserialize_i64(visitor),
            (_, ty) if FLOATS.contains(&ty) => self.deserialize_f64(visitor),
            (_, ty) if JSON.contains(&ty) => {
                self.json()?.deserialize_any(visitor).map_err(|error| self.of_column(error))
            }
            _ => visitor.visit_str(self.text()?),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.text()? {
            "t" | "true" => visitor.visit_bool(true),
            "f" | "false" => visitor.visit_bool(false),
            other => Err(self.of_column(RowError::invalid_value(Unexpected::Str(other), &"a boolean"))),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_byte_buf(self.bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_byte_buf(self.bytes()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.cell {
            Cell::Null => visitor.visit_none(),
            Cell::Unchanged => Err(self.unchanged()),
            Cell::Text(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        let text: StrDeserializer<'_, RowError> = self.text()?.into_deserializer();
        visitor.visit_enum(text).map_err(|error| self.of_column(error))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Color {
        Red,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Order {
        id: i64,
        rate: f64,
        paid: bool,
        color: Color,
        note: Option<String>,
        tags: Vec<String>,
        more: BTreeMap<String, u8>,
        #[serde(default)]
        added: u32,
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[test]
    fn a_struct_takes_columns_by_their_names() {
        let cells = [
            text("t"),
            text("-7"),
            text("Infinity"),
            text("Red"),
            Cell::Null,
            text("[\"a\"]"),
            text("{\"b\": 1}"),
            text("x"),
        ];
        let names = ["paid", "id", "rate", "color", "note", "tags", "more", "unknown"];
        let types = [BOOL, 20, 701, 25, 25, 3802, 114, 600];
        let columns = (0..8).map(|at| (names[at], types[at], &cells[at])).collect();
        let order: Order = deserialize(columns).unwrap();
        let more = BTreeMap::from([("b".to_owned(), 1)]);
        let tags = vec!["a".to_owned()];
        assert_eq!(
            order,
            Order { id: -7, rate: f64::INFINITY, paid: true, color: Color::Red, note: None, tags, more, added: 0 }
        );
    }

    #[test]
    fn a_tuple_takes_columns_in_their_order_and_a_value_takes_a_single_one() {
        let (number, word) = (text("12"), text("pond"));
        let both = || vec![("n", 23, &number), ("word", 25, &word)];
        assert_eq!(deserialize::<(u16, String)>(both()).unwrap(), (12, "pond".to_owned()));
        assert_eq!(deserialize::<u64>(vec![("n", 1700, &number)]).unwrap(), 12);
        assert_eq!(deserialize::<serde_json::Value>(both()).unwrap(), serde_json::json!({"n": 12, "word": "pond"}));
        assert!(deserialize::<(u16,)>(both()).is_err());
        let bytes = text("\\x00ff");
        assert_eq!(deserialize::<serde_bytes_like::Bytes>(vec![("b", BYTEA, &bytes)]).unwrap().0, [0, 255]);
    }

    mod serde_bytes_like {
        pub(super) struct Bytes(pub(super) Vec<u8>);

        impl<'de> serde::Deserialize<'de> for Bytes {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Take;
                impl serde::de::Visitor<'_> for Take {
                    type Value = Bytes;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("bytes")
                    }
                    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                        Ok(Bytes(bytes))
                    }
                }
                deserializer.deserialize_byte_buf(Take)
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_names_the_column() {
        let cases = [
            (text("300"), "column n: invalid value: string \"300\", expected an unsigned integer of 8 bits"),
            (Cell::Null, "column n is null"),
        ];
        for (cell, words) in cases {
            assert_eq!(deserialize::<u8>(vec![("n", 23, &cell)]).unwrap_err().to_string(), words);
        }
        let error = deserialize::<Option<u8>>(vec![("n", 23, &Cell::Unchanged)]).unwrap_err();
        assert_eq!(error.unchanged.as_deref(), Some("n"));
    }
}
