//! Transactions whose outcome is always found out: each guards and writes the store's own outcome key.
//!
//! ```text
//! outcome key    revision 5       revision 9                 revision 12
//!                "…:1"            "…:2"                      "…:3"
//!                  ▲                ▲                          ▲
//!                  │ guard: at 5    │ guard: at 9              │
//!                  └─ transaction 2 └─ transaction 3 (lost)    └─ made; or another one guarded by 9 takes its place
//! ```
//!
//! If the answer of 3 is lost, a transaction 4 is sent that is guarded by 9 too and does nothing. Either it is made, and 3 can
//! never be made any more; or it is stopped, and the key says which one was made.

use serde_json::{Value, json};

use super::EtcdStore;
use super::answers::{expects, found, get, header, integer, list, put, value, version};
use super::gateway::Failure;
use crate::answer::Revision;
use crate::error::{Effect, TruthError};
use crate::mutant::{Mutant, active};

/// Attempts to find out an outcome in one call; the call's deadline ends them as well.
const SETTLE_TRIES_MAX: u32 = 8;

/// Where the outcome key stands: its revision, 0 if it is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

/// A transaction without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    place: Place,
    sequence: u64,
}

/// What became of a transaction.
pub(super) enum Transacted {
    /// It was made, as this revision.
    Done(Revision),
    /// A condition did not hold. The answers to what was to be looked at then.
    Stopped(Vec<Value>),
}

/// What became of one attempt.
enum Attempt {
    Done(Revision),
    Stopped {
        /// The outcome key's place and text.
        place: Place,
        mark: String,
        looks: Vec<Value>,
    },
}

/// How a lost transaction ended.
enum Settled {
    Made(Revision),
    Never,
}

impl EtcdStore {
    fn outcome_key(&self) -> String {
        format!("{}/outcome/{}", self.root, self.name)
    }

    fn mark(&self, sequence: u64) -> String {
        format!("{:016x}:{sequence}", self.incarnation)
    }

    fn is_ours(&self, mark: &str) -> bool {
        mark.starts_with(&self.mark(0)[..17])
    }

    /// Makes all writes if all conditions hold; else looks.
    ///
    /// # Errors
    /// [`TruthError::Unknown`] leaves the transaction pending; the next call begins by finding it out.
    pub(super) fn transact(
        &mut self,
        compares: Vec<Value>,
        writes: Vec<Value>,
        looks: Vec<Value>,
    ) -> Result<Transacted, TruthError> {
        if self.is_replaced {
            return Err(TruthError::Replaced(self.name.to_string()));
        }
        let place = match self.place {
            Some(place) => place,
            None => self.attach()?,
        };
        self.sequence += 1;
        let sequence = self.sequence;
        let body = self.request(place, sequence, compares, writes, looks);
        match self.attempt(&body) {
            Ok(Attempt::Done(revision)) => {
                self.place = Some(Place(revision.0));
                Ok(Transacted::Done(revision))
            }
            Ok(Attempt::Stopped {
                place: found,
                mark,
                looks,
            }) => {
                if found == place {
                    return Ok(Transacted::Stopped(looks));
                }
                // The request was repeated on its way: the first of the two was made.
                if mark == self.mark(sequence) {
                    self.place = Some(found);
                    return Ok(Transacted::Done(Revision(found.0)));
                }
                Err(self.lost_its_place(&mark))
            }
            Err(failure) => self.failed(Pending { place, sequence }, failure),
        }
    }

    /// The outcome key is not where it was. Nothing was made.
    fn lost_its_place(&mut self, mark: &str) -> TruthError {
        self.place = None;
        if mark.is_empty() || self.is_ours(mark) {
            // Removed by an operator, or by an attempt of ours to take the place: the next call finds it again.
            return TruthError::Away {
                what: self.gateway.name(),
                why: "this store's outcome key was moved".to_owned(),
            };
        }
        self.is_replaced = true;
        TruthError::Replaced(self.name.to_string())
    }

