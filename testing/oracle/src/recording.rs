//! A recording: what reached a Linux NAT and what it sent, with its ruleset and the box around it.
//!
//! On disk a folder: `inside.pcap` and `outside.pcap` (everything on the two links), `ruleset.nft`, `box.txt`.

use std::fs;
use std::path::Path;

use asterism_functions::nat::Side;
use asterism_io::port::{CaptureReader, CaptureWriter};

use crate::normalise::{Normalised, normalise};
use crate::setup::Setup;

/// A frame on one of the links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Microseconds, from any zero.
    pub time_us: u64,
    /// The link.
    pub side: Side,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// Which way a frame went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the box.
    Arrived,
    /// From the box.
    Sent,
}

/// What reached a Linux NAT and what left it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What it is called.
    pub name: String,
    /// The settings.
    pub setup: Setup,
    /// What reached the box, in the order of time.
    pub arrived: Vec<Frame>,
    /// What it sent, in the order of time.
    pub sent: Vec<Frame>,
    /// What was changed or left out before the comparison.
    pub normalised: Normalised,
}

impl Recording {
    /// Of all frames on both links.
    ///
    /// # Errors
    /// With a sentence when a frame is cut short.
    pub fn new(name: &str, setup: Setup, mut frames: Vec<Frame>) -> Result<Self, String> {
        frames.sort_by_key(|frame| frame.time_us);
        let (frames, normalised) = normalise(frames, &setup)?;
        let (sent, arrived) = frames
            .into_iter()
            .partition(|frame| way(&frame.bytes, &setup, frame.side) == Direction::Sent);
        Ok(Self {
            name: name.to_owned(),
            setup,
            arrived,
            sent,
            normalised,
        })
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// With a sentence that names the file.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let setup = Setup::read(&read(folder, "box.txt")?, &read(folder, "ruleset.nft")?)
            .map_err(|fault| format!("{}: {fault}", folder.display()))?;
        let mut frames = frames(&folder.join("inside.pcap"), Side::Inside)?;
        frames.extend(self::frames(&folder.join("outside.pcap"), Side::Outside)?);
        Self::new(&name, setup, frames)
    }

    /// Reads every folder of a folder, by name.
    ///
    /// # Errors
    /// With a sentence that names the file.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, String> {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut folders: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        folders.sort();
        folders.iter().map(|folder| Self::load(folder)).collect()
    }
}

/// Writes a folder that [`Recording::load`] reads.
///
/// # Errors
/// With a sentence that names the file; some files may have been written.
pub(crate) fn store(
    folder: &Path,
    frames: &[Frame],
    description: &str,
    ruleset: &str,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    for (file, text) in [("box.txt", description), ("ruleset.nft", ruleset)] {
        fs::write(folder.join(file), text).map_err(|error| failed(&error))?;
    }
    for (file, side) in [
        ("inside.pcap", Side::Inside),
        ("outside.pcap", Side::Outside),
    ] {
        let mut writer =
            CaptureWriter::create(folder.join(file)).map_err(|error| failed(&error))?;
        for frame in frames.iter().filter(|frame| frame.side == side) {
            writer.write(frame.time_us * 1_000, frame.bytes.len(), &frame.bytes);
        }
        writer.flush().map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// The frames of a capture.
///
/// # Errors
/// With a sentence when the file cannot be read or a packet is not all there.
pub(crate) fn frames(path: &Path, side: Side) -> Result<Vec<Frame>, String> {
    let mut reader = CaptureReader::open(path).map_err(|error| error.to_string())?;
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    while let Some(packet) = reader.next(&mut bytes).map_err(|error| error.to_string())? {
        if packet.truncated {
            return Err(format!(
                "{}: packet {} is cut by a snap length: record with the whole packets",
                path.display(),
                frames.len() + 1
            ));
        }
        frames.push(Frame {
            time_us: packet.time().as_micros(),
            side,
            bytes: bytes.clone(),
        });
    }
    Ok(frames)
}

fn way(frame: &[u8], setup: &Setup, side: Side) -> Direction {
    if frame.get(6..12) == Some(&setup.mac(side).0[..]) {
        Direction::Sent
    } else {
        Direction::Arrived
    }
}

fn read(folder: &Path, file: &str) -> Result<String, String> {
    let path = folder.join(file);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}
