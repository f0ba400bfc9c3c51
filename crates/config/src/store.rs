//! The store of objects with the placement `remote`: the table `[store]`, and what the placement needs of the rest of the file.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::path::PathBuf;

use asterism_notation::value::show_count;
use toml::de::{DeTable, DeValue};

use super::ack::StoreAck;
use super::diagnostic::{Diagnostic, Report};
use super::functions::ObjectKind;
use super::objects::{ObjectChoice, Placement, Sharing};
use super::store_cache::{self, StoreCache};
use super::store_fields::STORE;
use super::store_shards::{self, StoreShard, StoreShards, addresses};
use super::{Function, Purpose, Settings, overlay};

/// Entries of objects in the store, together, that a filter is made for at most. It takes eight bytes an entry.
const FILTERED_MAX: u64 = 1 << 24;

/// A store that speaks the protocol of Redis, files as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where its servers are, as written: a primary and its replicas, or members of a cluster. None of a store with shards.
    pub addresses: Vec<SocketAddr>,
    /// Its shards, if it has several.
    pub shards: Option<StoreShards>,
    /// The user as which instances log in; `None`: the store's default user.
    pub user: Option<String>,
    /// The file with the password; `None`: instances do not log in.
    pub password: Option<PathBuf>,
    /// Connections of each instance that commit, at most; one more reads.
    pub connections: usize,
    /// What begins the names of all keys.
    pub name: String,
    /// Who has the writes of a packet when it leaves.
    pub ack: StoreAck,
    /// How long a reply may take.
    pub timeout: Duration,
    /// Answers that each instance keeps, if it does.
    pub cache: Option<StoreCache>,
}

impl Store {
    /// What hosts that use one store have alike of it: its name, and its servers in whichever order they are written.
    #[must_use]
    pub fn identity(&self) -> String {
        let sorted = |addresses: &[SocketAddr]| {
            let mut addresses = addresses.to_vec();
            addresses.sort_unstable();
            addresses
        };
        let mut identity = format!("{:?} {}", sorted(&self.addresses), self.name);
        if let Some(shards) = &self.shards {
            identity.push_str(&format!(" {} {}", shards.buckets, shards.seed));
            for shard in &shards.each {
                let addresses = sorted(&shard.addresses);
                identity.push_str(&format!(" {} {addresses:?}", shard.name));
            }
        }
        identity
    }

    /// Its addresses, as words.
    #[must_use]
    pub fn place(&self) -> String {
        let words = |addresses: &[SocketAddr]| {
            let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            addresses.join(", ")
        };
        let shard = |shard: &StoreShard| format!("{} at {}", shard.name, words(&shard.addresses));
        match &self.shards {
            None => words(&self.addresses),
            Some(shards) => {
                let each: Vec<String> = shards.each.iter().map(shard).collect();
                each.join("; ")
            }
        }
    }
}

