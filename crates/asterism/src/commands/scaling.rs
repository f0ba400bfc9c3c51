//! Commands about the number of hosts and what each carries, by the HTTP API of an orchestrator: `scale`, `move`, `plan`.

use asterism_api::data::{BucketRange, Move, MoveWhat, Plan, Scale};
use asterism_output::{End, Output, Schema};
use clap::Args;

use super::cluster::{ClusterError, ORDER, Where, client, order_text};

/// The arguments of `asterism scale`.
#[derive(Args, Clone, Debug)]
pub struct ScaleArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// How many hosts there shall be, within the policy's bounds
    pub hosts: u32,
    /// Why, for the events
    #[arg(long)]
    pub reason: Option<String>,
}

/// The arguments of `asterism move`.
#[derive(Args, Clone, Debug)]
pub struct MoveArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// The bucket, or several as in 0..99
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = buckets,
        required_unless_present = "flow",
        conflicts_with = "flow"
    )]
    pub bucket: Option<BucketRange>,
    /// The flow, as in "tcp 192.0.2.1:40000 198.51.100.7:443"; it stays where it goes until it idles for ten minutes
    #[arg(long, value_name = "FLOW")]
    pub flow: Option<String>,
    /// The host that gets it
    #[arg(long, value_name = "HOST")]
    pub to: String,
    /// Why, for the events
    #[arg(long)]
    pub reason: Option<String>,
}

/// The arguments of `asterism plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
}

/// The schema of a plan.
pub const PLAN: Schema = Schema {
    name: "asterism.plan",
    version: 1,
};

/// `asterism scale`.
pub fn scale(arguments: &ScaleArguments, output: &mut Output<'_>) -> End {
    let order = Scale {
        to: arguments.hosts,
        reason: arguments.reason.clone(),
    };
    let give = || Ok(client(&arguments.at)?.scale(&order)?);
    ordered(give(), output)
}

/// `asterism move`.
pub fn move_to(arguments: &MoveArguments, output: &mut Output<'_>) -> End {
    let what = match (&arguments.bucket, &arguments.flow) {
        (Some(one), _) if one.first == one.last => MoveWhat::Bucket(one.first),
        (Some(range), _) => MoveWhat::Buckets(*range),
        (None, flow) => MoveWhat::Flow(flow.clone().unwrap_or_default()),
    };
    let order = Move {
        what,
        to: arguments.to.clone(),
        reason: arguments.reason.clone(),
    };
    let give = || Ok(client(&arguments.at)?.move_to(&order)?);
    ordered(give(), output)
}

/// A bucket, or FIRST..LAST.
fn buckets(text: &str) -> Result<BucketRange, &'static str> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let range = first.parse().and_then(|first| {
        let last = last.parse()?;
        Ok(BucketRange { first, last })
    });
    range.map_err(|_| "write the number of a bucket, or two as in 0..99")
}

fn ordered(
    answer: Result<asterism_api::data::OrderAccepted, ClusterError>,
    output: &mut Output<'_>,
) -> End {
    match answer {
        Ok(accepted) if output.json() => output.document(ORDER, &accepted),
        Ok(accepted) => output.text(&order_text(&accepted)),
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

/// `asterism plan`.
pub fn plan(arguments: &PlanArguments, output: &mut Output<'_>) -> End {
    let read = || -> Result<Plan, ClusterError> { Ok(client(&arguments.at)?.plan()?) };
    match read() {
        Ok(plan) if output.json() => output.document(PLAN, &plan),
        Ok(plan) => output.text(&plan_text(&plan)),
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

fn plan_text(plan: &Plan) -> String {
    let Plan {
        hosts,
        minimum,
        maximum,
        ..
    } = plan;
    let mut text = format!("{hosts} hosts serve or start; {minimum} to {maximum} are allowed");
    if !plan.is_carried_out {
        text += "; decisions are not carried out";
    }
    text += "\n";
    for action in &plan.actions {
        text += &format!("now: {}\n     {}\n", action.sentence, action.reason);
    }
    for wait in &plan.waits {
        let seconds = wait.remaining_ms.div_ceil(1_000);
        text += &format!("in {seconds} s: {}\n", wait.sentence);
    }
    for threshold in &plan.thresholds {
        text += &format!("{}\n", threshold.sentence);
    }
    text
}
