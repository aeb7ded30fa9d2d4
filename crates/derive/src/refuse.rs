//! Types of fields that are not the same bytes everywhere.

use syn::{Error, GenericArgument, PathArguments, PathSegment, Result, Type};

/// Refuses a field's type; `key`: of a type whose equal values must have equal bytes.
pub(crate) fn check(field: &Type, key: bool) -> Result<()> {
    match field {
        Type::Path(path) => path.path.segments.last().map_or(Ok(()), |segment| check_name(segment, key)),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|part| check(part, key)),
        Type::Array(array) => check(&array.elem, key),
        Type::Paren(inner) => check(&inner.elem, key),
        Type::Group(inner) => check(&inner.elem, key),
        Type::Reference(_) => Err(Error::new_spanned(field, "state owns its values: use `String`, `Vec` or `Box`")),
        _ => Ok(()),
    }
}

fn check_name(segment: &PathSegment, key: bool) -> Result<()> {
    let name = segment.ident.to_string();
    let reason = match name.as_str() {
        "usize" => Some("`usize` is not the same on every machine: use `u64` or `u32`"),
        "isize" => Some("`isize` is not the same on every machine: use `i64` or `i32`"),
        "f32" | "f64" if key => Some("a float cannot be in a key: equal floats may have different bytes"),
        "HashMap" | "HashSet" if key => Some("in a key, use `BTreeMap` or `BTreeSet`: equal ones have equal bytes"),
        _ => None,
    };
    if let Some(reason) = reason {
        return Err(Error::new_spanned(segment, reason));
    }
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().try_for_each(|argument| match argument {
            GenericArgument::Type(inner) => check(inner, key),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}
