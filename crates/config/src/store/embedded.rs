//! The embedded store, run by hosts of the cluster: where objects with `placement = "remote"` live in a file that names no other store.

use core::net::{Ipv4Addr, SocketAddr};
use core::ops::Range;
use std::path::PathBuf;

use super::fields::{EMBEDDED, STORE};
use super::shards::{StoreShard, StoreShards};
use crate::Purpose;
use crate::ack::StoreAck;
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{List, Values};

choices! {
    /// When what the embedded store has acknowledged is on the disk.
    pub enum StoreSync {
        Always = "always", "before it is acknowledged";
        Second = "second", "within a second: the last one is lost if the machine fails, not if the host does";
        Never = "never", "when the system writes it";
    }
}

/// The embedded store, as hosts run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedStore {
    /// The members that run it: one of them, or each of several a shard of its name.
    pub members: Vec<String>,
    /// The folder in which each keeps what it has, as written; `None`: that ends with the host.
    pub folder: Option<PathBuf>,
    /// When that is on the disk.
    pub sync: StoreSync,
    /// Bytes that keys and values may take.
    pub memory_max: u64,
}

/// The hosts of the cluster that may run it.
pub(super) struct Hosts<'a> {
    /// All members, in the order of the file.
    pub(super) members: &'a [String],
    /// Where they are, in the same order.
    pub(super) addresses: &'a [Option<SocketAddr>],
    /// Hosts register, and none is listed.
    pub(super) is_open: bool,
}

/// Where the embedded store is.
pub(super) struct Placed {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) shards: Option<StoreShards>,
    pub(super) embedded: EmbeddedStore,
}

/// Which members run the store, and where the others reach it: at the address of the state channel, by TCP. `None` if that is wrong. What has the file use
/// it is written at `place`.
pub(super) fn read(
    values: &Values,
    (hosts, purpose): (&Hosts<'_>, Purpose),
    place: Range<usize>,
    report: &mut Report,
) -> Option<Placed> {
    let before = report.errors();
    let table = values.get(STORE.embedded)?;
    if values.get(STORE.ack)? == StoreAck::Replica {
        let error = Diagnostic::error(
            "the embedded store has no replicas",
            values.span_of(STORE.ack),
        );
        report.add(
            error.help("write ack = \"primary\", or address = [...] with the servers of a Redis"),
        );
    }
    if values.get(STORE.user).is_some() {
        let error = Diagnostic::error(
            "the embedded store has one user",
            values.span_of(STORE.user),
        );
        report.add(error.help("leave `user` out: hosts log in by `password_file` alone"));
    }
    let folder = table.get(EMBEDDED.folder).map(PathBuf::from);
    if folder.is_none() && table.place(EMBEDDED.sync).is_some() {
        let error = Diagnostic::error("nothing is written", table.span_of(EMBEDDED.sync));
        report
            .add(error.help("name `folder`, where hosts write what they have, or leave this out"));
    }
    let mut each = Vec::new();
    if hosts.is_open {
        let error = Diagnostic::error("no host of this cluster is listed to run a store", place);
        report.add(error.help(
            "write address = \"10.0.0.5:6379\" in [store], the address of a Redis 7 or of `asterism store`",
        ));
    } else {
        let named = table.get(EMBEDDED.members).unwrap_or_default();
        for name in members(&named, hosts, report) {
            let address = address(hosts, &name, purpose).or_else(|| {
                let error = format!("`{name}` runs the store at no address");
                report.add(Diagnostic::error(error, place.clone()).help(format!(
                    "add [cluster.member.{name}] with address = \"192.0.2.1:7400\", and one for each of the others; or write address = \"10.0.0.5:6379\" in [store]"
                )));
                None
            });
            let addresses = address.into_iter().collect();
            each.push(StoreShard { name, addresses });
        }
    }
    if report.errors() > before {
        return None;
    }
    let embedded = EmbeddedStore {
        members: each.iter().map(|one| one.name.clone()).collect(),
        folder,
        sync: table.get(EMBEDDED.sync)?,
        memory_max: table.get(EMBEDDED.memory_max)?,
    };
    Some(match each.len() {
        0 | 1 => Placed {
            addresses: each.into_iter().flat_map(|one| one.addresses).collect(),
            shards: None,
            embedded,
        },
        _ => Placed {
            addresses: Vec::new(),
            shards: Some(StoreShards::of(each, values, report)?),
            embedded,
        },
    })
}

/// The members that run it, in the order of their names: the first of the cluster unless some are named.
fn members(named: &List<String>, hosts: &Hosts<'_>, report: &mut Report) -> Vec<String> {
    let mut members: Vec<String> = Vec::new();
    for (name, place) in named {
        let known = hosts.members.iter().map(String::as_str);
        let wrong = if !hosts.members.contains(name) {
            let error = Diagnostic::error(format!("there is no member \"{name}\""), place.clone());
            match suggestion::nearest(name, known) {
                Some(near) => error.help(format!("did you mean \"{near}\"?")),
                None => error.help("name members of the cluster"),
            }
        } else if members.contains(name) {
            let error = Diagnostic::error(format!("\"{name}\" is there twice"), place.clone());
            error.help("name each member once")
        } else {
            members.push(name.clone());
            continue;
        };
        report.add(wrong);
    }
    if named.is_empty() {
        members.extend(hosts.members.first().cloned());
    }
    members.sort();
    members
}

/// Where a host runs it. A host alone takes any port that is free; hosts of one process have no store, so that theirs does not matter.
fn address(hosts: &Hosts<'_>, name: &str, purpose: Purpose) -> Option<SocketAddr> {
    let place = hosts.members.iter().position(|member| member == name)?;
    let written = hosts.addresses.get(place).copied().flatten();
    let is_any = hosts.members.len() == 1 || purpose != Purpose::Host;
    written.or_else(|| is_any.then(|| (Ipv4Addr::LOCALHOST, 0).into()))
}
