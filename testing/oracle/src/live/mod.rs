//! Repeats recordings: a Linux NAT in a namespace, and scripts that play the hosts on both sides of it.
//!
//! Needs root, `ip` (iproute2) and `nft` (nftables). Built in a laboratory (`asterism-lab`), so nothing is left behind. Read
//! first: `hosts.rs` (the language of scripts); then `scenarios/`.

mod hosts;
mod network;
mod scenarios;
mod socket;

pub(crate) use socket::{Socket, wait};

use std::path::Path;

pub use hosts::Hosts;
pub use network::Network;
pub use scenarios::SCENARIOS;

use crate::recording::{Recording, store};
use crate::setup::Setup;

/// A script with the Linux NAT that it plays against.
#[derive(Debug)]
pub struct Scenario {
    /// The name of its recording.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// The lines of `box.txt` beside links and neighbours: what our NAT is set to.
    pub settings: &'static str,
    /// Bytes of the largest IP packet that the box sends inside and outside.
    pub mtu: (u16, u16),
    /// The kernel's settings, below `/proc/sys/net`, with their values.
    pub sysctls: &'static [(&'static str, &'static str)],
    /// Statements of the chains `post` and `pre` of the ruleset.
    pub post: &'static str,
    /// See `post`.
    pub pre: &'static str,
    /// The script.
    pub play: fn(&mut Hosts<'_>) -> Result<(), String>,
}

/// Why recordings cannot be made here; `None` if they can.
#[must_use]
pub fn obstacle() -> Option<String> {
    if !asterism_lab::permitted() {
        return Some("needs root, for namespaces".to_owned());
    }
    ["ip", "nft"].into_iter().find_map(|program| {
        let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).exists());
        (!found).then(|| format!("the program {program} is missing"))
    })
}

/// Plays a scenario; writes the recording to a folder if one is named.
///
/// # Errors
/// With a sentence that says what failed.
pub fn record(scenario: &Scenario, folder: Option<&Path>) -> Result<Recording, String> {
    let mut network = Network::start(scenario)?;
    (scenario.play)(&mut Hosts::new(&mut network))?;
    network.rest();
    let (frames, description, ruleset) = network.end();
    if let Some(folder) = folder {
        store(folder, &frames, &description, &ruleset)?;
    }
    let setup = Setup::read(&description, &ruleset)?;
    Recording::new(scenario.name, setup, frames)
}
