//! Shards of a store: servers that each have whole conversations, such as one beside each host.

use core::net::SocketAddr;

use toml::de::DeTable;

use super::diagnostic::{Diagnostic, Report};
use super::fields::{STORE, STORE_ADDRESSES_MAX};
use super::functions::ObjectKind;
use super::kind::{Kind, NamedValues};
use super::objects::{ObjectChoice, Placement};
use super::section::{Default, List, Setting, Values, section};
use super::store::place_of;
use super::{Function, Settings};

/// The most shards. Each instance has connections to all of them.
pub(super) const SHARDS_MAX: usize = 64;

section! {
    /// One shard.
    pub(crate) static SHARD: ShardKeys = {
        path: "store.shards.NAME",
        meaning: "A part of the store: the entries of whole conversations, of all that two addresses say to each other. Shards that are named as the hosts are and run beside them have the entries of the packets that directors with `by = \"conversation\"` send to these hosts.",
        fields: {
            address: List<SocketAddr> = Setting {
                kind: Kind::Several {
                    of: &Kind::Socket,
                    most: STORE_ADDRESSES_MAX,
                },
                default: Default::Required("\"10.0.0.5:6379\""),
                meaning: "The shard's address and port; or those of a primary and its replicas, or of members of a Redis cluster, as a list in any order.",
            },
        },
    };
}

/// How a store is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreShards {
    /// The shards, by their names.
    pub each: Vec<StoreShard>,
    /// Parts of all conversations, each of which one shard has; and which conversations share one follows from the seed. Both as in directors that are
    /// to spread alike.
    pub buckets: u32,
    /// See `buckets`.
    pub seed: u64,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreShard {
    /// Its name, by which it is chosen for conversations.
    pub name: String,
    /// Where its servers are.
    pub addresses: Vec<SocketAddr>,
}

impl StoreShards {
    /// Their names, in the order in which all hosts count them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.each.iter().map(|shard| shard.name.clone()).collect()
    }
}

/// What `[store]` says of them; the outer `None` if that is wrong, the inner one if there are none.
pub(super) fn read(values: &Values, report: &mut Report) -> Option<Option<StoreShards>> {
    let named = values.get(STORE.shards)?;
    let buckets = values.get(STORE.buckets)?;
    let Some(first) = named.first() else {
        return Some(None);
    };
    if values.get(STORE.address).is_some() {
        let error = Diagnostic::error(
            "a store has an address or shards",
            values.span_of(STORE.address),
        );
        report.add(error.help("leave `address` out: each shard has its own"));
        return None;
    }
    if !buckets.is_power_of_two() {
        let error = Diagnostic::error("this is no power of two", values.span_of(STORE.buckets));
        report.add(error.help(format!(
            "write buckets = {}, and the same for the directors",
            buckets.next_power_of_two().min(65_536)
        )));
        return None;
    }
    let mut each = named.iter().map(|shard| one(shard, report));
    let mut each: Vec<StoreShard> = each.by_ref().collect::<Option<_>>()?;
    if each.len() < 2 {
        let error = Diagnostic::error("one shard is no part", first.place.clone());
        report.add(error.help(
            "name two shards at least, or write its address in [store] and leave `shards` out",
        ));
        return None;
    }
    each.sort_by(|one, other| one.name.cmp(&other.name));
    Some(Some(StoreShards {
        each,
        buckets: u32::try_from(buckets).ok()?,
        seed: values.get(STORE.seed)?,
    }))
}

fn one(shard: &NamedValues, report: &mut Report) -> Option<StoreShard> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if shard.name.is_empty() || shard.name.len() > 64 || !shard.name.bytes().all(is_word) {
        let error = Diagnostic::error(
            format!("`{}` is no name of a shard", shard.name),
            shard.place.clone(),
        );
        report.add(error.help("write the name of the host that it is beside: up to 64 letters, digits, `-`, `_` and `.`"));
        return None;
    }
    Some(StoreShard {
        name: shard.name.clone(),
        addresses: super::store::addresses(&shard.values, SHARD.address, report)?,
    })
}

