//! Windowed objects: what they sum and forget, whose totals they take up, what room they need and give back. That replicas of
//! them agree is tested in `convergence/`.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Identity, Inspect, ObjectCount, ObjectSettings, OriginName, SKEW_SECONDS_MAX,
    Sequencer, Since, State, Window, WindowedCountMin, WindowedCounters, hash, state,
};

use crate::manual::{groups, snapshot};

#[state]
struct Recent {
    counts: WindowedCounters<u32>,
    volumes: WindowedCountMin<u32>,
}

/// Twenty to thirty seconds; the ring keeps five buckets.
const WINDOW: Window = Window {
    buckets: 3,
    bucket_seconds: 10,
};
const CAPACITY: u32 = 64;
const ERROR: f64 = 0.005;
const DOUBT: f64 = 0.01;

struct Member {
    context: Rc<Context>,
    state: Recent,
    serial: u64,
}

fn member(place: u16, settings: ObjectSettings) -> Member {
    incarnation(place, 1, (0, 1), settings)
}

/// An instance of an incarnation of a member.
fn incarnation(place: u16, incarnation: u64, lane: (u16, u16), settings: ObjectSettings) -> Member {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation,
        },
        members: vec![0, 1],
        lane,
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Recent {
        counts: builder.windowed_counters("counts", CAPACITY, WINDOW),
        volumes: builder.windowed_count_min("volumes", (ERROR, DOUBT), WINDOW),
    };
    let mut member = Member {
        context,
        state,
        serial: 0,
    };
    member.at(1_000);
    member
}

fn replicated(place: u16) -> Member {
    member(place, ObjectSettings::REPLICATED)
}

impl Member {
    fn at(&mut self, tick: u32) {
        self.context.set_now(0, tick);
        self.context.arrive(0);
    }

    fn add(&mut self, key: u32, amount: u64) -> bool {
        self.serial += 1;
        self.context.begin(self.serial);
        let tally = self.state.counts.find(&key).expect("local");
        let mut act = self.state.act();
        if let Some(tally) = &tally {
            act.counts.add(tally, amount);
        }
        act.volumes.add(&key, amount);
        self.context.end(|_, _| {});
        tally.is_some()
    }

    fn sums(&self, key: u32) -> (u64, u64) {
        let counted = self.state.counts.get(&key).expect("local");
        (counted, self.state.volumes.get(&key).expect("local"))
    }

    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
        self.context.end(|_, _| {});
    }

    fn reported(&mut self) -> Vec<(u64, Vec<u8>)> {
        groups(&mut self.state, &self.context)
    }

    fn hear(&mut self, from: &Member, groups: &[(u64, Vec<u8>)]) {
        let name = from.context.identity().own;
        for (sequence, group) in groups {
            self.state
                .apply(&self.context, name, *sequence, group)
                .expect("well formed");
        }
    }

    fn expired(&self) -> [u64; 2] {
        let Recent { counts, volumes } = &self.state;
        [counts.tally().expired, volumes.tally().expired]
    }

    fn ahead(&self) -> [u64; 2] {
        let Recent { counts, volumes } = &self.state;
        [counts.tally().ahead, volumes.tally().ahead]
    }
}

#[test]
fn a_sum_is_of_the_last_buckets_and_no_others() {
    let mut here = member(0, ObjectSettings::LOCAL);
    for bucket in 0..100u32 {
        here.at(1_000 + 10 * bucket);
        here.add(7, u64::from(bucket) + 1);
        here.at(1_009 + 10 * bucket);
        let last = u64::from(bucket) + 1;
        let expected = (last.saturating_sub(2).max(1)..=last).sum();
        assert_eq!(here.sums(7), (expected, expected), "bucket {bucket}");
        assert!((here.state.volumes.excess() - ERROR * expected as f64).abs() < 1e-9);
        if bucket % 3 == 0 {
            here.sweep();
        }
    }
    here.at(2_000);
    assert_eq!(here.sums(7), (99 + 100, 99 + 100));
    here.at(2_020);
    assert_eq!(here.sums(7), (0, 0), "nothing was added in three buckets");
}

#[test]
fn members_add_up_and_drop_the_same() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    left.add(7, 10);
    right.add(7, 100);
    let (of_left, of_right) = (left.reported(), right.reported());
    left.hear(&right, &of_right);
    right.hear(&left, &of_left);
    right.hear(&left, &of_left);
    assert_eq!((left.sums(7), right.sums(7)), ((110, 110), (110, 110)));
    // What `left` adds in the next bucket reaches the other much later.
    left.at(1_010);
    left.add(8, 5);
    let slow = left.reported();
    right.at(1_060);
    right.add(9, 1);
    let quick = right.reported();
    left.at(1_060);
    left.hear(&right, &quick);
    right.hear(&left, &slow);
    assert_eq!(right.expired(), [1, 5], "a total, and one in each row");
    assert_eq!(left.state.digests(), right.state.digests());
    // A snapshot of before joins no more than the operations.
    let old = snapshot(&left.state, 400);
    for part in &old {
        right
            .state
            .apply_snapshot(&right.context, part)
            .expect("a snapshot");
    }
    assert_eq!(left.state.digests(), right.state.digests());
}

