//! Packets whose objects live in a store: asked for, called with the answers, and held until the store has what they wrote.
//!
//! Such a packet is parked twice. First for its answers: the call that asked for them was late. Then for the store's decision, with all that
//! its call did: the frame as it was edited, what was emitted, the verdict, and the packet as it came. It is the first of its flow all the
//! while, so the flow keeps its order. Committed, it leaves. Refused, it is as it came, its reads are asked for again, and the function is
//! called again with the same pinned call.

use asterism_function::{
    FlowKey, Fragment, Layout, NetworkFunction, Packet, PortNumber, Reason, Verdict, decided,
};
use asterism_placement::Time;
use asterism_state::{Answered, Call, Context, State, Transaction, hash};

use super::Instance;
use super::homes::{HomeEnd, Upward};
use super::kept::Keeping;
use crate::mutant::{self, Mutant};
use crate::parking::{PLACES, Parked, Until};
use crate::store::{Attempt, StoreEvent};
use asterism_io::frame::{Frame, FramePool};

/// Answers and decisions that are taken in one turn; the rest in the next ones, so that no store keeps packets waiting for it alone.
const EVENTS_PER_TURN_MAX: usize = 1_024;

/// What a call did that is not committed yet.
#[derive(Debug, Default)]
struct Outcome {
    attempt: Option<Attempt>,
    /// What the store said of it.
    is_committed: Option<bool>,
    transaction: Transaction,
    verdict: Option<Verdict>,
    /// The packet as it came.
    original: Option<Frame>,
    emitted: Vec<(PortNumber, Frame)>,
}

impl Outcome {
    /// Whether it waits for the store's decision on this transaction.
    fn awaits(&self, attempt: Attempt) -> bool {
        let is_undecided = self.attempt.is_some();
        self.attempt == Some(attempt) || is_undecided && mutant::active(Mutant::DecisionOfAnother)
    }
}

/// The packet that is called with answers.
#[derive(Debug)]
struct Calling {
    flow: u64,
    digest: u64,
    is_fragment: bool,
    since_us: u64,
    arrived_us: u64,
    /// How long it may wait for answers.
    until_us: u64,
    original: Frame,
    /// All that it ever asked for was answered at once, at one time.
    is_of_one_time: bool,
    /// Frames that were emitted before the call.
    emitted_before: usize,
}

/// An instance's side of its store.
pub(super) struct Stored {
    pub(super) store: HomeEnd,
    /// The objects in it, a bit for each.
    pub(super) objects: u64,
    /// By the numbers of packets' requests.
    outcomes: Vec<Outcome>,
    last_attempt: Attempt,
    calling: Option<Calling>,
    /// What of it stays here between calls.
    pub(super) keeping: Keeping,
}

impl Stored {
    /// For these objects, a bit for each.
    pub(super) fn new(store: HomeEnd, objects: u64, keeping: Keeping) -> Self {
        Self {
            keeping,
            store,
            objects,
            outcomes: (0..=PLACES).map(|_| Outcome::default()).collect(),
            last_attempt: Attempt::NONE,
            calling: None,
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.store.next_due()
    }

    /// What was asked of the store for a packet is asked again: a transaction under the name that it has.
    fn begin_again(&mut self, requests: u16) {
        if mutant::active(Mutant::RetriedUnderNewName) {
            self.last_attempt = self.last_attempt.after(requests);
            let another = self.last_attempt;
            if let Some(outcome) = self.outcome(requests) {
                outcome.attempt = outcome.attempt.map(|_| another);
            }
        }
    }

    fn outcome(&mut self, requests: u16) -> Option<&mut Outcome> {
        self.outcomes.get_mut(usize::from(requests))
    }
}

impl<F: NetworkFunction> Instance<F> {
    /// Takes what came from the store, by which packets are ready for the next turn, and asks it for what is missing.
    #[cold]
    pub(super) fn serve_store(&mut self) {
        self.hear_store();
        self.ask_store();
    }

