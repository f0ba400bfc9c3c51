//! The settings of the cluster: their contradictions, and the values made of them.

use core::ops::Range;
use core::time::Duration;
use std::path::PathBuf;

use asterism_engine::{HoldSettings, HostConfig};
use asterism_epochs::place_names;
use asterism_placement::replicated::{self, Delivery, FRAME_BYTES, SITES_MAX, SiteId, SitesConfig};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId};
use asterism_secure_channel::{HEADER_BYTES, KeyRing, TAG_BYTES, Terms};

use super::fields::{CHANNEL, CLUSTER, MEMBER};
use super::orchestrator;
use super::places::{check_places, is_open};
use super::purpose::Purpose;
use super::release;
use asterism_function_settings::ACKED;
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::{List, Values};
use core::net::SocketAddr;

/// Bytes of an IPv4 and a UDP header.
const IP_UDP_BYTES: usize = 28;
/// Bytes that an IPv6 header has more.
const IPV6_BYTES_MORE: usize = 20;
/// The least MTU: that of IPv6 (RFC 8200 section 5). The longest group with every header fits it, whatever the addresses' family and
/// with relays between sites.
pub(super) const MTU_MIN: u64 = 1_280;
const _: () = assert!(
    replicated::PAYLOAD_BYTES_MIN
        + HEADER_BYTES
        + TAG_BYTES
        + FRAME_BYTES
        + IP_UDP_BYTES
        + IPV6_BYTES_MORE
        <= MTU_MIN as usize
);
/// The greatest MTU.
pub(super) const MTU_LIMIT: u64 =
    (replicated::PAYLOAD_BYTES_LIMIT + HEADER_BYTES + TAG_BYTES + IP_UDP_BYTES) as u64;

/// What all hosts have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name.
    pub name: String,
    /// The key file, as written.
    pub key: Option<PathBuf>,
    /// The file of epochs, as written.
    pub epochs: Option<PathBuf>,
    /// Where the orchestrators are; none: the operator hands epochs.
    pub orchestrators: Vec<SocketAddr>,
    /// Time between heartbeats to them.
    pub heartbeat: Duration,
    /// How long a host grants from its leases that too few others answer.
    pub port_lease: Option<Duration>,
    /// Whether hosts register with the orchestrators. Then `members` has the names of the places, and epochs say which host has which.
    pub is_open: bool,
    /// All hosts, in order.
    pub members: Vec<String>,
    /// Where each member's state channel is, in the same order; `None` where it is not written.
    pub addresses: Vec<Option<SocketAddr>>,
    /// The site of each member, in the same order; empty where members have none.
    pub sites: Vec<String>,
    /// How packets are held back until others have what they depend on; `None`: they leave at once.
    pub hold: Option<HoldSettings>,
    /// The state channel.
    pub channel: Channel,
}

/// The state channel; the fields mean what those of [`replicated::Config`] mean, the protocol behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are documented in the reference")]
pub struct Channel {
    /// The smallest MTU between hosts.
    pub mtu: usize,
    pub log_bytes_max: usize,
    pub log_groups_max: usize,
    pub reorder_groups_max: usize,
    pub unapplied_groups_max: usize,
    pub keep_alive: Duration,
    pub retransmit_min: Duration,
    pub retransmit_max: Duration,
    pub acknowledge_delay: Duration,
    pub lookahead: Duration,
    pub coalescing_max: Duration,
    pub congested_above: Duration,
    pub silent_after: Duration,
    pub delivery: Delivery,
    pub multicast: Option<SocketAddr>,
    pub interface: Option<String>,
    pub relay_silent_after: Option<Duration>,
    pub relay_bundle: Option<Duration>,
    pub relay_cache: Option<u64>,
    pub relay_cache_age: Option<Duration>,
    pub receive_buffer_bytes: usize,
    pub send_buffer_bytes: usize,
    /// Bytes a second; `None` is no cap.
    pub bandwidth_max: Option<u64>,
    pub offload: bool,
}

impl Cluster {
    /// The number that messages carry for the name: FNV-1a of its bytes.
    #[must_use]
    pub fn id(&self) -> ClusterId {
        let hash = self.name.bytes().fold(0x811C_9DC5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        ClusterId(hash)
    }

    /// The number of a member: its place in the list, from 1.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<MemberId> {
        let place = self.members.iter().position(|member| member == name)?;
        u16::try_from(place + 1).ok().map(MemberId)
    }

