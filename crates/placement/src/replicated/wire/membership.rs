//! The frames of joining, leaving and closing, shaped so that the formats need not change when membership comes. This
//! build reads them, counts them, and does not act.
//!
//! ```text
//! join          := incarnation:u64                              kind 8   the sender asks to be listened to
//! join-confirm  := member incarnation:u64 head                  kind 9   heard, at this log head of the sender
//! join-vector   := count stream*count                           kind 10  what a newcomer's image will cover (rule 25)
//! leave         := head                                         kind 11  the sender commits nothing beyond
//! leave-confirm := member applied                               kind 12
//! close         := stream                                       kind 13  what the sender has of a dead incarnation (rule 23)
//! stream        := member incarnation:u64 prefix pairs (missing present)*pairs
//! ```

use crate::{Incarnation, MemberId};

#[cfg(test)]
use super::write_varint;
use super::{RUNS_MAX, Reader, SEQUENCE_MAX};

/// A frame of joining, leaving or closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Join {
        incarnation: Incarnation,
    },
    JoinConfirm {
        member: MemberId,
        incarnation: Incarnation,
        head: u64,
    },
    JoinVector {
        streams: Vec<StreamSet>,
    },
    Leave {
        head: u64,
    },
    LeaveConfirm {
        member: MemberId,
        applied: u64,
    },
    Close {
        stream: StreamSet,
    },
}

/// A set of sequences of one incarnation: a prefix and runs above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSet {
    pub(crate) member: MemberId,
    pub(crate) incarnation: Incarnation,
    pub(crate) prefix: u64,
    pub(crate) runs: Vec<(u64, u64)>,
}

pub(crate) const KIND_JOIN: u8 = 8;
pub(crate) const KIND_JOIN_CONFIRM: u8 = 9;
pub(crate) const KIND_JOIN_VECTOR: u8 = 10;
pub(crate) const KIND_LEAVE: u8 = 11;
pub(crate) const KIND_LEAVE_CONFIRM: u8 = 12;
pub(crate) const KIND_CLOSE: u8 = 13;

impl Membership {
    /// Reads a body of one of these kinds. `None` when it is malformed. What it allocates is bounded by the body.
    pub(crate) fn read(kind: u8, body: &[u8]) -> Option<Membership> {
        let mut reader = Reader::new(body);
        let read = match kind {
            KIND_JOIN => Membership::Join {
                incarnation: Incarnation(reader.fixed_u64()?),
            },
            KIND_JOIN_CONFIRM => Membership::JoinConfirm {
                member: reader.member()?,
                incarnation: Incarnation(reader.fixed_u64()?),
                head: reader.sequence()?,
            },
            KIND_JOIN_VECTOR => {
                let count = reader.varint()?;
                let mut streams = Vec::new();
                for _ in 0..count {
                    streams.push(StreamSet::read(&mut reader)?);
                }
                Membership::JoinVector { streams }
            }
            KIND_LEAVE => Membership::Leave {
                head: reader.sequence()?,
            },
            KIND_LEAVE_CONFIRM => Membership::LeaveConfirm {
                member: reader.member()?,
                applied: reader.sequence()?,
            },
            KIND_CLOSE => Membership::Close {
                stream: StreamSet::read(&mut reader)?,
            },
            _ => return None,
        };
        reader.is_empty().then_some(read)
    }

    /// The kind of its frame.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Membership::Join { .. } => KIND_JOIN,
            Membership::JoinConfirm { .. } => KIND_JOIN_CONFIRM,
            Membership::JoinVector { .. } => KIND_JOIN_VECTOR,
            Membership::Leave { .. } => KIND_LEAVE,
            Membership::LeaveConfirm { .. } => KIND_LEAVE_CONFIRM,
            Membership::Close { .. } => KIND_CLOSE,
        }
    }

    /// Appends the body.
    #[cfg(test)]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Membership::Join { incarnation } => out.extend_from_slice(&incarnation.0.to_le_bytes()),
            Membership::JoinConfirm {
                member,
                incarnation,
                head,
            } => {
                write_varint(out, u64::from(member.0));
                out.extend_from_slice(&incarnation.0.to_le_bytes());
                write_varint(out, *head);
            }
            Membership::JoinVector { streams } => {
                write_varint(out, streams.len() as u64);
                streams.iter().for_each(|stream| stream.write(out));
            }
            Membership::Leave { head } => write_varint(out, *head),
            Membership::LeaveConfirm { member, applied } => {
                write_varint(out, u64::from(member.0));
                write_varint(out, *applied);
            }
            Membership::Close { stream } => stream.write(out),
        }
    }
}

impl StreamSet {
    fn read(reader: &mut Reader<'_>) -> Option<StreamSet> {
        let member = reader.member()?;
        let incarnation = Incarnation(reader.fixed_u64()?);
        let prefix = reader.sequence()?;
        let pairs = reader.length().filter(|&pairs| pairs <= RUNS_MAX)?;
        let mut runs = Vec::with_capacity(pairs);
        let mut end = prefix;
        for _ in 0..pairs {
            let (missing, present) = (reader.sequence()?, reader.sequence()?);
            if missing == 0 || present == 0 {
                return None;
            }
            let first = end + missing + 1;
            end = first + present - 1;
            if end > SEQUENCE_MAX {
                return None;
            }
            runs.push((first, end));
        }
        Some(StreamSet {
            member,
            incarnation,
            prefix,
            runs,
        })
    }

    #[cfg(test)]
    fn write(&self, out: &mut Vec<u8>) {
        write_varint(out, u64::from(self.member.0));
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        write_varint(out, self.prefix);
        write_varint(out, self.runs.len() as u64);
        let mut end = self.prefix;
        for &(first, last) in &self.runs {
            write_varint(out, first - end - 1);
            write_varint(out, last - first + 1);
            end = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_frames_round_trip_and_refuse_cuts() {
        let stream = StreamSet {
            member: MemberId(300),
            incarnation: Incarnation(u64::MAX),
            prefix: 70_000,
            runs: vec![(70_002, 70_002), (70_010, 70_500)],
        };
        let frames = [
            Membership::Join {
                incarnation: Incarnation(5),
            },
            Membership::JoinConfirm {
                member: MemberId(2),
                incarnation: Incarnation(5),
                head: 900,
            },
            Membership::JoinVector {
                streams: vec![stream.clone(), stream.clone()],
            },
            Membership::Leave { head: 12 },
            Membership::LeaveConfirm {
                member: MemberId(2),
                applied: 12,
            },
            Membership::Close { stream },
        ];
        for frame in frames {
            let mut body = Vec::new();
            frame.write(&mut body);
            assert_eq!(Membership::read(frame.kind(), &body), Some(frame.clone()));
            for cut in 0..body.len() {
                assert_eq!(
                    Membership::read(frame.kind(), &body[..cut]),
                    None,
                    "{frame:?} cut at {cut}"
                );
            }
            body.push(0);
            assert_eq!(
                Membership::read(frame.kind(), &body),
                None,
                "{frame:?} with a byte more"
            );
        }
    }

    #[test]
    fn golden_close() {
        let stream = StreamSet {
            member: MemberId(1),
            incarnation: Incarnation(2),
            prefix: 3,
            runs: vec![(5, 6)],
        };
        let mut body = Vec::new();
        Membership::Close { stream }.write(&mut body);
        assert_eq!(body, [1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 1, 1, 2]);
    }
}