    /// Takes what came from the store: packets that it answers, and decides of, are ready.
    fn hear_store(&mut self) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let Stored {
            store, outcomes, ..
        } = &mut **stored;
        let now = Time::from_micros(self.now_us);
        store.set_tick(self.context.tick());
        for _ in 0..EVENTS_PER_TURN_MAX {
            let Some(event) = store.next_event(now) else {
                break;
            };
            let requests = match event {
                StoreEvent::Answer { ticket, answer } => {
                    let Answered::Complete(requests) = self.context.take_answer(ticket, answer)
                    else {
                        continue;
                    };
                    requests
                }
                StoreEvent::Sums { object, answer } => {
                    if let Some(object) = self.state.object_mut(object) {
                        object.note_sums(answer);
                    }
                    continue;
                }
                StoreEvent::Decision {
                    attempt,
                    is_committed,
                } => {
                    let requests = attempt.requests();
                    match outcomes.get_mut(usize::from(requests)) {
                        Some(outcome) if outcome.awaits(attempt) => {
                            outcome.attempt = None;
                            outcome.is_committed = Some(is_committed);
                        }
                        // It was decided before.
                        _ => continue,
                    }
                    requests
                }
            };
            self.parking.take_answered(requests, &self.context);
        }
        store.end_events();
        self.drop_kept();
    }

