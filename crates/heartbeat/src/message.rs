//! The messages: what a host says, what an orchestrator answers, and their bytes.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use asterism_epochs::Process;

/// Bytes of a host's name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// Places of a cluster at most: a bit each in [`Heartbeat::silent`].
pub const PLACES_MAX: usize = 64;
/// Bytes of a tenant's name at most.
pub const TENANT_BYTES_MAX: usize = 63;
/// Tenants whose usage one heartbeat has at most; further ones follow in the next, in turn.
pub const USAGE_AT_ONCE: usize = 8;
/// Bytes of a heartbeat's message at most.
pub(crate) const HOST_MESSAGE_BYTES_MAX: usize =
    124 + NAME_BYTES_MAX + USAGE_AT_ONCE * (33 + TENANT_BYTES_MAX) + 18;
/// Bytes of an epoch's text in one reply: a datagram with it fits the least MTU of IPv6 (1,280 bytes, RFC 8200 section 5).
pub(crate) const PART_BYTES: usize = 1_024;
/// What follows in a reply.
const NOTHING: u8 = 0;
const PART: u8 = 1;
const REFUSED: u8 = 2;

/// How far a host's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits until an epoch names an incarnation for it.
    Awaiting,
    /// It has begun this incarnation, and does not have the others' state yet.
    Joining(u64),
    /// It has joined and reads packets.
    Serving(u64),
    /// It reads no more packets, and ends once the others have all that it wrote.
    Leaving(u64),
    /// Its last message: it has stopped reading packets and granting ports for good.
    Ended(u64),
}

impl Stage {
    /// The incarnation that has begun, if one has.
    #[must_use]
    pub fn incarnation(self) -> Option<u64> {
        match self {
            Stage::Awaiting => None,
            Stage::Joining(incarnation)
            | Stage::Serving(incarnation)
            | Stage::Leaving(incarnation)
            | Stage::Ended(incarnation) => Some(incarnation),
        }
    }

    fn code(self) -> u8 {
        match self {
            Stage::Awaiting => 0,
            Stage::Joining(_) => 1,
            Stage::Serving(_) => 2,
            Stage::Leaving(_) => 3,
            Stage::Ended(_) => 4,
        }
    }

    fn of(code: u8, incarnation: u64) -> Option<Stage> {
        Some(match code {
            0 if incarnation == 0 => Stage::Awaiting,
            1 => Stage::Joining(incarnation),
            2 => Stage::Serving(incarnation),
            3 => Stage::Leaving(incarnation),
            4 => Stage::Ended(incarnation),
            _ => return None,
        })
    }
}

/// What a host carries. Totals count from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Packets received by all ports, in all.
    pub packets: u64,
    /// Their bytes, in all.
    pub bytes: u64,
    /// Packets dropped for any reason, in all.
    pub dropped: u64,
    /// Entries of its largest table now: its flows, where the function follows flows.
    pub flows: u64,
    /// The state channel's lag: how long the oldest update has waited for an acknowledgement, in microseconds.
    pub lag_us: u32,
    /// Packets that wait for a late answer now.
    pub parked: u32,
    /// Processor time of the process over the time of its packet loops, in thousandths; 1,000 at most, and always where loops spin.
    pub busy_permille: u16,
}

/// Why a host that registers gets no place. It stays as it is, and asks again with each heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegistrationRefused {
    /// Every place has a host.
    NoFreePlace,
    /// A process of this name may still run elsewhere.
    NameInUse,
    /// A member is at this address.
    AddressInUse,
    /// The name or the address is none that a host can have.
    Invalid,
}

impl RegistrationRefused {
    /// The word for logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RegistrationRefused::NoFreePlace => "no-free-place",
            RegistrationRefused::NameInUse => "name-in-use",
            RegistrationRefused::AddressInUse => "address-in-use",
            RegistrationRefused::Invalid => "invalid",
        }
    }

    /// What an operator can do.
    #[must_use]
    pub fn cure(self) -> &'static str {
        match self {
            RegistrationRefused::NoFreePlace => {
                "have a host forgotten that is gone for good (`asterism hosts forget`), or give the cluster more places"
            }
            RegistrationRefused::NameInUse => {
                "give this host another name; or make sure that no other process runs under it, and declare so (`asterism hosts fence`)"
            }
            RegistrationRefused::AddressInUse => {
                "give this host another address; or have the host forgotten that had this one and is gone for good"
            }
            RegistrationRefused::Invalid => {
                "give it another name in [host], and an address that other hosts reach, of the family of theirs"
            }
        }
    }

    fn code(self) -> u8 {
        match self {
            RegistrationRefused::NoFreePlace => 1,
            RegistrationRefused::NameInUse => 2,
            RegistrationRefused::AddressInUse => 3,
            RegistrationRefused::Invalid => 4,
        }
    }

    fn of(code: u8) -> Option<RegistrationRefused> {
        let all = [
            RegistrationRefused::NoFreePlace,
            RegistrationRefused::NameInUse,
            RegistrationRefused::AddressInUse,
            RegistrationRefused::Invalid,
        ];
        all.into_iter().find(|one| one.code() == code)
    }
}

