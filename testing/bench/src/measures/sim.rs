//! `sim.seeds`, `sim.mutants`, `soak.operations`: the simulator's verdict on this build, the planted bugs that the simulator finds, and
//! operations that the soak delivers.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use asterism_sim::soak::{Soak, run_portion};
use asterism_sim::{Options, Summary, branches, run_seeds};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::wall_ns;

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "sim.seeds",
        make: seeds,
    },
    Measure {
        name: "sim.mutants",
        make: mutants,
    },
    Measure {
        name: "soak.operations",
        make: operations,
    },
];

/// Seeds of the long form, which is the run that the bar speaks of.
const SEEDS_FULL: u64 = 10_000;
/// Seeds that are run together, and then once more.
const SEEDS_TOGETHER: u64 = 20;
/// The short form begins no further seeds after so long.
const SHORT: Duration = Duration::from_secs(25);
/// Seeds that may be spent on a planted bug, in the short and in the long form.
const SEEDS_PER_MUTANT: [u64; 2] = [100, 2_000];
/// What the short form waits for the build with planted bugs, and then for its verdict.
const SHORT_CHILD: Duration = Duration::from_secs(40);
/// The same of the long form.
const FULL_CHILD: Duration = Duration::from_secs(4 * 3_600);

/// Operations that the long form of the soak delivers, which is the run that the bar is for. The short form runs one portion.
const OPERATIONS_FULL: u64 = 4_000_000_000;

/// Runs portions twice each, others at each call, and adds up the operations that were delivered.
fn operations(context: &Context) -> Result<Outcome, Failure> {
    let began_ns = wall_ns();
    let least = if context.full { OPERATIONS_FULL } else { 1 };
    let mut portion = began_ns;
    let mut total = Soak::default();
    while total.operations < least {
        let [soak, again] = [soaked(portion)?, soaked(portion)?];
        if soak != again {
            return Err(Failure::Unsound(format!(
                "two runs of portion {portion} differ"
            )));
        }
        total.add(portion, &soak);
        if context.full {
            context.say(&format!("{} operations", total.operations));
        }
        portion += 1;
    }
    let seconds = (wall_ns() - began_ns) as f64 / 1e9;
    Ok(Outcome::new(total.operations as f64, 2)
        .variant("datagrams-lost", total.lost as f64)
        .variant("per-second", 2.0 * total.operations as f64 / seconds))
}

