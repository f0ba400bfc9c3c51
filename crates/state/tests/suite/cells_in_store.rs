//! Sketches and sums over windows of time that live in a store: what is asked, and what is made of the answers.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Addition, Builder, Context, CountMin, Fetch, Identity, LANE_CELLS, Late, ObjectSettings,
    Sequencer, State, SumsRead, SumsShown, Transaction, Window, WindowedCountMin, WindowedCounters,
    state, write_sums,
};

use crate::both::Both;

#[state]
struct Sums {
    sketch: CountMin<u32>,
    counters: WindowedCounters<u32>,
    recent: WindowedCountMin<u32>,
}

/// Keys that may have a counter.
const KEYS: u32 = 2;
const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 10,
};
/// Five rows of 272 cells.
const SKETCH: (f64, f64) = (0.01, 0.01);

fn build(settings: fn(&str) -> ObjectSettings) -> (Rc<Context>, Sums) {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 5, vec![]));
    context.expect_requests(4);
    let builder = Builder::new(context.clone(), settings);
    let state = Sums {
        sketch: builder.count_min("sketch", SKETCH.0, SKETCH.1),
        counters: builder.windowed_counters("counters", KEYS, WINDOW),
        recent: builder.windowed_count_min("recent", SKETCH, WINDOW),
    };
    (context, builder.built(state))
}

fn both() -> Both<Sums> {
    Both::of(build)
}

impl Both<Sums> {
    fn at(&self, tick: u32) {
        self.context.set_now(u64::from(tick) * 1_000_000, tick);
        self.context.arrive(u64::from(tick) * 1_000_000);
        self.store_context
            .set_now(u64::from(tick) * 1_000_000, tick);
    }

    /// What a transaction adds, by object, bucket and field.
    fn additions(&self, transaction: &Transaction) -> Vec<(u8, u32, Vec<u8>, i64)> {
        let mut found = Vec::new();
        let each = |object: u8, _: u8, write: &[u8]| {
            let at = self.store.object(object).expect("an object");
            let add = &mut |one: &Addition<'_>| {
                found.push((object, one.bucket, one.field.to_vec(), one.amount));
            };
            at.each_addition(write, add).expect("a write");
            assert!(at.each_addition(&write[..3], &mut |_| {}).is_err());
        };
        self.store
            .each_write(transaction.writes(), each)
            .expect("writes");
        found
    }
}

#[test]
fn an_estimate_is_one_request_for_a_cell_of_each_row() {
    let mut both = both();
    for key in [7, 7, 300] {
        let ((), transaction) = both.packet(
            |_| Ok(()),
            |act, ()| {
                act.sketch.add(&key, 5);
                act.sketch.add(&key, u64::MAX);
            },
        );
        assert_eq!(transaction.reads().count(), 0);
        let added = both.additions(&transaction);
        let rows: Vec<_> = added.iter().filter(|one| one.2 != b"all").collect();
        // Two additions in five rows; what is beyond a sum's range is as much as there is.
        assert_eq!((added.len(), rows.len()), (12, 10));
        assert!(added.iter().all(|one| (one.0, one.1) == (0, 0)));
        assert!(rows[5..].iter().all(|one| one.3 == i64::MAX));
        both.commit(&transaction);
    }
    let (sums, transaction) = both.packet(
        |sums| {
            let all = [7, 300, 9].map(|key| sums.sketch.get(&key));
            all.into_iter().collect::<Result<Vec<_>, Late>>()
        },
        |_, _| {},
    );
    assert_eq!(sums, [8, 4, 0]);
    assert!(transaction.reads().all(|(query, _)| query.is_of_sums()));
    assert_eq!(both.asked.len(), 3);
    let read = SumsRead::read(&both.asked[0].1).expect("a request");
    assert_eq!((read.fields().count(), read.each_bucket().count()), (5, 1));
    // People see what was added in all.
    let sketch = &mut both.instance.sketch;
    assert_eq!((sketch.known(&7), sketch.total()), (None, 0));
    assert_eq!(sketch.shows_sums(), SumsShown::One(b"all"));
    let mut answer = Vec::new();
    write_sums([(&b"all"[..], 12)], &mut answer);
    sketch.note_sums(&answer);
    sketch.note_sums(&[9]);
    assert_eq!(sketch.total(), 12);
    assert!((sketch.excess() - 0.12).abs() < 1e-9);
    assert_eq!(both.store.sketch.known(&7), Some(8));
}

