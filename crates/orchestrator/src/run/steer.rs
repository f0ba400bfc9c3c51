//! The thread of the steering: applies the newest desired state by all drivers at once, and looks after their links.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::newest;
use super::view::SteeringView;
use crate::controller::Input;
use crate::steering::{Desired, Steering, SteeringError};

/// How often the drivers are asked about their links.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(500);
/// Desired states that wait at most: the controller awaits each answer.
const DESIRED_MAX: usize = 16;

/// What the controller's thread has of the steering.
#[derive(Debug)]
pub(super) struct SteeringHandle {
    pub(super) desired: SyncSender<Desired>,
    /// What became of each, newest last.
    pub(super) views: Receiver<SteeringView>,
}

pub(super) fn start(
    drivers: Vec<Box<dyn Steering>>,
    inputs: SyncSender<Input>,
) -> std::io::Result<(JoinHandle<()>, SteeringHandle)> {
    let (desired, received) = sync_channel(DESIRED_MAX);
    let (view_sender, views) = sync_channel(DESIRED_MAX);
    let thread = Builder::new().name("steering".to_owned()).spawn(move || {
        let thread = SteeringThread {
            drivers,
            inputs,
            views: view_sender,
            links: BTreeMap::new(),
        };
        thread.run(&received);
    })?;
    Ok((thread, SteeringHandle { desired, views }))
}

struct SteeringThread {
    drivers: Vec<Box<dyn Steering>>,
    inputs: SyncSender<Input>,
    views: SyncSender<SteeringView>,
    /// Whether the link to each target was seen down.
    links: BTreeMap<String, bool>,
}

impl SteeringThread {
    fn run(mut self, desired: &Receiver<Desired>) {
        loop {
            match desired.recv_timeout(OBSERVE_INTERVAL) {
                Ok(first) => self.apply(&newest(desired, first)),
                Err(RecvTimeoutError::Timeout) => self.observe(),
                Err(RecvTimeoutError::Disconnected) => return,
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
        for (host, is_down) in down {
            if self.links.insert(host.clone(), is_down).unwrap_or(false) != is_down {
                let _ = self.inputs.send(Input::Link { host, is_down });
            }
        }
    }
}