impl core::fmt::Display for RegistrationRefused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            RegistrationRefused::NoFreePlace => "every place of the cluster has a host",
            RegistrationRefused::NameInUse => {
                "a process of this name may still run elsewhere: nothing proves that it has ended"
            }
            RegistrationRefused::AddressInUse => "a member is at this address",
            RegistrationRefused::Invalid => "no host can have this name or this address",
        })
    }
}

/// What a host did for one tenant since its process began. Each of the counts only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// The tenant: 1 to [`TENANT_BYTES_MAX`] bytes.
    pub tenant: String,
    /// Packets from its addresses and to them.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Flows that began.
    pub flows: u64,
    /// Time in which instances ran for it, in milliseconds, summed over instances.
    pub instance_ms: u64,
}

/// A host's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The host's name: 1 to [`NAME_BYTES_MAX`] bytes.
    pub host: String,
    /// In a cluster that lists no members, the address of the host's state channel: so a host registers.
    pub address: Option<SocketAddr>,
    /// Its process.
    pub process: Process,
    /// How far it is.
    pub stage: Stage,
    /// The epoch that it has in force, or, while it waits, the last one that it was handed; 0 for none.
    pub epoch: u32,
    /// The members of its epoch that its state channel has not received for longer than its `silent_after`: a bit for each place, in
    /// the order of the cluster's list.
    pub silent: u64,
    /// Whether its auditor finds no difference to any member.
    pub digests_agree: bool,
    /// The number under which a launcher started the process; 0: none did.
    pub launch: u64,
    /// What it carries.
    pub load: Load,
    /// What it did for tenants. A host posts that of all of them; an orchestrator receives that of [`USAGE_AT_ONCE`] at a time.
    pub usage: Arc<[TenantUsage]>,
}

/// The leading orchestrator, as a host hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderHeard {
    /// The last term in which an orchestrator that answered said it leads; more than 0.
    pub term: u64,
    /// How long ago the last such answer came, but no longer than the heartbeats to it since then take: a host that stood still missed
    /// nothing. In whole milliseconds, 65,535 at most.
    pub silence: Duration,
}

/// A heartbeat with what is around it on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostMessage {
    /// The orchestrator's challenge; zeros if none is known.
    pub(crate) challenge: [u8; 16],
    pub(crate) heartbeat: Heartbeat,
    /// The epoch and the offset of the part that it wants next.
    pub(crate) wants: Option<(u32, u32)>,
    pub(crate) leader: Option<LeaderHeard>,
}

/// An orchestrator's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// What the next heartbeats are to echo.
    pub(crate) challenge: [u8; 16],
    /// The salt and the sequence number of the heartbeat that it answers.
    pub(crate) salt: [u8; 16],
    pub(crate) sequence: u64,
    /// The heartbeat was not believed, since its challenge is not one of the last two.
    pub(crate) is_stale: bool,
    /// The term in which the orchestrator leads.
    pub(crate) leads: Option<u64>,
    pub(crate) part: Option<Part>,
    /// Why the host gets no place; only without a part.
    pub(crate) refused: Option<RegistrationRefused>,
}

