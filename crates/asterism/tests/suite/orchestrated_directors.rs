//! A cluster behind two directors on interfaces of their own, commanded by its orchestrator: while downloads run, the active director is
//! killed, and a host. Needs root and `ip`; says `SKIPPED` without.

use std::path::Path;
use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, Progress, document};
use asterism_lab::nat::{HostOptions, Middle, NatLab, NatLabConfig, SERVER};
use asterism_lab::{Probe, Program, pause, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
const DOWNLOADS: usize = 24;
const DOCUMENT_BYTES: usize = 1_200_000;
/// Eight seconds for a document.
const BYTES_PER_SECOND: u64 = 150_000;
/// The host that is killed.
const KILLED: usize = 1;

fn wait_for(program: &Program, line: &str, times: usize) {
    let count = || program.stderr().matches(line).count();
    if let Err(error) = wait_until(line, PATIENCE, || count() >= times) {
        panic!("{error}; it had logged: {}", program.stderr());
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
fn downloads_go_on_when_a_director_dies_and_when_a_host_does() {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a cluster behind directors: {why}");
        return;
    }
    let config = NatLabConfig::new(3, MS * 2)
        .middle(Middle::Directors(2))
        .orchestrators(1);
    let lab = NatLab::new(&config).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    let configuration = lab
        .write_configuration(&HostOptions::default().absent("wait 20ms"))
        .unwrap();
    let asterism = Path::new(ASTERISM);
    let director = |place| lab.start_director(asterism, &configuration, place).unwrap();
    let mut directors = [Some(director(0)), Some(director(1))];
    let is_active = |one: &Option<Program>| {
        let log = one.as_ref().map(Program::stderr).unwrap_or_default();
        log.contains("event=director-active")
    };
    wait_until("an active director", PATIENCE, || {
        directors.iter().any(is_active)
    })
    .unwrap();
    let active = directors.iter().position(is_active).unwrap();
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
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run_watched(&lab.client, &progress).unwrap());
        wait_until("the middle of the downloads", PATIENCE, || {
            let three_quarters = 3 * DOWNLOADS * DOCUMENT_BYTES / 4;
            progress.under_way() == DOWNLOADS && progress.bytes_left() < three_quarters
        })
        .unwrap();
        let inside = lab.counts("in").unwrap();
        let has_share = inside.iter().all(|host| host.received > 50);
        assert!(
            has_share,
            "{:?}",
            inside.iter().map(|one| one.received).collect::<Vec<_>>()
        );

        // The other director has the table already, and takes over the addresses.
        let killed = Probe::now();
        directors[active].take().unwrap().kill();
        let other = directors[1 - active].as_ref().unwrap();
        wait_for(other, "event=director-active", 1);
        println!(
            "the other director is active after {:?}",
            Probe::now() - killed
        );
        let name = lab.directors[active].name();
        wait_for(
            &orchestrator,
            &format!("the director {name} does not answer"),
            1,
        );
        pause(MS * 500);

        // With one director left, a host dies.
        let name = lab.hosts[KILLED].name();
        let killed = Probe::now();
        hosts[KILLED].take().unwrap().kill();
        wait_for(&orchestrator, &format!("{name} was silent for"), 1);
        wait_until_steered(&orchestrator);
        println!(
            "the dead host is steered around after {:?}",
            Probe::now() - killed
        );
        hosts[KILLED] = Some(lab.start_host(asterism, &configuration, KILLED).unwrap());
        wait_for(&orchestrator, &format!("{name} takes packets"), 2);

        // The director that died returns, is handed the state in force, and moves nothing.
        directors[active] = Some(director(active));
        let returned = directors[active].as_ref().unwrap();
        wait_for(returned, "event=steered", 1);
        wait_for(returned, "event=director-standby", 1);
        let name = lab.directors[active].name();
        wait_for(&orchestrator, &format!("the director {name} answers"), 2);
        running.join().unwrap()
    });
    let stall = report.downloads.iter().map(|one| one.stall.lasted).max();
    println!("the longest time without news of a download: {stall:?}");
    let said = || {
        let directors = directors.iter().flatten().map(Program::stderr);
        directors.chain([orchestrator.stderr()]).collect::<String>()
    };
    assert_eq!(
        report.complete(),
        2 * DOWNLOADS,
        "{}\n{}",
        report.faults(),
        said()
    );
    let programs = hosts.into_iter().chain(directors).flatten();
    for program in programs.chain([orchestrator]) {
        program.terminate(PATIENCE).unwrap().successful().unwrap();
    }
}
