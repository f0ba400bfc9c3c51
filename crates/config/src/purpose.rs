//! What a configuration is read for.

/// What a file is read for: where its hosts are, and what is at their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run a host, a process of its own, whose ports are those of the file.
    Host,
    /// To try it on hosts of one process, whose neighbours answer as those at real interfaces do.
    Scenario,
    /// For hosts of one process that handle a capture, in which no peer answers.
    Replay,
}