/// Refuses objects in a store of several shards whose entries are of no conversation, and where that is written.
pub(super) fn check_objects(document: &DeTable<'_>, function: &Function, report: &mut Report) {
    let is_whole = |object: &ObjectChoice| {
        object.placement == Placement::Remote && object.kind != ObjectKind::Conversations
    };
    if let Some((object, place)) = place_of(document, function, is_whole) {
        report.add(
            Diagnostic::error(format!("`{object}` cannot be in shards"), place)
                .label("its entries are not each of one conversation")
                .help("choose placement = \"replicated\" for it")
                .help(format!(
                    "or leave `shards` out, and write the address of one store in [store]{}",
                    that_can(function)
                )),
        );
    }
}

/// Which objects of a function can be in shards.
fn that_can(function: &Function) -> String {
    let stages: Vec<&ObjectChoice> = match &function.settings {
        Settings::Chain(chain) => chain
            .stages
            .iter()
            .flat_map(|stage| &stage.objects)
            .collect(),
        _ => function.objects.iter().collect(),
    };
    let can = stages
        .iter()
        .filter(|object| object.kind == ObjectKind::Conversations);
    let names: Vec<String> = can.map(|object| format!("`{}`", object.name)).collect();
    match names.is_empty() {
        true => ": no object of this function can be in shards".to_owned(),
        false => format!(": shards can have {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use crate::functions::Functions;
    use crate::{Config, Purpose};

    const FIREWALL: &str = "[cluster]\nname = \"edge\"\n\
        [store.shards]\n\
        b = { address = \"192.0.2.2:6379\" }\n\
        a = { address = [\"192.0.2.1:6379\", \"192.0.2.2:6380\"] }\n\
        [function.firewall]\nrules = \"none.rules\"\n\
        [function.firewall.state]\n\
        flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }\n";

    const FLOWS: &str =
        "flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }";

    fn read(text: &str) -> (Option<Config>, String) {
        let functions = Functions::default();
        let (config, report) = Config::read_as("test.toml", text, Purpose::Host, None, functions);
        (config, report.render(false))
    }

    #[test]
    fn shards_are_read_in_the_order_of_their_names() {
        let (config, report) = read(FIREWALL);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        let store = config.store.expect("it has one");
        assert_eq!(
            store.place(),
            "a at 192.0.2.1:6379, 192.0.2.2:6380; b at 192.0.2.2:6379"
        );
        let shards = store.shards.expect("it has some");
        assert_eq!(shards.names(), ["a", "b"]);
        assert_eq!((shards.buckets, shards.seed), (16_384, 0));
    }

    #[test]
    fn what_cannot_be_in_shards_is_refused_with_its_place() {
        for (change, expected) in [
            (
                (FLOWS, "blocked = { placement = \"remote\" }"),
                "`blocked` cannot be in shards",
            ),
            (
                (FLOWS, "hits = { placement = \"remote\" }"),
                "shards can have `flows`, `fragments`",
            ),
            (
                (
                    "[store.shards]",
                    "[store]\naddress = \"192.0.2.9:1\"\n[store.shards]",
                ),
                "an address or shards",
            ),
            (("b = {", "\"b}\" = {"), "is no name of a shard"),
            (
                ("[store.shards]", "[store]\nbuckets = 1_000\n[store.shards]"),
                "write buckets = 1024",
            ),
            (("192.0.2.2:6380", "192.0.2.1:6379"), "is there twice"),
            (
                ("192.0.2.2:6379", "0.0.0.0:6379"),
                "no store can be reached",
            ),
            (
                ("b = { address = \"192.0.2.2:6379\" }\n", ""),
                "one shard is no part",
            ),
        ] {
            let (config, report) = read(&FIREWALL.replace(change.0, change.1));
            assert!(
                config.is_none() && report.contains(expected),
                "{expected}: {report}"
            );
        }
    }
}
