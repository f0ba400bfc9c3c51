//! The thread of the steering: applies the newest desired state by all drivers at once, and reports links that go down or come back.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::moves::{self, BucketRequest};
use super::view::{Logged, SteeringView};
use crate::clock;
use crate::controller::Input;
use crate::steering::{Desired, DirectorReport, Steering, SteeringError};

/// How often the drivers are asked about their links.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(500);
/// How often drivers that are notified of their links are asked whether one has changed.
const NOTICE_INTERVAL: Duration = Duration::from_millis(20);
/// Commands that wait at most: the controller awaits the answer to each desired state.
const DESIRED_MAX: usize = 16;

/// What the thread is to do.
#[derive(Debug)]
pub(super) enum SteeringCommand {
    /// Apply this, unless a newer one waits.
    Apply(Desired),
    /// Do something with the buckets.
    Buckets(BucketRequest),
    /// End.
    Stop,
}

/// What the controller's thread has of the steering.
#[derive(Debug)]
pub(super) struct SteeringHandle {
    pub(super) commands: SyncSender<SteeringCommand>,
    /// What became of each, newest last.
    pub(super) views: Receiver<SteeringView>,
    /// The directors on other machines, as they were last.
    pub(super) directors: Receiver<Vec<DirectorReport>>,
}

pub(super) fn start(
    drivers: Vec<Box<dyn Steering>>,
    inputs: SyncSender<Input>,
    log: SyncSender<Logged>,
) -> std::io::Result<(JoinHandle<()>, SteeringHandle)> {
    let (commands, received) = sync_channel(DESIRED_MAX);
    let (view_sender, views) = sync_channel(DESIRED_MAX);
    let (report_sender, directors) = sync_channel(1);
    let thread = Builder::new().name("steering".to_owned()).spawn(move || {
        let thread = SteeringThread {
            drivers,
            inputs,
            log,
            views: view_sender,
            directors: report_sender,
            links: BTreeMap::new(),
            observed: clock::now(),
        };
        thread.run(&received);
    })?;
    let handle = SteeringHandle {
        commands,
        views,
        directors,
    };
    Ok((thread, handle))
}

struct SteeringThread {
    drivers: Vec<Box<dyn Steering>>,
    inputs: SyncSender<Input>,
    log: SyncSender<Logged>,
    views: SyncSender<SteeringView>,
    directors: SyncSender<Vec<DirectorReport>>,
    /// Whether the link to each target was seen down.
    links: BTreeMap<String, bool>,
    /// When the drivers were asked about their links last.
    observed: Instant,
}

