//! Captures as packets of two links.

use std::path::{Path, PathBuf};

use asterism_function::{Layout, Network};
use asterism_io::port::CaptureReader;

use super::{Direction, MAC_INSIDE, MAC_OUTSIDE};

/// A frame and the link that it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The link.
    pub way: Direction,
    /// The frame: Ethernet without tags, then IPv4 or IPv6.
    pub frame: Vec<u8>,
}

/// All captures below a folder, in order of their paths.
///
/// # Errors
/// With a sentence when a folder cannot be read.
pub fn captures(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "pcap" || extension == "pcapng")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The IP packets of a capture, each on the link of its source: half of all addresses are inside, and of two that talk to each
/// other one is. What was cut by the capture, and what is not IP, is left out. `None` if it is no capture of a kind that is read.
#[must_use]
pub fn steps(path: &Path) -> Option<Vec<Step>> {
    let mut reader = CaptureReader::open(path).ok()?;
    let mut steps = Vec::new();
    let mut bytes = Vec::new();
    while let Ok(Some(packet)) = reader.next(&mut bytes) {
        if packet.truncated {
            continue;
        }
        steps.extend(step(&bytes));
    }
    Some(steps)
}

fn step(bytes: &[u8]) -> Option<Step> {
    let (version, packet) = match Layout::parse(bytes) {
        Ok(layout) => match layout.network() {
            Network::Ipv4 => (4, bytes.get(layout.network_offset()..layout.end())?),
            Network::Ipv6 => (6, bytes.get(layout.network_offset()..layout.end())?),
            Network::Arp | Network::Other => return None,
        },
        // Damaged ones are judged as well.
        Err(_) => match bytes.get(12..14)? {
            [8, 0] => (4, bytes.get(14..)?),
            [0x86, 0xdd] => (6, bytes.get(14..)?),
            _ => return None,
        },
    };
    let (source, destination) = match version {
        4 => (packet.get(12..16)?, packet.get(16..20)?),
        _ => (packet.get(8..24)?, packet.get(24..40)?),
    };
    let is_even = |address: &[u8]| {
        let sum: u32 = address.iter().map(|byte| u32::from(*byte)).sum();
        sum.is_multiple_of(2)
    };
    let is_inside = match (is_even(source), is_even(destination)) {
        (true, true) | (false, false) => source < destination,
        (is_inside, _) => is_inside,
    };
    let way = if is_inside {
        Direction::Out
    } else {
        Direction::In
    };
    Some(framed(way, version, packet))
}

/// A packet in a frame of its link.
pub(super) fn framed(way: Direction, version: u8, packet: &[u8]) -> Step {
    let (from, to) = match way {
        Direction::Out => (MAC_INSIDE, MAC_OUTSIDE),
        Direction::In => (MAC_OUTSIDE, MAC_INSIDE),
    };
    let kind: [u8; 2] = if version == 4 { [8, 0] } else { [0x86, 0xdd] };
    Step {
        way,
        frame: [&to[..], &from, &kind, packet].concat(),
    }
}
