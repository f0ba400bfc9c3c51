//! Ports of every kind: the conformance suite, and what happens to interfaces and peers in real incarnation. Those of the kernel need
//! root; without it their tests say `SKIPPED`.

mod events;
mod kernel;
mod peers;
mod suite;

use std::collections::BTreeSet;
use suite::{Case, Kind, run};

/// Whether tests of the kernel's ports can run here.
fn permitted(what: &str) -> bool {
    let permitted = asterism_lab::permitted();
    if !permitted {
        println!("SKIPPED {what}: making network namespaces needs root");
    }
    permitted
}

fn conforms(kind: Kind) {
    if kind.needs_root() && !permitted(kind.label()) {
        return;
    }
    let failed: Vec<String> = Case::ALL
        .into_iter()
        .filter(|case| case.applies(kind))
        .filter_map(|case| run(kind, case).err())
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Every kind and case has a name of its own, by which the measure reports it.
#[test]
fn kinds_and_cases_have_names() {
    let kinds: BTreeSet<_> = Kind::ALL.into_iter().map(Kind::label).collect();
    let cases: BTreeSet<_> = Case::ALL.into_iter().map(Case::label).collect();
    assert_eq!((kinds.len(), cases.len()), (9, 6));
    let applied = Kind::ALL
        .into_iter()
        .flat_map(|kind| Case::ALL.into_iter().filter(move |case| case.applies(kind)));
    assert_eq!(applied.count(), 7 * 6 + 3 + 4);
}

#[test]
fn memory_conforms() {
    conforms(Kind::Memory);
}

#[test]
fn captures_conform() {
    conforms(Kind::Capture);
}

#[test]
fn af_packet_rings_conform() {
    conforms(Kind::AfPacketRing);
}

#[test]
fn af_packet_bulk_conforms() {
    conforms(Kind::AfPacketBulk);
}

#[test]
fn af_xdp_native_conforms() {
    conforms(Kind::AfXdpNative);
}

#[test]
fn af_xdp_generic_conforms() {
    conforms(Kind::AfXdpGeneric);
}

#[test]
fn tap_conforms() {
    conforms(Kind::Tap);
}

#[test]
fn tap_with_offloads_conforms() {
    conforms(Kind::TapOffloads);
}

#[test]
fn shared_memory_conforms() {
    conforms(Kind::SharedMemory);
}
