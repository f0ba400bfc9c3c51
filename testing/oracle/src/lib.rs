//! The NAT judged by Linux: packets that nftables sent for the same input, compared field by field with the packets of our
//! NAT.
//!
//! A [`Recording`] holds the input and output of a Linux NAT, with the ruleset and the box around it. [`compare`] feeds the
//! same packets to our NAT and pairs the output. A difference counts unless one of five [`Rule`]s, each with its clause,
//! explains it. [`live`] repeats recordings: namespaces, nftables, and scripts that play both sides.
//!
//! Beside the product: nothing that ships needs it. Packets are read here by separate code (`wire.rs`), so that a fault of
//! `asterism-packet` cannot hide itself. Read first: `recording.rs`, then `compare.rs` and `rules.rs`.

mod compare;
mod fields;
pub mod firewall;
mod fragments;
pub mod live;
mod normalise;
mod ports;
mod recording;
mod rules;
mod ruleset;
mod setup;
mod subject;
mod wire;

pub use compare::{Difference, Report, compare};
pub use normalise::Normalised;
pub use recording::{Direction, Frame, Recording};
pub use rules::Rule;
pub use setup::Setup;

use std::path::PathBuf;

use asterism_functions::nat::Side;

/// Where the recordings that ship with the repository are.
#[must_use]
pub fn shipped() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/recordings"))
}

/// Where the development recording of Linux 6.18 is, if the shared data stands beside the repository.
#[must_use]
pub fn shared() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces/nat-oracle"
    ))
}

/// The development recording, with the box that its captures show; `None` where the shared data is absent.
///
/// # Errors
/// With a sentence when a file is there and cannot be read.
pub fn development() -> Result<Option<Recording>, String> {
    let folder = shared();
    if !folder.is_dir() {
        return Ok(None);
    }
    let ruleset = std::fs::read_to_string(folder.join("ruleset.nft"))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let inside = recording::frames(&folder.join("nft-nat44-inside.pcap"), Side::Inside)?;
    let outside = recording::frames(&folder.join("nft-nat44-outside.pcap"), Side::Outside)?;
    let description =
        setup::from_captures((&inside, "192.168.50.1/24"), (&outside, "198.51.100.1/24"));
    let setup = Setup::read(&description, &ruleset)?;
    let frames = inside.into_iter().chain(outside).collect();
    Recording::new("development", setup, frames).map(Some)
}
