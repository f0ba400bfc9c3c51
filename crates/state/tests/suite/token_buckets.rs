//! Token buckets: what instances spend together, whatever is delayed, lost or restarted, against what is stated.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::{
    Builder, Context, Identity, Inspect, ObjectCount, ObjectSettings, OriginName, Sequencer, Since,
    Spending, State, TokenBucket, TokenRate, state,
};
use proptest::prelude::*;

use crate::manual::{groups, snapshot};

#[state]
struct Limits {
    limits: TokenBucket<u32>,
}

const SECOND: u64 = 1_000_000;
const CAPACITY: u32 = 60;
const KEY: u32 = 7;
/// How long a patient host keeps what may wait.
const PATIENCE_US: u64 = 10_000;
/// When tests begin: neither clock is at zero.
const BEGIN_US: u64 = 5_000 * SECOND;

#[derive(Clone, Copy)]
struct Shape {
    members: u16,
    rate: TokenRate,
    spending: Spending,
    settings: ObjectSettings,
}

impl Shape {
    fn new(members: u16, tokens_per_second: u64, burst_tokens: u64, spending: Spending) -> Self {
        Self {
            members,
            rate: TokenRate {
                tokens_per_second,
                burst_tokens,
            },
            spending,
            settings: ObjectSettings::REPLICATED,
        }
    }

    fn instance(self, place: u16, incarnation: u64, lane: (u16, u16), now_us: u64) -> Instance {
        let own = OriginName {
            member: place,
            incarnation,
        };
        let identity = Identity {
            own,
            members: (0..self.members).collect(),
            lane,
        };
        let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
        let context = Rc::new(context);
        let settings = self.settings;
        let builder = Builder::new(context.clone(), move |_| settings);
        let limits = builder.token_bucket("limits", CAPACITY, self.rate, self.spending);
        let mut instance = Instance {
            context,
            state: Limits { limits },
            serial: 0,
        };
        instance.at(now_us);
        instance
    }

    fn instances(self) -> Vec<Instance> {
        (0..self.members)
            .map(|place| self.instance(place, 1, (0, 1), BEGIN_US))
            .collect()
    }
}

struct Instance {
    context: Rc<Context>,
    state: Limits,
    serial: u64,
}

type Groups = Vec<(u64, Vec<u8>)>;

impl Instance {
    fn at(&mut self, now_us: u64) {
        self.context.set_now(now_us, (now_us / SECOND) as u32);
        self.context.arrive(now_us);
    }

    fn spend(&mut self, key: u32, count: u64) -> bool {
        self.serial += 1;
        self.context.begin(self.serial);
        let tokens = self.state.limits.tokens(&key, count).expect("local");
        let spent = tokens.map(|tokens| self.state.act().limits.spend(tokens));
        self.context.end(|_, _| {});
        spent.is_some()
    }

    /// As many tokens, one by one, as there are.
    fn drain(&mut self, key: u32) -> u64 {
        let mut count = 0;
        while self.spend(key, 1) {
            count += 1;
        }
        count
    }

    fn available(&self) -> u64 {
        self.state.limits.available(&KEY).expect("local")
    }

    fn reported(&mut self) -> Groups {
        groups(&mut self.state, &self.context)
    }

    fn name(&self) -> OriginName {
        self.context.identity().own
    }

    fn hear(&mut self, from: OriginName, groups: &Groups) {
        for (sequence, group) in groups {
            self.state
                .apply(&self.context, from, *sequence, group)
                .expect("well formed");
        }
    }

    fn sweep(&mut self) {
        self.state.object_mut(0).expect("an object").sweep_share(1);
        self.context.end(|_, _| {});
    }
}

/// Something that happens later: an instance tells, or hears.
enum Event {
    /// Patiently, or not.
    Flush(usize, bool),
    Hear(usize, OriginName, Groups),
}

/// Instances whose operations take their time, and what was spent when.
struct Cluster {
    instances: Vec<Instance>,
    events: Vec<(u64, Event)>,
    spent: Vec<(u64, u64)>,
    delay_us: u64,
    bits: u64,
}

