//! The thread of the truth store: leads if it may, reads and writes the record.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use asterism_placement::Time;
use asterism_truth_store::{
    Campaigned, Effect, Key, Leadership, Outcome, Prefix, Renewed, Token, Transaction, TruthError,
    TruthStore, Version,
};

use super::view::StoreView;
use super::{OpenedStore, StartError};
use crate::clock;
use crate::controller::{Input, Record};
use crate::usage::{UsageAnswer, UsageCommand};

/// Opens the store, on the store's own thread.
pub type StoreFactory = Box<dyn FnOnce() -> OpenedStore + Send>;

/// A term is renewed so many times within its length.
const RENEWALS: u32 = 3;
/// Commands that wait at most: the controller awaits each answer, and gives up what is overdue.
const COMMANDS_MAX: usize = 16;

/// What the thread is to do.
#[derive(Debug)]
pub(super) enum StoreCommand {
    Read,
    Store {
        record: Record,
        replaces: u64,
        term: u64,
    },
    /// End the leadership of this term, and ask to lead.
    Depose {
        term: u64,
    },
    Usage(UsageCommand),
    /// Read what the launching of hosts remembers, and answer.
    ReadLaunching(SyncSender<Result<Launching, String>>),
    /// Write it, under the same conditions as the record, and answer.
    StoreLaunching {
        bytes: Vec<u8>,
        replaces: u64,
        term: u64,
        answer: SyncSender<Result<u64, NotStored>>,
    },
}

/// What the launching of hosts remembers, if it ever wrote anything, and the version.
pub(super) type Launching = (Option<Vec<u8>>, u64);

/// Why something was not stored, or may not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotStored {
    /// Another orchestrator leads, or has written.
    #[error("another orchestrator leads, or has written")]
    Refused,
    /// The store did not take it, or did not answer.
    #[error("{0}")]
    Failed(String),
}

/// What the controller's thread has of the store.
#[derive(Debug)]
pub(super) struct StoreHandle {
    pub(super) commands: SyncSender<StoreCommand>,
    /// How the store does, newest last.
    pub(super) views: Receiver<StoreView>,
    /// What became of the commands about usage.
    pub(super) usage: Receiver<UsageAnswer>,
}

/// Starts the thread, and waits until the store is open.
pub(super) fn start(
    factory: StoreFactory,
    (cluster, identity): (&str, u32),
    name: &str,
    term: Duration,
    places: Vec<String>,
    inputs: SyncSender<Input>,
) -> Result<(JoinHandle<()>, StoreHandle), StartError> {
    let prefix = format!("clusters/{cluster}");
    let keys = Keys {
        record: Key::new(format!("{prefix}/record"))?,
        identity: Key::new(format!("{prefix}/identity"))?,
        election: Key::new(format!("{prefix}/leader"))?,
        candidate: Key::new(name)?,
        record_prefix: Prefix::new(&format!("{prefix}/record"))?,
        identity_prefix: Prefix::new(&format!("{prefix}/identity"))?,
        launching: Key::new(format!("{prefix}/launching"))?,
        launching_prefix: Prefix::new(&format!("{prefix}/launching"))?,
        usage: Key::new(format!("{prefix}/usage"))?,
        usage_prefix: Prefix::new(&format!("{prefix}/usage"))?,
    };
    let (commands, received) = sync_channel(COMMANDS_MAX);
    let (view_sender, views) = sync_channel(COMMANDS_MAX);
    let (usage_sender, usage) = sync_channel(COMMANDS_MAX);
    let (opened_sender, opened) = sync_channel(1);
    let thread = Builder::new().name("store".to_owned()).spawn(move || {
        let store = match factory() {
            Ok(store) => {
                let _ = opened_sender.send(Ok(()));
                store
            }
            Err(why) => {
                let _ = opened_sender.send(Err(why));
                return;
            }
        };
        let thread = StoreThread {
            store,
            keys,
            identity,
            is_own: false,
            term,
            places,
            inputs,
            views: view_sender,
            usage: usage_sender,
            leadership: None,
            led_by: None,
            unreadable: None,
        };
        thread.run(&received);
    })?;
    match opened.recv() {
        Ok(Ok(())) => Ok((
            thread,
            StoreHandle {
                commands,
                views,
                usage,
            },
        )),
        Ok(Err(why)) => Err(StartError::Store(why)),
        Err(_) => Err(StartError::StoreThread),
    }
}

struct Keys {
    record: Key,
    /// Whose record it is.
    identity: Key,
    election: Key,
    candidate: Key,
    record_prefix: Prefix,
    identity_prefix: Prefix,
    launching: Key,
    launching_prefix: Prefix,
    usage: Key,
    usage_prefix: Prefix,
}

