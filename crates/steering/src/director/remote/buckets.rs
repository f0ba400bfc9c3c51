//! Moved buckets, moved and suspended flows, and the packets of buckets.
//!
//! The driver has the set of moved buckets that both directors are to have. A director that lacks it is handed the whole set: at a
//! move, with a desired state, and after it was started again.

use std::time::{Duration, Instant};

use asterism_director::table::{BUCKETS_MAX, Share, Slot, Table};
use asterism_director_control::{
    Answer, Flow, HostNumber, Moves, MovesPart, MovesParts, Outcome, PARTS_MAX, Request, Status,
    Suspended as Waiting,
};

use super::{MOVES_TIME_MAX, RemoteDirectorSteering};
use crate::clock;
use crate::director::moves::{check_taker, no_bucket, nothing_in_force};
use crate::director::{SteeredFlow, Suspended};
use crate::mutant::{self, Mutant};
use crate::{BucketCount, Buckets, Desired, Standing, SteeringError};

const _: () = assert!(BUCKETS_MAX == asterism_director_control::BUCKETS_MAX);

/// A set of moved buckets that fits datagrams.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    moves: Moves,
    pub(super) digest: u64,
    parts: Vec<MovesPart>,
}

impl Moved {
    /// An error if the set is too scattered.
    fn new(moves: Moves) -> Result<Moved, SteeringError> {
        let parts = moves.parts().ok_or_else(|| SteeringError::Refused {
            what: "a move of more buckets".to_owned(),
            said: format!("the moved buckets would need more than {PARTS_MAX} datagrams: move neighbouring ones"),
        })?;
        Ok(Moved {
            digest: moves.digest(),
            moves,
            parts,
        })
    }

    /// What a director that has the desired state lacks of the set, after an answer: a request, and the number of its part.
    pub(super) fn missing(
        &self,
        status: &Status,
        generation: u64,
        handed: Option<usize>,
        answer: &Answer,
    ) -> Option<(Request, Option<usize>)> {
        if status.moves == self.digest || mutant::active(Mutant::RestartedLacksMoves) {
            return None;
        }
        let taken = handed.filter(|_| matches!(answer.outcome, Outcome::Done { .. }));
        let next = taken.map_or(0, |part| part + 1);
        // All were taken, and it has another set yet: from the beginning.
        let next = if next < self.parts.len() { next } else { 0 };
        let part = self.parts.get(next)?.clone();
        Some((Request::Move { generation, part }, Some(next)))
    }
}

impl RemoteDirectorSteering {
    /// Hands the moves to directors that lack them; those that are in force, if they are not known: how many buckets changed.
    pub(super) fn settle_moves(
        &mut self,
        desired: &Desired,
        answers: &[Option<Answer>],
    ) -> Result<u32, SteeringError> {
        let moved = match self.moved.take() {
            Some(moved) => moved,
            None if mutant::active(Mutant::NewLeaderForgetsMoves) => Moved::new(Moves::default())?,
            None => Moved::new(self.moves_in_force(answers)?)?,
        };
        let digest = self.moved.insert(moved).digest;
        let both = self.directors.iter().zip(answers);
        let mut answered = both.filter(|(_, answer)| answer.is_some());
        match answered.any(|(director, _)| director.status.moves != digest) {
            true => self.hand_over(desired),
            false => Ok(0),
        }
    }

    /// The moves that the active director has, or the one that has some while none is active.
    fn moves_in_force(&mut self, answers: &[Option<Answer>]) -> Result<Moves, SteeringError> {
        let both = self.directors.iter().zip(answers).enumerate();
        let answered = both.filter(|(_, (_, answer))| answer.is_some());
        let rank = |(_, (director, _)): &(usize, (&super::Remote, _))| {
            (director.status.is_active, director.status.moves != 0)
        };
        let Some((place, (director, _))) = answered.max_by_key(rank) else {
            return Ok(Moves::default());
        };
        if director.status.moves == 0 {
            return Ok(Moves::default());
        }
        let name = director.name.clone();
        let started = clock::now();
        let mut parts = MovesParts::default();
        let mut next = 0;
        loop {
            let answer = self.exchange_with(place, &Request::Moved { part: next });
            match answer.map(|answer| answer.outcome) {
                Some(Outcome::Moved(part)) => match parts.take(&part) {
                    Ok(Some(moves)) => return Ok(moves),
                    Ok(None) => next += 1,
                    // The set is another one meanwhile.
                    Err(_) => next = 0,
                },
                Some(_) => next = 0,
                // Lost: again.
                None => {}
            }
            if started.elapsed() > MOVES_TIME_MAX {
                return Err(timed_out(
                    format!("the moved buckets at the director {name}"),
                    started,
                ));
            }
        }
    }

