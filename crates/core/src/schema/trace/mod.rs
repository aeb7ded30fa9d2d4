//! Finds the schema of a type: draws values from its `Deserialize` until every variant, option, list
//! and map was seen with content (`sample`), and records what its `Serialize` makes of them (`record`).
//!
//! What is written decides, so the schema has the names and the order that the bytes have; aliases
//! and defaults are matters of reading. A type is opaque when no drawn value passes its own checks, or
//! when it writes different shapes at different times.

mod record;
mod sample;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::record::{Format, Recorder};
use self::sample::Sampler;
use super::Schema;
use super::fill::FILLS;

/// Largest schema in parts.
const MOST_PARTS: usize = 20_000;

/// The schema of `T`; `None` when it is opaque.
pub(super) fn trace<T: Serialize + DeserializeOwned>() -> Option<Schema> {
    FILLS.iter().find_map(|fill| {
        let mut sampler = Sampler::new(fill);
        let mut recorder = Recorder::default();
        let mut format = Format::Unknown;
        loop {
            let value = T::deserialize(&mut sampler).ok()?;
            format.unify(recorder.record(&value)?)?;
            if !sampler.next_round()? {
                break;
            }
        }
        Conversion { recorder: &recorder, open: Vec::new(), layers: 0, parts: 0 }.schema(&format)
    })
}

/// From recorded formats, where types refer to each other by number, to a schema, where a recursive type
/// refers to a layer around it.
struct Conversion<'a> {
    recorder: &'a Recorder,
    /// Types being described, and at which layer they began.
    open: Vec<(usize, u32)>,
    layers: u32,
    parts: usize,
}

impl Conversion<'_> {
    fn schema(&mut self, format: &Format) -> Option<Schema> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return None;
        }
        match format {
            Format::Unknown => return None,
            Format::Primitive(name) => return Some(Schema::Primitive((*name).to_owned())),
            Format::Named(id) => return self.named(*id),
            _ => {}
        }
        self.layers += 1;
        let schema = self.layer(format);
        self.layers -= 1;
        schema
    }

    fn named(&mut self, id: usize) -> Option<Schema> {
        if let Some((_, layer)) = self.open.iter().find(|(open, _)| *open == id) {
            return Some(Schema::Up((self.layers - layer).checked_sub(1)?));
        }
        self.open.push((id, self.layers));
        let schema = self.schema(self.recorder.format(id)?);
        self.open.pop();
        schema
    }

    fn layer(&mut self, format: &Format) -> Option<Schema> {
        Some(match format {
            Format::Option(inner) => Schema::Option(Box::new(self.schema(inner)?)),
            Format::Seq(element) => Schema::Seq(Box::new(self.schema(element)?)),
            Format::Map(key, value) => Schema::Map(Box::new(self.schema(key)?), Box::new(self.schema(value)?)),
            Format::Tuple(parts) => Schema::Tuple(parts.iter().map(|part| self.schema(part)).collect::<Option<_>>()?),
            Format::Struct(fields) => {
                let fields = fields.iter().map(|(name, field)| Some(((*name).to_owned(), self.schema(field)?)));
                Schema::Struct(fields.collect::<Option<_>>()?)
            }
            Format::Enum(variants) => {
                let variants = variants
                    .iter()
                    .map(|(index, (name, content))| Some((*index, (*name).to_owned(), self.schema(content)?)));
                Schema::Enum(variants.collect::<Option<_>>()?)
            }
            Format::Unknown | Format::Primitive(_) | Format::Named(_) => return None,
        })
    }
}
