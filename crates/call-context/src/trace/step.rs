//! The steps of a packet that are noted.

/// One step. Objects are named by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A read.
    Ask {
        /// Of which object.
        object: u8,
        /// By which of its keys.
        lane: u8,
        /// Whether there was an entry.
        found: bool,
    },
    /// Something of a pool was asked for.
    Grant {
        /// Which pool.
        object: u8,
        /// What was granted; `None` if nothing is left.
        number: Option<u32>,
    },
    /// The asking ended.
    Act,
    /// A write. An update that changes nothing is none.
    Write {
        /// To which object.
        object: u8,
        /// What it did.
        what: Written,
    },
    /// A stage of a chain was called.
    Stage {
        /// Its place in the chain.
        number: u8,
        /// By which of its own ports the packet came to it.
        port: u16,
    },
    /// The call of a stage ended.
    StageEnd {
        /// Its place in the chain.
        number: u8,
        /// How.
        end: StageEnd,
        /// What the call cost in nanoseconds, tracing included.
        cost_ns: u64,
    },
}

/// How the call of a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEnd {
    /// The packet goes on by this of its ports.
    Forward(u16),
    /// The packet was dropped; the reason's number.
    Drop(u16),
    /// The packet was for the stage itself.
    Consumed,
    /// An answer was late.
    Late,
    /// The stage failed for a reason of this number, and the packet went on as it was.
    Bypassed(u16),
    /// The stage gets a copy, and the packet went on.
    Mirrored,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// An entry is new.
    Added,
    /// An entry has another value, or was announced as used.
    Changed,
    /// An entry was removed.
    Removed,
    /// An entry idled out.
    Expired,
}

impl Written {
    /// As a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "add",
            Self::Changed => "change",
            Self::Removed => "remove",
            Self::Expired => "expire",
        }
    }
}