    /// Asks the store for what calls asked for, and for what was lost.
    fn ask_store(&mut self) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let now = Time::from_micros(self.now_us);
        let mut up = Upward {
            ring: self.exchange.as_mut().map(|exchange| &mut exchange.up),
            kept_bytes: self.burst_log_bytes,
        };
        while let Some(requests) = self.parking.next_unanswered() {
            stored.begin_again(requests);
            let outcome = stored.outcomes.get(usize::from(requests));
            match outcome.and_then(|outcome| outcome.attempt.map(|attempt| (attempt, outcome))) {
                Some((attempt, outcome)) => {
                    let transaction = &outcome.transaction;
                    stored.store.commit(attempt, transaction, now, &mut up);
                }
                None => self.context.ask_again(requests),
            }
        }
        let store = &mut stored.store;
        let tally = &mut self.tally;
        self.context.take_requests(|ticket, query| {
            tally.store_reads += 1;
            store.ask(ticket, query, now, &mut up);
        });
        tally.store_without_room = store.requests_without_room();
        store.send(now);
    }

    /// Says of what the call asked for whose packet it is, if the store has several shards: this one, which is as it came. A frame without
    /// addresses, such as an order of the control side, is of the conversation of the first key that it asks for.
    pub(super) fn note_conversation(&mut self, frame: &mut Frame) {
        let store = self.stored.as_ref().map(|stored| &stored.store);
        let Some(seed) = store.and_then(HomeEnd::conversation_seed) else {
            return;
        };
        let Ok(layout) = Layout::parse_unverified(self.pool.bytes(frame)) else {
            return;
        };
        let key = FlowKey::of(&Packet::with_layout(self.pool.bytes_mut(frame), layout));
        let conversation = match key.addresses() {
            Some((one, other)) => Some(hash::conversation(one, other, seed)),
            None => self.conversation_asked_for(seed),
        };
        if let Some(conversation) = conversation {
            self.context.set_conversation(conversation);
        }
    }

    /// The conversation of the first key that the call asks for and has no answer for yet; `None`: it asks for none, or its packet is known to be of
    /// one: what it asked for before may be answered by that shard.
    fn conversation_asked_for(&self, seed: u64) -> Option<u64> {
        let mut asked_for = None;
        self.context.answer_at_once(|query, _| {
            let object = self.state.object(query.object);
            let object = object.filter(|_| query.conversation == 0);
            asked_for = object.and_then(|object| object.conversation_of(&query, seed));
            // That was no answer.
            false
        });
        asked_for
    }

    /// Whether the store has answered at once all that the call asked for that is late.
    pub(super) fn is_answered_at_once(&mut self) -> bool {
        let Some(stored) = &mut self.stored else {
            return false;
        };
        let (store, now) = (&mut stored.store, Time::from_micros(self.now_us));
        let (state, keeps) = (&mut self.state, stored.keeping.may_keep);
        self.context.answer_at_once(|query, out| {
            let from = out.len();
            let is_answered = store.answer_at_once(query, now, out);
            if is_answered
                && keeps
                && let Some(object) = state.object_mut(query.object)
            {
                object.keep(query.lane, query.hash, &out[from..]);
            }
            is_answered
        })
    }

    /// Calls the function again for a packet that was late just now, and that has its answers. What it asks for then may be answered at
    /// once too: so often as one packet may ask at most.
    #[cold]
    pub(super) fn call_with_answers(&mut self, mut frame: Frame, until_us: u64) {
        self.called_with_answers();
        let arrived_us = self.context.arrived_us();
        let (call, _) = self.context.park();
        self.state.settle();
        let Ok(layout) = Layout::parse_unverified(self.pool.bytes(&frame)) else {
            return self.discard(frame, Reason::UnsupportedProtocol);
        };
        let (flow, digest) = self.flow(&mut frame, layout);
        let port = PortNumber(frame.port());
        self.context.resume(call);
        let requests = self.context.requests();
        let mut parked = Parked {
            frame,
            call: Call::default(),
            flow,
            digest,
            is_fragment: layout.fragment() != Fragment::Whole,
            since_us: self.parked_since_us.unwrap_or(self.now_us),
            arrived_us,
            until: Until::Answers { requests, until_us },
        };
        if self.install_answers(&mut parked) {
            self.tally.answered_at_once += 1;
            // One that was parked may have answers of before.
            let was_parked = self.parked_since_us.is_some();
            if let Some(calling) = self.stored.as_mut().and_then(|one| one.calling.as_mut()) {
                calling.is_of_one_time = !was_parked || mutant::active(Mutant::ReadsTakenForOne);
            }
            self.call(&mut parked.frame, layout, port);
            self.called_with_answers();
        }
    }

    /// The packet that was resumed is called with what the store answered, if it asked for anything. False if it is dropped.
    #[cold]
    pub(super) fn install_answers(&mut self, parked: &mut Parked) -> bool {
        if !self.context.is_staged() {
            return true;
        }
        let installed = self.state.install(&self.context);
        let original = self.pool.duplicate(&parked.frame);
        let (Ok(()), Some(original), Some(stored)) = (installed, original, &mut self.stored) else {
            let reason = match installed {
                Ok(()) => Reason::NoBuffer,
                Err(_) => Reason::StoreAnswer,
            };
            self.state.withdraw();
            self.settle();
            self.discard(parked.frame.alias(), reason);
            return false;
        };
        stored.calling = Some(Calling {
            flow: parked.flow,
            digest: parked.digest,
            is_fragment: parked.is_fragment,
            since_us: parked.since_us,
            arrived_us: parked.arrived_us,
            until_us: match parked.until {
                Until::Answers { until_us, .. } => until_us,
                _ => u64::MAX,
            },
            original,
            is_of_one_time: false,
            emitted_before: self.emissions.len(),
        });
        true
    }

    /// The packet was called, and the store need not decide on what it did: it was late again, and is as it came, or it ended without its
    /// answers.
    #[cold]
    pub(super) fn called_with_answers(&mut self) {
        if let Some(calling) = self
            .stored
            .as_mut()
            .and_then(|stored| stored.calling.take())
        {
            self.pool.release(calling.original);
            self.state.withdraw();
        }
    }

    /// Has the store commit what the call read and wrote that just ended; the packet is parked with all that the call did. False if the
    /// store has nothing to decide: the call has taken effect.
    #[cold]
    #[inline(never)]
    pub(super) fn commit_in_store(
        &mut self,
        verdict: Verdict,
        slot: &Frame,
        port: PortNumber,
    ) -> bool {
        let Some(stored) = &mut self.stored else {
            return true;
        };
        let Some(calling) = stored.calling.take() else {
            return true;
        };
        self.state.for_each_object(|object| object.end_recording());
        let requests = self.context.requests();
        let attempt = stored.last_attempt.after(requests);
        stored.last_attempt = attempt;
        let here = here(stored.objects);
        let Stored {
            store, outcomes, ..
        } = &mut **stored;
        if let Some(outcome) = outcomes.get_mut(usize::from(requests)) {
            self.context.seal(&mut outcome.transaction);
            let is_of_one_time = calling.is_of_one_time;
            if is_read_alone(&self.state, &outcome.transaction, is_of_one_time, here) {
                store.read_alone(&outcome.transaction);
                self.pool.release(calling.original);
                self.end_read_alone(requests);
                return false;
            }
            let writes = outcome.transaction.writes();
            let noted = self.state.note_undecided(&self.context, writes, here, true);
            debug_assert!(noted.is_ok(), "what was recorded is a write");
            let now = Time::from_micros(self.now_us);
            let mut up = Upward {
                ring: self.exchange.as_mut().map(|exchange| &mut exchange.up),
                kept_bytes: self.burst_log_bytes,
            };
            store.commit(attempt, &outcome.transaction, now, &mut up);
            outcome.attempt = Some(attempt);
            outcome.is_committed = None;
            outcome.verdict = Some(verdict);
            outcome.original = Some(calling.original);
            let (pool, tally) = (&mut self.pool, &mut self.tally);
            let emitted = &mut outcome.emitted;
            self.emissions
                .take_after(calling.emitted_before, |port, bytes| {
                    match pool.allocate_copy(bytes) {
                        Some(frame) => emitted.push((port, frame)),
                        None => tally.drop(Reason::NoBuffer),
                    }
                });
        }
        self.state.withdraw();
        self.state.settle();
        let (call, _) = self.context.park();
        let mut frame = slot.alias();
        frame.set_port(port.0);
        self.put(Parked {
            frame,
            call,
            flow: calling.flow,
            digest: calling.digest,
            is_fragment: calling.is_fragment,
            since_us: calling.since_us,
            arrived_us: calling.arrived_us,
            until: Until::Decided {
                requests,
                until_us: calling.until_us,
            },
        });
        true
    }

    /// What the call wrote here takes effect.
    fn end_read_alone(&mut self, requests: u16) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let here = here(stored.objects);
        let Some(outcome) = stored.outcome(requests) else {
            return;
        };
        self.state.withdraw();
        self.context.end_staged();
        let writes = outcome.transaction.writes();
        let made = self.state.commit(&self.context, writes, here);
        debug_assert!(made.is_ok(), "what was recorded is a write");
        decided(&**self.function, &mut self.state, requests, true);
        self.tally.store_reads_alone += 1;
    }

    /// The store has decided of a packet.
    #[cold]
    pub(super) fn end_decided(&mut self, mut parked: Parked, (requests, until_us): (u16, u64)) {
        let Some(stored) = &mut self.stored else {
            return self.give_up(parked, Reason::ParkedTooLong);
        };
        let here = here(stored.objects);
        let Some(outcome) = stored.outcome(requests) else {
            return self.give_up(parked, Reason::ParkedTooLong);
        };
        let (Some(verdict), Some(original)) = (outcome.verdict.take(), outcome.original.take())
        else {
            return self.give_up(parked, Reason::ParkedTooLong);
        };
        end_undecided(&mut self.state, &self.context, &outcome.transaction, here);
        let emitted = outcome.emitted.drain(..);
        let is_committed = outcome.is_committed.take() == Some(true);
        decided(&**self.function, &mut self.state, requests, is_committed);
        if !is_committed {
            self.tally.store_refusals += 1;
            for (port, frame) in emitted {
                if leaves_though_refused() {
                    let bytes = self.pool.bytes(&frame);
                    self.emissions.emit(port, |room| fill(room, bytes));
                }
                self.pool.release(frame);
            }
            self.context.refuse(&mut parked.call);
            restore(&mut self.pool, &mut parked.frame, original);
            parked.until = Until::Answers { requests, until_us };
            self.put(parked);
            if self.context.has_all_answers(requests) {
                self.parking.take_answered(requests, &self.context);
            }
            return;
        }
        self.tally.store_commits += 1;
        for (port, frame) in emitted {
            let bytes = self.pool.bytes(&frame);
            self.emissions.emit(port, |room| fill(room, bytes));
            self.pool.release(frame);
        }
        self.pool.release(original);
        self.context.depend_on(parked.call.dependency());
        let made = self
            .state
            .commit(&self.context, outcome.transaction.writes(), here);
        debug_assert!(made.is_ok(), "what was recorded is a write");
        // A chain's next stage is called for the same packet.
        self.context.go_on_after(&parked.call);
        let state = &self.state;
        self.context.abandon(parked.call, |object, number| {
            state.give_back(object, number)
        });
        let port = PortNumber(parked.frame.port());
        self.parked_since_us = Some(parked.since_us);
        self.conclude(Ok(verdict), &mut parked.frame, port);
        self.parked_since_us = None;
    }

    /// A packet is given up that the store has not decided of: it may have committed what the packet wrote, or may yet. So what the packet
    /// was granted stays granted.
    #[cold]
    pub(super) fn forget_outcome(&mut self, requests: u16) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        let here = here(stored.objects);
        let Some(outcome) = stored.outcome(requests) else {
            return;
        };
        if outcome.verdict.take().is_some() {
            end_undecided(&mut self.state, &self.context, &outcome.transaction, here);
        }
        let attempt = outcome.attempt.take();
        outcome.is_committed = None;
        decided(&**self.function, &mut self.state, requests, false);
        let frames = outcome.emitted.drain(..).map(|(_, frame)| frame);
        for frame in frames.chain(outcome.original.take()) {
            self.pool.release(frame);
        }
        if let Some(attempt) = attempt {
            stored.store.forget(attempt);
        }
    }
}

