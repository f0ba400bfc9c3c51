//! `#[derive(Wire)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Error, Path, Result};

use crate::shape::{Named, NamedField, Shape, bounded, wire_attributes};

/// How a field is written.
enum Form {
    /// As its type's `Wire` has it.
    Own,
    Varint,
    Three,
}

pub(crate) fn expand(input: &DeriveInput, krate: &TokenStream) -> Result<TokenStream> {
    let check = check(input)?;
    let (encode, decode, layout, bytes_max) = match Shape::of(input, "Wire")? {
        Shape::Struct(fields) => {
            let pattern = fields.pattern(&quote!(Self));
            let (writes, reads, layouts, bytes) = forms(&fields, krate)?;
            let layout = quote!(#krate::layout::of_parts(&[#(#layouts),*]));
            let bytes_max = quote!(#krate::layout::bytes_of_parts(&[#(#bytes),*]));
            let encode = quote!(let #pattern = self; #writes);
            (encode, quote!(Self #reads), layout, bytes_max)
        }
        Shape::Enum(cases) => {
            let (mut encodes, mut decodes, mut layouts) = (Vec::new(), Vec::new(), Vec::new());
            let mut cases_bytes = Vec::new();
            for case in &cases {
                let (name, tag) = (case.name, case.tag);
                let pattern = case.fields.pattern(&quote!(Self::#name));
                let (writes, reads, of_case, bytes) = forms(&case.fields, krate)?;
                cases_bytes.push(quote!(#krate::layout::bytes_of_parts(&[#(#bytes),*])));
                let tagged = quote!(#tag as ::core::primitive::u64);
                layouts.push(quote!(#krate::layout::of_parts(&[#tagged, #(#of_case),*])));
                encodes.push(quote!(#pattern => { out.u8(#tag); #writes }));
                decodes.push(quote!(#tag => Self::#name #reads,));
            }
            let encode = quote!(match self { #(#encodes)* });
            let decode = quote!(match input.u8()? {
                #(#decodes)*
                _ => return ::core::result::Result::Err(#krate::BadBytes),
            });
            let layout = quote!(#krate::layout::of_parts(&[
                #krate::layout::manual("enum", 0), #(#layouts),*
            ]));
            let bytes_max = quote!(1 + #krate::layout::bytes_of_cases(&[#(#cases_bytes),*]));
            (encode, decode, layout, bytes_max)
        }
    };
    let checked = check.map(|check| {
        quote!(if !#check(&decoded) {
            return ::core::result::Result::Err(#krate::BadBytes);
        })
    });
    let name = &input.ident;
    let generics = bounded(&input.generics, &quote!(#krate::Wire));
    let (parameters, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #krate::Wire for #name #arguments #bounds {
            const LAYOUT: ::core::primitive::u64 = #layout;
            const BYTES_MAX: ::core::primitive::usize = #bytes_max;
            #[inline]
            #[allow(unused_variables)]
            fn encode(&self, out: &mut #krate::Writer<'_>) {
                #encode
            }
            #[inline]
            #[allow(unused_variables)]
            fn decode(
                input: &mut #krate::Reader<'_>,
            ) -> ::core::result::Result<Self, #krate::BadBytes> {
                let decoded = #decode;
                #checked
                ::core::result::Result::Ok(decoded)
            }
        }
    })
}

/// What must hold of a decoded value.
fn check(input: &DeriveInput) -> Result<Option<Path>> {
    let mut check = None;
    for attribute in wire_attributes(&input.attrs) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("check") {
                return Err(meta.error("a type takes `#[wire(check = path)]`"));
            }
            if check.is_some() {
                return Err(meta.error("a type has one check, which may call others"));
            }
            check = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(check)
}

fn form(field: &NamedField<'_>) -> Result<Form> {
    let mut form = Form::Own;
    for attribute in wire_attributes(&field.field.attrs) {
        attribute.parse_nested_meta(|meta| {
            if !matches!(form, Form::Own) {
                return Err(meta.error("a field has one form"));
            }
            form = if meta.path.is_ident("varint") {
                Form::Varint
            } else if meta.path.is_ident("u24") {
                Form::Three
            } else if meta.path.is_ident("check") {
                let message = "a check is of the whole type: `#[wire(check = path)]` before it";
                return Err(meta.error(message));
            } else {
                let message = "a field takes `#[wire(varint)]` or `#[wire(u24)]`, or neither";
                return Err(meta.error(message));
            };
            Ok(())
        })?;
    }
    Ok(form)
}

/// Statements that write fields, the braces that read them, and the layout of each.
fn forms(
    fields: &Named<'_>,
    krate: &TokenStream,
) -> Result<(TokenStream, TokenStream, Vec<TokenStream>, Vec<TokenStream>)> {
    let (mut writes, mut reads, mut layouts) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = Vec::new();
    let mut errors: Option<Error> = None;
    for field in &fields.0 {
        let (name, member, kind, span) =
            (&field.name, &field.member, &field.field.ty, field.span());
        let form = form(field).unwrap_or_else(|error| {
            match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            }
            Form::Own
        });
        let (write, read, layout, bytes_max) = match form {
            Form::Own => (
                quote_spanned!(span=> <#kind as #krate::Wire>::encode(#name, out);),
                quote_spanned!(span=> <#kind as #krate::Wire>::decode(input)?),
                quote_spanned!(span=> <#kind as #krate::Wire>::LAYOUT),
                quote_spanned!(span=> <#kind as #krate::Wire>::BYTES_MAX),
            ),
            Form::Varint => (
                quote_spanned!(span=> out.varint(::core::convert::From::from(*#name));),
                quote_spanned!(span=>
                    <#kind as ::core::convert::TryFrom<::core::primitive::u64>>::try_from(input.varint()?)
                        .map_err(|_| #krate::BadBytes)?
                ),
                quote_spanned!(span=> #krate::layout::manual("varint", 0)),
                quote_spanned!(span=> ::core::mem::size_of::<#kind>() + ::core::mem::size_of::<#kind>() / 7 + 1),
            ),
            Form::Three => (
                quote_spanned!(span=> out.u24(*#name);),
                quote_spanned!(span=> input.u24()?),
                quote_spanned!(span=> #krate::layout::manual("u24", 0)),
                quote_spanned!(span=> 3),
            ),
        };
        writes.push(write);
        reads.push(quote!(#member: #read));
        layouts.push(layout);
        bytes.push(bytes_max);
    }
    match errors {
        Some(errors) => Err(errors),
        None => Ok((quote!(#(#writes)*), quote!({ #(#reads),* }), layouts, bytes)),
    }
}
