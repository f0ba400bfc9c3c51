//! How each measure is made, one file a group.
//!
//! To add one: write `measures/<group>.rs` with `pub(super) const MEASURES: &[Measure]` (and `WORKLOADS`
//! if instructions are counted), name it in the two lists below. Its row must stand in `registry`.

mod allocations;
mod api_intruder;
mod audit;
mod balancer_disruption;
mod captures;
mod chain_order;
mod chains;
mod count_packets;
mod counters;
mod counters_pair;
mod digests_squid;
mod director;
mod due_packets;
mod firewall;
mod firewall_flood;
mod floor;
mod functions_cost;
mod hold_kill;
mod hold_latency;
mod hold_throughput;
mod host_process;
mod idps_leaked;
mod idps_scans;
mod join_cold;
mod join_load;
mod join_pause;
mod known_loop;
mod lab;
mod lab_hotspot;
mod lab_kill;
mod lab_orchestrated;
mod lab_scale;
mod lab_tcp;
mod lab_throughput;
mod lab_up;
mod limiter;
mod lines;
mod monitor_error;
mod multicast_cost;
mod nat;
mod nat_bench;
mod nat_churn;
mod nat_latency;
mod nat_oracle;
mod nat_stations;
mod paper_figure_4;
mod paper_figure_5;
mod paper_figure_6;
mod paper_figure_7;
mod paper_table_3;
mod parking;
mod pass_through;
mod peers_conntrackd;
mod peers_haproxy;
mod peers_redis;
mod placement_hostile;
mod placement_instructions;
mod ports;
mod relay;
mod remote;
mod replication;
mod replication_coalescing;
mod replication_hosts;
mod replication_inserts;
mod replication_repair;
mod replication_straggler;
mod sim;
mod sim_orchestrator;
mod sim_remote;
mod socket_pair;
mod steering_conformance;
mod tree;
mod up;

use crate::contract::{Document, Failure, Outcome};
use crate::instructions::Workload;
use crate::registry::{self, Row};
use crate::timing;

const MEASURES: &[&[Measure]] = &[
    allocations::MEASURES,
    api_intruder::MEASURES,
    audit::MEASURES,
    balancer_disruption::MEASURES,
    chain_order::MEASURES,
    chains::MEASURES,
    counters::MEASURES,
    digests_squid::MEASURES,
    director::MEASURES,
    firewall::MEASURES,
    firewall_flood::MEASURES,
    floor::MEASURES,
    hold_kill::MEASURES,
    hold_latency::MEASURES,
    hold_throughput::MEASURES,
    idps_leaked::MEASURES,
    idps_scans::MEASURES,
    join_cold::MEASURES,
    join_pause::MEASURES,
    lab_kill::MEASURES,
    lab_orchestrated::MEASURES,
    lab_hotspot::MEASURES,
    lab_scale::MEASURES,
    lab_up::MEASURES,
    lab_tcp::MEASURES,
    lab_throughput::MEASURES,
    limiter::MEASURES,
    lines::MEASURES,
    monitor_error::MEASURES,
    multicast_cost::MEASURES,
    nat::MEASURES,
    nat_churn::MEASURES,
    nat_latency::MEASURES,
    nat_oracle::MEASURES,
    nat_stations::MEASURES,
    paper_figure_7::MEASURES,
    functions_cost::MEASURES,
    paper_figure_4::MEASURES,
    paper_figure_5::MEASURES,
    paper_figure_6::MEASURES,
    paper_table_3::MEASURES,
    parking::MEASURES,
    pass_through::MEASURES,
    peers_conntrackd::MEASURES,
    peers_haproxy::MEASURES,
    peers_redis::MEASURES,
    placement_hostile::MEASURES,
    sim_orchestrator::MEASURES,
    placement_instructions::MEASURES,
    ports::MEASURES,
    remote::MEASURES,
    replication::MEASURES,
    replication_coalescing::MEASURES,
    replication_inserts::MEASURES,
    replication_repair::MEASURES,
    replication_straggler::MEASURES,
    sim::MEASURES,
    sim_remote::MEASURES,
    steering_conformance::MEASURES,
    tree::MEASURES,
];
const WORKLOADS: &[&[Workload]] = &[
    audit::WORKLOADS,
    chains::WORKLOADS,
    director::WORKLOADS,
    floor::WORKLOADS,
    known_loop::WORKLOADS,
    nat::WORKLOADS,
    nat_stations::WORKLOADS,
    pass_through::WORKLOADS,
];

/// A measure that can be made.
pub struct Measure {
    /// The name of its row.
    pub name: &'static str,
    /// Makes it again.
    pub make: fn(&Context) -> Result<Outcome, Failure>,
}

/// What a measure is given.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Make the long form, which may take minutes.
    pub full: bool,
    /// The one source of randomness.
    pub seed: u64,
}

impl Context {
    /// Says on standard error how far it got.
    pub fn say(&self, progress: &str) {
        eprintln!("  {progress}");
    }
}

/// The measure of this row, if it is built.
pub fn find(name: &str) -> Option<&'static Measure> {
    MEASURES
        .iter()
        .flat_map(|group| group.iter())
        .find(|measure| measure.name == name)
}

/// The workload of this name.
pub fn workload(name: &str) -> Option<&'static Workload> {
    WORKLOADS
        .iter()
        .flat_map(|group| group.iter())
        .find(|workload| workload.name == name)
}

/// Makes the measure of this name. Unknown names, rows not yet built and unsound figures are failures.
pub fn make(name: &str, context: &Context) -> Result<Document, Failure> {
    let row = registry::find(name).ok_or_else(|| {
        Failure::Usage(format!(
            "no measure is called {name}; `list` names them all"
        ))
    })?;
    let measure = find(name).ok_or_else(|| not_yet(row))?;
    let started = timing::wall_ns();
    let outcome = (measure.make)(context)?;
    Document::new(
        row,
        outcome,
        (timing::wall_ns() - started) as f64 / 1e9,
        context.full,
    )
}

fn not_yet(row: &Row) -> Failure {
    Failure::NotYet(format!(
        "{} is not yet built: it belongs to \"{}\"",
        row.name, row.group
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_measure_has_a_row_and_a_name_of_its_own() {
        let mut seen = BTreeSet::new();
        for measure in MEASURES.iter().flat_map(|group| group.iter()) {
            assert!(
                registry::find(measure.name).is_some(),
                "{} has no row",
                measure.name
            );
            assert!(seen.insert(measure.name), "{} is there twice", measure.name);
        }
        assert!(!seen.is_empty());
    }

    #[test]
    fn what_is_not_built_says_so() {
        let context = Context {
            full: false,
            seed: 1,
        };
        let row = registry::find("lab.hotspot").expect("a row");
        assert_eq!(not_yet(row).exit_code(), 3);
        assert_eq!(
            make("nonsense", &context).expect_err("unknown").exit_code(),
            2
        );
    }
}