/// Reads how the store is reached, and refuses objects that need one where there is none. The outer `None` if anything is wrong, the inner
/// one if the file has no store.
///
/// Hosts of one process have no store: a single instance keeps such objects itself.
pub(super) fn read(
    document: &DeTable<'_>,
    (cluster, function): (Option<&str>, Option<&mut Function>),
    (purpose, sharing): (Purpose, Sharing),
    report: &mut Report,
) -> Option<Option<Store>> {
    let before = report.errors();
    let store = match overlay::get(document, "store") {
        Some(_) => Some(read_table(document, cluster, report)?),
        None => None,
    };
    // Whether it has such objects is not known of a function that cannot be read.
    let function = function?;
    if (store.as_ref().and_then(|store| store.cache)).is_some_and(|cache| cache.filter) {
        check_filter(document, function, report);
    }
    if (store.as_ref()).is_some_and(|store| store.shards.is_some()) {
        check_shards(document, function, report);
    }
    let is_remote = |object: &ObjectChoice| object.placement == Placement::Remote;
    let first = place_of(document, function, is_remote);
    match (&store, &first) {
        (None, Some((object, place))) => report.add(
            Diagnostic::error(
                format!("`{object}` lives in a store, and no store is named"),
                place.clone(),
            )
            .help("add the table [store] with address = \"10.0.0.5:6379\": any server of the Redis protocol, such as `asterism store`")
            .help("or choose placement = \"replicated\", which needs none"),
        ),
        (Some(_), None) => {
            let key = overlay::get(document, "store").map_or(0..0, |(key, _)| key.span());
            report.add(
                Diagnostic::error("no object lives in the store", key).help(format!(
                    "write placement = \"remote\" for those that are to, such as {}; or leave [store] out",
                    example(function)
                )),
            );
        }
        _ => {}
    }
    if let (Some((object, _)), Some((late, place))) = (
        &first,
        place_of(document, function, |object| {
            matches!(object.placement, Placement::Late(_))
        }),
    ) {
        report.add(
            Diagnostic::error(format!("`{late}` cannot be late beside `{object}`"), place)
                .label("packets would wait twice for one call")
                .help("leave \"late\" to configurations without a store: it is for tests"),
        );
    }
    if let Some((setting, place)) = counted(document, function) {
        report.add(
            Diagnostic::error(
                format!("`sessions` cannot live in a store with `{setting}`"),
                place,
            )
            .label("for this every instance counts the sessions of all")
            .help(match setting {
                "port_quarantine" => "write port_quarantine = { time = \"0s\" } in the function's table: a port may be granted again as soon as its sessions have ended",
                _ => "leave it out",
            })
            .help("or choose placement = \"replicated\" for `sessions` and `ports`"),
        );
    }
    if let (Some((object, place)), Purpose::Scenario | Purpose::Replay) = (&first, purpose) {
        match sharing.is_shared() {
            true => report.add(
                Diagnostic::error(
                    format!("several instances cannot share `{object}` here"),
                    place.clone(),
                )
                .label("hosts of one process have no store")
                .help("choose placement = \"replicated\" for a scenario or a replay, or have one host with instances = 1"),
            ),
            false => keep_here(function),
        }
    }
    (report.errors() == before).then_some(store)
}

