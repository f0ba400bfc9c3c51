//! Accumulators beside objects that live in a store: what a call adds is recorded, made once when the store has committed the call, and
//! not at all when it refuses.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    ADDITIONS_PER_CALL, Answered, Bloom, Builder, Call, Context, CountMin, Counter, Counters,
    CountingBloom, Graph, Home, Identity, Late, Map, ObjectSettings, Reader, Sequencer, Spending,
    State, Sweep, TokenBucket, TokenRate, TopK, Transaction, Vector, Wait, Window,
    WindowedCountMin, WindowedCounters, Wire, state,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

#[state]
struct Sums {
    far: Map<u32, Word>,
    counter: Counter,
    counters: Counters<u32>,
    vector: Vector,
    bloom: Bloom<u32>,
    counting: CountingBloom<u32>,
    sketch: CountMin<u32>,
    windowed: WindowedCounters<u32>,
    recent: WindowedCountMin<u32>,
    heavy: TopK<u32>,
    graph: Graph<u32>,
    tokens: TokenBucket<u32>,
}

/// The table of which the store has the entries; the others are here.
const FAR: u8 = 0;
const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 10,
};
/// Keys, edges or places of an object.
const ROOM: u32 = 4;
/// Refills in some seconds.
const RATE: TokenRate = TokenRate {
    tokens_per_second: 2,
    burst_tokens: 10,
};

type Writes<'a> = <Sums as State>::Act<'a>;
type Act = Box<dyn for<'a> FnOnce(&mut Writes<'a>)>;
/// What a call does with an amount: reads, and what it writes then.
type Function = fn(&Sums, u64) -> Act;

/// Every accumulator, and what is added to it.
const FUNCTIONS: [(&str, Function); 12] = [
    ("counter", |_, amount| {
        Box::new(move |act| act.counter.add(amount))
    }),
    ("counters", |sums, amount| {
        let tally = sums.counters.find(&5).expect("here").expect("room");
        Box::new(move |act| act.counters.add(&tally, amount))
    }),
    ("vector", |_, amount| {
        Box::new(move |act| {
            act.vector.add(2, -(amount as i64));
            act.vector.add(ROOM, 1);
        })
    }),
    ("bloom", |_, amount| {
        Box::new(move |act| act.bloom.add(&(amount as u32)))
    }),
    ("counting", |_, amount| {
        Box::new(move |act| {
            act.counting.add(&(amount as u32));
            act.counting.add(&8);
            act.counting.remove(&8);
        })
    }),
    ("sketch", |_, amount| {
        Box::new(move |act| act.sketch.add(&5, amount))
    }),
    ("windowed", |sums, amount| {
        let tally = sums.windowed.find(&5).expect("here").expect("room");
        Box::new(move |act| act.windowed.add(&tally, amount))
    }),
    ("recent", |_, amount| {
        Box::new(move |act| act.recent.add(&5, amount))
    }),
    ("heavy", |_, amount| {
        Box::new(move |act| act.heavy.add(&5, amount))
    }),
    ("graph", |sums, amount| {
        let link = sums.graph.link(&5, &6).expect("here").expect("room");
        Box::new(move |act| act.graph.add(link, amount))
    }),
    ("an edge twice", |sums, amount| {
        let link = || sums.graph.link(&5, &6).expect("here").expect("room");
        let (one, other) = (link(), link());
        Box::new(move |act| {
            act.graph.add(one, amount);
            act.graph.add(other, 0);
        })
    }),
    ("tokens", |sums, amount| {
        let tokens = sums
            .tokens
            .tokens(&5, amount)
            .expect("here")
            .expect("tokens");
        Box::new(move |act| act.tokens.spend(tokens))
    }),
];

/// What can be seen of the accumulators.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    digests: Vec<u64>,
    entries: Vec<usize>,
    /// Of edges.
    weights: Vec<u64>,
    /// That key 5 has, but for those of undecided calls.
    tokens: Option<u64>,
    /// Operations for the others since the last time.
    reported: Vec<Vec<u8>>,
}

struct Host {
    context: Rc<Context>,
    state: Sums,
    serial: u64,
    now_us: u64,
}

