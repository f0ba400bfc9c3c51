//! A cluster in memory: a launcher with processes, a store, a controller that takes orders, and time. It holds the runner to its laws
//! at every call.
#![expect(
    clippy::disallowed_types,
    reason = "a launcher may be called from several threads; here it is called from one"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asterism_elasticity::UnixMs;
use asterism_epochs::Process;
use asterism_heartbeat::Load;

use super::super::record::{LaunchRecord, Wanted};
use super::super::world::{Buckets, World};
use crate::controller::{Order, Stage};
use crate::launch::{
    Abilities, Exit, FencingEvidence, Found, FoundState, HostSpec, LaunchCounts, LaunchError,
    Launched, Launcher, MANUAL_UNIT, ManualLauncher, ProcessId, Ready, StopMode,
};
use crate::run::moves::MoveError;
use crate::run::store::NotStored;
use crate::run::view::{AskingError, ClusterView, HostView, Logged, StoreView};

/// Milliseconds from a process' start until it takes packets.
pub(super) const SERVES_AFTER: u64 = 400;

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Fake {
    pub(super) launch: u64,
    pub(super) runs: bool,
    started: u64,
    ended: u64,
    leaves: bool,
}

/// How the store does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Store {
    #[default]
    Well,
    /// It does nothing, and says so.
    Away,
    /// It writes, and the answer is lost.
    AnswersLost,
}

/// All that there is.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) now: u64,
    pub(super) places: Vec<String>,
    pub(super) leader: &'static str,
    pub(super) term: u64,
    pub(super) stored: Option<(Vec<u8>, u64)>,
    pub(super) store: Store,
    pub(super) processes: BTreeMap<String, Fake>,
    /// Processes that were started, by place.
    pub(super) starts: BTreeMap<String, u32>,
    drained: BTreeSet<String>,
    withdrawn: BTreeSet<String>,
    /// Packets a second of the cluster.
    pub(super) packets: u64,
    /// Places whose processes end at once.
    pub(super) broken: BTreeSet<String>,
    pub(super) ended: Vec<(String, Process)>,
    pub(super) log: Vec<(u64, Logged)>,
    /// After so many calls the orchestrator that calls dies: its calls do nothing any more.
    pub(super) fuse: Option<usize>,
    pub(super) moves: Vec<(Vec<u32>, String)>,
    pub(super) buckets: Option<Buckets>,
}

/// A fake as one orchestrator has it.
#[derive(Clone, Debug)]
pub(super) struct FakeWorld {
    pub(super) name: &'static str,
    pub(super) state: Arc<Mutex<State>>,
}

