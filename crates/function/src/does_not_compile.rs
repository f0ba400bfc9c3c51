//! Misuse that the compiler refuses, each beside the nearest accepted form, so that a refusal has no other reason than the
//! claimed one. Built only for `cargo test --doc`.

/// What all cases begin with.
macro_rules! prelude {
    () => {
        "#![allow(unused)]
#![deny(unused_must_use)]
use asterism_function::*;
use core::net::Ipv4Addr;
#[state]
struct Shared { hosts: Set<u32>, seen: Counter, ports: Pool<EndpointSpace> }
fn function(ask: Ask<'_, Shared>) -> Result<Verdict, Late> {
"
    };
}

macro_rules! case {
    ($name:ident: $claim:literal, right: $right:literal, wrong: $wrong:literal) => {
        #[doc = $claim]
        #[doc = concat!("```\n", prelude!(), $right, "\n    Ok(Verdict::Consumed)\n}\nfn main() {}\n```")]
        #[doc = concat!("```compile_fail\n", prelude!(), $wrong, "\n    Ok(Verdict::Consumed)\n}\nfn main() {}\n```")]
        #[allow(dead_code, reason = "only its documentation is used")]
        const $name: () = ();
    };
}

case!(WRITE_WHILE_ASKING: "A write before `act`.",
    right: "let mut act = ask.act()?; act.seen.add(1);",
    wrong: "ask.seen.add(1); let act = ask.act()?;");
case!(WRITE_WHILE_ASKING_BY_FORCE: "A write before `act`, got from the object itself.",
    right: "let mut act = ask.act()?; act.seen.add(1);",
    wrong: "use asterism_function::objects::Writable; ask.seen.act().add(1); let act = ask.act()?;");
case!(READ_AFTER_ACT: "A read through what was asked of, after `act`.",
    right: "let seen = ask.seen.get()?; let act = ask.act()?;",
    wrong: "let act = ask.act()?; let seen = ask.seen.get()?;");
case!(READ_FROM_ACT: "A read through what `act` gave.",
    right: "let seen = ask.seen.get()?; let mut act = ask.act()?; act.seen.add(seen);",
    wrong: "let mut act = ask.act()?; let seen = act.seen.get()?; act.seen.add(seen);");
case!(EDIT_WHILE_ASKING: "An edit of the packet before `act`.",
    right: "let mut act = ask.act()?; act.packet.set_source_port(1);",
    wrong: "ask.packet().set_source_port(1); let act = ask.act()?;");
case!(ACT_TWICE: "Acting twice.",
    right: "let first = ask.act()?;",
    wrong: "let first = ask.act()?; let second = ask.act()?;");
case!(GRANT_TWICE: "Spending a grant twice.",
    right: "let grant = ask.ports.grant(0, 0)?; let mut act = ask.act()?;
        if let Some(grant) = grant { act.ports.take(grant); }",
    wrong: "let grant = ask.ports.grant(0, 0)?; let mut act = ask.act()?;
        if let Some(grant) = grant { act.ports.take(grant); act.ports.take(grant); }");
case!(GRANT_CLONED: "Cloning a grant.",
    right: "let grant = ask.ports.grant(0, 0)?; let item = grant.map(|grant| grant.item());",
    wrong: "let grant = ask.ports.grant(0, 0)?; let copy = grant.map(|grant| Grant::clone(&grant));");
case!(GRANT_WHILE_ASKING: "Spending a grant before `act`.",
    right: "let grant = ask.ports.grant(0, 0)?; let mut act = ask.act()?;
        if let Some(grant) = grant { act.ports.take(grant); }",
    wrong: "let grant = ask.ports.grant(0, 0)?;
        if let Some(grant) = grant { ask.ports.take(grant); }");
case!(VACANCY_TWICE: "Spending a vacancy twice.",
    right: "let vacancy = ask.hosts.vacancy()?; let mut act = ask.act()?;
        if let Some(vacancy) = vacancy { act.hosts.insert(vacancy, 1, ()); }",
    wrong: "let vacancy = ask.hosts.vacancy()?; let mut act = ask.act()?;
        if let Some(vacancy) = vacancy { act.hosts.insert(vacancy, 1, ()); act.hosts.insert(vacancy, 2, ()); }");
case!(VACANCY_CLONED: "Cloning a vacancy.",
    right: "let vacancy = ask.hosts.vacancy()?;",
    wrong: "let vacancy = ask.hosts.vacancy()?; let copy = vacancy.as_ref().map(|vacancy| Vacancy::clone(vacancy));");
case!(INSERT_WITHOUT_VACANCY: "Inserting without a vacancy.",
    right: "let vacancy = ask.hosts.vacancy()?; let mut act = ask.act()?;
        if let Some(vacancy) = vacancy { act.hosts.insert(vacancy, 1, ()); }",
    wrong: "let mut act = ask.act()?; act.hosts.insert(1, ());");
case!(VACANCY_MADE_UP: "Making up a vacancy.",
    right: "let vacancy: Option<Vacancy> = ask.hosts.vacancy()?;",
    wrong: "let vacancy = Vacancy { object: 0 };");
case!(LATE_MADE_UP: "Making up a late answer.",
    right: "let late: Result<u64, Late> = ask.seen.get(); late?;",
    wrong: "let late: Result<u64, Late> = Err(Late(())); late?;");
case!(LATE_MADE_BY_CALL: "Making up a late answer as state objects do.",
    right: "let late: Result<u64, objects::Late> = ask.seen.get(); late?;",
    wrong: "let late: Result<u64, objects::Late> = Err(objects::late_answer()); late?;");
case!(ANSWER_IGNORED: "Ignoring that an answer may be late (where unused results are denied).",
    right: "ask.seen.get()?;",
    wrong: "ask.seen.get();");

macro_rules! item_case {
    ($name:ident: $claim:literal, right: $right:literal, wrong: $wrong:literal) => {
        #[doc = $claim]
        #[doc = concat!("```\nuse asterism_function::*;\n", $right, "\nfn main() {}\n```")]
        #[doc = concat!("```compile_fail\nuse asterism_function::*;\n", $wrong, "\nfn main() {}\n```")]
        #[allow(dead_code, reason = "only its documentation is used")]
        const $name: () = ();
    };
}

item_case!(STATE_ON_ENUM: "`#[state]` on an enum.",
    right: "#[state] pub struct Shared { seen: Counter }",
    wrong: "#[state] pub enum Shared { Seen }");
item_case!(STATE_ON_TUPLE: "`#[state]` on a tuple struct.",
    right: "#[state] pub(crate) struct Shared { pub(crate) seen: Counter, }",
    wrong: "#[state] pub struct Shared(Counter);");
item_case!(STATE_WITH_ARGUMENTS: "`#[state]` with arguments.",
    right: "#[state] struct Shared { seen: Counters<(u32, u16)>, hosts: Map<u32, ()> }",
    wrong: "#[state(replicated)] struct Shared { seen: Counters<(u32, u16)>, hosts: Map<u32, ()> }");
item_case!(STATE_WITH_PARAMETERS: "`#[state]` with type parameters.",
    right: "#[state] struct Shared { hosts: Set<u32> }",
    wrong: "#[state] struct Shared<K: Key> { hosts: Set<K> }");
item_case!(STATE_OF_NOTHING: "`#[state]` without objects.",
    right: "/// Documented.\n#[state]\n#[derive(Debug)]\nstruct Shared { /** So is this. */ hosts: Set<u32> }",
    wrong: "#[state] struct Shared {}");
item_case!(STATE_OF_A_NUMBER: "`#[state]` with a field that is no state object.",
    right: "#[state] struct Shared { seen: Counter }",
    wrong: "#[state] struct Shared { seen: u64 }");

item_case!(WIRE_VARIANT_WITHOUT_TAG: "A variant that no byte of the source stands for: the order of variants decides no format.",
    right: "#[derive(Wire)] enum Colour { Red = 0, Green = 1 }",
    wrong: "#[derive(Wire)] enum Colour { Red = 0, Green }");
item_case!(WIRE_VARIANT_WITH_FIELDS: "A variant with fields and without a tag.",
    right: "#[derive(Wire)] enum Of { #[wire(tag = 0)] Port(u16), #[wire(tag = 1)] Nothing }",
    wrong: "#[derive(Wire)] enum Of { Port(u16), #[wire(tag = 1)] Nothing }");
item_case!(WIRE_TAG_TWICE: "One tag for two variants.",
    right: "#[derive(Wire)] enum Of { #[wire(tag = 0)] Port(u16), #[wire(tag = 1)] Host(u32) }",
    wrong: "#[derive(Wire)] enum Of { #[wire(tag = 1)] Port(u16), #[wire(tag = 1)] Host(u32) }");
item_case!(WIRE_TAG_TOO_GREAT: "A tag that is no byte.",
    right: "#[derive(Wire)] enum Colour { Red = 255 }",
    wrong: "#[derive(Wire)] enum Colour { Red = 256 }");
item_case!(WIRE_OF_A_REFERENCE: "A field that cannot travel.",
    right: "#[derive(Wire)] struct Record { port: u16, tail: [u8; 4] }",
    wrong: "#[derive(Wire)] struct Record { port: u16, tail: &'static [u8] }");
item_case!(WIRE_VARINT_OF_AN_ADDRESS: "A variable length for what is no number.",
    right: "#[derive(Wire)] struct Record { #[wire(varint)] port: u16, at: core::net::Ipv4Addr }",
    wrong: "#[derive(Wire)] struct Record { port: u16, #[wire(varint)] at: core::net::Ipv4Addr }");
item_case!(WIRE_CHECK_OF_A_FIELD: "A check on a field.",
    right: "fn sane(record: &Record) -> bool { record.0 < 9 } #[derive(Wire)] #[wire(check = sane)] struct Record(u8);",
    wrong: "fn sane(record: &Record) -> bool { record.0 < 9 } #[derive(Wire)] struct Record(#[wire(check = sane)] u8);");
item_case!(KEY_OF_A_VALUE: "A key with a field that is no key.",
    right: "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)] struct Part(u8);
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)] struct Whole(u16, Part);",
    wrong: "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)] struct Part(u8);
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)] struct Whole(u16, Part);");
item_case!(VALUE_WITH_A_FIELD_WITHOUT_LAW: "A value of which one field joins and another does not say how.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(min)] first: u32, #[join(max)] most: u16 }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(min)] first: u32, most: u16 }");
item_case!(VALUE_THAT_COUNTS: "A sum: what is heard twice would count twice.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max)] packets: u32 }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(add)] packets: u32 }");
item_case!(VALUE_OF_BITS_THAT_ARE_NONE: "The bits of what has none.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max)] last: Option<u32> }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(or)] last: Option<u32> }");
item_case!(VALUE_BY_ITEM_OF_NO_ARRAY: "Item by item, of what may have none: an absent item would depend on who is asked.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max, each)] last: [u32; 2] }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max, each)] last: Option<u32> }");
item_case!(VALUE_OF_AN_ARRAY_AT_ONCE: "The greater of two arrays: by items, or as a whole?",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max, each)] last: [u32; 2] }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Seen { #[join(max)] last: [u32; 2] }");
item_case!(VALUE_WITHIN_THAT_DOES_NOT_JOIN: "A field that joins by itself, of a type that does not.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Part(#[join(max)] u8);
        #[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Whole(#[join] Part);",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Part(u8);
        #[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] struct Whole(#[join] Part);");
item_case!(VALUE_WITHOUT_AN_ORDER: "The earlier of two that have no order.",
    right: "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)] #[join(min)] struct Event { at: u32 }",
    wrong: "#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)] #[join(min)] struct Event { at: u32 }");
item_case!(VALUE_WITH_AN_ORDER_TOO: "A value that joins and has an order.",
    right: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] #[value(order(at))] struct Event { at: u32 }",
    wrong: "#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)] #[value(order(at))] struct Event { #[join(max)] at: u32 }");
item_case!(VALUE_ENUM_BY_FIELDS: "A variant whose field joins.",
    right: "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)] #[join(max)] enum Of { #[wire(tag = 0)] Port(u16) }",
    wrong: "#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)] enum Of { #[wire(tag = 0)] Port(#[join(max)] u16) }");
