//! `asterism-sim ledger`: runs what is missing of a range and writes each piece into the ledger as it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use asterism_sim::ledger::{Kind, Ledger, Line, OPERATIONS, SEEDS, parse_range};
use asterism_sim::soak::{Soak, run_portion};
use asterism_sim::{Options, run_seeds};

/// Seeds of a piece, unless `--each` says otherwise: some half a minute.
const SEEDS_EACH: u64 = 1_000;
/// Portions of soak of a piece.
const PORTIONS_EACH: u64 = 4;
/// The file, from the repository's root.
const FILE: &str = "crates/sim/ledger.txt";

/// Runs the command; what comes after `ledger`.
pub(crate) fn run(words: &[&str], number: impl Fn(&str) -> Option<u64>) -> Option<ExitCode> {
    let outcome = match words {
        [] => tell(),
        [kind @ ("seeds" | "soak"), range, ..] => {
            let range = parse_range(range)?;
            let threads = number("--threads").unwrap_or(1) as usize;
            let (kind, each) = match *kind {
                "seeds" => (Kind::Seeds, SEEDS_EACH),
                _ => (Kind::Soak, PORTIONS_EACH),
            };
            record(kind, range, number("--each").unwrap_or(each), threads)
        }
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

/// One portion of soak, outside the ledger.
pub(crate) fn soak(portion: u64) -> ExitCode {
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

fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).output();
    let output =
        output.map_err(|why| format!("git did not run ({why}); the ledger names commits"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", arguments.join(" "), said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn file() -> Result<PathBuf, String> {
    Ok(Path::new(&git(&["rev-parse", "--show-toplevel"])?).join(FILE))
}

fn read(path: &Path) -> Result<Ledger, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|why| format!("{} was not read: {why}", path.display()))?;
    Ledger::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// The commit that is checked out, if what is here is that commit and nothing else. The ledger itself may have new lines.
fn commit() -> Result<String, String> {
    let changed = git(&["status", "--porcelain", "--untracked-files=normal"])?;
    let mut changed = changed.lines().filter(|line| !line.ends_with(FILE));
    if let Some(line) = changed.next() {
        return Err(format!(
            "nothing was run: the tree is not what its commit is ({}), so that nobody could run it again; commit first",
            line.trim()
        ));
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// How far it is.
fn tell() -> Result<(), String> {
    let ledger = read(&file()?)?;
    let (by_seeds, by_soak) = ledger.delivered();
    println!(
        "seeds: {} of {SEEDS} passed ({:.1} %), in {} ranges; next {:?}",
        ledger.seeds(),
        100.0 * ledger.seeds() as f64 / SEEDS as f64,
        ledger
            .lines()
            .iter()
            .filter(|line| line.kind == Kind::Seeds)
            .count(),
        ledger.missing(Kind::Seeds, 0..SEEDS, SEEDS).first(),
    );
    println!(
        "operations delivered: {} of {OPERATIONS} ({:.1} %): {by_soak} by the soak, {by_seeds} by the simulator; next portion {:?}",
        by_seeds + by_soak,
        100.0 * (by_seeds + by_soak) as f64 / OPERATIONS as f64,
        ledger
            .missing(Kind::Soak, 0..u64::MAX, u64::MAX)
            .first()
            .map(|range| range.start),
    );
    println!("failed: {}", ledger.failed());
    Ok(())
}

fn record(
    kind: Kind,
    range: std::ops::Range<u64>,
    each: u64,
    threads: usize,
) -> Result<(), String> {
    let path = file()?;
    let began = commit()?;
    let mut failed = 0;
    for piece in read(&path)?.missing(kind, range, each) {
        let mut line = Line {
            kind,
            range: piece.clone(),
            commit: began.clone(),
            digest: 0,
            passed: 0,
            failed: 0,
            counts: Default::default(),
        };
        match kind {
            Kind::Seeds => run_piece(&mut line, threads),
            Kind::Soak => soak_piece(&mut line),
        }
        // Who changes the tree meanwhile must not have its work named by a commit that did not do it.
        if commit()? != began {
            return Err(format!(
                "{piece:?} is not written down: another commit was checked out while it ran"
            ));
        }
        // Another run may have written since, and may be about to: appended lines get into nobody's way.
        read(&path)?.add(line.clone())?;
        let append = || {
            let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_data()
        };
        append().map_err(|why| format!("{} was not written: {why}", path.display()))?;
        println!("{line}");
        failed += line.failed;
    }
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} failed; they are in the ledger")),
    }
}

fn run_piece(line: &mut Line, threads: usize) {
    let options = Options {
        threads,
        stop_early: false,
        progress: false,
    };
    let summary = run_seeds(line.range.clone(), options);
    for failed in &summary.failed {
        eprintln!(
            "seed {}: {}: {}",
            failed.seed, failed.failure.check, failed.failure.detail
        );
    }
    line.digest = summary.trace;
    (line.passed, line.failed) = (summary.passed, summary.failed.len() as u64);
    let mut count = |name: &str, value| line.counts.insert(name.to_owned(), value);
    count("faults", summary.faults.values().sum());
    count("operations", summary.operations);
    count("delivered", summary.delivered);
}

fn soak_piece(line: &mut Line) {
    let mut total = Soak::default();
    for portion in line.range.clone() {
        match run_portion(portion) {
            Ok(soak) => {
                total.add(portion, &soak);
                line.passed += 1;
            }
            Err(failure) => {
                eprintln!("portion {portion}: {}: {}", failure.check, failure.detail);
                line.failed += 1;
            }
        }
    }
    line.digest = total.digest;
    let mut count = |name: &str, value| line.counts.insert(name.to_owned(), value);
    count("operations", total.operations);
    count("datagrams", total.datagrams);
    count("lost", total.lost);
    count("duplicated", total.duplicated);
    count("reordered", total.reordered);
}
