//! A director's side: does what orchestrators command, and answers with the status.

use std::time::{Duration, Instant};

use asterism_director::DirectorStatistics;
use asterism_director_control::{
    Answer, CountsPart, DesiredTarget, Flow, HostNumber, Moves, MovesPart, MovesParts, Outcome,
    PartError, Received, Receiver, RefusedCommand, Request, Status, Suspended as Waiting,
    TargetStatus,
};
use asterism_secure_channel::KeyRing;

use crate::clock;
use crate::director::{DirectorSteering, SteeredFlow, Suspended};
use crate::mutant::{self, Mutant};
use crate::{Buckets, Desired, Generation, Standing, Steering, SteeringError, Target};

/// A director that takes commands.
#[derive(Debug)]
pub struct ServedDirector {
    steering: DirectorSteering,
    receiver: Receiver,
    /// Its hosts: the number and the name of each.
    hosts: Vec<(HostNumber, String)>,
    /// After so long without a heartbeat of the other director, that one is not heard.
    takeover_after: Duration,
    /// The heartbeats that the director had received, and when the last one was seen.
    heartbeats: u64,
    heartbeat_seen: Option<Instant>,
    /// The digest of the moved buckets that the director has, and their parts.
    moves: (u64, Vec<MovesPart>),
    /// Parts of a set that is not whole yet.
    arriving: MovesParts,
    /// Counts that were taken last, and the number under which they were.
    counts: Option<(u64, Box<[u32]>)>,
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
            hosts: names
                .into_iter()
                .map(|name| (HostNumber::of(&name), name))
                .collect(),
            takeover_after,
            heartbeats: 0,
            heartbeat_seen: None,
            moves: (0, Vec::new()),
            arriving: MovesParts::default(),
            counts: None,
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
            Request::Query => Ok(done(0)),
            Request::Apply {
                generation,
                targets,
            } => self.apply(generation, &targets),
            Request::Move { generation, part } => self.take_moves(generation, &part),
            Request::MoveFlow {
                generation,
                flow,
                to,
                idle_ms,
            } => {
                let idle = Duration::from_millis(idle_ms.into());
                self.in_state(generation, Some(to), |steering, to| {
                    steering.move_flow(&of_flow(flow), to.unwrap_or_default(), idle)
                })
            }
            Request::Suspend { generation, what } => {
                self.in_state(generation, None, |steering, _| {
                    Buckets::suspend(steering, &of_suspended(what))
                })
            }
            Request::Resume {
                generation,
                what,
                to,
            } => self.in_state(generation, to, |steering, to| match what {
                // Its host follows from the moves, which an orchestrator knows.
                Waiting::Bucket(_) if to.is_some() => Err(SteeringError::Refused {
                    what: "a bucket that goes on elsewhere".to_owned(),
                    said: "it is moved first".to_owned(),
                }),
                what => Buckets::resume(steering, &of_suspended(what), to),
            }),
            Request::Moved { part } => self.moved(part),
            Request::Counts { number, from } => self.counts(number, from),
        };
        if let Ok(outcome @ (Outcome::Counts(_) | Outcome::Moved(_))) = outcome {
            let status = None;
            return Answer { outcome, status };
        }
        let (status, outcome) = match (self.status(), outcome) {
            (Ok(status), outcome) => (status, outcome),
            // It cannot be asked: whatever was done before is not known to be in force.
            (Err(error), Ok(_)) => (Status::default(), Err(failed(&error))),
            (Err(_), Err(refused)) => (Status::default(), Err(refused)),
        };
        Answer {
            outcome: outcome.unwrap_or_else(Outcome::Refused),
            status: Some(status),
        }
    }

    /// An error unless this is the desired state in force: moves of an orchestrator that was replaced do not count, nor any in a
    /// state that the director has not.
    fn check_state(&self, generation: u64) -> Result<(), RefusedCommand> {
        match self.generation() {
            Some(known) if known == generation => Ok(()),
            Some(known) if generation < known => match mutant::active(Mutant::EarlierMoveTaken) {
                true => Ok(()),
                false => Err(RefusedCommand::Stale { known }),
            },
            known => Err(RefusedCommand::LacksState { known }),
        }
    }

    /// Does something with the director in a desired state.
    fn in_state(
        &mut self,
        generation: u64,
        to: Option<HostNumber>,
        act: impl FnOnce(&mut DirectorSteering, Option<&str>) -> Result<(), SteeringError>,
    ) -> Result<Outcome, RefusedCommand> {
        self.check_state(generation)?;
        let to = to
            .map(|host| name_of(&self.hosts, host).map(str::to_owned))
            .transpose()?;
        act(&mut self.steering, to.as_deref()).map_err(|error| failed(&error))?;
        Ok(done(1))
    }

    fn take_moves(&mut self, generation: u64, part: &MovesPart) -> Result<Outcome, RefusedCommand> {
        self.check_state(generation)?;
        let buckets = self.steering.count();
        for range in &part.ranges {
            name_of(&self.hosts, range.host)?;
            if u32::from(range.last) >= buckets {
                return Err(RefusedCommand::NoBucket { buckets });
            }
        }
        let moves = self.arriving.take(part).map_err(|error| match error {
            PartError::OutOfOrder => RefusedCommand::OutOfOrder,
            error => RefusedCommand::Failed(error.to_string()),
        })?;
        let Some(moves) = moves.filter(|_| self.moves.0 != part.set) else {
            return Ok(done(0));
        };
        let mut named = Vec::new();
        for (bucket, host) in moves.iter() {
            named.push((u32::from(bucket), name_of(&self.hosts, host)?));
        }
        let changed = self.steering.set_moves(named);
        self.note_moves();
        let changed = changed.map_err(|error| failed(&error))?;
        Ok(done(changed))
    }

    fn note_moves(&mut self) {
        let mut moves = Moves::default();
        for (bucket, name) in self.steering.moves() {
            let host = self.hosts.iter().find(|(_, known)| known == name);
            // Buckets have 16 bits.
            if let (Some((host, _)), Ok(bucket)) = (host, u16::try_from(bucket)) {
                moves.insert(bucket, *host);
            }
        }
        // Those that came in parts fit parts.
        self.moves = (moves.digest(), moves.parts().unwrap_or_default());
    }

    fn moved(&self, part: u16) -> Result<Outcome, RefusedCommand> {
        let part = self.moves.1.get(usize::from(part)).cloned();
        part.map(Outcome::Moved).ok_or(RefusedCommand::OutOfOrder)
    }

    fn counts(&mut self, number: u64, from: u32) -> Result<Outcome, RefusedCommand> {
        let is_lost = from == 0 && mutant::active(Mutant::CountsLost);
        let is_known = |(known, _): &&(u64, _)| *known == number && !is_lost;
        if self.counts.as_ref().filter(is_known).is_none() {
            // A part of a taking that is forgotten must not begin another one.
            if from != 0 {
                return Err(RefusedCommand::OutOfOrder);
            }
            let counts = self.steering.take_loads(0);
            let counts = counts.map_err(|error| failed(&error.into()))?;
            self.counts = Some((number, counts));
        }
        let counts = self.counts.as_ref().map_or(&[][..], |(_, counts)| counts);
        let buckets = self.steering.count();
        let part = CountsPart::of(number, counts, from);
        part.map(Outcome::Counts)
            .ok_or(RefusedCommand::NoBucket { buckets })
    }

    fn apply(
        &mut self,
        generation: u64,
        targets: &[DesiredTarget],
    ) -> Result<Outcome, RefusedCommand> {
        let mut named = Vec::new();
        for target in targets {
            let name = name_of(&self.hosts, target.host)?;
            let standing = match target.drains {
                true => Standing::Drains,
                false => Standing::Takes,
            };
            let weight = target.weight;
            named.push((name.to_owned(), Target { weight, standing }));
        }
        let desired = Desired::new(Generation(generation), named)
            .map_err(|error| RefusedCommand::Failed(error.to_string()))?;
        let done = self.steering.apply(&desired);
        self.note_moves();
        let done = done.map_err(|error| match error {
            SteeringError::Stale { known, .. } => RefusedCommand::Stale { known: known.0 },
            SteeringError::Contradicts(_) => RefusedCommand::Contradicts,
            error => failed(&error),
        })?;
        Ok(Outcome::Done {
            changed: done.changed,
            moved_permille: done.moved_permille.unwrap_or(0),
        })
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
            moves: self.moves.0,
            refused: self.receiver.refused(),
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

fn name_of(hosts: &[(HostNumber, String)], host: HostNumber) -> Result<&str, RefusedCommand> {
    let found = hosts.iter().find(|(number, _)| *number == host);
    let found = found.map(|(_, name)| name.as_str());
    found.ok_or(RefusedCommand::UnknownTarget(host))
}

fn done(changed: u32) -> Outcome {
    Outcome::Done {
        changed,
        moved_permille: 0,
    }
}

fn of_flow(flow: Flow) -> SteeredFlow {
    let Flow {
        one,
        other,
        protocol,
    } = flow;
    SteeredFlow {
        one,
        other,
        protocol,
    }
}

fn of_suspended(what: Waiting) -> Suspended {
    match what {
        Waiting::Bucket(bucket) => Suspended::Bucket(bucket),
        Waiting::Flow(flow) => Suspended::Flow(of_flow(flow)),
    }
}
