//! A state that was saved and comes back: what still incarnations is rewritten by who restores it, what ended or idled out is not,
//! and what restored rows use is granted to nobody.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Counter, Identity, Map, ObjectSettings, OriginName, Register, Sequencer,
    Since, State, Wire, state,
};

use crate::manual::{groups, snapshot};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, asterism_state::Value)]
struct Word(u32);

#[state]
struct Saved {
    short: Map<u32, Word>,
    lasting: Map<u32, Word>,
    word: Register<Word>,
    sum: Counter,
}

struct Host {
    context: Rc<Context>,
    state: Saved,
    adopted: Rc<Cell<u32>>,
}

/// A member at `tick`, in one of its incarnations.
fn host(member: u16, incarnation: u64, tick: u32) -> Host {
    let identity = Identity {
        own: OriginName {
            member,
            incarnation,
        },
        members: vec![0, 1],
        lane: (0, 1),
    };
    let context = Rc::new(Context::new(
        identity,
        Sequencer::Own(Cell::new(0)),
        1,
        vec![],
    ));
    context.set_now(0, tick);
    let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
    let mut short = builder.table("short", 64, &[10]);
    let adopted = Rc::new(Cell::new(0));
    let count = adopted.clone();
    short.on_adopt(move |_| count.set(count.get() + 1));
    let state = Saved {
        short,
        lasting: builder.table("lasting", 64, &[0]),
        word: builder.register("word", Word(0)),
        sum: builder.counter("sum"),
    };
    Host {
        context,
        state,
        adopted,
    }
}

impl Host {
    fn put(&mut self, key: u32) {
        self.context.begin(1);
        let (short, lasting) = (
            self.state.short.vacancy().unwrap().unwrap(),
            self.state.lasting.vacancy().unwrap().unwrap(),
        );
        let mut act = self.state.act();
        act.short.insert(short, key, Word(key));
        act.lasting.insert(lasting, key, Word(key));
        act.word.set(Word(key));
        act.sum.add(5);
        self.context.end(|_, _| {});
    }

    fn restore(&mut self, parts: &[Vec<u8>], since: &Since) -> u32 {
        let context = self.context.clone();
        parts
            .iter()
            .map(|part| self.state.restore(&context, part, since).unwrap())
            .sum()
    }
}

/// Saved at tick 1,000 with entries last used at 991 and 998; one was removed.
fn saved() -> Vec<Vec<u8>> {
    let mut host = host(0, 1, 991);
    host.put(1);
    host.put(2);
    host.context.set_now(0, 998);
    host.put(3);
    let at = host.state.short.get(&2).unwrap().unwrap();
    host.state.act().short.remove(&at);
    groups(&mut host.state, &host.context);
    host.context.set_now(0, 1_000);
    snapshot(&host.state, 300)
}

#[test]
fn what_is_live_comes_back_as_writes_that_reach_others() {
    let mut restored = host(0, 2, 5_000);
    let since = Since {
        saved: 1_000,
        away: 1,
    };
    // Two of the short ones, three of the lasting ones, the register and the sum.
    assert_eq!(restored.restore(&saved(), &since), 7);
    assert_eq!(
        restored.state.short.get(&1).unwrap().unwrap().value,
        Word(1)
    );
    assert!(
        restored.state.short.get(&2).unwrap().is_none(),
        "it was removed"
    );
    assert_eq!(restored.state.sum.get().unwrap(), 15);
    assert_eq!(
        restored.adopted.get(),
        2,
        "the pool that grants the items of rows knows them"
    );
    let mut other = host(1, 1, 5_000);
    let own = restored.context.identity().own;
    for (sequence, bytes) in groups(&mut restored.state, &restored.context) {
        let context = other.context.clone();
        other.state.apply(&context, own, sequence, &bytes).unwrap();
    }
    assert_eq!(other.state.digests(), restored.state.digests());
    assert_eq!(
        other.adopted.get(),
        2,
        "so is the other host, for its own blocks"
    );
    let mut ages = Vec::new();
    let mut each = |entry: &asterism_state::Shown<'_>| {
        let incarnation = entry.provenance.expect("entries of tables have one");
        assert_eq!((incarnation.origin, incarnation.idle), (own, 10));
        ages.push((format!("{:?}", entry.value), incarnation.unused));
    };
    let object = other.state.object(0).expect("an object");
    assert_eq!(object.show(0, 64, &mut each), None);
    ages.sort();
    assert_eq!(
        ages,
        [("Word(1)".to_owned(), 10), ("Word(3)".to_owned(), 3)],
        "idleness goes on"
    );
}

#[test]
fn what_idled_out_while_away_stays_away() {
    for (away, live) in [(0, 2), (1, 2), (2, 1), (8, 1), (9, 0), (u32::MAX, 0)] {
        let mut restored = host(0, 2, 5_000);
        restored.restore(&saved(), &Since { saved: 1_000, away });
        assert_eq!(restored.state.short.len_now(), live, "after {away} s");
        assert_eq!(restored.state.lasting.len_now(), 3, "some never idle out");
    }
}

#[test]
fn a_part_that_does_not_decode_is_said_so() {
    let part = &saved()[0];
    let since = Since {
        saved: 1_000,
        away: 0,
    };
    for length in 1..part.len() {
        let mut restored = host(0, 2, 5_000);
        let context = restored.context.clone();
        // Cut between two entries it is shorter, else it is bad; it never panics.
        let _ = restored.state.restore(&context, &part[..length], &since);
    }
    let mut restored = host(0, 2, 5_000);
    let context = restored.context.clone();
    assert!(
        restored
            .state
            .restore(&context, &[0xFF; 40], &since)
            .is_err()
    );
}
