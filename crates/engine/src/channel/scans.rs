//! Snapshots for lagging_replicas on their way from the instance that scans its tables to the placement.

use std::collections::VecDeque;

use asterism_placement::replicated::{SnapshotError, SnapshotKind};
use asterism_placement::{MemberId, Time};

use super::StateChannel;
use crate::exchange::{Down, SCAN_PARTS};
use crate::mutant::{self, Mutant};

/// A scan for a member that lags: parts of its snapshot on their way from the instance to the placement.
#[derive(Debug)]
pub(super) struct SnapshotScan {
    pub(super) member: MemberId,
    pub(super) scan: u32,
    /// Parts that the placement had no room for: at most half more than [`SCAN_PARTS`].
    pub(super) parts: VecDeque<Vec<u8>>,
    /// Parts that the instance may still hand over.
    pub(super) room: u32,
    pub(super) done: bool,
}

impl StateChannel {
    /// Hands parts of snapshots on as the placement has room for them, and has instances scan on.
    pub(super) fn serve_scans(&mut self, now: Time) {
        let mut place = 0;
        while let Some(known) = self.scans.get_mut(place) {
            let (member, scan) = (known.member, known.scan);
            let mut over = false;
            while let Some(part) = known.parts.front() {
                match self
                    .protocols
                    .replicator
                    .submit_snapshot(now, member, scan, part)
                {
                    Ok(()) => {
                        known.parts.pop_front();
                    }
                    Err(SnapshotError::Busy) if mutant::active(Mutant::SnapshotPartDropped) => {
                        known.parts.pop_front();
                    }
                    Err(SnapshotError::Busy) => break,
                    // Its recipient is silent, or its incarnation ended: nobody takes more of it.
                    Err(_) => {
                        self.outlet.push(&Down::StopScan { member, scan });
                        over = true;
                        break;
                    }
                }
            }
            if known.parts.is_empty() && known.done {
                // An error says that the scan is over.
                let _ = self.protocols.replicator.finish_snapshot(
                    now,
                    member,
                    scan,
                    SnapshotKind::Full,
                );
                over = true;
            }
            if over {
                self.scans.remove(place);
                continue;
            }
            if known.parts.len() <= SCAN_PARTS as usize / 2 && known.room == 0 && !known.done {
                known.room = SCAN_PARTS;
                self.outlet.push(&Down::ScanOn { member, scan });
            }
            place += 1;
        }
    }
}

/// Takes a part from the instance. Parts of a scan that is over, or began again, are not needed.
pub(super) fn take_part(scans: &mut [SnapshotScan], of: (MemberId, u32), bytes: &[u8]) {
    if let Some(known) = find(scans, of) {
        known.room = known.room.saturating_sub(1);
        known.parts.push_back(bytes.to_vec());
    }
}

/// The instance handed over all parts of a scan.
pub(super) fn end(scans: &mut [SnapshotScan], of: (MemberId, u32)) {
    if let Some(known) = find(scans, of) {
        known.done = true;
    }
}

fn find(scans: &mut [SnapshotScan], of: (MemberId, u32)) -> Option<&mut SnapshotScan> {
    scans
        .iter_mut()
        .find(|known| (known.member, known.scan) == of)
}
