//! How two processes come to share memory: over a Unix socket, whose hang-up later tells that the other one ended.
//!
//! The one that connects says who it is (32 bytes); the one that listens makes the memory, and answers with its sizes and three
//! descriptors: the memory, and an event to wake each side.

use super::ring::Division;
use crate::frame::STRIDE_BYTES_MAX;
use crate::port::system::{self, Mapping};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// How many slots a link may have each way.
pub const SLOTS_RANGE: RangeInclusive<u32> = 64..=1 << 16;
/// How many bytes a slot may have.
pub const SLOT_BYTES_RANGE: RangeInclusive<u32> = 512..=STRIDE_BYTES_MAX as u32;
/// The first bytes of a greeting.
const MAGIC: [u8; 8] = *b"ASTRSHM\n";
/// The version of greeting and memory.
const VERSION: u32 = 1;
pub(super) const GREETING_BYTES: usize = 32;

/// A greeting: magic, version, slots, bytes of a slot, zeroes. Numbers are in the machine's byte order: both are on it.
pub(super) fn greeting(division: Division) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    for (place, number) in [VERSION, division.slots, division.slot_bytes]
        .into_iter()
        .enumerate()
    {
        bytes[8 + 4 * place..12 + 4 * place].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

/// Why two processes do not come to share memory; nothing is shared.
#[derive(Debug)]
pub enum GreetingError {
    /// The greeting is not that of a port.
    NotAPort,
    /// The peer speaks this version, and not ours.
    OtherVersion(u32),
    /// This number of slots is out of bounds.
    Slots(u32),
    /// This size of a slot is.
    SlotBytes(u32),
    /// The peer ended, or closed the socket.
    HungUp,
    /// The peer let the time for a greeting pass.
    Late,
    /// The system gave no bytes of the socket.
    NotReceived(io::Error),
    /// More descriptors came than are shared.
    TooMany,
    /// Fewer came.
    TooFew,
    /// The memory has another size than the greeting says, or is not sealed.
    WrongSize,
    /// The memory that came was not mapped.
    NotMapped(io::Error),
    /// The memory to share was not made, or not sent.
    NoMemory(io::Error),
    /// There is no way to sleep until the peer wakes this side.
    NoEvents(io::Error),
}

impl fmt::Display for GreetingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GreetingError::NotAPort => {
                f.write_str("what answers at the socket is no shared-memory port")
            }
            GreetingError::OtherVersion(version) => write!(
                f,
                "the peer speaks version {version} of shared memory, this program version {VERSION}: run the same release on both sides"
            ),
            GreetingError::Slots(slots) => write!(
                f,
                "slots is {slots}: it must be a power of two from {} to {}",
                SLOTS_RANGE.start(),
                SLOTS_RANGE.end()
            ),
            GreetingError::SlotBytes(slot_bytes) => write!(
                f,
                "slot_bytes is {slot_bytes}: it must be a multiple of 64 from {} to {}",
                SLOT_BYTES_RANGE.start(),
                SLOT_BYTES_RANGE.end()
            ),
            GreetingError::HungUp => f.write_str("the peer hung up before it had greeted"),
            GreetingError::Late => f.write_str("the peer did not greet in time"),
            GreetingError::NotReceived(error) => {
                write!(f, "the peer's greeting was not received: {error}")
            }
            GreetingError::TooMany => f.write_str("the peer sent more than is shared"),
            GreetingError::TooFew => f.write_str("the peer did not send what is to be shared"),
            GreetingError::WrongSize => {
                f.write_str("the peer's memory is not of the size that it says, or could shrink")
            }
            GreetingError::NotMapped(error) => {
                write!(f, "the peer's memory was not mapped: {error}")
            }
            GreetingError::NoMemory(error) => write!(f, "no memory to share: {error}"),
            GreetingError::NoEvents(error) => write!(f, "nothing to sleep on: {error}"),
        }
    }
}

