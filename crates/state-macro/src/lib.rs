//! Macros for authors of network functions: the attribute `#[state]`, which makes a struct of state objects usable by a
//! function, and the derives of [`Wire`](macro@Wire), [`Key`](macro@Key) and [`Value`](macro@Value) for its contents.
//!
//! `state.rs` has the attribute; `shape.rs` the derives' view of a type, `wire.rs`, `key.rs` and `value.rs` one derive each.
//! Each macro exists twice: functions import one crate, `asterism_function`, and the layers below it another.

mod key;
mod shape;
mod state;
mod value;
mod wire;

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, parse_macro_input};

/// Implements `State` for a struct whose fields are state objects, and generates `<Name>Act`, the struct
/// of their writes, with the same field names.
///
/// Objects are numbered in the order of the fields; build them in that order.
#[proc_macro_attribute]
pub fn state(arguments: TokenStream, item: TokenStream) -> TokenStream {
    state::generate("::asterism_function::objects", arguments, item)
}

/// As `state`, for crates below the one that network functions import.
#[proc_macro_attribute]
pub fn state_below(arguments: TokenStream, item: TokenStream) -> TokenStream {
    state::generate("::asterism_state", arguments, item)
}

/// Implements `Wire`: the fields in their order, each as its own `Wire` has it, and nothing between them.
///
/// | | |
/// |---|---|
/// | `#[wire(varint)]` on a field | an integer in 1 to 10 bytes, seven bits in each; what does not fit its type is refused |
/// | `#[wire(u24)]` on a field | the low three bytes of a `u32` |
/// | `#[wire(check = path)]` on the type | a `fn(&Self) -> bool` that must hold of what was read |
/// | `Variant = N`, or `#[wire(tag = N)]` on it | the byte that stands for it, before its fields; of enums each variant has one |
///
/// The order of fields is the format: hosts of different versions read each other's bytes.
///
/// Decoding gives `BadBytes` where bytes are missing, for a tag of no variant, and where `check` does not hold. It never panics.
#[proc_macro_derive(Wire, attributes(wire))]
pub fn derive_wire(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Function, wire::expand)
}

/// As `Wire`, for crates below the one that network functions import.
#[proc_macro_derive(WireBelow, attributes(wire))]
pub fn derive_wire_below(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Below, wire::expand)
}

/// Implements `Key`: a hash of all fields.
///
/// Fields of known width (integers, `bool`, addresses, endpoints; tuples, arrays and derived keys of such) lie side by side in words
/// of 64 bits, so that no two can cancel each other; one multiplication for each word, and one more if their number is odd. What is
/// left, keys with a hash of their own, is hashed in its order with what came before as its seed, at its own cost. An enum whose variants
/// have fields hashes its tag first: two multiplications.
///
/// Tags are those of [`Wire`](macro@Wire). Reordering fields changes the hash: hosts of both versions cannot share a table.
///
/// `#[key(between = path)]` on a type names a function of the key: the two addresses (`core::net::IpAddr`) of all packets that read and write under it, in any order. Tables of
/// such keys can live in a store of several shards.
#[proc_macro_derive(Key, attributes(wire, key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Function, key::expand)
}

/// As `Key`, for crates below the one that network functions import.
#[proc_macro_derive(KeyBelow, attributes(wire, key))]
pub fn derive_key_below(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Below, key::expand)
}

/// Implements `Value`. A value joins if its fields say how, all of them:
///
/// | | |
/// |---|---|
/// | `#[join(min)]`, `#[join(max)]` | the smaller, the greater of both by `Ord` |
/// | `#[join(or)]` | the bits of both: of integers and `bool` |
/// | `#[join]` | a field that is a `Value` and joins itself |
/// | `#[join(min, each)]`, and so on | an array, item by item |
/// | `#[join(min)]`, `#[join(max)]` on the type | the whole value, by its `Ord`: "the earlier one" |
///
/// Each of these commutes, associates and is idempotent, and so does a value whose fields all have one. What does not say a law joins
/// in no way: of two such values one wins. Which one, `#[value(order)]` says: the greater by `Ord`, or with
/// `#[value(order(first, second))]` the one whose named fields are greater.
///
/// `#[value(idle_class = path)]` names the `fn(&Self) -> u8` that says which idle class an entry is in.
#[proc_macro_derive(Value, attributes(value, join))]
pub fn derive_value(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Function, value::expand)
}

/// As `Value`, for crates below the one that network functions import.
#[proc_macro_derive(ValueBelow, attributes(value, join))]
pub fn derive_value_below(input: TokenStream) -> TokenStream {
    derive(input, ImportPath::Below, value::expand)
}

/// Which crate the generated code names.
enum ImportPath {
    Function,
    Below,
}

type Expand = fn(&DeriveInput, &proc_macro2::TokenStream) -> syn::Result<proc_macro2::TokenStream>;

