//! Whatever the load does and whatever fails, decisions keep their laws; and once loads and faults rest, so does the cluster.

use std::ops::Range;

use asterism_elasticity::{
    Action, Decision, Elasticity, HostSample, Obstacle, Policies, Reason, Rules, Standing, State,
    UnixMs,
};

use super::laws::Laws;
use super::world::{BEGIN, Faults, Numbers, World};

/// Seconds with faults and a load that changes.
const ROUGH_S: u64 = 450;
/// Seconds without, within which everything must come to rest.
const CALM_S: u64 = 1_500;
/// Seconds without a change that are rest: longer than all waits of these policies together.
const REST_S: u64 = 200;
/// Seeds of each test.
const SEEDS: u64 = 1_000;

/// How the load changes.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Constant,
    Random,
    Steps,
    Sine,
    /// Goes where it makes the cluster flap.
    Adversary,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    changes: u64,
    moves: u64,
    hosts_at_rest: usize,
    elephants: u64,
}

struct Run {
    seed: u64,
    numbers: Numbers,
    rules: Rules,
    world: World,
    elasticity: Elasticity,
    laws: Laws,
    shape: Shape,
    load: u64,
    phase: u64,
    /// Windows of the schedule, in seconds from the beginning, with their minimums.
    window: Option<(u64, u64, u32)>,
    /// How far the clock is ahead, in milliseconds.
    ahead_ms: u64,
    trace: Vec<String>,
}

/// Packets/s that a host of the model carries.
const CAPACITY: u64 = 100_000;

