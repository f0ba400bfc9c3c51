//! A cluster whose hosts have ports of their own: orchestrators, directors and hosts are processes of this program, which are started
//! again when they end. Hosts that the orchestrator launches are left to it until the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use asterism_config::value::show_duration;
use asterism_host::control::Ask;
use asterism_host::run::control_path;
use asterism_host_view::StatusDocument;
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::launch::{
    Exit, FoundState, HostSpec, LaunchError, Launched, Launcher, ProcessLauncher, Readiness, Role,
};
use asterism_output::End;
use asterism_placement::Time;

use super::Form;
use super::error::UpError;
use super::launched::{Ended, ROLES, folder_of, launcher, running, stop_all, word};
use super::plan::{Ground, Plan};
use super::report::{ProcessReport, UpReport};
use crate::commands::client::ask;
use crate::orchestrate::launchers;

/// How often it is looked who runs.
const FIND_INTERVAL: Duration = Duration::from_millis(100);
/// The pause before a process is started again, which doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(30);
/// A process that ran this long is started again after the first pause.
const RAN_LONG: Duration = Duration::from_secs(60);
/// How long a host may take to answer what it does.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// The exit code of a process that refuses its configuration.
const REFUSED: Exit = Exit::Code(End::Configuration.code() as i32);

/// The cluster. See the module.
pub(super) struct Processes {
    ground: Ground,
    clock: MonotonicClock,
    file: PathBuf,
    cluster: String,
    launchers: Vec<(Role, Arc<ProcessLauncher>)>,
    /// Of the hosts that the orchestrator launches.
    others: Option<Arc<dyn Launcher>>,
    all: Vec<Supervised>,
    drain: Duration,
    looked: Time,
    /// The control sockets of the hosts.
    sockets: Vec<(String, PathBuf)>,
    api: Option<String>,
    is_introduced: bool,
    /// What each host had received when the state was shown, and when.
    received: (Time, BTreeMap<String, u64>),
    /// What was not yet shown.
    lines: Vec<String>,
}

/// A process that is started again when it ends.
struct Supervised {
    role: Role,
    name: String,
    arguments: Vec<String>,
    incarnation: u64,
    state: State,
    pause: Duration,
    starts: u64,
    ends: u64,
    last_exit: Option<Exit>,
}

enum State {
    Runs { since: Time },
    Waits { until: Time },
}

impl Supervised {
    fn new(role: Role, name: String, arguments: Vec<String>) -> Supervised {
        Supervised {
            role,
            name,
            arguments,
            incarnation: 1,
            state: State::Waits { until: Time::ZERO },
            pause: PAUSE_FIRST,
            starts: 0,
            ends: 0,
            last_exit: None,
        }
    }

    fn what(&self) -> String {
        match self.role {
            // The name says it.
            Role::Orchestrator => self.name.clone(),
            role => format!("{} {}", word(role), self.name),
        }
    }

    /// Starts it, or finds that it runs.
    fn launch(
        &mut self,
        now: Time,
        launcher: &dyn Launcher,
        file: &Path,
    ) -> Result<String, LaunchError> {
        let spec = HostSpec {
            arguments: self.arguments.clone(),
            readiness: Readiness::Unawaited,
            ..HostSpec::new(&self.name, self.incarnation, file)
        };
        let Launched {
            process, already, ..
        } = launcher.launch(&spec)?;
        self.state = State::Runs { since: now };
        self.starts += u64::from(!already);
        let pid = process.map_or_else(|| "?".to_owned(), |process| process.pid.to_string());
        Ok(match already {
            false => format!("{} is started as process {pid}", self.what()),
            true => format!("{} runs already, as process {pid}", self.what()),
        })
    }

    /// Notes that it is not there, and when it is started again.
    fn wait(&mut self, now: Time) -> String {
        if let State::Runs { since } = self.state
            && now.since(since) >= RAN_LONG
        {
            self.pause = PAUSE_FIRST;
        }
        let pause = self.pause;
        self.incarnation += 1;
        self.state = State::Waits { until: now + pause };
        self.pause = (2 * pause).min(PAUSE_MOST);
        format!("it is started again in {}", show_duration(pause))
    }
}

impl Processes {
    /// Starts everything: orchestrators, which hosts and directors report to, then directors, then hosts.
    pub(super) fn start(
        plan: &Plan,
        ground: Ground,
        clock: MonotonicClock,
    ) -> Result<Processes, UpError> {
        let cluster = &plan.config.cluster;
        let mut processes = Processes {
            clock,
            file: plan.file.clone(),
            cluster: cluster.name.clone(),
            launchers: Vec::new(),
            others: launchers::of(&plan.file, &plan.config)?,
            all: supervised(plan),
            drain: plan.drain(),
            looked: Time::ZERO,
            sockets: plan
                .hosts
                .iter()
                .map(|host| (host.host.name.clone(), control_path(&plan.file, host)))
                .collect(),
            api: plan.api().map(|api| plan.url(api.listen)),
            is_introduced: false,
            received: (Time::ZERO, BTreeMap::new()),
            lines: Vec::new(),
            ground,
        };
        let program = super::program()?;
        for role in ROLES {
            if processes.all.iter().any(|process| process.role == role) {
                let (name, folder) = (&cluster.name, &processes.ground.folder);
                let made = launcher(role, name, folder, program.clone())?;
                processes.launchers.push((role, made));
            }
        }
        match processes.launch_all() {
            Ok(()) => Ok(processes),
            Err(error) => {
                // The first error says more than a second one.
                let _ = processes.stop();
                Err(error)
            }
        }
    }

