//! `asterism demo`: three NAT hosts that share their state over an emulated WAN, an IDPS in front of them, and conversations
//! whose packets go through different hosts. Needs only this binary; ends within half a minute.
//!
//! `traffic.rs` makes the conversations, `cluster.rs` runs them, `view.rs` shows their progress, `report.rs` checks and shows
//! the result. Time is virtual: the same seed gives the same run.

mod cluster;
mod error;
mod report;
mod traffic;
pub mod view;

use std::time::Duration;

pub use error::DemoError;
pub use report::{Absent, DEMO, DemoReport, HostRow, IdpsRow, RunRow};

use asterism_output::End;
use asterism_output::Output;
use view::{Lines, Live, NoView, View};

/// Replies wait at most so long for their binding: the delay twice.
const WAIT_DELAYS: u32 = 2;
/// On a terminal a run goes by this many times its clock.
const PACE: f64 = 2.0;

/// What the demo runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Conversations of each run.
    pub conversations: usize,
    /// Over how long they begin.
    pub span: Duration,
    /// The delay between hosts, one way.
    pub wan: Duration,
    /// Whether hosts share their state. Without it the demo must fail.
    pub replication: bool,
    /// Makes the run what it is.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            conversations: 3_000,
            span: Duration::from_secs(8),
            wan: Duration::from_millis(40),
            replication: true,
            seed: 1,
        }
    }
}

/// The arguments of `asterism demo`.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Whether the hosts share their state; with `off` the demo fails, as it should
    #[arg(long, value_enum, default_value_t = Replication::On)]
    pub replication: Replication,
    /// Conversations of each of the two runs
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    pub conversations: u32,
    /// Repeat the run of this number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Do not slow the run down to be watched on a terminal
    #[arg(long)]
    pub fast: bool,
}

/// Whether hosts share their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Replication {
    /// They do
    On,
    /// Each host is alone
    Off,
}

/// `asterism demo`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let plan = Plan {
        conversations: arguments.conversations as usize,
        replication: arguments.replication == Replication::On,
        seed: arguments.seed,
        ..Plan::default()
    };
    output.say(&format!(
        "Three NAT hosts, {} ms apart one way, and an IDPS, in this process. {} conversations;\npackets of each go through all three hosts in turn. Run twice: a reply that reaches a host before\nits binding does is dropped, or waits.\n\n",
        plan.wan.as_millis(),
        plan.conversations
    ));

    let mut live;
    let mut lines;
    let view: &mut dyn View = if arguments.fast || !output.coloured() {
        lines = Lines::new(output.progress());
        &mut lines
    } else {
        live = Live::new(output.progress(), PACE);
        &mut live
    };
    let report = match run(&plan, view) {
        Ok(report) => report,
        Err(error) => return output.fail(End::File, &error),
    };
    output.say("\n");
    if output.json() {
        output.document(DEMO, &report);
    } else {
        output.text(&report.text());
    }
    output.end(if report.holds {
        End::Done
    } else {
        End::DoesNotHold
    })
}

/// Runs the demo under both settings of `absent`.
///
/// # Errors
/// See [`DemoError`].
pub fn run(plan: &Plan, view: &mut dyn View) -> Result<DemoReport, DemoError> {
    let conversations = traffic::conversations(plan.conversations, plan.span, plan.seed)?;
    let scan = traffic::scans()?;
    let mut runs = Vec::new();
    for absent in [Absent::Drop, Absent::Wait(plan.wan * WAIT_DELAYS)] {
        runs.push(cluster::Run::start(plan, absent, &conversations, &scan)?.finish(view));
    }
    Ok(DemoReport::new(plan.replication, plan.wan, runs))
}

/// Runs the demo unseen: for tests.
///
/// # Errors
/// As [`run`].
pub fn run_unseen(plan: &Plan) -> Result<DemoReport, DemoError> {
    run(plan, &mut NoView)
}
