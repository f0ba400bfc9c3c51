//! Many seeds, on several threads, and their sum.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::branches;
use crate::healing::LOOK;
use crate::report::{Failure, Report};
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::world::{FAULTS_LEAST, KINDS_LEAST, OPERATIONS_LEAST, World};

/// How seeds are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads. Sane: the machine's cores.
    pub threads: usize,
    /// Stop at the first seed that fails.
    pub stop_early: bool,
    /// Report progress on standard error.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 2,
            stop_early: false,
            progress: false,
        }
    }
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSeed {
    /// Which.
    pub seed: u64,
    /// Why.
    pub failure: Failure,
    /// The command's word for one such seed.
    word: &'static str,
}

impl FailedSeed {
    /// The one command that replays it.
    pub fn command(&self) -> String {
        replay_command(self.word, self.seed)
    }
}

/// For people: what was not as it should be, and how to see it again.
impl core::fmt::Display for FailedSeed {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Failure { check, detail, .. } = &self.failure;
        let (seed, command) = (self.seed, self.command());
        write!(formatter, "seed {seed}: {check}: {detail}\n  {command}")
    }
}

fn replay_command(word: &str, seed: u64) -> String {
    format!("cargo run --profile sim -p asterism-sim -- {word} {seed} --trace")
}

/// The sum over seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seeds that passed.
    pub passed: u64,
    /// Seeds that failed, in order.
    pub failed: Vec<FailedSeed>,
    /// Effective faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The fewest effective faults of a seed.
    pub faults_least: u64,
    /// The fewest kinds of effective faults of a seed.
    pub kinds_least: u64,
    /// Commands that acted.
    pub operations: u64,
    /// The fewest that acted on one member of a seed.
    pub operations_least: u64,
    /// Times that each branch was taken.
    pub branches: BTreeMap<&'static str, u64>,
    /// Hash over the trace hashes of all seeds, whatever the order in which they ran.
    pub trace: u64,
    /// Seeds whose instances had all within the windows and round trips that [`Report::windows`] counts.
    pub equal_within_windows: u64,
    /// The longest heal phase.
    pub healed_longest: Duration,
    /// The greatest share of its bound that a heal phase took, in thousandths.
    pub healed_share_most_permille: u64,
    /// Claims of protocol cores that were judged.
    pub judged: u64,
    /// Steps taken.
    pub steps: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Wall time, in seconds: left at nothing by [`run_seeds`], which reads no clock.
    pub seconds: f64,
}

impl Summary {
    fn add(&mut self, seed: u64, report: &Report) {
        let faults: u64 = report.faults.values().sum();
        let kinds = report.faults.len() as u64;
        let first = self.passed == 0;
        let least = |known: u64, new: u64| if first { new } else { known.min(new) };
        self.faults_least = least(self.faults_least, faults);
        self.kinds_least = least(self.kinds_least, kinds);
        self.operations_least = least(self.operations_least, report.operations_least);
        self.passed += 1;
        for (kind, count) in &report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (branch, count) in &report.branches {
            *self.branches.entry(branch).or_default() += count;
        }
        self.operations += report.operations;
        self.trace = self
            .trace
            .wrapping_add(asterism_state::hash::words(seed, report.trace, 1));
        self.equal_within_windows += u64::from(report.equal <= report.windows + LOOK);
        self.healed_longest = self.healed_longest.max(report.healed);
        let share = report.healed.as_micros() * 1_000 / report.bound.as_micros().max(1);
        self.healed_share_most_permille = self.healed_share_most_permille.max(share as u64);
        self.judged += report.judged;
        self.steps += report.steps;
        self.virtual_time += report.virtual_time;
    }

    fn join(&mut self, other: Summary) {
        if other.passed > 0 {
            let least = |left: u64, right: u64| {
                if self.passed == 0 {
                    right
                } else {
                    left.min(right)
                }
            };
            self.faults_least = least(self.faults_least, other.faults_least);
            self.kinds_least = least(self.kinds_least, other.kinds_least);
            self.operations_least = least(self.operations_least, other.operations_least);
        }
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.failed.sort_by_key(|failed| failed.seed);
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (branch, count) in other.branches {
            *self.branches.entry(branch).or_default() += count;
        }
        self.operations += other.operations;
        self.trace = self.trace.wrapping_add(other.trace);
        self.equal_within_windows += other.equal_within_windows;
        self.healed_longest = self.healed_longest.max(other.healed_longest);
        self.healed_share_most_permille = self
            .healed_share_most_permille
            .max(other.healed_share_most_permille);
        self.judged += other.judged;
        self.steps += other.steps;
        self.virtual_time += other.virtual_time;
    }
}

/// Runs one seed. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| {
        // What another run took on this thread.
        let _ = branches::take_marked();
        let mut report = World::new(Scenario::from_seed(seed), trace).run()?;
        report.branches.extend(branches::take_marked());
        let faults: u64 = report.faults.values().sum();
        if faults < FAULTS_LEAST
            || report.faults.len() < KINDS_LEAST
            || report.operations_least < OPERATIONS_LEAST
        {
            return Err(Failure::new(
                "enough happens",
                format!(
                    "{} operations, {:?}",
                    report.operations_least, report.faults
                ),
            ));
        }
        Ok(report)
    })
}

/// What a run gives; a panic is a failure.
pub(crate) fn unless_it_panics(
    run: impl FnOnce() -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failure::new("no panic", text.unwrap_or_default()))
    })
}

/// Runs all seeds of a range and adds them up. Deterministic but for which failed seeds are found first
/// when it stops early.
pub fn run_seeds(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "seed", run_seed)
}

/// The same of seeds of any kind; `word` is what the command calls one of them.
pub(crate) fn run_many(
    range: Range<u64>,
    options: Options,
    word: &'static str,
    run: fn(u64, &mut Trace) -> Result<Report, Failure>,
) -> Summary {
    // Some three hundred tables a seed, of which a page or two each are used.
    let before = asterism_state::memory::set_sparing(true);
    let next = AtomicU64::new(range.start);
    let stop = AtomicBool::new(false);
    let end = range.end;
    let work = || {
        let mut summary = Summary::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            if options.progress && seed.is_multiple_of(500) && seed > range.start {
                eprintln!("seed {seed} of {end}");
            }
            match run(seed, &mut Trace::new()) {
                Ok(report) => summary.add(seed, &report),
                Err(failure) => {
                    if options.progress {
                        eprintln!(
                            "seed {seed}: {}: {}\n  replay: {}",
                            failure.check,
                            failure.detail,
                            replay_command(word, seed)
                        );
                    }
                    summary.failed.push(FailedSeed {
                        seed,
                        failure,
                        word,
                    });
                    stop.fetch_or(options.stop_early, Ordering::Relaxed);
                }
            }
        }
        summary
    };
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..options.threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        total.join(work());
        for thread in threads {
            match thread.join() {
                Ok(summary) => total.join(summary),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    asterism_state::memory::set_sparing(before);
    total
}
