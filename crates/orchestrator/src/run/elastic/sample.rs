//! What the decisions get of each host: its standing, and the figures of its last heartbeat.

use std::collections::BTreeMap;

use asterism_elasticity::{BucketLoad, HostSample, Standing, UnixMs};

use super::record::{LaunchRecord, Place, Wanted};
use crate::run::view::{ClusterView, HostView};

/// The standing of a place that has, or shall have, a process.
pub(super) fn standing(place: &Place, host: &HostView) -> Standing {
    let leaves = matches!(place.wanted, Wanted::Leaves { .. });
    match host {
        _ if leaves || host.drained || host.withdrawn => Standing::Draining,
        HostView {
            suspected: true, ..
        } => Standing::Suspected,
        HostView { takes: true, .. } => Standing::Serving,
        _ => Standing::Starting,
    }
}

/// The samples of all places that have, or shall have, a process.
pub(super) fn samples(
    record: &LaunchRecord,
    view: &ClusterView,
    since: &BTreeMap<String, (Standing, UnixMs)>,
    buckets: Option<&BTreeMap<String, Vec<BucketLoad>>>,
    now: UnixMs,
) -> Vec<HostSample> {
    let on = record.places.iter().filter(|(_, place)| place.is_on());
    let samples = on.filter_map(|(name, place)| {
        let host = view.hosts.iter().find(|host| host.name == *name)?;
        let standing = standing(place, host);
        let since = since.get(name).filter(|(known, _)| *known == standing);
        let since = since.map_or(now, |(_, since)| *since);
        let mut sample = HostSample::unknown(name, standing, since);
        if host.stage.is_some() {
            let load = &host.load;
            sample.age_ms = Some(host.silent_ms);
            sample.packets_per_second = Some(host.packets_per_s);
            sample.cpu_permille = Some(load.busy_permille.into());
            sample.flows = Some(load.flows);
            sample.lag_us = Some(load.lag_us.into());
        }
        sample.buckets = buckets.map(|all| all.get(name).cloned().unwrap_or_default());
        Some(sample)
    });
    samples.collect()
}
