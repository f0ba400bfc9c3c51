//! How a host's auditor reads the tables of its instances, and what it finds.

use asterism_placement::replicated::audit::{
    AuditEvent, Auditor, LEAVES, Leaf, Leaves, Place, SEGMENT_LEAVES, UNSURE,
};

use super::{ChannelEvent, StateChannel};
use crate::exchange::Down;

const _: () = assert!(
    LEAVES == asterism_state::audit::LEAVES && UNSURE == asterism_state::audit::UNSURE,
    "auditors compare the leaves that objects keep"
);

impl StateChannel {
    /// Has instances read what is due, right after the groups that they got, and reports what was found.
    pub(super) fn handle_audit(&mut self, event: AuditEvent) {
        match event {
            AuditEvent::Ask(ask) => {
                let Place { object, segment } = ask.place;
                let ticket = ask.ticket;
                self.outlet.push(&Down::Audit {
                    ticket,
                    object,
                    segment,
                });
            }
            AuditEvent::Result(result) => self.note(ChannelEvent::Audit(result)),
            AuditEvent::Fault(fault) => self.note(ChannelEvent::Stream(fault)),
        }
    }

    /// Who compares this host's tables with others'.
    pub fn auditor(&self) -> &Auditor {
        &self.protocols.auditor
    }
}

/// Bytes of a leaf in a record.
const LEAF_BYTES: usize = 12;
/// Bytes of a segment's leaves.
pub(crate) const LEAVES_BYTES: usize = SEGMENT_LEAVES * LEAF_BYTES;

/// Writes leaves as [`read_leaves`] reads them.
pub(crate) fn write_leaves(leaves: &[asterism_state::audit::Leaf], out: &mut [u8; LEAVES_BYTES]) {
    for (bytes, leaf) in out.as_chunks_mut::<LEAF_BYTES>().0.iter_mut().zip(leaves) {
        bytes[..8].copy_from_slice(&leaf.digest.to_le_bytes());
        bytes[8..].copy_from_slice(&leaf.changes.to_le_bytes());
    }
}

/// The leaves in a record; `None` if the object has none.
pub(super) fn read_leaves(bytes: &[u8]) -> Option<Leaves> {
    let (leaves, rest) = bytes.as_chunks::<LEAF_BYTES>();
    let whole = leaves.len() == SEGMENT_LEAVES && rest.is_empty();
    let read = |place: usize| {
        let (digest, changes) = leaves[place].split_first_chunk()?;
        Some(Leaf {
            digest: u64::from_le_bytes(*digest),
            changes: u32::from_le_bytes(changes.try_into().ok()?),
        })
    };
    whole.then(|| core::array::from_fn(|place| read(place).unwrap_or_default()))
}
