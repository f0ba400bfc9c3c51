//! The frames of joining, leaving and closing.
//!
//! ```text
//! join          := incarnation:u64                              kind 8   the sender has joined no snapshot yet
//! join-confirm  := member incarnation:u64 head                  kind 9   that member is sent all that follows this head
//! join-vector   := count held*count                             kind 10  what the sender holds of ended incarnations; beside the
//!                                                                        end of a snapshot: what the snapshot contains
//! leave         := head                                         kind 11  the sender commits nothing beyond
//! leave-confirm := member applied                               kind 12  not acted on: acknowledgements say it
//! close         := held                                         kind 13  as kind 10, and the sender wants an answer
//! held          := member incarnation:u64 prefix flags:u8 count member*count
//! ```
//!
//! Flags: bit 0, something is held that the prefix does not say; bit 1, the incarnation was closed in an earlier epoch. The members
//! are those whose holdings the sender's contains.

use crate::envelope::{
    KIND_CLOSE, KIND_JOIN, KIND_JOIN_CONFIRM, KIND_JOIN_VECTOR, KIND_LEAVE, KIND_LEAVE_CONFIRM,
    Reader, write_varint,
};
use crate::{Incarnation, MemberId};

use super::index::MEMBERS_MAX;

/// A frame of joining, leaving or closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipFrame {
    Join {
        incarnation: Incarnation,
    },
    JoinConfirm {
        member: MemberId,
        incarnation: Incarnation,
        head: u64,
    },
    JoinVector {
        held: Vec<Held>,
    },
    Leave {
        head: u64,
    },
    LeaveConfirm {
        member: MemberId,
        applied: u64,
    },
    Close {
        held: Held,
    },
}

/// What the sender holds of the stream of an incarnation that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) member: MemberId,
    pub(crate) incarnation: Incarnation,
    /// Everything up to here, when the epoch began.
    pub(crate) prefix: u64,
    /// And something above a gap, or part of a snapshot.
    pub(crate) loose: bool,
    /// It was closed in an earlier epoch.
    pub(crate) settled: bool,
    /// Whose holdings this one contains.
    pub(crate) of: Vec<MemberId>,
}

impl MembershipFrame {
    /// Reads a body of one of these kinds. `None` when it is malformed. What it allocates is bounded by the body.
    pub(crate) fn read(kind: u8, body: &[u8]) -> Option<MembershipFrame> {
        let mut reader = Reader::new(body);
        let read = match kind {
            KIND_JOIN => MembershipFrame::Join {
                incarnation: Incarnation(reader.fixed_u64()?),
            },
            KIND_JOIN_CONFIRM => MembershipFrame::JoinConfirm {
                member: reader.member()?,
                incarnation: Incarnation(reader.fixed_u64()?),
                head: reader.sequence()?,
            },
            KIND_JOIN_VECTOR => {
                let count = reader.varint()?;
                let mut held = Vec::new();
                for _ in 0..count {
                    held.push(Held::read(&mut reader)?);
                }
                MembershipFrame::JoinVector { held }
            }
            KIND_LEAVE => MembershipFrame::Leave {
                head: reader.sequence()?,
            },
            KIND_LEAVE_CONFIRM => MembershipFrame::LeaveConfirm {
                member: reader.member()?,
                applied: reader.sequence()?,
            },
            KIND_CLOSE => MembershipFrame::Close {
                held: Held::read(&mut reader)?,
            },
            _ => return None,
        };
        reader.is_empty().then_some(read)
    }

    /// The kind of its frame.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            MembershipFrame::Join { .. } => KIND_JOIN,
            MembershipFrame::JoinConfirm { .. } => KIND_JOIN_CONFIRM,
            MembershipFrame::JoinVector { .. } => KIND_JOIN_VECTOR,
            MembershipFrame::Leave { .. } => KIND_LEAVE,
            MembershipFrame::LeaveConfirm { .. } => KIND_LEAVE_CONFIRM,
            MembershipFrame::Close { .. } => KIND_CLOSE,
        }
    }

    /// Appends the body.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            MembershipFrame::Join { incarnation } => {
                out.extend_from_slice(&incarnation.0.to_le_bytes())
            }
            MembershipFrame::JoinConfirm {
                member,
                incarnation,
                head,
            } => {
                write_varint(out, u64::from(member.0));
                out.extend_from_slice(&incarnation.0.to_le_bytes());
                write_varint(out, *head);
            }
            MembershipFrame::JoinVector { held } => {
                write_varint(out, held.len() as u64);
                held.iter().for_each(|held| held.write(out));
            }
            MembershipFrame::Leave { head } => write_varint(out, *head),
            MembershipFrame::LeaveConfirm { member, applied } => {
                write_varint(out, u64::from(member.0));
                write_varint(out, *applied);
            }
            MembershipFrame::Close { held } => held.write(out),
        }
    }
}

const LOOSE: u8 = 1;
const SETTLED: u8 = 2;

impl Held {
    fn read(reader: &mut Reader<'_>) -> Option<Held> {
        let member = reader.member()?;
        let incarnation = Incarnation(reader.fixed_u64()?);
        let prefix = reader.sequence()?;
        let flags = reader.byte()?;
        let count = reader.length().filter(|&count| count <= MEMBERS_MAX)?;
        let of = (0..count).map(|_| reader.member()).collect::<Option<_>>()?;
        Some(Held {
            member,
            incarnation,
            prefix,
            loose: flags & LOOSE != 0,
            settled: flags & SETTLED != 0,
            of,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.member.0));
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        write_varint(out, self.prefix);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(flag(self.loose, LOOSE) | flag(self.settled, SETTLED));
        write_varint(out, self.of.len() as u64);
        for member in &self.of {
            write_varint(out, u64::from(member.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_frames_round_trip_and_refuse_cuts() {
        let held = Held {
            member: MemberId(300),
            incarnation: Incarnation(u64::MAX),
            prefix: 70_000,
            loose: true,
            settled: false,
            of: vec![MemberId(1), MemberId(300)],
        };
        let frames = [
            MembershipFrame::Join {
                incarnation: Incarnation(5),
            },
            MembershipFrame::JoinConfirm {
                member: MemberId(2),
                incarnation: Incarnation(5),
                head: 900,
            },
            MembershipFrame::JoinVector {
                held: vec![held.clone(), held.clone()],
            },
            MembershipFrame::Leave { head: 12 },
            MembershipFrame::LeaveConfirm {
                member: MemberId(2),
                applied: 12,
            },
            MembershipFrame::Close { held },
        ];
        for frame in frames {
            let mut body = Vec::new();
            frame.write(&mut body);
            assert_eq!(
                MembershipFrame::read(frame.kind(), &body),
                Some(frame.clone())
            );
            for cut in 0..body.len() {
                assert_eq!(
                    MembershipFrame::read(frame.kind(), &body[..cut]),
                    None,
                    "{frame:?} cut at {cut}"
                );
            }
            body.push(0);
            assert_eq!(
                MembershipFrame::read(frame.kind(), &body),
                None,
                "{frame:?} with a byte more"
            );
        }
    }

    #[test]
    fn golden_close() {
        let held = Held {
            member: MemberId(1),
            incarnation: Incarnation(2),
            prefix: 3,
            loose: true,
            settled: true,
            of: vec![MemberId(5)],
        };
        let mut body = Vec::new();
        MembershipFrame::Close { held }.write(&mut body);
        assert_eq!(body, [1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 3, 1, 5]);
    }
}
