//! Why a local network, or a part of it, is not there.

use std::io;
use std::path::PathBuf;

use asterism_director::DirectorConfigError;
use asterism_io::port::PortError;

use crate::addresses::HOSTS_MAX;
use crate::configuration::SOCKET_PATH_BYTES_MAX;
use crate::network::DIRECTORS_MAX;
use crate::segment::SegmentError;
use crate::traffic::TrafficError;

/// Why a network was not started, or not changed. What was there before is as it was.
#[derive(Debug, thiserror::Error)]
pub enum LocalNetworkError {
    /// More hosts than there are ports for.
    #[error("{0} hosts: a local network has at most {HOSTS_MAX}")]
    Hosts(usize),
    /// A name that cannot be a file's or a table's.
    #[error("the host name {0:?}: use 1 to 32 letters, digits, - and _")]
    HostName(String),
    /// The number is another host's, or none that a host has.
    #[error("the host number {0}: it is below {HOSTS_MAX}, and no other host's")]
    HostNumber(u8),
    /// Two hosts of one name.
    #[error("there is a host called {0} already")]
    SameHost(String),
    /// No host of this name.
    #[error("there is no host called {0}")]
    UnknownHost(String),
    /// The path of a host's socket is longer than the system allows.
    #[error(
        "the socket {path} has a path of {bytes} bytes, and the system allows {SOCKET_PATH_BYTES_MAX}: use a folder with a shorter path"
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The folder of sockets and files was not made, or a file in it not written.
    #[error("{path}: {error}")]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The port to a host was not opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no memory for frames or rings.
    #[error("no memory for packets: {0}")]
    Memory(io::Error),
    /// A segment has no place.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The number of directors, or of one of them, cannot be.
    #[error("{0} directors: there are 1 or {DIRECTORS_MAX}, numbered from 0")]
    Directors(usize),
    /// A director cannot be as it is configured.
    #[error(transparent)]
    Director(#[from] DirectorConfigError),
    /// The traffic cannot be as it is configured.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Hosts without an address for their state channel.
    #[error("{hosts} hosts and {addresses} addresses of state channels: each host has one")]
    Channel {
        /// Hosts.
        hosts: usize,
        /// Addresses.
        addresses: usize,
    },
    /// No address is free for a state channel.
    #[error("no address is free for a state channel: {0}")]
    NoAddress(io::Error),
    /// The network's thread could not be started.
    #[error("the network's thread was not started: {0}")]
    Thread(io::Error),
    /// The network's thread takes no more changes for the moment, or has ended.
    #[error("the network's thread takes no changes")]
    Busy,
}
