//! Orchestrators that die while they launch: nothing is lost, and nothing runs twice.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use asterism_lab::{pause, wait_until};
use asterism_launch::laws::{Behaviour, LawWorld};
use asterism_launch::{
    FoundState, HostSpec, Launcher, ProcessConfig, ProcessLauncher, Readiness, Step, StopMode,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::process::Processes;

/// The variable by which this test program is asked to be an orchestrator: folder, program, configuration, step.
const ORCHESTRATOR: &str = "ASTERISM_STUB_ORCHESTRATOR";
const STEPS: [Step; 4] = [Step::Recorded, Step::Started, Step::Identified, Step::Ready];
const LONG: Duration = Duration::from_secs(60);

/// The step at which this process kills itself.
static DIES_AT: AtomicU8 = AtomicU8::new(u8::MAX);

fn die(step: Step) {
    let number = STEPS.iter().position(|one| *one == step).unwrap();
    if usize::from(DIES_AT.load(Ordering::Relaxed)) == number {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

/// Not a test of its own: with its variable set, this is an orchestrator that launches one host and dies.
#[test]
fn orchestrates() {
    let Ok(words) = std::env::var(ORCHESTRATOR) else {
        return;
    };
    let words: Vec<_> = words.split('\n').collect();
    let config = ProcessConfig {
        program: PathBuf::from(words[1]),
        ..ProcessConfig::new("lab", words[0])
    };
    DIES_AT.store(words[3].parse().unwrap(), Ordering::Relaxed);
    let launcher = ProcessLauncher::new(config).unwrap().observed_by(die);
    let mut spec = HostSpec::new("a", 1, words[2]);
    spec.readiness = Readiness::Within(LONG);
    launcher.launch(&spec).unwrap();
}

/// An orchestrator in a process of its own that dies at this step, if at any.
fn orchestrator(world: &Processes, spec: &HostSpec, step: usize) -> Command {
    let config = world.config();
    let words = [
        config.folder.display().to_string(),
        config.program.display().to_string(),
        spec.configuration.display().to_string(),
        step.to_string(),
    ];
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::orchestrates", "--nocapture"])
        .env(ORCHESTRATOR, words.join("\n"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

/// The next orchestrator launches the host again and has one process of it, which it can end.
fn goes_on(world: &Processes, spec: &HostSpec, note: &str) -> bool {
    let launcher = world.new_launcher();
    let found = launcher.find().unwrap();
    assert!(found.len() <= 1, "{note}: {found:?}");
    let ran = found
        .first()
        .is_some_and(|one| one.state == FoundState::Runs);
    let launched = launcher
        .launch(spec)
        .unwrap_or_else(|error| panic!("{note}: {error}"));
    assert_eq!(launched.already, ran, "{note}: {found:?}");
    wait_until("the host's own note", LONG, || world.starts("a") > 0).unwrap();
    assert_eq!(world.starts("a"), 1, "{note}");
    assert!(world.is_running("a"), "{note}");
    assert!(launcher.launch(spec).unwrap().already);
    launcher.stop("a", 1, StopMode::Kill).unwrap();
    assert!(!world.is_running("a"), "{note}");
    ran
}

#[test]
fn an_orchestrator_that_dies_at_any_step_neither_loses_nor_doubles_a_host() {
    for (number, step) in STEPS.iter().enumerate() {
        let world = Processes::new();
        let spec = world.spec("a", 1, Behaviour::Ready);
        let status = orchestrator(&world, &spec, number).status().unwrap();
        assert!(!status.success(), "{step:?}");
        let ran = goes_on(&world, &spec, &format!("{step:?}"));
        assert_eq!(ran, *step != Step::Recorded, "{step:?}");
    }
}

/// Killed at any moment, between steps too.
#[test]
fn an_orchestrator_that_is_killed_at_any_moment_neither_loses_nor_doubles_a_host() {
    let mut ran = 0;
    for round in 0..30_u64 {
        let world = Processes::new();
        let spec = world.spec("a", 1, Behaviour::Ready);
        let mut child = orchestrator(&world, &spec, STEPS.len()).spawn().unwrap();
        let log = world.folder.path().join("launch/lab/a.notify");
        wait_until("the launch to begin", LONG, || log.exists()).unwrap();
        pause(Duration::from_micros(round * 150));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        ran += u32::from(goes_on(&world, &spec, &format!("round {round}")));
    }
    println!("{ran} of 30 were killed after the start of the host's process");
}
