//! The messages: what an orchestrator wants, what a director answers, and their bytes. Numbers are little-endian.

use asterism_secure_channel::MESSAGE_BYTES_MAX;
use ring::digest::{SHA256, digest};

/// Targets of a desired state, and hosts of a status, at most.
pub const TARGETS_MAX: usize = 64;
/// Bytes of the reason of a refusal at most.
pub const REASON_BYTES_MAX: usize = 200;
/// Bytes of a command before its targets, and of a target.
const COMMAND_BYTES: usize = 16 + 1 + 8 + 1;
const TARGET_BYTES: usize = 8 + 2 + 1;
/// Bytes of an answer before its targets.
const ANSWER_BYTES: usize = 16 + 8 + 16 + 1 + 8 + 1 + REASON_BYTES_MAX + 1 + 8 + 1 + 8 + 2 + 16 + 1;
const _: () = assert!(COMMAND_BYTES + TARGETS_MAX * TARGET_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES + TARGETS_MAX * TARGET_BYTES <= MESSAGE_BYTES_MAX);

/// A host, by the first eight bytes of its name's SHA-256: so those of a whole cluster fit one datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostNumber(pub u64);

impl HostNumber {
    /// The number of a name.
    #[must_use]
    pub fn of(name: &str) -> HostNumber {
        let digest = digest(&SHA256, name.as_bytes());
        let first = digest.as_ref().first_chunk().copied();
        HostNumber(u64::from_le_bytes(first.unwrap_or_default()))
    }
}

/// What a director is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Nothing but to answer.
    Query,
    /// Make this desired state so.
    Apply {
        /// Its number; a director refuses one below the last.
        generation: u64,
        /// At most [`TARGETS_MAX`]; more are cut.
        targets: Vec<DesiredTarget>,
    },
}

/// A target of a desired state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesiredTarget {
    /// The host.
    pub host: HostNumber,
    /// Its weight.
    pub weight: u16,
    /// Whether it keeps its connections and gets no new ones; else it takes packets. A host that is out is not named.
    pub drains: bool,
}

/// A request with the challenge that it echoes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Command {
    pub(crate) challenge: [u8; 16],
    pub(crate) request: Request,
}

/// What a director answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What became of the request.
    pub outcome: Outcome,
    /// The director as it is now.
    pub status: Status,
}

/// An answer with what it answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    /// The salt and the number of the command.
    pub(crate) salt: [u8; 16],
    pub(crate) sequence: u64,
    /// What commands are to echo.
    pub(crate) challenge: [u8; 16],
    /// `None`: the command did not echo the challenge, and nothing was done.
    pub(crate) answer: Option<Answer>,
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is so.
    Done {
        /// How many buckets of the flow space were changed.
        changed: u32,
        /// How much of the flow space has another target, in thousandths.
        moved_permille: u16,
    },
    /// It is not.
    Refused(RefusedCommand),
}

/// Why a director did not do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefusedCommand {
    /// It has a later desired state. Nothing was changed.
    Stale {
        /// Its number.
        known: u64,
    },
    /// It had another desired state under this number. Nothing was changed.
    Contradicts,
    /// Its configuration does not know a target. Nothing was changed.
    UnknownTarget(HostNumber),
    /// Another reason, of [`REASON_BYTES_MAX`] bytes at most; more are cut. Whether anything was changed is not known.
    Failed(String),
}

/// A director as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The desired state that it has in force; `None` since its start.
    pub generation: Option<u64>,
    /// Whether it has the shared addresses.
    pub is_active: bool,
    /// Whether it receives the heartbeats of the other director.
    pub hears_other: bool,
    /// The digest of its table: two directors with one desired state have the same.
    pub table: u64,
    /// How much of the flow space goes to no host, in thousandths.
    pub elsewhere_permille: u16,
    /// Packets handed to hosts since its start.
    pub forwarded: u64,
    /// Frames dropped since its start.
    pub dropped: u64,
    /// The hosts that it knows, at most [`TARGETS_MAX`]; more are cut.
    pub targets: Vec<TargetStatus>,
}

/// A host as a director has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetStatus {
    /// The host.
    pub host: HostNumber,
    /// How much of the flow space goes to it, in thousandths.
    pub share_permille: u16,
    /// Whether its Ethernet address is known.
    pub is_reachable: bool,
}

