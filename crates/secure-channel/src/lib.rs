//! Sealed datagrams: a datagram that leaves a host is encrypted and authenticated, and a received one is trusted only after
//! both held.
//!
//! Sans I/O: no clock, no socket, no randomness of its own.
//!
//! # Keys
//!
//! All hosts of a cluster share a [`ClusterKey`]. Each start of a host draws a 128-bit salt; its session key is HKDF-SHA256
//! (RFC 5869) of the cluster key, the key's number, cluster, member, incarnation and salt. The nonce is a counter. A salt is
//! fresh per start, so a host restored from an older disk snapshot and two hosts configured with one identity seal under
//! different keys and never repeat a (key, nonce) pair. Every peer can open a datagram: keys belong to the sender, not to a
//! pair.
//!
//! The cluster key changes while hosts run ([`SecureChannel::set_keys`]): salt, counter and replay window go on. So no
//! session is made again, no (key, nonce) pair repeats, and a datagram that was opened under one key does not open again
//! under another.
//!
//! The AEAD is AES-256-GCM of the `ring` crate: AES and carry-less multiplication instructions where the processor has them
//! (found at run time), constant-time software where not.
//!
//! # What it does not do
//!
//! Outsiders are kept out; a compromised member is not contained: with the cluster key, an attacker can read everything and
//! impersonate every member. There is no forward secrecy. A virtual machine that is resumed twice from one *memory* snapshot
//! continues with the same salt and counter: resume by restarting the process. A flooding outsider neither fakes an admission
//! nor disturbs an admitted session, and delays an admission by a round trip: budgets are by source address, and a cookie
//! proves an address (`retry`). An eavesdropper on a member's datagrams may still replay them, and so delay its admission.
//!
//! # Reading order
//!
//! `header` (the 32 clear bytes), `key`, `key_ring` (a host's keys at one time), `sealer` (out), `opener` and `window` (in),
//! `handshake`, `admission` (admits sessions), `retry` (budgets and cookies under a flood), `channel` ([`SecureChannel`]
//! joins all of it), `refusal` (the one list of reasons); `recorded` opens captures, `purpose` seals other datagrams, and `envelope` puts them into one form.

mod admission;
mod channel;
mod config;
mod envelope;
mod fuzz;
mod handshake;
mod header;
mod key;
mod key_ring;
mod member;
pub mod mutant;
mod opener;
mod purpose;
mod recorded;
mod refusal;
mod retry;
mod sealer;
mod terms;
mod time;
mod window;

#[cfg(test)]
mod tests;
// What another crate has for its tests cannot be imported: the file is.
#[cfg(test)]
#[allow(dead_code, reason = "the placement's tests use the rest")]
#[path = "../../placement/src/vectors.rs"]
mod vectors;

pub use channel::{Destination, Event, SecureChannel, WithoutKey};
pub use config::{SecureConfig, SecureConfigError};
pub use envelope::{DATAGRAM_BYTES_MAX, Envelope, EnvelopeEnd, MESSAGE_BYTES_MAX, OpenedEnvelope};
#[doc(hidden)]
pub use fuzz::fuzz_open;
pub use handshake::{
    CHALLENGE_LIFETIME_MS, CHALLENGES_BURST_MAX, CHALLENGES_PER_SECOND_MAX, DUPLICATE_GRACE_MS,
    DUPLICATE_REPORT_INTERVAL_MS, EVENTS_WAITING_MAX, HELLO_INTERVAL_FIRST_MS,
    HELLO_INTERVAL_MAX_MS, OTHER_TERMS_SHOWN_MS, SILENCE_DEFAULT_MS, STRANGER_HANDSHAKES_BURST_MAX,
    STRANGER_HANDSHAKES_PER_SECOND_MAX, TRANSMITS_WAITING_MAX, UNKNOWN_KEY_REPORT_INTERVAL_MS,
    Versions,
};
pub use header::{HEADER_BYTES, Header, OVERHEAD_BYTES, TAG_BYTES, WIRE_VERSION_MAX};
pub use key::{ClusterKey, KEY_TEXT_PREFIX, KeyError, SEEDED_KEY_TEXT_PREFIX, Salt, Session};
pub use key_ring::{KeyRing, KeyRingError, KeyRingMistake, RING_TEXT_PREFIX};
pub use member::{ClusterId, Epoch, Incarnation, MemberId};
pub use opener::{AddKeyError, KEYS_MAX, Opened, Opener, OpenerConfig};
pub use purpose::{PURPOSE_BYTES_MAX, PurposeCipher, hash_seed_mark};
pub use recorded::{
    OPENED_MARK, RECORDED_SESSIONS_MAX, Recorded, RecordedOpener, Unopened, segments,
};
pub use refusal::{Refusal, RefusalCounts};
pub use retry::{
    PROVEN_BUDGETS, RELAYED_SOURCES_FROM, RETRIABLE_MAX, RETRIES_BURST_MAX, RETRIES_PER_SECOND_MAX,
    STRANGER_RETRIES_PER_SECOND_MAX, STRANGER_SOURCES_FROM,
};
pub use sealer::{COUNTER_MAX, SealError, Sealer};
pub use terms::{TERMS_TEXT_BYTES_MAX, Terms};
pub use time::Time;
pub use window::{ReplayWindow, WINDOW_COUNTERS};
