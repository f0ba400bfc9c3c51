//! `#[derive(Value)]`: only laws that commute, associate and are idempotent can be said, so that every value that is made of them does.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Error, Ident, Meta, Path, Result, Type};

use crate::shape::{Named, NamedField, Shape};

/// What may stand where a law is missing.
const LAWS: &str = "`#[join(max)]`, `#[join(min)]`, `#[join(or)]` for bits, `#[join]` for a field that is a `Value` and joins itself; \
                    of arrays `#[join(max, each)]`";

#[derive(Clone, Copy, PartialEq)]
enum Law {
    Min,
    Max,
    Or,
    /// The field's own.
    Nested,
}

/// How a field joins.
struct Join {
    law: Law,
    /// Item by item of an array.
    each: bool,
    at: Span,
}

/// What `#[value(..)]` says.
#[derive(Default)]
struct Attributes {
    /// The fields that decide which of two wins; none: all, by `Ord`.
    order: Option<(Vec<Ident>, Span)>,
    idle_class: Option<Path>,
}

pub(crate) fn expand(input: &DeriveInput, krate: &TokenStream) -> Result<TokenStream> {
    if let Some(parameter) = input.generics.params.first() {
        let message =
            "`Value` goes on types without parameters: whether it joins would depend on them";
        return Err(Error::new_spanned(parameter, message));
    }
    let said = said(input)?;
    let whole = join_of(&input.attrs)?;
    let joins = match data(input)? {
        Data::Struct(fields) => join_fields(&fields, whole.as_ref(), krate)?,
        Data::Enum => None,
    };
    let joins = match whole {
        Some(whole) => Some(join_whole(&whole)?),
        None => joins,
    };
    if let (Some((_, at)), Some(_)) = (&said.order, &joins) {
        let message = "a value that joins needs no order: none of two is lost";
        return Err(Error::new(*at, message));
    }
    let asserts = joins.as_ref().map(|joins| joins.asserts.clone());
    let joins = joins.map(|Joins { body, .. }| {
        quote! {
            const JOINS: ::core::primitive::bool = true;
            #[inline]
            fn join(&mut self, other: &Self) { #body }
        }
    });
    let order = said.order.map(|(fields, at)| order(&fields, at));
    let idle_class = said.idle_class.map(|path| {
        quote! {
            #[inline]
            fn idle_class(&self) -> ::core::primitive::u8 { #path(self) }
        }
    });
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #krate::Value for #name { #joins #order #idle_class }
        const _: () = { #asserts };
    })
}

enum Data<'a> {
    Struct(Named<'a>),
    Enum,
}

/// Fields of a struct; of an enum there are none that could join by themselves.
fn data(input: &DeriveInput) -> Result<Data<'_>> {
    if let syn::Data::Enum(data) = &input.data {
        for field in data.variants.iter().flat_map(|variant| &variant.fields) {
            if let Some(join) = join_of(&field.attrs)? {
                let message = "an enum joins as a whole: `#[join(min)]` or `#[join(max)]` before it, by its `Ord`";
                return Err(Error::new(join.at, message));
            }
        }
        return Ok(Data::Enum);
    }
    match Shape::of(input, "Value")? {
        Shape::Struct(fields) => Ok(Data::Struct(fields)),
        Shape::Enum(_) => Ok(Data::Enum),
    }
}

struct Joins {
    /// What must be true of the fields' types.
    asserts: TokenStream,
    body: TokenStream,
}

fn said(input: &DeriveInput) -> Result<Attributes> {
    let mut said = Attributes::default();
    let of_value = |attribute: &&Attribute| attribute.path().is_ident("value");
    for attribute in input.attrs.iter().filter(of_value) {
        attribute.parse_nested_meta(|meta| {
            let once = |is_said| match is_said {
                true => Err(meta.error("this is said already")),
                false => Ok(()),
            };
            if meta.path.is_ident("idle_class") {
                once(said.idle_class.is_some())?;
                let path: Path = meta.value()?.parse()?;
                let names: Vec<String> =
                    path.segments.iter().map(|part| part.ident.to_string()).collect();
                if names == ["Self", "idle_class"] {
                    let message = "give the method another name: of this one the trait has one, which would call itself";
                    return Err(Error::new_spanned(path, message));
                }
                said.idle_class = Some(path);
            } else if meta.path.is_ident("order") {
                once(said.order.is_some())?;
                let at = meta.path.span();
                let mut fields = Vec::new();
                if meta.input.peek(syn::token::Paren) {
                    meta.parse_nested_meta(|field| {
                        fields.push(field.path.require_ident()?.clone());
                        Ok(())
                    })?;
                }
                said.order = Some((fields, at));
            } else if meta.path.is_ident("joins") {
                let message = format!("each field says how it joins, the type does not: {LAWS}");
                return Err(meta.error(message));
            } else {
                let message = "a value takes `#[value(order)]`, `#[value(order(field, ..))]` and `#[value(idle_class = path)]`";
                return Err(meta.error(message));
            }
            Ok(())
        })?;
    }
    Ok(said)
}