    /// The numbers of all members, in order.
    #[must_use]
    pub fn member_ids(&self) -> Vec<MemberId> {
        self.members
            .iter()
            .filter_map(|name| self.member(name))
            .collect()
    }

    /// The sites' names, in the order of their first members: a site's number is its place here.
    #[must_use]
    pub fn site_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for site in &self.sites {
            if !names.contains(&site.as_str()) {
                names.push(site);
            }
        }
        names
    }

    /// Whether two members are in one site.
    #[must_use]
    pub fn is_near(&self, one: MemberId, other: MemberId) -> bool {
        let site = |member: MemberId| self.sites.get(usize::from(member.0).wrapping_sub(1));
        site(one) == site(other)
    }

    /// Bytes of a datagram's IP and UDP headers.
    fn headers_bytes(&self) -> usize {
        // Of hosts that register the family is not known: there is room for either.
        let is_v6 = self.is_open || self.addresses.iter().flatten().any(SocketAddr::is_ipv6);
        IP_UDP_BYTES + if is_v6 { IPV6_BYTES_MORE } else { 0 }
    }

    fn sites(&self) -> Option<SitesConfig> {
        if self.sites.is_empty() {
            return None;
        }
        let names = self.site_names();
        let number = |site: &String| names.iter().position(|name| name == site).unwrap_or(0) as u8;
        let numbers = self.sites.iter().map(|site| SiteId(number(site)));
        let sane = SitesConfig::new(self.member_ids().into_iter().zip(numbers).collect());
        Some(SitesConfig {
            silent_after: self.channel.relay_silent_after.unwrap_or(sane.silent_after),
            bundle_delay: self.channel.relay_bundle.unwrap_or(sane.bundle_delay),
            cache_bytes_max: self
                .channel
                .relay_cache
                .map_or(sane.cache_bytes_max, |bytes| bytes as usize),
            cache_age_max: self.channel.relay_cache_age.unwrap_or(sane.cache_age_max),
            ..sane
        })
    }

    /// The number that messages carry for the name and further common settings, so that hosts whose states would disagree refuse
    /// each other: `shape` of the function and its state, and the length of leases.
    #[must_use]
    pub fn number(&self, shape: u64) -> ClusterId {
        let lease = self.port_lease.unwrap_or_default();
        // Hosts that waited differently long for each other's ports would give them to two flows.
        let shape = shape ^ (lease.as_micros() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ClusterId(self.id().0 ^ shape as u32 ^ (shape >> 32) as u32)
    }

    /// Further settings that must be the same on all hosts, so that a difference can be named: they decide the assignment of shares and
    /// the recipients of messages. `hash_seed` is that of the cluster's key.
    #[must_use]
    pub fn terms(&self, hash_seed: u64) -> Terms {
        let channel = &self.channel;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let epochs = match (&self.epochs, self.orchestrators.is_empty()) {
            (Some(_), true) => "a file",
            (Some(_), false) => "an orchestrator",
            (None, _) => "none",
        };
        let mut text = format!(
            "epochs = {epochs}\ncopies = {}\nmulticast = {}\nhash seed = {:08x}\n",
            or_none(self.hold.as_ref().map(|hold| hold.copies.to_string())),
            or_none(channel.multicast.map(|group| group.to_string())),
            identity(hash_seed),
        );
        if let Some(sites) = self.sites() {
            let silent_after = sites.silent_after;
            text.push_str(&format!("relay_silent_after = {silent_after:?}\n"));
            text.push_str(&format!("site = {}\n", self.sites.join(", ")));
        }
        // The longest comes last: what does not fit is cut.
        match self.is_open {
            true => text.push_str(&format!("places = {}", self.members.len())),
            false => text.push_str(&format!("members = {}", self.members.join(", "))),
        }
        Terms::new(&text, channel.keep_alive, channel.silent_after)
    }

    /// The settings of a host of the cluster; `shape` as in [`Cluster::number`].
    #[must_use]
    pub fn host(
        &self,
        member: MemberId,
        incarnation: Incarnation,
        keys: impl Into<KeyRing>,
        secrets: [u8; 48],
        shape: u64,
    ) -> HostConfig {
        let channel = &self.channel;
        let lease = self.port_lease.unwrap_or_default();
        let cluster = self.number(shape);
        let members = self.member_ids();
        let keys = keys.into();
        HostConfig {
            terms: Some(self.terms(asterism_engine::hash_seed(keys.sending()))),
            datagram_bytes_max: channel.mtu - self.headers_bytes(),
            port_lease: lease,
            hold: self.hold.clone(),
            replica: replicated::Config {
                log_bytes_max: channel.log_bytes_max,
                log_groups_max: channel.log_groups_max,
                reorder_groups_max: channel.reorder_groups_max,
                unapplied_groups_max: channel.unapplied_groups_max,
                keep_alive: channel.keep_alive,
                retransmit_min: channel.retransmit_min,
                retransmit_max: channel.retransmit_max,
                acknowledge_delay: channel.acknowledge_delay,
                lookahead: channel.lookahead,
                coalescing_max: channel.coalescing_max,
                congested_above: channel.congested_above,
                silent_after: channel.silent_after,
                delivery: channel.delivery,
                sites: self.sites(),
                ..replicated::Config::new(cluster, Epoch(1), member, incarnation, members.clone())
            },
            ..HostConfig::new(cluster, member, incarnation, members, keys, secrets)
        }
    }
}

