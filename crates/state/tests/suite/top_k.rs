//! Heavy hitters against exact sums, over several members. That replicas agree whatever the order in which operations arrive is
//! tested in `convergence/`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Identity, ObjectSettings, OriginName, Sequencer, Since, State, TopK, hash,
    state,
};
use proptest::prelude::*;

use crate::manual::{groups, snapshot};

#[state]
struct Traffic {
    heavy: TopK<u32>,
}

struct Member {
    context: Rc<Context>,
    state: Traffic,
}

fn member(place: u16, incarnation: u64, places: u32, settings: ObjectSettings) -> Member {
    let identity = Identity {
        own: OriginName {
            member: place,
            incarnation,
        },
        members: vec![0, 1, 2],
        lane: (0, 1),
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
    let context = Rc::new(context);
    let builder = Builder::new(context.clone(), move |_| settings);
    let state = Traffic {
        heavy: builder.top_k("heavy", places),
    };
    Member { context, state }
}

fn members(places: u32) -> [Member; 3] {
    [0, 1, 2].map(|place| member(place, 1, places, ObjectSettings::REPLICATED))
}

type Groups = Vec<(u64, Vec<u8>)>;

impl Member {
    fn add(&mut self, key: u32, weight: u64) {
        self.state.act().heavy.add(&key, weight);
    }

    fn reported(&mut self) -> Groups {
        groups(&mut self.state, &self.context)
    }

    fn hear(&mut self, from: OriginName, groups: &Groups) {
        for (sequence, group) in groups {
            self.state
                .apply(&self.context, from, *sequence, group)
                .expect("well formed");
        }
    }

    fn get(&self, key: u32) -> u64 {
        self.state.heavy.get(&key).expect("local")
    }
}

fn exchange(members: &mut [Member]) {
    for at in 0..members.len() {
        let (name, reported) = (members[at].context.identity().own, members[at].reported());
        for to in (0..members.len()).filter(|&to| to != at) {
            members[to].hear(name, &reported);
        }
    }
}

/// What every member says once it knows all, against the truth.
fn check(heavy: &TopK<u32>, truth: &BTreeMap<u32, u64>, places: u32) {
    let total: u64 = truth.values().sum();
    assert_eq!(heavy.total(), total);
    let excess = total / u64::from(places);
    assert_eq!(heavy.excess(), excess);
    let listed = heavy.heaviest(usize::MAX);
    assert!(
        listed.is_sorted_by_key(|heavy| core::cmp::Reverse(heavy.sum)),
        "heaviest first"
    );
    let by_key: BTreeMap<u32, _> = listed.iter().map(|heavy| (heavy.key, *heavy)).collect();
    assert_eq!(by_key.len(), listed.len(), "each once");
    for (&key, &truth) in truth {
        let said = heavy.get(&key).expect("local");
        assert!(
            said.abs_diff(truth) <= excess,
            "{said} of {truth} for {key}, may be off by {excess}"
        );
        match by_key.get(&key) {
            Some(heavy) => {
                assert_eq!(heavy.sum, said);
                let bounds = heavy.at_least..=heavy.at_most;
                assert!(bounds.contains(&truth), "{truth} outside of {bounds:?}");
                assert!(heavy.at_most - heavy.at_least <= excess);
            }
            None => assert!(truth <= excess, "{key} with {truth} is not known"),
        }
    }
}

/// The number of a key of which the `n`th has a share of about 1/n^skew.
fn zipf(draw: u64, keys: u32, skew: f64) -> u32 {
    let uniform = (hash::word(draw, 11) >> 11) as f64 / (1u64 << 53) as f64;
    let power = 1.0 - skew;
    let most = f64::from(keys + 1).powf(power);
    ((1.0 + uniform * (most - 1.0)).powf(1.0 / power) as u32).clamp(1, keys)
}

#[test]
fn heavy_hitters_of_skewed_traffic_are_found_with_sums_as_good_as_stated() {
    const KEYS: u32 = 50_000;
    for (skew, places, floor) in [(0.8, 400, 3), (1.1, 200, 5), (1.5, 64, 4)] {
        let mut members = members(places);
        let mut truth = BTreeMap::new();
        for draw in 0..300_000u64 {
            let key = zipf(draw, KEYS, skew);
            let bytes = 60 + hash::word(draw, 13) % 1_440;
            // Most packets of a key come to one member, some to the others.
            let spread = if draw % 4 == 0 { draw } else { u64::from(key) };
            members[(hash::word(spread, 17) % 3) as usize].add(key, bytes);
            *truth.entry(key).or_default() += bytes;
            if draw % 10_000 == 0 {
                exchange(&mut members);
            }
        }
        exchange(&mut members);
        for here in &members {
            check(&here.state.heavy, &truth, places);
            assert_eq!(here.state.digests(), members[0].state.digests());
        }
        // No key of less than a place's share comes before one of more than three.
        let excess = truth.values().sum::<u64>() / u64::from(places);
        let listed = members[1].state.heavy.heaviest(usize::MAX);
        let last_heavy = listed
            .iter()
            .rposition(|heavy| truth[&heavy.key] > 3 * excess);
        let first_light = listed.iter().position(|heavy| truth[&heavy.key] < excess);
        assert!(last_heavy < first_light.or(Some(usize::MAX)));
        let heavy = truth.values().filter(|&&sum| sum > 3 * excess).count();
        assert!(heavy >= floor, "{heavy} keys are heavy at skew {skew}");
        let most = truth.iter().max_by_key(|&(_, sum)| sum);
        assert_eq!(Some(&listed[0].key), most.map(|(key, _)| key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the input, and though what is reported arrives repeated and in any order.
    #[test]
    fn sums_are_off_by_no_more_than_stated(
        added in prop::collection::vec((0usize..3, 0u32..60, 1u64..1_000), 1..300),
        places in 1u32..16, order: u64, flush_every in 1usize..50,
    ) {
        let mut members = members(places);
        let mut truth = BTreeMap::new();
        let mut reported: Vec<(OriginName, Groups)> = Vec::new();
        for (number, &(at, key, weight)) in added.iter().enumerate() {
            members[at].add(key, weight);
            *truth.entry(key).or_default() += weight;
            if number % flush_every == 0 {
                reported.push((members[at].context.identity().own, members[at].reported()));
            }
        }
        for member in &mut members {
            reported.push((member.context.identity().own, member.reported()));
        }
        let mut bits = order;
        for here in &mut members {
            let mut heard = reported.clone();
            heard.extend(reported.iter().take(3).cloned());
            for place in (1..heard.len()).rev() {
                bits = hash::word(bits, 3);
                heard.swap(place, bits as usize % (place + 1));
            }
            for (name, groups) in &heard {
                // Its own come back as well.
                here.hear(*name, groups);
            }
        }
        let parts = snapshot(&members[0].state, 400);
        let mut fresh = member(2, 9, places, ObjectSettings::REPLICATED);
        for part in &parts {
            prop_assert!(fresh.state.apply_snapshot(&fresh.context, part).is_ok());
        }
        for here in members.iter().chain([&fresh]) {
            check(&here.state.heavy, &truth, places);
            prop_assert_eq!(here.state.digests(), members[0].state.digests());
        }
        // All in one summary: off by twice as much.
        let mut restored = member(0, 2, places, ObjectSettings::REPLICATED);
        let since = Since { saved: 1, away: 1 };
        for part in &parts {
            prop_assert!(restored.state.restore(&restored.context, part, &since).is_ok());
        }
        let heavy = &restored.state.heavy;
        for (key, &truth) in &truth {
            let said = heavy.get(key).expect("local");
            prop_assert!(said.abs_diff(truth) <= 2 * heavy.excess() + 1, "{} of {}", said, truth);
        }
        for heavy in heavy.heaviest(usize::MAX) {
            let truth = truth[&heavy.key];
            prop_assert!(heavy.at_least <= truth, "{} at least, of {}", heavy.at_least, truth);
        }
    }
}

#[test]
fn what_travels_is_what_changed() {
    let mut here = member(0, 1, 100, ObjectSettings::REPLICATED);
    for _ in 0..1_000 {
        here.add(1, 1_000);
        here.add(2, 1_000);
    }
    let reported = here.reported();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].1.len() < 40, "{} bytes", reported[0].1.len());
    assert!(here.reported().is_empty());
    here.context.hold_accumulators(true);
    here.add(1, 1);
    assert!(here.reported().is_empty(), "the log has no room");
    here.context.hold_accumulators(false);
    assert_eq!(here.reported().len(), 1);
    here.add(1, 0);
    assert!(here.reported().is_empty());
}

#[test]
fn what_no_summary_holds_is_refused() {
    let mut reader = member(1, 1, 4, ObjectSettings::REPLICATED);
    let from = member(0, 1, 4, ObjectSettings::REPLICATED)
        .context
        .identity()
        .own;
    // Object, lane, place, key, error, count.
    let bad: [&[u8]; 4] = [
        &[0, 0, 4, 1, 0, 0, 0, 0, 5],
        &[0, 0, 1, 1, 0, 0, 0, 6, 5],
        &[0, 0, 1, 1, 0, 0, 0, 0, 0],
        &[0, 0, 1, 1, 0, 0, 0, 0],
    ];
    for group in bad {
        let applied = reader.state.apply(&reader.context, from, 9, group);
        assert!(applied.is_err(), "{group:?}");
    }
    assert_eq!(reader.state.digests(), [0]);
    let good = [0, 0, 1, 1, 0, 0, 0, 2, 5];
    let applied = reader.state.apply(&reader.context, from, 9, &good);
    assert_eq!((applied, reader.get(1)), (Ok(()), 5));
    let listed = reader.state.heavy.heaviest(9);
    assert_eq!((listed[0].at_least, listed[0].at_most), (3, 5));
}

#[test]
fn reads_are_late_where_they_are_to_be() {
    let late = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let mut here = member(0, 1, 4, late);
    here.add(7, 5);
    here.context.begin(1);
    let heavy = &here.state.heavy;
    assert!(heavy.get(&7).is_err());
    let (call, _) = here.context.park();
    here.context.set_now(20, 0);
    here.context.resume(call);
    assert_eq!(heavy.get(&7), Ok(5));
    here.context.prefetch();
    assert!(heavy.get(&7).is_err());
    assert!(
        snapshot(&here.state, 1_100).iter().all(Vec::is_empty),
        "local"
    );
}