struct StoreThread {
    store: Box<dyn TruthStore>,
    keys: Keys,
    /// The number of this cluster's hash seed.
    identity: u32,
    /// Whether the store was found to be this cluster's.
    is_own: bool,
    term: Duration,
    places: Vec<String>,
    inputs: SyncSender<Input>,
    views: SyncSender<StoreView>,
    usage: SyncSender<UsageAnswer>,
    leadership: Option<Leadership>,
    /// Who leads, if it is another one.
    led_by: Option<String>,
    /// Why the record that was read last is none.
    unreadable: Option<String>,
}

impl StoreThread {
    fn run(mut self, commands: &Receiver<StoreCommand>) {
        let mut next = clock::time();
        loop {
            let now = clock::time();
            if now >= next {
                self.lead();
                next = now + self.term / RENEWALS;
            }
            match commands.recv_timeout(next.since(clock::time())) {
                Ok(StoreCommand::Read) => self.read(),
                Ok(StoreCommand::Store {
                    record,
                    replaces,
                    term,
                }) => self.store(&record, replaces, term),
                Ok(StoreCommand::Depose { term }) => {
                    self.depose(term);
                    next = clock::time();
                }
                Ok(StoreCommand::ReadLaunching(answer)) => {
                    // Who asked may have gone.
                    let _ = answer.try_send(self.read_launching());
                }
                Ok(StoreCommand::StoreLaunching {
                    bytes,
                    replaces,
                    term,
                    answer,
                }) => {
                    let _ = answer.try_send(self.store_launching(bytes, replaces, term));
                }
                Ok(StoreCommand::Usage(command)) => self.usage(command),
                Err(RecvTimeoutError::Timeout) => {}
                // The controller's thread has ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(leadership) = self.leadership.take() {
            // Without it the term ends by itself.
            let _ = self.store.resign(&leadership);
        }
    }

    /// Renews the leadership, or asks for it.
    fn lead(&mut self) {
        if !self.is_own && !self.claim() {
            return self.input(Input::Follows { led_in: None });
        }
        // The term counts from before the question: the answer may have taken long.
        let asked = clock::time();
        if let Some(leadership) = &self.leadership {
            match self.store.renew(leadership) {
                Ok(Renewed::Leads) => {
                    let (term, until) = (leadership.token().0, asked + leadership.term());
                    self.say(asked, self.answered());
                    return self.input(Input::Leads { term, until });
                }
                Ok(Renewed::Ended) => {
                    self.leadership = None;
                    self.input(Input::Follows { led_in: None });
                }
                // The term may go on or not; the controller's clock ends it.
                Err(error) => return self.say(asked, StoreView::failed(&error)),
            }
        }
        let asked = clock::time();
        let (election, candidate) = (&self.keys.election, &self.keys.candidate);
        match self.store.campaign(election, candidate, self.term) {
            Ok(Campaigned::Leads(leadership)) => {
                let (term, until) = (leadership.token().0, asked + leadership.term());
                (self.leadership, self.led_by) = (Some(leadership), None);
                self.say(asked, self.answered());
                self.input(Input::Leads { term, until });
            }
            Ok(Campaigned::HeldBy { candidate, token }) => {
                self.led_by = Some(candidate);
                self.say(asked, self.answered());
                let led_in = Some(token.0);
                self.input(Input::Follows { led_in });
            }
            Err(error) => self.say(asked, StoreView::failed(&error)),
        }
    }

    /// Ends the leadership of another orchestrator, unless it has ended.
    fn depose(&mut self, term: u64) {
        let asked = clock::time();
        if let Err(error) = self.store.depose(&self.keys.election, Token(term)) {
            self.say(asked, StoreView::failed(&error));
        }
    }

    /// Writes into an empty store whose it is, or looks whether it is this cluster's: another one may have the same name.
    fn claim(&mut self) -> bool {
        let own = self.identity.to_string();
        let asked = clock::time();
        let claimed = self
            .store
            .read(&self.keys.identity_prefix)
            .and_then(|found| {
                if let Some(entry) = found.get(&self.keys.identity) {
                    return Ok(Some(*entry.value == *own.as_bytes()));
                }
                let key = self.keys.identity.clone();
                let transaction = Transaction::new()
                    .expect(key.clone(), Version::ABSENT)
                    .put(key, own.clone().into_bytes());
                // If another one was first, the next look shows which.
                let is_first = matches!(self.store.commit(&transaction)?, Outcome::Committed(_));
                Ok(is_first.then_some(true))
            });
        match claimed {
            Ok(Some(false)) => self.say(asked, StoreView::of_another()),
            Ok(is_own) => self.is_own = is_own.is_some(),
            Err(error) => self.say(asked, StoreView::failed(&error)),
        }
        self.is_own
    }

    fn read(&mut self) {
        if !self.is_own {
            return;
        }
        let asked = clock::time();
        let snapshot = match self.store.read(&self.keys.record_prefix) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.say(asked, StoreView::failed(&error)),
        };
        let input = match snapshot.get(&self.keys.record) {
            None => Input::Record {
                record: Record::default(),
                version: 0,
            },
            Some(entry) => match Record::from_bytes(&entry.value, &self.places) {
                Ok(record) => Input::Record {
                    record,
                    version: entry.version.0,
                },
                // Nothing is decided by it, and nothing is written over it.
                Err(why) => {
                    self.unreadable = Some(why.to_string());
                    return self.say(asked, self.answered());
                }
            },
        };
        self.unreadable = None;
        self.say(asked, self.answered());
        self.input(input);
    }