#[test]
fn what_nobody_adds_to_goes_by_itself_everywhere() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    for key in 0..CAPACITY / 2 {
        assert!(left.add(key, 1));
    }
    assert!(!left.add(1_000, 1), "half is the other member's");
    let reported = left.reported();
    right.hear(&left, &reported);
    assert_eq!(right.state.counts.entries(), CAPACITY as usize / 2);
    let mut advances = 0;
    for tick in (1_005..1_100).step_by(5) {
        left.at(tick);
        right.at(tick);
        left.sweep();
        let reported = left.reported();
        advances += reported.len();
        right.hear(&left, &reported);
        right.sweep();
        let reported = right.reported();
        advances += reported.len();
        left.hear(&right, &reported);
        assert_eq!(left.state.digests(), right.state.digests());
    }
    assert!(advances <= 6, "{advances} groups to say that time passes");
    for here in [&mut left, &mut right] {
        here.sweep();
        assert_eq!(here.state.counts.entries(), 0);
    }
    assert!(left.add(1_000, 1), "there is room again");
}

#[test]
fn keys_come_and_go_for_ever() {
    let (mut left, mut right) = (replicated(0), replicated(1));
    for bucket in 0..300u32 {
        for (place, here) in [&mut left, &mut right].into_iter().enumerate() {
            here.at(1_000 + 10 * bucket);
            for key in 0..CAPACITY / 2 / 6 {
                let key = (bucket * 100 + key) * 2 + place as u32;
                assert!(here.add(key, 1), "bucket {bucket}");
            }
            here.sweep();
        }
        let (of_left, of_right) = (left.reported(), right.reported());
        left.hear(&right, &of_right);
        right.hear(&left, &of_left);
        assert_eq!(left.state.digests(), right.state.digests());
    }
    for here in [&left, &right] {
        assert_eq!(here.state.counts.refused_full(), 0);
        assert_eq!((here.expired(), here.ahead()), ([0, 0], [0, 0]));
    }
}

#[test]
fn a_clock_too_far_ahead_takes_nothing_from_others() {
    let (mut fast, mut right) = (replicated(0), replicated(1));
    right.add(7, 100);
    fast.at(1_000 + 10 + SKEW_SECONDS_MAX);
    fast.add(7, 1);
    let near = fast.reported();
    right.hear(&fast, &near);
    assert_eq!(right.sums(7), (101, 101));
    fast.at(5_000);
    fast.add(7, 1);
    fast.sweep();
    let far = fast.reported();
    right.hear(&fast, &far);
    assert_eq!(right.sums(7), (101, 101), "the window is as it was");
    assert_eq!(right.ahead(), [1, 5]);
    for part in snapshot(&fast.state, 1_100) {
        right
            .state
            .apply_snapshot(&right.context, &part)
            .expect("a snapshot");
    }
    assert_eq!(right.sums(7), (101, 101));
    // Set right again, it goes on at once, and the others hear of it.
    fast.at(1_020);
    fast.sweep();
    assert_eq!(fast.state.counts.tally().set_back, 1);
    let counts = |one: &Member, count| {
        one.state
            .object(0)
            .map(|object| object.counts())
            .unwrap()
            .get(count)
    };
    assert_eq!(counts(&fast, ObjectCount::SetBack), Some(1));
    let ahead = right.state.counts.tally().ahead;
    assert_eq!(counts(&right, ObjectCount::Ahead), Some(ahead));
    fast.add(7, 50);
    let reported = fast.reported();
    right.at(1_020);
    right.hear(&fast, &reported);
    assert_eq!(right.sums(7), (151, 151));
}

#[test]
fn a_total_held_back_for_too_long_is_counted_and_not_reported() {
    let mut here = replicated(0);
    here.add(7, 1);
    here.context.hold_accumulators(true);
    here.at(1_100);
    here.add(8, 1);
    assert!(here.reported().is_empty());
    here.context.hold_accumulators(false);
    assert_eq!(here.reported().len(), 1);
    assert_eq!(here.expired(), [1, 5]);
    // The late packet of a parked call, too.
    here.context.set_now(0, 1_000);
    here.context.arrive(0);
    here.add(9, 1);
    assert_eq!(here.expired(), [2, 6]);
}

