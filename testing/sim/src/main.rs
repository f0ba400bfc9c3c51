//! Runs seeds of the simulator from the command line.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use asterism_sim::functions::{Plan, Subject, run_functions, run_functions_seed};
use asterism_sim::orchestrator::{OrchestratorPlan, run_orchestrator_seed, run_orchestrators};
use asterism_sim::remote::{RemotePlan, run_remote_seed, run_remotes};
use asterism_sim::soak::run_portion;
use asterism_sim::stores::{StorePlan, run_store_seed, run_stores};
use asterism_sim::{Options, Summary, Trace, branches, run_seed, run_seeds};

const USAGE: &str = "usage: asterism-sim seeds FROM..TO [--threads N] [--stop] [--format json]
       asterism-sim seed N [--trace]
       asterism-sim functions FROM..TO [--threads N] [--stop] [--format json]
       asterism-sim function N [--trace]
       asterism-sim stores FROM..TO [--threads N] [--stop] [--format json]
       asterism-sim store N [--trace]
       asterism-sim remotes FROM..TO [--threads N] [--stop] [--format json]
       asterism-sim remote N [--trace]
       asterism-sim orchestrators FROM..TO [--threads N] [--stop] [--format json]
       asterism-sim orchestrator N [--trace]
       asterism-sim soak N
       asterism-sim mutants [NAME...] [--seeds MAX] [--sample N] [--search] [--format json]";

/// What a seed is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A cluster and its faults.
    Cluster,
    /// A network function on several hosts.
    Function,
    /// Hosts whose objects live in a store.
    Store,
    /// Hosts that use the shipped client of a store.
    Remote,
    /// Orchestrators and their hosts.
    Orchestrator,
}

