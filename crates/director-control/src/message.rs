//! The messages: what an orchestrator wants, what a director answers, and their bytes. Numbers are little-endian.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use asterism_secure_channel::MESSAGE_BYTES_MAX;
use ring::digest::{SHA256, digest};

use crate::counts::{self, CountsPart};
use crate::fields::Fields;
use crate::moves::{self, MovesPart};

/// The first byte of every message. Messages of another version are refused.
pub const VERSION: u8 = 2;

/// Targets of a desired state, and hosts of a status, at most.
pub const TARGETS_MAX: usize = 64;
/// Bytes of the reason of a refusal at most.
pub const REASON_BYTES_MAX: usize = 200;
/// Bytes of a command before its targets, and of a target.
const COMMAND_BYTES: usize = 1 + 16 + 1 + 8 + 1;
const TARGET_BYTES: usize = 8 + 2 + 1;
/// Bytes of an answer before its outcome, and of an answer with a status before its targets.
const REPLY_BYTES: usize = 1 + 16 + 8 + 16 + 1;
const ANSWER_BYTES: usize =
    REPLY_BYTES + 1 + REASON_BYTES_MAX + 1 + 8 + 1 + 8 + 8 + 2 + 16 + 3 * 8 + 1;
const _: () = assert!(COMMAND_BYTES + TARGETS_MAX * TARGET_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES + TARGETS_MAX * TARGET_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(COMMAND_BYTES + moves::PART_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(REPLY_BYTES + moves::PART_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(REPLY_BYTES + counts::PART_BYTES <= MESSAGE_BYTES_MAX);

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
    /// Take this set of moved buckets in the place of the one before, once all of its parts have come.
    Move {
        /// The desired state in which they are moved: refused in every other one.
        generation: u64,
        /// A part of the set.
        part: MovesPart,
    },
    /// Answer with a part of the set of moved buckets.
    Moved {
        /// Its number.
        part: u16,
    },
    /// Send both directions of a flow to a host, until it idles.
    MoveFlow {
        /// As of [`Request::Move`].
        generation: u64,
        /// The flow.
        flow: Flow,
        /// Its host.
        to: HostNumber,
        /// How long it may idle.
        idle_ms: u32,
    },
    /// Let the packets of a bucket or a flow wait.
    Suspend {
        /// As of [`Request::Move`].
        generation: u64,
        /// What waits.
        what: Suspended,
    },
    /// Let them go on: those of a bucket to the host that has it.
    Resume {
        /// As of [`Request::Move`].
        generation: u64,
        /// What waits.
        what: Suspended,
        /// The host of a flow; of a bucket none.
        to: Option<HostNumber>,
    },
    /// Answer with the packets of buckets. With a number that is not the last one, they are counted from zero on from then.
    Counts {
        /// All parts of one taking have it in common.
        number: u64,
        /// The first bucket of the part. Only the first part begins a taking.
        from: u32,
    },
}

/// Both directions of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// One end.
    pub one: SocketAddr,
    /// The other end, of the same kind of address.
    pub other: SocketAddr,
    /// The IP protocol.
    pub protocol: u8,
}

/// What can be suspended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suspended {
    /// A bucket.
    Bucket(u32),
    /// A flow.
    Flow(Flow),
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
    /// The director as it is now; not beside parts of counts and moves, for which it leaves no room.
    pub status: Option<Status>,
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
    /// Packets of buckets.
    Counts(CountsPart),
    /// Moved buckets.
    Moved(MovesPart),
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
    /// It does not have the desired state of the request: apply that first. Nothing was changed.
    LacksState {
        /// The number of the one that it has in force; `None`: none.
        known: Option<u64>,
    },
    /// There is no such bucket, or no such part. Nothing was changed.
    NoBucket {
        /// How many buckets there are.
        buckets: u32,
    },
    /// A part before this one has not come: begin with the first one. Nothing was changed.
    OutOfOrder,
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
    /// The digest of its table: two directors with one desired state and the same moves have the same.
    pub table: u64,
    /// The digest of its moved buckets; 0: none is moved.
    pub moves: u64,
    /// How much of the flow space goes to no host, in thousandths.
    pub elsewhere_permille: u16,
    /// Packets handed to hosts since its start.
    pub forwarded: u64,
    /// Frames dropped since its start.
    pub dropped: u64,
    /// Commands that it refused to read since its start.
    pub refused: RefusedDatagrams,
    /// The hosts that it knows, at most [`TARGETS_MAX`]; more are cut.
    pub targets: Vec<TargetStatus>,
}