/// What a greeting says, or why it is refused.
pub(super) fn read_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<Division, GreetingError> {
    let number = |place: usize| {
        let at = 8 + 4 * place;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    if bytes[..8] != MAGIC {
        return Err(GreetingError::NotAPort);
    }
    if number(0) != VERSION {
        return Err(GreetingError::OtherVersion(number(0)));
    }
    let division = Division {
        slots: number(1),
        slot_bytes: number(2),
    };
    check(division)?;
    Ok(division)
}

/// Whether the sizes are within bounds.
pub(super) fn check(division: Division) -> Result<(), GreetingError> {
    let Division { slots, slot_bytes } = division;
    if !SLOTS_RANGE.contains(&slots) || !slots.is_power_of_two() {
        return Err(GreetingError::Slots(slots));
    }
    if !SLOT_BYTES_RANGE.contains(&slot_bytes) || slot_bytes % 64 != 0 {
        return Err(GreetingError::SlotBytes(slot_bytes));
    }
    Ok(())
}

/// What two processes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Mapping,
    pub(super) division: Division,
    /// Wakes the side that listened, and the one that connected.
    pub(super) events: [OwnedFd; 2],
}

/// Listens at `path`, mode 0600. A socket that nobody listens at any more is replaced.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        result => result?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the other process belongs to this user or to root: anyone who shares memory with us can read and forge our packets.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    system::option::<libc::ucred>(stream, libc::SOL_SOCKET, libc::SO_PEERCRED)
        .is_ok_and(|peer| peer.uid == system::own_user() || peer.uid == 0)
}

/// Makes the memory and answers a greeting.
pub(super) fn offer(stream: &UnixStream, division: Division) -> io::Result<Shared> {
    let file = system::memory_file("asterism-link", division.bytes() as u64)?;
    let shared = Shared {
        memory: Mapping::new(&file, 0, division.bytes())?,
        division,
        events: [system::event()?, system::event()?],
    };
    system::send_descriptors(
        stream,
        &greeting(division),
        &[
            file.as_fd(),
            shared.events[0].as_fd(),
            shared.events[1].as_fd(),
        ],
    )?;
    Ok(shared)
}

/// A greeting on its way in, with what came along.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: [u8; GREETING_BYTES],
    filled: usize,
    descriptors: Vec<OwnedFd>,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming {
            bytes: [0; GREETING_BYTES],
            filled: 0,
            descriptors: Vec::new(),
        }
    }

    /// Takes what has come; true once the greeting is whole.
    pub(super) fn poll(&mut self, stream: &UnixStream) -> Result<bool, GreetingError> {
        while self.filled < GREETING_BYTES {
            let rest = &mut self.bytes[self.filled..];
            match system::receive_descriptors(stream, rest, &mut self.descriptors) {
                Ok(0) => return Err(GreetingError::HungUp),
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(GreetingError::NotReceived(error)),
            }
            if self.descriptors.len() > 3 {
                return Err(GreetingError::TooMany);
            }
        }
        Ok(true)
    }

    /// What the greeting says.
    pub(super) fn division(&self) -> Result<Division, GreetingError> {
        read_greeting(&self.bytes)
    }

    /// What the side that listens sent, once the greeting is whole: verified and mapped.
    pub(super) fn accept(self) -> Result<Shared, GreetingError> {
        let division = self.division()?;
        let [file, first, second] =
            <[OwnedFd; 3]>::try_from(self.descriptors).map_err(|_| GreetingError::TooFew)?;
        match system::sealed_bytes(&file) {
            Ok(Some(bytes)) if bytes == division.bytes() as u64 => {}
            _ => return Err(GreetingError::WrongSize),
        }
        let memory = Mapping::new(&file, 0, division.bytes()).map_err(GreetingError::NotMapped)?;
        Ok(Shared {
            memory,
            division,
            events: [first, second],
        })
    }
}

/// Whether the other side ended, or breaks the silence that is agreed on.
pub(super) fn has_hung_up(mut stream: &UnixStream) -> bool {
    let mut byte = [0];
    !matches!(stream.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
