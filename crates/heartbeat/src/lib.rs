//! Heartbeats of hosts to orchestrators, and the epochs that come back: sealed datagrams, without I/O.
//!
//! A host sends each orchestrator a heartbeat: its process, how far it is, its epoch, the members that it does not receive, its load,
//! and what it did for tenants. In a cluster that lists no members it also says where its state channel is: so it registers. An
//! orchestrator answers each one. An answer may bring a part of an epoch that is meant for this process and for no other.
//!
//! ```text
//!  HostLink                                    OrchestratorLink
//!  ────────                                    ────────────────
//!   heartbeat, with an old challenge or none ──►
//!            ◄── reply: the challenge, "stale"
//!   heartbeat, with the challenge ─────────────► Event::Heartbeat ──► controller
//!            ◄── reply                                                    │ Command::Hand
//!            ◄── reply, first part of the epoch ◄──────────────────────── ▼
//!   heartbeat, wants the next part ────────────►
//!            ◄── reply, next part
//!   Event::Epoch ──► the host takes it, or refuses it
//! ```
//!
//! # What it keeps
//!
//! 1. **Only holders of the cluster key speak.** Every datagram is sealed (`asterism-secure-channel`). A datagram that does not open
//!    gets no answer.
//! 2. **A recorded heartbeat is not believed.** It echoes a challenge of the orchestrator that is four seconds old at most, and its
//!    sequence number is above all before it. So the dead do not seem alive.
//! 3. **A recorded reply is not believed.** It echoes the salt of the host's process and one of its last sequence numbers. So no earlier process of a
//!    name, and no other one, takes an epoch that is meant for this one.
//! 4. **No amplification.** A reply that brings a part of an epoch goes to an address that has echoed a challenge; any other reply
//!    is shorter than the heartbeat.
//!
//! # Who leads
//!
//! A leading orchestrator says its term in each answer. A host says to all orchestrators which term it heard of last, and how long
//! ago: so another orchestrator learns that no host hears the leader. A term counts only if it is no lower than the last one, unless
//! nothing was heard of that for ten seconds: a leader that was replaced does not know it yet.
//!
//! # Questions
//!
//! An orchestrator asks a host's process a question, of any meaning to this crate, and gets the answer in parts: `questions.rs` and
//! `answers.rs`. A question echoes the host's last heartbeat, so a recorded one is not answered; a part names the start of the
//! orchestrator and the question that it answers, and comes from the process that was asked, so no other answer is taken for it. A
//! question that comes twice is worked on once. A question must ask alone, and change nothing: it may be worked on again.
//!
//! A holder of the cluster key can impersonate every host, as on the state channel.
//!
//! Both ends are sans I/O with the five verbs of this tree. Read `message.rs` (the bytes), `envelope.rs` (sealing), then `host.rs` and
//! `orchestrator.rs`; for questions, `question.rs` (the bytes), `questions.rs` and `answers.rs`.
#![forbid(unsafe_code)]

mod answers;
mod challenge;
mod envelope;
mod host;
mod message;
pub mod mutant;
mod orchestrator;
mod parts;
mod question;
mod questions;
#[cfg(test)]
mod tests;

pub use answers::AnswerError;
pub use asterism_secure_channel::DATAGRAM_BYTES_MAX;
pub use host::{HostEvent, HostLink, HostLinkConfig, ORCHESTRATORS_MAX, Orchestrator};
pub use message::{
    Heartbeat, LeaderHeard, Load, NAME_BYTES_MAX, PLACES_MAX, RegistrationRefused, Stage,
    TENANT_BYTES_MAX, TenantUsage, USAGE_AT_ONCE,
};
pub use orchestrator::{
    FORGOTTEN_AFTER, NAMES_MAX, Names, OfferError, OrchestratorEvent, OrchestratorLink,
    OrchestratorLinkConfig, PROCESSES_MAX, Refused, Traffic,
};

pub use question::{ANSWER_BYTES_MAX, QUESTION_BYTES_MAX};
pub use questions::{AskError, NoAnswer, QUESTION_TIME, QUESTIONS_MAX};

pub use asterism_epochs::Process;