/// The warning about a cluster whose hosts can run in one process alone.
const NO_KEY: &str = "this cluster has no key";

/// Builds the cluster's settings, and says what contradicts. `None` if anything is wrong.
pub(super) fn cluster(values: &Values, purpose: Purpose, report: &mut Report) -> Option<Cluster> {
    let members = members(values);
    check_members(values, &members, report);
    check_places(values, report);
    let addresses = addresses(values, &members, report)?;
    let sites = sites(values, &members, report);
    let channel = channel(&values.get(CLUSTER.channel)?, report);
    check_port_lease(values, members.len(), report);
    orchestrator::check_listed(values, report);
    let hold = hold(values, members.len(), report);
    // Datagrams of a scenario's hosts never leave the process.
    let needs_key = purpose != Purpose::Scenario && members.len() > 1;
    if needs_key && values.get(CLUSTER.key).is_none() && values.place(CLUSTER.key).is_none() {
        report.add(
            Diagnostic::warning(NO_KEY, values.span_of(CLUSTER.members))
                .label(format!("{} hosts", members.len()))
                .help("its hosts can run in one process (`asterism replay`); to let them run apart, write a key with `asterism keygen cluster.key` and add key = \"cluster.key\""),
        );
    }
    Some(Cluster {
        name: values.get(CLUSTER.name)?,
        key: values.get(CLUSTER.key).map(PathBuf::from),
        epochs: values.get(CLUSTER.epochs).map(PathBuf::from),
        orchestrators: orchestrator::listed(values),
        heartbeat: values.get(CLUSTER.heartbeat)?,
        port_lease: values.get(CLUSTER.port_lease),
        is_open: is_open(values),
        members: members.into_iter().map(|(name, _)| name).collect(),
        addresses,
        sites,
        hold,
        channel: channel?,
    })
}

/// Whether packets leave when other hosts have what they depend on, unless an object says otherwise.
pub(super) fn is_acked(values: &Values) -> bool {
    values.get(CLUSTER.release) == Some(ACKED.word)
}

/// How packets are held back; `None` if they leave at once, or if anything is wrong.
fn hold(values: &Values, members: usize, report: &mut Report) -> Option<HoldSettings> {
    if is_acked(values) {
        return release::hold(&values.get(CLUSTER.hold)?, members, report);
    }
    if values.place(CLUSTER.hold).is_some() {
        report.add(
            Diagnostic::error(
                "packets leave at once, so none are held",
                values.span_of(CLUSTER.hold),
            )
            .help("add release = \"acked\" to [cluster], or leave `hold` out"),
        );
    }
    None
}

fn check_port_lease(values: &Values, members: usize, report: &mut Report) {
    if values.place(CLUSTER.port_lease).is_none() || is_open(values) {
        return;
    }
    if values.place(CLUSTER.epochs).is_none() {
        report.add(
            Diagnostic::error(
                "`port_lease` is for clusters with epochs only",
                values.span_of(CLUSTER.port_lease),
            )
            .help("add epochs = \"epoch.toml\": without epochs no member can be left out, and no ports are reassigned; or leave `port_lease` out"),
        );
    } else if members < 3 {
        report.add(
            Diagnostic::error(
                "with two hosts neither can know that it is cut off",
                values.span_of(CLUSTER.members),
            )
            .also(values.span_of(CLUSTER.port_lease), "leases need a majority")
            .help("leave `port_lease` out, and declare a host dead by `asterism epoch CONFIG --without NAME --fenced`; or list a third host"),
        );
    }
}

