//! Reads bytes as the schema says that they were written, into whatever type asks.
//!
//! The bytes name nothing; the schema does. So a type that has changed since can be read: fields and
//! variants are matched by name, integers may have become wider, a value may have become optional.
//! The type's own `Deserialize` decides about names that are missing or new (`default`, `alias`,
//! `rename`). What it asks for is compared with the stored *type*, not with the value, so that a
//! narrower integer is refused even when this value would fit.

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, Visitor};

use super::Schema;
use super::error::SchemaError;
use super::input::Input;
use super::level::{Level, Shape, Wire, variant_at};

/// A [`serde::Deserializer`] over bytes that were written under a schema. Self-describing: it also
/// serves types that ask for anything.
pub struct SchemaDeserializer<'s, 'de> {
    schema: &'s Schema,
    input: Input<'de>,
}

impl<'s, 'de> SchemaDeserializer<'s, 'de> {
    /// Over one whole value.
    #[must_use]
    pub fn new(schema: &'s Schema, bytes: &'de [u8]) -> Self {
        SchemaDeserializer { schema, input: Input::new(bytes) }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// When the bytes do not fit the schema, bytes are left over, or `T` cannot be read from the schema.
    pub fn read<T: DeserializeOwned>(mut self) -> Result<T, SchemaError> {
        let value = T::deserialize(At { input: &mut self.input, level: Level::root(self.schema) })?;
        self.input.finish()?;
        Ok(value)
    }
}

impl Schema {
    /// Reads a value that was written under this schema as a type that may have changed since.
    ///
    /// # Errors
    /// As [`SchemaDeserializer::read`].
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, SchemaError> {
        SchemaDeserializer::new(self, bytes).read()
    }
}

/// The deserializer of one value within another.
struct At<'a, 'de> {
    input: &'a mut Input<'de>,
    level: Level<'a>,
}

macro_rules! integer {
    ($method:ident, $visit:ident, $type:ty, $bits:literal, unsigned) => {
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
            match self.level.resolve()?.1 {
                Shape::Primitive(Wire::Unsigned(bits)) if bits <= $bits => {
                    visitor.$visit(self.input.unsigned(bits)? as $type)
                }
                _ => self.differs(stringify!($type)),
            }
        }
    };
    ($method:ident, $visit:ident, $type:ty, $bits:literal, signed) => {
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
            match self.level.resolve()?.1 {
                Shape::Primitive(Wire::Signed(bits)) if bits <= $bits => {
                    visitor.$visit(self.input.signed(bits)? as $type)
                }
                Shape::Primitive(Wire::Unsigned(bits)) if bits < $bits => {
                    visitor.$visit(self.input.unsigned(bits)? as $type)
                }
                _ => self.differs(stringify!($type)),
            }
        }
    };
}