fn host(settings: ObjectSettings) -> Host {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 5, vec![]));
    context.expect_requests(8);
    context.await_for(8, 8);
    let builder = Builder::new(context.clone(), move |name| match name {
        "far" => ObjectSettings {
            home: Home::Remote,
            ..ObjectSettings::LOCAL
        },
        _ => settings,
    });
    let state = Sums {
        far: builder.table("far", 8, &[0]),
        counter: builder.counter("counter"),
        counters: builder.counters("counters", ROOM),
        vector: builder.vector("vector", ROOM),
        bloom: builder.bloom("bloom", 100, 0.01),
        counting: builder.counting_bloom("counting", 100, 0.01),
        sketch: builder.count_min("sketch", 0.01, 0.01),
        windowed: builder.windowed_counters("windowed", ROOM, WINDOW),
        recent: builder.windowed_count_min("recent", (0.01, 0.01), WINDOW),
        heavy: builder.top_k("heavy", ROOM),
        graph: builder.graph("graph", ROOM, 60),
        tokens: builder.token_bucket("tokens", ROOM, RATE, Spending::Approximate),
    };
    let state = builder.built(state);
    let mut host = Host {
        context,
        state,
        serial: 0,
        now_us: 0,
    };
    host.set_time(100);
    host
}

impl Host {
    fn set_time(&mut self, seconds: u32) {
        self.now_us = u64::from(seconds) * 1_000_000;
        self.context.set_now(self.now_us, seconds);
    }

    /// The next packet.
    fn begin(&mut self) {
        self.serial += 1;
        self.context.arrive(self.now_us);
        self.context.begin(self.serial);
    }

    fn end(&mut self) {
        self.context.end(|_, _| {});
        self.state.settle();
    }

    /// What a read of a packet answers; `None`: it is late.
    fn read<T>(&mut self, read: impl FnOnce(&Sums) -> Result<T, Late>) -> Option<T> {
        self.begin();
        let answer = read(&self.state).ok();
        let (call, _) = self.context.park();
        self.context.abandon(call, |_, _| {});
        self.state.settle();
        answer
    }

    /// A packet that reads nothing in the store.
    fn call(&mut self, function: Function, amount: u64) {
        self.begin();
        let act = function(&self.state, amount);
        act(&mut self.state.act());
        self.end();
    }

    /// A packet that reads an entry of the store, which has none, and then does something here: it waits for a decision.
    fn stage(&mut self, function: Function, amount: u64) -> (Call, Transaction) {
        self.begin();
        assert!(self.state.far.get(&1).is_err());
        let (call, wait) = self.context.park();
        assert_eq!(wait, Wait::Answers);
        let staged = self.stage_again(call, function, amount);
        self.note(&staged.1, true);
        staged
    }

