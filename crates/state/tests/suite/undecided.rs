//! What a transaction writes here while a store decides of it: reads that the decision may answer otherwise are late, and no others.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Answered, Builder, Call, Context, Home, Identity, Late, Map, ObjectSettings, Register,
    Sequencer, State, Transaction, Wait, Wire, state,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

#[state]
struct Mixed {
    far: Map<u32, Word>,
    near: Map<u32, Word>,
    mode: Register<Word>,
}

/// The table of which the store has the entries; the others are here.
const FAR: u8 = 0;

struct Host {
    context: Rc<Context>,
    state: Mixed,
    serial: u64,
}

fn host() -> Host {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Context::new(Identity::alone(), sequencer, 5, vec![]);
    let context = Rc::new(context);
    context.expect_requests(8);
    context.await_for(8, 8);
    let builder = Builder::new(context.clone(), |name| match name {
        "far" => ObjectSettings {
            home: Home::Remote,
            ..ObjectSettings::LOCAL
        },
        _ => ObjectSettings::LOCAL,
    });
    let state = Mixed {
        far: builder.table("far", 8, &[0]),
        near: builder.table("near", 2, &[0]),
        mode: builder.register("mode", Word(0)),
    };
    let state = builder.built(state);
    Host {
        context,
        state,
        serial: 0,
    }
}

impl Host {
    /// The next packet.
    fn begin(&mut self) {
        self.serial += 1;
        self.context.set_now(self.serial, 1);
        self.context.arrive(self.serial);
        self.context.begin(self.serial);
    }

    fn end(&mut self) {
        self.context.end(|_, _| {});
        self.state.settle();
    }

    /// What a packet waits for whose read is late, and that it waits.
    fn is_late<T: core::fmt::Debug>(
        &mut self,
        read: impl FnOnce(&Mixed) -> Result<T, Late>,
    ) -> bool {
        self.begin();
        self.context.note_reads(true);
        let is_late = read(&self.state).is_err();
        let (call, wait) = self.context.park();
        if is_late {
            assert!(matches!(wait, Wait::Written { .. }), "{wait:?}");
            self.context.await_noted(1);
        }
        self.context.note_reads(false);
        self.context.abandon(call, |_, _| {});
        self.state.settle();
        is_late
    }

    /// A packet that reads an entry of the store, which has none, and then writes here: the writes, which wait for a decision.
    fn stage(&mut self, write: impl FnOnce(&mut Mixed)) -> (Call, Transaction) {
        self.begin();
        assert!(self.state.far.get(&1).is_err());
        let (call, wait) = self.context.park();
        assert_eq!(wait, Wait::Answers);
        let context = self.context.clone();
        let mut tickets = Vec::new();
        context.take_requests(|ticket, _| tickets.push(ticket));
        assert_eq!(tickets.len(), 1);
        // Its length, and no entry.
        let answered = context.take_answer(tickets[0], &[0, 0]);
        assert_eq!(answered, Answered::Complete(call.requests()));
        context.resume(call);
        assert_eq!(self.state.install(&context), Ok(()));
        assert!(self.state.far.get(&1).expect("answered").is_none());
        write(&mut self.state);
        self.state.for_each_object(|object| object.end_recording());
        let mut transaction = Transaction::default();
        context.seal(&mut transaction);
        self.state.withdraw();
        let (call, _) = context.park();
        self.state.settle();
        self.note(&transaction, true);
        (call, transaction)
    }

    fn note(&mut self, transaction: &Transaction, begins: bool) {
        let here = |object| object != FAR;
        let writes = transaction.writes();
        let noted = self
            .state
            .note_undecided(&self.context, writes, here, begins);
        assert_eq!(noted, Ok(()));
    }

    fn decide(&mut self, (call, transaction): (Call, Transaction), is_committed: bool) {
        self.note(&transaction, false);
        if is_committed {
            let here = |object| object != FAR;
            let made = self.state.commit(&self.context, transaction.writes(), here);
            assert_eq!(made, Ok(()));
        }
        self.context.abandon(call, |_, _| {});
        self.end();
    }

    fn insert(&mut self, key: u32) {
        self.begin();
        put(&mut self.state, key, 1);
        self.end();
    }
}

fn put(state: &mut Mixed, key: u32, value: u32) {
    let entry = state.near.entry(key).expect("here");
    assert!(state.act().near.put(entry, Word(value)), "room");
}

fn remove(state: &mut Mixed, key: u32) {
    let at = state.near.get(&key).expect("here").expect("an entry");
    state.act().near.remove(&at);
}

#[test]
fn what_is_written_is_late_until_it_is_decided_and_then_as_it_was_decided() {
    for is_committed in [true, false] {
        let mut host = host();
        host.insert(1);
        let staged = host.stage(|state| put(state, 1, 2));
        assert!(!host.is_late(|state| state.near.get(&2)), "another key");
        assert!(!host.is_late(|state| state.near.is_empty()), "one is left");
        assert!(!host.is_late(|state| state.mode.get()));
        assert!(!host.context.has_woken());
        assert!(host.is_late(|state| state.near.get(&1)));
        host.decide(staged, is_committed);
        assert_eq!(host.context.next_woken(), Some(1), "who waited for it");
        assert!(!host.is_late(|state| state.near.get(&1)));
        let value = host.state.near.value_now(&1.into());
        assert_eq!(value, Some(Word(if is_committed { 2 } else { 1 })));
    }
}

#[test]
fn an_entry_that_is_added_has_its_room_at_once() {
    let mut host = host();
    host.insert(1);
    let staged = host.stage(|state| put(state, 2, 1));
    assert!(host.is_late(|state| state.near.get(&2)), "it may be there");
    assert!(host.is_late(|state| state.near.vacancy()), "or the room is");
    host.decide(staged, false);
    assert_eq!(host.context.next_woken(), Some(1));
    assert!(!host.is_late(|state| state.near.vacancy()));
    let staged = host.stage(|state| put(state, 2, 1));
    host.decide(staged, true);
    assert!(!host.is_late(|state| state.near.vacancy()), "it is full");
    assert_eq!(host.state.near.held(), 2);
}

#[test]
fn whether_there_are_entries_is_late_where_a_decision_may_say() {
    let mut host = host();
    let first = host.stage(|state| put(state, 1, 1));
    assert!(host.is_late(|state| state.near.is_empty()));
    host.decide(first, true);
    assert_eq!(host.context.next_woken(), Some(1));
    host.insert(2);
    let one = host.stage(|state| remove(state, 1));
    assert!(!host.is_late(|state| state.near.is_empty()), "one stays");
    assert!(host.is_late(|state| state.near.vacancy()), "it may be full");
    let other = host.stage(|state| remove(state, 2));
    assert!(host.is_late(|state| state.near.is_empty()));
    host.decide(one, true);
    host.decide(other, true);
    assert!(!host.is_late(|state| state.near.is_empty()));
    assert_eq!(host.state.near.len_now(), 0);
}

#[test]
fn a_register_is_late_too_and_a_use_is_no_matter() {
    let mut host = host();
    host.insert(1);
    let staged = host.stage(|state| state.act().mode.set(Word(3)));
    assert!(host.is_late(|state| state.mode.get()));
    host.decide(staged, true);
    assert_eq!(host.context.next_woken(), Some(1));
    assert_eq!(host.state.mode.get(), Ok(Word(3)));
    let staged = host.stage(|state| {
        let at = state.near.get(&1).expect("here").expect("an entry");
        state.act().near.touch(&at);
    });
    assert!(!host.is_late(|state| state.near.get(&1)));
    host.decide(staged, true);
}