    /// The store answers; its record may be none.
    fn answered(&self) -> StoreView {
        let error = self.unreadable.as_ref();
        StoreView {
            led_by: self.led_by.clone(),
            error: error
                .map(|why| format!("{why}; nothing is decided until the record can be read")),
            ..StoreView::default()
        }
    }

    fn store(&mut self, record: &Record, replaces: u64, term: u64) {
        let Some(leadership) = self.leadership.as_ref().filter(|one| one.token().0 == term) else {
            return self.input(Input::NotStored);
        };
        let key = self.keys.record.clone();
        let transaction = Transaction::new()
            .expect(key.clone(), Version(replaces))
            .put(key, record.to_bytes())
            .under(leadership);
        let asked = clock::time();
        match self.store.commit(&transaction) {
            Ok(Outcome::Committed(revision)) => {
                self.say(asked, self.answered());
                let version = revision.0;
                self.input(Input::Stored { version });
            }
            Ok(Outcome::Conflict(_)) => self.input(Input::NotStored),
            Ok(Outcome::Deposed) => {
                self.leadership = None;
                self.input(Input::NotStored);
                self.input(Input::Follows { led_in: None });
            }
            Err(error) => {
                self.say(asked, StoreView::failed(&error));
                self.input(Input::NotStored);
            }
        }
    }

    fn read_launching(&mut self) -> Result<Launching, String> {
        let asked = clock::time();
        match self.store.read(&self.keys.launching_prefix) {
            Ok(snapshot) => Ok(snapshot
                .get(&self.keys.launching)
                .map_or((None, 0), |entry| {
                    (Some(entry.value.to_vec()), entry.version.0)
                })),
            Err(error) => {
                self.say(asked, StoreView::failed(&error));
                Err(error.to_string())
            }
        }
    }

    fn store_launching(
        &mut self,
        bytes: Vec<u8>,
        replaces: u64,
        term: u64,
    ) -> Result<u64, NotStored> {
        let leadership = self.leadership.as_ref();
        let leadership = leadership.filter(|one| one.token().0 == term);
        let leadership = leadership.ok_or(NotStored::Refused)?;
        let key = self.keys.launching.clone();
        let transaction = Transaction::new()
            .expect(key.clone(), Version(replaces))
            .put(key, bytes)
            .under(leadership);
        let asked = clock::time();
        match self.store.commit(&transaction) {
            Ok(Outcome::Committed(revision)) => {
                self.say(asked, self.answered());
                Ok(revision.0)
            }
            Ok(Outcome::Conflict(_)) => Err(NotStored::Refused),
            Ok(Outcome::Deposed) => {
                self.leadership = None;
                self.input(Input::Follows { led_in: None });
                Err(NotStored::Refused)
            }
            Err(error) => {
                self.say(asked, StoreView::failed(&error));
                Err(NotStored::Failed(error.to_string()))
            }
        }
    }

    /// Reads or writes the state of metering. The leadership guards it: only one leader writes, so there is no version to expect.
    fn usage(&mut self, command: UsageCommand) {
        let asked = clock::time();
        let answer = match command {
            UsageCommand::Read => match self.store.read(&self.keys.usage_prefix) {
                Ok(snapshot) => UsageAnswer::Read(
                    snapshot
                        .get(&self.keys.usage)
                        .map(|entry| entry.value.to_vec()),
                ),
                Err(error) => {
                    self.say(asked, StoreView::failed(&error));
                    UsageAnswer::Failed
                }
            },
            UsageCommand::Store { bytes, term } => self.store_usage(bytes, term),
        };
        // Who asked has one question at a time, and has ended if nobody takes it.
        let _ = self.usage.try_send(answer);
    }