/// A number that no other cluster has, and that says nothing of the hash seed of the cluster's key, which stays when keys change.
#[must_use]
pub fn identity(hash_seed: u64) -> u32 {
    asterism_state::hash::word(hash_seed, 0x7E_4255) as u32
}

/// What hosts need that are processes of their own: a key and addresses. A file with ports is for such hosts.
pub(super) fn check_apart(values: &Values, report: &mut Report) {
    let members = members(values);
    if members.len() < 2 {
        return;
    }
    if values.place(CLUSTER.key).is_none() {
        // The milder word on the same subject.
        report.diagnostics.retain(|one| one.title != NO_KEY);
        report.add(
            Diagnostic::error(NO_KEY, values.span_of(CLUSTER.members))
                .label(format!("{} hosts, each a process", members.len()))
                .help("write a key with `asterism keygen cluster.key`, copy it to every host, and add key = \"cluster.key\""),
        );
    }
    if !is_open(values)
        && values
            .get(CLUSTER.member)
            .is_some_and(|tables| tables.is_empty())
    {
        let first = members.first().map_or("a", |(name, _)| name);
        report.add(
            Diagnostic::error("the members have no addresses", values.span_of(CLUSTER.members))
                .label(format!("{} hosts, each a process", members.len()))
                .help(format!(
                    "add [cluster.member.{first}] with address = \"192.0.2.1:7400\", and one for each of the others"
                )),
        );
    }
}

/// The members' names with their places, or those of the places where hosts register.
pub(super) fn members(values: &Values) -> List<String> {
    if is_open(values) {
        let places = values.get(CLUSTER.places).unwrap_or(1);
        let span = values.span_of(CLUSTER.places);
        let names = place_names(places as u16).into_iter();
        return names.map(|name| (name, span.clone())).collect();
    }
    values.get(CLUSTER.members).unwrap_or_default()
}

fn check_members(values: &Values, members: &[(String, Range<usize>)], report: &mut Report) {
    if values
        .get(CLUSTER.members)
        .is_some_and(|list| list.is_empty())
    {
        report.add(
            Diagnostic::error(
                "a cluster has at least one member",
                values.span_of(CLUSTER.members),
            )
            .help("write members = [\"a\"]"),
        );
    }
    for (place, (name, span)) in members.iter().enumerate() {
        if let Some((_, first)) = members[..place].iter().find(|(other, _)| other == name) {
            report.add(
                Diagnostic::error(format!("member \"{name}\" is listed twice"), span.clone())
                    .also(first.clone(), "first here")
                    .help("leave one of the two out, or give it another name"),
            );
        }
    }
}

/// The members' addresses in their order, and what contradicts among them.
fn addresses(
    values: &Values,
    members: &[(String, Range<usize>)],
    report: &mut Report,
) -> Option<Vec<Option<SocketAddr>>> {
    let tables = values.get(CLUSTER.member)?;
    if is_open(values) {
        return Some(vec![None; members.len()]);
    }
    let names = || members.iter().map(|(name, _)| name.as_str());
    let mut read: Vec<(&str, SocketAddr, Range<usize>)> = Vec::new();
    for table in &tables {
        if !members.is_empty() && !names().any(|name| name == table.name) {
            let mut unknown = Diagnostic::error(
                format!("there is no member \"{}\"", table.name),
                table.place.clone(),
            );
            if values.place(CLUSTER.members).is_some() {
                unknown = unknown.also(values.span_of(CLUSTER.members), "the members");
            }
            if let Some(near) = suggestion::nearest(&table.name, names()) {
                unknown = unknown.help(format!("did you mean [cluster.member.{near}]?"));
            }
            report.add(unknown.help(format!(
                "add \"{}\" to `members` in [cluster], or leave this table out",
                table.name
            )));
        }
        let Some(address) = table.values.get(MEMBER.address) else {
            continue;
        };
        let span = table.values.span_of(MEMBER.address);
        if let Some((_, _, first)) = read.iter().find(|(_, other, _)| *other == address) {
            report.add(
                Diagnostic::error(
                    format!("two members have the address {address}"),
                    span.clone(),
                )
                .also(first.clone(), "first here")
                .help("give each member an address of its own"),
            );
        }
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            report.add(
                Diagnostic::error(
                    format!("{} is no host's address", address.ip()),
                    span.clone(),
                )
                .help("write the address at which the other members reach this one"),
            );
        }
        if let Some((_, other, first)) = read.first()
            && other.is_ipv4() != address.is_ipv4()
        {
            report.add(
                Diagnostic::error("members' addresses are of two families", span.clone())
                    .also(first.clone(), "the other family")
                    .help("write all of them as IPv4 or all as IPv6"),
            );
        }
        read.push((&table.name, address, span));
    }
    if !tables.is_empty() {
        for (name, span) in members {
            if !tables.iter().any(|table| table.name == *name) {
                report.add(
                    Diagnostic::error(format!("member \"{name}\" has no address"), span.clone())
                        .also(tables[0].place.clone(), "another has one")
                        .help(format!(
                            "add [cluster.member.{name}] with address = \"192.0.2.1:7400\""
                        )),
                );
            }
        }
    }
    let address = |name: &str| {
        let found = read.iter().find(|(other, ..)| *other == name);
        found.map(|(_, address, _)| *address)
    };
    Some(names().map(address).collect())
}

