//! The thread of the truth store: leads if it may, reads and writes the record.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use asterism_truth_store::{
    Campaigned, Effect, Key, Leadership, Outcome, Prefix, Renewed, Transaction, TruthError,
    TruthStore, Version,
};

use super::view::StoreView;
use super::{OpenedStore, StartError};
use crate::clock;
use crate::controller::{Input, Record};

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
}

/// What the controller's thread has of the store.
#[derive(Debug)]
pub(super) struct StoreHandle {
    pub(super) commands: SyncSender<StoreCommand>,
    /// How the store does, newest last.
    pub(super) views: Receiver<StoreView>,
}

/// Starts the thread, and waits until the store is open.
pub(super) fn start(
    factory: StoreFactory,
    cluster: &str,
    name: &str,
    term: Duration,
    places: Vec<String>,
    inputs: SyncSender<Input>,
) -> Result<(JoinHandle<()>, StoreHandle), StartError> {
    let prefix = format!("clusters/{cluster}");
    let keys = Keys {
        record: Key::new(format!("{prefix}/record"))?,
        election: Key::new(format!("{prefix}/leader"))?,
        candidate: Key::new(name)?,
        prefix: Prefix::new(&format!("{prefix}/record"))?,
    };
    let (commands, received) = sync_channel(COMMANDS_MAX);
    let (view_sender, views) = sync_channel(COMMANDS_MAX);
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
            term,
            places,
            inputs,
            views: view_sender,
            leadership: None,
            led_by: None,
        };
        thread.run(&received);
    })?;
    match opened.recv() {
        Ok(Ok(())) => Ok((thread, StoreHandle { commands, views })),
        Ok(Err(why)) => Err(StartError::Store(why)),
        Err(_) => Err(StartError::StoreThread),
    }
}

struct Keys {
    record: Key,
    election: Key,
    candidate: Key,
    prefix: Prefix,
}

struct StoreThread {
    store: Box<dyn TruthStore>,
    keys: Keys,
    term: Duration,
    places: Vec<String>,
    inputs: SyncSender<Input>,
    views: SyncSender<StoreView>,
    leadership: Option<Leadership>,
    /// Who leads, if it is another one.
    led_by: Option<String>,
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
        // The term counts from before the question: the answer may have taken long.
        let asked = clock::time();
        if let Some(leadership) = &self.leadership {
            match self.store.renew(leadership) {
                Ok(Renewed::Leads) => {
                    let (term, until) = (leadership.token().0, asked + leadership.term());
                    self.say(StoreView::answers());
                    return self.input(Input::Leads { term, until });
                }
                Ok(Renewed::Ended) => {
                    self.leadership = None;
                    self.input(Input::Follows);
                }
                // The term may go on or not; the controller's clock ends it.
                Err(error) => return self.say(StoreView::failed(&error)),
            }
        }
        let asked = clock::time();
        let (election, candidate) = (&self.keys.election, &self.keys.candidate);
        match self.store.campaign(election, candidate, self.term) {
            Ok(Campaigned::Leads(leadership)) => {
                let (term, until) = (leadership.token().0, asked + leadership.term());
                (self.leadership, self.led_by) = (Some(leadership), None);
                self.say(StoreView::answers());
                self.input(Input::Leads { term, until });
            }
            Ok(Campaigned::HeldBy(name)) => {
                self.led_by = Some(name);
                self.say(self.followed());
                self.input(Input::Follows);
            }
            Err(error) => self.say(StoreView::failed(&error)),
        }
    }

    fn read(&mut self) {
        let snapshot = match self.store.read(&self.keys.prefix) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.say(StoreView::failed(&error)),
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
                Err(why) => return self.say(StoreView::unreadable(&why)),
            },
        };
        self.say(self.followed());
        self.input(input);
    }

    fn followed(&self) -> StoreView {
        StoreView {
            led_by: self.led_by.clone(),
            ..StoreView::answers()
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
        match self.store.commit(&transaction) {
            Ok(Outcome::Committed(revision)) => {
                self.say(StoreView::answers());
                let version = revision.0;
                self.input(Input::Stored { version });
            }
            Ok(Outcome::Conflict(_)) => self.input(Input::NotStored),
            Ok(Outcome::Deposed) => {
                self.leadership = None;
                self.input(Input::NotStored);
                self.input(Input::Follows);
            }
            Err(error) => {
                self.say(StoreView::failed(&error));
                self.input(Input::NotStored);
            }
        }
    }

    fn input(&self, input: Input) {
        // The controller's thread has ended: so does this one, at its next command.
        let _ = self.inputs.send(input);
    }

    fn say(&self, view: StoreView) {
        let _ = self.views.try_send(view);
    }
}

impl StoreView {
    fn answers() -> StoreView {
        StoreView::default()
    }

    fn failed(error: &TruthError) -> StoreView {
        let effect = match error.effect() {
            Effect::Unknown => "whether the change was made is not known",
            _ => "nothing was changed",
        };
        StoreView {
            error: Some(format!("{error}; {effect}")),
            led_by: None,
        }
    }

    fn unreadable(why: &impl std::fmt::Display) -> StoreView {
        StoreView {
            error: Some(format!(
                "{why}; nothing is decided until the record can be read"
            )),
            led_by: None,
        }
    }
}
