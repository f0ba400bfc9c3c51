//! One seed of a function, and many.

use std::ops::Range;

use super::asked::Asked;
use super::caches::Cached;
use super::carrier::Carrier;
use super::chained::Chained;
use super::counts::{Counted, Monitored, Passed};
use super::detectors::{Scanned, Streamed};
use super::drive::run;
use super::limits::Limited;
use super::plan::Plan;
use super::services::{Balanced, Translated, Walled};
use super::talks::Talks;
use super::watched::Watched;
use crate::report::{Failure, Report};
use crate::runs::{Options, Summary, run_many, unless_it_panics};
use crate::trace::Trace;

/// Which function a seed runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// NAT.
    Nat,
    /// The firewall.
    Firewall,
    /// The balancer.
    Balancer,
    /// The limiter.
    Limiter,
    /// The monitor.
    Monitor,
    /// The port-scan detector.
    PortScan,
    /// The finder of signatures.
    Signature,
    /// Pass-through.
    PassThrough,
    /// The balancer, reported by flows of a backend that stops to answer.
    Watched,
    /// NAT, asked for ports by hosts.
    Asked,
    /// NAT, with quotas, blocks, pools and a log.
    Carrier,
    /// A firewall, a NAT, a port-scan detector and a monitor in a row.
    Chained,
    /// The digests of web caches.
    Caches,
}

/// All functions: seed `n` runs the one at `n` modulo their number. Every other one of the balancer's is [`Subject::Watched`], every
/// other one of pass-through's [`Subject::Chained`], and one of four [`Subject::Caches`]; of four of the NAT's one is [`Subject::Asked`]
/// and one [`Subject::Carrier`].
pub const FUNCTIONS: [Subject; 8] = [
    Subject::Nat,
    Subject::Firewall,
    Subject::Balancer,
    Subject::Limiter,
    Subject::Monitor,
    Subject::PortScan,
    Subject::Signature,
    Subject::PassThrough,
];

impl Subject {
    /// Whether it is judged by conversations through the hosts: then a connection of which a packet left must survive where packets are
    /// held back.
    #[must_use]
    pub fn has_talks(self) -> bool {
        matches!(self, Self::Nat | Self::Firewall | Self::Balancer)
    }

    /// The function of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let count = FUNCTIONS.len() as u64;
        match (FUNCTIONS[(seed % count) as usize], (seed / count) % 4) {
            (Self::Balancer, 1 | 3) => Self::Watched,
            (Self::Nat, 1) => Self::Asked,
            (Self::Nat, 3) => Self::Carrier,
            (Self::PassThrough, 1 | 3) => Self::Chained,
            (Self::PassThrough, 2) => Self::Caches,
            (subject, _) => subject,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nat => "nat",
            Self::Firewall => "firewall",
            Self::Balancer => "balancer",
            Self::Limiter => "limiter",
            Self::Monitor => "monitor",
            Self::PortScan => "port-scan",
            Self::Signature => "signature",
            Self::PassThrough => "pass-through",
            Self::Watched => "backends watched",
            Self::Asked => "nat asked for ports",
            Self::Carrier => "nat of a carrier",
            Self::Chained => "chain",
            Self::Caches => "web-cache digests",
        }
    }
}

/// What a seed decides of the run of its function.
fn plan_of(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    plan.copies = plan.copies.filter(|_| Subject::of(seed).has_talks());
    plan
}

/// The `number`th seed that holds packets back.
#[must_use]
pub fn nth_holding_seed(number: u64) -> u64 {
    let mut seeds = (0..).filter(|&seed| plan_of(seed).copies.is_some());
    seeds.nth(number as usize).unwrap_or_default()
}

/// Runs one seed of a function. A panic of the product is a failure like any other.
///
/// # Errors
/// The first check that did not hold.
pub fn run_functions_seed(seed: u64, trace: &mut Trace) -> Result<Report, Failure> {
    unless_it_panics(|| {
        let subject = Subject::of(seed);
        let plan = &plan_of(seed);
        let mut report = match subject {
            Subject::Nat => run(plan, &mut Talks::new(Translated::new(plan), plan), trace),
            Subject::Firewall => run(plan, &mut Talks::new(Walled, plan), trace),
            Subject::Balancer => run(plan, &mut Talks::new(Balanced::new(plan), plan), trace),
            Subject::Limiter => run(plan, &mut Limited::new(plan), trace),
            Subject::Monitor => run(plan, &mut Counted::<Monitored>::new(plan), trace),
            Subject::PortScan => run(plan, &mut Scanned::new(plan), trace),
            Subject::Signature => run(plan, &mut Streamed::new(plan), trace),
            Subject::PassThrough => run(plan, &mut Counted::<Passed>::new(plan), trace),
            Subject::Watched => run(plan, &mut Watched::new(plan), trace),
            Subject::Asked => run(plan, &mut Asked::new(plan), trace),
            Subject::Carrier => run(plan, &mut Carrier::new(plan), trace),
            Subject::Chained => run(plan, &mut Chained::new(plan), trace),
            Subject::Caches => run(plan, &mut Cached::new(plan), trace),
        }?;
        report.branches.insert(subject.name(), 1);
        if plan.copies.is_some() {
            report.branches.insert("runs with held packets", 1);
        }
        Ok(report)
    })
}

/// Runs all seeds of a range and adds them up, as [`run_seeds`](crate::run_seeds) does.
#[must_use]
pub fn run_functions(range: Range<u64>, options: Options) -> Summary {
    run_many(range, options, "function", run_functions_seed)
}