/// Reads fields one after the other; `None` once there are too few bytes.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A list of targets: eight bytes, two and a flag each.
    fn targets<T>(&mut self, make: impl Fn(HostNumber, u16, bool) -> T) -> Option<Vec<T>> {
        let count = usize::from(self.u8()?);
        if count > TARGETS_MAX {
            return None;
        }
        let target = |_| Some(make(HostNumber(self.u64()?), self.u16()?, self.flag()?));
        (0..count).map(target).collect()
    }

    fn end<T>(self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

fn write_targets(out: &mut Vec<u8>, targets: &[(HostNumber, u16, bool)]) {
    let targets = &targets[..targets.len().min(TARGETS_MAX)];
    out.push(targets.len() as u8);
    for (host, number, flag) in targets {
        out.extend_from_slice(&host.0.to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        out.push(u8::from(*flag));
    }
}

impl Command {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.challenge);
        match &self.request {
            Request::Query => out.push(0),
            Request::Apply {
                generation,
                targets,
            } => {
                out.push(1);
                out.extend_from_slice(&generation.to_le_bytes());
                let target = |one: &DesiredTarget| (one.host, one.weight, one.drains);
                let targets: Vec<_> = targets.iter().map(target).collect();
                write_targets(out, &targets);
            }
        }
    }

    /// Reads a command; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Command> {
        let mut fields = Fields(bytes);
        let challenge = fields.array()?;
        let request = match fields.u8()? {
            0 => Request::Query,
            1 => Request::Apply {
                generation: fields.u64()?,
                targets: fields.targets(|host, weight, drains| DesiredTarget {
                    host,
                    weight,
                    drains,
                })?,
            },
            _ => return None,
        };
        fields.end(Command { challenge, request })
    }
}

impl Reply {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.challenge);
        let Some(Answer { outcome, status }) = &self.answer else {
            out.push(0);
            return;
        };
        match outcome {
            Outcome::Done {
                changed,
                moved_permille,
            } => {
                out.push(1);
                out.extend_from_slice(&changed.to_le_bytes());
                out.extend_from_slice(&moved_permille.to_le_bytes());
            }
            Outcome::Refused(refused) => refused.encode(out),
        }
        status.encode(out);
    }

    /// Reads an answer; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut fields = Fields(bytes);
        let (salt, sequence, challenge) = (fields.array()?, fields.u64()?, fields.array()?);
        let outcome = match fields.u8()? {
            0 => None,
            1 => Some(Outcome::Done {
                changed: fields.u32()?,
                moved_permille: fields.u16()?,
            }),
            code => Some(Outcome::Refused(RefusedCommand::decode(code, &mut fields)?)),
        };
        let answer = match outcome {
            None => None,
            Some(outcome) => Some(Answer {
                outcome,
                status: Status::decode(&mut fields)?,
            }),
        };
        fields.end(Reply {
            salt,
            sequence,
            challenge,
            answer,
        })
    }
}

impl RefusedCommand {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            RefusedCommand::Stale { known } => {
                out.push(2);
                out.extend_from_slice(&known.to_le_bytes());
            }
            RefusedCommand::Contradicts => out.push(3),
            RefusedCommand::UnknownTarget(host) => {
                out.push(4);
                out.extend_from_slice(&host.0.to_le_bytes());
            }
            RefusedCommand::Failed(reason) => {
                out.push(5);
                let end = reason.floor_char_boundary(REASON_BYTES_MAX);
                let reason = &reason.as_bytes()[..end];
                out.push(reason.len() as u8);
                out.extend_from_slice(reason);
            }
        }
    }

    fn decode(code: u8, fields: &mut Fields<'_>) -> Option<RefusedCommand> {
        Some(match code {
            2 => RefusedCommand::Stale {
                known: fields.u64()?,
            },
            3 => RefusedCommand::Contradicts,
            4 => RefusedCommand::UnknownTarget(HostNumber(fields.u64()?)),
            5 => {
                let length = usize::from(fields.u8()?);
                if length > REASON_BYTES_MAX {
                    return None;
                }
                let reason = core::str::from_utf8(fields.bytes(length)?).ok()?;
                RefusedCommand::Failed(reason.to_owned())
            }
            _ => return None,
        })
    }
}

impl Status {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.generation.is_some()));
        out.extend_from_slice(&self.generation.unwrap_or(0).to_le_bytes());
        out.push(u8::from(self.is_active) | u8::from(self.hears_other) << 1);
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.elsewhere_permille.to_le_bytes());
        out.extend_from_slice(&self.forwarded.to_le_bytes());
        out.extend_from_slice(&self.dropped.to_le_bytes());
        let target = |one: &TargetStatus| (one.host, one.share_permille, one.is_reachable);
        let targets: Vec<_> = self.targets.iter().map(target).collect();
        write_targets(out, &targets);
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Status> {
        let (is_known, generation) = (fields.flag()?, fields.u64()?);
        let flags = fields.u8().filter(|flags| *flags < 4)?;
        if !is_known && generation != 0 {
            return None;
        }
        Some(Status {
            generation: is_known.then_some(generation),
            is_active: flags & 1 != 0,
            hears_other: flags & 2 != 0,
            table: fields.u64()?,
            elsewhere_permille: fields.u16()?,
            forwarded: fields.u64()?,
            dropped: fields.u64()?,
            targets: fields.targets(|host, share_permille, is_reachable| TargetStatus {
                host,
                share_permille,
                is_reachable,
            })?,
        })
    }
}
