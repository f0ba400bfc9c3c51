//! Laws of every launcher that launches, as a function that a launcher's tests call with a world of its engine and a host
//! program that behaves as it is asked to.

use std::time::Duration;

use rustix::process::Signal;

use super::identity::Process;
use super::{
    Aftermath, EndedBy, Exit, FencingEvidence, Found, FoundState, HostSpec, LaunchError, Launched,
    Launcher, Readiness, Ready, StopMode,
};
use crate::clock;

/// Hosts that are launched at once.
pub const HOSTS_AT_ONCE: usize = 20;
/// How long a host may take to be ready, or to end: machines of tests are busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// The exit code of a host that fails.
pub const FAILS_WITH: i32 = 3;
/// What a host that fails writes to its log.
pub const FAILS_BECAUSE: &str = "the key file is not there";
/// What a host that is never ready reports as its status.
pub const WAITS_FOR: &str = "waits for an epoch that names it";

/// What a host's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It reports that it is ready, and ends with 0 at SIGTERM.
    Ready,
    /// It reports the status [`WAITS_FOR`], and never that it is ready. It ends with 0 at SIGTERM.
    Waits,
    /// It writes [`FAILS_BECAUSE`] to its standard error and ends with [`FAILS_WITH`], and reports nothing.
    Fails,
    /// It reports that it is ready, and does nothing at SIGTERM.
    Deaf,
    /// It reports that it is ready. At SIGTERM it ends a second later with 0, at a second SIGTERM at once with 1.
    Drains,
    /// It starts a process that would outlive it, reports that it is ready, and does nothing at SIGTERM.
    Parent,
}

/// The world of a launcher.
pub trait LawWorld: Sync {
    /// A launcher over the world's folder and engine, as an orchestrator makes it that has just started.
    ///
    /// # Errors
    /// It cannot be made.
    fn launcher(&self) -> Result<Box<dyn Launcher>, LaunchError>;

    /// A host that behaves so from its next start on. Ready within two minutes unless the caller changes that.
    fn spec(&self, name: &str, incarnation: u64, behaviour: Behaviour) -> HostSpec;

    /// How many processes of a host have begun, as they noted themselves.
    fn starts(&self, name: &str) -> usize;

    /// Whether a process of a host, or one that it started, is there, as no launcher takes part in saying.
    fn is_running(&self, name: &str) -> bool;
}

