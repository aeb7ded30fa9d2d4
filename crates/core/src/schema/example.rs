//! Example values of a schema, as bytes: together they have every variant, option and element, so that
//! reading them shows whether a type can read whatever was stored.

use super::Schema;
use super::fill::Fill;
use super::level::{Level, Shape, Wire};
use crate::codec::put_varint;

/// Most examples of one place.
const MOST_EXAMPLES: usize = 4096;
/// Enums and recursions within each other on the way to a value that ends.
const DEEPEST_END: u32 = 16;

/// Examples that cover `schema`; `None` when there are too many or some part cannot be described.
pub(super) fn examples(schema: &Schema, fill: &Fill) -> Option<Vec<Vec<u8>>> {
    Examples { fill }.of(Level::root(schema))
}

struct Examples<'f> {
    fill: &'f Fill,
}

impl Examples<'_> {
    fn of(&self, at: Level<'_>) -> Option<Vec<Vec<u8>>> {
        let (level, shape) = at.resolve().ok()?;
        if matches!(at.schema, Schema::Up(_)) {
            return Some(vec![self.shortest(level)?]);
        }
        let found = match shape {
            Shape::Primitive(wire) => vec![self.primitive(wire)],
            Shape::Option(inner) => {
                let some = self.of(level.part(inner))?.into_iter().map(|inner| [&[1][..], &inner].concat());
                some.chain([vec![0]]).collect()
            }
            Shape::Seq(element) => vec![counted(&self.of(level.part(element))?)],
            Shape::Map(key, value) => vec![counted(&self.rows(level, [key, value].into_iter())?)],
            Shape::Tuple(parts) => self.rows(level, parts.iter())?,
            Shape::Struct(fields) => self.rows(level, fields.iter().map(|(_, field)| field))?,
            Shape::Enum(variants) => {
                let mut all = Vec::new();
                for (index, _, content) in variants {
                    all.extend(self.of(level.part(content))?.iter().map(|content| variant(*index, content)));
                }
                all
            }
        };
        (found.len() <= MOST_EXAMPLES).then_some(found)
    }

    /// Rows in which every part shows all its examples.
    fn rows<'s>(&self, level: Level<'_>, parts: impl Iterator<Item = &'s Schema>) -> Option<Vec<Vec<u8>>> {
        let columns: Option<Vec<Vec<Vec<u8>>>> = parts.map(|part| self.of(level.part(part))).collect();
        let columns = columns?;
        if columns.iter().any(Vec::is_empty) {
            return None;
        }
        let rows = columns.iter().map(Vec::len).max().unwrap_or(1);
        let row = |row: usize| columns.iter().flat_map(|column| column[row % column.len()].iter().copied()).collect();
        Some((0..rows).map(row).collect())
    }

    /// A value that ends soon, for the place at which a type contains itself.
    fn shortest(&self, level: Level<'_>) -> Option<Vec<u8>> {
        (1..=DEEPEST_END).find_map(|limit| self.ending(level, limit))
    }

    fn ending(&self, at: Level<'_>, limit: u32) -> Option<Vec<u8>> {
        let (level, shape) = at.resolve().ok()?;
        let limit = limit.checked_sub(u32::from(matches!(at.schema, Schema::Up(_) | Schema::Enum(_))))?;
        let all = |parts: &mut dyn Iterator<Item = &Schema>| {
            let parts: Option<Vec<Vec<u8>>> = parts.map(|part| self.ending(level.part(part), limit)).collect();
            Some(parts?.concat())
        };
        match shape {
            Shape::Primitive(wire) => Some(self.primitive(wire)),
            Shape::Option(_) | Shape::Seq(_) | Shape::Map(_, _) => Some(vec![0]),
            Shape::Tuple(parts) => all(&mut parts.iter()),
            Shape::Struct(fields) => all(&mut fields.iter().map(|(_, field)| field)),
            Shape::Enum(variants) => variants
                .iter()
                .find_map(|(index, _, content)| Some(variant(*index, &self.ending(level.part(content), limit)?))),
        }
    }

    fn primitive(&self, wire: Wire) -> Vec<u8> {
        let Fill { number, text, bytes } = *self.fill;
        match wire {
            Wire::Unit => Vec::new(),
            Wire::Bool => vec![0],
            Wire::Unsigned(_) | Wire::Signed(8) => vec![number],
            Wire::Signed(_) => vec![number << 1],
            Wire::F32 => f32::from(number).to_le_bytes().to_vec(),
            Wire::F64 => f64::from(number).to_le_bytes().to_vec(),
            Wire::Char => vec![1, b'A'],
            Wire::Str => [&[text.len() as u8][..], text.as_bytes()].concat(),
            Wire::Bytes => [&[bytes.len() as u8][..], bytes].concat(),
        }
    }
}

fn variant(index: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(u64::from(index), &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

fn counted(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(elements.len() as u64, &mut bytes);
    elements.iter().for_each(|element| bytes.extend_from_slice(element));
    bytes
}