/// Whether an object is not one of these, which are in the store.
pub(super) fn here(in_store: u64) -> impl Fn(u8) -> bool + Copy {
    move |object| in_store & 1 << object == 0
}

/// Whether a call read what one moment was enough for, and writes nothing of what is in the store. What several reads answered may never
/// have been so at one time: that only the store can say, unless it answered all of them at one time. Sums are as old as their answers
/// anyway.
fn is_read_alone(
    state: &impl State,
    transaction: &Transaction,
    is_of_one_time: bool,
    here: impl Fn(u8) -> bool,
) -> bool {
    let mut writes_there = false;
    let written = state.each_write(transaction.writes(), |object, _, _| {
        writes_there |= !here(object);
    });
    let mut checked = transaction.reads().filter(|(query, _)| !query.is_of_sums());
    let is_one = checked.nth(1).is_none() || mutant::active(Mutant::ReadsTakenForOne);
    (is_one || is_of_one_time) && !writes_there && written.is_ok()
}

/// A transaction waits for its decision no longer.
fn end_undecided(
    state: &mut impl State,
    context: &Context,
    transaction: &Transaction,
    here: impl Fn(u8) -> bool,
) {
    let noted = state.note_undecided(context, transaction.writes(), here, false);
    debug_assert!(noted.is_ok(), "what was recorded is a write");
}

/// Whether what a refused call emitted leaves.
fn leaves_though_refused() -> bool {
    mutant::active(Mutant::RefusedEmissionLeaves)
}

/// The packet is as it came.
fn restore(pool: &mut FramePool, frame: &mut Frame, mut original: Frame) {
    if !mutant::active(Mutant::HeaderNotRestored) {
        original.set_port(frame.port());
        core::mem::swap(frame, &mut original);
    }
    pool.release(original);
}

/// Puts a frame's bytes where an emission is written.
fn fill(room: &mut [u8], bytes: &[u8]) -> Option<usize> {
    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}
