//! `asterism-oracle`: recordings of Linux's NAT made again, and compared with our NAT.

use std::path::PathBuf;
use std::process::ExitCode;

use asterism_oracle::live::{SCENARIOS, obstacle, record};
use asterism_oracle::{Recording, Report, compare};

const USAGE: &str = "usage: asterism-oracle record [NAME]...   plays scenarios against Linux, writes their recordings (needs root, nft)
       asterism-oracle compare [FOLDER]... compares recordings with our NAT (without a folder: those that ship)
       asterism-oracle list                the scenarios";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[][..]),
    };
    let outcome = match command {
        "record" => record_all(rest),
        "compare" => compare_all(rest),
        "list" => {
            for scenario in SCENARIOS {
                println!("{:16} {}", scenario.name, scenario.about);
            }
            Ok(true)
        }
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::from(2)
        }
    }
}

fn record_all(names: &[String]) -> Result<bool, String> {
    if let Some(obstacle) = obstacle() {
        return Err(format!("nothing was recorded: {obstacle}"));
    }
    if let Some(name) = names
        .iter()
        .find(|name| SCENARIOS.iter().all(|scenario| scenario.name != **name))
    {
        return Err(format!(
            "there is no scenario {name}; `list` names them all"
        ));
    }
    let mut same = true;
    for scenario in SCENARIOS {
        if names.is_empty() || names.iter().any(|name| name == scenario.name) {
            let folder = asterism_oracle::shipped().join(scenario.name);
            let recording = record(scenario, Some(&folder))
                .map_err(|error| format!("{}: {error}", scenario.name))?;
            same &= show(&recording)?;
        }
    }
    Ok(same)
}

fn compare_all(folders: &[String]) -> Result<bool, String> {
    let recordings = if folders.is_empty() {
        Recording::load_all(&asterism_oracle::shipped())?
    } else {
        let folders = folders.iter().map(PathBuf::from);
        folders
            .map(|folder| Recording::load(&folder))
            .collect::<Result<_, _>>()?
    };
    let mut same = true;
    for recording in &recordings {
        same &= show(recording)?;
    }
    Ok(same)
}

fn show(recording: &Recording) -> Result<bool, String> {
    let report: Report = compare(recording)?;
    println!(
        "{:16} {:4} arrived, {:4} compared, {:6} fields, {:3} swallowed by both, {} differences",
        recording.name,
        report.arrived,
        report.compared,
        report.fields,
        report.swallowed,
        report.differences.len()
    );
    for (rule, count) in &report.explained {
        println!("    {count:4} {} ({})", rule.name(), rule.clause());
    }
    for difference in &report.differences {
        let seconds = difference.time_us as f64 / 1e6;
        println!("    {seconds:9.6} s {}", difference.sentence);
    }
    Ok(report.differences.is_empty())
}