    /// The packet is called with the answers to all that it asked for.
    fn stage_again(&mut self, call: Call, function: Function, amount: u64) -> (Call, Transaction) {
        let context = self.context.clone();
        let mut tickets = Vec::new();
        context.take_requests(|ticket, _| tickets.push(ticket));
        assert_eq!(tickets.len(), 1);
        // Its length, and no entry.
        let answered = context.take_answer(tickets[0], &[0, 0]);
        assert_eq!(answered, Answered::Complete(call.requests()));
        context.resume(call);
        assert_eq!(self.state.install(&context), Ok(()));
        context.begin_writes();
        assert!(self.state.far.get(&1).expect("answered").is_none());
        let act = function(&self.state, amount);
        self.state
            .for_each_object(|object| object.begin_recording());
        act(&mut self.state.act());
        context.end_writes();
        self.state.for_each_object(|object| object.end_recording());
        let mut transaction = Transaction::default();
        context.seal(&mut transaction);
        self.state.withdraw();
        let (call, _) = context.park();
        self.state.settle();
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

    fn commit(&mut self, (call, transaction): (Call, Transaction)) {
        self.note(&transaction, false);
        let here = |object| object != FAR;
        let made = self.state.commit(&self.context, transaction.writes(), here);
        assert_eq!(made, Ok(()));
        self.context.abandon(call, |_, _| {});
        self.end();
    }

    /// The store refuses: the packet is called again, with another amount.
    fn refuse(
        &mut self,
        (mut call, transaction): (Call, Transaction),
        function: Function,
        amount: u64,
    ) -> (Call, Transaction) {
        self.note(&transaction, false);
        self.context.refuse(&mut call);
        let staged = self.stage_again(call, function, amount);
        self.note(&staged.1, true);
        staged
    }

    /// The packet is given up before the store decided.
    fn give_up(&mut self, (call, transaction): (Call, Transaction)) {
        self.note(&transaction, false);
        self.context.abandon(call, |_, _| {});
        self.end();
    }

    /// All that can be seen of the accumulators.
    fn seen(&mut self) -> Seen {
        let tokens = self.read(|sums| sums.tokens.available(&5));
        self.state
            .for_each_object(|object| _ = object.flush(&mut { 1_000_000 }));
        let mut reported = Vec::new();
        self.context
            .take_groups(|_, bytes| reported.push(bytes.to_vec()));
        let objects = 0..self.state.objects().len() as u8;
        let entries = objects.filter_map(|object| self.state.object(object));
        let entries = entries.map(|object| object.entries()).collect();
        let mut weights = Vec::new();
        let each = |_: &u32, _: &u32, weight| weights.push(weight);
        self.state.graph.for_each(each);
        Seen {
            digests: self.state.digests(),
            entries,
            weights,
            tokens,
            reported,
        }
    }
}

#[test]
fn a_refused_call_leaves_nothing_and_a_committed_one_adds_once() {
    for settings in [ObjectSettings::LOCAL, ObjectSettings::REPLICATED] {
        for (name, function) in FUNCTIONS {
            let (mut plain, mut host) = (self::host(settings), self::host(settings));
            let nothing = host.seen();
            let given_up = host.stage(function, 3);
            host.give_up(given_up);
            assert_eq!(host.seen(), nothing, "{name}: a packet that was given up");
            // Of a key that is new, and of one that is known.
            for amounts in [[3, 4], [2, 1]] {
                let before = host.seen();
                let staged = host.stage(function, amounts[0]);
                let staged = host.refuse(staged, function, amounts[1]);
                let before = Seen {
                    reported: Vec::new(),
                    ..before
                };
                let undecided = Seen {
                    tokens: before.tokens,
                    ..host.seen()
                };
                assert_eq!(undecided, before, "{name}: undecided");
                host.commit(staged);
                plain.call(function, amounts[1]);
                let seen = host.seen();
                assert_eq!(seen, plain.seen(), "{name}: committed");
                assert_ne!(seen, before, "{name}: nothing was added");
            }
        }
    }
}

#[test]
fn reads_answer_at_once_and_know_what_is_committed() {
    let mut host = host(ObjectSettings::LOCAL);
    let add: Function = |sums, amount| {
        let (tally, recent) = (sums.counters.find(&5), sums.windowed.find(&5));
        let (tally, recent) = (tally.expect("here"), recent.expect("here"));
        let link = sums.graph.link(&5, &6).expect("here").expect("room");
        Box::new(move |act| {
            act.counter.add(amount);
            act.counters.add(&tally.expect("room"), amount);
            act.windowed.add(&recent.expect("room"), amount);
            act.sketch.add(&5, amount);
            act.heavy.add(&5, amount);
            act.graph.add(link, amount);
        })
    };
    fn sums(sums: &Sums) -> Result<[u64; 6], Late> {
        Ok([
            sums.counter.get()?,
            sums.counters.get(&5)?,
            sums.windowed.get(&5)?,
            sums.sketch.get(&5)?,
            sums.heavy.get(&5)?,
            sums.graph.weight(&5, &6)?.unwrap_or(0),
        ])
    }
    host.call(add, 1);
    let first = host.stage(add, 10);
    let second = host.stage(add, 100);
    assert_eq!(host.read(sums), Some([1; 6]));
    host.commit(second);
    assert_eq!(host.read(sums), Some([101; 6]));
    // The call that is made again reads the other's, and nothing of its own that was refused.
    let again: Function = |state, amount| {
        assert_eq!(sums(state), Ok([101; 6]));
        Box::new(move |act| act.counter.add(amount))
    };
    let first = host.refuse(first, again, 1_000);
    host.commit(first);
    assert_eq!(host.read(sums), Some([1_101, 101, 101, 101, 101, 101]));
}

const DRAW: Function = FUNCTIONS[11].1;

#[test]
fn tokens_of_an_undecided_call_are_no_other_packet_s() {
    let mut host = host(ObjectSettings::LOCAL);
    let available = |host: &mut Host| host.read(|sums| sums.tokens.available(&5));
    let first = host.stage(DRAW, 6);
    let second = host.stage(DRAW, 3);
    assert_eq!(available(&mut host), Some(1));
    for (count, is_given) in [(2, false), (1, true)] {
        let given = host.read(|sums| Ok(sums.tokens.tokens(&5, count)?.is_some()));
        assert_eq!(given, Some(is_given), "{count} tokens");
    }
    let other = host.read(|sums| sums.tokens.available(&6));
    assert_eq!(other, Some(10), "another key's");
    host.give_up(second);
    assert_eq!(available(&mut host), Some(4));
    let first = host.refuse(first, DRAW, 9);
    assert_eq!(available(&mut host), Some(1));
    // The bucket refills from the packet's arrival on, however long the store takes.
    host.set_time(103);
    host.commit(first);
    assert_eq!(available(&mut host), Some(7));
}

#[test]
fn a_bucket_of_which_tokens_are_undecided_is_not_forgotten() {
    let mut host = host(ObjectSettings::LOCAL);
    host.call(DRAW, 6);
    let staged = host.stage(DRAW, 3);
    // It is full, but for what may be spent of it.
    host.set_time(200);
    host.state.tokens.sweep(100);
    assert_eq!(host.state.tokens.in_use(), 1);
    host.give_up(staged);
    host.state.tokens.sweep(100);
    assert_eq!(host.state.tokens.in_use(), 0);
}

#[test]
fn a_key_that_an_undecided_call_begins_has_its_room() {
    type HasRoom = fn(&Sums) -> Result<bool, Late>;
    let functions: [(&str, Function, HasRoom); 4] = [
        (
            "counters",
            |sums, amount| {
                let key = amount as u32;
                let tally = sums.counters.find(&key).expect("here").expect("room");
                Box::new(move |act| act.counters.add(&tally, 1))
            },
            |sums| Ok(sums.counters.find(&99)?.is_some()),
        ),
        (
            "windowed",
            |sums, amount| {
                let key = amount as u32;
                let tally = sums.windowed.find(&key).expect("here").expect("room");
                Box::new(move |act| act.windowed.add(&tally, 1))
            },
            |sums| Ok(sums.windowed.find(&99)?.is_some()),
        ),
        (
            "tokens",
            |sums, amount| {
                let tokens = sums.tokens.tokens(&(amount as u32), 1);
                let tokens = tokens.expect("here").expect("room");
                Box::new(move |act| act.tokens.spend(tokens))
            },
            |sums| Ok(sums.tokens.tokens(&99, 1)?.is_some()),
        ),
        (
            "graph",
            |sums, amount| {
                let link = sums.graph.link(&1, &(amount as u32));
                let link = link.expect("here").expect("room");
                Box::new(move |act| act.graph.add(link, 1))
            },
            |sums| Ok(sums.graph.link(&98, &99)?.is_some()),
        ),
    ];
    for (name, function, has_room) in functions {
        let mut host = host(ObjectSettings::LOCAL);
        for key in 0..u64::from(ROOM) - 1 {
            host.call(function, key);
        }
        assert_eq!(host.read(has_room), Some(true), "{name}: one is left");
        let last = host.stage(function, 50);
        assert_eq!(host.read(has_room), None, "{name}: it may be left");
        host.give_up(last);
        assert_eq!(host.read(has_room), Some(true), "{name}: it is left");
        let last = host.stage(function, 50);
        let last = host.refuse(last, function, 51);
        host.commit(last);
        assert_eq!(host.read(has_room), Some(false), "{name}: it is full");
    }
}

#[test]
fn what_a_call_adds_to_a_window_counts_when_its_packet_came() {
    let mut host = host(ObjectSettings::LOCAL);
    let windowed = host.stage(FUNCTIONS[6].1, 3);
    let recent = host.stage(FUNCTIONS[7].1, 3);
    host.set_time(120);
    host.commit(windowed);
    host.commit(recent);
    assert_eq!(host.state.windowed.sum_at(&5, 100), 3);
    assert_eq!(host.state.windowed.sum_at(&5, 120), 0);
    let sums = |sums: &Sums| Ok([sums.windowed.get(&5)?, sums.recent.get(&5)?]);
    assert_eq!(host.read(sums), Some([3, 3]));
    host.set_time(130);
    assert_eq!(host.read(sums), Some([0, 0]), "its bucket is over");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "adds to accumulators more than")]
