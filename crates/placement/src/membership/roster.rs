//! Who takes part: the member list of an epoch, handed in and never guessed.

use core::fmt;

use crate::{Epoch, Incarnation, MemberId};

/// The members of an epoch, each in the incarnation that it names. Anyone who runs the cluster writes it (an orchestrator, or an
/// operator by a file); every member is handed the same one, in any order of arrival, and later ones replace earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roster {
    /// Its number. Greater numbers are later.
    pub epoch: Epoch,
    /// Who takes part, each once, in any order. An unnamed incarnation is the first that is heard: only
    /// right while every incarnation that ended was received by all members.
    pub members: Vec<(MemberId, Option<Incarnation>)>,
    /// Who holds what of pools, as the state's objects write it down; empty: everybody what is its own by place. Handed through
    /// to those who grant: opaque here.
    pub assignment: Vec<u8>,
}

impl Roster {
    /// What the roster says of a member: `None` when it takes no part.
    #[must_use]
    pub fn named(&self, member: MemberId) -> Option<Option<Incarnation>> {
        self.members
            .iter()
            .find(|(name, _)| *name == member)
            .map(|&(_, incarnation)| incarnation)
    }
}

/// Why a roster was not installed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstallError {
    /// It is not later than the one in force: an old file, or the same one again.
    NotNewer {
        /// The epoch in force.
        installed: Epoch,
    },
    /// It names a member that no configuration lists, or names one twice.
    Unknown(MemberId),
    /// It names another incarnation of this member: this one has ended and must stop at once.
    OtherIncarnation {
        /// The incarnation that it names.
        named: Incarnation,
    },
    /// It does not name this member, which was evicted and must stop at once.
    Evicted,
}

impl InstallError {
    /// Whether this member has no part in the cluster any more.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(
            self,
            InstallError::OtherIncarnation { .. } | InstallError::Evicted
        )
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstallError::NotNewer { installed } => {
                write!(
                    f,
                    "it is not later than epoch {}, which is in force",
                    installed.0
                )
            }
            InstallError::Unknown(member) => {
                write!(f, "it names {member} twice, or no configuration lists it")
            }
            InstallError::OtherIncarnation { named } => {
                write!(
                    f,
                    "it names incarnation {} of this member: this incarnation has ended",
                    named.0
                )
            }
            InstallError::Evicted => f.write_str("it does not name this member any more"),
        }
    }
}

impl core::error::Error for InstallError {}
