//! A director's side: does what orchestrators command, and answers with the status.

use std::time::{Duration, Instant};

use asterism_director::DirectorStatistics;
use asterism_director_control::{
    Answer, DesiredTarget, HostNumber, Outcome, Received, Receiver, RefusedCommand, Request,
    Status, TargetStatus,
};
use asterism_secure_channel::KeyRing;

use crate::clock;
use crate::director::DirectorSteering;
use crate::{Desired, Generation, Standing, Steering, SteeringError, Target};

/// A director that takes commands.
#[derive(Debug)]
pub struct ServedDirector {
    steering: DirectorSteering,
    receiver: Receiver,
    /// The names of its hosts.
    names: Vec<String>,
    /// After so long without a heartbeat of the other director, that one is not heard.
    takeover_after: Duration,
    /// The heartbeats that the director had received, and when the last one was seen.
    heartbeats: u64,
    heartbeat_seen: Option<Instant>,
}

impl ServedDirector {
    /// A director that `steering` commands, alone. It knows the hosts with these names.
    #[must_use]
    pub fn new(
        steering: DirectorSteering,
        names: Vec<String>,
        receiver: Receiver,
        takeover_after: Duration,
    ) -> ServedDirector {
        ServedDirector {
            steering,
            receiver,
            names,
            takeover_after,
            heartbeats: 0,
            heartbeat_seen: None,
        }
    }

    /// Goes on under other keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.receiver.set_keys(keys);
    }

    /// Takes a datagram, and returns the answer to send back, if it is to have one. Waits for the director.
    pub fn handle(&mut self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        match self.receiver.handle(datagram) {
            Received::Request(from, request) => {
                let answer = self.answer(request);
                Some(self.receiver.answer(from, answer))
            }
            Received::Reply(reply) => Some(reply),
            Received::Refused => None,
        }
    }

    /// The director's counts, as it published them last. To be called more often than heartbeats come.
    pub fn look(&mut self) -> Option<DirectorStatistics> {
        let statistics = self.steering.statistics(0)?;
        if statistics.heartbeats_received > self.heartbeats {
            self.heartbeats = statistics.heartbeats_received;
            self.heartbeat_seen = Some(clock::now());
        }
        Some(statistics)
    }

    /// The desired state that the director has in force.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.steering.generation().map(|generation| generation.0)
    }

    fn answer(&mut self, request: Request) -> Answer {
        let outcome = match request {
            Request::Query => Ok((0, 0)),
            Request::Apply {
                generation,
                targets,
            } => self.apply(generation, &targets),
        };
        let (status, outcome) = match (self.status(), outcome) {
            (Ok(status), outcome) => (status, outcome),
            // It cannot be asked: whatever was done before is not known to be in force.
            (Err(error), Ok(_)) => (Status::default(), Err(failed(&error))),
            (Err(_), Err(refused)) => (Status::default(), Err(refused)),
        };
        let outcome = match outcome {
            Ok((changed, moved_permille)) => Outcome::Done {
                changed,
                moved_permille,
            },
            Err(refused) => Outcome::Refused(refused),
        };
        Answer { outcome, status }
    }

    fn apply(
        &mut self,
        generation: u64,
        targets: &[DesiredTarget],
    ) -> Result<(u32, u16), RefusedCommand> {
        let mut named = Vec::new();
        for target in targets {
            let mut names = self.names.iter();
            let name = names.find(|name| HostNumber::of(name) == target.host);
            let name = name.ok_or(RefusedCommand::UnknownTarget(target.host))?;
            let standing = match target.drains {
                true => Standing::Drains,
                false => Standing::Takes,
            };
            let weight = target.weight;
            named.push((name.clone(), Target { weight, standing }));
        }
        let desired = Desired::new(Generation(generation), named)
            .map_err(|error| RefusedCommand::Failed(error.to_string()))?;
        let done = self.steering.apply(&desired);
        let done = done.map_err(|error| match error {
            SteeringError::Stale { known, .. } => RefusedCommand::Stale { known: known.0 },
            SteeringError::Contradicts(_) => RefusedCommand::Contradicts,
            error => failed(&error),
        })?;
        Ok((done.changed, done.moved_permille.unwrap_or(0)))
    }

    fn status(&mut self) -> Result<Status, SteeringError> {
        let observed = self.steering.observe()?;
        let Some(statistics) = self.look() else {
            return Err(SteeringError::Unreadable {
                what: "the packet loop".to_owned(),
                said: "it published nothing yet".to_owned(),
            });
        };
        let targets = observed.targets.iter().map(|target| TargetStatus {
            host: HostNumber::of(&target.name),
            share_permille: target.share_permille,
            is_reachable: !target.link_down,
        });
        let is_late = |seen: Instant| seen.elapsed() > self.takeover_after;
        Ok(Status {
            generation: self.generation(),
            is_active: statistics.active_now != 0,
            hears_other: self.heartbeat_seen.is_some_and(|seen| !is_late(seen)),
            table: statistics.table_digest_now,
            elsewhere_permille: observed.elsewhere_permille,
            forwarded: statistics.forwarded,
            dropped: statistics.dropped_total(),
            targets: targets.collect(),
        })
    }
}

fn failed(error: &SteeringError) -> RefusedCommand {
    RefusedCommand::Failed(error.to_string())
}
