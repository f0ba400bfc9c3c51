//! A host as the document that `status` shows: its packet loops, its state channel, its peers.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_engine::ObjectUse;
use asterism_engine::transport::{ChannelSnapshot, MemberSnapshot};
use asterism_io::port::PortDrop;
use asterism_placement::Time;
use asterism_placement::replicated::{Ended, Standing};
use asterism_state::ObjectCount;

use super::View;
use crate::audit::AuditDocument;
use crate::counts::nonzero;
use crate::differing::differing;
use crate::documents::{
    ChannelDocument, ClockDocument, EndedDocument, InstanceDocument, MissingKeyDocument,
    ObjectDocument, PeerDocument, PortDocument, StatusDocument, TimeDocument, VersionsDocument,
};
use crate::health::{self, HealthDocument};
use crate::names::Names;
use crate::placements;
use crate::requests::Request;
use crate::sites::SitesDocument;
use crate::stages;
use crate::statistics::{COUNTS, InstanceSnapshot};

impl View {
    /// The host as a document. With `digests`, every instance reads all its entries.
    #[must_use]
    pub fn status(&self, digests: bool) -> StatusDocument {
        let channel = self.channel();
        // Asked before the statistics are read, which are then as new.
        let digests: Vec<_> = (0..self.instances())
            .map(|instance| digests.then(|| self.digests(instance)).flatten())
            .collect();
        let snapshots = self.snapshots();
        let names = &self.names;
        let instances = snapshots.iter().zip(&digests).enumerate();
        let ended = channel.ended.iter();
        StatusDocument {
            cluster: names.cluster.clone(),
            host: names.host.clone(),
            member: channel.member.0,
            incarnation: format!("{:016x}", names.incarnation.0),
            shape: names.shape.clone(),
            epoch: channel.epoch.0,
            joined: channel.is_ready,
            later_epoch: channel.later_epoch.map(|(_, epoch)| epoch.0),
            placements: placements::documents(&channel, names),
            ended: ended
                .filter(|incarnation| !incarnation.closed)
                .map(|incarnation| ended_document(incarnation, names))
                .collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            function: names.function.to_owned(),
            phase: self.phase().word().to_owned(),
            uptime_us: self.uptime_us(),
            instances: instances
                .filter_map(|(number, (snapshot, digests))| {
                    let digests = digests.as_deref();
                    Some(instance_document(
                        number,
                        snapshot.as_ref()?,
                        digests,
                        names,
                    ))
                })
                .collect(),
            channel: channel_document(&channel, &snapshots),
            time: Some(self.time(&channel)),
            peers: peer_documents(&channel, names),
            health: self.health(&channel),
            sites: SitesDocument::new(&channel, names),
            audit: AuditDocument::new(&channel, names),
            log_lines_suppressed: self.suppressed(),
            exports: self.exports.document(),
            nat_ports: self.nat_ports.document(),
            eve: self.eve.document(),
            caches: self.caches.document(),
            store: self.store.document(self.uptime_us()),
        }
    }

    /// What is wrong, of peers and of the store.
    fn health(&self, channel: &ChannelSnapshot) -> Vec<HealthDocument> {
        let mut items = health::items(channel, &|member| self.names.member(member));
        items.extend(self.store.health(self.uptime_us()));
        items
    }

    /// A digest of each object of an instance, if that answers.
    fn digests(&self, instance: usize) -> Option<Vec<u64>> {
        let asked = self.ask(instance, Duration::ZERO, |reply| Request::Digests { reply });
        asked.ok()
    }

    fn time(&self, channel: &ChannelSnapshot) -> TimeDocument {
        let (dates, now) = (self.dates(), self.clock.now());
        let (settled, source) = channel.cluster_time_source;
        TimeDocument {
            cluster_us: dates.cluster_us(now),
            date_us: dates.date_us(now),
            settled,
            taken_from: source.map(|member| self.names.member(member)),
        }
    }
}

fn ended_document(incarnation: &Ended, names: &Names) -> EndedDocument {
    EndedDocument {
        name: names.member(incarnation.member),
        incarnation: format!("{:016x}", incarnation.incarnation.0),
        whole: incarnation.whole,
        waits_for: incarnation.waits_for.map(|member| names.member(member)),
    }
}

fn instance_document(
    number: usize,
    snapshot: &InstanceSnapshot,
    digests: Option<&[u64]>,
    names: &Names,
) -> InstanceDocument {
    let counts = COUNTS.iter().zip(&snapshot.counts);
    let objects = snapshot.objects.iter().enumerate();
    InstanceDocument {
        instance: number,
        counts: counts
            .map(|(count, value)| (count.name.to_owned(), *value))
            .collect(),
        dropped: nonzero(names.own.labelled(&snapshot.dropped)),
        own: names.own.measured(&snapshot.own),
        parked: snapshot.parked,
        parked_most: snapshot.parked_most,
        held: snapshot.held,
        held_bytes: snapshot.held_bytes,
        held_most: snapshot.held_most,
        incarnations: snapshot.incarnations,
        frames_in_use: snapshot.frames_in_use,
        turns: snapshot.turns,
        sleeps: snapshot.sleeps,
        ports: port_documents(snapshot, names),
        stages: stages::documents(snapshot, names),
        objects: objects
            .map(|(place, object)| {
                let digest = digests.and_then(|digests| digests.get(place));
                object_document(object, digest.copied())
            })
            .collect(),
    }
}