impl<'de> At<'_, 'de> {
    fn differs<T>(&self, now: &str) -> Result<T, SchemaError> {
        Err(SchemaError::changed(self.level.resolve()?.0.schema, now))
    }

    fn primitive<V: Visitor<'de>>(self, wire: Wire, visitor: V) -> Result<V::Value, SchemaError> {
        let input = self.input;
        match wire {
            Wire::Unit => visitor.visit_unit(),
            Wire::Bool => visitor.visit_bool(input.flag()?),
            Wire::Unsigned(128) => visitor.visit_u128(input.unsigned(128)?),
            Wire::Unsigned(bits) => visitor.visit_u64(input.unsigned(bits)? as u64),
            Wire::Signed(128) => visitor.visit_i128(input.signed(128)?),
            Wire::Signed(bits) => visitor.visit_i64(input.signed(bits)? as i64),
            Wire::F32 => visitor.visit_f32(f32::from_le_bytes(input.fixed()?)),
            Wire::F64 => visitor.visit_f64(f64::from_le_bytes(input.fixed()?)),
            Wire::Char => visitor.visit_char(input.character()?),
            Wire::Str => visitor.visit_borrowed_str(input.text()?),
            Wire::Bytes => visitor.visit_borrowed_bytes(input.bytes()?),
        }
    }

    fn fields<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        let (level, Shape::Struct(fields)) = self.level.resolve()? else { return self.differs("struct") };
        self.input.enter()?;
        let mut access = Fields { input: self.input, level, rest: fields.iter(), open: None };
        let value = visitor.visit_map(&mut access)?;
        while let Some((name, schema)) = access.open.take().or_else(|| access.rest.next()) {
            let at = At { input: access.input, level: access.level.part(schema) };
            at.skip().map_err(|error| error.within(format!(".{name}")))?;
        }
        self.input.leave();
        Ok(value)
    }

    fn parts<V: Visitor<'de>>(self, visitor: V, length: Option<usize>) -> Result<V::Value, SchemaError> {
        let now = || length.map_or("tuple".to_owned(), |length| format!("tuple of {length}"));
        let (level, Shape::Tuple(parts)) = self.level.resolve()? else { return self.differs(&now()) };
        if length.is_some_and(|length| length != parts.len()) {
            return self.differs(&now());
        }
        self.input.enter()?;
        let mut access = Parts { input: self.input, level, parts, next: 0 };
        let value = visitor.visit_seq(&mut access)?;
        while de::SeqAccess::next_element::<de::IgnoredAny>(&mut access)?.is_some() {}
        self.input.leave();
        Ok(value)
    }

    fn elements<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        let (level, Shape::Seq(element)) = self.level.resolve()? else { return self.differs("list") };
        self.input.enter()?;
        let left = self.input.count()?;
        let mut access = Elements { input: self.input, level, element, value: element, left };
        let value = visitor.visit_seq(&mut access)?;
        while de::SeqAccess::next_element::<de::IgnoredAny>(&mut access)?.is_some() {}
        self.input.leave();
        Ok(value)
    }

    fn entries<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        let (level, Shape::Map(element, value)) = self.level.resolve()? else { return self.differs("map") };
        self.input.enter()?;
        let left = self.input.count()?;
        let mut access = Elements { input: self.input, level, element, value, left };
        let map = visitor.visit_map(&mut access)?;
        while de::MapAccess::next_entry::<de::IgnoredAny, de::IgnoredAny>(&mut access)?.is_some() {}
        self.input.leave();
        Ok(map)
    }

    fn skip(self) -> Result<(), SchemaError> {
        self.deserialize_any(de::IgnoredAny).map(|_| ())
    }
}

impl<'de> Deserializer<'de> for At<'_, 'de> {
    type Error = SchemaError;