/// A part of an epoch's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) epoch: u32,
    /// Bytes of the whole text.
    pub(crate) total: u32,
    /// The first half of the text's SHA-256.
    pub(crate) digest: [u8; 16],
    pub(crate) offset: u32,
    /// At most [`PART_BYTES`].
    pub(crate) bytes: Vec<u8>,
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

    /// A name of 1 to so many bytes.
    fn name(&mut self, most: usize) -> Option<String> {
        let length = usize::from(self.u8()?);
        if !(1..=most).contains(&length) {
            return None;
        }
        let name = core::str::from_utf8(self.bytes(length)?).ok()?;
        Some(name.to_owned())
    }

    fn end<T>(self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

/// Appends a name's length and the name, cut after so many bytes.
fn encode_name(name: &str, most: usize, out: &mut Vec<u8>) {
    let name = &name.as_bytes()[..name.len().min(most)];
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

impl HostMessage {
    /// Appends the message's bytes: 124 and the name, for each tenant of the usage 33 and its name, and 18 for an address. A name that is
    /// too long is cut; usage beyond [`USAGE_AT_ONCE`] is left out.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Heartbeat {
            host,
            address,
            process,
            stage,
            epoch,
            silent,
            digests_agree,
            launch,
            load,
            usage,
        } = &self.heartbeat;
        let (wanted_epoch, wanted_offset) = self.wants.unwrap_or_default();
        out.extend_from_slice(&self.challenge);
        out.extend_from_slice(&process.folder.to_le_bytes());
        out.extend_from_slice(&process.start.to_le_bytes());
        out.push(stage.code());
        out.extend_from_slice(&stage.incarnation().unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&epoch.to_le_bytes());
        out.extend_from_slice(&silent.to_le_bytes());
        out.push(u8::from(*digests_agree));
        out.extend_from_slice(&launch.to_le_bytes());
        for total in [load.packets, load.bytes, load.dropped, load.flows] {
            out.extend_from_slice(&total.to_le_bytes());
        }
        out.extend_from_slice(&load.lag_us.to_le_bytes());
        out.extend_from_slice(&load.parked.to_le_bytes());
        out.extend_from_slice(&load.busy_permille.to_le_bytes());
        out.extend_from_slice(&wanted_epoch.to_le_bytes());
        out.extend_from_slice(&wanted_offset.to_le_bytes());
        let (term, silence) = self
            .leader
            .map_or((0, Duration::ZERO), |leader| (leader.term, leader.silence));
        let silence_ms = silence.as_millis().min(u128::from(u16::MAX)) as u16;
        out.extend_from_slice(&term.to_le_bytes());
        out.extend_from_slice(&silence_ms.to_le_bytes());
        encode_name(host, NAME_BYTES_MAX, out);
        let usage = &usage[..usage.len().min(USAGE_AT_ONCE)];
        out.push(usage.len() as u8);
        for one in usage {
            encode_name(&one.tenant, TENANT_BYTES_MAX, out);
            for count in [one.packets, one.bytes, one.flows, one.instance_ms] {
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
        if let Some(address) = address {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&address.port().to_le_bytes());
        }
    }

    /// Reads a message; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<HostMessage> {
        let mut fields = Fields(bytes);
        let challenge = fields.array()?;
        let process = Process {
            folder: fields.u64()?,
            start: fields.u64().filter(|start| *start > 0)?,
        };
        let stage = Stage::of(fields.u8()?, fields.u64()?)?;
        let (epoch, silent) = (fields.u32()?, fields.u64()?);
        let (digests_agree, launch) = (fields.flag()?, fields.u64()?);
        let load = Load {
            packets: fields.u64()?,
            bytes: fields.u64()?,
            dropped: fields.u64()?,
            flows: fields.u64()?,
            lag_us: fields.u32()?,
            parked: fields.u32()?,
            busy_permille: fields.u16()?,
        };
        let wants = Some((fields.u32()?, fields.u32()?)).filter(|(epoch, _)| *epoch > 0);
        let (term, silence_ms) = (fields.u64()?, fields.u16()?);
        let leader = (term > 0).then_some(LeaderHeard {
            term,
            silence: Duration::from_millis(silence_ms.into()),
        });
        let host = fields.name(NAME_BYTES_MAX)?;
        let count = usize::from(fields.u8()?);
        if count > USAGE_AT_ONCE {
            return None;
        }
        let mut usage = Vec::with_capacity(count);
        for _ in 0..count {
            usage.push(TenantUsage {
                tenant: fields.name(TENANT_BYTES_MAX)?,
                packets: fields.u64()?,
                bytes: fields.u64()?,
                flows: fields.u64()?,
                instance_ms: fields.u64()?,
            });
        }
        let mut address = None;
        if !fields.0.is_empty() {
            let ip = IpAddr::from(fields.array::<16>()?).to_canonical();
            address = Some(SocketAddr::new(ip, fields.u16()?));
        }
        fields.end(HostMessage {
            challenge,
            heartbeat: Heartbeat {
                host,
                address,
                process,
                stage,
                epoch,
                silent,
                digests_agree,
                launch,
                load,
                usage: usage.into(),
            },
            wants,
            leader,
        })
    }
}

impl Reply {
    /// Appends the reply's bytes: 50, and one more with a reason, or 31 more with a part, and the part.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.challenge);
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.push(u8::from(self.is_stale));
        out.extend_from_slice(&self.leads.unwrap_or(0).to_le_bytes());
        out.push(match (&self.part, self.refused) {
            (Some(_), _) => PART,
            (None, Some(_)) => REFUSED,
            (None, None) => NOTHING,
        });
        if let (None, Some(refused)) = (&self.part, self.refused) {
            out.push(refused.code());
        }
        if let Some(part) = &self.part {
            out.extend_from_slice(&part.epoch.to_le_bytes());
            out.extend_from_slice(&part.total.to_le_bytes());
            out.extend_from_slice(&part.digest);
            out.extend_from_slice(&part.offset.to_le_bytes());
            out.extend_from_slice(&part.bytes);
        }
    }

    /// Reads a reply; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut fields = Fields(bytes);
        let (challenge, salt) = (fields.array()?, fields.array()?);
        let (sequence, is_stale) = (fields.u64()?, fields.flag()?);
        let leads = Some(fields.u64()?).filter(|term| *term > 0);
        let (mut part, mut refused) = (None, None);
        let follows = fields.u8()?;
        if follows == REFUSED {
            refused = Some(RegistrationRefused::of(fields.u8()?)?);
        } else if follows == PART {
            let (epoch, total) = (fields.u32()?, fields.u32()?);
            let (digest, offset) = (fields.array()?, fields.u32()?);
            let bytes = core::mem::take(&mut fields.0);
            if epoch == 0 || bytes.is_empty() || bytes.len() > PART_BYTES {
                return None;
            }
            part = Some(Part {
                epoch,
                total,
                digest,
                offset,
                bytes: bytes.to_vec(),
            });
        } else if follows != NOTHING {
            return None;
        }
        fields.end(Reply {
            challenge,
            salt,
            sequence,
            is_stale,
            leads,
            part,
            refused,
        })
    }
}
