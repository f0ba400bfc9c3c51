//! Shards of a store: servers that each have whole conversations, such as one beside each host.

use core::net::SocketAddr;

use super::fields::{SHARD, STORE};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::NamedValues;
use asterism_toml_schema::section::{Key, List, Values};

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
    /// These shards, with what `[store]` says of how conversations are divided; `None` if that is wrong.
    pub(super) fn of(
        mut each: Vec<StoreShard>,
        values: &Values,
        report: &mut Report,
    ) -> Option<Self> {
        let buckets = values.get(STORE.buckets)?;
        if !buckets.is_power_of_two() {
            let error = Diagnostic::error("this is no power of two", values.span_of(STORE.buckets));
            report.add(error.help(format!(
                "write buckets = {}, and the same for the directors",
                buckets.next_power_of_two().min(65_536)
            )));
            return None;
        }
        each.sort_by(|one, other| one.name.cmp(&other.name));
        Some(Self {
            each,
            buckets: u32::try_from(buckets).ok()?,
            seed: values.get(STORE.seed)?,
        })
    }

    /// Their names, in the order in which all hosts count them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.each.iter().map(|shard| shard.name.clone()).collect()
    }
}

/// What `[store]` says of them; the outer `None` if that is wrong, the inner one if there are none.
pub(super) fn read(values: &Values, report: &mut Report) -> Option<Option<StoreShards>> {
    let named = values.get(STORE.shards)?;
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
    let each = named.iter().map(|shard| one(shard, report));
    let each: Vec<StoreShard> = each.collect::<Option<_>>()?;
    if each.len() < 2 {
        let error = Diagnostic::error("one shard is no part", first.place.clone());
        report.add(error.help(
            "name two shards at least, or write its address in [store] and leave `shards` out",
        ));
        return None;
    }
    StoreShards::of(each, values, report).map(Some)
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
        addresses: addresses(&shard.values, SHARD.address, report)?,
    })
}

/// The addresses of a store, or of a shard: one at least, each once.
pub(super) fn addresses(
    values: &Values,
    field: Key<List<SocketAddr>>,
    report: &mut Report,
) -> Option<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let written = values.get(field)?;
    for (address, place) in written {
        let nowhere =
            address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast();
        let wrong = match (nowhere, addresses.contains(&address)) {
            (false, false) => {
                addresses.push(address);
                continue;
            }
            (true, _) => Diagnostic::error(format!("no store can be reached at {address}"), place)
                .help("write the store's own address and port, such as \"10.0.0.5:6379\""),
            (false, true) => Diagnostic::error(format!("{address} is there twice"), place)
                .help("write each server of the store once"),
        };
        report.add(wrong);
        return None;
    }
    if addresses.is_empty() {
        report.add(
            Diagnostic::error("a store has an address", values.span_of(field))
                .help("write the store's address and port, such as \"10.0.0.5:6379\""),
        );
        return None;
    }
    Some(addresses)
}