impl State {
    /// Burns a bit of the fuse; whether the caller is dead.
    fn is_dead(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn serves(&self, name: &str) -> bool {
        let serves = |one: &Fake| one.runs && self.now - one.started >= SERVES_AFTER && !one.leaves;
        self.processes.get(name).is_some_and(serves)
    }

    /// The hosts that get packets: the last one keeps them, as the controller has it.
    pub(super) fn takers(&self) -> Vec<String> {
        let serve = self.places.iter().filter(|name| self.serves(name));
        let serve: Vec<String> = serve.cloned().collect();
        let wanted = serve.iter().filter(|name| !self.withdrawn.contains(*name));
        let takers: Vec<String> = wanted.cloned().collect();
        if takers.is_empty() { serve } else { takers }
    }

    pub(super) fn record(&self) -> LaunchRecord {
        let stored = self.stored.as_ref();
        stored.map_or_else(LaunchRecord::default, |(bytes, _)| {
            LaunchRecord::from_bytes(bytes).unwrap()
        })
    }

    pub(super) fn running(&self) -> Vec<&str> {
        let running = self.processes.iter().filter(|(_, one)| one.runs);
        running.map(|(name, _)| name.as_str()).collect()
    }

    pub(super) fn kinds(&self, kind: &str) -> Vec<&str> {
        let lines = self.log.iter().filter(|(_, line)| line.kind == kind);
        lines.map(|(_, line)| line.text.as_str()).collect()
    }

    pub(super) fn kill(&mut self, name: &str) {
        let process = self.processes.get_mut(name).unwrap();
        (process.runs, process.ended) = (false, self.now);
    }

    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::Drain(host) => _ = self.drained.insert(host),
            Order::Withdraw(host) => _ = self.withdrawn.insert(host),
            Order::Restore(host) => {
                self.drained.remove(&host);
                self.withdrawn.remove(&host);
            }
            Order::Fence(..) | Order::Forget(_) => {}
        }
    }

    fn view(&self, name: &str) -> ClusterView {
        let takers = self.takers();
        let draining = |host: &String| self.drained.contains(host);
        let share = takers.iter().filter(|host| !draining(host)).count() as u64;
        let host = |name: &String| {
            let mut view = HostView {
                name: name.clone(),
                drained: self.drained.contains(name),
                withdrawn: self.withdrawn.contains(name),
                takes: takers.contains(name),
                is_steered_to: takers.contains(name),
                ..HostView::default()
            };
            if let Some(process) = self.processes.get(name) {
                let incarnation = process.launch;
                view.stage = Some(match () {
                    () if process.leaves => Stage::Leaving(incarnation),
                    () if self.serves(name) => Stage::Serving(incarnation),
                    () => Stage::Joining(incarnation),
                });
                view.launch = process.launch;
                view.process = process_of(process.launch);
                view.silent_ms = match process.runs {
                    true => 20,
                    false => 20 + self.now - process.ended,
                };
                view.incarnation = process.runs.then_some(incarnation);
                if view.takes && !view.drained {
                    view.packets_per_s = self.packets / share.max(1);
                }
                view.load = Load {
                    packets: self.now,
                    ..Load::default()
                };
            }
            view
        };
        ClusterView {
            term: (self.leader == name).then_some(self.term),
            store: StoreView {
                error: (self.store == Store::Away).then(|| "it is away".to_owned()),
                ..StoreView::default()
            },
            hosts: self.places.iter().map(host).collect(),
            ..ClusterView::default()
        }
    }
}

pub(super) fn process_of(launch: u64) -> Process {
    Process {
        folder: 7,
        start: launch,
    }
}

