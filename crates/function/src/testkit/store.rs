//! A store that is as bad as stores may be: answers come late, out of order, twice or never, and what is to be committed is refused now
//! and then. What it says is true all the same.

use core::hash::Hash;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Identity, ObjectSettings, Query, Sequencer, State, Ticket, Transaction, hash,
};

use super::{SEED, addresses};
use crate::function::NetworkFunction;

/// An answer takes up to so many microseconds.
const DELAY_US_MAX: u64 = 400;
/// One answer of so many is lost, and one comes twice.
const LOST_OF: u64 = 9;
const TWICE_OF: u64 = 7;
/// One transaction of so many is refused for no reason.
const REFUSED_OF: u64 = 4;
/// Refusals for no reason that follow one another at most: a packet is committed in the end.
const REFUSED_MAX: u32 = 2;

/// What comes from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromStore<A> {
    /// The answer to a read.
    Answer(Ticket, Vec<u8>),
    /// Whether a transaction, by its name, is committed.
    Decision(A, bool),
}

/// What a store decided of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The transaction is committed; else it is refused whole.
    pub is_committed: bool,
    /// The store decided now, and not when it was asked before.
    pub is_new: bool,
}

/// A function's objects, as a store has them, behind a bad network. `A` names transactions: one takes effect once, however often it is
/// to be committed.
#[derive(Debug)]
pub struct HostileStore<F: NetworkFunction, A = ()> {
    state: F::State,
    context: Rc<Context>,
    /// Which of the objects it has, by number.
    has: Vec<bool>,
    under_way: Vec<(u64, FromStore<A>)>,
    decided: HashMap<A, bool>,
    seed: u64,
    draws: u64,
    refused: u32,
    refusals: u64,
}

impl<F: NetworkFunction, A: Copy + Eq + Hash> HostileStore<F, A> {
    /// For those objects of the function that are to live in a store and can.
    pub fn new(function: &F, lives_there: impl Fn(&str) -> bool) -> Self {
        let addresses = addresses(function);
        let context = || {
            let sequencer = Sequencer::Own(Cell::new(0));
            Context::new(Identity::alone(), sequencer, SEED, addresses.clone())
        };
        let (context, placed) = (Rc::new(context()), Rc::new(context()));
        let builder = Builder::new(context.clone(), |_| ObjectSettings::LOCAL);
        let state = builder.built(function.state(&builder));
        let names = state.objects();
        let can = |state: &F::State, object| {
            let object: Option<&dyn asterism_state::Object> = state.object(object);
            object.is_some_and(|object| object.stays_because().is_none())
        };
        let wanted = names.iter().zip(0..);
        let wanted: Vec<&str> = wanted
            .filter(|(name, object)| lives_there(name) && can(&state, *object))
            .map(|(name, _)| *name)
            .collect();
        // Some can only where another one does, and keep nothing there themselves.
        let builder = Builder::new(placed.clone(), move |name| match wanted.contains(&name) {
            true => ObjectSettings::REMOTE,
            false => ObjectSettings::LOCAL,
        });
        let there = builder.built(function.state(&builder));
        let has: Vec<bool> = (0..names.len() as u8)
            .map(|object| placed.in_store() & 1 << object != 0 && can(&there, object))
            .collect();
        Self {
            state,
            context,
            has,
            under_way: Vec::new(),
            decided: HashMap::new(),
            seed: SEED,
            draws: 0,
            refused: 0,
            refusals: 0,
        }
    }

    /// The same store, which is hostile in other moments.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        hash::words(self.draws, 0x0057_083E, self.seed) % below
    }

    /// The objects; of those that live elsewhere nothing is in them.
    pub fn state(&self) -> &F::State {
        &self.state
    }
    /// As [`HostileStore::state`], to be swept.
    pub fn state_mut(&mut self) -> &mut F::State {
        &mut self.state
    }
    /// Whether it has an object, by number.
    pub fn has(&self, object: u8) -> bool {
        self.has.get(usize::from(object)).is_some_and(|&has| has)
    }
    /// Transactions that it refused.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }
    /// The time: microseconds, and seconds of the cluster's time base.
    pub fn set_now(&mut self, now_us: u64, tick: u32) {
        self.context.set_now(now_us, tick);
    }

    /// How often something arrives.
    fn arrivals(&mut self) -> u64 {
        match (self.draw(LOST_OF), self.draw(TWICE_OF)) {
            (0, _) => 0,
            (_, 0) => 2,
            _ => 1,
        }
    }
    fn send(&mut self, now_us: u64, what: FromStore<A>)
    where
        FromStore<A>: Clone,
    {
        for _ in 0..self.arrivals() {
            let due_us = now_us + 1 + self.draw(DELAY_US_MAX);
            self.under_way.push((due_us, what.clone()));
        }
    }

    /// The answer to a read.
    pub fn answer(&self, query: &Query<'_>) -> Vec<u8> {
        let mut answer = Vec::new();
        self.state.extract(query, &mut answer);
        answer
    }

    /// Decides of a transaction: once, however often it is asked.
    pub fn decide(&mut self, name: A, transaction: &Transaction) -> Decided {
        let known = self.decided.get(&name).copied();
        let is_committed = known.unwrap_or_else(|| self.commit(transaction));
        self.decided.insert(name, is_committed);
        Decided {
            is_committed,
            is_new: known.is_none(),
        }
    }

    /// A request comes.
    pub fn ask(&mut self, ticket: Ticket, query: &Query<'_>, now_us: u64) {
        let answer = self.answer(query);
        self.send(now_us, FromStore::Answer(ticket, answer));
    }

    /// A transaction is to be committed. Whether it was not known before, and is committed now.
    pub fn ask_to_commit(&mut self, name: A, transaction: &Transaction, now_us: u64) -> bool {
        let decided = self.decide(name, transaction);
        self.send(now_us, FromStore::Decision(name, decided.is_committed));
        decided.is_committed && decided.is_new
    }

    /// When the next thing arrives.
    pub fn next_due_us(&self) -> Option<u64> {
        self.under_way.iter().map(|(due_us, _)| *due_us).min()
    }
    /// The next thing that arrives, and when.
    pub fn next_event(&mut self) -> Option<(u64, FromStore<A>)> {
        let each = self.under_way.iter().enumerate();
        let (place, _) = each.min_by_key(|(_, (due_us, _))| *due_us)?;
        Some(self.under_way.swap_remove(place))
    }

    /// Commits what a call read and wrote, or refuses it.
    pub fn commit(&mut self, transaction: &Transaction) -> bool {
        let is_whim = self.refused < REFUSED_MAX && self.draw(REFUSED_OF) == 0;
        if is_whim || !self.state.still_holds(transaction) {
            self.refused += 1;
            self.refusals += 1;
            return false;
        }
        self.refused = 0;
        let Self {
            state,
            context,
            has,
            ..
        } = self;
        let has = |object| has.get(usize::from(object)).is_some_and(|&has| has);
        let made = state.commit(context, transaction.writes(), has);
        made.expect("recorded writes are writes");
        true
    }
}