fn soaked(portion: u64) -> Result<Soak, Failure> {
    run_portion(portion).map_err(|failure| {
        Failure::Unsound(format!(
            "portion {portion}: {}: {}; replay: cargo run --profile sim -p asterism-sim -- soak {portion}",
            failure.check, failure.detail
        ))
    })
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn seeds(context: &Context) -> Result<Outcome, Failure> {
    let options = Options {
        threads: threads(),
        stop_early: true,
        progress: false,
    };
    let began_ns = wall_ns();
    let goes_on = |done: u64| {
        if context.full {
            done < SEEDS_FULL
        } else {
            wall_ns() - began_ns < SHORT.as_nanos() as u64
        }
    };
    let mut parts: Vec<Summary> = Vec::new();
    let mut done = 0;
    while goes_on(done) {
        let range = done..done + SEEDS_TOGETHER;
        let summary = passed(run_seeds(range.clone(), options))?;
        let again = passed(run_seeds(range.clone(), options))?;
        if summary.trace != again.trace {
            return Err(Failure::Unsound(format!(
                "two runs of the seeds {range:?} took different ways"
            )));
        }
        parts.push(summary);
        done += SEEDS_TOGETHER;
        if done.is_multiple_of(500) {
            context.say(&format!("{done} seeds"));
        }
    }
    let sum = |figure: fn(&Summary) -> u64| parts.iter().map(figure).sum::<u64>() as f64;
    let least = |figure: fn(&Summary) -> u64| parts.iter().map(figure).min().unwrap_or(0) as f64;
    let mut taken = std::collections::BTreeMap::new();
    for (branch, count) in parts.iter().flat_map(|part| &part.branches) {
        *taken.entry(*branch).or_insert(0) += count;
    }
    let rare = branches::rare(&taken);
    if context.full && !rare.is_empty() {
        return Err(Failure::Unsound(format!(
            "branches of the protocol were hardly taken: {rare:?}"
        )));
    }
    Ok(Outcome::new(sum(|part| part.passed), 2)
        .variant("faults-least", least(|part| part.faults_least))
        .variant("fault-kinds-least", least(|part| part.kinds_least))
        .variant("operations-least", least(|part| part.operations_least))
        .variant("operations", sum(|part| part.operations))
        .variant("claims-judged", sum(|part| part.judged))
        .variant(
            "equal-within-windows",
            sum(|part| part.equal_within_windows) / sum(|part| part.passed),
        )
        .variant("branches", taken.len() as f64)
        .variant("branches-rare", rare.len() as f64)
        .variant(
            "seeds-per-second",
            2.0 * done as f64 * 1e9 / (wall_ns() - began_ns) as f64,
        ))
}

fn passed(summary: Summary) -> Result<Summary, Failure> {
    match summary.failed.first() {
        None => Ok(summary),
        Some(failed) => Err(Failure::Unsound(format!(
            "seed {} failed: {}: {}; replay: {}",
            failed.seed,
            failed.failure.check,
            failed.failure.detail,
            failed.command()
        ))),
    }
}

/// How this measure's own build is made, for those who want to make it beforehand.
const BUILD: &str = "RUSTFLAGS=\"--cfg asterism_mutants\" CARGO_TARGET_DIR=target/mutants cargo build --profile sim -p asterism-sim";

fn mutants(context: &Context) -> Result<Outcome, Failure> {
    let began_ns = wall_ns();
    let allowed = if context.full {
        FULL_CHILD
    } else {
        SHORT_CHILD
    };
    context.say("building with planted bugs");
    run_cargo(&["build"], &[], began_ns, allowed)?;
    context.say("looking for them");
    let seeds = SEEDS_PER_MUTANT[usize::from(context.full)].to_string();
    let threads = threads().to_string();
    let arguments = [
        "--",
        "mutants",
        "--search",
        "--seeds",
        &seeds,
        "--threads",
        &threads,
        "--format",
        "json",
    ];
    let said = run_cargo(&["run"], &arguments, began_ns, allowed)?;
    let number = |document: &serde_json::Value, field: &str| document[field].as_f64();
    let document: serde_json::Value = serde_json::from_str(said.trim()).map_err(|_| {
        Failure::Unsound("the simulator's verdict on planted bugs cannot be read".into())
    })?;
    let figures = ["survived", "planted", "median_seeds"].map(|field| number(&document, field));
    let [Some(survived), Some(planted), Some(median)] = figures else {
        return Err(Failure::Unsound(
            "the simulator's verdict on planted bugs is incomplete".into(),
        ));
    };
    for mutant in document["mutants"].as_array().into_iter().flatten() {
        if mutant["seed"].is_null() {
            context.say(&format!(
                "survived: {}",
                mutant["mutant"].as_str().unwrap_or("?")
            ));
        }
    }
    Ok(Outcome::new(survived, 1)
        .variant("planted", planted)
        .variant("median-seeds", median)
        .variant(
            "seeds-most",
            SEEDS_PER_MUTANT[usize::from(context.full)] as f64,
        ))
}

/// Runs cargo on the simulator with planted bugs; what it says on standard output. Its exit code tells whether a bug
/// survived, which is a figure here and no failure.
fn run_cargo(
    command: &[&str],
    arguments: &[&str],
    began_ns: u64,
    allowed: Duration,
) -> Result<String, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(command)
        .args(["--quiet", "--profile", "sim", "-p", "asterism-sim"])
        .args(arguments)
        .env("RUSTFLAGS", "--cfg asterism_mutants")
        .env("CARGO_TARGET_DIR", root.join("target/mutants"))
        .current_dir(&root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            Failure::Absent(format!(
                "cargo, which builds the planted bugs, did not start ({error})"
            ))
        })?;
    let mut output = child.stdout.take().expect("it is piped");
    let (send, receive) = std::sync::mpsc::channel();
    // Ends with the child, which closes its end.
    std::thread::spawn(move || {
        let mut said = String::new();
        let _ = output.read_to_string(&mut said);
        let _ = send.send(said);
    });
    let left = allowed.saturating_sub(Duration::from_nanos(wall_ns() - began_ns));
    let Ok(said) = receive.recv_timeout(left) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Failure::Absent(format!(
            "no verdict on the planted bugs in {} s: build them beforehand ({BUILD}), or use --full",
            allowed.as_secs()
        )));
    };
    let status = child
        .wait()
        .map_err(|error| Failure::Absent(format!("the end of cargo was not seen ({error})")))?;
    if !status.success() && said.trim().is_empty() {
        return Err(Failure::Absent(format!(
            "the simulator with planted bugs did not run ({BUILD})"
        )));
    }
    Ok(said)
}