impl SteeringThread {
    fn run(mut self, commands: &Receiver<SteeringCommand>) {
        loop {
            match commands.recv_timeout(NOTICE_INTERVAL) {
                Ok(first) => {
                    let mut newest = None;
                    for command in std::iter::once(first).chain(commands.try_iter()) {
                        match command {
                            SteeringCommand::Apply(desired) => newest = Some(desired),
                            SteeringCommand::Buckets(request) => {
                                moves::answer(&mut self.drivers, request);
                            }
                            SteeringCommand::Stop => return,
                        }
                    }
                    if let Some(desired) = newest {
                        self.apply(&desired);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Each driver is asked: one that has nothing to report answers its switch's probes all the same.
            let changed = |any, driver: &mut Box<dyn Steering>| driver.links_changed() || any;
            let has_changed = self.drivers.iter_mut().fold(false, changed);
            if has_changed || self.observed.elapsed() >= OBSERVE_INTERVAL {
                self.observe();
                self.observed = clock::now();
            }
            for notice in self.drivers.iter_mut().flat_map(|driver| driver.notices()) {
                // What the log has no room for is left out.
                let _ = self.log.try_send(Logged {
                    kind: notice.kind,
                    host: None,
                    is_warning: notice.is_warning,
                    text: notice.text,
                });
            }
        }
    }

    fn apply(&mut self, desired: &Desired) {
        let generation = desired.generation().0;
        let results: Vec<Result<_, SteeringError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .drivers
                .iter_mut()
                .map(|driver| scope.spawn(|| driver.apply(desired)))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        let is_whole = results.len() == self.drivers.len();
        let error = results.iter().find_map(|result| result.as_ref().err());
        let in_force = results.iter().flatten();
        let view = SteeringView {
            generation,
            in_force: 0,
            applied: is_whole && error.is_none(),
            changed: in_force.clone().map(|in_force| in_force.changed).sum(),
            took_us: in_force
                .map(|in_force| in_force.took.as_micros() as u64)
                .max()
                .unwrap_or(0),
            error: match (error, is_whole) {
                (Some(error), _) => Some(error.to_string()),
                (None, false) => Some("a driver failed; see standard error".to_owned()),
                (None, true) => None,
            },
        };
        let input = match view.applied {
            true => Input::Steered { generation },
            false => Input::NotSteered { generation },
        };
        let _ = self.views.try_send(view);
        let _ = self.inputs.send(input);
    }

    /// Asks the drivers which links are down, and reports changes.
    fn observe(&mut self) {
        let mut down: BTreeMap<String, bool> = BTreeMap::new();
        for driver in &mut self.drivers {
            // A driver that cannot be asked says nothing of links.
            let Ok(observed) = driver.observe() else {
                continue;
            };
            for target in observed.targets {
                *down.entry(target.name).or_default() |= target.link_down;
            }
        }
        let directors = self.drivers.iter().flat_map(|driver| driver.directors());
        // One that was not taken yet is followed by another.
        let _ = self.directors.try_send(directors.collect());
        for (host, is_down) in down {
            if self.links.insert(host.clone(), is_down).unwrap_or(false) != is_down {
                let _ = self.inputs.send(Input::Link { host, is_down });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::steering::{
        Abilities, Counts, Generation, InForce, Observed, ObservedTarget, Target,
    };

    /// A driver of one target whose link a test breaks.
    #[derive(Clone, Default)]
    struct Link {
        is_down: Arc<AtomicBool>,
        is_notified: Arc<AtomicBool>,
        /// Looks that came before the interval was over.
        early: Arc<AtomicU32>,
        looked: Option<Instant>,
    }

    impl Steering for Link {
        fn abilities(&self) -> Abilities {
            Abilities {
                keeps_flows: false,
                moves_least: true,
                waits_max: Duration::ZERO,
            }
        }

        fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
            Ok(InForce {
                generation: desired.generation(),
                changed: 0,
                moved_permille: None,
                took: Duration::ZERO,
            })
        }

        fn observe(&mut self) -> Result<Observed, SteeringError> {
            let before = self.looked.replace(clock::now());
            if before.is_some_and(|before| before.elapsed() < OBSERVE_INTERVAL) {
                self.early.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Observed {
                targets: vec![ObservedTarget {
                    name: "a".to_owned(),
                    share_permille: 1_000,
                    link_down: self.is_down.load(Ordering::Relaxed),
                }],
                ..Observed::default()
            })
        }

        fn links_changed(&mut self) -> bool {
            self.is_notified.swap(false, Ordering::Relaxed)
        }

        fn counts(&self) -> Counts {
            Counts::default()
        }
    }

    #[test]
    fn links_are_reported_when_they_change_and_at_once_if_the_driver_is_notified() {
        let link = Link::default();
        let (sender, inputs) = sync_channel(16);
        let (log, _logged) = sync_channel(1);
        let (thread, handle) = start(vec![Box::new(link.clone())], sender, log).unwrap();
        let next = || inputs.recv_timeout(Duration::from_secs(30)).unwrap();
        let state = |is_down| Input::Link {
            host: "a".to_owned(),
            is_down,
        };
        // Without a notice, by the interval.
        link.is_down.store(true, Ordering::Relaxed);
        assert_eq!(next(), state(true));
        assert_eq!(link.early.load(Ordering::Relaxed), 0);
        for round in 0..5 {
            let is_down = round % 2 == 1;
            link.is_down.store(is_down, Ordering::Relaxed);
            link.is_notified.store(true, Ordering::Relaxed);
            assert_eq!(next(), state(is_down));
        }
        assert!(link.early.load(Ordering::Relaxed) > 0);
        // Desired states that come one after another do not keep it from looking.
        let generations = AtomicU32::new(0);
        link.is_down.store(true, Ordering::Relaxed);
        let reported = std::iter::from_fn(|| {
            let generation = generations.fetch_add(1, Ordering::Relaxed);
            let all = [("a".to_owned(), Target::TAKES)];
            let desired = Desired::new(Generation(generation.into()), all).unwrap();
            handle
                .commands
                .send(SteeringCommand::Apply(desired))
                .unwrap();
            Some(next())
        });
        let mut reported = reported.take(1_000_000);
        assert!(reported.any(|input| input == state(true)));
        drop(reported);
        drop(handle);
        // It may wait for a place among the inputs.
        drop(inputs);
        thread.join().unwrap();
    }
}
