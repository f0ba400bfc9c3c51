//! A cluster behind an Open vSwitch, whose rules its orchestrator writes by the configuration: while downloads run, a host loses its
//! cable, and another one is killed. Needs root, `ip` and `openvswitch-switch`; says `SKIPPED` without.

use std::path::Path;
use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, Progress, document};
use asterism_lab::nat::{HostOptions, Middle, NatLab, NatLabConfig, SERVER};
use asterism_lab::openvswitch::PROGRAMS;
use asterism_lab::{Probe, Program, pause, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
const DOWNLOADS: usize = 24;
const DOCUMENT_BYTES: usize = 1_200_000;
/// Eight seconds for a document.
const BYTES_PER_SECOND: u64 = 150_000;
/// The host whose cable is cut, and the one that is killed.
const CUT: usize = 0;
const KILLED: usize = 1;

fn wait_for(orchestrator: &Program, line: &str, times: usize) {
    let count = || orchestrator.stderr().matches(line).count();
    if let Err(error) = wait_until(line, PATIENCE, || count() >= times) {
        panic!(
            "{error}; the orchestrator had logged: {}",
            orchestrator.stderr()
        );
    }
}

/// The last change of who takes packets is in force.
fn wait_until_steered(orchestrator: &Program) {
    let steered = wait_until("the steering", PATIENCE, || {
        let log = orchestrator.stderr();
        let last = |event: &str| log.rfind(event).unwrap_or(0);
        last("event=steered") > last("takes packets").max(last("packets leave it"))
    });
    assert!(steered.is_ok(), "{}", orchestrator.stderr());
}

#[test]
fn downloads_go_on_behind_a_switch_when_hosts_lose_their_cable_or_die() {
    if let Err(why) = asterism_lab::needs(&PROGRAMS) {
        println!("SKIPPED a cluster behind Open vSwitch: {why}");
        return;
    }
    let config = NatLabConfig::new(3, MS * 2)
        .middle(Middle::Switch)
        .orchestrators(1);
    let lab = NatLab::new(&config).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let configuration = lab
        .write_configuration(&HostOptions::default().absent("wait 20ms"))
        .unwrap();
    let _switch = lab.start_switch().unwrap();
    let asterism = Path::new(ASTERISM);
    let orchestrator = lab.start_orchestrator(asterism, &configuration, 0).unwrap();
    let started = lab.start_hosts(asterism, &configuration).unwrap();
    let mut hosts: Vec<Option<Program>> = started.into_iter().map(Some).collect();
    for host in &lab.hosts {
        wait_for(&orchestrator, &format!("{} takes packets", host.name()), 1);
    }
    wait_until_steered(&orchestrator);

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
    let taken = || -> Vec<u64> {
        let counts = [lab.counts("in").unwrap(), lab.counts("out").unwrap()];
        let sum = |place: usize| counts.iter().map(|side| side[place].received).sum();
        (0..3).map(sum).collect()
    };
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run_watched(&lab.client, &progress).unwrap());
        wait_until("the middle of the downloads", PATIENCE, || {
            let three_quarters = 3 * DOWNLOADS * DOCUMENT_BYTES / 4;
            progress.under_way() == DOWNLOADS && progress.bytes_left() < three_quarters
        })
        .unwrap();
        let before = taken();
        assert!(before.iter().all(|frames| *frames > 100), "{before:?}");

        // The host lives, and hosts still hear it: the switch alone says that its cable is cut.
        let name = lab.hosts[CUT].name();
        let cut = Probe::now();
        lab.hosts[CUT].ip(&["link set dev in down"]).unwrap();
        wait_for(&orchestrator, &format!("the link to {name} is down"), 1);
        wait_until_steered(&orchestrator);
        println!(
            "the cable is cut, and steered around after {:?}",
            Probe::now() - cut
        );
        pause(MS * 200);
        let without = taken()[CUT];
        pause(MS * 500);
        let stray = taken()[CUT] - without;
        assert!(
            stray < 20,
            "{stray} frames went to the host without a cable"
        );
        lab.hosts[CUT].ip(&["link set dev in up"]).unwrap();
        wait_for(&orchestrator, &format!("{name} takes packets"), 2);
        wait_until_steered(&orchestrator);

        let name = lab.hosts[KILLED].name();
        hosts[KILLED].take().unwrap().kill();
        wait_for(&orchestrator, &format!("{name} was silent for"), 1);
        wait_until_steered(&orchestrator);
        hosts[KILLED] = Some(lab.start_host(asterism, &configuration, KILLED).unwrap());
        wait_for(&orchestrator, &format!("{name} takes packets"), 2);
        running.join().unwrap()
    });
    let stall = report.downloads.iter().map(|one| one.stall.lasted).max();
    println!("the longest time without news of a download: {stall:?}");
    assert_eq!(
        report.complete(),
        2 * DOWNLOADS,
        "{}\n{}",
        report.faults(),
        orchestrator.stderr()
    );
    for host in hosts.into_iter().flatten() {
        host.terminate(PATIENCE).unwrap().successful().unwrap();
    }
    orchestrator
        .terminate(PATIENCE)
        .unwrap()
        .successful()
        .unwrap();
}
