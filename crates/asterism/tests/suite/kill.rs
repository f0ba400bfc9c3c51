//! A host of three is killed (`kill -9`) while downloads run through all of them, is steered around, left out, started again and
//! steered to: no download breaks. The small form of the measure `lab.kill`. Needs root and `ip`; says `SKIPPED` without.

use std::path::Path;
use std::time::Duration;

use asterism::command_line;
use asterism_lab::http::{DocumentServer, Downloads, Progress, document};
use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig, SERVER};
use asterism_lab::{Program, pause, wait_until};
use asterism_orchestrator::steering::Steering;
use asterism_orchestrator::steering::ecmp::{SLOTS_SANE, Spread};
use asterism_output::End;

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
const DOWNLOADS: usize = 24;
const DOCUMENT_BYTES: usize = 1_200_000;
/// Four seconds for a document.
const BYTES_PER_SECOND: u64 = 300_000;
/// What an orchestrator takes to be sure that a host is dead.
const DETECTION: Duration = Duration::from_millis(200);
/// Frames of a host that has its share, at least.
const FRAMES_MIN: u64 = 30;

/// The places of the host that is killed and of the others.
const KILLED: usize = 1;
const SURVIVORS: [usize; 2] = [0, 2];

fn epoch(configuration: &Path, changes: &[&str]) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["asterism", "epoch", configuration.to_str().unwrap()];
    let all = all.iter().chain(changes).map(Into::into);
    let end = command_line::run(all, &mut stdout, &mut stderr, false);
    assert_eq!(end, End::Done, "{}", String::from_utf8_lossy(&stderr));
}

fn status(lab: &NatLab, place: usize) -> serde_json::Value {
    let reported = std::process::Command::new(ASTERISM)
        .args(["status", "--digests", "--format", "json", "--socket"])
        .arg(lab.control_socket(place))
        .output()
        .unwrap();
    serde_json::from_slice(&reported.stdout).unwrap_or_default()
}

/// These hosts are in this epoch, have closed what ended before it, and hold the same.
fn agree(lab: &NatLab, places: &[usize], epoch: u64) -> bool {
    let reported: Vec<_> = places.iter().map(|place| status(lab, *place)).collect();
    let digests = |status: &serde_json::Value| -> Vec<_> {
        let objects = status["instances"][0]["objects"].as_array();
        let shared = objects.into_iter().flatten();
        shared.map(|object| object["digest"].clone()).collect()
    };
    let first = digests(&reported[0]);
    !first.is_empty()
        && reported.iter().all(|status| {
            status["epoch"] == epoch
                && status["ended"].as_array().is_some_and(Vec::is_empty)
                && digests(status) == first
        })
}

#[test]
fn downloads_go_on_when_a_host_is_killed_and_when_it_returns() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED kill of a host under downloads: {why}");
        return;
    }
    let lab = NatLab::new(&NatLabConfig::new(3, MS * 5)).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let options = HostOptions {
        epochs: true,
        ..HostOptions::default().absent("wait 20ms")
    };
    let configuration = lab.write_configuration(&options).unwrap();
    epoch(&configuration, &["--first"]);
    let mut hosts: Vec<Option<Program>> = lab
        .start_hosts(Path::new(ASTERISM), &configuration)
        .unwrap()
        .into_iter()
        .map(Some)
        .collect();
    let mut steering = lab.steering(Spread::Slots(SLOTS_SANE)).unwrap();
    steering.without(&[]).unwrap();

    let _server =
        DocumentServer::start(&lab.server, (SERVER, 80).into(), BYTES_PER_SECOND).unwrap();
    let right = document(DOCUMENT_BYTES);
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: format!("/{DOCUMENT_BYTES}"),
        document: &right,
        count: 2 * DOWNLOADS,
        at_once: DOWNLOADS,
        patience: PATIENCE,
    };
    let progress = Progress::default();
    let taken = |place: usize| {
        let (inside, outside) = (lab.counts("in").unwrap(), lab.counts("out").unwrap());
        [inside[place].received, outside[place].received]
    };
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run_watched(&lab.client, &progress).unwrap());
        let three_quarters = 3 * DOWNLOADS * DOCUMENT_BYTES / 4;
        let middle = wait_until("the middle of the downloads", PATIENCE, || {
            progress.under_way() == DOWNLOADS && progress.bytes_left() < three_quarters
        });
        middle.unwrap();
        let before = taken(KILLED);
        // A download of a flow that goes this way is far more; how many do, chance decides.
        assert!(
            before.iter().all(|frames| *frames > FRAMES_MIN),
            "{before:?}"
        );
        // On a busy machine in the middle of those that followed.
        let middle = wait_until("much to be left", PATIENCE, || {
            progress.under_way() == DOWNLOADS && progress.bytes_left() > three_quarters / 2
        });
        middle.unwrap();
        hosts[KILLED].take().unwrap().kill();

        pause(DETECTION);
        steering.without(&[KILLED]).unwrap();
        let name = lab.hosts[KILLED].name();
        epoch(&configuration, &["--without", name]);
        let agreed = wait_until("the survivors to agree", PATIENCE, || {
            agree(&lab, &SURVIVORS, 2)
        });
        agreed.unwrap();
        let around = taken(KILLED);
        pause(MS * 300);
        let stray: u64 = taken(KILLED).iter().sum::<u64>() - around.iter().sum::<u64>();
        assert!(stray < 20, "{stray} frames went to the dead host");

        // It comes back while the others go on, and has its share again.
        epoch(&configuration, &["--again", name]);
        let again = lab.start_host(Path::new(ASTERISM), &configuration, KILLED);
        hosts[KILLED] = Some(again.unwrap());
        let sent = || lab.hosts[KILLED].interface_counts("in").unwrap().sent;
        let before = sent();
        steering.without(&[]).unwrap();
        let report = running.join().unwrap();
        if sent() <= before + FRAMES_MIN {
            // On a busy machine these downloads end before the host is back.
            let more = downloads.run_watched(&lab.client, &Progress::default());
            assert_eq!(more.unwrap().complete(), 2 * DOWNLOADS);
        }
        assert!(sent() > before + FRAMES_MIN, "{before} then {}", sent());
        report
    });
    let said = || {
        let hosts = hosts.iter().flatten().map(Program::stderr);
        hosts.collect::<Vec<_>>().join("\n---\n")
    };
    assert_eq!(
        report.complete(),
        2 * DOWNLOADS,
        "{}\n{}",
        report.faults(),
        said()
    );
    let stall = report.downloads.iter().map(|one| one.stall.lasted).max();
    println!("the longest time without news of a download: {stall:?}");
    let agreed = wait_until("all three to agree", PATIENCE, || {
        agree(&lab, &[0, 1, 2], 3)
    });
    assert!(agreed.is_ok(), "{}", said());
    assert!(steering.inside.observe().unwrap().as_applied);
    for host in hosts.into_iter().flatten() {
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}
