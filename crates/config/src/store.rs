//! The store of objects with the placement `remote`: the table `[store]`, and what the placement needs of the rest of the file.

mod bypass;
pub(crate) mod cache;
pub(crate) mod embedded;
pub(crate) mod fields;
pub(crate) mod shards;

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::path::PathBuf;

use asterism_notation::value::show_count;
use toml::de::{DeTable, DeValue};

use super::Purpose;
use super::ack::StoreAck;
use super::cluster::Cluster;
use asterism_function_settings::{
    Function, ObjectChoice, ObjectKind, Placement, Settings, Sharing,
};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;
use cache::StoreCache;
use embedded::{EmbeddedStore, Hosts};
use fields::STORE;
use shards::{StoreShard, StoreShards, addresses};

/// Entries of objects in the store, together, that a filter is made for at most. It takes eight bytes an entry.
const FILTERED_MAX: u64 = 1 << 24;

/// A store that speaks the protocol of Redis, files as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where its servers are, as written: a primary and its replicas, or members of a cluster. None of a store with shards.
    pub addresses: Vec<SocketAddr>,
    /// Its shards, if it has several.
    pub shards: Option<StoreShards>,
    /// How hosts run it themselves, if they do: at those addresses. Port 0 of a host alone is any free one.
    pub embedded: Option<EmbeddedStore>,
    /// The user as which instances log in; `None`: the store's default user.
    pub user: Option<String>,
    /// The file with the password; `None`: instances do not log in, or to the embedded store by the cluster's keys.
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
        match (&self.shards, &self.embedded) {
            (None, Some(embedded)) => {
                format!("the embedded store of {}", embedded.members.join(", "))
            }
            (None, None) => words(&self.addresses),
            (Some(shards), _) => {
                let each: Vec<String> = shards.each.iter().map(shard).collect();
                each.join("; ")
            }
        }
    }
}

/// Reads how the store is reached: hosts run the embedded store if objects need one and none is named. The outer `None` if anything is
/// wrong, the inner one if the file has no store.
///
/// Hosts of one process have no store: a single instance keeps such objects itself.
pub(super) fn read(
    document: &DeTable<'_>,
    (cluster, function): (Option<&Cluster>, Option<&mut Function>),
    (purpose, sharing): (Purpose, Sharing),
    report: &mut Report,
) -> Option<Option<Store>> {
    let before = report.errors();
    let is_remote = |object: &ObjectChoice| object.placement == Placement::Remote;
    let first = function.as_deref();
    let first = first.and_then(|function| place_of(document, function, is_remote));
    let written = table::get(document, "store").map(|(key, _)| key.span());
    let read = match written.or_else(|| Some(first.clone()?.1)) {
        Some(place) => Some(read_table(document, (cluster, purpose), place, report)?),
        None => None,
    };
    let (store, values) = read.unzip();
    // Whether it has such objects is not known of a function that cannot be read.
    let function = function?;
    if (store.as_ref().and_then(|store| store.cache)).is_some_and(|cache| cache.filter) {
        check_filter(document, function, report);
    }
    if (store.as_ref()).is_some_and(|store| store.shards.is_some()) {
        check_shards(document, function, report);
    }
    if store.is_some() && first.is_none() {
        let key = table::get(document, "store").map_or(0..0, |(key, _)| key.span());
        report.add(
            Diagnostic::error("no object lives in the store", key).help(format!(
                "write placement = \"remote\" for those that are to, such as {}; or leave [store] out",
                example(function)
            )),
        );
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
    } else if let Some(values) = values {
        bypass::read(document, &values, function, report)?;
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
                .help("choose placement = \"replicated\" for it, or have one store: its address in [store] without `shards`, or one member in [store.embedded]"),
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
    let place = table::place(document, &["store", "cache", "filter"]);
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

fn read_table(
    document: &DeTable<'_>,
    (cluster, purpose): (Option<&Cluster>, Purpose),
    place: Range<usize>,
    report: &mut Report,
) -> Option<(Store, Values)> {
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
    let shards = shards::read(&values, report)?;
    let is_named = shards.is_some() || values.get(STORE.address).is_some();
    if is_named && values.place(STORE.embedded).is_some() {
        let error = Diagnostic::error(
            "a store has an address, or hosts run it",
            values.span_of(STORE.embedded),
        );
        report.add(error.help("leave out `address` and `shards`, or this table"));
        return None;
    }
    let (addresses, shards, embedded) = match (is_named, shards) {
        (true, None) => (addresses(&values, STORE.address, report)?, None, None),
        (true, shards) => (Vec::new(), shards, None),
        (false, _) => {
            let cluster = cluster?;
            let hosts = Hosts {
                members: &cluster.members,
                addresses: &cluster.addresses,
                is_open: cluster.is_open,
            };
            let placed = embedded::read(&values, (&hosts, purpose), place, report)?;
            (placed.addresses, placed.shards, Some(placed.embedded))
        }
    };
    let of_division = [STORE.buckets.field_name(), STORE.seed.field_name()];
    let mut of_division = of_division.into_iter();
    if shards.is_none()
        && let Some(setting) = of_division.find(|setting| values.place(*setting).is_some())
    {
        let error = Diagnostic::error(
            format!("`{setting}` divides a store that has one part"),
            values.span_of(setting),
        );
        report
            .add(error.help(
                "name `shards`, or several `members` in [store.embedded]; or leave this out",
            ));
        return None;
    }
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
        .or_else(|| cluster.map(|cluster| cluster.name.clone()));
    let store = Store {
        addresses,
        shards,
        embedded,
        user,
        password,
        connections: usize::try_from(values.get(STORE.connections)?).ok()?,
        name: name?,
        ack: values.get(STORE.ack)?,
        timeout: values.get(STORE.timeout)?,
        cache: cache::read(document, &values, report)?,
    };
    Some((store, values))
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
    let table = ["function", name]
        .into_iter()
        .try_fold(document, |table, name| {
            match table::get(table, name)?.1.get_ref() {
                DeValue::Table(inner) => Some(inner),
                _ => None,
            }
        });
    let key = table.and_then(|table| table::get(table, setting));
    Some((setting, key.map_or(placement, |(key, _)| key.span())))
}

/// Refuses a host alone without a key whose store outlives it: with the key that it draws at each start it would not find its entries again.
pub(super) fn check_key(
    document: &DeTable<'_>,
    cluster: &Cluster,
    store: &Store,
    report: &mut Report,
) {
    // Of several hosts each needs a key, whatever they share.
    if cluster.key.is_some() || cluster.members.len() > 1 {
        return;
    }
    let written: &[&str] = match (&store.embedded, &store.shards) {
        (Some(embedded), _) if embedded.folder.is_none() => return,
        (Some(_), _) => &["store", "embedded", "folder"],
        (None, Some(_)) => &["store", "shards"],
        (None, None) => &["store", "address"],
    };
    report.add(
        Diagnostic::error(
            "what is in the store is found by a key, and this host has none",
            table::place(document, written).unwrap_or_default(),
        )
        .label("the store outlives the host, which draws another key at each start")
        .help("write a key with `asterism keygen cluster.key`, and add key = \"cluster.key\" to [cluster]"),
    );
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
        let Some((_, value)) = table::get(table, name) else {
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