/// Refuses objects in a store of several shards whose entries are of no conversation, and where that is written.
fn check_shards(document: &DeTable<'_>, function: &Function, report: &mut Report) {
    let is_whole = |object: &ObjectChoice| {
        object.placement == Placement::Remote && object.kind != ObjectKind::Conversations
    };
    if let Some((object, place)) = place_of(document, function, is_whole) {
        report.add(
            Diagnostic::error(format!("`{object}` cannot be in shards"), place)
                .label("its entries are not each of one conversation")
                .help(that_can(function))
                .help("choose placement = \"replicated\" for it, or leave `shards` out and write the address of one store in [store]"),
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
        true => "no object of this function can be in shards".to_owned(),
        false => format!("shards can have {}", names.join(", ")),
    }
}

/// Refuses a filter of more entries than an instance should have memory for.
fn check_filter(document: &DeTable<'_>, function: &Function, report: &mut Report) {
    let objects = function.objects.iter();
    let remote = objects.filter(|object| object.placement == Placement::Remote);
    let entries: u64 = remote.map(|object| u64::from(object.capacity)).sum();
    if entries <= FILTERED_MAX {
        return;
    }
    let place = span_of(document, &["store", "cache", "filter"]);
    let [entries, most] = [entries, FILTERED_MAX].map(show_count);
    report.add(
        Diagnostic::error(
            format!("a filter for {entries} entries would take too much memory"),
            place.unwrap_or_default(),
        )
        .label("eight bytes an entry, in each instance")
        .help(format!(
            "give the objects in the store a `capacity` of {most} together at most, or leave `filter` out"
        )),
    );
}

/// Where something is written under these keys.
fn span_of(document: &DeTable<'_>, keys: &[&str]) -> Option<Range<usize>> {
    let (key, rest) = keys.split_first()?;
    let (_, value) = overlay::get(document, key)?;
    match value.get_ref() {
        DeValue::Table(table) if !rest.is_empty() => span_of(table, rest),
        _ => rest.is_empty().then(|| value.span()),
    }
}

fn read_table(document: &DeTable<'_>, cluster: Option<&str>, report: &mut Report) -> Option<Store> {
    let values = STORE.section().read_top("store", document, report)?;
    let user = values.get(STORE.user);
    let password = values.get(STORE.password_file).map(PathBuf::from);
    if user.is_some() && password.is_none() {
        report.add(
            Diagnostic::error("a user logs in with a password", values.span_of(STORE.user))
                .help("name password_file, the file with the password, or leave `user` out"),
        );
        return None;
    }
    let shards = store_shards::read(&values, report)?;
    let addresses = match &shards {
        Some(_) => Vec::new(),
        None if values.get(STORE.address).is_some() => addresses(&values, STORE.address, report)?,
        None => {
            let key = overlay::get(document, "store").map_or(0..0, |(key, _)| key.span());
            report.add(
                Diagnostic::error("a store has an address", key).help(
                    "write address = \"10.0.0.5:6379\", or name `shards` with an address each",
                ),
            );
            return None;
        }
    };
    let of_shards = shards.iter().flat_map(|shards| &shards.each);
    let of_shards = of_shards.flat_map(|shard| &shard.addresses);
    let is_here = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
    if password.is_some() && !addresses.iter().chain(of_shards).all(is_here) {
        report.add(
            Diagnostic::warning(
                "the password crosses the network in the clear",
                values.span_of(STORE.password_file),
            )
            .help("reach the store by a network that hosts alone use, or by a tunnel that ends on this machine"),
        );
    }
    let name = values
        .get(STORE.name)
        .or_else(|| cluster.map(str::to_owned));
    Some(Store {
        addresses,
        shards,
        user,
        password,
        connections: usize::try_from(values.get(STORE.connections)?).ok()?,
        name: name?,
        ack: values.get(STORE.ack)?,
        timeout: values.get(STORE.timeout)?,
        cache: store_cache::read(document, &values, report)?,
    })
}

/// What of a NAT whose sessions are to live in a store needs every instance to hear of all of them, and where that is written.
fn counted(document: &DeTable<'_>, function: &Function) -> Option<(&'static str, Range<usize>)> {
    let of_sessions = |object: &ObjectChoice| {
        let name = object.name.rsplit('.').next();
        object.placement == Placement::Remote && name == Some("sessions")
    };
    let (object, placement) = place_of(document, function, of_sessions)?;
    let (name, settings) = match (&function.settings, object.split_once('.')) {
        (Settings::Chain(chain), Some((stage, _))) => {
            let mut stages = chain.stages.iter();
            let stage = stages.find(|known| known.name == stage)?;
            (stage.name, &stage.settings)
        }
        (settings, _) => (function.name, settings),
    };
    let Settings::Nat(nat) = settings else {
        return None;
    };
    let setting = nat.carrier.counts_sessions()?;
    let table =
        ["function", name]
            .into_iter()
            .try_fold(document, |table, name| {
                match overlay::get(table, name)?.1.get_ref() {
                    DeValue::Table(inner) => Some(inner),
                    _ => None,
                }
            });
    let key = table.and_then(|table| overlay::get(table, setting));
    Some((setting, key.map_or(placement, |(key, _)| key.span())))
}

/// Objects of whose entries a host writes alerts.
const ALERTED: [&str; 5] = ["alarms", "alerts", "blocked", "events", "floods"];

/// Refuses alerts of entries that no instance holds.
pub(super) fn check_alerts(document: &DeTable<'_>, function: &Function, report: &mut Report) {
    let is_remote = |object: &ObjectChoice| {
        let name = object.name.rsplit('.').next().unwrap_or_default();
        object.placement == Placement::Remote && ALERTED.contains(&name)
    };
    if let Some((object, place)) = place_of(document, function, is_remote) {
        report.add(
            Diagnostic::error(format!("no alerts would be written of `{object}`"), place)
                .label("a host writes those of entries that its instances hold")
                .help("choose placement = \"replicated\" for it, or leave [host.eve] out"),
        );
    }
}

/// The first such object, and where its placement is written.
fn place_of(
    document: &DeTable<'_>,
    function: &Function,
    is_such: impl Fn(&ObjectChoice) -> bool,
) -> Option<(&'static str, Range<usize>)> {
    let object = function.objects.iter().find(|object| is_such(object))?;
    let (function, name) = match object.name.split_once('.') {
        Some(stage) => stage,
        None => (function.name, object.name),
    };
    let mut table = document;
    let mut place = 0..0;
    for name in ["function", function, "state", name, "placement"] {
        let Some((_, value)) = overlay::get(table, name) else {
            break;
        };
        place = value.span();
        if let DeValue::Table(inner) = value.get_ref() {
            table = inner;
        }
    }
    Some((object.name, place))
}

/// How an object of the function that can live in a store is written to.
fn example(function: &Function) -> String {
    let objects = function.objects.iter();
    let can = objects.clone().find(|object| object.can_be_remote);
    match (can, &function.settings) {
        (None, _) => {
            "blocked = { placement = \"remote\" } of a firewall; no object of this function can"
                .to_owned()
        }
        (Some(object), Settings::Chain(_)) => {
            let (stage, name) = object.name.split_once('.').unwrap_or(("", object.name));
            format!("{name} = {{ placement = \"remote\" }} in [function.{stage}.state]")
        }
        (Some(object), _) => format!(
            "{} = {{ placement = \"remote\" }} in [function.{}.state]",
            object.name, function.name
        ),
    }
}

/// Has the only instance keep what a store would.
fn keep_here(function: &mut Function) {
    let keep = |objects: &mut [ObjectChoice]| {
        let remote = objects
            .iter_mut()
            .filter(|object| object.placement == Placement::Remote);
        remote.for_each(|object| object.placement = Placement::Local);
    };
    keep(&mut function.objects);
    if let Settings::Chain(chain) = &mut function.settings {
        chain
            .stages
            .iter_mut()
            .for_each(|stage| keep(&mut stage.objects));
    }
}

#[cfg(test)]
mod tests {
    use asterism_state::Home;

    use super::*;
    use crate::Config;
    use crate::functions::Functions;

    const CHAIN: &str = "chain = [\"watch\", \"nat\"]\n\
        [cluster]\nname = \"edge\"\n\
        [stage.watch]\nfunction = \"port-scan\"\n\
        [store]\naddress = \"[2001:db8::7]:6379\"\n\
        [function.nat]\noutside = [\"203.0.113.1\"]\n\
        [function.nat.state]\nfragments = { placement = \"remote\" }\n\
        [function.watch.state]\nhistories.placement = \"remote\"\n";

    fn read(text: &str, purpose: Purpose) -> (Option<Config>, String) {
        let functions = Functions::default();
        let (config, report) = Config::read_as("test.toml", text, purpose, None, functions);
        (config, report.render(false))
    }

    #[test]
    fn stages_say_each_for_themselves_what_is_in_the_store() {
        let (config, report) = read(CHAIN, Purpose::Host);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        let store = config.store.expect("it has one");
        assert_eq!(store.place(), "[2001:db8::7]:6379");
        assert_eq!((store.name.as_str(), store.connections), ("edge", 8));
        assert_eq!((store.user, store.password), (None, None));
        assert_eq!(store.timeout, Duration::from_secs(1));
        let objects = ["watch.histories", "watch.blocked", "nat.fragments"];
        assert_eq!(config.function.remote(&objects), 0b101);
        let Settings::Chain(chain) = &config.function.settings else {
            panic!("no chain");
        };
        let of_stage = |stage: usize, name: &str| {
            let mut objects = chain.stages[stage].objects.iter();
            objects.find(|object| object.name == name).copied()
        };
        let histories = of_stage(0, "histories").expect("it has them");
        assert_eq!(histories.settings().home, Home::Remote);
        assert_eq!((histories.movable, histories.holds_output), (None, false));
        let blocked = of_stage(0, "blocked").expect("it has them");
        assert_ne!(blocked.settings().home, Home::Remote);
        // It is neither taken there nor from there while a host runs.
        for (one, other) in [(histories, blocked), (blocked, histories)] {
            assert!(one.stays_because(&other).contains("stay behind"));
        }
    }

    #[test]
    fn a_store_has_an_address_or_several() {
        let with = |address: &str| {
            let text = CHAIN.replace("\"[2001:db8::7]:6379\"", address);
            let (config, report) = read(&text, Purpose::Host);
            (config.and_then(|config| config.store), report)
        };
        let (store, report) = with("[\"192.0.2.8:1\", \"192.0.2.7:6379\"]");
        let store = store.unwrap_or_else(|| panic!("{report}"));
        assert_eq!(store.place(), "192.0.2.8:1, 192.0.2.7:6379");
        for (wrong, expected) in [
            ("[]", "a store has an address"),
            ("[\"192.0.2.8:1\", \"192.0.2.8:1\"]", "is there twice"),
            (
                "[\"192.0.2.8:1\", \"0.0.0.0:1\"]",
                "no store can be reached",
            ),
            ("[\"192.0.2.8:1\", 7]", "this is a whole number"),
        ] {
            let (store, report) = with(wrong);
            assert!(store.is_none() && report.contains(expected), "{report}");
        }
        let many: Vec<String> = (1..18)
            .map(|port| format!("\"192.0.2.8:{port}\""))
            .collect();
        let (store, report) = with(&format!("[{}]", many.join(", ")));
        assert!(store.is_none() && report.contains("at most 16"), "{report}");
    }

    #[test]
    fn one_process_has_no_store_and_one_instance_needs_none() {
        for purpose in [Purpose::Scenario, Purpose::Replay] {
            let (config, report) = read(CHAIN, purpose);
            let config = config.unwrap_or_else(|| panic!("{report}"));
            assert_eq!(
                config
                    .function
                    .remote(&["watch.histories", "nat.fragments"]),
                0
            );
            let several = CHAIN.replace("name =", "members = [\"a\", \"b\"]\nname =");
            let (config, report) = read(&several, purpose);
            assert!(config.is_none());
            assert!(report.contains("several instances cannot share `watch.histories` here"));
            assert!(report.contains("test.toml:14:"), "{report}");
        }
    }

    #[test]
    fn a_password_in_the_clear_is_warned_of() {
        let with = |address: &str| {
            let password = format!("address = \"{address}\"\npassword_file = \"x\"");
            let text = CHAIN.replace("address = \"[2001:db8::7]:6379\"", &password);
            let (config, report) = read(&text, Purpose::Host);
            assert!(config.is_some(), "{report}");
            report
        };
        assert!(with("192.0.2.7:6379").contains("warning: the password crosses the network"));
        assert_eq!(with("127.0.0.1:6379"), "");
        assert_eq!(with("[::1]:6379"), "");
    }

    const FIREWALL: &str = "[cluster]\nname = \"edge\"\n\
        [store.shards]\n\
        b = { address = \"192.0.2.2:6379\" }\n\
        a = { address = [\"192.0.2.1:6379\", \"192.0.2.2:6380\"] }\n\
        [function.firewall]\nrules = \"none.rules\"\n\
        [function.firewall.state]\n\
        flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }\n";

    const FLOWS: &str =
        "flows = { placement = \"remote\" }\nfragments = { placement = \"remote\" }";

    #[test]
    fn shards_are_read_in_the_order_of_their_names() {
        let (config, report) = read(FIREWALL, Purpose::Host);
        let config = config.unwrap_or_else(|| panic!("{report}"));
        let store = config.store.expect("it has one");
        assert_eq!(
            store.place(),
            "a at 192.0.2.1:6379, 192.0.2.2:6380; b at 192.0.2.2:6379"
        );
        let shards = store.shards.expect("it has some");
        assert_eq!(shards.names(), ["a", "b"]);
        assert_eq!((shards.buckets, shards.seed), (16_384, 0));
        let identity = |from: &str, to: &str| {
            let (config, report) = read(&FIREWALL.replace(from, to), Purpose::Host);
            let config = config.unwrap_or_else(|| panic!("{report}"));
            config.store.expect("it has one").identity()
        };
        let written = identity("", "");
        let in_order = "\"192.0.2.1:6379\", \"192.0.2.2:6380\"";
        let otherwise = "\"192.0.2.2:6380\", \"192.0.2.1:6379\"";
        assert_eq!(identity(in_order, otherwise), written);
        for (from, to) in [
            ("a = {", "c = {"),
            ("192.0.2.2:6380", "192.0.2.2:6381"),
            ("[store.shards]", "[store]\nseed = 7\n[store.shards]"),
        ] {
            assert_ne!(identity(from, to), written, "{to}");
        }
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
            let (config, report) = read(&FIREWALL.replace(change.0, change.1), Purpose::Host);
            assert!(
                config.is_none() && report.contains(expected),
                "{expected}: {report}"
            );
        }
    }
}
