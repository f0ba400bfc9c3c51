//! Metrics of the other members.

use asterism_engine::transport::{ChannelSnapshot, MemberSnapshot, PeerFault};
use asterism_placement::Time;
use asterism_placement::replicated::Standing;

use asterism_host_view::Names;
use asterism_output::page::{Kind, Page, Value};

/// A gauge of a member, at the time of a snapshot.
struct PeerGauge {
    name: &'static str,
    help: &'static str,
    read: fn(&MemberSnapshot, &ChannelSnapshot) -> Value,
}

const GAUGES: [PeerGauge; 15] = [
    PeerGauge {
        name: "asterism_peer_heard_with_key",
        help: "The number of the cluster key under which it was last heard; NaN if never.",
        read: |one, _| Value::known(one.heard_under, Value::from),
    },
    PeerGauge {
        name: "asterism_peer_wire_version_newest",
        help: "The newest wire version that it says it understands; NaN if it has not said.",
        read: |one, _| Value::known(one.understands, |versions| versions.newest.into()),
    },
    PeerGauge {
        name: "asterism_peer_joined",
        help: "Whether both hosts admitted each other.",
        read: |one, _| (one.admitted.is_some() && one.has_welcomed).into(),
    },
    PeerGauge {
        name: "asterism_peer_takes_part",
        help: "Whether it is a member of the epoch.",
        read: |one, _| (one.progress.standing != Standing::Out).into(),
    },
    PeerGauge {
        name: "asterism_peer_lagging",
        help: "Whether it fell off the log and is sent the whole state.",
        read: |one, _| one.is_lagging().into(),
    },
    PeerGauge {
        name: "asterism_peer_lags_seconds",
        help: "Time since it fell off the log, if it was not served from the log again since; else 0.",
        read: |one, now| {
            let since = one.progress.lags_since;
            since.map_or(Value::Number(0), |since| age(since, now))
        },
    },
    PeerGauge {
        name: "asterism_peer_heard_seconds",
        help: "Time since it was last heard; NaN if never.",
        read: |one, now| Value::known(one.progress.heard, |heard| age(heard, now)),
    },
    PeerGauge {
        name: "asterism_peer_receives_seconds",
        help: "Time since this host sent the last message that it says it received; NaN if it never did.",
        read: |one, now| Value::known(one.progress.receives_until, |at| age(at, now)),
    },
    PeerGauge {
        name: "asterism_peer_round_trip_seconds",
        help: "The average round trip to it; NaN if unknown.",
        read: |one, _| match one.progress.round_trip.samples {
            0 => Value::Unknown,
            _ => Value::Seconds(one.progress.round_trip.average.as_micros() as u64),
        },
    },
    PeerGauge {
        name: "asterism_peer_date_ahead_seconds",
        help: "By how much its machine's date is ahead of the one here; negative if it is behind, NaN if unknown.",
        read: |one, _| {
            let ahead_us = one.progress.clock.and_then(|clock| clock.date_ahead_us);
            Value::known(ahead_us, Value::SignedSeconds)
        },
    },
    PeerGauge {
        name: "asterism_peer_time_ahead_seconds",
        help: "By how much the cluster's time as it has it is ahead of the one here; NaN if unknown.",
        read: |one, _| {
            let ahead_us = one.progress.clock.map(|clock| clock.cluster_ahead_us);
            Value::known(ahead_us, Value::SignedSeconds)
        },
    },
    PeerGauge {
        name: "asterism_peer_congested",
        help: "Whether the path to it is congested, by its round trips.",
        read: |one, _| one.progress.round_trip.congested.into(),
    },
    PeerGauge {
        name: "asterism_peer_behind_groups",
        help: "Groups of it that are not applied here.",
        read: |one, _| one.lag.groups.into(),
    },
    PeerGauge {
        name: "asterism_peer_behind_seconds",
        help: "How long the oldest of them has been known.",
        read: |one, _| Value::Seconds(one.lag.age.as_micros() as u64),
    },
    PeerGauge {
        name: "asterism_peer_unacknowledged_groups",
        help: "Groups of this host that it has not applied.",
        read: |one, now| now.head.saturating_sub(one.progress.acknowledged).into(),
    },
];

fn age(since: Time, now: &ChannelSnapshot) -> Value {
    Value::Seconds(now.at.as_micros().saturating_sub(since.as_micros()))
}

pub(super) fn peers(page: &mut Page, names: &Names, snapshot: &ChannelSnapshot) {
    let members = snapshot.members.iter();
    let others = members.filter(|member| member.progress.member != snapshot.member);
    let named: Vec<(String, &MemberSnapshot)> = others
        .filter(|member| !names.members.is_vacant(member.progress.member))
        .map(|member| {
            let name = names.members.get(member.progress.member);
            (name.unwrap_or_else(|| "?".to_owned()), member)
        })
        .collect();
    let peers = named.iter().map(|(name, member)| (name.as_str(), *member));
    let peers: Vec<(&str, &MemberSnapshot)> = peers.collect();
    for gauge in &GAUGES {
        page.family(gauge.name, Kind::Gauge, gauge.help);
        for (peer, member) in &peers {
            let value = (gauge.read)(member, snapshot);
            page.sample(gauge.name, &[("peer", peer)], value);
        }
    }
    faults(page, &peers);
    without_key(page, &peers);
}

fn faults(page: &mut Page, peers: &[(&str, &MemberSnapshot)]) {
    let name = "asterism_peer_fault";
    let help = "Whether there is this fault with it: silence, one-way loss, nothing acknowledged, or clocks that differ.";
    page.family(name, Kind::Gauge, help);
    for (peer, member) in peers {
        let known = member.fault.map(|(fault, _)| fault.label());
        for label in PeerFault::LABELS {
            let labels = [("peer", *peer), ("fault", label)];
            page.sample(name, &labels, known == Some(label));
        }
    }
}

fn without_key(page: &mut Page, peers: &[(&str, &MemberSnapshot)]) {
    let name = "asterism_peer_datagrams_without_key_total";
    let help = "Datagrams in its name under cluster keys that this host does not have; strangers can cause them too.";
    page.family(name, Kind::Counter, help);
    for (peer, member) in peers {
        page.sample(name, &[("peer", peer)], member.without_key.datagrams);
    }
}