    integer!(deserialize_u8, visit_u8, u8, 8, unsigned);
    integer!(deserialize_u16, visit_u16, u16, 16, unsigned);
    integer!(deserialize_u32, visit_u32, u32, 32, unsigned);
    integer!(deserialize_u64, visit_u64, u64, 64, unsigned);
    integer!(deserialize_u128, visit_u128, u128, 128, unsigned);
    integer!(deserialize_i8, visit_i8, i8, 8, signed);
    integer!(deserialize_i16, visit_i16, i16, 16, signed);
    integer!(deserialize_i32, visit_i32, i32, 32, signed);
    integer!(deserialize_i64, visit_i64, i64, 64, signed);
    integer!(deserialize_i128, visit_i128, i128, 128, signed);

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(wire) => self.primitive(wire, visitor),
            Shape::Option(_) => self.deserialize_option(visitor),
            Shape::Seq(_) => self.elements(visitor),
            Shape::Map(_, _) => self.entries(visitor),
            Shape::Tuple(_) => self.parts(visitor, None),
            Shape::Struct(_) => self.fields(visitor),
            Shape::Enum(_) => self.deserialize_enum("", &[], visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::Bool) => visitor.visit_bool(self.input.flag()?),
            _ => self.differs("bool"),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::F32) => self.primitive(Wire::F32, visitor),
            _ => self.differs("f32"),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::F32) => visitor.visit_f64(f64::from(f32::from_le_bytes(self.input.fixed()?))),
            Shape::Primitive(Wire::F64) => self.primitive(Wire::F64, visitor),
            _ => self.differs("f64"),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::Char) => self.primitive(Wire::Char, visitor),
            _ => self.differs("char"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::Str) => self.primitive(Wire::Str, visitor),
            _ => self.differs("str"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::Bytes) => self.primitive(Wire::Bytes, visitor),
            _ => self.differs("bytes"),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        let (level, Shape::Option(inner)) = self.level.resolve()? else {
            return visitor.visit_some(self);
        };
        if !self.input.flag()? {
            return visitor.visit_none();
        }
        self.input.enter()?;
        let inner = At { input: &mut *self.input, level: level.part(inner) };
        let value = visitor.visit_some(inner).map_err(|error: SchemaError| error.within("?"))?;
        self.input.leave();
        Ok(value)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        match self.level.resolve()?.1 {
            Shape::Primitive(Wire::Unit) => visitor.visit_unit(),
            _ => self.differs("unit"),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SchemaError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SchemaError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.elements(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, SchemaError> {
        self.parts(visitor, Some(length))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, SchemaError> {
        self.parts(visitor, Some(length))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.entries(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SchemaError> {
        self.fields(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SchemaError> {
        let (level, Shape::Enum(variants)) = self.level.resolve()? else { return self.differs("enum") };
        self.input.enter()?;
        let (_, name, content) = variant_at(variants, self.input.variant()?)?;
        let value = visitor.visit_enum(Variant { input: &mut *self.input, level, name, content })?;
        self.input.leave();
        Ok(value)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SchemaError> {
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

fn name_of(name: &str) -> StrDeserializer<'_, SchemaError> {
    name.into_deserializer()
}

/// The fields of a struct, by name.
struct Fields<'a, 'de> {
    input: &'a mut Input<'de>,
    level: Level<'a>,
    rest: std::slice::Iter<'a, (String, Schema)>,
    open: Option<&'a (String, Schema)>,
}

impl<'de> de::MapAccess<'de> for Fields<'_, 'de> {
    type Error = SchemaError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SchemaError> {
        if let Some((_, schema)) = self.open.take() {
            At { input: &mut *self.input, level: self.level.part(schema) }.skip()?;
        }
        self.open = self.rest.next();
        self.open.map(|(name, _)| seed.deserialize(name_of(name))).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, SchemaError> {
        let Some((name, schema)) = self.open.take() else {
            return Err(de::Error::custom("a value was asked for before its name"));
        };
        let value = seed.deserialize(At { input: &mut *self.input, level: self.level.part(schema) });
        value.map_err(|error| error.within(format!(".{name}")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The parts of a tuple.
struct Parts<'a, 'de> {
    input: &'a mut Input<'de>,
    level: Level<'a>,
    parts: &'a [Schema],
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Parts<'_, 'de> {
    type Error = SchemaError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, SchemaError> {
        let Some(schema) = self.parts.get(self.next) else { return Ok(None) };
        let value = seed.deserialize(At { input: &mut *self.input, level: self.level.part(schema) });
        let value = value.map_err(|error| error.within(format!(".{}", self.next)))?;
        self.next += 1;
        Ok(Some(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.parts.len() - self.next)
    }
}

/// The elements of a list, or the entries of a map.
struct Elements<'a, 'de> {
    input: &'a mut Input<'de>,
    level: Level<'a>,
    element: &'a Schema,
    value: &'a Schema,
    left: usize,
}

impl<'de> Elements<'_, 'de> {
    fn hint(&self) -> usize {
        self.left.min(self.input.left())
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = SchemaError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, SchemaError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let before = self.input.left();
        let element = seed.deserialize(At { input: &mut *self.input, level: self.level.part(self.element) });
        let element = element.map_err(|error| error.within("[]"))?;
        self.input.element_read(before)?;
        Ok(Some(element))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = SchemaError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, SchemaError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let before = self.input.left();
        let key = seed.deserialize(At { input: &mut *self.input, level: self.level.part(self.element) });
        let key = key.map_err(|error| error.within(".key"))?;
        self.input.element_read(before)?;
        Ok(Some(key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, SchemaError> {
        let value = seed.deserialize(At { input: &mut *self.input, level: self.level.part(self.value) });
        value.map_err(|error| error.within("[]"))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

/// The variant that the bytes name, and its content.
struct Variant<'a, 'de> {
    input: &'a mut Input<'de>,
    level: Level<'a>,
    name: &'a str,
    content: &'a Schema,
}

impl<'de> Variant<'_, 'de> {
    fn read<T>(self, read: impl FnOnce(At<'_, 'de>) -> Result<T, SchemaError>) -> Result<T, SchemaError> {
        let at = At { input: self.input, level: self.level.part(self.content) };
        read(at).map_err(|error| error.within(format!("::{}", self.name)))
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = SchemaError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), SchemaError> {
        Ok((seed.deserialize(name_of(self.name))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = SchemaError;

    fn unit_variant(self) -> Result<(), SchemaError> {
        self.read(|at| at.deserialize_unit(de::IgnoredAny).map(|_| ()))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, SchemaError> {
        self.read(|at| seed.deserialize(at))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, SchemaError> {
        self.read(|at| at.parts(visitor, Some(length)))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, SchemaError> {
        self.read(|at| at.fields(visitor))
    }
}