#[test]
fn sums_are_of_the_window_that_ends_at_the_arrival() {
    let mut both = both();
    for (second, amount) in [(100, 1), (112, 10), (125, 100)] {
        both.at(second);
        let (_, transaction) = both.packet(
            |sums| sums.counters.find(&7),
            |act, tally| {
                act.counters.add(&tally.expect("room"), amount);
                act.counters.add(&tally.expect("room"), 0);
                act.recent.add(&7, amount);
            },
        );
        let bucket = second / 10 + 1;
        let added = both.additions(&transaction);
        assert!(
            added
                .iter()
                .all(|one| (one.1, one.3) == (bucket, amount as i64))
        );
        assert!(added.contains(&(1, bucket, vec![7, 0, 0, 0], amount as i64)));
        assert_eq!(added.len(), 1 + 6);
        both.commit(&transaction);
    }
    for (second, sum) in [(125, 111), (131, 110), (141, 100), (151, 0)] {
        both.at(second);
        let (sums, transaction) = both.packet(
            |sums| {
                let both = (sums.counters.get(&7), sums.recent.get(&7));
                Ok((both.0?, both.1?, sums.counters.get(&8)?))
            },
            |_, _| {},
        );
        assert_eq!(sums, (sum, sum, 0), "at {second}");
        assert!(transaction.writes().is_empty());
    }
    let read = SumsRead::read(&both.asked.last().expect("requests").1).expect("a request");
    // Three of the window, and two of clocks that may be ahead.
    assert!(read.each_bucket().eq(14..=18) && !read.counts_keys());
}

#[test]
fn keys_begin_where_there_is_room() {
    let mut both = both();
    both.at(100);
    for (key, has_room) in [(5, true), (300, true), (7, false), (5, true)] {
        let (tally, transaction) = both.packet(
            |sums| sums.counters.find(&key),
            |act, tally| {
                if let Some(tally) = tally {
                    act.counters.add(tally, 10);
                }
            },
        );
        assert_eq!(tally.is_some(), has_room, "{key}");
        both.commit(&transaction);
    }
    assert_eq!(both.instance.counters.total(&5), 0, "nobody said");
    let mut answer = Vec::new();
    write_sums([(&[5, 0, 0, 0][..], 20), (&[9; 4], 1)], &mut answer);
    both.instance.counters.note_sums(&answer);
    both.instance.counters.note_sums(&[0, 0, 1]);
    let mut all = Vec::new();
    both.instance
        .counters
        .for_each(|key, sum| all.push((*key, sum)));
    assert_eq!(all, [(5, 20), (0x0909_0909, 1)]);
    assert_eq!(both.instance.counters.total(&5), 20);
}

#[test]
fn what_is_no_answer_is_refused() {
    let mut both = both();
    for object in 0..3 {
        let at = both.instance.object_mut(object).expect("an object");
        for answer in [&[][..], &[0], &[0, 0, 9], &[3, 0, 1, 2], &[0, 0, 4, 0xff]] {
            assert!(at.install(LANE_CELLS, answer).is_err(), "{answer:?}");
        }
        at.withdraw();
    }
    let local = both.store.object_mut(0).expect("an object");
    assert!(local.install(LANE_CELLS, &[0, 0]).is_err(), "it is here");
}

#[test]
fn what_cannot_be_in_a_store_says_why() {
    let context = Rc::new(Context::alone());
    let builder = Builder::new(context, |_| ObjectSettings::LOCAL);
    let window = |buckets| Window {
        buckets,
        bucket_seconds: 1,
    };
    let short = builder.windowed_counters::<u32>("short", 8, window(64));
    assert_eq!(short.stays_because(), None);
    let why = short.listed().stays_because();
    assert!(why.expect("a sentence").contains("lists its sums"));
    let long = builder.windowed_counters::<u32>("long", 8, window(65));
    let why = long.stays_because();
    assert!(why.expect("a sentence").contains("more than 64 buckets"));
    let filter = builder.bloom::<u32>("filter", 8, 0.1);
    let why = filter.stays_because();
    assert!(
        why.expect("a sentence")
            .contains("a set answers by one key")
    );
}
