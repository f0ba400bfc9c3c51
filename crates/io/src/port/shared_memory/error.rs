//! Why a port shares no memory with another process.

use super::greeting::GreetingError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a port shares no memory with another process: it is not open, or its link is down until a peer is there.
#[derive(Debug)]
pub enum SharedMemoryError {
    /// The configured sizes are out of bounds. The port is not open.
    Setting(GreetingError),
    /// The socket to listen at was not made. The port is not open.
    NoSocket {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A process of another user connected. The port waits for another peer.
    OtherUser,
    /// A greeting failed. The port waits for another peer.
    NoLink {
        /// The socket's path.
        path: PathBuf,
        /// The mistake in the greeting.
        error: GreetingError,
    },
    /// A link ended. Packets to it are dropped until a peer is there.
    LinkDown {
        /// The socket's path.
        path: PathBuf,
        /// The reason.
        end: LinkEnd,
    },
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The peer ended or hung up.
    PeerEnded,
    /// The peer wrote an index of a ring that no correct peer writes.
    ImpossibleIndex,
}

impl fmt::Display for SharedMemoryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedMemoryError::Setting(error) => error.fmt(formatter),
            SharedMemoryError::NoSocket { path, error } => write!(
                formatter,
                "no socket at {}: {error}; its directory must exist and be writable, and no other program may listen there",
                path.display()
            ),
            SharedMemoryError::OtherUser => {
                formatter.write_str("a process of another user tried to connect and was refused")
            }
            SharedMemoryError::NoLink { path, error } => {
                write!(formatter, "no link at {}: {error}", path.display())
            }
            SharedMemoryError::LinkDown { path, end } => write!(
                formatter,
                "the link at {} is down: {end}; packets to it are dropped until a peer is there",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SharedMemoryError {}

impl fmt::Display for LinkEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LinkEnd::PeerEnded => "the peer ended",
            LinkEnd::ImpossibleIndex => "the peer's index is impossible",
        })
    }
}
