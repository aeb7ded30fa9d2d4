//! Reads `#[state(…)]` and checks `#[serde(…)]`.

use proc_macro2::TokenStream;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, LitStr, Path, Result, Token};

/// Attributes of serde that make an encoding which cannot be read back from bytes without names.
const REFUSED: &[&str] = &[
    "flatten",
    "untagged",
    "tag",
    "content",
    "skip_serializing_if",
    "skip_serializing",
    "skip_deserializing",
    "getter",
    "remote",
];

/// What `#[state(…)]` says about a type.
#[derive(Default)]
pub(crate) struct TypeAttributes {
    pub(crate) key: bool,
    pub(crate) facade: Option<Path>,
}

/// What stands in for a field that was not stored.
pub(crate) enum FieldDefault {
    OfType,
    Expression(TokenStream),
}

/// What `#[state(…)]` says about a field or variant.
#[derive(Default)]
pub(crate) struct PartAttributes {
    pub(crate) aliases: Vec<LitStr>,
    pub(crate) default: Option<FieldDefault>,
}

pub(crate) fn of_type(attributes: &[Attribute]) -> Result<TypeAttributes> {
    let mut found = TypeAttributes::default();
    for attribute in state(attributes) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("key") {
                found.key = true;
            } else if meta.path.is_ident("crate") {
                found.facade = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            } else {
                return Err(meta.error("known here are `key` and `crate = \"…\"`"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

pub(crate) fn of_part(attributes: &[Attribute]) -> Result<PartAttributes> {
    let mut found = PartAttributes::default();
    for attribute in state(attributes) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("alias") {
                found.aliases.push(meta.value()?.parse()?);
            } else if meta.path.is_ident("default") {
                found.default = Some(default(&meta)?);
            } else {
                return Err(meta.error("known here are `alias = \"…\"`, `default` and `default = \"…\"`"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn default(meta: &ParseNestedMeta<'_>) -> Result<FieldDefault> {
    if meta.input.peek(Token![=]) {
        Ok(FieldDefault::Expression(meta.value()?.parse::<LitStr>()?.parse()?))
    } else {
        Ok(FieldDefault::OfType)
    }
}

fn state(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("state"))
}

/// The attributes of serde, which are passed on; refuses those that bytes without names cannot carry.
pub(crate) fn of_serde(attributes: &[Attribute]) -> Result<Vec<&Attribute>> {
    let serde: Vec<&Attribute> = attributes.iter().filter(|attribute| attribute.path().is_ident("serde")).collect();
    for attribute in &serde {
        attribute.parse_nested_meta(|meta| {
            if let Some(name) = REFUSED.iter().find(|name| meta.path.is_ident(name)) {
                let reason = format!("stored values have no names in them, so `{name}` could not be read back");
                return Err(Error::new_spanned(&meta.path, reason));
            }
            skip_value(&meta)
        })?;
    }
    Ok(serde)
}

fn skip_value(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Lit>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<TokenStream>()?;
    }
    Ok(())
}
