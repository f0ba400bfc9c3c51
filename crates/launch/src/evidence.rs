//! Fencing evidence: proof that an incarnation's process has ended, without which a dead member's ports are not given out
//! again (rule 24).

use std::fmt;

use super::Exit;

/// Proof that the process of an incarnation has ended. It can be had only from a launcher that saw the end, or from an
/// operator who vouches for it: an epoch may then name the incarnation as fenced.
///
/// The launcher that gave it starts no process in this incarnation, or an earlier one of this host, ever again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingEvidence {
    name: String,
    incarnation: u64,
    ended_by: EndedBy,
    exit: Exit,
}

/// How the end of a process is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The kernel released the process and the lock that it held.
    Process,
    /// The machine was started again since the process began.
    MachineStart,
    /// The container has ended, and its process with it.
    Container,
    /// A later incarnation of the host was started, for which the end of this one had to be certain.
    LaterIncarnation(u64),
    /// An operator vouches for it.
    Operator(String),
}

impl FencingEvidence {
    pub(super) fn new(
        name: &str,
        incarnation: u64,
        ended_by: EndedBy,
        exit: Exit,
    ) -> FencingEvidence {
        FencingEvidence {
            name: name.to_owned(),
            incarnation,
            ended_by,
            exit,
        }
    }

    /// The host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The incarnation that has ended. It says nothing of earlier ones, which may run on other machines.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// How its end is known.
    #[must_use]
    pub fn ended_by(&self) -> &EndedBy {
        &self.ended_by
    }

    /// Its exit.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for FencingEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "incarnation {} of {} has ended",
            self.incarnation, self.name
        )?;
        match &self.ended_by {
            EndedBy::Process => write!(f, " with {}: the kernel released its process", self.exit),
            EndedBy::MachineStart => f.write_str(": its machine was started again since"),
            EndedBy::Container => write!(f, " with {}, and its container with it", self.exit),
            EndedBy::LaterIncarnation(later) => {
                write!(f, ": incarnation {later} was started after it")
            }
            EndedBy::Operator(who) => write!(f, ": {who} vouches for it"),
        }
    }
}