    fn launcher(&self, role: Role) -> Option<Arc<ProcessLauncher>> {
        let of_role = self.launchers.iter().find(|(of, _)| *of == role);
        of_role.map(|(_, launcher)| Arc::clone(launcher))
    }

    /// Starts all. Those that a killed command left go on as they are.
    fn launch_all(&mut self) -> Result<(), UpError> {
        let now = self.clock.now();
        for role in [Role::Orchestrator, Role::Director, Role::Host] {
            let Some(launcher) = self.launcher(role) else {
                continue;
            };
            let found = launcher.find()?;
            for process in self.all.iter_mut().filter(|process| process.role == role) {
                let known = found.iter().find(|found| found.name == process.name);
                process.incarnation = match known {
                    None => 1,
                    Some(known) if matches!(known.state, FoundState::Ended(_)) => {
                        known.incarnation + 1
                    }
                    Some(known) => known.incarnation.max(1),
                };
                let line = process.launch(now, &*launcher, &self.file)?;
                self.lines.push(line);
            }
        }
        Ok(())
    }

    /// Looks who has ended.
    fn find(&mut self, now: Time) -> Result<(), UpError> {
        for role in ROLES {
            let Some(launcher) = self.launcher(role) else {
                continue;
            };
            // A folder that cannot be read now is read later.
            for found in launcher.find().unwrap_or_default() {
                let is_it = |process: &&mut Supervised| {
                    (process.role, &process.name, process.incarnation)
                        == (role, &found.name, found.incarnation)
                };
                let process = self.all.iter_mut().find(is_it);
                let Some(process) =
                    process.filter(|process| matches!(process.state, State::Runs { .. }))
                else {
                    continue;
                };
                let FoundState::Ended(exit) = found.state else {
                    continue;
                };
                process.ends += 1;
                process.last_exit = Some(exit);
                let what = process.what();
                // What has run before is tried again: somebody is changing the file.
                if exit == REFUSED && (process.starts, process.ends) == (1, 1) {
                    let last_lines = found.last_lines;
                    return Err(UpError::ProcessRefused { what, last_lines });
                }
                let mut line = format!("{what} has ended with {exit}; {}", process.wait(now));
                for last in &found.last_lines {
                    line += &format!("\n           | {last}");
                }
                self.lines.push(line);
            }
        }
        Ok(())
    }

    /// Starts those again whose pause is over.
    fn launch_again(&mut self, now: Time) {
        for place in 0..self.all.len() {
            let process = &self.all[place];
            let State::Waits { until } = process.state else {
                continue;
            };
            let Some(launcher) = self.launcher(process.role).filter(|_| now >= until) else {
                continue;
            };
            let process = &mut self.all[place];
            let line = process.launch(now, &*launcher, &self.file);
            let line = line.unwrap_or_else(|error| format!("{error}; {}", process.wait(now)));
            self.lines.push(line);
        }
    }