impl Cluster {
    fn new(instances: Vec<Instance>, delay_us: u64, seed: u64) -> Self {
        Self {
            instances,
            events: Vec::new(),
            spent: Vec::new(),
            delay_us,
            bits: seed,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.bits = asterism_state::hash::word(self.bits, 0xBEE);
        self.bits % limit.max(1)
    }

    /// Lets what was due happen, in order, and time pass.
    fn run_until(&mut self, now_us: u64) {
        while let Some(next) = (0..self.events.len()).min_by_key(|&place| self.events[place].0) {
            if self.events[next].0 > now_us {
                break;
            }
            let (due, event) = self.events.swap_remove(next);
            match event {
                Event::Flush(at, patient) => {
                    if patient {
                        self.events
                            .push((due + PATIENCE_US, Event::Flush(at, false)));
                    }
                    let instance = &mut self.instances[at];
                    instance.at(due);
                    instance.context.be_patient(patient);
                    let (name, reported) = (instance.name(), instance.reported());
                    for to in (0..self.instances.len()).filter(|&to| to != at) {
                        let later = due + self.below(self.delay_us / 2 + 1);
                        let event = Event::Hear(to, name, reported.clone());
                        self.events.push((later, event));
                    }
                }
                Event::Hear(to, from, reported) => {
                    self.instances[to].at(due);
                    self.instances[to].hear(from, &reported);
                }
            }
        }
        for instance in &mut self.instances {
            instance.at(now_us);
        }
    }

    fn spend(&mut self, at: usize, count: u64, now_us: u64) -> bool {
        let spends = self.instances[at].spend(KEY, count);
        if spends {
            self.spent.push((now_us, count));
            let later = now_us + self.below(self.delay_us / 2 + 1);
            let patient = self.below(2) == 0;
            self.events.push((later, Event::Flush(at, patient)));
        }
        spends
    }

    /// Over any time, no more was spent than `burst` and the rate allow. In millionths of tokens.
    fn check(&self, per_second: u64, burst: u64) {
        for (place, &(from, _)) in self.spent.iter().enumerate() {
            let mut sum = 0;
            for &(to, count) in &self.spent[place..] {
                sum += count * SECOND;
                assert!(
                    sum <= burst + per_second * (to - from),
                    "{sum} in {} µs, of {burst} and {per_second} a second",
                    to - from
                );
            }
        }
    }
}

/// Bursts, pauses and floods at random instances.
fn play(
    cluster: &mut Cluster,
    steps: usize,
    pause_us: u64,
    mut restart: impl FnMut(&mut Cluster, u64),
) {
    let mut now_us = BEGIN_US;
    for _ in 0..steps {
        now_us += match cluster.below(3) {
            0 => 0,
            1 => cluster.below(pause_us / 20 + 1),
            _ => cluster.below(pause_us),
        };
        cluster.run_until(now_us);
        let at = cluster.below(cluster.instances.len() as u64) as usize;
        let count = 1 + cluster.below(3);
        match cluster.below(6) {
            0 => while cluster.spend(at, count, now_us) {},
            1 => {
                for at in 0..cluster.instances.len() {
                    while cluster.spend(at, count, now_us) {}
                }
            }
            _ => {
                cluster.spend(at, count, now_us);
            }
        }
        if cluster.below(5) == 0 {
            cluster.instances[at].sweep();
        }
        restart(cluster, now_us);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever comes when: burst + rate × time, and (instances - 1) × (burst + rate × delay).
    #[test]
    fn approximate_spending_exceeds_the_rate_by_no_more_than_stated(
        members in 1u16..5, per_second in 1u64..60, burst in 1u64..30, delay_us in 0u64..1_000_000,
        seed: u64, pause_us in 1_000u64..3_000_000,
    ) {
        let shape = Shape::new(members, per_second, burst, Spending::Approximate);
        let mut cluster = Cluster::new(shape.instances(), delay_us, seed);
        play(&mut cluster, 120, pause_us, |_, _| ());
        let delay_us = delay_us + PATIENCE_US;
        let excess = u64::from(members - 1) * (burst * SECOND + per_second * delay_us);
        cluster.check(per_second, burst * SECOND + excess);
        // Nothing that came within a second was written_off, so that the rate holds in the long run.
        for instance in &cluster.instances {
            prop_assert_eq!(instance.state.limits.tally().written_off, 0);
        }
    }

    /// Nothing is ever delivered, and hosts restart at any time: burst + rate × time, and not a token more.
    #[test]
    fn spending_by_escrow_never_exceeds_the_rate(
        lanes in prop::collection::vec(1u16..4, 1..4), per_second in 1u64..60, more in 0u64..30,
        seed: u64, pause_us in 1_000u64..3_000_000,
    ) {
        // No host knows how many instances the others run.
        let members = lanes.len() as u16;
        let burst = u64::from(members) * 3 + more;
        let shape = Shape::new(members, per_second, burst, Spending::Escrow);
        let of_host = |(place, &count): (usize, &u16)| {
            (0..count).map(move |lane| (place as u16, (lane, count))).collect::<Vec<_>>()
        };
        let places: Vec<(u16, (u16, u16))> = lanes.iter().enumerate().flat_map(of_host).collect();
        let instances = places
            .iter()
            .map(|&(place, lane)| shape.instance(place, 1, lane, BEGIN_US))
            .collect();
        let mut cluster = Cluster::new(instances, 0, seed);
        let mut incarnation = 1;
        play(&mut cluster, 120, pause_us, |cluster, now_us| {
            cluster.events.clear();
            if cluster.below(12) == 0 {
                incarnation += 1;
                let at = cluster.below(places.len() as u64) as usize;
                let (place, lane) = places[at];
                cluster.instances[at] = shape.instance(place, incarnation, lane, now_us);
            }
        });
        cluster.check(per_second, burst * SECOND);
    }
}

#[test]
fn instances_that_all_spend_what_they_can_exceed_it_by_their_number_times_rate_times_delay() {
    let (members, per_second, burst, delay_us) = (3u16, 200, 100, 400_000);
    let shape = Shape::new(members, per_second, burst, Spending::Approximate);
    let mut cluster = Cluster::new(shape.instances(), delay_us, 3);
    let end_us = 20 * SECOND;
    for step in 0..end_us / 2_000 {
        let now_us = BEGIN_US + step * 2_000;
        cluster.run_until(now_us);
        for at in 0..members.into() {
            cluster.spend(at, 1, now_us);
        }
    }
    let all: u64 = cluster.spent.iter().map(|&(_, count)| count).sum();
    // In the long run, neither much more nor much less than the rate.
    let fair = burst + per_second * 20;
    let once = u64::from(members - 1) * (burst + per_second * delay_us / SECOND);
    assert!((fair - 10..=fair + once).contains(&all), "{all} of {fair}");
    // When the first burst is over, only what is on its way is spent twice.
    cluster
        .spent
        .retain(|&(at_us, _)| at_us > BEGIN_US + 5 * SECOND);
    let excess = u64::from(members - 1) * per_second * delay_us + 2 * u64::from(members) * SECOND;
    cluster.check(per_second, excess);
}

/// What is spent from a bucket that is at least half full may wait; what is spent from others is reported at once, and all that waits
/// with it.
#[test]
fn a_patient_flush_leaves_what_nobody_decides_by() {
    let shape = Shape::new(2, 10, 100, Spending::Approximate);
    let mut instances = shape.instances();
    let [one, other] = &mut instances[..] else {
        panic!("two")
    };
    one.context.be_patient(true);
    assert!(one.spend(KEY, 50) && one.spend(KEY + 1, 1));
    assert_eq!(one.reported(), []);
    one.context.be_patient(false);
    let reported = one.reported();
    other.hear(one.name(), &reported);
    assert_eq!(other.available(), 50);
    one.context.be_patient(true);
    assert!(one.spend(KEY + 1, 1));
    assert_eq!(one.reported(), []);
    assert!(one.spend(KEY, 1));
    let reported = one.reported();
    assert_eq!(reported.len(), 1);
    other.hear(one.name(), &reported);
    assert_eq!(other.available(), 49);
    assert_eq!(one.reported(), []);
    // What another spent makes it short here too: it is informed what was spent here.
    other.context.be_patient(true);
    other.reported();
    assert!(other.spend(KEY + 2, 40));
    assert_eq!(other.reported(), []);
    assert!(one.spend(KEY + 2, 40));
    one.context.be_patient(false);
    let reported = one.reported();
    other.hear(one.name(), &reported);
    assert!(!other.reported().is_empty());
}

/// What was noted and then reported with the haste of another packet is not reported again, and no time passes that others do not hear of.
#[test]
fn a_later_flush_with_nothing_left_to_tell_changes_nothing() {
    let shape = Shape::new(2, 10, 100, Spending::Approximate);
    let mut instances = shape.instances();
    let [one, other] = &mut instances[..] else {
        panic!("two")
    };
    one.context.be_patient(true);
    assert!(one.spend(KEY, 1));
    assert_eq!(one.reported(), []);
    assert!(one.spend(KEY, 60));
    let reported = one.reported();
    other.hear(one.name(), &reported);
    assert_eq!(one.state.digests(), other.state.digests());
    one.at(BEGIN_US + 60 * SECOND);
    one.context.be_patient(false);
    assert_eq!(one.reported(), []);
    assert_eq!(one.state.digests(), other.state.digests());
}

#[test]
fn the_stated_excess_is_reached_and_paid_back() {
    let shape = Shape::new(3, 10, 50, Spending::Approximate);
    let mut instances = shape.instances();
    // All at once, before any hears of another.
    let spent: u64 = instances
        .iter_mut()
        .map(|instance| instance.drain(KEY))
        .sum();
    assert_eq!(spent, 150, "the burst, and twice it");
    let reported: Vec<(OriginName, Groups)> = instances
        .iter_mut()
        .map(|instance| (instance.name(), instance.reported()))
        .collect();
    for instance in &mut instances {
        for (name, groups) in &reported {
            instance.hear(*name, groups);
            instance.hear(*name, groups);
        }
        // 100 tokens are owed: ten seconds pass before there is another one.
        instance.at(BEGIN_US + 10 * SECOND);
        assert_eq!(instance.available(), 0);
        instance.at(BEGIN_US + 10 * SECOND + 100_000);
        assert_eq!(instance.available(), 1);
        instance.at(BEGIN_US + 1_000 * SECOND);
        assert_eq!(instance.available(), 50);
    }
}

#[test]
fn after_a_long_partition_a_bucket_is_empty_for_a_while_and_not_for_as_long() {
    let shape = Shape::new(2, 10, 20, Spending::Approximate);
    let mut instances = shape.instances();
    let mut now_us = BEGIN_US;
    let mut reported = Vec::new();
    let mut spent = [0, 0];
    for _ in 0..100 {
        now_us += SECOND;
        for (instance, spent) in instances.iter_mut().zip(&mut spent) {
            instance.at(now_us);
            *spent += instance.drain(KEY);
        }
        reported.push(instances[0].reported());
    }
    assert_eq!(spent, [20 + 990, 20 + 990], "each side has the whole rate");
    let name = instances[0].name();
    let right = &mut instances[1];
    for groups in &reported {
        right.hear(name, groups);
    }
    let tally = right.state.limits.tally();
    assert!(tally.written_off > 0 && right.available() == 0);
    let counts = right.state.object(0).map(|object| object.counts()).unwrap();
    assert_eq!(counts.get(ObjectCount::WrittenOff), Some(tally.written_off));
    assert_eq!(counts.get(ObjectCount::Refused), Some(tally.refused));
    // At most 2 × (20 + 10) are owed, of which 40 are refilled in four seconds.
    right.at(now_us + 4 * SECOND);
    assert_eq!(right.available(), 0);
    right.at(now_us + 4 * SECOND + 100_000);
    assert_eq!(right.available(), 1);
}

#[test]
fn shares_of_one_instance_are_what_it_costs_to_be_exact() {
    let shape = Shape::new(4, 100, 40, Spending::Escrow);
    let mut only = shape.instance(2, 1, (0, 1), BEGIN_US);
    only.sweep();
    assert_eq!(
        only.drain(KEY),
        0,
        "what its former incarnation spent is not known"
    );
    only.at(BEGIN_US + 50_000);
    assert_eq!(only.state.limits.available(&8), Ok(1), "of any key");
    assert!(only.reported().is_empty(), "nothing travels");
    only.at(BEGIN_US + 100 * SECOND);
    assert_eq!(only.drain(KEY), 10, "a quarter of the burst");
    only.at(BEGIN_US + 200 * SECOND);
    only.drain(KEY);
    let mut spent = 0;
    for step in 1..=1_000 {
        only.at(BEGIN_US + 200 * SECOND + step * 10_000);
        spent += only.drain(KEY);
    }
    assert_eq!(spent, 250, "a quarter of the rate, over ten seconds");
    assert!(snapshot(&only.state, 1_100).iter().all(Vec::is_empty));
    let bytes = [0, 0, 7, 0, 0, 0, 1, 1];
    let applied = only.state.apply(&only.context, only.name(), 1, &bytes);
    assert!(applied.is_err(), "nobody says anything of shares");
}

#[test]
fn one_box_begins_with_a_full_bucket_whatever_the_mode() {
    for spending in [Spending::Approximate, Spending::Escrow] {
        let mut shape = Shape::new(3, 10, 50, spending);
        shape.settings = ObjectSettings::LOCAL;
        let mut here = shape.instance(0, 1, (0, 1), BEGIN_US);
        assert_eq!(here.drain(KEY), 50);
        here.at(BEGIN_US + SECOND);
        assert_eq!(here.drain(KEY), 10);
        assert!(here.reported().is_empty());
        assert!(snapshot(&here.state, 1_100).iter().all(Vec::is_empty));
        assert_eq!(here.state.digests(), [0]);
    }
}

#[test]
fn a_call_is_promised_no_token_twice_and_keeps_none_that_it_does_not_spend() {
    let shape = Shape::new(1, 1, 10, Spending::Approximate);
    let mut here = shape.instance(0, 1, (0, 1), BEGIN_US);
    here.spend(KEY, 1);
    let Instance { context, state, .. } = &here;
    context.begin(1_000);
    let ask = |count| state.limits.tokens(&KEY, count).expect("local");
    let first = ask(5);
    assert!(first.is_some() && ask(5).is_none() && ask(4).is_some() && ask(1).is_none());
    context.end(|_, _| {});
    // The next packet, and the same one called again, find them.
    context.begin(1_001);
    assert!(ask(9).is_some());
    let (call, _) = context.park();
    context.resume(call);
    assert!(ask(9).is_some() && ask(1).is_none());
    context.begin(1_002);
    let four: Vec<_> = (0..5).map(|_| ask(1)).collect();
    let given = four.iter().flatten().count();
    assert_eq!(given, 4, "no more for one packet");
    assert_eq!(here.state.limits.tally().refused, 4);
    assert_eq!(here.available(), 9);
}

#[test]
fn keys_whose_buckets_are_full_are_forgotten() {
    for spending in [Spending::Approximate, Spending::Escrow] {
        let shape = Shape::new(2, 5, 10, spending);
        let mut instances = shape.instances();
        for here in &mut instances {
            here.sweep();
        }
        for round in 1..200u64 {
            let now_us = BEGIN_US + 20 * SECOND * round;
            for (place, here) in instances.iter_mut().enumerate() {
                here.at(now_us);
                for number in 0..10 {
                    let key = (round as u32 * 20 + number) * 2 + place as u32;
                    assert!(here.spend(key, 1), "round {round}");
                }
            }
            let reported: Vec<Groups> = instances.iter_mut().map(Instance::reported).collect();
            let names = [instances[0].name(), instances[1].name()];
            instances[0].hear(names[1], &reported[1]);
            instances[1].hear(names[0], &reported[0]);
            for here in &mut instances {
                here.sweep();
            }
        }
        for here in &mut instances {
            assert_eq!(here.state.limits.tally().refused_full, 0);
            assert!(here.state.limits.entries() <= 2 * CAPACITY as usize);
            for later in 0..20 {
                here.at(BEGIN_US + 20 * SECOND * (200 + later));
                here.sweep();
                here.reported();
            }
            assert_eq!(here.state.limits.entries(), 0);
        }
    }
}

#[test]
fn a_newcomer_and_a_restart_know_what_was_spent() {
    let shape = Shape::new(2, 1, 100, Spending::Approximate);
    let mut writer = shape.instance(0, 1, (0, 1), BEGIN_US);
    writer.spend(KEY, 80);
    writer.reported();
    let parts = snapshot(&writer.state, 1_100);
    let mut fresh = shape.instance(1, 1, (0, 1), BEGIN_US);
    for part in parts.iter().chain(&parts) {
        fresh
            .state
            .apply_snapshot(&fresh.context, part)
            .expect("a snapshot");
    }
    assert_eq!(fresh.available(), 20);
    assert_eq!(fresh.state.digests(), writer.state.digests());
    let mut restored = shape.instance(0, 2, (0, 1), BEGIN_US + 10 * SECOND);
    let since = Since {
        saved: (BEGIN_US / SECOND) as u32,
        away: 10,
    };
    for part in &parts {
        let taken = restored.state.restore(&restored.context, part, &since);
        taken.expect("what was saved can be read");
    }
    assert_eq!(restored.available(), 20);
    assert!(!restored.reported().is_empty());
}

#[test]
fn reads_are_late_where_they_are_to_be_and_prefetching_draws_nothing() {
    let mut shape = Shape::new(1, 1, 10, Spending::Approximate);
    shape.settings = ObjectSettings {
        late_us: 10,
        ..ObjectSettings::LOCAL
    };
    let here = shape.instance(0, 1, (0, 1), BEGIN_US);
    let Instance { context, state, .. } = &here;
    context.begin(1);
    assert!(state.limits.tokens(&KEY, 1).is_err());
    assert!(state.limits.available(&KEY).is_err());
    let (call, _) = context.park();
    context.set_now(BEGIN_US + 20, 5_000);
    context.resume(call);
    context.prefetch();
    assert!(state.limits.tokens(&KEY, 10).is_err());
    context.answer();
    assert!(state.limits.tokens(&KEY, 10).expect("fetched").is_some());
    assert_eq!(state.limits.tally().refused, 0);
}

/// A turn counts no more of what was spent than it may tell, also where a great many keys were spent for since the last flush.
#[test]
fn what_many_keys_spent_is_counted_a_part_at_a_time() {
    const KEYS: u32 = 20_000;
    /// About what a flush of the packet loop may write in a turn.
    const BYTES: usize = 40_000;
    /// What telling a key takes is some ten bytes.
    const COUNTED_MAX: usize = BYTES / 10;
    let mut shape = Shape::new(1, 10, 100, Spending::Approximate);
    shape.settings.capacity = KEYS;
    // So that a snapshot holds what is counted, reported or not.
    shape.settings.audited = false;
    // Of full buckets, and of those that are more than half empty.
    for count in [1, 60] {
        let mut instance = shape.instance(0, 1, (0, 1), BEGIN_US);
        for key in 0..KEYS {
            assert!(instance.spend(key, count));
        }
        let mut reported = Groups::new();
        let (mut before, mut turns) = (0, 0);
        loop {
            let mut bytes = BYTES;
            let is_over = instance
                .state
                .object_mut(0)
                .map(|object| object.flush(&mut bytes))
                .expect("it is there");
            instance.context.end(|_, _| {});
            let take = |sequence, group: &[u8]| reported.push((sequence, group.to_vec()));
            instance.context.take_groups(take);
            // Something new is spent all the time, which waits for the next flush at most.
            assert!(instance.spend(turns, 1));
            turns += 1;
            let cells: usize = snapshot(&instance.state, 1 << 20)
                .iter()
                .map(Vec::len)
                .sum();
            // 20 bytes each.
            let entries = cells / 20;
            assert!(
                entries - before <= COUNTED_MAX + 2,
                "{entries} after {before}"
            );
            before = entries;
            if is_over {
                break;
            }
        }
        let most = 2 * KEYS / COUNTED_MAX as u32;
        assert!((5..=most).contains(&turns), "{turns} turns");
        let mut other = shape.instance(1, 1, (0, 1), BEGIN_US);
        other.hear(instance.name(), &reported);
        other.hear(instance.name(), &instance.reported());
        assert_eq!(other.state.digests(), instance.state.digests());
        assert_eq!(other.state.limits.in_use(), KEYS);
    }
}