    fn store_usage(&mut self, bytes: Vec<u8>, term: u64) -> UsageAnswer {
        let Some(leadership) = self.leadership.as_ref().filter(|one| one.token().0 == term) else {
            return UsageAnswer::Failed;
        };
        let transaction = Transaction::new()
            .put(self.keys.usage.clone(), bytes)
            .under(leadership);
        let asked = clock::time();
        match self.store.commit(&transaction) {
            Ok(Outcome::Committed(_)) => UsageAnswer::Stored,
            Ok(Outcome::Conflict(_)) => UsageAnswer::Failed,
            Ok(Outcome::Deposed) => {
                self.leadership = None;
                self.input(Input::Follows { led_in: None });
                UsageAnswer::Failed
            }
            Err(error) => {
                self.say(asked, StoreView::failed(&error));
                UsageAnswer::Failed
            }
        }
    }

    fn input(&self, input: Input) {
        // The controller's thread has ended: so does this one, at its next command.
        let _ = self.inputs.send(input);
    }

    /// Reports how the store answered what it was asked at `asked`.
    fn say(&self, asked: Time, view: StoreView) {
        let took_us = clock::time().since(asked).as_micros() as u64;
        let _ = self.views.try_send(StoreView { took_us, ..view });
    }
}

impl StoreView {
    fn failed(error: &TruthError) -> StoreView {
        let effect = match error.effect() {
            Effect::Unknown => "whether the change was made is not known",
            _ => "nothing was changed",
        };
        StoreView {
            error: Some(format!("{error}; {effect}")),
            ..StoreView::default()
        }
    }

    fn of_another() -> StoreView {
        StoreView {
            error: Some(
                "the truth store has a cluster of this name with another key: give one of the two another name, or a store of its own; \
                 nothing is decided"
                    .to_owned(),
            ),
            ..StoreView::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_truth_store::clock::monotonic;
    use asterism_truth_store::embedded::EmbeddedStore;

    /// What an orchestrator of this cluster learns first from the store in a folder, and how the store then does.
    fn first_learnt(folder: &std::path::Path, identity: u32) -> (Input, StoreView) {
        let folder = folder.to_owned();
        let (sender, inputs) = sync_channel(16);
        let factory: StoreFactory =
            Box::new(move || Ok(Box::new(EmbeddedStore::open(&folder, monotonic())?)));
        let term = Duration::from_secs(1);
        let started = start(factory, ("edge", identity), "o", term, Vec::new(), sender);
        let (thread, handle) = started.unwrap();
        let wait = Duration::from_secs(10);
        handle.commands.send(StoreCommand::Read).unwrap();
        let learnt = inputs.recv_timeout(wait).unwrap();
        let view = handle.views.recv_timeout(wait).unwrap();
        drop(handle);
        thread.join().unwrap();
        (learnt, view)
    }

    #[test]
    fn a_record_that_cannot_be_read_is_said_as_long_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let mut store = EmbeddedStore::open(&path, monotonic()).unwrap();
        let key = Key::new("clusters/edge/record").unwrap();
        let put = Transaction::new().put(key, b"no record".to_vec());
        assert!(matches!(store.commit(&put), Ok(Outcome::Committed(_))));
        drop(store);
        let (sender, _inputs) = sync_channel(16);
        let factory: StoreFactory =
            Box::new(move || Ok(Box::new(EmbeddedStore::open(&path, monotonic())?)));
        // The leadership is renewed every third of its term, and each renewal says how the store does.
        let term = Duration::from_secs(1);
        let started = start(factory, ("edge", 7), "o", term, Vec::new(), sender);
        let (thread, handle) = started.unwrap();
        handle.commands.send(StoreCommand::Read).unwrap();
        let views = std::iter::from_fn(|| handle.views.recv_timeout(Duration::from_secs(10)).ok());
        let errors: Vec<Option<String>> = views
            .skip_while(|view| view.error.is_none())
            .map(|view| view.error)
            .take(4)
            .collect();
        assert_eq!(errors.iter().flatten().count(), 4, "{errors:?}");
        assert!(
            errors[0].as_ref().unwrap().contains("not understood"),
            "{errors:?}"
        );
        drop(handle);
        thread.join().unwrap();
    }

    #[test]
    fn two_clusters_of_one_name_do_not_share_a_record() {
        let folder = std::env::temp_dir().join(format!("asterism-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (identity, is_own) in [(7, true), (8, false), (7, true)] {
            let (learnt, view) = first_learnt(&folder, identity);
            assert_eq!(matches!(learnt, Input::Leads { .. }), is_own, "{learnt:?}");
            match view.error {
                None => assert!(is_own),
                Some(why) => assert!(why.contains("of this name with another key"), "{why}"),
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