fn a_call_that_adds_without_bound_is_found() {
    let add: Function = |_, amount| {
        Box::new(move |act| {
            for key in 0..=ADDITIONS_PER_CALL {
                act.sketch.add(&key, amount);
            }
        })
    };
    host(ObjectSettings::LOCAL).stage(add, 1);
}

#[test]
fn what_is_no_addition_is_refused() {
    let mut host = host(ObjectSettings::LOCAL);
    for number in 1..host.state.objects().len() as u8 {
        let object = host.state.object_mut(number).expect("there is one");
        for bytes in [&[][..], &[0xFF; 3], &[0xFF; 7]] {
            let made = object.commit(0, &mut Reader::new(bytes, &[]));
            assert!(made.is_err(), "object {number} took {bytes:?}");
        }
    }
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_recorded_calls_are_found() {
    use asterism_state::mutant::{Mutant, select};
    let tests: [(Mutant, fn()); 4] = [
        (
            Mutant::RefusedCallCounted,
            a_refused_call_leaves_nothing_and_a_committed_one_adds_once,
        ),
        (
            Mutant::AddedWhenCommitted,
            what_a_call_adds_to_a_window_counts_when_its_packet_came,
        ),
        (
            Mutant::PromisedTokensGiven,
            tokens_of_an_undecided_call_are_no_other_packet_s,
        ),
        (
            Mutant::PromisedRoomGiven,
            a_key_that_an_undecided_call_begins_has_its_room,
        ),
    ];
    for (mutant, test) in tests {
        select(Some(mutant));
        let result = std::panic::catch_unwind(test);
        select(None);
        assert!(result.is_err(), "{mutant:?} survived");
    }
}