/// What a `#[join]` says, if there is one.
fn join_of(attributes: &[Attribute]) -> Result<Option<Join>> {
    let mut found = None;
    let of_join = |attribute: &&Attribute| attribute.path().is_ident("join");
    for attribute in attributes.iter().filter(of_join) {
        if found.is_some() {
            return Err(Error::new_spanned(attribute, "one law each"));
        }
        let mut law = None;
        let mut each = false;
        if !matches!(attribute.meta, Meta::Path(_)) {
            attribute.parse_nested_meta(|meta| {
                let named = match meta.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("min") => Law::Min,
                    Some("max") => Law::Max,
                    Some("or") => Law::Or,
                    Some("each") => {
                        each = true;
                        return Ok(());
                    }
                    Some(name @ ("add" | "sum" | "last" | "first" | "xor" | "and")) => {
                        let message = match name {
                            "add" | "sum" => "a sum counts twice what it hears twice: use a `Counter` beside the table".to_owned(),
                            "last" | "first" => "which came last depends on who is asked: put its time into the value, or leave the laws out \
                                                 and say `#[value(order)]`".to_owned(),
                            "and" => "keep what was taken away as bits, and join those: `#[join(or)]`".to_owned(),
                            _ => format!("`{name}` forgets what it hears twice: {LAWS}"),
                        };
                        return Err(meta.error(message));
                    }
                    _ => return Err(meta.error(format!("no law: {LAWS}"))),
                };
                if law.replace(named).is_some() {
                    return Err(meta.error("one law each"));
                }
                Ok(())
            })?;
        }
        found = Some(Join {
            law: law.unwrap_or(Law::Nested),
            each,
            at: attribute.span(),
        });
    }
    Ok(found)
}

fn join_whole(whole: &Join) -> Result<Joins> {
    let at = Span::call_site().located_at(whole.at);
    let body = match (whole.law, whole.each) {
        (Law::Min, false) => quote_spanned!(at=> *self = ::core::cmp::Ord::min(*self, *other);),
        (Law::Max, false) => quote_spanned!(at=> *self = ::core::cmp::Ord::max(*self, *other);),
        _ => {
            let message =
                "a whole value joins by `#[join(min)]` or `#[join(max)]`, else each field says how";
            return Err(Error::new(whole.at, message));
        }
    };
    Ok(Joins {
        asserts: TokenStream::new(),
        body,
    })
}

/// The join of a struct whose fields all have a law; `None` if none has.
fn join_fields(
    fields: &Named<'_>,
    whole: Option<&Join>,
    krate: &TokenStream,
) -> Result<Option<Joins>> {
    let mut laws = Vec::new();
    for field in &fields.0 {
        laws.push((field, join_of(&field.field.attrs)?));
    }
    if laws.iter().all(|(_, law)| law.is_none()) {
        return Ok(None);
    }
    let mut errors: Option<Error> = None;
    let mut refuse = |error: Error| match &mut errors {
        Some(errors) => errors.combine(error),
        None => errors = Some(error),
    };
    let mut joins = Joins {
        asserts: TokenStream::new(),
        body: TokenStream::new(),
    };
    for (field, law) in &laws {
        match (law, whole) {
            (Some(law), Some(_)) => {
                let message = "the whole value has a law already: take this one away, or that before the type";
                refuse(Error::new(law.at, message));
            }
            (None, None) => {
                let message = format!("other fields join, so this one must say how: {LAWS}");
                refuse(Error::new_spanned(field.field, message));
            }
            (Some(law), None) => match join_field(field, law, krate) {
                Ok(Joins { asserts, body }) => {
                    joins.asserts.extend(asserts);
                    joins.body.extend(body);
                }
                Err(error) => refuse(error),
            },
            (None, Some(_)) => {}
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None => Ok(Some(joins)),
    }
}

fn join_field(field: &NamedField<'_>, join: &Join, krate: &TokenStream) -> Result<Joins> {
    let (member, kind, span) = (&field.member, &field.field.ty, field.span());
    if matches!(kind, Type::Array(_)) && !join.each {
        let message = "an array joins item by item: add `each`, as in `#[join(max, each)]`";
        return Err(Error::new(join.at, message));
    }
    // Of an array the type of an item is found by the compiler; else the type is named, so that an error is shown at it.
    let joining = |law: TokenStream| match join.each {
        true => law,
        false => quote_spanned!(span=> <#kind as #law>),
    };
    let both = match join.law {
        Law::Min => {
            let ord = joining(quote_spanned!(span=> ::core::cmp::Ord));
            quote_spanned!(span=> #ord::min)
        }
        Law::Max => {
            let ord = joining(quote_spanned!(span=> ::core::cmp::Ord));
            quote_spanned!(span=> #ord::max)
        }
        Law::Or => {
            let bits = joining(quote_spanned!(span=> #krate::laws::Bits));
            quote_spanned!(span=> #bits::or)
        }
        Law::Nested => quote_spanned!(span=> #krate::laws::joined::<#kind>),
    };
    let body = match join.each {
        true => {
            quote_spanned!(span=> #krate::laws::each(&mut self.#member, &other.#member, #both);)
        }
        false => quote_spanned!(span=> self.#member = #both(self.#member, other.#member);),
    };
    let asserts = match (join.law, join.each) {
        (Law::Nested, false) => {
            let message = "a field with `#[join]` is a value that joins: give its type laws, or this field one";
            quote_spanned!(span=>
                ::core::assert!(<#kind as #krate::Value>::JOINS, #message);
            )
        }
        (Law::Nested, true) => {
            let message = "say how the items join: `#[join(max, each)]`, and so on";
            return Err(Error::new(join.at, message));
        }
        _ => TokenStream::new(),
    };
    Ok(Joins { asserts, body })
}

/// Which of two values wins.
fn order(fields: &[Ident], at: Span) -> TokenStream {
    let at = Span::call_site().located_at(at);
    let compared = if fields.is_empty() {
        quote_spanned!(at=> ::core::cmp::Ord::cmp(self, other))
    } else {
        let each = fields.iter().map(|field| {
            let at = Span::call_site().located_at(field.span());
            quote_spanned!(at=> .then_with(|| ::core::cmp::Ord::cmp(&self.#field, &other.#field)))
        });
        quote!(::core::cmp::Ordering::Equal #(#each)*)
    };
    quote! {
        #[inline]
        fn order(&self, other: &Self) -> ::core::cmp::Ordering { #compared }
    }
}