#[test]
fn sketched_sums_exceed_the_truth_as_seldom_as_stated() {
    const KEYS: u32 = 4_000;
    let mut here = member(0, ObjectSettings::LOCAL);
    let mut truth = vec![0u64; KEYS as usize + 1];
    for draw in 0..150_000u64 {
        here.at(1_000 + (draw / 3_000) as u32);
        let uniform = (hash::word(draw, 11) >> 40) as f64 / f64::from(1 << 24);
        let key = f64::from(KEYS).powf(uniform) as u32;
        let amount = draw % 1_500;
        here.state.act().volumes.add(&key, amount);
        // 50 seconds: the last three buckets are those from 1,020 on.
        if draw >= 60_000 {
            truth[key as usize] += amount;
        }
    }
    let excess = here.state.volumes.excess();
    let mut over = 0;
    for (key, &truth) in truth.iter().enumerate() {
        let said = here.state.volumes.get(&(key as u32)).expect("local");
        assert!(said >= truth, "{said} of {truth} for {key}");
        over += u32::from((said - truth) as f64 > excess);
    }
    let bound = DOUBT * f64::from(KEYS);
    assert!(f64::from(over) <= bound, "{over} of {KEYS} exceed");
}

#[test]
fn what_was_saved_keeps_its_age_and_reaches_others() {
    let mut writer = replicated(0);
    writer.add(7, 10);
    writer.at(1_015);
    writer.add(7, 100);
    writer.reported();
    let parts = snapshot(&writer.state, 1_100);
    for (away, expected) in [(1, 110), (10, 100), (40, 0)] {
        // Another base of time: only ages count.
        let mut restored = replicated(0);
        restored.at(50_000);
        let since = Since { saved: 1_015, away };
        for part in &parts {
            let taken = restored.state.restore(&restored.context, part, &since);
            taken.expect("what was saved can be read");
        }
        assert_eq!(restored.sums(7), (expected, expected), "away {away} s");
        assert_eq!(restored.reported().is_empty(), expected == 0);
    }
}

#[test]
fn reads_are_late_where_they_are_to_be() {
    let late = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let here = member(0, late);
    here.context.begin(1);
    let Recent { counts, volumes } = &here.state;
    assert!(counts.get(&7).is_err() && counts.find(&7).is_err());
    assert!(volumes.get(&7).is_err());
    let (call, _) = here.context.park();
    here.context.set_now(20, 1_000);
    here.context.resume(call);
    assert!(counts.find(&7).expect("fetched").is_some());
    assert_eq!((counts.get(&7), volumes.get(&7)), (Ok(0), Ok(0)));
    here.context.prefetch();
    assert!(counts.get(&7).is_err() && volumes.get(&7).is_err());
}

#[test]
fn what_names_no_place_or_bucket_is_refused() {
    let mut reader = replicated(1);
    let from = replicated(0).context.identity().own;
    let before = reader.state.digests();
    // Object, lane, key or place, bucket, total.
    let bad: [&[u8]; 6] = [
        &[0, 0, 1, 0, 0, 0, 0, 1],
        &[0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 1],
        &[0, 0, 1, 0, 0, 0, 101],
        &[1 << 3, 0, 0xff, 0xff, 0xff, 0x7f, 101, 1],
        &[1 << 3, 0, 1, 0, 1],
        &[1, 0],
    ];
    for group in bad {
        let applied = reader.state.apply(&reader.context, from, 9, group);
        assert!(applied.is_err(), "{group:?}");
    }
    assert_eq!(reader.state.digests(), before);
    // Bucket 101 is that of second 1,000.
    let good = [0, 0, 1, 0, 0, 0, 101, 5];
    let applied = reader.state.apply(&reader.context, from, 9, &good);
    assert_eq!((applied, reader.sums(1).0), (Ok(()), 5));
}

#[test]
fn writers_of_which_nothing_is_kept_make_room_for_others() {
    let mut here = replicated(0);
    for (number, of) in (1..=350).enumerate() {
        let tick = 1_000 + 10 * number as u32;
        here.at(tick);
        for lane in 0..4 {
            let mut writer = incarnation(1, of, (lane, 4), ObjectSettings::REPLICATED);
            writer.at(tick);
            assert!(writer.add(7, 1));
            let name = OriginName {
                member: 1,
                incarnation: of,
            };
            for (sequence, group) in groups(&mut writer.state, &writer.context) {
                let applied = here.state.apply(&here.context, name, sequence, &group);
                applied.expect("there is room for 1,400 writers, a few at a time");
            }
        }
        // Those of the window: 20 to 30 seconds.
        let incarnations = (number as u64 + 1).min(3);
        assert_eq!(here.sums(7), (4 * incarnations, 4 * incarnations));
    }
}
