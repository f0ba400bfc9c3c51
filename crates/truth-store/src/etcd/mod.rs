//! The store in etcd, by its JSON gateway (`/v3`): for several orchestrators, of which one leads.
//!
//! Entries are under `ROOT/truth/`, leaders under `ROOT/leader/`, and under `ROOT/outcome/` each orchestrator has one key that
//! all of its transactions guard and write. So a transaction takes effect once at most, and a lost answer is found out: another
//! transaction that takes the same place in the key's history either fails, since the lost one was made, or keeps it
//! from ever being made. Nothing is sent twice blindly.
//!
//! A leader is a key bound to a lease; its revision is the fencing token. Leases pass leadership on, and never say that a host
//! died. Read `config.rs`, `gateway.rs` (requests and failures), `answers.rs` (the JSON), `transact.rs` (outcomes), then
//! this file.

mod answers;
mod config;
mod gateway;
mod transact;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::TruthStore;
use crate::answer::{
    Abilities, Campaigned, Changes, Counts, Leadership, Outcome, Renewed, Revision, Snapshot,
    Standing, Token, Version,
};
use crate::clock::Clock;
use crate::error::{Effect, TruthError};
use crate::key::{Key, Prefix};
use crate::keyspace::{ENTRIES_MAX, STORE_BYTES_MAX};
use crate::mutant::{Mutant, active};
use crate::transaction::{Transaction, check_wait, term_seconds};
use answers::{
    base64, boolean, change, entry, expects, found, get, header, integer, list, put, range_end,
    remove, version, version_of,
};
pub use config::{
    ANSWER_WAIT_MAX, ANSWER_WAIT_MIN, ENDPOINTS_MAX, EtcdConfig, EtcdConfigError, EtcdTls, EtcdUser,
};
use gateway::{Failure, Gateway, Part};
use transact::{Pending, Place, Transacted};

/// The shortest time that a watch is held open: what was there before needs a moment to arrive.
pub const WATCH_WAIT_MIN: Duration = Duration::from_millis(200);

/// See the module. Keeps one connection to each endpoint that it used.
pub struct EtcdStore {
    gateway: Gateway,
    root: String,
    name: Key,
    incarnation: u64,
    cluster_id: Option<u64>,
    /// The highest revision that was answered.
    seen: Revision,
    /// Where this store's outcome key stands, once that is known.
    place: Option<Place>,
    /// The number of the last transaction that was sent.
    sequence: u64,
    pending: Option<Pending>,
    /// Whether another process has this store's name.
    is_replaced: bool,
    /// Entries after the last transaction.
    entries: Option<u64>,
    counts: Counts,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("endpoint", &self.gateway.name())
            .field("root", &self.root)
            .field("name", &self.name)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// A store that asks nothing before its first call.
    ///
    /// # Errors
    /// [`EtcdConfigError`].
    pub fn new(config: &EtcdConfig, clock: Clock) -> Result<EtcdStore, EtcdConfigError> {
        let (endpoints, certificates) = config.check()?;
        let user = config.user.clone();
        Ok(EtcdStore {
            gateway: Gateway::new(endpoints, certificates, user, config.answer_wait, clock),
            root: config.root.as_str().to_owned(),
            name: config.name.clone(),
            incarnation: config.incarnation,
            cluster_id: config.cluster_id,
            seen: Revision::default(),
            place: None,
            sequence: 0,
            pending: None,
            is_replaced: false,
            entries: None,
            counts: Counts::default(),
        })
    }