/// Datagrams that were not taken, by the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedDatagrams {
    /// Not sealed under a key of the cluster, or no envelope at all.
    pub not_sealed: u64,
    /// No command of this version.
    pub malformed: u64,
    /// A command that came before, or after a later one.
    pub repeated: u64,
}

impl RefusedDatagrams {
    /// All of them, each with the name of its reason.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [
            ("not-sealed", self.not_sealed),
            ("malformed", self.malformed),
            ("repeated", self.repeated),
        ]
    }
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

/// A list of targets: eight bytes, two and a flag each.
fn read_targets<T>(
    fields: &mut Fields<'_>,
    make: impl Fn(HostNumber, u16, bool) -> T,
) -> Option<Vec<T>> {
    let count = usize::from(fields.u8()?);
    if count > TARGETS_MAX {
        return None;
    }
    let target = |_| {
        let host = HostNumber(fields.u64()?);
        Some(make(host, fields.u16()?, fields.flag()?))
    };
    (0..count).map(target).collect()
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

impl Flow {
    fn encode(&self, out: &mut Vec<u8>) {
        // Ends of different kinds are no flow, and are read as none.
        out.push(u8::from(self.one.is_ipv6()));
        for end in [self.one, self.other] {
            match end.ip() {
                IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
            out.extend_from_slice(&end.port().to_le_bytes());
        }
        out.push(self.protocol);
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Flow> {
        let is_ipv6 = fields.flag()?;
        let mut end = || {
            let address: IpAddr = match is_ipv6 {
                true => Ipv6Addr::from(fields.array::<16>()?).into(),
                false => Ipv4Addr::from(fields.array::<4>()?).into(),
            };
            Some(SocketAddr::new(address, fields.u16()?))
        };
        Some(Flow {
            one: end()?,
            other: end()?,
            protocol: fields.u8()?,
        })
    }
}

impl Suspended {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Suspended::Bucket(bucket) => {
                out.push(0);
                out.extend_from_slice(&bucket.to_le_bytes());
            }
            Suspended::Flow(flow) => {
                out.push(1);
                flow.encode(out);
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Suspended> {
        Some(match fields.flag()? {
            false => Suspended::Bucket(fields.u32()?),
            true => Suspended::Flow(Flow::decode(fields)?),
        })
    }
}

impl Request {
    fn encode(&self, out: &mut Vec<u8>) {
        let begin = |out: &mut Vec<u8>, code: u8, generation: u64| {
            out.push(code);
            out.extend_from_slice(&generation.to_le_bytes());
        };
        match self {
            Request::Query => out.push(0),
            Request::Apply {
                generation,
                targets,
            } => {
                begin(out, 1, *generation);
                let target = |one: &DesiredTarget| (one.host, one.weight, one.drains);
                let targets: Vec<_> = targets.iter().map(target).collect();
                write_targets(out, &targets);
            }
            Request::Move { generation, part } => {
                begin(out, 2, *generation);
                part.encode(out);
            }
            Request::Moved { part } => {
                out.push(3);
                out.extend_from_slice(&part.to_le_bytes());
            }
            Request::MoveFlow {
                generation,
                flow,
                to,
                idle_ms,
            } => {
                begin(out, 4, *generation);
                flow.encode(out);
                out.extend_from_slice(&to.0.to_le_bytes());
                out.extend_from_slice(&idle_ms.to_le_bytes());
            }
            Request::Suspend { generation, what } => {
                begin(out, 5, *generation);
                what.encode(out);
            }
            Request::Resume {
                generation,
                what,
                to,
            } => {
                begin(out, 6, *generation);
                what.encode(out);
                write_option(out, to.map(|host| host.0));
            }
            Request::Counts { number, from } => {
                begin(out, 7, *number);
                out.extend_from_slice(&from.to_le_bytes());
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Request> {
        Some(match fields.u8()? {
            0 => Request::Query,
            1 => Request::Apply {
                generation: fields.u64()?,
                targets: read_targets(fields, |host, weight, drains| DesiredTarget {
                    host,
                    weight,
                    drains,
                })?,
            },
            2 => Request::Move {
                generation: fields.u64()?,
                part: MovesPart::decode(fields)?,
            },
            3 => Request::Moved {
                part: fields.u16()?,
            },
            4 => Request::MoveFlow {
                generation: fields.u64()?,
                flow: Flow::decode(fields)?,
                to: HostNumber(fields.u64()?),
                idle_ms: fields.u32()?,
            },
            5 => Request::Suspend {
                generation: fields.u64()?,
                what: Suspended::decode(fields)?,
            },
            6 => Request::Resume {
                generation: fields.u64()?,
                what: Suspended::decode(fields)?,
                to: read_option(fields)?.map(HostNumber),
            },
            7 => Request::Counts {
                number: fields.u64()?,
                from: fields.u32()?,
            },
            _ => return None,
        })
    }
}

/// Whether there is a number, and the number; zeros where there is none.
fn write_option(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    out.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
}

fn read_option(fields: &mut Fields<'_>) -> Option<Option<u64>> {
    let (is_some, number) = (fields.flag()?, fields.u64()?);
    match (is_some, number) {
        (true, number) => Some(Some(number)),
        (false, 0) => Some(None),
        (false, _) => None,
    }
}

impl Command {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.challenge);
        self.request.encode(out);
    }

    /// Reads a command; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Command> {
        let mut fields = Fields(bytes);
        if fields.u8()? != VERSION {
            return None;
        }
        let challenge = fields.array()?;
        let request = Request::decode(&mut fields)?;
        fields.end(Command { challenge, request })
    }
}

/// Codes of outcomes that stand without a status.
const COUNTS: u8 = 16;
const MOVED: u8 = 17;

impl Reply {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
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
            Outcome::Counts(part) => {
                out.push(COUNTS);
                part.encode(out);
            }
            Outcome::Moved(part) => {
                out.push(MOVED);
                part.encode(out);
            }
        }
        if !matches!(outcome, Outcome::Counts(_) | Outcome::Moved(_)) {
            status.clone().unwrap_or_default().encode(out);
        }
    }

    /// Reads an answer; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut fields = Fields(bytes);
        if fields.u8()? != VERSION {
            return None;
        }
        let (salt, sequence, challenge) = (fields.array()?, fields.u64()?, fields.array()?);
        let answer = match fields.u8()? {
            0 => None,
            COUNTS => Some(Answer {
                outcome: Outcome::Counts(CountsPart::decode(&mut fields)?),
                status: None,
            }),
            MOVED => Some(Answer {
                outcome: Outcome::Moved(MovesPart::decode(&mut fields)?),
                status: None,
            }),
            code => Some(Answer {
                outcome: match code {
                    1 => Outcome::Done {
                        changed: fields.u32()?,
                        moved_permille: fields.u16()?,
                    },
                    code => Outcome::Refused(RefusedCommand::decode(code, &mut fields)?),
                },
                status: Some(Status::decode(&mut fields)?),
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
            RefusedCommand::LacksState { known } => {
                out.push(6);
                write_option(out, *known);
            }
            RefusedCommand::NoBucket { buckets } => {
                out.push(7);
                out.extend_from_slice(&buckets.to_le_bytes());
            }
            RefusedCommand::OutOfOrder => out.push(8),
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
            6 => RefusedCommand::LacksState {
                known: read_option(fields)?,
            },
            7 => RefusedCommand::NoBucket {
                buckets: fields.u32()?,
            },
            8 => RefusedCommand::OutOfOrder,
            _ => return None,
        })
    }
}

impl Status {
    fn encode(&self, out: &mut Vec<u8>) {
        write_option(out, self.generation);
        out.push(u8::from(self.is_active) | u8::from(self.hears_other) << 1);
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.moves.to_le_bytes());
        out.extend_from_slice(&self.elsewhere_permille.to_le_bytes());
        out.extend_from_slice(&self.forwarded.to_le_bytes());
        out.extend_from_slice(&self.dropped.to_le_bytes());
        for (_, count) in self.refused.by_reason() {
            out.extend_from_slice(&count.to_le_bytes());
        }
        let target = |one: &TargetStatus| (one.host, one.share_permille, one.is_reachable);
        let targets: Vec<_> = self.targets.iter().map(target).collect();
        write_targets(out, &targets);
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Status> {
        let generation = read_option(fields)?;
        let flags = fields.u8().filter(|flags| *flags < 4)?;
        Some(Status {
            generation,
            is_active: flags & 1 != 0,
            hears_other: flags & 2 != 0,
            table: fields.u64()?,
            moves: fields.u64()?,
            elsewhere_permille: fields.u16()?,
            forwarded: fields.u64()?,
            dropped: fields.u64()?,
            refused: RefusedDatagrams {
                not_sealed: fields.u64()?,
                malformed: fields.u64()?,
                repeated: fields.u64()?,
            },
            targets: read_targets(fields, |host, share_permille, is_reachable| TargetStatus {
                host,
                share_permille,
                is_reachable,
            })?,
        })
    }
}
