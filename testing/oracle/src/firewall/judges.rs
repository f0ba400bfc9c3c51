//! Linux and our firewall side by side.

use std::collections::BTreeMap;

use asterism_function::testkit::Testkit;
use asterism_function::{PortNumber, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

use super::linux::Linux;
use super::rules::{self, Rule};
use super::{Direction, Policy, Step};

/// A packet on which the two disagree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its place among the packets, from 1.
    pub place: usize,
    /// What it is, and who said what.
    pub sentence: String,
}

/// What a comparison came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Packets judged by both.
    pub judged: u64,
    /// Of them, let through by both.
    pub passed: u64,
    /// Datagrams in fragments, which are judged as a whole.
    pub datagrams: u64,
    /// Dropped by both.
    pub dropped: u64,
    /// Differences that a rule explains.
    pub explained: BTreeMap<Rule, u64>,
    /// Those that none does.
    pub differences: Vec<Difference>,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.judged += other.judged;
        self.passed += other.passed;
        self.dropped += other.dropped;
        self.datagrams += other.datagrams;
        for (rule, count) in &other.explained {
            *self.explained.entry(*rule).or_default() += count;
        }
        self.differences.extend(other.differences.iter().cloned());
    }
}

/// Both judges.
#[derive(Debug)]
pub struct Judges {
    linux: Linux,
}

impl Judges {
    /// Starts Linux's.
    ///
    /// # Errors
    /// With a sentence when the machine does not allow it.
    pub fn start() -> Result<Self, String> {
        Ok(Self {
            linux: Linux::start()?,
        })
    }

    /// Has both judge the same packets in the same order, from nothing.
    ///
    /// # Errors
    /// With a sentence when Linux could not be asked.
    pub fn compare(&mut self, policy: &Policy, steps: &[Step]) -> Result<Tally, String> {
        self.linux.begin(policy)?;
        let rules = read_rules(policy.rules).map_err(|mistakes| format!("{mistakes:?}"))?;
        let mut ours = Testkit::new(Firewall::new(FirewallConfig {
            rules,
            picks_up: policy.picks_up,
            settle_us: 0,
            flows_max: 1 << 18,
            half_open_per_source: u32::MAX,
            half_open_per_destination: u32::MAX,
            half_open_total: u32::MAX,
            ..FirewallConfig::default()
        }));
        let mut tally = Tally::default();
        let mut story = rules::Story::default();
        for (place, step) in steps.iter().enumerate() {
            let port = match step.way {
                Direction::Out => PortNumber(0),
                Direction::In => PortNumber(1),
            };
            let left = self.linux.send(step.way, &step.frame)?;
            let linux = left.contains(&step.frame);
            let verdict = ours.packet(port, &step.frame).verdict;
            let passes = matches!(verdict, Verdict::Forward(_));
            if story.note(step, linux, passes, &left) {
                continue;
            }
            tally.judged += 1;
            if linux == passes {
                *(if linux {
                    &mut tally.passed
                } else {
                    &mut tally.dropped
                }) += 1;
                continue;
            }
            match story.explain(step, linux, verdict) {
                Some(rule) => *tally.explained.entry(rule).or_default() += 1,
                None => tally.differences.push(Difference {
                    place: place + 1,
                    sentence: format!(
                        "{} {:?}: Linux {} it, ours says {verdict:?}",
                        rules::describe(&step.frame),
                        step.way,
                        if linux { "passes" } else { "drops" },
                    ),
                }),
            }
        }
        let datagrams = story.datagrams();
        tally.datagrams += datagrams.alike + datagrams.explained;
        tally.datagrams += datagrams.different.len() as u64;
        if datagrams.explained > 0 {
            *tally.explained.entry(Rule::Fragments).or_default() += datagrams.explained;
        }
        for sentence in datagrams.different {
            let place = steps.len();
            tally.differences.push(Difference { place, sentence });
        }
        Ok(tally)
    }
}
