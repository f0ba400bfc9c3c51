//! The laboratory itself: nodes, programs, wires, and that nothing stays behind. Needs root; says `SKIPPED` without.

mod crash;
mod nat;
mod nodes;
mod wires;

use asterism_lab::{Lab, permitted};

/// A laboratory, or none without root, which is said. In CI everything must run.
fn lab() -> Option<Lab> {
    if !permitted() {
        println!("SKIPPED tests of the laboratory: network namespaces need root");
        return None;
    }
    Some(Lab::new().expect("root may build laboratories"))
}