    /// Hands the whole set of moved buckets to all directors, until each that answers has it: how many buckets changed.
    fn hand_over(&mut self, desired: &Desired) -> Result<u32, SteeringError> {
        let Some(moved) = self.moved.clone() else {
            return Ok(0);
        };
        let generation = desired.generation().0;
        let started = clock::now();
        let mut changed = 0;
        loop {
            let mut answers = Vec::new();
            for part in &moved.parts {
                let part = part.clone();
                answers = self.exchange(&Request::Move { generation, part });
                let (more, _) = self.judge(&answers, "moved buckets")?;
                changed = changed.max(more);
                if started.elapsed() > MOVES_TIME_MAX {
                    return Err(timed_out(
                        "moved buckets at the directors".to_owned(),
                        started,
                    ));
                }
            }
            let both = self.directors.iter().zip(&answers);
            let mut answered = both.filter(|(_, answer)| answer.is_some());
            if answered.all(|(director, _)| director.status.moves == moved.digest) {
                self.compare_tables(&answers)?;
                return Ok(changed);
            }
        }
    }

    /// The desired state that the directors have.
    fn in_force(&self) -> Result<Desired, SteeringError> {
        let begun = self.applied.begun().filter(|_| self.applied.is_finished());
        begun.cloned().ok_or_else(nothing_in_force)
    }

    fn check_target(&self, desired: &Desired, to: &str) -> Result<(), SteeringError> {
        if !self.targets.iter().any(|name| name == to) {
            return Err(SteeringError::UnknownTarget(to.to_owned()));
        }
        check_taker(desired, to)
    }

    /// Has all directors do something in the desired state that they have.
    fn command(
        &mut self,
        what: &str,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<(), SteeringError> {
        let generation = self.in_force()?.generation().0;
        let answers = self.exchange(&request(generation));
        self.judge(&answers, what)?;
        Ok(())
    }

    /// The table that the directors are to have.
    fn expected(&mut self) -> Result<&Table, SteeringError> {
        let desired = self.in_force()?;
        let moved = self.moved.as_ref().ok_or_else(nothing_in_force)?;
        let is_it = |(generation, digest, _): &(_, _, _)| {
            *generation == desired.generation() && *digest == moved.digest
        };
        let known = self.table.take().filter(is_it);
        let (generation, digest, table) = known.unwrap_or_else(|| {
            let table = self.table_of(&desired, &moved.moves);
            (desired.generation(), moved.digest, table)
        });
        let (.., table) = self.table.insert((generation, digest, table));
        Ok(table)
    }

    /// The table of a desired state, as directors make it.
    fn table_of(&self, desired: &Desired, moves: &Moves) -> Table {
        let slots = self.targets.iter().enumerate();
        let slots = slots.filter_map(|(place, name)| Some((name.as_str(), Slot::new(place)?)));
        let shares = |standing: Standing| -> Vec<Share<'_>> {
            let named = slots.clone().filter_map(|(name, slot)| {
                let mut targets = desired.targets();
                let (_, target) = targets.find(|(known, _)| *known == name)?;
                (target.standing == standing).then_some(Share {
                    slot,
                    name,
                    weight: target.weight,
                })
            });
            named.collect()
        };
        let numbers: Vec<(HostNumber, Slot)> = slots
            .clone()
            .map(|(name, slot)| (HostNumber::of(name), slot))
            .collect();
        let moved = moves.iter().filter_map(|(bucket, host)| {
            let (_, slot) = numbers.iter().find(|(number, _)| *number == host)?;
            Some((u32::from(bucket), *slot))
        });
        Table::new(
            self.space,
            &shares(Standing::Takes),
            &shares(Standing::Drains),
            &moved.collect(),
        )
    }

    /// The packets of each bucket at a director since they were counted last; `None` if that is not known.
    fn counts_at(&mut self, place: usize) -> Result<Option<Vec<u32>>, SteeringError> {
        let started = clock::now();
        let number = self.taking;
        let name = self.directors[place].name.clone();
        let what = || format!("packets of buckets at the director {name}");
        let mut counts: Vec<u32> = Vec::new();
        let buckets = self.space.buckets() as usize;
        while counts.len() < buckets {
            let from = counts.len() as u32;
            let answer = self.exchange_with(place, &Request::Counts { number, from });
            match answer.map(|answer| answer.outcome) {
                Some(Outcome::Counts(part))
                    if (part.number, part.from) == (number, from)
                        && part.buckets as usize == buckets =>
                {
                    counts.extend(part.counts);
                }
                Some(Outcome::Refused(refused)) => {
                    let director = &self.directors[place];
                    return Err(self.refusal(director, "packets of buckets", &refused));
                }
                Some(_) => return Err(self.spreads_otherwise(place)),
                None => return Err(timed_out(what(), started)),
            }
            if started.elapsed() > MOVES_TIME_MAX {
                return Err(timed_out(what(), started));
            }
        }
        let was_counted = std::mem::replace(&mut self.directors[place].was_counted, true);
        Ok(was_counted.then_some(counts))
    }

    fn spreads_otherwise(&self, place: usize) -> SteeringError {
        SteeringError::Refused {
            what: format!("packets of buckets at the director {}", self.directors[place].name),
            said: "it spreads otherwise than this orchestrator: give all the same configuration and version"
                .to_owned(),
        }
    }
}