impl Kind {
    /// By the command's word.
    fn of(word: &str) -> Self {
        match word {
            "function" | "functions" => Self::Function,
            "store" | "stores" => Self::Store,
            "remote" | "remotes" => Self::Remote,
            "orchestrator" | "orchestrators" => Self::Orchestrator,
            _ => Self::Cluster,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Thousands of clusters, one after another, of which each uses next to nothing of what it reserves.
    asterism_state::memory::set_sparing(true);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let json = words.windows(2).any(|pair| pair == ["--format", "json"]);
    match words.as_slice() {
        [
            kind @ ("seeds" | "functions" | "stores" | "remotes" | "orchestrators"),
            range,
            ..,
        ] => {
            let Some(range) = parse_range(range) else {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            };
            let options = Options {
                threads: number(&words, "--threads").unwrap_or(2) as usize,
                stop_early: words.contains(&"--stop"),
                progress: true,
            };
            seeds(range, options, json, Kind::of(kind))
        }
        [
            kind @ ("seed" | "function" | "store" | "remote" | "orchestrator"),
            seed,
            ..,
        ] => match seed.parse() {
            Ok(seed) => one(seed, words.contains(&"--trace"), Kind::of(kind)),
            Err(_) => {
                eprintln!("{USAGE}");
                ExitCode::from(2)
            }
        },
        ["soak", portion, ..] => match portion.parse() {
            Ok(portion) => soak(portion),
            Err(_) => {
                eprintln!("{USAGE}");
                ExitCode::from(2)
            }
        },
        ["mutants", rest @ ..] => mutants(rest, json),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The number behind a flag.
fn number(words: &[&str], flag: &str) -> Option<u64> {
    let at = words.iter().position(|&word| word == flag)?;
    words.get(at + 1)?.parse().ok()
}

/// Parses `FROM..TO`; an empty range is none.
fn parse_range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// Runs one portion of the soak and prints its counts.
fn soak(portion: u64) -> ExitCode {
    match run_portion(portion) {
        Ok(soak) => {
            println!("{soak:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("portion {portion}: {}: {}", failure.check, failure.detail);
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(asterism_mutants))]
fn mutants(_: &[&str], _: bool) -> ExitCode {
    eprintln!(
        "this build has no planted bugs; make one that does:\n  RUSTFLAGS=\"--cfg asterism_mutants\" CARGO_TARGET_DIR=target/mutants cargo run --profile sim -p asterism-sim -- mutants"
    );
    ExitCode::from(2)
}

#[cfg(asterism_mutants)]
fn mutants(words: &[&str], json: bool) -> ExitCode {
    use asterism_sim::mutants::{KNOWN_SEEDS, Search, judge_all};

    let names = words
        .iter()
        .filter(|word| word.starts_with(char::is_uppercase))
        .map(|&name| name.to_owned());
    let names: Vec<String> = names.collect();
    let threads = number(words, "--threads").unwrap_or(2) as usize;
    let search = Search {
        seeds_max: number(words, "--seeds").unwrap_or(2_000),
        sample: number(words, "--sample").unwrap_or(0),
        known_first: !words.contains(&"--search"),
    };
    // Planted bugs panic by the hundred.
    std::panic::set_hook(Box::new(|_| {}));
    let verdicts = judge_all(&names, search, threads);
    let mut needed: Vec<u64> = verdicts
        .iter()
        .filter_map(|verdict| verdict.killed.as_ref().map(|killed| killed.0 + 1))
        .collect();
    needed.sort_unstable();
    let median = needed.get(needed.len() / 2).copied().unwrap_or(0);
    let survived = verdicts
        .iter()
        .filter(|verdict| verdict.killed.is_none())
        .count();
    if json {
        let rows: Vec<String> = verdicts
            .iter()
            .map(|verdict| {
                let (seed, check) = match &verdict.killed {
                    Some((seed, check)) => (seed.to_string(), format!("{check:?}")),
                    None => ("null".to_owned(), "null".to_owned()),
                };
                format!(
                    "{{\"mutant\":{:?},\"layer\":{:?},\"complaint\":{:?},\"seed\":{seed},\"check\":{check}}}",
                    verdict.name, verdict.layer, verdict.complaint
                )
            })
            .collect();
        println!(
            "{{\"schema\":1,\"planted\":{},\"survived\":{survived},\"median_seeds\":{median},\"mutants\":[{}]}}",
            verdicts.len(),
            rows.join(",")
        );
    } else {
        for verdict in &verdicts {
            let killed = match &verdict.killed {
                Some((seed, check)) => format!("seed {seed}, by: {check}"),
                None => "SURVIVED".to_owned(),
            };
            let share = if verdict.of > 0 {
                format!(" ({} of the first {})", verdict.found_by, verdict.of)
            } else {
                String::new()
            };
            println!(
                "{:<14} {:<28} {killed}{share}  [{}]",
                verdict.layer, verdict.name, verdict.complaint
            );
        }
        println!(
            "{} planted, {survived} survived, median seeds to find {median}",
            verdicts.len()
        );
        for verdict in &verdicts {
            let known = KNOWN_SEEDS
                .iter()
                .find(|(name, _)| *name == verdict.name)
                .map(|(_, seed)| *seed);
            match verdict.killed {
                Some((seed, _)) if known != Some(seed) => {
                    println!("known_seeds.rs: (\"{}\", {seed}),", verdict.name);
                }
                _ => {}
            }
        }
    }
    if survived == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seeds(range: Range<u64>, options: Options, json: bool, kind: Kind) -> ExitCode {
    #[allow(
        clippy::disallowed_methods,
        reason = "the binary is what reads a clock"
    )]
    let start = Instant::now();
    let seeds = range.end.saturating_sub(range.start);
    let whole_run = seeds >= 10_000 && kind == Kind::Cluster;
    let enough_for_marks = seeds >= branches::SEEDS_FOR_MARKS && kind == Kind::Cluster;
    let mut summary = match kind {
        Kind::Cluster => run_seeds(range, options),
        Kind::Function => run_functions(range, options),
        Kind::Store => run_stores(range, options),
        Kind::Remote => run_remotes(range, options),
        Kind::Orchestrator => run_orchestrators(range, options),
    };
    summary.seconds = start.elapsed().as_secs_f64();
    if json {
        println!("{}", to_json(&summary));
    } else {
        print(&summary);
    }
    // A branch that so many seeds hardly take is one that nothing tests.
    let rare = match whole_run {
        true => branches::rare(&summary.branches),
        false => Vec::new(),
    };
    let hardly = match enough_for_marks {
        true => branches::hardly_taken(&summary.branches),
        false => Vec::new(),
    };
    if !rare.is_empty() || !hardly.is_empty() {
        eprintln!("taken fewer than {} times: {rare:?}", branches::TIMES_LEAST);
        eprintln!(
            "marked, and taken fewer than {} times: {hardly:?}",
            branches::MARKED_LEAST
        );
        return ExitCode::FAILURE;
    }
    if summary.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(summary: &Summary) {
    println!(
        "{} seeds passed, {} failed, {:.1} s ({:.0} seeds/s), trace {:016x}",
        summary.passed,
        summary.failed.len(),
        summary.seconds,
        summary.passed as f64 / summary.seconds,
        summary.trace
    );
    println!(
        "{} operations (least {} a member), least faults {} of {} kinds, {} claims judged, {} steps, {:?} virtual, {} equal within their windows and round trips, longest heal {:?} ({} permille of its bound)",
        summary.operations,
        summary.operations_least,
        summary.faults_least,
        summary.kinds_least,
        summary.judged,
        summary.steps,
        summary.virtual_time,
        summary.equal_within_windows,
        summary.healed_longest,
        summary.healed_share_most_permille
    );
    println!("faults: {:?}", summary.faults);
    println!("branches: {:?}", summary.branches);
    println!("rare: {:?}", branches::rare(&summary.branches));
    let mut checks = std::collections::BTreeMap::new();
    for failed in &summary.failed {
        checks
            .entry(failed.failure.check)
            .or_insert_with(Vec::new)
            .push(failed.seed);
    }
    for (check, seeds) in checks {
        println!(
            "failed: {check}: {} seeds, {:?}",
            seeds.len(),
            &seeds[..seeds.len().min(8)]
        );
    }
}

fn to_json(summary: &Summary) -> String {
    let map = |map: &std::collections::BTreeMap<&'static str, u64>| {
        let fields: Vec<String> = map
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}", fields.join(","))
    };
    let failed: Vec<String> = summary
        .failed
        .iter()
        .map(|failed| {
            format!(
                "{{\"seed\":{},\"check\":{:?},\"replay\":{:?}}}",
                failed.seed,
                failed.failure.check,
                failed.command()
            )
        })
        .collect();
    format!(
        "{{\"schema\":1,\"passed\":{},\"failed\":[{}],\"seconds\":{:.3},\"operations\":{},\"operations_least\":{},\"faults_least\":{},\"kinds_least\":{},\"trace\":\"{:016x}\",\"equal_within_windows\":{},\"healed_longest_us\":{},\"healed_share_most_permille\":{},\"faults\":{},\"branches\":{}}}",
        summary.passed,
        failed.join(","),
        summary.seconds,
        summary.operations,
        summary.operations_least,
        summary.faults_least,
        summary.kinds_least,
        summary.trace,
        summary.equal_within_windows,
        summary.healed_longest.as_micros(),
        summary.healed_share_most_permille,
        map(&summary.faults),
        map(&summary.branches)
    )
}

fn one(seed: u64, traced: bool, kind: Kind) -> ExitCode {
    let mut trace = if traced {
        Trace::printed()
    } else {
        Trace::new()
    };
    let (plan, run): (_, fn(u64, &mut Trace) -> _) = match kind {
        Kind::Cluster => {
            let scenario = asterism_sim::Scenario::from_seed(seed);
            (format!("{scenario:#?}"), run_seed)
        }
        Kind::Function => {
            let plan = (Subject::of(seed), Plan::from_seed(seed));
            (format!("{plan:#?}"), run_functions_seed)
        }
        Kind::Store => {
            let plan = StorePlan::from_seed(seed);
            (format!("{plan:#?}"), run_store_seed)
        }
        Kind::Remote => {
            let plan = RemotePlan::from_seed(seed);
            (format!("{plan:#?}"), run_remote_seed)
        }
        Kind::Orchestrator => {
            let plan = OrchestratorPlan::from_seed(seed);
            (format!("{plan:#?}"), run_orchestrator_seed)
        }
    };
    if traced {
        println!("{plan}");
    }
    match run(seed, &mut trace) {
        Ok(report) => {
            println!("{report:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("seed {seed}: {}: {}", failure.check, failure.detail);
            ExitCode::FAILURE
        }
    }
}