    /// What a transaction that failed means.
    fn failed(
        &mut self,
        pending: Pending,
        failure: AttemptFailure,
    ) -> Result<Transacted, TruthError> {
        let why = match failure {
            AttemptFailure::NotDone(Failure::Full(why)) => return self.full(pending, why),
            AttemptFailure::NotDone(failure) => return Err(self.question_failed(failure)),
            AttemptFailure::Lost(why) => why,
            AttemptFailure::Cluster(error) => {
                self.pending = Some(pending);
                return Err(error);
            }
        };
        if active(Mutant::UnknownIsDone) {
            self.place = None;
            return Ok(Transacted::Done(self.seen));
        }
        self.find_out(pending, why)
    }

    /// What became of a transaction for which there is no space: etcd makes the one that exceeds its quota first, and still answers so.
    fn full(&mut self, pending: Pending, why: String) -> Result<Transacted, TruthError> {
        let what = self.gateway.name();
        let there = match self.outcome() {
            Ok(there) => there,
            Err(error) => {
                self.pending = Some(pending);
                let why = format!("{why}; and then {error}");
                return Err(TruthError::Unknown { what, why });
            }
        };
        match there.filter(|(_, mark)| *mark == self.mark(pending.sequence)) {
            Some((place, _)) => {
                self.place = Some(place);
                Ok(Transacted::Done(Revision(place.0)))
            }
            None => Err(TruthError::Full { what, why }),
        }
    }

    /// The outcome key: where it is, and the mark of the last transaction; `None` if there is none.
    fn outcome(&mut self) -> Result<Option<(Place, String)>, TruthError> {
        let key = self.outcome_key();
        let range = self.question("/v3/kv/range", &get(&key)["request_range"])?;
        let read = || {
            let Some(kv) = list(&range, "kvs")?.first() else {
                return Ok(None);
            };
            let mark = String::from_utf8_lossy(&value(kv)?).into_owned();
            Ok(Some((Place(version(kv)?.0), mark)))
        };
        read().map_err(|why: String| self.unreadable(why))
    }

    /// What became of a transaction whose answer was lost.
    fn find_out(&mut self, pending: Pending, why: String) -> Result<Transacted, TruthError> {
        if active(Mutant::UnknownIsNotDone) {
            self.place = None;
            let what = self.gateway.name();
            return Err(TruthError::Away { what, why });
        }
        self.pending = Some(pending);
        match self.settle(pending) {
            Ok(Settled::Made(revision)) => Ok(Transacted::Done(revision)),
            Ok(Settled::Never) => Err(TruthError::Away {
                what: self.gateway.name(),
                why,
            }),
            Err(
                TruthError::Away { what, why: again } | TruthError::Unreadable { what, why: again },
            ) => {
                let why = format!("{why}; and then {again}");
                Err(TruthError::Unknown { what, why })
            }
            Err(error) => Err(TruthError::Unknown {
                what: self.gateway.name(),
                why: format!("{why}; and then {error}"),
            }),
        }
    }

