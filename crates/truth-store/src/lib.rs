//! The truth store: holds what the orchestrator decides by, which are epochs, members, desired state, policies and
//! leadership. One trait ([`TruthStore`]), two stores: [`embedded`], a synced file for one orchestrator on one machine, and
//! [`etcd`], for several orchestrators of which one leads.
//!
//! A store is asked from one thread of the orchestrator, off the packets' path and off the replication's. Any error means:
//! go on as you are. Imports nothing of the other crates but the planted bugs. Read first: this file, then `transaction.rs`, `answer.rs` and
//! `error.rs` (the trait's words), `laws.rs` (the laws of every store), then `keyspace.rs` with `embedded/`, or `etcd/`.
//! [`testing`] is the store of simulators.

mod answer;
pub mod clock;
pub mod embedded;
mod error;
pub mod etcd;

mod key;
mod keyspace;
pub mod laws;
pub mod mutant;
pub mod testing;
mod transaction;

use std::time::Duration;

pub use answer::{
    Abilities, Campaigned, Change, Changes, Counts, Entry, Leadership, Outcome, Renewed, Revision,
    Snapshot, Standing, Token, Version,
};
pub use error::{Effect, RefusedError, TruthError};
pub use key::{KEY_BYTES_MAX, Key, Prefix};
pub use keyspace::{CHANGES_BYTES_MAX, CHANGES_MAX, ELECTIONS_MAX, ENTRIES_MAX, STORE_BYTES_MAX};
pub use transaction::{
    GUARDS_MAX, TERM_MAX, TERM_MIN, TRANSACTION_BYTES_MAX, Transaction, VALUE_BYTES_MAX, WAIT_MAX,
    WRITES_MAX,
};

/// A store. All calls wait for a disk or for the network, at most [`Abilities::call_wait_max`].
///
/// What one store has answered never goes back: a later answer is of the same revision or a higher one, or the error
/// [`TruthError::WentBack`]. After an error of [`Effect::Unknown`], the next call that succeeds shows the final outcome.
pub trait TruthStore {
    /// What this store can do.
    fn abilities(&self) -> Abilities;

    /// All entries of a prefix at one revision. Costs one round trip, or a look into memory.
    ///
    /// # Errors
    /// [`TruthError`]; a read changes nothing.
    fn read(&mut self, prefix: &Prefix) -> Result<Snapshot, TruthError>;

    /// Makes all writes of a transaction if all its guards hold, else none; returns when they are durable. Costs one round
    /// trip or one sync; two more round trips if an answer was lost.
    ///
    /// # Errors
    /// [`TruthError`], with its [`Effect`].
    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError>;

    /// Changes of a prefix after a revision, in order; waits for the first of them at most so long. A store that no other
    /// process can change ([`Abilities::shared`]) does not wait. That no change is reported says nothing about the store's health.
    ///
    /// # Errors
    /// [`TruthError`]; nothing is lost by asking again for the same.
    fn changes(
        &mut self,
        prefix: &Prefix,
        after: Revision,
        wait: Duration,
    ) -> Result<Changes, TruthError>;

    /// Asks for the leadership of an election under a candidate's name, and returns at once whether it was won. It lasts
    /// for the term, rounded up to whole seconds, unless renewed. Leadership is passed on by time; it says nothing about
    /// whether a host is alive.
    ///
    /// # Errors
    /// [`TruthError`]. If the outcome is unknown the candidate does not lead: a leadership that it may have won ends by itself
    /// after the term.
    fn campaign(
        &mut self,
        election: &Key,
        candidate: &Key,
        term: Duration,
    ) -> Result<Campaigned, TruthError>;

    /// Begins another term of a leadership.
    ///
    /// # Errors
    /// [`TruthError`]: the term may go on or not. The leader may go on trying; its transactions carry the leadership.
    fn renew(&mut self, leadership: &Leadership) -> Result<Renewed, TruthError>;

    /// Ends a leadership. That it had ended is no error.
    ///
    /// # Errors
    /// [`TruthError`]: without more renewals it ends by itself.
    fn resign(&mut self, leadership: &Leadership) -> Result<(), TruthError>;

    /// Ends the leadership that has this token before its term does, for one who has evidence that its leader is gone. If the leader
    /// lives, its next transaction meets [`Outcome::Deposed`]. That the leadership had ended, or that a later one lasts, is no
    /// error: nothing changes then.
    ///
    /// # Errors
    /// [`TruthError`]; if the outcome is unknown, a campaign shows who leads.
    fn depose(&mut self, election: &Key, token: Token) -> Result<(), TruthError>;

    /// What this store has done since it was opened.
    fn counts(&self) -> Counts;
}
