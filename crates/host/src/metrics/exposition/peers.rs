//! Metrics of the other members and of sites.

use asterism_engine::transport::{ChannelSnapshot, PeerFault};
use asterism_placement::Time;
use asterism_placement::replicated::{SiteState, Standing};

use super::{Page, seconds, signed_seconds};
use crate::view::View;

pub(super) fn peers(page: &mut Page, view: &View, snapshot: &ChannelSnapshot) {
    let peers: Vec<_> = snapshot
        .members
        .iter()
        .filter(|member| member.progress.member != snapshot.member)
        .map(|member| {
            let place = usize::from(member.progress.member.0).wrapping_sub(1);
            (
                view.names.members.get(place).map_or("?", String::as_str),
                member,
            )
        })
        .collect();
    let mut each =
        |name: &str,
         help: &str,
         read: &dyn Fn(&asterism_engine::transport::MemberSnapshot) -> String| {
            page.family(name, "gauge", help);
            for (peer, member) in &peers {
                page.sample(name, &[("peer", peer)], read(member));
            }
        };
    let age = |time: Time| snapshot.at.as_micros().saturating_sub(time.as_micros());
    each(
        "asterism_peer_heard_with_key",
        "The number of the cluster key under which it was last heard; NaN if never.",
        &|one| {
            one.heard_under
                .map_or_else(|| "NaN".to_owned(), |id| id.to_string())
        },
    );
    each(
        "asterism_peer_wire_version_newest",
        "The newest wire version that it says it understands; NaN if it has not said.",
        &|one| {
            one.understands
                .map_or_else(|| "NaN".to_owned(), |versions| versions.newest.to_string())
        },
    );
    each(
        "asterism_peer_joined",
        "Whether both hosts admitted each other.",
        &|one| u8::from(one.admitted.is_some() && one.has_welcomed).to_string(),
    );
    each(
        "asterism_peer_takes_part",
        "Whether it is a member of the epoch.",
        &|one| u8::from(one.progress.standing != Standing::Out).to_string(),
    );
    each(
        "asterism_peer_lagging",
        "Whether it fell off the log and is sent the whole state.",
        &|one| u8::from(one.is_lagging()).to_string(),
    );
    each(
        "asterism_peer_lags_seconds",
        "Time since it fell off the log, if it was not served from the log again since; else 0.",
        &|one| {
            one.progress
                .lags_since
                .map_or_else(|| "0".to_owned(), |since| seconds(age(since)))
        },
    );
    each(
        "asterism_peer_heard_seconds",
        "Time since it was last heard; NaN if never.",
        &|one| {
            one.progress
                .heard
                .map_or_else(|| "NaN".to_owned(), |heard| seconds(age(heard)))
        },
    );
    each(
        "asterism_peer_receives_seconds",
        "Time since this host sent the last message that it says it received; NaN if it never did.",
        &|one| {
            one.progress
                .receives_until
                .map_or_else(|| "NaN".to_owned(), |at| seconds(age(at)))
        },
    );
    each(
        "asterism_peer_round_trip_seconds",
        "The average round trip to it; NaN if unknown.",
        &|one| match one.progress.round_trip.samples {
            0 => "NaN".to_owned(),
            _ => seconds(one.progress.round_trip.average.as_micros() as u64),
        },
    );
    let ahead = |us: Option<i64>| us.map_or_else(|| "NaN".to_owned(), signed_seconds);
    each(
        "asterism_peer_date_ahead_seconds",
        "By how much its machine's date is ahead of the one here; negative if it is behind, NaN if unknown.",
        &|one| ahead(one.progress.clock.and_then(|clock| clock.date_ahead_us)),
    );
    each(
        "asterism_peer_time_ahead_seconds",
        "By how much the cluster's time as it has it is ahead of the one here; NaN if unknown.",
        &|one| ahead(one.progress.clock.map(|clock| clock.cluster_ahead_us)),
    );
    each(
        "asterism_peer_congested",
        "Whether the path to it is congested, by its round trips.",
        &|one| u8::from(one.progress.round_trip.congested).to_string(),
    );
    each(
        "asterism_peer_behind_groups",
        "Groups of it that are not applied here.",
        &|one| one.lag.groups.to_string(),
    );
    each(
        "asterism_peer_behind_seconds",
        "How long the oldest of them has been known.",
        &|one| seconds(one.lag.age.as_micros() as u64),
    );
    each(
        "asterism_peer_unacknowledged_groups",
        "Groups of this host that it has not applied.",
        &|one| {
            snapshot
                .head
                .saturating_sub(one.progress.acknowledged)
                .to_string()
        },
    );
    let name = "asterism_peer_fault";
    page.family(
        name,
        "gauge",
        "Whether there is this fault with it: silence, one-way loss, nothing acknowledged, or clocks that differ.",
    );
    for (peer, member) in &peers {
        let known = member.fault.map(|(fault, _)| fault.label());
        for label in PeerFault::LABELS {
            let value = u8::from(known == Some(label));
            page.sample(name, &[("peer", peer), ("fault", label)], value);
        }
    }
    let name = "asterism_peer_datagrams_without_key_total";
    page.family(
        name,
        "counter",
        "Datagrams in its name under cluster keys that this host does not have; strangers can cause them too.",
    );
    for (peer, member) in &peers {
        page.sample(name, &[("peer", peer)], member.without_key.datagrams);
    }
}

/// Gauges of each site; nothing where members have none.
pub(super) fn sites(page: &mut Page, view: &View, snapshot: &ChannelSnapshot) {
    type Read = fn(&SiteState) -> u64;
    let gauges: [(&str, &str, Read); 3] = [
        (
            "asterism_site_members",
            "Members of the epoch in the site.",
            |one| one.members as u64,
        ),
        (
            "asterism_site_relayed",
            "Whether what is for all goes to the site by its relay.",
            |one| u64::from(one.relayed),
        ),
        (
            "asterism_site_direct",
            "Members of the site that are sent straight what is for all, because the relay or they are silent.",
            |one| one.direct as u64,
        ),
    ];
    let keeps = [
        (
            "asterism_relay_keeps_datagrams",
            "Datagrams that this host keeps, as the relay of its site, for members of it that lack them.",
            snapshot.relay_keeps.0,
        ),
        (
            "asterism_relay_keeps_bytes",
            "Bytes of the datagrams that this host keeps as the relay of its site.",
            snapshot.relay_keeps.1,
        ),
    ];
    for (name, help, value) in keeps.into_iter().filter(|_| !snapshot.sites.is_empty()) {
        page.family(name, "gauge", help);
        page.sample(name, &[], value as u64);
    }
    for (name, help, read) in gauges.into_iter().filter(|_| !snapshot.sites.is_empty()) {
        page.family(name, "gauge", help);
        for site in &snapshot.sites {
            let known = view.names.sites.get(usize::from(site.site.0));
            let label = known.map_or("", String::as_str);
            page.sample(name, &[("site", label)], read(site));
        }
    }
}
