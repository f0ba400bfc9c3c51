//! Token buckets with rates by key: each key has from one object exactly what it has from an object of its own rate, whatever is
//! spent, delayed and restarted. What objects of one rate promise is shown in `token_buckets.rs`.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::layout::Shape;
use asterism_state::{
    Builder, Context, Identity, Inspect, ObjectSettings, OriginName, Sequencer, Spending, State,
    TokenBucket, TokenRate, TokenRates, state,
};
use proptest::prelude::*;

use crate::manual::{groups, snapshot};

/// All keys in one object, and each in one of its own.
#[state]
struct Limits {
    all: TokenBucket<u32, TokenRates<u32>>,
    first: TokenBucket<u32>,
    second: TokenBucket<u32>,
    rest: TokenBucket<u32>,
}

const SECOND: u64 = 1_000_000;
const BEGIN_US: u64 = 5_000 * SECOND;
/// How long a patient host keeps what may wait.
const PATIENCE_US: u64 = 10_000;
/// The last one has no rate of its own.
const KEYS: [u32; 3] = [3, 5, 9];

const fn rate(tokens_per_second: u64, burst_tokens: u64) -> TokenRate {
    TokenRate {
        tokens_per_second,
        burst_tokens,
    }
}

#[derive(Clone, Copy)]
struct Limited {
    members: u16,
    /// Of [`KEYS`].
    rates: [TokenRate; 3],
    spending: Spending,
}

struct Instance {
    context: Rc<Context>,
    state: Limits,
    serial: u64,
}

impl Limited {
    fn rates(&self) -> TokenRates<u32> {
        let [first, second, rest] = self.rates;
        TokenRates::new(rest, [(KEYS[1], second), (KEYS[0], first)])
    }

    fn instance(&self, member: u16, incarnation: u64, now_us: u64) -> Instance {
        let own = OriginName {
            member,
            incarnation,
        };
        let identity = Identity {
            own,
            members: (0..self.members).collect(),
            lane: (0, 1),
        };
        let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 5, vec![]);
        let context = Rc::new(context);
        let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
        let one = |name, rate| builder.token_bucket(name, 16, rate, self.spending);
        let state = Limits {
            all: builder.token_bucket("all", 16, self.rates(), self.spending),
            first: one("first", self.rates[0]),
            second: one("second", self.rates[1]),
            rest: one("rest", self.rates[2]),
        };
        let mut instance = Instance {
            context,
            state,
            serial: 0,
        };
        instance.at(now_us);
        instance
    }

    fn instances(&self) -> Vec<Instance> {
        (0..self.members)
            .map(|member| self.instance(member, 1, BEGIN_US))
            .collect()
    }
}

type Groups = Vec<(u64, Vec<u8>)>;

impl Instance {
    fn at(&mut self, now_us: u64) {
        self.context.set_now(now_us, (now_us / SECOND) as u32);
        self.context.arrive(now_us);
    }

    fn alone(&self, place: usize) -> &TokenBucket<u32> {
        [&self.state.first, &self.state.second, &self.state.rest][place]
    }

    /// Tokens of a key, which are as many in both objects.
    fn available(&self, place: usize) -> u64 {
        let key = KEYS[place];
        let tokens = self.state.all.available(&key).expect("local");
        assert_eq!(Ok(tokens), self.alone(place).available(&key), "key {key}");
        tokens
    }

    /// Spends from both if both have it, which they do or do not alike.
    fn spend(&mut self, place: usize, count: u64) -> bool {
        let key = KEYS[place];
        self.available(place);
        self.serial += 1;
        self.context.begin(self.serial);
        let of_all = self.state.all.tokens(&key, count).expect("local");
        let of_own = self.alone(place).tokens(&key, count).expect("local");
        assert_eq!(of_all.is_some(), of_own.is_some(), "key {key}");
        let spends = of_all.is_some();
        if let (Some(of_all), Some(of_own)) = (of_all, of_own) {
            let mut act = self.state.act();
            act.all.spend(of_all);
            match place {
                0 => act.first.spend(of_own),
                1 => act.second.spend(of_own),
                _ => act.rest.spend(of_own),
            }
        }
        self.context.end(|_, _| {});
        spends
    }

    fn drain(&mut self, place: usize) -> u64 {
        let mut count = 0;
        while self.spend(place, 1) {
            count += 1;
        }
        count
    }

    fn reported(&mut self) -> Groups {
        groups(&mut self.state, &self.context)
    }

    fn name(&self) -> OriginName {
        self.context.identity().own
    }

    fn hear(&mut self, from: OriginName, reported: &Groups) {
        for (sequence, group) in reported {
            self.state
                .apply(&self.context, from, *sequence, group)
                .expect("well formed");
        }
    }