fn derive(input: TokenStream, room: ImportPath, expand: Expand) -> TokenStream {
    let krate = match room {
        ImportPath::Function => quote!(::asterism_function::objects),
        ImportPath::Below => quote!(::asterism_state),
    };
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, &krate)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the author reads.
    fn refusal(expand: Expand, code: &str) -> String {
        let input = syn::parse_str(code).expect("an item");
        match expand(&input, &quote!(::k)) {
            Ok(code) => panic!("accepted: {code}"),
            Err(error) => error
                .into_iter()
                .map(|error| format!("{error}\n"))
                .collect(),
        }
    }

    fn accepts(expand: Expand, code: &str) -> String {
        let input = syn::parse_str(code).expect("an item");
        let code = expand(&input, &quote!(::k)).expect("an accepted item");
        code.to_string().replace(' ', "")
    }

    #[test]
    fn what_has_no_format_is_refused_with_what_to_write() {
        for (code, said) in [
            ("union U { a: u8, b: u8 }", "structs and enums"),
            ("enum E {}", "no value of this type"),
            ("enum E { A = 0, B }", "write `B = N`"),
            ("enum E { A(u8) }", "put `#[wire(tag = N)]` before it"),
            ("enum E { A = 1, B = 1 }", "`A` has the tag 1 already"),
            ("enum E { A = 256 }", "from 0 to 255"),
            ("enum E { A = OTHER }", "written out"),
            ("enum E { #[wire(tag = 1)] A = 2 }", "it has one already"),
            (
                "#[wire(check = a)] #[wire(check = b)] struct S(u8);",
                "one check",
            ),
            (
                "enum E { #[wire(varint)] A = 0 }",
                "a variant takes `#[wire(tag = N)]`",
            ),
            (
                "struct S { #[wire(tag = 1)] a: u8 }",
                "`#[wire(varint)]` or `#[wire(u24)]`",
            ),
            (
                "struct S { #[wire(check = x)] a: u8 }",
                "a check is of the whole type",
            ),
            ("struct S { #[wire(varint, u24)] a: u32 }", "one form"),
            (
                "#[wire(varint)] struct S(u32);",
                "a type takes `#[wire(check = path)]`",
            ),
        ] {
            let refused = refusal(wire::expand, code);
            assert!(refused.contains(said), "{code}: {refused}");
        }
        assert!(refusal(key::expand, "enum E { A }").contains("write `A = N`"));
        // Both mistakes at once.
        let two = "struct S { #[wire(a)] a: u8, #[wire(b)] b: u8 }";
        assert_eq!(refusal(wire::expand, two).lines().count(), 2);
    }

    #[test]
    fn what_might_not_join_is_refused_with_what_to_write() {
        for (code, said) in [
            (
                "struct S { #[join(max)] a: u8, b: u8 }",
                "must say how: `#[join(max)]`",
            ),
            (
                "struct S { #[join(max)] a: u8, #[join(min)] #[join(or)] b: u8 }",
                "one law each",
            ),
            ("struct S { #[join(min, max)] a: u8 }", "one law each"),
            (
                "#[join(min)] struct S { #[join(max)] a: u8 }",
                "has a law already",
            ),
            ("#[join(or)] struct S(u8);", "a whole value joins by"),
            ("#[join] struct S(u8);", "a whole value joins by"),
            (
                "#[join(max, each)] struct S([u8; 2]);",
                "a whole value joins by",
            ),
            (
                "struct S { #[join(max)] a: [u8; 2] }",
                "`#[join(max, each)]`",
            ),
            (
                "struct S { #[join(each)] a: [u8; 2] }",
                "say how the items join",
            ),
            ("struct S { #[join(add)] a: u8 }", "counts twice"),
            ("struct S { #[join(last)] a: u8 }", "which came last"),
            ("struct S { #[join(and)] a: u8 }", "`#[join(or)]`"),
            ("struct S { #[join(xor)] a: u8 }", "hears twice"),
            ("struct S { #[join(most)] a: u8 }", "no law: `#[join(max)]`"),
            ("enum E { A(#[join(max)] u8) }", "an enum joins as a whole"),
            (
                "#[value(joins)] struct S(u8);",
                "each field says how it joins",
            ),
            (
                "#[value(order)] struct S(#[join(max)] u8);",
                "needs no order",
            ),
            (
                "#[value(class = x)] struct S(u8);",
                "`#[value(idle_class = path)]`",
            ),
            (
                "#[value(idle_class = Self::idle_class)] struct S(u8);",
                "another name",
            ),
            (
                "#[value(order, order(a))] struct S { a: u8 }",
                "said already",
            ),
            ("struct S<T>(T);", "without parameters"),
            ("union U { a: u8 }", "structs and enums"),
        ] {
            let refused = refusal(value::expand, code);
            assert!(refused.contains(said), "{code}: {refused}");
        }
        let two = "struct S { #[join(max)] a: u8, b: u8, c: u8 }";
        assert_eq!(refusal(value::expand, two).lines().count(), 2);
    }

    #[test]
    fn what_joins_says_so_and_nothing_else_does() {
        let joins = "constJOINS";
        assert!(accepts(value::expand, "struct S(#[join(max)] u8);").contains(joins));
        assert!(accepts(value::expand, "#[join(min)] enum E { A, B }").contains(joins));
        for code in [
            "struct S(u8);",
            "struct S;",
            "enum E { A, B(u8) }",
            "#[value(order)] struct S(u8);",
        ] {
            assert!(!accepts(value::expand, code).contains(joins), "{code}");
        }
        let nested = accepts(value::expand, "struct S { #[join] a: Other }");
        assert!(
            nested.contains("assert!(<Otheras::k::Value>::JOINS"),
            "{nested}"
        );
    }
}