fn clock(second: u64) -> String {
    let minute = second / 60;
    format!("{:02}:{:02}", 8 + minute / 60, minute % 60)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut numbers = Numbers(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
        let min = numbers.between(1, 3) as u32;
        let max = min + numbers.between(0, 8) as u32;
        let hysteresis = numbers.between(100, 300);
        let mut text = format!(
            "[policy.nat]\nhosts = {{ min = {min}, max = {max}, step = {} }}\nhysteresis_permille = {hysteresis}\n",
            numbers.between(1, 3)
        );
        let mut thresholds = |name: &str, out: u64, text: &mut String| {
            let most = out * (1_000 - hysteresis) / 1_000;
            let within = numbers.between(most / 2, most);
            *text += &format!("{name} = {{ out = {out}, in = {within} }}\n");
        };
        let which = seed % 8;
        if which != 3 {
            thresholds("packets_per_second", 70_000, &mut text);
        }
        match which {
            1 => thresholds("cpu_permille", 700, &mut text),
            2 | 3 => thresholds("flows", 6_500, &mut text),
            4 => thresholds("latency_99_us", 400, &mut text),
            5 => thresholds("lag_us", 9_000, &mut text),
            _ => {}
        }
        text += &format!(
            "out_for = \"{}s\"\nin_for = \"{}s\"\ncool_down = \"{}s\"\ndrain = \"{}s\"\nstale_after = \"5s\"\n",
            numbers.below(15),
            numbers.between(5, 40),
            numbers.between(5, 40),
            numbers.between(1, 15),
        );
        text += "launch_within = \"20s\"\nback_off = { first = \"4s\", most = \"60s\" }\n";
        if numbers.one_in(3) {
            text += "consolidation = { head_room_permille = 350, for = \"30s\" }\n";
        }
        let by_bucket = numbers.one_in(2);
        if by_bucket {
            text += "hot_spot = { factor_permille = 1200, for = \"5s\", cool_down = \"10s\" }\n";
        }
        let mut window = None;
        if numbers.one_in(3) && max > min {
            let from = 60 * numbers.between(1, 4);
            let to = from + 60 * numbers.between(1, 3);
            let least = numbers.between(u64::from(min) + 1, u64::from(max)) as u32;
            let (begin, end) = (clock(from), clock(to));
            text += &format!(
                "schedule = [{{ days = [\"mon\"], from = \"{begin}\", to = \"{end}\", min = {least} }}]\n"
            );
            window = Some((from, to, least));
        }
        let policies = Policies::read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let rules = policies.rules("nat").expect("a cluster").clone();
        let weights = match by_bucket {
            false => Vec::new(),
            true => weights(&mut numbers),
        };
        let mut world = World::new(numbers.next(), min, CAPACITY, weights);
        let some = |numbers: &mut Numbers, many| if numbers.one_in(2) { many } else { 0 };
        world.faults = Faults {
            launch: some(&mut numbers, 3),
            death: some(&mut numbers, 60),
            sample: some(&mut numbers, 10),
            link: some(&mut numbers, 100),
        };
        let shapes = [
            Shape::Constant,
            Shape::Random,
            Shape::Steps,
            Shape::Sine,
            Shape::Adversary,
        ];
        Run {
            seed,
            shape: shapes[numbers.below(5) as usize],
            load: numbers.between(0, 70_000 * u64::from(max)),
            phase: numbers.between(20, 300),
            elasticity: Elasticity::new(rules.clone()),
            laws: Laws::default(),
            world,
            rules,
            numbers,
            window,
            ahead_ms: 0,
            trace: Vec::new(),
        }
    }

    /// The load of a second in which it may change.
    fn load_at(&mut self, second: u64) -> u64 {
        let full = 80_000 * u64::from(self.rules.max);
        let serving = self.world.count(Standing::Serving) as u64;
        match self.shape {
            Shape::Constant => {}
            Shape::Random => {
                let step = full / 20 + 1;
                let up = self.numbers.below(2 * step);
                self.load = (self.load + up).saturating_sub(step).min(full);
            }
            Shape::Steps if second.is_multiple_of(self.phase) => {
                self.load = self.numbers.below(full);
            }
            Shape::Steps => {}
            Shape::Sine => {
                let turn = (second % self.phase) as f64 / self.phase as f64;
                let swing = (turn * std::f64::consts::TAU).sin() * 0.5 + 0.5;
                self.load = (swing * full as f64) as u64;
            }
            Shape::Adversary => {
                // Just above the threshold until hosts come, then just below the other one until they go; and dips.
                let above = 70_500 * serving.max(1);
                let below = 20_000 * serving.max(1);
                let is_up = (second / self.phase).is_multiple_of(2);
                let dips = second.is_multiple_of(7);
                self.load = if is_up && !dips { above } else { below };
            }
        }
        self.load
    }

    fn minimum(&self, second: u64) -> u32 {
        match self.window {
            Some((from, to, least)) if (from..to).contains(&second) => least,
            _ => self.rules.min,
        }
    }

    /// One second.
    fn second(&mut self, second: u64, load: u64) -> Result<Vec<Decision>, String> {
        self.world.now = UnixMs(BEGIN.0 + self.ahead_ms + 1_000 * (second - 1));
        let launches = self.world.pass(&mut self.elasticity);
        let now = self.world.now;
        for has_succeeded in launches {
            match has_succeeded {
                true => self.laws.launch_succeeded(),
                false => self.laws.launch_failed(now),
            }
        }
        let samples = self.world.samples(load);
        self.change_leader(&samples)?;
        let decisions = self.elasticity.decide(now, &samples);
        let running = self.world.hosts.len() as u32;
        let ordered = running - self.world.count(Standing::Draining) as u32;
        let minimum = if self.ahead_ms == 0 {
            self.minimum(second)
        } else {
            self.rules.min
        };
        let called = self.laws.check(
            &self.rules,
            now,
            &samples,
            &decisions,
            (running, ordered),
            minimum,
        );
        self.record(second, load, &decisions);
        called.map_err(|law| self.fault(second, &law))?;
        self.world.act(&decisions);
        Ok(decisions)
    }

    /// Now and then another leader takes over, and the order of samples is another one.
    fn change_leader(&mut self, samples: &[HostSample]) -> Result<(), String> {
        if !self.numbers.one_in(8) {
            return Ok(());
        }
        let json = serde_json::to_string(self.elasticity.state()).map_err(|e| e.to_string())?;
        let state: State = serde_json::from_str(&json).map_err(|e| e.to_string())?;
        let mut next = Elasticity::resume(self.rules.clone(), state);
        let mut reversed = samples.to_vec();
        reversed.reverse();
        let now = self.world.now;
        let explained = self.elasticity.explain(now, samples);
        let one = self.elasticity.clone().decide(now, samples);
        let other = next.clone().decide(now, &reversed);
        if one != other {
            return Err(format!(
                "another leader decides {other:?}, this one {one:?}"
            ));
        }
        if explained.decisions != one || explained.to_string().lines().count() < 3 {
            return Err(format!(
                "the explanation is of other decisions: {explained}"
            ));
        }
        std::mem::swap(&mut self.elasticity, &mut next);
        Ok(())
    }

    fn record(&mut self, second: u64, load: u64, decisions: &[Decision]) {
        let serving = self.world.count(Standing::Serving);
        for decision in decisions.iter().filter(|one| one.action != Action::Hold) {
            let (action, reason) = (&decision.action, &decision.reason);
            self.trace.push(format!(
                "{second:5} s, {load} packets/s, {serving} serve: {action}: {reason}"
            ));
        }
    }

    fn fault(&self, second: u64, law: &str) -> String {
        let from = self.trace.len().saturating_sub(12);
        let trace = self.trace[from..].join("\n");
        format!(
            "seed {}, second {second}, {:?}: {law}\n{trace}\n{}",
            self.seed,
            self.shape,
            serde_json::to_string(&self.rules).unwrap_or_default()
        )
    }

    /// Faults and a load that changes, then rest.
    fn run(mut self) -> Result<Outcome, String> {
        let leaps = self.numbers.one_in(6);
        for second in 1..=ROUGH_S {
            if leaps && second == 250 {
                // To another day of the week.
                let days = 7 * self.numbers.below(50) + self.numbers.between(1, 6);
                self.ahead_ms = 86_400_000 * days;
                self.laws.clock_leapt();
            }
            if leaps && second == 300 {
                self.ahead_ms = 0;
                self.world.now = UnixMs(BEGIN.0 + 1_000 * second);
                self.laws.clock_leapt();
                self.land();
            }
            let load = self.load_at(second);
            self.second(second, load)?;
        }
        self.world.faults = Faults::default();
        let mut last = Vec::new();
        let (mut changes, mut changed) = (0, ROUGH_S);
        let load = self.load;
        let mut end = ROUGH_S;
        while end - changed < REST_S {
            end += 1;
            last = self.second(end, load)?;
            let after = self.laws.changes + self.laws.moves;
            if after != changes
                || self
                    .world
                    .hosts
                    .iter()
                    .any(|host| host.standing != Standing::Serving)
            {
                changed = end;
            }
            changes = after;
            if end > ROUGH_S + CALM_S {
                return Err(self.fault(end, "does not come to rest"));
            }
        }
        let elephants = self
            .at_rest(load, &last)
            .map_err(|law| self.fault(end, &law))?;
        Ok(Outcome {
            changes: self.laws.changes,
            moves: self.laws.moves,
            hosts_at_rest: self.world.hosts.len(),
            elephants,
        })
    }

    /// The clock went back: what was to happen at a later time happens now.
    fn land(&mut self) {
        let now = self.world.now;
        self.world
            .hosts
            .retain(|host| host.standing == Standing::Serving);
        self.world.clock_went_back(now);
        self.elasticity.launch_succeeded();
        self.laws.launch_succeeded();
    }

    /// The end of a run without faults, at a constant load.
    fn at_rest(&mut self, load: u64, last: &[Decision]) -> Result<u64, String> {
        let rules = self.rules.clone();
        let hosts = self.world.hosts.len() as u32;
        let serving = self.world.count(Standing::Serving) as u32;
        if hosts != serving || !(rules.min..=rules.max).contains(&serving) {
            return Err(format!("{serving} of {hosts} hosts serve"));
        }
        let samples = self.world.samples(load);
        let mean = |metric| {
            let sum: u64 = samples.iter().filter_map(|one| one.figure(metric)).sum();
            (sum, sum / u64::from(serving))
        };
        let mut could_leave = serving > rules.min && serving > 1;
        for (metric, thresholds) in &rules.thresholds {
            let (sum, mean) = mean(*metric);
            let hosts = samples.iter();
            let above = hosts.filter(|one| one.figure(*metric) > Some(thresholds.out));
            let is_above = match metric.is_shared() {
                true => mean > thresholds.out,
                false => 2 * above.count() > samples.len(),
            };
            if is_above && serving < rules.max {
                return Err(format!(
                    "{metric} rests at {mean}, above {}",
                    thresholds.out
                ));
            }
            let ceiling = rules.ceiling(*thresholds);
            let fits = metric.is_shared() && sum.div_ceil(u64::from(serving.max(2)) - 1) <= ceiling;
            could_leave &= mean + 1 < thresholds.within && fits;
        }
        if could_leave {
            return Err(format!("{serving} hosts rest, and fewer would do"));
        }
        self.evenness(&rules, load, last)
    }

    /// No host is above 1.2 of the mean, or an elephant is reported.
    fn evenness(&self, rules: &Rules, load: u64, last: &[Decision]) -> Result<u64, String> {
        let loads = self.world.host_loads(load);
        let mean = load / loads.len() as u64;
        let Some(rules) = rules.hot_spot.filter(|_| mean > 2_000) else {
            return Ok(0);
        };
        let worst = loads.iter().copied().max().unwrap_or(0);
        let largest = self.world.bucket_loads(load).into_iter().max().unwrap_or(0);
        let limit = mean * u64::from(rules.factor_permille) / 1_000;
        let is_reported = |one: &Decision| {
            matches!(&one.reason, Reason::Held { obstacle: Obstacle::Unsplittable { packets_per_second, .. }, .. }
                if *packets_per_second == largest)
        };
        if largest > limit + mean / 100 {
            return match last.iter().any(is_reported) {
                true => Ok(1),
                false => Err(format!(
                    "a bucket of {largest} at a mean of {mean} is not reported: {last:?}"
                )),
            };
        }
        // The largest buckets are no elephants: the hosts are within the factor, and rounding.
        match worst <= limit + mean / 100 || largest * 5 > mean {
            true => Ok(0),
            false => Err(format!(
                "a host rests at {worst}, and {mean} is the mean: {last:?}"
            )),
        }
    }
}