    /// All that another one knows, of its snapshot.
    fn learn(&mut self, other: &Instance) {
        for part in snapshot(&other.state, 1_100) {
            let applied = self.state.apply_snapshot(&self.context, &part);
            applied.expect("a snapshot");
        }
    }

    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
        self.context.end(|_, _| {});
    }

    fn written_off(&self) -> (u64, u64) {
        let alone = (0..3)
            .map(|place| self.alone(place).tally().written_off)
            .sum();
        (self.state.all.tally().written_off, alone)
    }

    fn shown(&self, key: u32) -> String {
        let (mut found, wanted) = (String::new(), format!("{key:?}"));
        let mut each = |entry: &asterism_state::Shown<'_>| {
            if format!("{:?}", entry.key) == wanted {
                found = format!("{:?}", entry.value);
            }
        };
        let object = self.state.object(0).expect("an object");
        object.show(0, u32::MAX, &mut each);
        found
    }
}

/// A flush that an instance owes, or receives: the time, the writer and the bytes.
enum Event {
    /// Patiently, or not.
    Flush(usize, bool),
    Hear(usize, OriginName, Groups),
}

fn rates() -> impl Strategy<Value = [TokenRate; 3]> {
    // From ones that fill at once to ones that take a minute.
    let one = || (1u64..60, 8u64..60).prop_map(|(second, burst)| rate(second, burst));
    [one(), one(), one()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_key_has_what_it_has_from_an_object_of_its_own_rate(
        members in 1u16..4, rates in rates(), escrow: bool, delay_us in 0u64..600_000,
        steps in prop::collection::vec((0u64..1_500_000, any::<u16>(), 0usize..3, 1u64..9, any::<u8>()), 1..120),
    ) {
        let spending = if escrow { Spending::Escrow } else { Spending::Approximate };
        let limited = Limited { members, rates, spending };
        let mut instances = limited.instances();
        let (mut now_us, mut incarnation) = (BEGIN_US, 1);
        let mut events: Vec<(u64, Event)> = Vec::new();
        for (pause_us, at, place, count, what) in steps {
            now_us += if what % 3 == 0 { pause_us } else { pause_us / 100 };
            while let Some(next) = (0..events.len()).min_by_key(|&next| events[next].0) {
                let (due, event) = events.remove(next);
                if due > now_us {
                    events.push((due, event));
                    break;
                }
                match event {
                    Event::Flush(at, patient) => {
                        if patient {
                            events.push((due + PATIENCE_US, Event::Flush(at, false)));
                        }
                        let instance = &mut instances[at];
                        instance.at(due);
                        instance.context.be_patient(patient);
                        let (name, reported) = (instance.name(), instance.reported());
                        for to in (0..instances.len()).filter(|&to| to != at) {
                            events.push((due + delay_us, Event::Hear(to, name, reported.clone())));
                        }
                    }
                    Event::Hear(to, from, reported) => {
                        instances[to].at(due);
                        instances[to].hear(from, &reported);
                    }
                }
            }
            instances.iter_mut().for_each(|instance| instance.at(now_us));
            let at = usize::from(at % members);
            match what % 16 {
                0 => { instances[at].drain(place); }
                1 => instances[at].sweep(),
                // What it hears then is another matter: see below.
                2 if escrow => {
                    incarnation += 1;
                    let fresh = limited.instance(at as u16, incarnation, now_us);
                    instances[at] = fresh;
                }
                _ => { instances[at].spend(place, count); }
            }
            events.push((now_us + 1_000, Event::Flush(at, what % 2 == 0)));
            for instance in &instances {
                (0..3).for_each(|place| { instance.available(place); });
                let (together, alone) = instance.written_off();
                prop_assert_eq!(together, alone);
            }
        }
    }
}

#[test]
fn each_key_has_its_own_burst_and_rate_at_every_host_and_shows_them() {
    let rates = [rate(100, 400), rate(1, 20), rate(10, 200)];
    for (spending, shares) in [(Spending::Approximate, 1), (Spending::Escrow, 2)] {
        let limited = Limited {
            members: 2,
            rates,
            spending,
        };
        let mut instances = limited.instances();
        instances.iter_mut().for_each(Instance::sweep);
        let mut now_us = BEGIN_US + 100 * SECOND;
        for (place, rate) in rates.into_iter().enumerate() {
            now_us += 100 * SECOND;
            instances.iter_mut().for_each(|one| one.at(now_us));
            let [one, other] = &mut instances[..] else {
                panic!("two")
            };
            let burst = rate.burst_tokens / shares;
            assert_eq!(one.drain(place), burst);
            assert_eq!(
                one.shown(KEYS[place]),
                format!("0 of {burst} tokens, short")
            );
            let reported = one.reported();
            other.hear(one.name(), &reported);
            assert_eq!(one.state.digests(), other.state.digests());
            let heard = if shares == 1 { 0 } else { burst };
            assert_eq!(other.available(place), heard);
            now_us += 4 * SECOND;
            instances.iter_mut().for_each(|one| one.at(now_us));
            let refilled = 4 * rate.tokens_per_second / shares;
            assert_eq!(instances[0].drain(place), refilled.min(burst));
            let reported = instances[0].reported();
            let name = instances[0].name();
            instances[1].hear(name, &reported);
        }
    }
}

/// The slowest bucket says how long all are remembered; a number that is free again is another key's, at its rate.
#[test]
fn keys_are_forgotten_and_their_numbers_get_the_rates_of_others() {
    let limited = Limited {
        members: 2,
        rates: [rate(1_000, 50), rate(1, 30), rate(10, 200)],
        spending: Spending::Approximate,
    };
    let mut here = limited.instance(0, 1, BEGIN_US);
    assert_eq!(here.drain(0), 50);
    here.reported();
    let mut now_us = BEGIN_US;
    let mut entries = Vec::new();
    for _ in 0..200 {
        now_us += SECOND;
        here.at(now_us);
        here.sweep();
        here.reported();
        entries.push((here.state.all.entries(), here.state.first.entries()));
    }
    let kept = |of: fn(&(usize, usize)) -> usize| {
        let kept = entries.iter().filter(|&entry| of(entry) > 0).count();
        assert!(kept < 200);
        kept
    };
    let (together, alone) = (kept(|entry| entry.0), kept(|entry| entry.1));
    assert!((60..=120).contains(&together), "{together} s");
    assert!((5..=7).contains(&alone), "{alone} s");
    // One number was used; anyone who comes next has it.
    assert_eq!(here.drain(1), 30);
    now_us += 200 * SECOND;
    for second in 0..200 {
        here.at(now_us + second * SECOND);
        here.sweep();
        here.reported();
    }
    assert_eq!(here.state.all.entries(), 0);
    assert_eq!(here.drain(2), 200);
    assert_eq!(here.state.all.entries(), 1);
}

#[test]
fn a_newcomer_knows_what_was_spent_of_each_rate() {
    let limited = Limited {
        members: 2,
        rates: [rate(10, 50), rate(1, 30), rate(5, 200)],
        spending: Spending::Approximate,
    };
    let mut writer = limited.instance(0, 1, BEGIN_US);
    for (place, count) in [40, 20, 150].into_iter().enumerate() {
        assert!(writer.spend(place, count));
    }
    writer.reported();
    let mut fresh = limited.instance(1, 1, BEGIN_US);
    fresh.learn(&writer);
    assert_eq!(fresh.state.digests(), writer.state.digests());
    fresh.at(BEGIN_US + SECOND);
    let left: Vec<u64> = (0..3).map(|place| fresh.available(place)).collect();
    assert_eq!(left, [10 + 10, 10 + 1, 50 + 5]);
}

/// It hears of what fast buckets spent within as long as the slowest takes to fill, and owes of that what it may owe at most.
#[test]
fn a_newcomer_owes_of_a_fast_bucket_no_more_than_can_be_owed() {
    let limited = Limited {
        members: 2,
        rates: [rate(10, 50), rate(1, 1_000), rate(5, 200)],
        spending: Spending::Approximate,
    };
    let mut writer = limited.instance(0, 1, BEGIN_US);
    for second in 0..30 {
        writer.at(BEGIN_US + second * SECOND);
        writer.drain(0);
    }
    writer.at(BEGIN_US + 200 * SECOND);
    writer.reported();
    let mut fresh = limited.instance(1, 1, BEGIN_US + 200 * SECOND);
    fresh.learn(&writer);
    assert!(fresh.state.all.tally().written_off > 0);
    // 2 × (50 + 10 × 1 s): seven seconds until there is one, and twelve until it is full.
    for (seconds, tokens) in [(0, 0), (7, 0), (8, 10), (12, 50)] {
        fresh.at(BEGIN_US + (200 + seconds) * SECOND);
        assert_eq!(fresh.state.all.available(&KEYS[0]), Ok(tokens));
    }
}

#[test]
fn hosts_with_other_rates_are_reported_apart() {
    let shape = |rates: TokenRates<u32>| -> Shape {
        let context = Context::new(
            Identity::alone(),
            Sequencer::Own(Cell::new(0)),
            5,
            Vec::new(),
        );
        let builder = Builder::new(Rc::new(context), |_| ObjectSettings::REPLICATED);
        drop(builder.token_bucket::<u32, _>("all", 16, rates, Spending::Approximate));
        builder.shape()
    };
    let rest = rate(10, 200);
    let of = |own: &[(u32, TokenRate)]| shape(TokenRates::new(rest, own.iter().copied()));
    let first = of(&[(3, rate(1, 20)), (5, rate(2, 20))]);
    assert_eq!(first, of(&[(5, rate(2, 20)), (9, rest), (3, rate(1, 20))]));
    for other in [
        of(&[]),
        of(&[(3, rate(1, 20))]),
        of(&[(3, rate(2, 20)), (5, rate(1, 20))]),
        of(&[(3, rate(1, 20)), (5, rate(2, 21))]),
        of(&[(3, rate(1, 20)), (6, rate(2, 20))]),
    ] {
        assert_eq!(other.layout, first.layout, "they read each other");
        assert_ne!(other.whole, first.whole);
    }
}

/// Only in a build with `--cfg asterism_mutants`.
#[cfg(asterism_mutants)]
#[test]
fn the_planted_bug_is_found() {
    use asterism_state::mutant::{self, Mutant};

    mutant::select(Some(Mutant::OneRateForAll));
    let found =
        std::panic::catch_unwind(each_key_has_its_own_burst_and_rate_at_every_host_and_shows_them);
    mutant::select(None);
    assert!(found.is_err());
}