/// Why a launcher was not found to keep the laws.
#[derive(Debug, thiserror::Error)]
pub enum LawError {
    /// The launcher breaks this law.
    #[error("a launcher must {law}: {seen}")]
    Broken {
        /// The law.
        law: &'static str,
        /// What was seen instead.
        seen: String,
    },
    /// The launcher failed where no law wants it to.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// Holds a launcher to the laws, in a world in which nothing was launched. Leaves nothing running.
///
/// # Errors
/// [`LawError`]: the law that it breaks, or its own error. Hosts may run then.
pub fn check(world: &dyn LawWorld) -> Result<(), LawError> {
    let launcher = world.launcher()?;
    let found = launcher.find()?;
    demand("find nothing at first", found.is_empty(), &found)?;
    one_host(world, launcher.as_ref())?;
    incarnations(world, launcher.as_ref())?;
    ends(world, launcher.as_ref())?;
    failures(world, launcher.as_ref())?;
    at_once(world, launcher.as_ref())?;
    found_again(world, launcher)
}

/// A host is started once, however often it is launched.
fn one_host(world: &dyn LawWorld, launcher: &dyn Launcher) -> Result<(), LawError> {
    let spec = world.spec("one", 1, Behaviour::Ready);
    let first = launcher.launch(&spec)?;
    let is_new = !first.already && first.ready == Ready::Reported && first.process.is_some();
    demand("start a host and see it ready", is_new, &first)?;
    demand(
        "have started a host that is ready",
        world.is_running("one"),
        &first,
    )?;
    let second = launcher.launch(&spec)?;
    let is_same = second.already && second.process == first.process;
    demand("leave a host alone that runs", is_same, &second)?;
    demand(
        "know that a host was ready",
        second.ready == Ready::Reported,
        &second,
    )?;
    let mut other = spec.clone();
    other.arguments.push("--differs".to_owned());
    let refused = launcher.launch(&other);
    let is_refused = matches!(refused, Err(LaunchError::Differs { .. }));
    demand(
        "refuse a running incarnation another command",
        is_refused,
        &refused,
    )?;
    demand(
        "start one process",
        world.starts("one") == 1,
        &world.starts("one"),
    )?;
    let counts = launcher.counts();
    let counted = (counts.started, counts.already, counts.refused) == (1, 1, 1);
    demand("count its launches", counted, &counts)?;

    let mut bad = spec;
    bad.name = "../one".to_owned();
    let refused = launcher.launch(&bad);
    let is_refused = matches!(refused, Err(LaunchError::Spec { .. }));
    demand("refuse a name that is none", is_refused, &refused)
}

/// An incarnation is one process, and evidence is final.
fn incarnations(world: &dyn LawWorld, launcher: &dyn Launcher) -> Result<(), LawError> {
    let spec = |incarnation| world.spec("two", incarnation, Behaviour::Ready);
    let ended =
        |result: &Result<Launched, LaunchError>| matches!(result, Err(LaunchError::Ended { .. }));
    let unknown = launcher.stop("two", 1, StopMode::Kill);
    let is_refused = matches!(unknown, Err(LaunchError::NotLaunchedHere { .. }));
    demand("give no evidence of an unknown host", is_refused, &unknown)?;
    launcher.launch(&spec(2))?;
    let older = launcher.launch(&spec(1));
    let is_refused = matches!(older, Err(LaunchError::Stale { .. }));
    demand("refuse an older incarnation", is_refused, &older)?;
    let later = launcher.launch(&spec(3));
    let is_refused = matches!(later, Err(LaunchError::EarlierRuns { runs: 2, .. }));
    demand(
        "refuse a later incarnation while one runs",
        is_refused,
        &later,
    )?;
    let unknown = launcher.stop("two", 3, StopMode::Kill);
    let is_refused = matches!(unknown, Err(LaunchError::NotLaunchedHere { .. }));
    demand(
        "give no evidence of an incarnation to come",
        is_refused,
        &unknown,
    )?;
    // It may run on another machine.
    let unknown = launcher.stop("two", 1, StopMode::Kill);
    let is_refused = matches!(unknown, Err(LaunchError::NotLaunchedHere { .. }));
    demand(
        "give no evidence of an incarnation that was launched elsewhere",
        is_refused && world.is_running("two"),
        &unknown,
    )?;

    let evidence = launcher.stop("two", 2, drain(PATIENCE))?;
    is_fenced(world, &evidence, "two", Some(Exit::Code(0)))?;
    let again = launcher.stop("two", 2, StopMode::Kill)?;
    demand("give the same evidence again", again == evidence, &again)?;
    let refused = launcher.launch(&spec(2));
    demand(
        "start no incarnation after evidence of its end",
        ended(&refused),
        &refused,
    )?;
    let refused = world.launcher()?.launch(&spec(2));
    demand(
        "remember evidence when it is made again",
        ended(&refused),
        &refused,
    )?;
    launcher.launch(&spec(3))?;
    demand(
        "start the next incarnation",
        world.starts("two") == 2,
        &world.starts("two"),
    )?;
    let earlier = world.launcher()?.stop("two", 2, StopMode::Kill)?;
    let is_earlier = earlier.ended_by() == &EndedBy::LaterIncarnation(3);
    demand("know that earlier incarnations ended", is_earlier, &earlier)?;
    demand(
        "spare the incarnation that runs then",
        world.is_running("two"),
        &earlier,
    )
}

/// Ends of processes: from outside, by draining, by killing.
fn ends(world: &dyn LawWorld, launcher: &dyn Launcher) -> Result<(), LawError> {
    let launched = launcher.launch(&world.spec("killed", 1, Behaviour::Ready))?;
    let process = launched.process.map(Process::open);
    if let Some(Ok(Some(process))) = process {
        // Below, the end is waited for.
        let _ = process.signal(Signal::KILL);
    }
    let is_end = |found: &Found| matches!(found.state, FoundState::Ended(_));
    let found = await_found(launcher, "killed", is_end)?;
    let by_signal = [Exit::Signal(9), Exit::Code(128 + 9)];
    let is_known =
        |found: &Found| matches!(found.state, FoundState::Ended(exit) if by_signal.contains(&exit));
    demand(
        "find a killed host as ended with its exit",
        is_known(&found),
        &found,
    )?;
    let found = await_found(world.launcher()?.as_ref(), "killed", is_end)?;
    demand(
        "remember the exit when it is made again",
        is_known(&found),
        &found,
    )?;
    let refused = launcher.launch(&world.spec("killed", 1, Behaviour::Ready));
    let is_refused = matches!(refused, Err(LaunchError::Ended { .. }));
    demand(
        "start no incarnation again that has ended",
        is_refused,
        &refused,
    )?;
    let evidence = launcher.stop("killed", 1, drain(Duration::ZERO))?;
    is_fenced(world, &evidence, "killed", None)?;

    launcher.launch(&world.spec("drains", 1, Behaviour::Drains))?;
    let waits = launcher.stop("drains", 1, drain(Duration::from_millis(1)));
    let still = matches!(waits, Err(LaunchError::StillRuns { .. }));
    demand("say that a draining host still runs", still, &waits)?;
    let evidence = launcher.stop("drains", 1, drain(PATIENCE))?;
    is_fenced(world, &evidence, "drains", Some(Exit::Code(0)))?;

    for (name, behaviour) in [("deaf", Behaviour::Deaf), ("parent", Behaviour::Parent)] {
        launcher.launch(&world.spec(name, 1, behaviour))?;
        let waits = launcher.stop(name, 1, drain(Duration::from_millis(200)));
        let still = matches!(waits, Err(LaunchError::StillRuns { .. }));
        demand(
            "kill nothing that is to drain",
            still && world.is_running(name),
            &waits,
        )?;
        let evidence = launcher.stop(name, 1, StopMode::Kill)?;
        is_fenced(world, &evidence, name, None)?;
    }
    Ok(())
}

/// Launches that fail leave nothing running, and say why.
fn failures(world: &dyn LawWorld, launcher: &dyn Launcher) -> Result<(), LawError> {
    let failed = launcher.launch(&world.spec("fails", 1, Behaviour::Fails));
    let says_why = matches!(
        &failed,
        Err(LaunchError::Exited { exit: Exit::Code(FAILS_WITH), last_lines, .. })
            if last_lines.iter().any(|line| line.contains(FAILS_BECAUSE))
    );
    demand(
        "show the exit and the log of a host that fails",
        says_why,
        &failed,
    )?;
    demand(
        "know that nothing runs",
        !world.is_running("fails"),
        &failed,
    )?;
    launcher.launch(&world.spec("fails", 1, Behaviour::Ready))?;
    demand(
        "start again what has failed",
        world.starts("fails") == 2,
        &world.starts("fails"),
    )?;

    let mut spec = world.spec("waits", 1, Behaviour::Waits);
    let (mut failures, mut seconds) = (1, 2);
    let failed = loop {
        spec.readiness = Readiness::Within(Duration::from_secs(seconds));
        let failed = launcher.launch(&spec);
        failures += 1;
        // A busy machine may not have come to start a program that could say anything.
        let is_silent =
            matches!(&failed, Err(LaunchError::NotReady { status, .. }) if status.is_empty());
        if !is_silent || seconds > 60 {
            break failed;
        }
        seconds *= 5;
    };
    let says_why =
        matches!(&failed, Err(LaunchError::NotReady { status, .. }) if status == WAITS_FOR);
    demand("report a host that is not ready in time", says_why, &failed)?;
    let nothing_runs = matches!(&failed, Err(error) if error.aftermath() == Aftermath::NothingRuns);
    demand("say that nothing runs then", nothing_runs, &failed)?;
    demand(
        "leave nothing running then",
        !world.is_running("waits"),
        &failed,
    )?;
    let evidence = launcher.stop("waits", 1, StopMode::Kill)?;
    is_fenced(world, &evidence, "waits", None)?;

    spec.incarnation = 2;
    spec.readiness = Readiness::Unawaited;
    let launched = launcher.launch(&spec)?;
    demand(
        "return at once if nobody waits",
        launched.ready == Ready::Unknown,
        &launched,
    )?;
    let found = await_found(launcher, "waits", |found| found.state == FoundState::Runs)?;
    demand("find it all the same", found.incarnation == 2, &found)?;
    let counts = launcher.counts();
    demand("count what failed", counts.failed == failures, &counts)
}

/// Calls for one host from many threads start it once, and many hosts start at once.
fn at_once(world: &dyn LawWorld, launcher: &dyn Launcher) -> Result<(), LawError> {
    let same = world.spec("same", 1, Behaviour::Ready);
    let results = together(4, |_| {
        loop {
            match launcher.launch(&same) {
                Err(LaunchError::Busy { .. }) => {}
                result => break result,
            }
        }
    });
    let started = results
        .iter()
        .filter(|it| matches!(it, Ok(launched) if !launched.already));
    let is_one = started.count() == 1 && results.iter().all(Result::is_ok);
    demand("start a host once for many callers", is_one, &results)?;
    demand(
        "have one process of it",
        world.starts("same") == 1,
        &world.starts("same"),
    )?;

    let names: Vec<_> = (0..HOSTS_AT_ONCE)
        .map(|number| format!("many-{number}"))
        .collect();
    let specs: Vec<_> = names
        .iter()
        .map(|name| world.spec(name, 1, Behaviour::Ready))
        .collect();
    let results = together(HOSTS_AT_ONCE, |number| launcher.launch(&specs[number]));
    demand(
        "start many hosts at once",
        results.iter().all(Result::is_ok),
        &results,
    )?;
    let running = names.iter().filter(|name| world.is_running(name)).count();
    demand("have them all running", running == HOSTS_AT_ONCE, &running)?;
    let found = launcher.find()?;
    let is_sorted = found.windows(2).all(|pair| pair[0].name < pair[1].name);
    demand("find each once, by name", is_sorted, &found)
}

/// A launcher that is made again finds all, starts nothing twice, and ends all.
fn found_again(world: &dyn LawWorld, launcher: Box<dyn Launcher>) -> Result<(), LawError> {
    let before = launcher.find()?;
    drop(launcher);
    let again = world.launcher()?;
    let after = again.find()?;
    demand(
        "find the same when it is made again",
        before == after,
        &after,
    )?;
    let runs = |found: &&Found| found.state == FoundState::Runs;
    let running: Vec<_> = after.iter().filter(runs).collect();
    let expected = HOSTS_AT_ONCE + 5;
    demand("find all that runs", running.len() == expected, &running)?;
    let one = again.launch(&world.spec("one", 1, Behaviour::Ready))?;
    demand("not start twice when it is made again", one.already, &one)?;
    let stopped = together(running.len(), |number| {
        again.stop(
            &running[number].name,
            running[number].incarnation,
            StopMode::Kill,
        )
    });
    for (evidence, found) in stopped.into_iter().zip(&running) {
        is_fenced(world, &evidence?, &found.name, None)?;
    }
    let left: Vec<_> = again.find()?;
    demand(
        "leave nothing running",
        !left.iter().any(|found| runs(&found)),
        &left,
    )
}

fn drain(within: Duration) -> StopMode {
    StopMode::Drain { within }
}

fn is_fenced(
    world: &dyn LawWorld,
    evidence: &FencingEvidence,
    name: &str,
    exit: Option<Exit>,
) -> Result<(), LawError> {
    demand(
        "name the host that has ended",
        evidence.name() == name,
        evidence,
    )?;
    demand(
        "give evidence only of an end",
        !world.is_running(name),
        evidence,
    )?;
    let is_exit = exit.is_none_or(|exit| evidence.exit() == exit);
    demand("know the exit of a host that it stopped", is_exit, evidence)
}

/// Finds a host until it is as it should be, or as it is after long patience.
fn await_found(
    launcher: &dyn Launcher,
    name: &str,
    holds: impl Fn(&Found) -> bool,
) -> Result<Found, LawError> {
    let began = clock::now();
    loop {
        let found = launcher.find()?;
        let one = found.iter().find(|found| found.name == name);
        match one {
            Some(one) if holds(one) || began.elapsed() > PATIENCE => return Ok(one.clone()),
            None => demand("find what it launched", false, &found)?,
            Some(_) => clock::pause(Duration::from_millis(10)),
        }
    }
}

/// The results of so many calls at the same time.
fn together<R: Send>(count: usize, call: impl Fn(usize) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let call = &call;
        let calls: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || call(number)))
            .collect();
        calls
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}

fn demand(law: &'static str, holds: bool, seen: &dyn std::fmt::Debug) -> Result<(), LawError> {
    if holds {
        return Ok(());
    }
    Err(LawError::Broken {
        law,
        seen: format!("{seen:?}"),
    })
}
