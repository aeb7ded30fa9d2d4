//! A deserializer without bytes: makes values up, round after round, so that together they show all
//! of a type.
//!
//! A round goes into every option and list once, and takes of each enum a variant that was not taken
//! yet or that leads to one. Inside a type that is open already, or fully seen, it is *closing*: options are
//! none, lists empty, and enums the first variant that was seen to end.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer as _, Visitor};

use crate::schema::fill::Fill;

/// Containers visited for one type, over all rounds.
const MOST_STEPS: u32 = 200_000;
/// Containers within each other.
const MOST_OPEN: usize = 100;

/// A struct or enum that was met.
#[derive(Default)]
struct Met {
    /// Variants not taken yet, the next one last; empty for a struct.
    unseen: Vec<usize>,
    /// What was met directly inside, by variant; a struct has one.
    inside: Vec<BTreeSet<usize>>,
    /// A variant that ends.
    leaf: Option<usize>,
    turn: usize,
    seen: bool,
}

/// See the module.
pub(super) struct Sampler {
    fill: &'static Fill,
    ids: BTreeMap<String, usize>,
    met: Vec<Met>,
    /// Containers being made, with the variant taken.
    open: Vec<(usize, usize)>,
    closing: u32,
    reentries: u32,
    steps: u32,
    /// Variants taken so far, and before this round.
    taken: u32,
    taken_before: u32,
}

/// A container that was entered, for leaving it.
struct Entered {
    id: usize,
    variant: usize,
    closing: bool,
    reentries: u32,
}

/// Why no value could be made.
#[derive(Debug)]
pub(super) struct Unmade;

impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value can be made up")
    }
}

impl std::error::Error for Unmade {}

impl de::Error for Unmade {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unmade
    }
}

impl Sampler {
    pub(super) fn new(fill: &'static Fill) -> Self {
        Sampler {
            fill,
            ids: BTreeMap::new(),
            met: Vec::new(),
            open: Vec::new(),
            closing: 0,
            reentries: 0,
            steps: 0,
            taken: 0,
            taken_before: 0,
        }
    }

    /// After a value was made: whether another is needed. `None` when nothing new comes.
    pub(super) fn next_round(&mut self) -> Option<bool> {
        if self.met.iter().all(|met| met.unseen.is_empty()) {
            return Some(false);
        }
        let progress = self.taken > self.taken_before;
        self.taken_before = self.taken;
        progress.then_some(true)
    }

    /// Steps from any of `from` to an enum with variants not taken yet.
    fn distance(&self, from: impl IntoIterator<Item = usize>) -> Option<u32> {
        let mut queue: VecDeque<(usize, u32)> = from.into_iter().map(|id| (id, 0)).collect();
        let mut known: BTreeSet<usize> = queue.iter().map(|(id, _)| *id).collect();
        while let Some((id, steps)) = queue.pop_front() {
            if !self.met[id].unseen.is_empty() {
                return Some(steps);
            }
            for next in self.met[id].inside.iter().flatten() {
                if known.insert(*next) {
                    queue.push_back((*next, steps + 1));
                }
            }
        }
        None
    }

    fn enter<T>(&mut self, name: &str, variants: usize) -> Result<Entered, Unmade> {
        self.steps += 1;
        if self.steps > MOST_STEPS || self.open.len() >= MOST_OPEN {
            return Err(Unmade);
        }
        let key = format!("{} {name}", type_name::<T>());
        let id = *self.ids.entry(key).or_insert(self.met.len());
        if id == self.met.len() {
            let unseen = (0..variants).rev().collect();
            self.met.push(Met { unseen, inside: vec![BTreeSet::new(); variants.max(1)], ..Met::default() });
        }
        if let Some((around, variant)) = self.open.last() {
            self.met[*around].inside[*variant].insert(id);
        }
        let again = self.open.iter().any(|(open, _)| *open == id);
        self.reentries += u32::from(again);
        let closing = again || (self.met[id].seen && self.distance([id]).is_none());
        self.closing += u32::from(closing);
        let variant = if variants == 0 { 0 } else { self.choose(id) };
        self.open.push((id, variant));
        Ok(Entered { id, variant, closing, reentries: self.reentries })
    }

