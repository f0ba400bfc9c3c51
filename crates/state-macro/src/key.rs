//! `#[derive(Key)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Path, Result};

use crate::shape::{Named, NamedField, Shape, bounded};

pub(crate) fn expand(input: &DeriveInput, krate: &TokenStream) -> Result<TokenStream> {
    let methods = match Shape::of(input, "Key")? {
        Shape::Struct(fields) => {
            let pattern = fields.pattern(&quote!(Self));
            let (packs, chains) = (packs(&fields, krate), chains(&fields, krate));
            transparent(
                krate,
                &quote!(let #pattern = self; #packs packed),
                &quote!(let #pattern = self; #chains state),
            )
        }
        Shape::Enum(cases) if cases.iter().all(|case| case.fields.0.is_empty()) => {
            let tags = cases.iter().map(|case| {
                let tag = case.tag;
                let pattern = case.fields.pattern(&{
                    let name = case.name;
                    quote!(Self::#name)
                });
                quote!(#pattern => #tag)
            });
            let tag = quote!(let tag: ::core::primitive::u8 = match self { #(#tags),* };);
            transparent(
                krate,
                &quote!(#tag #krate::Key::pack(&tag, packed)),
                &quote!(state),
            )
        }
        Shape::Enum(cases) => {
            // Fields of different variants lie in words differently, so that words of two variants might be equal: each begins with
            // a seed of its own.
            let hashes = cases.iter().map(|case| {
                let (name, tag) = (case.name, case.tag);
                let pattern = case.fields.pattern(&quote!(Self::#name));
                let (packs, chains) = (packs(&case.fields, krate), chains(&case.fields, krate));
                quote!(#pattern => {
                    let seed = #krate::hash::word(#tag as ::core::primitive::u64, seed);
                    let packed = #krate::hash::Packed::new(seed);
                    #packs
                    let state = packed.finish();
                    #chains
                    state
                })
            });
            quote! {
                #[inline(always)]
                fn hash(&self, seed: ::core::primitive::u64) -> ::core::primitive::u64 {
                    match self { #(#hashes)* }
                }
            }
        }
    };
    let between = between(input)?.map(|between| {
        quote! {
            const IS_OF_CONVERSATION: ::core::primitive::bool = true;
            fn between(
                &self,
            ) -> ::core::option::Option<(::core::net::IpAddr, ::core::net::IpAddr)> {
                ::core::option::Option::Some(#between(self))
            }
        }
    });
    let name = &input.ident;
    let generics = bounded(&input.generics, &quote!(#krate::Key));
    let (parameters, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #krate::Key for #name #arguments #bounds {
            #methods
            #between
        }
    })
}

/// What says of a key between which two addresses its packets are.
fn between(input: &DeriveInput) -> Result<Option<Path>> {
    let mut between = None;
    let attributes = input.attrs.iter();
    for attribute in attributes.filter(|attribute| attribute.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("between") || between.is_some() {
                return Err(meta.error("a key takes `#[key(between = path)]` once"));
            }
            between = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(between)
}

/// The methods of a key that lies in others field by field.
fn transparent(krate: &TokenStream, pack: &TokenStream, chain: &TokenStream) -> TokenStream {
    quote! {
        #[inline(always)]
        fn hash(&self, seed: ::core::primitive::u64) -> ::core::primitive::u64 {
            let packed = #krate::Key::pack(self, #krate::hash::Packed::new(seed));
            #krate::Key::chain(self, packed.finish())
        }
        #[inline(always)]
        #[allow(unused_variables)]
        fn pack(&self, packed: #krate::hash::Packed) -> #krate::hash::Packed {
            #pack
        }
        #[inline(always)]
        #[allow(unused_variables)]
        fn chain(&self, state: ::core::primitive::u64) -> ::core::primitive::u64 {
            #chain
        }
    }
}

fn packs(fields: &Named<'_>, krate: &TokenStream) -> TokenStream {
    let each = |field: &NamedField<'_>| {
        let (name, kind) = (&field.name, &field.field.ty);
        quote_spanned!(field.span()=> let packed = <#kind as #krate::Key>::pack(#name, packed);)
    };
    fields.0.iter().map(each).collect()
}

fn chains(fields: &Named<'_>, krate: &TokenStream) -> TokenStream {
    let each = |field: &NamedField<'_>| {
        let (name, kind) = (&field.name, &field.field.ty);
        quote_spanned!(field.span()=> let state = <#kind as #krate::Key>::chain(#name, state);)
    };
    fields.0.iter().map(each).collect()
}
