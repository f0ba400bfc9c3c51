//! Epochs: which members of a cluster take part, the incarnation of each, and who holds the ports of members that left.
//!
//! A host never guesses the members. The orchestrator or the operator (`asterism epoch`) writes the next epoch, and each host
//! reads it from a file or is handed it. An incarnation is a number that a member gets for one start of its process. Each host
//! keeps its last incarnation in a file of its own, so that no incarnation is used twice.
//!
//! Members are named by the cluster's *places*: the list of all members that may ever take part, in order, which functions take as
//! `places`. If the configuration says only how many there are, the epoch also says which host has which (`hosts.rs`). No function here reads a clock or opens a socket; only [`EpochFile::read`], [`EpochFile::write`],
//! [`StartDecision`] and [`ProcessRecord`] use files.
//!
//! Read `file.rs` (an epoch and the one after it), then `succession.rs` (which epoch may follow which when a host is handed one),
//! `start_decision.rs` (the incarnation that a starting host begins), `process.rs` (which process that is) and `handing.rs` (request and
//! answer).

mod error;
mod file;
mod handing;
mod hosts;
mod names;
mod process;
mod start_decision;
mod succession;

pub use error::{EpochFault, NextError, ParseError, ReadError, RecordError, StepError};
pub use file::{EpochFile, HeldPorts, member};
pub use handing::{EPOCH_BYTES_MAX, InForce, Refusal, Request, Standing};
pub use hosts::{HOST_NAME_BYTES_MAX, HostEntry, is_host_address, is_host_name, place_names};
pub use names::MemberNames;
pub use process::{Process, ProcessRecord};
pub use start_decision::StartDecision;
pub use succession::Step;