    /// Finds out what an earlier call left open.
    pub(super) fn settle_pending(&mut self) -> Result<(), TruthError> {
        match self.pending {
            Some(pending) => self.settle(pending).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Takes the place that the lost transaction wanted, or finds that it has it.
    fn settle(&mut self, pending: Pending) -> Result<Settled, TruthError> {
        let mut last = String::new();
        for _ in 0..SETTLE_TRIES_MAX {
            self.sequence += 1;
            let sequence = self.sequence;
            let body = self.request(pending.place, sequence, Vec::new(), Vec::new(), Vec::new());
            let (settled, place) = match self.attempt(&body) {
                Ok(Attempt::Done(revision)) => (Settled::Never, Some(Place(revision.0))),
                Ok(Attempt::Stopped { place, mark, .. }) => {
                    if mark == self.mark(pending.sequence) {
                        (Settled::Made(Revision(place.0)), Some(place))
                    } else if self.is_ours(&mark) {
                        // One of the attempts before this.
                        (Settled::Never, Some(place))
                    } else {
                        // Another process took the place, before or after the lost one: that is not known any more,
                        // and will not change any more.
                        self.pending = None;
                        return Err(self.lost_its_place(&mark));
                    }
                }
                Err(AttemptFailure::NotDone(Failure::NotSent(why)) | AttemptFailure::Lost(why)) => {
                    last = why;
                    continue;
                }
                Err(AttemptFailure::NotDone(failure)) => return Err(self.question_failed(failure)),
                Err(AttemptFailure::Cluster(error)) => return Err(error),
            };
            self.place = place;
            self.pending = None;
            self.counts.settled += 1;
            return Ok(settled);
        }
        Err(TruthError::Away {
            what: self.gateway.name(),
            why: last,
        })
    }

    /// Finds the outcome key, and takes it over from an earlier process of the same name.
    fn attach(&mut self) -> Result<Place, TruthError> {
        let place = self.outcome()?.map_or(Place(0), |(place, _)| place);
        // What that process has under way is stopped by this, and what an attempt of ours has.
        self.sequence += 1;
        let sequence = self.sequence;
        let body = self.request(place, sequence, Vec::new(), Vec::new(), Vec::new());
        let taken = match self.attempt(&body) {
            Ok(Attempt::Done(revision)) => Place(revision.0),
            Ok(Attempt::Stopped { place, mark, .. }) if mark == self.mark(sequence) => place,
            Ok(Attempt::Stopped { mark, .. }) => return Err(self.lost_its_place(&mark)),
            Err(AttemptFailure::NotDone(failure)) => return Err(self.question_failed(failure)),
            // Only our own key: whether it was taken is found out by taking it again.
            Err(AttemptFailure::Lost(why)) => {
                return Err(TruthError::Away {
                    what: self.gateway.name(),
                    why,
                });
            }
            Err(AttemptFailure::Cluster(error)) => return Err(error),
        };
        self.place = Some(taken);
        Ok(taken)
    }

    fn request(
        &self,
        place: Place,
        sequence: u64,
        mut compares: Vec<Value>,
        writes: Vec<Value>,
        looks: Vec<Value>,
    ) -> Value {
        let key = self.outcome_key();
        compares.push(expects(&key, place.0));
        let mut success = vec![put(&key, self.mark(sequence).as_bytes(), 0)];
        success.extend(writes);
        success.push(self.count_request());
        let mut failure = vec![get(&key)];
        failure.extend(looks);
        json!({ "compare": compares, "success": success, "failure": failure })
    }

    fn attempt(&mut self, body: &Value) -> Result<Attempt, AttemptFailure> {
        let answer = match self.gateway.ask("/v3/kv/txn", body, false) {
            Ok(answer) => answer,
            Err(Failure::Lost(why) | Failure::Unreadable(why)) => {
                return Err(AttemptFailure::Lost(why));
            }
            Err(Failure::TooMuch) => {
                return Err(AttemptFailure::Lost("its answer was too large".to_owned()));
            }
            Err(failure) => return Err(AttemptFailure::NotDone(failure)),
        };
        let lost = AttemptFailure::Lost;
        // Before the cluster is checked: an answer without a header may be anybody's.
        let found_header = header(&answer).map_err(lost)?;
        self.check_header(&answer, Effect::Unknown)
            .map_err(AttemptFailure::Cluster)?;
        let responses = list(&answer, "responses").map_err(AttemptFailure::Lost)?;
        if super::boolean(&answer, "succeeded") {
            let count = responses.last().and_then(|it| it.get("response_range"));
            self.entries = count.and_then(|count| integer(count, "count").ok());
            return Ok(Attempt::Done(found_header.revision));
        }
        let outcome = found(responses.first()).map_err(AttemptFailure::Lost)?;
        let (place, mark) = match outcome {
            None => (Place(0), String::new()),
            Some(kv) => {
                let place = version(kv).map_err(AttemptFailure::Lost)?;
                let mark = value(kv).map_err(AttemptFailure::Lost)?;
                (Place(place.0), String::from_utf8_lossy(&mark).into_owned())
            }
        };
        Ok(Attempt::Stopped {
            place,
            mark,
            looks: responses[1..].to_vec(),
        })
    }
}

/// Why an attempt has no outcome.
enum AttemptFailure {
    /// Nothing was done.
    NotDone(Failure),
    /// It may have been done.
    Lost(String),
    /// Another cluster answered, or one that went back.
    Cluster(TruthError),
}