    /// The etcd cluster that answers, once it has.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u64> {
        self.cluster_id
    }

    fn truth(&self) -> String {
        format!("{}/truth/", self.root)
    }

    fn leader(&self, election: &Key) -> String {
        format!("{}/leader/{election}", self.root)
    }

    fn unreadable(&self, why: impl Into<String>) -> TruthError {
        TruthError::Unreadable {
            what: self.gateway.name(),
            why: why.into(),
        }
    }

    /// The error of a question that failed.
    fn question_failed(&self, failure: Failure) -> TruthError {
        let what = self.gateway.name();
        match failure {
            Failure::NotSent(why) | Failure::Lost(why) => TruthError::Away { what, why },
            Failure::Unreadable(why) => TruthError::Unreadable { what, why },
            Failure::TooMuch => TruthError::TooMuch {
                most: answers::ANSWER_BYTES_MAX,
                unit: "bytes",
            },
            Failure::Denied(why) => TruthError::Denied { what, why },
            Failure::Full(why) => TruthError::Full { what, why },
        }
    }

    /// Checks that the cluster that answers is the one that is known.
    fn check_cluster(&mut self, found: u64, effect: Effect) -> Result<(), TruthError> {
        match self.cluster_id {
            Some(known) if known != found && !active(Mutant::AnyCluster) => {
                Err(TruthError::OtherCluster {
                    known,
                    found,
                    effect,
                })
            }
            _ => {
                self.cluster_id = Some(found);
                Ok(())
            }
        }
    }

    /// Checks an answer's cluster, and that its revision is not older than one that was seen.
    fn check_header(&mut self, answer: &Value, effect: Effect) -> Result<Revision, TruthError> {
        let header = header(answer).map_err(|why| self.unreadable(why))?;
        self.check_cluster(header.cluster_id, effect)?;
        if header.revision < self.seen && !active(Mutant::RevisionGoesBack) {
            return Err(TruthError::WentBack {
                known: self.seen,
                found: header.revision,
                effect,
            });
        }
        self.seen = header.revision;
        Ok(header.revision)
    }

    /// Asks a question; an answer of another cluster or of the past is an error.
    fn question(&mut self, path: &str, body: &Value) -> Result<Value, TruthError> {
        let answer = self.gateway.ask(path, body, true);
        let answer = answer.map_err(|failure| self.question_failed(failure))?;
        self.check_header(&answer, Effect::NotDone)?;
        Ok(answer)
    }

    /// What each call begins with: its deadline runs, and what was left open is found out.
    fn begin(&mut self) -> Result<(), TruthError> {
        self.gateway.begin();
        self.settle_pending()
    }

    fn counted<T>(&mut self, result: Result<T, TruthError>) -> Result<T, TruthError> {
        self.counts.count(&result);
        result
    }

    fn read_now(&mut self, prefix: &Prefix) -> Result<Snapshot, TruthError> {
        self.begin()?;
        let folder = self.truth();
        let from = format!("{folder}{}", prefix.as_str());
        let body = json!({
            "key": base64(from.as_bytes()),
            "range_end": range_end(&from),
            "limit": (ENTRIES_MAX + 1).to_string(),
        });
        let answer = self.question("/v3/kv/range", &body)?;
        let kvs = list(&answer, "kvs").map_err(|why| self.unreadable(why))?;
        let goes_on = boolean(&answer, "more") && !active(Mutant::RangeCutOff);
        if kvs.len() > ENTRIES_MAX || goes_on {
            return Err(TruthError::TooMuch {
                most: ENTRIES_MAX,
                unit: "entries",
            });
        }
        let entries: Result<Vec<_>, _> = kvs.iter().map(|kv| entry(kv, &folder)).collect();
        let entries = entries.map_err(|why| self.unreadable(why))?;
        let bytes = entries
            .iter()
            .map(|entry| entry.key.as_str().len() + entry.value.len());
        if bytes.sum::<usize>() > STORE_BYTES_MAX {
            return Err(TruthError::TooMuch {
                most: STORE_BYTES_MAX,
                unit: "bytes",
            });
        }
        if !entries.is_sorted_by(|a, b| a.key < b.key) {
            return Err(self.unreadable("its keys are not in order"));
        }
        Ok(Snapshot {
            revision: self.seen,
            entries,
        })
    }

    /// Refuses a transaction that would make more entries than a snapshot may have.
    fn check_entries(&mut self, transaction: &Transaction) -> Result<(), TruthError> {
        let puts = transaction
            .writes
            .iter()
            .filter(|write| write.value.is_some());
        let puts = puts.count() as u64;
        let fits = |entries: u64| entries + puts <= ENTRIES_MAX as u64;
        if puts == 0 || self.entries.is_some_and(fits) {
            return Ok(());
        }
        let answer = self.question("/v3/kv/range", &self.count_request()["request_range"])?;
        let entries = integer(&answer, "count").map_err(|why| self.unreadable(why))?;
        self.entries = Some(entries);
        match fits(entries) {
            true => Ok(()),
            false => Err(TruthError::Full {
                what: self.gateway.name(),
                why: format!("{entries} entries and {puts} more, {ENTRIES_MAX} are the most"),
            }),
        }
    }

    fn count_request(&self) -> Value {
        let folder = self.truth();
        json!({ "request_range": {
            "key": base64(folder.as_bytes()), "range_end": range_end(&folder), "count_only": true,
        } })
    }

    fn commit_now(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError> {
        transaction.check()?;
        self.begin()?;
        self.check_entries(transaction)?;
        let folder = self.truth();
        let mut compares = Vec::new();
        let mut looks = Vec::new();
        if let Some((election, token)) = &transaction.leadership {
            let leader = self.leader(election);
            compares.push(expects(&leader, token.0));
            looks.push(version_of(&leader));
        }
        for (key, expected) in &transaction.guards {
            let key = format!("{folder}{key}");
            compares.push(expects(&key, expected.0));
            looks.push(version_of(&key));
        }
        let writes = transaction.writes.iter().map(|write| {
            let key = format!("{folder}{}", write.key);
            match &write.value {
                Some(value) => put(&key, value, 0),
                None => remove(&key),
            }
        });
        let transacted = self.transact(compares, writes.collect(), looks)?;
        let mut found_versions = match transacted {
            Transacted::Done(revision) => return Ok(Outcome::Committed(revision)),
            Transacted::Stopped(looks) => looks
                .iter()
                .map(|look| match found(Some(look))? {
                    Some(kv) => version(kv),
                    None => Ok(Version::ABSENT),
                })
                .collect::<Result<Vec<_>, _>>()
                .map_err(|why| self.unreadable(why))?
                .into_iter(),
        };
        if let Some((_, token)) = &transaction.leadership
            && found_versions.next() != Some(Version(token.0))
        {
            return Ok(Outcome::Deposed);
        }
        let guards = transaction.guards.iter().zip(found_versions);
        let standing = guards.filter_map(|((key, expected), version)| {
            let key = key.clone();
            (version != *expected).then_some(Standing { key, version })
        });
        let standing: Vec<_> = standing.collect();
        match standing.is_empty() {
            true => Err(self.unreadable("it stopped a transaction whose guards hold")),
            false => Ok(Outcome::Conflict(standing)),
        }
    }

    fn changes_now(
        &mut self,
        prefix: &Prefix,
        after: Revision,
        wait: Duration,
    ) -> Result<Changes, TruthError> {
        check_wait(wait)?;
        self.begin()?;
        let folder = self.truth();
        let from = format!("{folder}{}", prefix.as_str());
        let body = json!({ "create_request": {
            "key": base64(from.as_bytes()),
            "range_end": range_end(&from),
            "start_revision": (after.0 + 1).to_string(),
        } });
        let wait = wait.max(WATCH_WAIT_MIN);
        let opened = self.gateway.stream("/v3/watch", &body, wait);
        let mut stream = opened.map_err(|failure| self.question_failed(failure))?;
        let mut is_created = false;
        loop {
            let part = stream
                .next()
                .map_err(|failure| self.question_failed(failure))?;
            let line = match part {
                Part::Line(line) => line,
                Part::Waited if is_created => return Ok(no_change(after)),
                Part::Waited => return Err(self.watch_lost("it was not begun in time")),
                Part::Ended(why) => return self.watch_ended(after, &why),
            };
            let line = answers::parse(&line).map_err(|why| self.unreadable(why))?;
            let Some(result) = line.get("result") else {
                let (_, said) = answers::failure(line.to_string().as_bytes());
                return Err(self.watch_lost(&said));
            };
            // Members that lag behind may answer: their revision says nothing.
            let header = header(result).map_err(|why| self.unreadable(why))?;
            self.check_cluster(header.cluster_id, Effect::NotDone)?;
            let compacted = integer(result, "compact_revision");
            if compacted.map_err(|why| self.unreadable(why))? > 0 {
                return Ok(match active(Mutant::CompactionIsNoChange) {
                    true => no_change(after),
                    false => Changes::Compacted,
                });
            }
            if boolean(result, "canceled") {
                let said = result.get("cancel_reason").and_then(Value::as_str);
                return Err(self.watch_lost(said.unwrap_or("etcd cancelled it")));
            }
            is_created |= boolean(result, "created");
            let events = list(result, "events").map_err(|why| self.unreadable(why))?;
            let changes = events.iter().map(|event| change(event, &folder));
            let changes: Result<Vec<_>, _> = changes.collect();
            let changes = changes.map_err(|why| self.unreadable(why))?;
            let Some(last) = changes.last().map(|change| change.revision) else {
                continue;
            };
            let in_order = changes.is_sorted_by_key(|change| change.revision)
                && changes[0].revision > after
                && changes.iter().all(|change| prefix.covers(&change.key));
            if !in_order {
                return Err(self.unreadable("its changes are not those that were asked for"));
            }
            self.seen = self.seen.max(last);
            return Ok(Changes::UpTo {
                revision: last,
                changes,
            });
        }
    }

    /// What the end of a watch means: never that nothing has changed.
    fn watch_ended(&mut self, after: Revision, why: &str) -> Result<Changes, TruthError> {
        match active(Mutant::StreamEndIsNoChange) {
            true => Ok(no_change(after)),
            false => Err(self.watch_lost(why)),
        }
    }

    fn watch_lost(&mut self, why: &str) -> TruthError {
        let error = TruthError::Away {
            what: self.gateway.name(),
            why: format!("the watch was lost: {why}"),
        };
        self.gateway.leave_endpoint();
        error
    }

    /// Calls for leases change no entry, so that a lost answer leaves nothing behind but a lease that ends by itself.
    fn lease(&mut self, path: &str, body: &Value) -> Result<Value, TruthError> {
        let answer = self.gateway.ask(path, body, true);
        let answer = answer.map_err(|failure| self.question_failed(failure))?;
        let inner = answer.get("result").unwrap_or(&answer);
        let header = header(inner).map_err(|why| self.unreadable(why))?;
        self.check_cluster(header.cluster_id, Effect::NotDone)?;
        Ok(inner.clone())
    }

    /// Gives a lease back. It ends by itself too.
    fn revoke(&mut self, lease: i64) {
        let _ = self.lease("/v3/lease/revoke", &json!({ "ID": lease.to_string() }));
    }

    fn campaign_now(
        &mut self,
        election: &Key,
        candidate: &Key,
        term: Duration,
    ) -> Result<Campaigned, TruthError> {
        let seconds = term_seconds(term)?;
        self.begin()?;
        let key = self.leader(election);
        // A lease for nothing is spared where the election is held.
        let range = self.question("/v3/kv/range", &get(&key)["request_range"])?;
        let held = list(&range, "kvs").map_err(|why| self.unreadable(why))?;
        if let Some(kv) = held.first() {
            return self.held_by(kv);
        }
        let granted = self.lease("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        let lease = integer(&granted, "ID").and_then(|id| {
            let id = i64::try_from(id).map_err(|_| "the lease has no number".to_owned())?;
            Ok((id, integer(&granted, "TTL")?))
        });
        let (lease, granted) = match lease {
            Ok((lease, granted)) if lease > 0 && granted > 0 => (lease, granted),
            Ok(_) => return Err(self.unreadable("it granted no lease")),
            Err(why) => return Err(self.unreadable(why)),
        };
        let bid = put(&key, candidate.as_str().as_bytes(), lease);
        let is_free = match active(Mutant::BidUnguarded) {
            true => Vec::new(),
            false => vec![expects(&key, 0)],
        };
        match self.transact(is_free, vec![bid], vec![get(&key)]) {
            Ok(Transacted::Done(revision)) => Ok(Campaigned::Leads(Leadership {
                election: election.clone(),
                token: Token(revision.0),
                term: Duration::from_secs(granted),
                lease,
            })),
            Ok(Transacted::Stopped(looks)) => {
                self.revoke(lease);
                match found(looks.first()).map_err(|why| self.unreadable(why))? {
                    Some(kv) => self.held_by(kv),
                    None => Err(self.unreadable("it stopped a campaign that nobody else won")),
                }
            }
            Err(error) => {
                if error.effect() == Effect::NotDone {
                    self.revoke(lease);
                }
                Err(error)
            }
        }
    }

    fn held_by(&self, kv: &Value) -> Result<Campaigned, TruthError> {
        let value = answers::value(kv).map_err(|why| self.unreadable(why))?;
        let token = version(kv).map_err(|why| self.unreadable(why))?;
        Ok(Campaigned::HeldBy {
            candidate: String::from_utf8_lossy(&value).chars().take(256).collect(),
            token: Token(token.0),
        })
    }

    fn renew_now(&mut self, leadership: &Leadership) -> Result<Renewed, TruthError> {
        self.begin()?;
        let lasts = self.keep_lease(leadership)? && self.has_key(leadership)?;
        Ok(match lasts {
            true => Renewed::Leads,
            false => Renewed::Ended,
        })
    }

    /// Whether a lease lives on.
    fn keep_lease(&mut self, leadership: &Leadership) -> Result<bool, TruthError> {
        let id = json!({ "ID": leadership.lease.to_string() });
        let kept = self.lease("/v3/lease/keepalive", &id)?;
        // A lease that has ended is answered too, without a time.
        let left = integer(&kept, "TTL").map_err(|why| self.unreadable(why))?;
        Ok(left > 0 || active(Mutant::KeepaliveWithoutTime))
    }

    /// Whether the leader's key is its own. A member that was cut off may keep a lease alive whose end the others have seen: the key
    /// is asked of all.
    fn has_key(&mut self, leadership: &Leadership) -> Result<bool, TruthError> {
        if active(Mutant::LeaseIsLeadership) {
            return Ok(true);
        }
        let key = self.leader(&leadership.election);
        let range = self.question("/v3/kv/range", &version_of(&key)["request_range"])?;
        let kvs = list(&range, "kvs").map_err(|why| self.unreadable(why))?;
        match kvs.first() {
            Some(kv) => version(kv)
                .map(|version| version.0 == leadership.token.0)
                .map_err(|why| self.unreadable(why)),
            None => Ok(false),
        }
    }

    fn resign_now(&mut self, leadership: &Leadership) -> Result<(), TruthError> {
        self.depose_now(&leadership.election, leadership.token)?;
        self.revoke(leadership.lease);
        Ok(())
    }

    fn depose_now(&mut self, election: &Key, token: Token) -> Result<(), TruthError> {
        self.begin()?;
        let key = self.leader(election);
        let is_it = match active(Mutant::DeposesAnyLeader) {
            true => Vec::new(),
            false => vec![expects(&key, token.0)],
        };
        let _ = self.transact(is_it, vec![remove(&key)], Vec::new())?;
        Ok(())
    }
}