impl FakeWorld {
    pub(super) fn with<T>(&self, of: impl FnOnce(&mut State) -> T) -> T {
        of(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl World for FakeWorld {
    fn now(&self) -> UnixMs {
        self.with(|state| UnixMs(1_000_000 + state.now))
    }

    fn view(&mut self) -> Result<ClusterView, AskingError> {
        let name = self.name;
        self.with(|state| match state.is_dead() {
            true => Err(AskingError::Ended),
            false => Ok(state.view(name)),
        })
    }

    fn order(&mut self, order: Order) {
        self.with(|state| {
            if !state.is_dead() && state.store != Store::Away {
                state.order(order);
            }
        });
    }

    fn ended(&mut self, host: &str, process: Process) {
        self.with(|state| {
            if !state.is_dead() {
                let one = &state.processes[host];
                assert!(
                    !one.runs && process == process_of(one.launch),
                    "{host} runs"
                );
                state.ended.push((host.to_owned(), process));
            }
        });
    }

    fn read(&mut self) -> Result<(LaunchRecord, u64), String> {
        self.with(
            |state| match state.is_dead() || state.store == Store::Away {
                true => Err("it is away".to_owned()),
                false => {
                    let version = state.stored.as_ref().map_or(0, |(_, version)| *version);
                    Ok((state.record(), version))
                }
            },
        )
    }

    fn write(&mut self, record: &LaunchRecord, replaces: u64, term: u64) -> Result<u64, NotStored> {
        self.with(|state| {
            let away = Err(NotStored::Failed("it is away".to_owned()));
            if state.is_dead() || state.store == Store::Away {
                return away;
            }
            let version = state.stored.as_ref().map_or(0, |(_, version)| *version);
            if version != replaces || term != state.term {
                return Err(NotStored::Refused);
            }
            state.stored = Some((record.to_bytes(), version + 1));
            match state.store {
                Store::AnswersLost => away,
                _ => Ok(version + 1),
            }
        })
    }

    fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(FakeLauncher(self.clone()))
    }

    fn buckets(&mut self) -> Option<Buckets> {
        self.with(|state| state.buckets.clone())
    }

    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), MoveError> {
        self.with(|state| state.moves.push((buckets.to_vec(), to.to_owned())));
        Ok(())
    }

    fn log(&mut self, line: Logged) {
        self.with(|state| {
            let now = state.now;
            state.log.push((now, line));
        });
    }
}

struct FakeLauncher(FakeWorld);

impl Launcher for FakeLauncher {
    fn abilities(&self) -> Abilities {
        Abilities {
            launches: true,
            keeps_exits: true,
            waits_max: Duration::ZERO,
        }
    }

    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError> {
        let (name, launch) = (host.name.clone(), host.incarnation);
        self.0.with(|state| {
            if state.is_dead() {
                return Err(busy(name));
            }
            let place = state.record().places.get(&name).cloned();
            let place = place.unwrap_or_else(|| panic!("{name} is launched, and not written"));
            assert_eq!(
                (place.wanted, place.launch),
                (Wanted::Runs, launch),
                "{name}"
            );
            let now = state.now;
            let known = state.processes.get(&name);
            if let Some(known) = known.filter(|known| known.runs) {
                assert_eq!(known.launch, launch, "two processes of {name}");
            } else {
                assert!(
                    known.is_none_or(|known| known.launch < launch),
                    "{name} again"
                );
                *state.starts.entry(name.clone()).or_default() += 1;
                let fake = Fake {
                    launch,
                    runs: !state.broken.contains(&name),
                    started: now,
                    ended: now,
                    leaves: false,
                };
                state.processes.insert(name.clone(), fake);
            }
            Ok(Launched {
                name,
                incarnation: launch,
                process: Some(ProcessId {
                    pid: 9,
                    start_ticks: 1,
                }),
                container: None,
                already: false,
                ready: Ready::Unknown,
                took: Duration::ZERO,
            })
        })
    }

    fn find(&self) -> Result<Vec<Found>, LaunchError> {
        self.0.with(|state| {
            if state.is_dead() {
                return Err(busy("all".to_owned()));
            }
            let found = |(name, one): (&String, &Fake)| Found {
                name: name.clone(),
                incarnation: one.launch,
                state: match one.runs {
                    true => FoundState::Runs,
                    false => FoundState::Ended(Exit::Code(3)),
                },
                ready: Ready::Unknown,
                process: None,
                container: None,
                last_lines: vec!["the key file is not there".to_owned()],
            };
            Ok(state.processes.iter().map(found).collect())
        })
    }

    fn stop(
        &self,
        name: &str,
        incarnation: u64,
        _mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError> {
        self.0.with(|state| {
            if state.is_dead() {
                return Err(busy(name.to_owned()));
            }
            let wanted = state.record().places[name].wanted;
            assert!(
                matches!(wanted, Wanted::Leaves { .. }),
                "{name}: {wanted:?}"
            );
            let steered = state.takers().contains(&name.to_owned());
            let process = state.processes.get_mut(name).unwrap();
            assert!(
                !steered || process.leaves,
                "{name} gets packets, and is stopped"
            );
            if process.runs && !process.leaves {
                process.leaves = true;
                return Err(LaunchError::StillRuns {
                    name: name.to_owned(),
                    waited: Duration::ZERO,
                });
            }
            (process.runs, process.ended) = (false, state.now);
            let manual = ManualLauncher::new("test", MANUAL_UNIT).unwrap();
            Ok(manual.vouch(name, incarnation, "the fake").unwrap())
        })
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }

    fn counts(&self) -> LaunchCounts {
        LaunchCounts::default()
    }
}

fn busy(name: String) -> LaunchError {
    LaunchError::Busy {
        name,
        waited: Duration::ZERO,
    }
}
