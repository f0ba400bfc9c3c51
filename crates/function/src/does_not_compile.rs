//! What the compiler refuses, each beside the nearest thing that it accepts, so that a refusal is never for
//! another reason than the one claimed. Built only for `cargo test --doc`.

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
    wrong: "use asterism_function::objects::Object; ask.seen.act().add(1); let act = ask.act()?;");
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
case!(ANSWER_IGNORED: "Ignoring that an answer may be late (where unused results are denied).",
    right: "ask.seen.get()?;",
    wrong: "ask.seen.get();");

macro_rules! state_case {
    ($name:ident: $claim:literal, right: $right:literal, wrong: $wrong:literal) => {
        #[doc = $claim]
        #[doc = concat!("```\nuse asterism_function::*;\n", $right, "\nfn main() {}\n```")]
        #[doc = concat!("```compile_fail\nuse asterism_function::*;\n", $wrong, "\nfn main() {}\n```")]
        #[allow(dead_code, reason = "only its documentation is used")]
        const $name: () = ();
    };
}

state_case!(STATE_ON_ENUM: "`#[state]` on an enum.",
    right: "#[state] pub struct Shared { seen: Counter }",
    wrong: "#[state] pub enum Shared { Seen }");
state_case!(STATE_ON_TUPLE: "`#[state]` on a tuple struct.",
    right: "#[state] pub(crate) struct Shared { pub(crate) seen: Counter, }",
    wrong: "#[state] pub struct Shared(Counter);");
state_case!(STATE_WITH_ARGUMENTS: "`#[state]` with arguments.",
    right: "#[state] struct Shared { seen: Counters<(u32, u16)>, hosts: Map<u32, ()> }",
    wrong: "#[state(replicated)] struct Shared { seen: Counters<(u32, u16)>, hosts: Map<u32, ()> }");
state_case!(STATE_WITH_PARAMETERS: "`#[state]` with type parameters.",
    right: "#[state] struct Shared { hosts: Set<u32> }",
    wrong: "#[state] struct Shared<K: Key> { hosts: Set<K> }");
state_case!(STATE_OF_NOTHING: "`#[state]` without objects.",
    right: "/// Documented.\n#[state]\n#[derive(Debug)]\nstruct Shared { /** So is this. */ hosts: Set<u32> }",
    wrong: "#[state] struct Shared {}");
state_case!(STATE_OF_A_NUMBER: "`#[state]` with a field that is no state object.",
    right: "#[state] struct Shared { seen: Counter }",
    wrong: "#[state] struct Shared { seen: u64 }");
