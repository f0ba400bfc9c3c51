//! Why an epoch is not read, not accepted, not written, or has no next one. Whatever it is, the epoch in force stays.

use std::io;
use std::path::PathBuf;

use crate::handing::{EPOCH_BYTES_MAX, Refusal};
use asterism_state::PARTITIONS;
use thiserror::Error;

/// Why a file of an epoch was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is none.
    #[error(
        "there is no epoch file {0}: write the first epoch with `asterism epoch CONFIG --first`, or copy the cluster's file"
    )]
    NoFile(String),
    /// The operating system does not give its bytes.
    #[error("cannot read the epoch file {name}: {error}")]
    Unreadable {
        /// The file.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// It is not text.
    #[error("{name}:{line}: an epoch is text in UTF-8, and this file is not")]
    NotText {
        /// The file.
        name: String,
        /// The first line that is not.
        line: usize,
    },
    /// Its text is no epoch of this cluster.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Why a text is no epoch of this cluster. `name` is the file's, or says where the text came from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// It has more bytes than an epoch may have; it was not looked at.
    #[error("{0} is too long: an epoch has at most {EPOCH_BYTES_MAX} bytes")]
    TooLong(String),
    /// It is not TOML with an epoch's entries.
    #[error(
        "{name}:{line}: {message}; write epochs with `asterism epoch`, which keeps the required entries"
    )]
    Syntax {
        /// The file.
        name: String,
        /// The line of the mistake.
        line: usize,
        /// The mistake.
        message: String,
    },
    /// It names a member that the configuration does not have.
    #[error("{name}: {unknown} is not a member: [cluster] members lists {members}")]
    OtherCluster {
        /// The file.
        name: String,
        /// The name that is not known.
        unknown: String,
        /// All members.
        members: String,
    },
    /// Its entries contradict each other.
    #[error("{name}: {fault}")]
    Contradictory {
        /// The file.
        name: String,
        /// How.
        fault: EpochFault,
    },
}

impl ParseError {
    /// The word for callers.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            ParseError::OtherCluster { .. } => Refusal::OtherCluster,
            _ => Refusal::Malformed,
        }
    }
}

/// How the entries of an epoch contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EpochFault {
    /// Its number is 0.
    #[error("epochs are numbered from 1")]
    NumberZero,
    /// It has no member.
    #[error("an epoch has at least one member")]
    NoMember,
    /// A member would begin an incarnation twice.
    #[error(
        "incarnation {incarnation} of {member} was used before: incarnations are numbered from 1, and each is used once"
    )]
    Used {
        /// The member.
        member: String,
        /// Its incarnation.
        incarnation: u64,
    },
    /// A fenced incarnation that is not a last one.
    #[error(
        "incarnation {incarnation} of {member} cannot be fenced: it is not the last incarnation of a member that left"
    )]
    NotFenceable {
        /// The member.
        member: String,
        /// Its incarnation.
        incarnation: u64,
    },
    /// Not every partition of a member's ports has a holder.
    #[error(
        "the ports of {0} need {PARTITIONS} partitions, whose last change is in an epoch up to this one"
    )]
    Partitions(String),
    /// A holder of ports that takes no part.
    #[error(
        "{holder} takes no part, so it cannot hold ports of {member}: write epochs with `asterism epoch`, which assigns ports"
    )]
    HolderGone {
        /// The holder.
        holder: String,
        /// The member whose ports they are.
        member: String,
    },
    /// Past holders of a member's ports are not sorted.
    #[error("the past holders of ports of {0} are not in order")]
    PastUnsorted(String),
    /// A host whose name no host can have.
    #[error("{0:?} is no name of a host: 1 to 63 of a-z, 0-9 and hyphens")]
    HostName(String),
    /// A host at an address at which none can be.
    #[error("host {host} cannot be at {address}")]
    HostAddress {
        /// The host.
        host: String,
        /// The address.
        address: std::net::SocketAddr,
    },
    /// Two hosts have one place.
    #[error("{} and {} both have {place}", .hosts[0], .hosts[1])]
    PlaceTwice {
        /// The place.
        place: String,
        /// The hosts.
        hosts: [String; 2],
    },
    /// Two participants have one address.
    #[error("{} and {} are both at {address}", .hosts[0], .hosts[1])]
    AddressTwice {
        /// The address.
        address: std::net::SocketAddr,
        /// The hosts.
        hosts: [String; 2],
    },
    /// A participant whose host is not named.
    #[error("{0} takes part, and no host has it")]
    NoHost(String),
}

/// Why there is no next epoch as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NextError {
    /// Numbers end here.
    #[error("there is no epoch after {0}: stop all hosts, and begin with a new file")]
    LastNumber(u32),
    /// A member to leave out that takes no part.
    #[error("{member} takes no part in epoch {epoch}")]
    TakesNoPart {
        /// Its name.
        member: String,
        /// The epoch.
        epoch: u32,
    },
    /// A name that the configuration does not have.
    #[error("{unknown} is not a member: [cluster] members lists {members}")]
    NoMember {
        /// The name.
        unknown: String,
        /// All members.
        members: String,
    },
    /// No member that has the state would go on.
    #[error(
        "no member with the state would be left: keep at least one member running, or restart all with --founding"
    )]
    StateLost,
    /// A member to fence that has not left.
    #[error("{0} has not left: leave it out with --without {0}")]
    NotLeft(String),
}

/// Why a host does not go over to an epoch that was handed to it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StepError {
    /// A later one is known.
    #[error("epoch {epoch} is older than epoch {known}, which is known here")]
    Older {
        /// The one that was handed.
        epoch: u32,
        /// The one that is known.
        known: u32,
    },
    /// One of the same number is known that says something else.
    #[error(
        "a different epoch {known} is known here, with other {difference}: give a changed epoch the next number"
    )]
    Contradicts {
        /// Its number.
        known: u32,
        /// What is different.
        difference: &'static str,
    },
    /// It lacks what has happened.
    #[error("epoch {epoch} lacks {lacks}, which epoch {known} has")]
    Forgets {
        /// The one that was handed.
        epoch: u32,
        /// What it lacks.
        lacks: String,
        /// The one that is known.
        known: u32,
    },
}

impl StepError {
    /// The word for callers.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            StepError::Older { .. } => Refusal::Older,
            StepError::Contradicts { .. } => Refusal::Contradicts,
            StepError::Forgets { .. } => Refusal::Forgets,
        }
    }
}

/// Why a record on the disk was not read or written: the host must not begin an incarnation by it.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file of the last incarnation holds something else.
    #[error(
        "{} does not hold the number of an incarnation: write the last incarnation of {member} into the file, or 0 if {member} never ran", .path.display()
    )]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// The member.
        member: String,
    },
    /// The record of the folder's starts holds something else.
    #[error(
        "{} is not the record of a folder's starts: make sure that no process of {member} runs, and remove the file", .path.display()
    )]
    NoProcess {
        /// The file.
        path: PathBuf,
        /// The member.
        member: String,
    },
    /// Another process runs as this member in this folder.
    #[error(
        "{} is locked: another process runs as {member} here; stop that process first", .path.display()
    )]
    Held {
        /// The file.
        path: PathBuf,
        /// The member.
        member: String,
    },
    /// The operating system does not give its bytes.
    #[error("cannot read {}: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is as it was before.
    #[error("cannot write {}: {error}", .path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}