    fn choose(&mut self, id: usize) -> usize {
        if self.closing == 0 {
            if let Some(unseen) = self.met[id].unseen.pop() {
                self.taken += 1;
                return unseen;
            }
            let ways = (0..self.met[id].inside.len())
                .filter_map(|variant| Some((self.distance(self.met[id].inside[variant].iter().copied())?, variant)));
            if let Some((_, variant)) = ways.min() {
                return variant;
            }
        }
        let met = &mut self.met[id];
        met.leaf.unwrap_or_else(|| {
            met.turn += 1;
            met.turn % met.inside.len()
        })
    }

    fn leave(&mut self, entered: &Entered) {
        self.open.pop();
        let met = &mut self.met[entered.id];
        if self.reentries == entered.reentries {
            met.leaf.get_or_insert(entered.variant);
        }
        met.seen |= self.closing == 0;
        self.closing -= u32::from(entered.closing);
    }

    fn elements(&self) -> usize {
        usize::from(self.closing == 0)
    }
}

/// Hands out as many values as are asked for, up to a number.
struct Parts<'a> {
    sampler: &'a mut Sampler,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Parts<'_> {
    type Error = Unmade;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unmade> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.sampler).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_> {
    type Error = Unmade;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Unmade> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Unmade> {
        seed.deserialize(&mut *self.sampler)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'a> {
    sampler: &'a mut Sampler,
    name: &'static str,
}

impl<'a, 'de> de::EnumAccess<'de> for Variant<'a> {
    type Error = Unmade;
    type Variant = &'a mut Sampler;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Unmade> {
        let name: StrDeserializer<'_, Unmade> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.sampler))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Sampler {
    type Error = Unmade;

    fn unit_variant(self) -> Result<(), Unmade> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Unmade> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_seq(Parts { sampler: self, left: length })
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_seq(Parts { sampler: self, left: fields.len() })
    }
}

macro_rules! fill {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
            visitor.$visit(<$type>::from(self.fill.number))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Sampler {
    type Error = Unmade;

    fill! {
        deserialize_u16 visit_u16 u16; deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64; deserialize_u128 visit_u128 u128; deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32; deserialize_i64 visit_i64 i64; deserialize_i128 visit_i128 i128;
        deserialize_f32 visit_f32 f32; deserialize_f64 visit_f64 f64;
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_u8(self.fill.number)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_i8(self.fill.number as i8)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unmade> {
        Err(Unmade)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unmade> {
        Err(Unmade)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unmade> {
        Err(Unmade)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_bool(false)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_char('A')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_str(self.fill.text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_str(self.fill.text)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_bytes(self.fill.bytes)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_bytes(self.fill.bytes)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        if self.closing > 0 { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Unmade> {
        let entered = self.enter::<V::Value>(name, 0)?;
        let value = visitor.visit_newtype_struct(&mut *self)?;
        self.leave(&entered);
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        let left = self.elements();
        visitor.visit_seq(Parts { sampler: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unmade> {
        let left = self.elements();
        visitor.visit_map(Parts { sampler: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Unmade> {
        visitor.visit_seq(Parts { sampler: self, left: length })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        let entered = self.enter::<V::Value>(name, 0)?;
        let value = visitor.visit_seq(Parts { sampler: &mut *self, left: length })?;
        self.leave(&entered);
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        // Aliases are among the fields; the visitor takes as many values as it has fields.
        let entered = self.enter::<V::Value>(name, 0)?;
        let value = visitor.visit_seq(Parts { sampler: &mut *self, left: fields.len() })?;
        self.leave(&entered);
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unmade> {
        let entered = self.enter::<V::Value>(name, variants.len())?;
        let name = variants.get(entered.variant).ok_or(Unmade)?;
        let value = visitor.visit_enum(Variant { sampler: &mut *self, name })?;
        self.leave(&entered);
        Ok(value)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
