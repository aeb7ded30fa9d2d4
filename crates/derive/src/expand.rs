//! The copy of the type that serde's derive sees, and the implementations that lead to it.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Ident, Lifetime, LifetimeParam, LitStr,
    Path, Result, Variant, parse_quote,
};

use crate::attributes::{self, FieldDefault, TypeAttributes};
use crate::refuse;

/// The copy, and functions for defaults that are expressions.
struct Copy {
    body: TokenStream,
    defaults: Vec<TokenStream>,
}

struct Context<'a> {
    key: bool,
    generics: &'a Generics,
    defaults: Vec<TokenStream>,
}

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let TypeAttributes { key, facade } = attributes::of_type(&input.attrs)?;
    let facade = facade.unwrap_or_else(|| parse_quote!(::millpond));
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new_spanned(lifetime, "state owns its values: no lifetimes"));
    }
    let serde_attributes = attributes::of_serde(&input.attrs)?;
    let Copy { body, defaults } = copy(&input, key)?;
    let name = &input.ident;
    let own_name = LitStr::new(&name.to_string(), Span::call_site());
    let serde_path = text(&parse_quote!(#facade::serde));
    let implementations = implementations(&input, &facade);
    Ok(quote! {
        #[doc(hidden)]
        const _: () = {
            #[allow(dead_code)]
            #[derive(#facade::serde::Serialize, #facade::serde::Deserialize)]
            #[serde(crate = #serde_path, remote = #own_name, rename = #own_name)]
            #(#serde_attributes)*
            #body
            #(#defaults)*
            #implementations
        };
    })
}

fn text(path: &Path) -> LitStr {
    LitStr::new(&quote!(#path).to_string().replace(' ', ""), Span::call_site())
}

fn copy(input: &DeriveInput, key: bool) -> Result<Copy> {
    let mut context = Context { key, generics: &input.generics, defaults: Vec::new() };
    let (generics, bounds) = (&input.generics, &input.generics.where_clause);
    let body = match &input.data {
        Data::Struct(data) => {
            let fields = copy_fields(&data.fields, &mut context)?;
            match &data.fields {
                Fields::Named(_) => quote!(struct __Stored #generics #bounds #fields),
                _ => quote!(struct __Stored #generics #fields #bounds;),
            }
        }
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| copy_variant(variant, &mut context));
            let variants = variants.collect::<Result<Vec<_>>>()?;
            quote!(enum __Stored #generics #bounds { #(#variants,)* })
        }
        Data::Union(data) => return Err(Error::new_spanned(data.union_token, "a union cannot be stored")),
    };
    Ok(Copy { body, defaults: context.defaults })
}

fn copy_variant(variant: &Variant, context: &mut Context<'_>) -> Result<TokenStream> {
    let own = attributes::of_part(&variant.attrs)?;
    if own.default.is_some() {
        return Err(Error::new_spanned(variant, "a variant has no default; its fields may"));
    }
    let (aliases, serde) = (own.aliases, attributes::of_serde(&variant.attrs)?);
    let fields = copy_fields(&variant.fields, context)?;
    let name = &variant.ident;
    Ok(quote!(#(#serde)* #(#[serde(alias = #aliases)])* #name #fields))
}

fn copy_fields(fields: &Fields, context: &mut Context<'_>) -> Result<TokenStream> {
    let copied = fields.iter().map(|field| copy_field(field, context)).collect::<Result<Vec<_>>>()?;
    Ok(match fields {
        Fields::Named(_) => quote!({ #(#copied,)* }),
        Fields::Unnamed(_) => quote!((#(#copied,)*)),
        Fields::Unit => TokenStream::new(),
    })
}

fn copy_field(field: &Field, context: &mut Context<'_>) -> Result<TokenStream> {
    let serde: Vec<&Attribute> = attributes::of_serde(&field.attrs)?;
    let own = attributes::of_part(&field.attrs)?;
    refuse::check(&field.ty, context.key)?;
    if field.ident.is_none() && (!own.aliases.is_empty() || own.default.is_some()) {
        return Err(Error::new_spanned(field, "fields without names are matched by position"));
    }
    let default = match own.default {
        None => TokenStream::new(),
        Some(FieldDefault::OfType) => quote!(#[serde(default)]),
        Some(FieldDefault::Expression(expression)) => default_function(field, expression, context)?,
    };
    let aliases = own.aliases;
    let (name, held) = (&field.ident, &field.ty);
    let colon = name.as_ref().map(|_| quote!(:));
    Ok(quote!(#(#serde)* #(#[serde(alias = #aliases)])* #default #name #colon #held))
}

fn default_function(field: &Field, expression: TokenStream, context: &mut Context<'_>) -> Result<TokenStream> {
    if context.generics.type_params().next().is_some() {
        let reason = "a generic type cannot have an expression as default: use `#[serde(default = \"function\")]`";
        return Err(Error::new_spanned(field, reason));
    }
    let function: Ident = format_ident!("__default_{}", context.defaults.len());
    let held = &field.ty;
    context.defaults.push(quote! {
        fn #function() -> #held {
            #expression
        }
    });
    let function = LitStr::new(&function.to_string(), Span::call_site());
    Ok(quote!(#[serde(default = #function)]))
}

fn implementations(input: &DeriveInput, facade: &Path) -> TokenStream {
    let name = &input.ident;
    let (_, type_generics, _) = input.generics.split_for_impl();
    let copy = type_generics.as_turbofish();
    let serialize = bounded(&input.generics, &parse_quote!(#facade::serde::Serialize));
    let (serialize_generics, _, serialize_bounds) = serialize.split_for_impl();
    let mut deserialize = bounded(&input.generics, &parse_quote!(#facade::serde::Deserialize<'de>));
    let de = LifetimeParam::new(Lifetime::new("'de", Span::call_site()));
    deserialize.params.insert(0, GenericParam::Lifetime(de));
    let (deserialize_generics, _, deserialize_bounds) = deserialize.split_for_impl();
    let mut state = input.generics.clone();
    state.make_where_clause().predicates.push(parse_quote!(#name #type_generics: #facade::Data));
    let (state_generics, _, state_bounds) = state.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #serialize_generics #facade::serde::Serialize for #name #type_generics #serialize_bounds {
            fn serialize<__S: #facade::serde::Serializer>(&self, serializer: __S) -> ::core::result::Result<__S::Ok, __S::Error> {
                __Stored #copy::serialize(self, serializer)
            }
        }

        #[automatically_derived]
        impl #deserialize_generics #facade::serde::Deserialize<'de> for #name #type_generics #deserialize_bounds {
            fn deserialize<__D: #facade::serde::Deserializer<'de>>(deserializer: __D) -> ::core::result::Result<Self, __D::Error> {
                __Stored #copy::deserialize(deserializer)
            }
        }

        #[automatically_derived]
        impl #state_generics #facade::StateType for #name #type_generics #state_bounds {}
    }
}

/// The generics with a bound on every type parameter.
fn bounded(generics: &Generics, bound: &syn::TypeParamBound) -> Generics {
    let mut bounded = generics.clone();
    bounded.type_params_mut().for_each(|parameter| parameter.bounds.push(bound.clone()));
    bounded
}
