//! What the derives see of a type: its fields, or its variants with the byte that stands for each.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Generics, Lit, Member, Result, Variant,
    parse_quote,
};

/// What a type is made of.
pub(crate) enum Shape<'a> {
    Struct(Named<'a>),
    Enum(Vec<Case<'a>>),
}

/// A variant of an enum.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a Ident,
    /// The byte that stands for it.
    pub(crate) tag: u8,
    pub(crate) fields: Named<'a>,
}

/// Fields, each with the name under which generated code has it.
pub(crate) struct Named<'a>(pub(crate) Vec<NamedField<'a>>);

pub(crate) struct NamedField<'a> {
    pub(crate) field: &'a Field,
    pub(crate) member: Member,
    pub(crate) name: Ident,
}

impl NamedField<'_> {
    /// Where an error about the field is to be shown: at its type, by code that is still known to be generated.
    pub(crate) fn span(&self) -> Span {
        Span::call_site().located_at(self.field.ty.span())
    }
}

impl<'a> Named<'a> {
    fn of(fields: &'a Fields) -> Self {
        let members = fields.members();
        let named = fields.iter().zip(members).enumerate();
        Self(
            named
                .map(|(place, (field, member))| NamedField {
                    field,
                    member,
                    name: format_ident!("field_{place}", span = Span::mixed_site()),
                })
                .collect(),
        )
    }

    /// A pattern that takes all of them apart.
    pub(crate) fn pattern(&self, path: &TokenStream) -> TokenStream {
        let fields = self
            .0
            .iter()
            .map(|NamedField { member, name, .. }| quote!(#member: #name));
        quote!(#path { #(#fields),* })
    }
}

impl<'a> Shape<'a> {
    pub(crate) fn of(input: &'a DeriveInput, derived: &str) -> Result<Self> {
        match &input.data {
            Data::Struct(data) => Ok(Self::Struct(Named::of(&data.fields))),
            Data::Enum(data) if data.variants.is_empty() => Err(Error::new_spanned(
                &input.ident,
                format!("`{derived}` needs a variant: there is no value of this type"),
            )),
            Data::Enum(data) => {
                let mut cases: Vec<Case<'a>> = Vec::new();
                for variant in &data.variants {
                    let tag = tag(variant)?;
                    if let Some(other) = cases.iter().find(|case| case.tag == tag) {
                        let message = format!("`{}` has the tag {tag} already", other.name);
                        return Err(Error::new_spanned(variant, message));
                    }
                    cases.push(Case {
                        name: &variant.ident,
                        tag,
                        fields: Named::of(&variant.fields),
                    });
                }
                Ok(Self::Enum(cases))
            }
            Data::Union(data) => Err(Error::new_spanned(
                data.union_token,
                format!(
                    "`{derived}` goes on structs and enums: a union does not say what it holds"
                ),
            )),
        }
    }
}

/// The byte that stands for a variant.
fn tag(variant: &Variant) -> Result<u8> {
    let mut given = None;
    for attribute in wire_attributes(&variant.attrs) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("tag") {
                return Err(meta.error("a variant takes `#[wire(tag = N)]`"));
            }
            if given.is_some() || variant.discriminant.is_some() {
                return Err(meta.error("a variant has one tag, and it has one already"));
            }
            given = Some(meta.value()?.parse::<Expr>()?);
            Ok(())
        })?;
    }
    let Some(tag) = given
        .as_ref()
        .or(variant.discriminant.as_ref().map(|(_, tag)| tag))
    else {
        let with = match variant.fields {
            Fields::Unit => format!("write `{} = N`", variant.ident),
            _ => "put `#[wire(tag = N)]` before it".to_owned(),
        };
        let message = format!(
            "say which byte stands for this variant: {with}. The order of variants decides no format, so that one more changes none"
        );
        return Err(Error::new_spanned(variant, message));
    };
    if let Expr::Lit(ExprLit {
        lit: Lit::Int(number),
        ..
    }) = tag
        && let Ok(number) = number.base10_parse()
    {
        return Ok(number);
    }
    Err(Error::new_spanned(
        tag,
        "a tag is a number from 0 to 255, written out",
    ))
}

pub(crate) fn wire_attributes(
    attributes: &[syn::Attribute],
) -> impl Iterator<Item = &syn::Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("wire"))
}

/// The generics of an implementation, in which each type parameter has the trait too.
pub(crate) fn bounded(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut bounded = generics.clone();
    for parameter in bounded.type_params_mut() {
        parameter.bounds.push(parse_quote!(#bound));
    }
    bounded
}
