//! A serializer that writes nothing: it records the shape of the values that pass.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// The shape of values, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Unknown,
    Primitive(&'static str),
    Option(Box<Format>),
    Seq(Box<Format>),
    Map(Box<Format>, Box<Format>),
    Tuple(Vec<Format>),
    Struct(Vec<(&'static str, Format)>),
    Enum(BTreeMap<u32, (&'static str, Format)>),
    /// A named type; the recorder knows its format.
    Named(usize),
}

impl Format {
    /// Adds what another value showed; `None` when the two cannot be one type.
    pub(super) fn unify(&mut self, other: Format) -> Option<()> {
        if other == Format::Unknown {
            return Some(());
        }
        if *self == Format::Unknown {
            *self = other;
            return Some(());
        }
        match (self, other) {
            (Format::Option(a), Format::Option(b)) | (Format::Seq(a), Format::Seq(b)) => a.unify(*b),
            (Format::Map(ak, av), Format::Map(bk, bv)) => ak.unify(*bk).and_then(|()| av.unify(*bv)),
            (Format::Tuple(a), Format::Tuple(b)) if a.len() == b.len() => {
                a.iter_mut().zip(b).try_for_each(|(a, b)| a.unify(b))
            }
            (Format::Struct(a), Format::Struct(b)) if a.len() == b.len() => a
                .iter_mut()
                .zip(b)
                .try_for_each(|((a_name, a), (b_name, b))| if *a_name == b_name { a.unify(b) } else { None }),
            (Format::Enum(a), Format::Enum(b)) => b.into_iter().try_for_each(|(index, (name, content))| {
                let (known, format) = a.entry(index).or_insert((name, Format::Unknown));
                if *known == name { format.unify(content) } else { None }
            }),
            (known, other) => (*known == other).then_some(()),
        }
    }
}

/// Formats of named types.
#[derive(Default)]
pub(super) struct Recorder {
    ids: BTreeMap<(String, &'static str), usize>,
    formats: Vec<Format>,
}

impl Recorder {
    /// The shape of a value.
    pub(super) fn record<T: Serialize + ?Sized>(&mut self, value: &T) -> Option<Format> {
        let of = type_name::<T>();
        value.serialize(Record { recorder: self, of }).ok()
    }

    pub(super) fn format(&self, id: usize) -> Option<&Format> {
        self.formats.get(id)
    }

    fn named(&mut self, of: &'static str, name: &'static str, format: Format) -> Result<Format, Unclear> {
        let id = *self.ids.entry((without_boxes(of).to_owned(), name)).or_insert(self.formats.len());
        if id == self.formats.len() {
            self.formats.push(Format::Unknown);
        }
        self.formats[id].unify(format).ok_or(Unclear)?;
        Ok(Format::Named(id))
    }
}

/// A box serialises as what is in it and is the same type here.
fn without_boxes(mut of: &str) -> &str {
    while let Some(inner) = ["alloc::boxed::Box<", "alloc::rc::Rc<", "alloc::sync::Arc<"]
        .iter()
        .find_map(|prefix| of.strip_prefix(prefix)?.strip_suffix('>'))
    {
        of = inner;
    }
    of.trim_start_matches('&')
}

/// The type's `Serialize` failed, or writes different shapes.
#[derive(Debug)]
pub(super) struct Unclear;

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shape is not clear")
    }
}

impl std::error::Error for Unclear {}

impl ser::Error for Unclear {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unclear
    }
}

struct Record<'a> {
    recorder: &'a mut Recorder,
    /// Rust name of the type whose value passes.
    of: &'static str,
}

fn unit() -> Format {
    Format::Primitive("unit")
}

macro_rules! primitives {
    ($($method:ident $type:ty, $name:literal;)*) => {$(
        fn $method(self, _: $type) -> Result<Format, Unclear> {
            Ok(Format::Primitive($name))
        }
    )*};
}

impl<'a> Serializer for Record<'a> {
    type Ok = Format;
    type Error = Unclear;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Elements<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    primitives! {
        serialize_bool bool, "bool";
        serialize_i8 i8, "i8"; serialize_i16 i16, "i16"; serialize_i32 i32, "i32"; serialize_i64 i64, "i64";
        serialize_i128 i128, "i128";
        serialize_u8 u8, "u8"; serialize_u16 u16, "u16"; serialize_u32 u32, "u32"; serialize_u64 u64, "u64";
        serialize_u128 u128, "u128";
        serialize_f32 f32, "f32"; serialize_f64 f64, "f64";
        serialize_char char, "char"; serialize_str &str, "str"; serialize_bytes &[u8], "bytes";
    }

    fn serialize_none(self) -> Result<Format, Unclear> {
        Ok(Format::Option(Box::new(Format::Unknown)))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Format, Unclear> {
        Ok(Format::Option(Box::new(self.recorder.record(value).ok_or(Unclear)?)))
    }

    fn serialize_unit(self) -> Result<Format, Unclear> {
        Ok(unit())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Format, Unclear> {
        Ok(unit())
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<Format, Unclear> {
        self.recorder.named(self.of, name, Format::Enum(BTreeMap::from([(index, (variant, unit()))])))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<Format, Unclear> {
        let inner = self.recorder.record(value).ok_or(Unclear)?;
        self.recorder.named(self.of, name, inner)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Format, Unclear> {
        let inner = self.recorder.record(value).ok_or(Unclear)?;
        self.recorder.named(self.of, name, Format::Enum(BTreeMap::from([(index, (variant, inner))])))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, Unclear> {
        Ok(Elements { recorder: self.recorder, element: Format::Unknown, value: Format::Unknown })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Elements<'a>, Unclear> {
        self.serialize_seq(length)
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, Unclear> {
        Ok(Parts::new(self, Whole::Plain))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>, Unclear> {
        Ok(Parts::new(self, Whole::Type(name)))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Unclear> {
        Ok(Parts::new(self, Whole::Variant(name, index, variant)))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>, Unclear> {
        Ok(Parts::new(self, Whole::Type(name)))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Unclear> {
        Ok(Parts::new(self, Whole::Variant(name, index, variant)))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Elements of a list, or entries of a map.
pub(super) struct Elements<'a> {
    recorder: &'a mut Recorder,
    element: Format,
    value: Format,
}

impl ser::SerializeSeq for Elements<'_> {
    type Ok = Format;
    type Error = Unclear;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unclear> {
        let format = self.recorder.record(value).ok_or(Unclear)?;
        self.element.unify(format).ok_or(Unclear)
    }

    fn end(self) -> Result<Format, Unclear> {
        Ok(Format::Seq(Box::new(self.element)))
    }
}

impl ser::SerializeMap for Elements<'_> {
    type Ok = Format;
    type Error = Unclear;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unclear> {
        ser::SerializeSeq::serialize_element(self, key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unclear> {
        let format = self.recorder.record(value).ok_or(Unclear)?;
        self.value.unify(format).ok_or(Unclear)
    }

    fn end(self) -> Result<Format, Unclear> {
        Ok(Format::Map(Box::new(self.element), Box::new(self.value)))
    }
}

/// What parts are of.
enum Whole {
    Plain,
    Type(&'static str),
    Variant(&'static str, u32, &'static str),
}

/// Fields of a struct, or parts of a tuple.
pub(super) struct Parts<'a> {
    recorder: &'a mut Recorder,
    of: &'static str,
    whole: Whole,
    fields: Vec<(&'static str, Format)>,
}

impl<'a> Parts<'a> {
    fn new(record: Record<'a>, whole: Whole) -> Self {
        Parts { recorder: record.recorder, of: record.of, whole, fields: Vec::new() }
    }

    fn part<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unclear> {
        self.fields.push((name, self.recorder.record(value).ok_or(Unclear)?));
        Ok(())
    }

    fn end_as(self, format: Format) -> Result<Format, Unclear> {
        match self.whole {
            Whole::Plain => Ok(format),
            Whole::Type(name) => self.recorder.named(self.of, name, format),
            Whole::Variant(name, index, variant) => {
                self.recorder.named(self.of, name, Format::Enum(BTreeMap::from([(index, (variant, format))])))
            }
        }
    }

    fn end_tuple(mut self) -> Result<Format, Unclear> {
        let parts = std::mem::take(&mut self.fields).into_iter().map(|(_, format)| format).collect();
        self.end_as(Format::Tuple(parts))
    }

    fn end_struct(mut self) -> Result<Format, Unclear> {
        let fields = std::mem::take(&mut self.fields);
        self.end_as(Format::Struct(fields))
    }
}

macro_rules! parts {
    ($($of:ident $method:ident;)*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = Format;
            type Error = Unclear;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unclear> {
                self.part("", value)
            }

            fn end(self) -> Result<Format, Unclear> {
                self.end_tuple()
            }
        }
    )*};
}

parts! {
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! fields {
    ($($of:ident;)*) => {$(
        impl ser::$of for Parts<'_> {
            type Ok = Format;
            type Error = Unclear;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Unclear> {
                self.part(name, value)
            }

            fn end(self) -> Result<Format, Unclear> {
                self.end_struct()
            }
        }
    )*};
}

fields! { SerializeStruct; SerializeStructVariant; }