/// Weights of buckets: even, uneven, or with an elephant.
fn weights(numbers: &mut Numbers) -> Vec<u64> {
    let count = numbers.between(16, 128);
    let kind = numbers.below(4);
    let mut weights: Vec<u64> = (0..count)
        .map(|bucket| match kind {
            0 => 100,
            1 => numbers.between(1, 1_000),
            2 => 10_000 / (bucket + 1),
            _ => numbers.between(80, 120),
        })
        .collect();
    if kind == 3 {
        let sum: u64 = weights.iter().sum();
        weights[0] = sum * numbers.between(1, 3);
    }
    weights
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Result<Outcome, String> {
    Run::new(seed).run()
}

/// Runs seeds, none of which may break a law.
fn run_all(seeds: Range<u64>) {
    let mut sum = Outcome::default();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let outcome = run(seed).unwrap_or_else(|fault| panic!("{fault}"));
        sum.changes += outcome.changes;
        sum.moves += outcome.moves;
        sum.hosts_at_rest += outcome.hosts_at_rest;
        sum.elephants += outcome.elephants;
    }
    println!("{count} seeds: {sum:?}");
    // A test in which nothing happens shows nothing.
    assert!(sum.changes > 4 * count && sum.moves > count && sum.elephants > count / 50);
}

#[test]
fn whatever_the_load_does_laws_are_kept_and_a_constant_load_comes_to_rest() {
    run_all(0..SEEDS);
}

/// The same with other seeds, at the same time.
#[test]
fn laws_are_kept_with_other_seeds_too() {
    run_all(SEEDS..2 * SEEDS);
}