/// The members' sites in their order, and what contradicts among them; nothing where members have none.
fn sites(values: &Values, members: &[(String, Range<usize>)], report: &mut Report) -> Vec<String> {
    let tables = values.get(CLUSTER.member).unwrap_or_default();
    let site = |name: &str| {
        let table = tables.iter().find(|table| table.name == name)?;
        Some((
            table.values.get(MEMBER.site)?,
            table.values.span_of(MEMBER.site),
        ))
    };
    let channel = values.get(CLUSTER.channel);
    let Some((first, first_at)) = members.iter().find_map(|(name, _)| site(name)) else {
        for field in [
            CHANNEL.relay_silent_after.field_name(),
            CHANNEL.relay_bundle.field_name(),
            CHANNEL.relay_cache.field_name(),
            CHANNEL.relay_cache_age.field_name(),
        ] {
            let Some(channel) = channel.as_ref().filter(|one| one.place(field).is_some()) else {
                continue;
            };
            report.add(
                Diagnostic::error(
                    format!("`{field}` is for sites only"),
                    channel.span_of(field),
                )
                .help("add site = \"east\" to each [cluster.member.NAME], or leave it out"),
            );
        }
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut names = vec![first.clone()];
    for (name, span) in members {
        let Some((site, at)) = site(name) else {
            let table = tables.iter().find(|table| table.name == *name);
            // Its site may be written and be no name, which is said already.
            if table.is_none_or(|table| table.values.place(MEMBER.site).is_none()) {
                let span = table.map_or(span, |table| &table.place);
                report.add(
                    Diagnostic::error(format!("member \"{name}\" has no site"), span.clone())
                        .also(first_at.clone(), "another has one")
                        .help(format!(
                            "add site = \"{first}\" to [cluster.member.{name}], or the name of a site of its own"
                        )),
                );
            }
            continue;
        };
        if !names.contains(&site) {
            names.push(site.clone());
            if names.len() == SITES_MAX + 1 {
                report.add(
                    Diagnostic::error(format!("there are more than {SITES_MAX} sites"), at)
                        .label(format!(
                            "the first of them that is one too many is \"{site}\""
                        ))
                        .help("put members that are near each other into one site"),
                );
            }
        }
        found.push(site);
    }
    found
}

/// The multicast group, if it is one that the members' addresses can use.
fn check_multicast(values: &Values, report: &mut Report) {
    let Some(group) = values.get(CHANNEL.multicast) else {
        if values.place(CHANNEL.interface).is_some() && values.place(CHANNEL.multicast).is_none() {
            report.add(
                Diagnostic::error(
                    "`interface` is for multicast only",
                    values.span_of(CHANNEL.interface),
                )
                .help("add multicast = \"239.255.74.0:7401\", or leave `interface` out"),
            );
        }
        return;
    };
    if values.place(CHANNEL.interface).is_none() {
        report.add(
            Diagnostic::error(
                "multicast needs an interface",
                values.span_of(CHANNEL.multicast),
            )
            .help("add interface = \"eth2\", the one that leads to the other members"),
        );
    }
    if !group.ip().is_multicast() {
        report.add(
            Diagnostic::error(
                format!("{} is no multicast group", group.ip()),
                values.span_of(CHANNEL.multicast),
            )
            .help(
                "write a group of the site, such as \"239.255.74.0:7401\" or \"[ff15::7400]:7401\"",
            ),
        );
    }
}

fn channel(values: &Values, report: &mut Report) -> Option<Channel> {
    check_multicast(values, report);
    if let (Some(least), Some(most)) = (
        values.get(CHANNEL.retransmit_min),
        values.get(CHANNEL.retransmit_max),
    ) && most < least
    {
        let (field, other) = if values.place(CHANNEL.retransmit_max).is_some() {
            (CHANNEL.retransmit_max, CHANNEL.retransmit_min)
        } else {
            (CHANNEL.retransmit_min, CHANNEL.retransmit_max)
        };
        let mut diagnostic = Diagnostic::error(
            "`retransmit_max` is shorter than `retransmit_min`",
            values.span_of(field),
        );
        if values.place(other).is_some() {
            diagnostic = diagnostic.also(values.span_of(other), "the other");
        }
        report.add(diagnostic.help("write the shorter one in `retransmit_min`"));
    }
    if let (Some(keep_alive), Some(silent)) = (
        values.get(CHANNEL.keep_alive),
        values.get(CHANNEL.silent_after),
    ) && silent < keep_alive * 2
    {
        let field = if values.place(CHANNEL.silent_after).is_some() {
            CHANNEL.silent_after
        } else {
            CHANNEL.keep_alive
        };
        report.add(
            Diagnostic::error(
                "every idle host would count as silent",
                values.span_of(field),
            )
            .label("`silent_after` is less than two keep-alives")
            .help("write a longer `silent_after`, or a shorter `keep_alive`"),
        );
    }
    let number = |field| usize::try_from(values.get(field)?).ok();
    Some(Channel {
        mtu: number(CHANNEL.mtu)?,
        log_bytes_max: number(CHANNEL.log_max)?,
        log_groups_max: number(CHANNEL.log_groups_max)?,
        reorder_groups_max: number(CHANNEL.reorder_groups_max)?,
        unapplied_groups_max: number(CHANNEL.unapplied_groups_max)?,
        keep_alive: values.get(CHANNEL.keep_alive)?,
        retransmit_min: values.get(CHANNEL.retransmit_min)?,
        retransmit_max: values.get(CHANNEL.retransmit_max)?,
        acknowledge_delay: values.get(CHANNEL.acknowledge_delay)?,
        lookahead: values.get(CHANNEL.lookahead)?,
        coalescing_max: values.get(CHANNEL.coalescing_max)?,
        congested_above: values.get(CHANNEL.congested_above)?,
        silent_after: values.get(CHANNEL.silent_after)?,
        delivery: match values.get(CHANNEL.delivery)? {
            "unordered" => Delivery::Unordered,
            _ => Delivery::Ordered,
        },
        multicast: values.get(CHANNEL.multicast),
        interface: values.get(CHANNEL.interface),
        relay_silent_after: values.get(CHANNEL.relay_silent_after),
        relay_bundle: values.get(CHANNEL.relay_bundle),
        relay_cache: values.get(CHANNEL.relay_cache),
        relay_cache_age: values.get(CHANNEL.relay_cache_age),
        receive_buffer_bytes: number(CHANNEL.receive_buffer)?,
        send_buffer_bytes: number(CHANNEL.send_buffer)?,
        bandwidth_max: values.get(CHANNEL.bandwidth_max),
        offload: values.get(CHANNEL.offload)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn datagrams_fit_the_mtu_with_the_headers_of_either_version() {
        for (address, headers) in [("192.0.2", 28), ("2001:db8:", 48)] {
            let end = |last: u8| match headers {
                28 => format!("{address}.{last}:7400"),
                _ => format!("[{address}:{last}]:7400"),
            };
            let text = format!(
                "[cluster]\nmembers = [\"a\", \"b\"]\nchannel = {{ mtu = \"1400B\" }}\n[cluster.member]\n\
                 a.address = \"{}\"\nb.address = \"{}\"\n[function.pass-through]\n",
                end(1),
                end(2)
            );
            let (config, report) = Config::read("test.toml", &text);
            let config = config.unwrap_or_else(|| panic!("{}", report.render(false)));
            let key = crate::key_file::draw(1).unwrap();
            let host = config
                .cluster
                .host(MemberId(1), Incarnation(1), key, [0; 48], 0);
            assert_eq!(host.datagram_bytes_max + headers, 1400, "{text}");
        }
    }
}
