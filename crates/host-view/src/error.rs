//! Why an instance was not asked, or did not answer. Its state is as it was, but for [`AskError::Late`].

use thiserror::Error;

/// Why an instance was not asked, or did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The host has fewer instances. Nothing was asked.
    #[error("there is no such instance")]
    NoSuchInstance,
    /// The host has no instance at all. Nothing was asked.
    #[error("there is no instance")]
    NoInstance,
    /// The instance's queue is full. Nothing was asked.
    #[error("the instance has too many requests already: try again")]
    TooManyRequests,
    /// The instance's thread has ended: it answers nothing any more.
    #[error("the instance has ended")]
    Ended,
    /// The time for the answer is over. The instance may still do what it was asked.
    #[error("the instance did not answer in time: try again")]
    Late,
    /// The host listens to others first: the function was not called.
    #[error("the host accepts no changes before it runs; see `asterism status`, and try again")]
    NotRunning,
    /// The instance had no room for what the function would write: the function was not called.
    #[error(
        "the host accepts no changes now: its log is full of unacknowledged groups, or it stops; see `asterism status`, and try again"
    )]
    NotTaken,
    /// The records of the answer are of another kind, so those that were read mean nothing.
    #[error("the instance's answer does not match the question")]
    OtherAnswer,
    /// The answer has more bytes than any answer to this question, and was dropped.
    #[error("the instance's answer is longer than possible")]
    LongAnswer,
}
