//! Errors of a store, each with its effect on the state.

use std::time::Duration;

use crate::answer::Revision;

/// What a failed call left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed, and nothing of the call will change anything later.
    NotDone,
    /// The call may have taken effect, or take effect until the store next answers. The next call of the same store that
    /// succeeds comes after it: its answer shows the outcome, which is final from then on.
    Unknown,
}

/// A call that is wrong by itself: the same call will never do. Nothing was asked of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedError {
    /// A name with other characters or of another length than [`crate::Key`] permits.
    #[error(
        "{0:?} is no key: 1 to 256 bytes of letters, digits and / - _ . : @ are; nothing was changed"
    )]
    Key(String),
    /// A value of more bytes than [`crate::VALUE_BYTES_MAX`].
    #[error("the value of {key} has {bytes} bytes, {most} are the most: nothing was changed")]
    Value {
        /// Its key.
        key: String,
        /// Its bytes.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// Too many guards, writes or bytes in a transaction.
    #[error("the transaction has {is} {what}, {most} are the most: nothing was changed")]
    Transaction {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        is: usize,
        /// The bound.
        most: usize,
    },
    /// A transaction without writes.
    #[error("the transaction writes nothing: nothing was changed")]
    Empty,
    /// A transaction that writes or guards one key twice.
    #[error("the transaction names {0} twice: nothing was changed")]
    Twice(String),
    /// A term of leadership out of bounds.
    #[error("a term of {0:?} is not between one second and ten minutes: nothing was changed")]
    Term(Duration),
    /// A longer wait than [`crate::WAIT_MAX`].
    #[error("a wait of {0:?} is longer than 30 s: nothing was changed")]
    Wait(Duration),
}

/// Why a store did not do what it was asked to. [`TruthError::effect`] is what it left behind; each sentence says it too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TruthError {
    /// The call is wrong. Nothing changed.
    #[error(transparent)]
    Refused(#[from] RefusedError),
    /// The store could not be asked, or did not answer a question. Nothing changed.
    #[error("{what} did not answer ({why}): nothing was changed; go on as you are")]
    Away {
        /// The store.
        what: String,
        /// The cause.
        why: String,
    },
    /// A change was sent, and its outcome could not be read within the call. Unknown.
    #[error("{what} may have made the change or not ({why}): read before the next decision")]
    Unknown {
        /// The store.
        what: String,
        /// The cause.
        why: String,
    },
    /// The store answered a question with something that is no answer to it. Nothing changed.
    #[error("the answer of {what} is not understood ({why}): nothing was changed")]
    Unreadable {
        /// The store.
        what: String,
        /// The fault.
        why: String,
    },
    /// The store refused the call: credentials, rights, a request that it does not know. Nothing changed.
    #[error("{what} refused the call ({why}): nothing was changed")]
    Denied {
        /// The store.
        what: String,
        /// Its words.
        why: String,
    },
    /// The disk, the store's quota or one of its bounds is full. Nothing changed.
    #[error("{what} is full ({why}): nothing was changed; make space, then try again")]
    Full {
        /// The store.
        what: String,
        /// The bound, or the system's words.
        why: String,
    },
    /// More than a call may answer. Nothing changed.
    #[error(
        "the answer would have more than {most} {unit}: nothing was changed; read a longer prefix"
    )]
    TooMuch {
        /// The bound.
        most: usize,
        /// Its unit.
        unit: &'static str,
    },
    /// Another cluster answers at the addresses. Nothing changed in the one that was known; a change that was sent is unknown.
    #[error(
        "another cluster answers: {found:x} instead of {known:x}; {}; point the orchestrator at its own store",
        said(*.effect)
    )]
    OtherCluster {
        /// The cluster that answered before, or that the configuration names.
        known: u64,
        /// The one that answers.
        found: u64,
        /// What the call left behind.
        effect: Effect,
    },
    /// The store has forgotten revisions that it had answered before: restored from a backup, or answering with old data.
    #[error("the store went back from revision {} to {}: {}", known.0, found.0, said(*.effect))]
    WentBack {
        /// The highest revision that it has answered.
        known: Revision,
        /// The one that it answers now.
        found: Revision,
        /// What the call left behind.
        effect: Effect,
    },
    /// Another process uses this store's name. Nothing changed, and no call that changes anything will succeed any more.
    #[error("another orchestrator uses the name {0}: nothing was changed; give each its own")]
    Replaced(String),
    /// A sync failed in this call: whether the change is on the disk is unknown. The store has ended; open it to read the outcome.
    #[error(
        "the change could not be synced ({0}): whether it is on the disk is unknown; the store has ended, open it again"
    )]
    SyncFailed(String),
    /// The store ended at an earlier failure. Nothing changed.
    #[error("the store has ended ({0}): nothing was changed; open it again")]
    Ended(String),
}

fn said(effect: Effect) -> &'static str {
    match effect {
        Effect::NotDone => "nothing was changed",
        Effect::Unknown => "whether the change was made is unknown",
    }
}

impl TruthError {
    /// What the call left behind.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            TruthError::Unknown { .. } | TruthError::SyncFailed(_) => Effect::Unknown,
            TruthError::OtherCluster { effect, .. } | TruthError::WentBack { effect, .. } => {
                *effect
            }
            _ => Effect::NotDone,
        }
    }
}