fn object_document(object: &ObjectUse, digest: Option<u64>) -> ObjectDocument {
    let counts = ObjectCount::ALL.iter();
    let counts = counts.filter_map(|count| Some((count.label(), object.counts.get(*count)?)));
    ObjectDocument {
        name: object.name.to_owned(),
        live: object.live as u64,
        held: object.held as u64,
        capacity: object.capacity,
        quarantined: object.quarantined,
        reclaimed: object.reclaimed,
        counts: nonzero(counts),
        digest: digest.map(|digest| format!("{digest:016x}")),
    }
}

fn port_documents(snapshot: &InstanceSnapshot, names: &Names) -> Vec<PortDocument> {
    let ports = snapshot.ports.iter().zip(&names.ports);
    ports
        .map(|(port, (name, kind, place))| PortDocument {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            place: place.clone(),
            is_up: port.is_up,
            received_packets: port.statistics.received_packets,
            received_bytes: port.statistics.received_bytes,
            sent_packets: port.statistics.sent_packets,
            sent_bytes: port.statistics.sent_bytes,
            link_downs: port.statistics.link_downs,
            dropped: nonzero(
                PortDrop::ALL
                    .iter()
                    .map(|drop| (drop.label(), port.statistics.dropped(*drop))),
            ),
        })
        .collect()
}

fn channel_document(
    channel: &ChannelSnapshot,
    instances: &[Option<InstanceSnapshot>],
) -> ChannelDocument {
    let mut transport = BTreeMap::new();
    channel.transport.each(|name, value| {
        transport.insert(name.to_owned(), value);
    });
    let refused = channel.refused.iter();
    ChannelDocument {
        address: channel.state.local.to_string(),
        head: channel.head,
        is_quiet: channel.is_quiet,
        log_groups_free: channel.log_room.groups as u64,
        log_bytes_free: channel.log_room.bytes as u64,
        backlog_bytes: channel.backlog_bytes as u64,
        coalescing_window_us: channel.window.length.as_micros() as u64,
        counter_changes: sum_of(instances, "counter_changes"),
        counters_reported: sum_of(instances, "counters_reported"),
        path_mtu: channel.state.path_mtu as u64,
        segmentation: channel.state.segmentation,
        receive_offload: channel.state.receive_offload,
        sends_with: channel.sends_under,
        accepts: channel.accepts.ids().collect(),
        speaks: channel.speaks,
        understands: VersionsDocument::new(channel.understands),
        transport,
        refused: nonzero(refused.map(|(reason, count)| (reason.label(), count))),
    }
}

/// The sum of a counter over all instances.
fn sum_of(snapshots: &[Option<InstanceSnapshot>], name: &str) -> u64 {
    let known = snapshots.iter().flatten();
    known.map(|instance| instance.count(name)).sum()
}

fn peer_documents(channel: &ChannelSnapshot, names: &Names) -> Vec<PeerDocument> {
    let members = channel.members.iter();
    let others = members.filter(|member| member.progress.member != channel.member);
    others
        .filter(|member| !names.members.is_vacant(member.progress.member))
        .map(|member| peer_document(member, channel, names))
        .collect()
}

fn peer_document(
    member: &MemberSnapshot,
    channel: &ChannelSnapshot,
    names: &Names,
) -> PeerDocument {
    let progress = &member.progress;
    let age = |time: Time| channel.at.as_micros().saturating_sub(time.as_micros());
    PeerDocument {
        name: names.member(progress.member),
        member: progress.member.0,
        address: member.traffic.map(|traffic| traffic.address),
        admitted: member.admitted.is_some(),
        welcomes: member.has_welcomed,
        unreachable: member.traffic.is_some_and(|traffic| traffic.is_unreachable),
        lagging: member.is_lagging(),
        lags_us: progress.lags_since.map(age),
        takes_part: progress.standing != Standing::Out,
        heard_us_ago: progress.heard.map(age),
        receives_us_ago: progress.receives_until.map(age),
        fault: member.fault.map(|(fault, _)| fault.label().to_owned()),
        clock: progress.clock.map(|clock| ClockDocument {
            date_ahead_us: clock.date_ahead_us,
            cluster_ahead_us: clock.cluster_ahead_us,
            within_us: clock.within.as_micros() as u64,
            refused: clock.is_apart,
        }),
        round_trip_us: (progress.round_trip.samples > 0)
            .then_some(progress.round_trip.average.as_micros() as u64),
        congested: progress.round_trip.congested,
        behind_groups: member.lag.groups,
        behind_us: member.lag.age.as_micros() as u64,
        unacknowledged_groups: channel.head.saturating_sub(progress.acknowledged),
        heard_with: member.heard_under,
        accepts: member.accepts.map(|keys| keys.ids().collect()),
        understands: member.understands.map(VersionsDocument::new),
        differing_keys: member
            .accepts
            .map_or_else(Vec::new, |keys| keys.differing(&channel.accepts).collect()),
        differing_settings: member
            .other_terms
            .as_ref()
            .zip(channel.terms.as_ref())
            .map_or_else(Vec::new, |(theirs, ours)| differing(ours, theirs)),
        missing_key: member.without_key.last.map(|(id, at)| MissingKeyDocument {
            id,
            datagrams: member.without_key.datagrams,
            us_ago: age(at),
        }),
    }
}