/// What a watch reports that was quiet.
fn no_change(after: Revision) -> Changes {
    Changes::UpTo {
        revision: after,
        changes: Vec::new(),
    }
}

impl TruthStore for EtcdStore {
    fn abilities(&self) -> Abilities {
        Abilities {
            shared: true,
            call_wait_max: self.gateway.call_wait(),
        }
    }

    fn read(&mut self, prefix: &Prefix) -> Result<Snapshot, TruthError> {
        let result = self.read_now(prefix);
        self.counts.reads += u64::from(result.is_ok());
        self.counted(result)
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Outcome, TruthError> {
        let result = self.commit_now(transaction);
        self.counts.count_outcome(&result);
        self.counted(result)
    }

    fn changes(
        &mut self,
        prefix: &Prefix,
        after: Revision,
        wait: Duration,
    ) -> Result<Changes, TruthError> {
        let result = self.changes_now(prefix, after, wait);
        self.counted(result)
    }

    fn campaign(
        &mut self,
        election: &Key,
        candidate: &Key,
        term: Duration,
    ) -> Result<Campaigned, TruthError> {
        let result = self.campaign_now(election, candidate, term);
        self.counted(result)
    }

    fn renew(&mut self, leadership: &Leadership) -> Result<Renewed, TruthError> {
        let result = self.renew_now(leadership);
        self.counted(result)
    }

    fn resign(&mut self, leadership: &Leadership) -> Result<(), TruthError> {
        let result = self.resign_now(leadership);
        self.counted(result)
    }

    fn depose(&mut self, election: &Key, token: Token) -> Result<(), TruthError> {
        let result = self.depose_now(election, token);
        self.counted(result)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
