//! Over any order of reports and lists of members, totals only grow, are never above the truth, and reach it.

use std::collections::BTreeMap;

use asterism_elasticity::usage::{
    Counts, Meter, Report, SETTLED_AFTER_MS, Taken, Usage, UsageState,
};

use crate::elasticity::world::Numbers;

/// Seeds of the test.
const SEEDS: u64 = 500;
/// Steps of a run; a step is a second or, now and then, hours.
const STEPS: u64 = 400;
const TENANTS: [&str; 3] = ["blue", "green", "red"];
/// Milliseconds for which reports are at most on their way, well below the time for which closed accounts take them.
const LATE_MS_MAX: u64 = SETTLED_AFTER_MS / 4;

type Totals = BTreeMap<String, Usage>;

/// A host and its counts since it began.
#[derive(Clone, Debug)]
struct Host {
    incarnation: u64,
    counts: BTreeMap<String, Counts>,
}

struct Run {
    seed: u64,
    numbers: Numbers,
    now_ms: u64,
    epoch: u64,
    hosts: BTreeMap<String, Host>,
    /// Lists of members that leaders gave, to be given again by one that was paused.
    lists: Vec<(u64, BTreeMap<String, u64>)>,
    /// Reports on their way, with the moment at which they arrive.
    under_way: Vec<(u64, Report)>,
    /// Reports that arrived long ago, to arrive once more.
    recorded: Vec<Report>,
    truth: Totals,
    meter: Meter,
    /// What the last leader stored.
    stored: UsageState,
    exported: Totals,
    next_incarnation: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut run = Run {
            seed,
            numbers: Numbers(seed),
            now_ms: 1_800_000_000_000,
            epoch: 0,
            hosts: BTreeMap::new(),
            lists: Vec::new(),
            under_way: Vec::new(),
            recorded: Vec::new(),
            truth: Totals::new(),
            meter: Meter::default(),
            stored: UsageState::default(),
            exported: Totals::new(),
            next_incarnation: 0,
        };
        for name in ["a", "b", "c"] {
            run.begin(name);
        }
        run.members();
        run
    }

    fn begin(&mut self, name: &str) {
        self.next_incarnation += 1;
        let host = Host {
            incarnation: self.next_incarnation,
            counts: BTreeMap::new(),
        };
        self.hosts.insert(name.to_owned(), host);
    }

    /// A new epoch names the members; its leader stores before it goes on.
    fn members(&mut self) {
        self.epoch += 1;
        let members: BTreeMap<String, u64> = self
            .hosts
            .iter()
            .map(|(name, host)| (name.clone(), host.incarnation))
            .collect();
        let taken = self.meter.members(self.epoch, self.now_ms, &members);
        assert_eq!(taken, Ok(()));
        self.lists.push((self.epoch, members));
        self.stored = self.meter.state().clone();
    }

    /// Hosts count.
    fn count(&mut self) {
        for host in self.hosts.values_mut() {
            let tenant = TENANTS[self.numbers.below(3) as usize];
            let packets = self.numbers.below(1_000);
            let more = Counts {
                packets,
                bytes: packets * self.numbers.between(64, 1_500),
                flows: packets / 10,
                instance_ms: self.numbers.below(2_000),
            };
            let counts = host.counts.entry(tenant.to_owned()).or_default();
            counts.packets += more.packets;
            counts.bytes += more.bytes;
            counts.flows += more.flows;
            counts.instance_ms += more.instance_ms;
            let truth = self.truth.entry(tenant.to_owned()).or_default();
            truth.packets += u128::from(more.packets);
            truth.bytes += u128::from(more.bytes);
            truth.flows += u128::from(more.flows);
            truth.instance_ms += u128::from(more.instance_ms);
        }
    }

    /// A host's report is on its way, once or twice, for some time.
    fn send(&mut self, name: &str) {
        let Some(host) = self.hosts.get(name) else {
            return;
        };
        let report = Report {
            host: name.to_owned(),
            incarnation: host.incarnation,
            tenants: host.counts.clone(),
        };
        for _ in 0..self.numbers.between(1, 2) {
            let late = match self.numbers.one_in(5) {
                true => self.numbers.below(LATE_MS_MAX),
                false => self.numbers.below(3_000),
            };
            self.under_way.push((self.now_ms + late, report.clone()));
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        let (arrived, later) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|(at, _)| *at <= self.now_ms);
        self.under_way = later;
        for (_, report) in arrived {
            let taken = self.meter.report(self.now_ms, &report);
            let taken = taken.map_err(|error| self.fault(&error.to_string()))?;
            if taken == Taken::Closed {
                self.stored = self.meter.state().clone();
            }
            self.recorded.push(report);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_ms += match self.numbers.one_in(40) {
            true => self.numbers.below(SETTLED_AFTER_MS / 2),
            false => 1_000,
        };
        self.count();
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in &names {
            if self.numbers.one_in(3) {
                self.send(name);
            }
        }
        self.deliver()?;
        let name = ["a", "b", "c", "d"][self.numbers.below(4) as usize];
        match self.numbers.below(60) {
            // A restart, a departure, or a newcomer. The last report of the old incarnation is on its way.
            0 | 1 => {
                self.send(name);
                self.begin(name);
                self.members();
            }
            2 if self.hosts.len() > 1 => {
                self.send(name);
                self.hosts.remove(name);
                self.members();
            }
            // A paused leader wakes with an old list.
            3 => {
                let old = self.numbers.below(self.lists.len() as u64) as usize;
                let (epoch, members) = self.lists[old].clone();
                let taken = self.meter.members(epoch, self.now_ms, &members);
                if taken.is_ok() {
                    // It opened what was settled: the reports of that time come again.
                    self.replay();
                }
            }
            // Another leader continues with what was stored, which may lack the last reports.
            4 => self.meter = Meter::resume(self.decoded(&self.stored)),
            5 => self.stored = self.meter.state().clone(),
            6 => self.meter.settle(self.now_ms),
            // A recorded report arrives once more, perhaps after its account was settled.
            7 => self.replay(),
            _ => {}
        }
        self.check()
    }

    /// Reports of any time come once more.
    fn replay(&mut self) {
        for _ in 0..20 {
            if self.recorded.is_empty() {
                return;
            }
            let place = self.numbers.below(self.recorded.len() as u64) as usize;
            // Refused if its account was settled.
            let taken = self.meter.report(self.now_ms, &self.recorded[place]);
            if taken == Ok(Taken::Closed) {
                self.stored = self.meter.state().clone();
            }
        }
    }

    fn decoded(&self, state: &UsageState) -> UsageState {
        let json = serde_json::to_string(state).expect("a form in JSON");
        serde_json::from_str(&json).expect("what was written")
    }

    fn check(&mut self) -> Result<(), String> {
        let totals = self.meter.totals();
        for (tenant, usage) in &totals {
            let truth = self.truth.get(tenant).copied().unwrap_or_default();
            if usage.packets > truth.packets || usage.instance_ms > truth.instance_ms {
                return Err(self.fault(&format!("{tenant} is billed {usage:?} of {truth:?}")));
            }
        }
        // What a leader stored and exported is never taken back.
        let stored = Meter::resume(self.stored.clone()).totals();
        for (tenant, before) in &self.exported {
            let after = totals.get(tenant).copied().unwrap_or_default();
            if after.packets < before.packets || after.bytes < before.bytes {
                return Err(self.fault(&format!("{tenant} falls from {before:?} to {after:?}")));
            }
        }
        self.exported = stored;
        Ok(())
    }

    fn fault(&self, what: &str) -> String {
        format!("seed {}, epoch {}: {what}", self.seed, self.epoch)
    }

    fn run(mut self) -> Result<u64, String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        // All that is on its way arrives, and each host reports a last time.
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        names.iter().for_each(|name| self.send(name));
        self.now_ms += LATE_MS_MAX + 3_000;
        self.deliver()?;
        self.check()?;
        if self.meter.totals() != self.truth {
            let totals = self.meter.totals();
            return Err(self.fault(&format!("{totals:?} is not {:?}", self.truth)));
        }
        Ok(self.meter.state().refused)
    }
}

/// Runs one seed; the result is how many reports were refused.
pub(crate) fn run(seed: u64) -> Result<u64, String> {
    Run::new(seed).run()
}

#[test]
fn every_unit_is_metered_once_over_any_order_of_reports() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        refused += run(seed).unwrap_or_else(|fault| panic!("{fault}"));
    }
    println!("{SEEDS} seeds, {refused} reports of settled accounts refused");
    assert!(refused > SEEDS);
}