    /// Ends all in order. Everything is tried; the first error is returned.
    fn stop(&self) -> Result<Vec<Ended>, LaunchError> {
        let (mut all, mut failed) = (Vec::new(), None);
        for role in ROLES {
            let others = self.others.as_deref().filter(|_| role == Role::Host);
            let own = self.launcher(role);
            let own = own.as_deref().map(|launcher| launcher as &dyn Launcher);
            for launcher in own.into_iter().chain(others) {
                match stop_all(role, launcher, self.drain) {
                    Ok(ended) => all.extend(ended),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        match failed {
            None => Ok(all),
            Some(error) => Err(error),
        }
    }

    /// What the hosts say of themselves: how many take packets, and what each has received. One that gives no answer counts as none.
    fn asked(&self) -> (usize, BTreeMap<String, u64>) {
        let statuses: Vec<(String, StatusDocument)> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .sockets
                .iter()
                .map(|(name, socket)| {
                    let request = Ask::Status { digests: false };
                    scope.spawn(move || {
                        Some((name.clone(), ask(socket, &request, ANSWER_MAX).ok()?))
                    })
                })
                .collect();
            // A thread that panicked said so on standard error.
            let answers = threads.into_iter().filter_map(|thread| thread.join().ok());
            answers.flatten().collect()
        });
        let takes = |status: &StatusDocument| status.phase == "running" && status.joined;
        let takers = statuses.iter().filter(|(_, status)| takes(status)).count();
        let received = statuses.into_iter().map(|(name, status)| {
            let ports = status.instances.iter().flat_map(|one| &one.ports);
            (name, ports.map(|port| port.received_packets).sum())
        });
        (takers, received.collect())
    }
}

/// All processes of a plan, without hosts that the orchestrator launches.
fn supervised(plan: &Plan) -> Vec<Supervised> {
    let mut all = Vec::new();
    for (number, address) in (1..).zip(&plan.config.cluster.orchestrators) {
        let name = format!("orchestrator-{number}");
        let arguments = vec!["--address".to_owned(), address.to_string()];
        all.push(Supervised::new(Role::Orchestrator, name, arguments));
    }
    for machine in plan.machines() {
        let name = machine.name.clone();
        all.push(Supervised::new(Role::Director, name, Vec::new()));
    }
    for host in plan.hosts.iter().filter(|_| !plan.launches()) {
        let name = host.host.name.clone();
        all.push(Supervised::new(Role::Host, name, Vec::new()));
    }
    all
}

impl Form for Processes {
    fn turn(&mut self, wait: Duration) -> Result<Vec<String>, UpError> {
        if self.lines.is_empty() {
            std::thread::park_timeout(wait);
        }
        let now = self.clock.now();
        if now.since(self.looked) >= FIND_INTERVAL {
            self.looked = now;
            self.find(now)?;
            self.launch_again(now);
        }
        Ok(std::mem::take(&mut self.lines))
    }

    fn introduction(&mut self) -> Option<String> {
        if std::mem::replace(&mut self.is_introduced, true) {
            return None;
        }
        let mut text = "\nEverything is started. In another terminal:\n".to_owned();
        if let Some(api) = &self.api {
            text += &format!(
                "  asterism hosts --api {api}      # the cluster, as its orchestrator sees it\n"
            );
        }
        for (name, socket) in &self.sockets {
            let socket = socket.display();
            text += &format!("  asterism status --socket {socket}      # host {name}\n");
        }
        let folder = &self.ground.folder;
        for role in ROLES
            .into_iter()
            .filter(|role| self.launcher(*role).is_some())
        {
            let logs = folder_of(folder, role).join(&self.cluster);
            let word = word(role);
            text += &format!(
                "  less {}/NAME.log      # the log of each {word}\n",
                logs.display()
            );
        }
        let folder = folder.display();
        Some(text + &format!("Ctrl-C, or asterism down --folder {folder}, ends everything.\n\n"))
    }

    fn state(&mut self) -> String {
        let (takers, received) = self.asked();
        let now = self.clock.now();
        let (before, had) = std::mem::replace(&mut self.received, (now, received));
        // A host that began again counts from zero.
        let since = |(name, count): (&String, &u64)| {
            count.saturating_sub(had.get(name).copied().unwrap_or(*count))
        };
        let packets: u64 = self.received.1.iter().map(since).sum();
        let rate = packets * 1_000 / (now.since(before).as_millis().max(1) as u64);
        let mut text = match (&self.others, self.sockets.len()) {
            (Some(others), 0) => {
                format!("{} hosts run", running(&**others).unwrap_or_default().len())
            }
            (_, hosts) => format!("{takers} of {hosts} hosts take packets, {rate} packets/s"),
        };
        for role in [Role::Orchestrator, Role::Director] {
            let of_role = || self.all.iter().filter(|process| process.role == role);
            let runs = |process: &&Supervised| matches!(process.state, State::Runs { .. });
            let (run, all) = (of_role().filter(runs).count(), of_role().count());
            if all > 0 {
                text += &format!("; {run} of {all} {}s run", word(role));
            }
        }
        let ends: u64 = self.all.iter().map(|process| process.ends).sum();
        text + &format!("; ended by themselves: {ends}")
    }

    fn end(self: Box<Self>, _in_order: bool) -> Result<UpReport, UpError> {
        let ended = self.stop();
        let Processes { ground, all, .. } = *self;
        ground.leave(ended.is_ok());
        let mut ended = ended?;
        let mut reports = Vec::new();
        for process in all {
            let place = ended
                .iter()
                .position(|end| (end.role, &end.name) == (process.role, &process.name));
            let end = place.map(|place| ended.swap_remove(place));
            let exit = end.as_ref().map(|end| end.exit).or(process.last_exit);
            reports.push(ProcessReport {
                role: word(process.role),
                name: process.name,
                starts: process.starts,
                ends_by_itself: process.ends,
                end: exit.map(|exit| exit.to_string()),
                in_order: end.is_some_and(|end| end.in_order),
            });
        }
        // What is left are hosts that the orchestrator launched.
        reports.extend(ProcessReport::of(&BTreeMap::new(), &ended));
        Ok(UpReport::new(reports, None))
    }
}