fn timed_out(what: String, started: Instant) -> SteeringError {
    SteeringError::TimedOut {
        what,
        waited: started.elapsed(),
    }
}

fn of_flow(flow: &SteeredFlow) -> Result<Flow, SteeringError> {
    let SteeredFlow {
        one,
        other,
        protocol,
    } = *flow;
    if one.is_ipv4() != other.is_ipv4() {
        return Err(SteeringError::Refused {
            what: format!("the flow from {one} to {other}"),
            said: "its ends have addresses of different kinds".to_owned(),
        });
    }
    Ok(Flow {
        one,
        other,
        protocol,
    })
}

fn of_suspended(what: &Suspended) -> Result<Waiting, SteeringError> {
    Ok(match what {
        Suspended::Bucket(bucket) => Waiting::Bucket(*bucket),
        Suspended::Flow(flow) => Waiting::Flow(of_flow(flow)?),
    })
}

/// Packets of both directors: a standby forwards what reaches it too. Moves, and flows that are moved or suspended, are those of both.
impl Buckets for RemoteDirectorSteering {
    fn count(&self) -> u32 {
        self.space.buckets()
    }

    fn take_counts(&mut self) -> Result<Vec<BucketCount>, SteeringError> {
        let expected = self.expected()?.digest();
        self.taking = self.taking.wrapping_add(1);
        let mut packets = vec![0_u64; self.space.buckets() as usize];
        let generation = self.in_force()?.generation().0;
        let moves = self.moved.as_ref().map(|moved| moved.digest);
        let mut is_counted = false;
        for place in 0..self.directors.len() {
            let director = &mut self.directors[place];
            let status = &director.status;
            let has_state = status.generation == Some(generation) && Some(status.moves) == moves;
            if director.is_silent() || !has_state {
                director.was_counted = false;
                continue;
            }
            if status.table != expected {
                return Err(self.spreads_otherwise(place));
            }
            is_counted = true;
            let counts = self.counts_at(place)?.unwrap_or_default();
            for (sum, count) in packets.iter_mut().zip(counts) {
                *sum += u64::from(count);
            }
        }
        if !is_counted {
            return Err(SteeringError::Unreachable {
                what: "the packets of buckets".to_owned(),
                said: "no director that answers has the desired state".to_owned(),
            });
        }
        let targets = self.targets.clone();
        let table = self.expected()?;
        let counts = (0..).zip(packets).filter_map(|(bucket, packets)| {
            let target = targets.get(table.target(bucket)?.number())?;
            Some(BucketCount {
                bucket,
                target: target.clone(),
                packets,
            })
        });
        Ok(counts.collect())
    }

    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), SteeringError> {
        let desired = self.in_force()?;
        self.check_target(&desired, to)?;
        let count = self.space.buckets();
        if let Some(bucket) = buckets.iter().find(|bucket| **bucket >= count) {
            return Err(no_bucket(*bucket, count));
        }
        let before = self.moved.clone();
        let mut moves = before
            .as_ref()
            .map_or_else(Moves::default, |one| one.moves.clone());
        for bucket in buckets
            .iter()
            .filter_map(|bucket| u16::try_from(*bucket).ok())
        {
            moves.insert(bucket, HostNumber::of(to));
        }
        self.moved = Some(Moved::new(moves)?);
        let handed = self.hand_over(&desired);
        // What a director may have taken is to be had by both; what was refused by none.
        let is_refused = |error: &SteeringError| {
            error.is_refusal() || matches!(error, SteeringError::Refused { .. })
        };
        if handed.as_ref().is_err_and(is_refused) {
            self.moved = before;
        }
        handed.map(|_| ())
    }

    fn move_flow(
        &mut self,
        flow: &SteeredFlow,
        to: &str,
        idle: Duration,
    ) -> Result<(), SteeringError> {
        self.check_target(&self.in_force()?, to)?;
        let flow = of_flow(flow)?;
        self.command("a moved flow", |generation| Request::MoveFlow {
            generation,
            flow,
            to: HostNumber::of(to),
            idle_ms: u32::try_from(idle.as_millis()).unwrap_or(u32::MAX),
        })
    }

    fn suspend(&mut self, what: &Suspended) -> Result<(), SteeringError> {
        let what = of_suspended(what)?;
        self.command("a suspension", |generation| Request::Suspend {
            generation,
            what,
        })
    }

    fn resume(&mut self, what: &Suspended, to: Option<&str>) -> Result<(), SteeringError> {
        let waiting = of_suspended(what)?;
        if let (Suspended::Bucket(bucket), Some(to)) = (what, to) {
            self.move_buckets(&[*bucket], to)?;
        } else if let Some(to) = to {
            self.check_target(&self.in_force()?, to)?;
        }
        let to = to.filter(|_| matches!(what, Suspended::Flow(_)));
        self.command("the end of a suspension", |generation| Request::Resume {
            generation,
            what: waiting,
            to: to.map(HostNumber::of),
        })
    }
}
