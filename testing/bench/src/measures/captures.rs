//! The real captures that measures play: where they are, and their packets.

use std::path::{Path, PathBuf};

use asterism_io::port::CaptureReader;

use crate::contract::Failure;

/// A packet, and the microseconds that passed before it: clocks of captures that go back stand still.
pub(super) struct Step {
    pub(super) passed_us: u64,
    pub(super) frame: Vec<u8>,
}

/// The folder of shared captures beside the repository.
pub(super) fn folder() -> Result<PathBuf, Failure> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces"
    ));
    if !folder.is_dir() {
        return Err(Failure::Absent(format!(
            "the shared captures are not at {}",
            folder.display()
        )));
    }
    Ok(folder)
}

/// The packets of an Ethernet capture, or why it cannot be read.
pub(super) fn steps(path: &Path) -> Result<Vec<Step>, String> {
    let mut reader = CaptureReader::open(path).map_err(|error| error.to_string())?;
    let (mut frame, mut steps, mut latest_ns) = (Vec::new(), Vec::new(), None);
    while let Some(packet) = reader.next(&mut frame).map_err(|error| error.to_string())? {
        let before = latest_ns.unwrap_or(packet.timestamp_ns);
        latest_ns = Some(packet.timestamp_ns.max(before));
        steps.push(Step {
            passed_us: packet.timestamp_ns.saturating_sub(before) / 1_000,
            frame: frame.clone(),
        });
    }
    Ok(steps)
}
