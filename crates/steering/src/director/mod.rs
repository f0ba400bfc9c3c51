//! The built-in director: its driver in this process; `remote/` commands directors on other machines.
//!
//! One driver commands one director, or the two of a pair: both get every table, exception and suspension, so that either can go
//! on alone. The driver makes each table, and a director takes it between two bursts; a call returns when every director has
//! answered. Beyond [`Steering`] the driver moves single buckets, pins single flows, and suspends and resumes both.
//!
//! A moved bucket is its target's in all later desired states in which that target takes or drains; in others it goes where the weights
//! say, so that a host that was suspected for a moment has its moved buckets afterwards. The driver remembers moves, as it does
//! the generation, for its own incarnation only.
//!
//! `moves.rs` has moved buckets and their counts, `error.rs` the errors of the methods beyond the trait.

mod error;
mod moves;
pub mod remote;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use asterism_director::table::{BucketSpace, Share, Slot, TARGETS_MAX, Table};
use asterism_director::{
    Command, Control, ControlError, DirectorStatistics, Done, FlowKey, Host, Suspend,
};

pub use self::error::DirectorError;
use super::{
    Abilities, Buckets, Counts, Desired, Generation, InForce, Observed, ObservedTarget, Standing,
    Steering, SteeringError,
};
use crate::clock;

/// How long a director may take to answer a command: it takes one a turn, and an idle one turns once a millisecond.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Directors of a driver at most.
pub const DIRECTORS_MAX: usize = 2;
/// How long the driver sleeps before it looks for an answer again.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// A single flow: both directions of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SteeredFlow {
    /// One end.
    pub one: SocketAddr,
    /// The other end.
    pub other: SocketAddr,
    /// The IP protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
}

impl SteeredFlow {
    fn key(&self) -> FlowKey {
        let (one, other) = (self.one, self.other);
        FlowKey::between(
            (one.ip(), one.port()),
            (other.ip(), other.port()),
            self.protocol,
        )
    }
}

/// What can be suspended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suspended {
    /// A bucket of the flow space.
    Bucket(u32),
    /// A single flow.
    Flow(SteeredFlow),
}

impl Suspended {
    fn what(&self) -> Suspend {
        match self {
            Suspended::Bucket(bucket) => Suspend::Bucket(*bucket),
            Suspended::Flow(flow) => Suspend::Flow(flow.key()),
        }
    }
}

/// The driver.
pub struct DirectorSteering {
    space: BucketSpace,
    directors: Vec<Control>,
    /// Directors that have ended, and were left out.
    ended: u64,
    /// By slot.
    hosts: Vec<Option<(String, Host)>>,
    /// Buckets that were moved one by one.
    moved: BTreeMap<u32, Slot>,
    /// What every director has, if all commands were done.
    table: Table,
    /// What was begun last, whether or not it came to its end.
    begun: Option<Desired>,
    /// Whether it did.
    is_applied: bool,
    counts: Counts,
}

impl fmt::Debug for DirectorSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectorSteering")
            .field("directors", &self.directors.len())
            .field("hosts", &self.hosts.iter().flatten().count())
            .field("moved", &self.moved)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl DirectorSteering {
    /// A driver of these directors, at most [`DIRECTORS_MAX`], which divide the flow space as `space` says. Touches nothing
    /// yet. Dropped, it leaves the directors as they are.
    #[must_use]
    pub fn new(space: BucketSpace, directors: Vec<Control>) -> DirectorSteering {
        let mut directors = directors;
        directors.truncate(DIRECTORS_MAX);
        DirectorSteering {
            space,
            directors,
            ended: 0,
            hosts: vec![None; TARGETS_MAX],
            moved: BTreeMap::new(),
            table: Table::empty(space),
            begun: None,
            is_applied: false,
            counts: Counts::default(),
        }
    }

    /// Takes a director that was started in the place of one that ended, and gives it the hosts and the table in force, but none of
    /// the pins and suspensions. Waits for it.
    ///
    /// # Errors
    /// [`DirectorError`]: it has what was given before the error, and gets the rest when a state is applied again.
    pub fn add_director(&mut self, director: Control) -> Result<(), DirectorError> {
        if self.directors.len() >= DIRECTORS_MAX {
            return Err(DirectorError::TooManyDirectors);
        }
        let number = self.directors.len();
        self.directors.push(director);
        for place in 0..self.hosts.len() {
            let host = self.hosts[place].as_ref().map(|(_, host)| *host);
            if let (Some(slot), Some(host)) = (Slot::new(place), host) {
                self.command(number, Command::SetHost { slot, host })?;
            }
        }
        self.command(number, Command::Table(Box::new(self.table.clone())))?;
        Ok(())
    }

    /// Directors that are commanded, and those that have ended since the driver was made.
    #[must_use]
    pub fn directors(&self) -> (usize, u64) {
        (self.directors.len(), self.ended)
    }

    /// Makes a host known that may be a target, or changes how it is reached. It gets no packets by that. Waits for the
    /// directors.
    ///
    /// # Errors
    /// [`DirectorError`]; do it again.
    pub fn set_host(&mut self, name: &str, host: Host) -> Result<(), DirectorError> {
        let place = match self.slot_of(name) {
            Ok(slot) => Some(slot.number()),
            Err(_) => self.hosts.iter().position(Option::is_none),
        };
        let slot = place.and_then(Slot::new);
        let slot = slot.ok_or(DirectorError::TooManyHosts(TARGETS_MAX))?;
        self.hosts[slot.number()] = Some((name.to_owned(), host));
        self.command_all(|| Command::SetHost { slot, host })?;
        Ok(())
    }

    /// Forgets a host. Apply a state without it first: packets of buckets that it still has are dropped. Waits for the directors.
    ///
    /// # Errors
    /// [`DirectorError`]; do it again.
    pub fn remove_host(&mut self, name: &str) -> Result<(), DirectorError> {
        let slot = self.slot_of(name)?;
        self.command_all(|| Command::RemoveHost(slot))?;
        self.hosts[slot.number()] = None;
        self.moved.retain(|_, to| *to != slot);
        Ok(())
    }

    /// Sends both directions of a flow to a target until it idles for so long. Waits for the directors.
    ///
    /// # Errors
    /// [`DirectorError`]; do it again.
    pub fn pin(
        &mut self,
        flow: &SteeredFlow,
        to: &str,
        idle: Duration,
    ) -> Result<(), DirectorError> {
        let (flow, to) = (flow.key(), self.slot_of(to)?);
        self.command_all(|| Command::Pin { flow, to, idle })?;
        Ok(())
    }

    /// Sends a pinned flow by its bucket again. Waits for the directors.
    ///
    /// # Errors
    /// [`DirectorError`]; do it again.
    pub fn unpin(&mut self, flow: &SteeredFlow) -> Result<(), DirectorError> {
        let flow = flow.key();
        self.command_all(|| Command::Unpin(flow))?;
        Ok(())
    }

    /// Lets the packets of a bucket or a flow wait in the directors, within their bounds, until it is resumed: no instance gets one
    /// from the moment at which this returns (Split/Merge §3.2). Waits for the directors.
    ///
    /// # Errors
    /// [`DirectorError`]; suspend it again, or resume it.
    pub fn suspend(&mut self, what: &Suspended) -> Result<(), DirectorError> {
        let what = what.what();
        self.command_all(|| Command::Suspend(what))?;
        Ok(())
    }

    /// Lets the packets of a bucket or a flow go on, in order, to `to`; of a bucket also to the target that it has. The bucket
    /// stays moved, the flow pinned. Waits for the directors, not for the last packet.
    ///
    /// # Errors
    /// [`DirectorError`]: also when the suspension ended by age in a director.
    pub fn resume(&mut self, what: &Suspended, to: Option<&str>) -> Result<(), DirectorError> {
        let to = to.map(|name| self.slot_of(name)).transpose()?;
        let suspended = what.what();
        self.command_all(|| Command::Resume {
            what: suspended,
            to,
        })?;
        if let (Suspended::Bucket(bucket), Some(to)) = (what, to) {
            self.moved.insert(*bucket, to);
            self.table.move_bucket(*bucket, to);
        }
        Ok(())
    }

    /// The desired state that the directors have in force; `None` before the first.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        let begun = self.begun.as_ref().filter(|_| self.is_applied);
        begun.map(Desired::generation)
    }

    /// What a director counted, as it published it last; `None` before the first time, and of a director that there is not.
    #[must_use]
    pub fn statistics(&self, director: usize) -> Option<DirectorStatistics> {
        self.directors.get(director)?.statistics()
    }

    fn slot_of(&self, name: &str) -> Result<Slot, DirectorError> {
        let is_it = |host: &Option<(String, Host)>| host.as_ref().is_some_and(|one| one.0 == name);
        let place = self.hosts.iter().position(is_it);
        place
            .and_then(Slot::new)
            .ok_or_else(|| DirectorError::UnknownTarget(name.to_owned()))
    }

    /// Has every director do a command, one after the other, also if one before it did not; whether any of them changed. Of two, one
    /// that has ended is left out from then on: the other goes on alone.
    fn command_all(&mut self, make: impl Fn() -> Command) -> Result<bool, DirectorError> {
        let mut has_changed = false;
        let mut failed = None;
        let mut gone = Vec::new();
        for director in 0..self.directors.len() {
            match self.command(director, make()) {
                Ok(changed) => has_changed |= changed,
                Err(error @ DirectorError::Gone { .. }) => gone.push((director, error)),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        if gone.len() < self.directors.len() {
            for (director, _) in gone.drain(..).rev() {
                self.directors.remove(director);
                self.ended += 1;
            }
        }
        match failed.or(gone.pop().map(|(_, error)| error)) {
            Some(error) => Err(error),
            None => Ok(has_changed),
        }
    }

    fn command(&mut self, director: usize, command: Command) -> Result<bool, DirectorError> {
        let done = self.answer_of(director, command)?;
        Ok(matches!(done, Done::Changed | Done::Replaced(_)))
    }

    /// The packets of each bucket in a director since this was asked last.
    pub(super) fn take_loads(&mut self, director: usize) -> Result<Box<[u32]>, DirectorError> {
        let zeros = vec![0; self.space.buckets() as usize].into();
        match self.answer_of(director, Command::TakeCounts(zeros))? {
            Done::Counts(counts) => Ok(counts),
            _ => Ok(Box::default()),
        }
    }

    /// Has a director do a command, and waits for what it has brought about.
    fn answer_of(&mut self, director: usize, command: Command) -> Result<Done, DirectorError> {
        let Some(control) = self.directors.get_mut(director) else {
            return Ok(Done::Unchanged);
        };
        let unreachable = |error| match error {
            ControlError::Gone => DirectorError::Gone { director },
            ControlError::Full => DirectorError::Full { director },
        };
        let number = control.send(command).map_err(unreachable)?;
        let started = clock::now();
        loop {
            match control.poll().map_err(unreachable)? {
                Some(answer) if answer.number == number => {
                    let refused = |error| DirectorError::Refused { director, error };
                    return answer.result.map_err(refused);
                }
                // Of a command that was given up.
                Some(_) => {}
                None if started.elapsed() > ANSWER_TIME_MAX => {
                    return Err(DirectorError::TimedOut {
                        director,
                        waited: started.elapsed(),
                    });
                }
                None => std::thread::park_timeout(LOOK_AGAIN),
            }
        }
    }

    /// Refuses what cannot or must not be applied; else the table that it means.
    fn table_of(&self, desired: &Desired) -> Result<Table, SteeringError> {
        if let Some(begun) = &self.begun {
            let (offered, known) = (desired.generation(), begun.generation());
            if offered < known {
                return Err(SteeringError::Stale { offered, known });
            }
            if offered == known && desired != begun {
                return Err(SteeringError::Contradicts(offered));
            }
        }
        let shares = |standing: Standing| -> Result<Vec<Share<'_>>, SteeringError> {
            let targets = desired.targets();
            let mut shares = Vec::new();
            for (name, target) in targets.filter(|(_, target)| target.standing == standing) {
                shares.push(Share {
                    slot: self.slot_of(name)?,
                    name,
                    weight: target.weight,
                });
            }
            Ok(shares)
        };
        let (takers, drainers) = (shares(Standing::Takes)?, shares(Standing::Drains)?);
        Ok(Table::new(self.space, &takers, &drainers, &self.moved))
    }

    /// Fresh statistics of every director.
    fn look(&mut self) -> Result<Vec<DirectorStatistics>, SteeringError> {
        self.command_all(|| Command::Publish)?;
        let read = |(director, control): (usize, &Control)| {
            control
                .statistics()
                .ok_or_else(|| SteeringError::Unreadable {
                    what: format!("director {director}"),
                    said: "it published statistics of another form".to_owned(),
                })
        };
        self.directors.iter().enumerate().map(read).collect()
    }

    /// Brings it about in every director that has another table: how many buckets were changed in the one with the most.
    fn bring_about(&mut self, table: &Table) -> Result<u32, SteeringError> {
        let present = self.look()?;
        let mut changed = 0;
        for (director, statistics) in present.iter().enumerate() {
            if statistics.table_digest_now == table.digest() {
                continue;
            }
            self.command(director, Command::Table(Box::new(table.clone())))?;
            // One that was not as this driver left it: how much differed is not known, but that something did.
            changed = changed.max(table.differences(&self.table)).max(1);
        }
        Ok(changed)
    }

    fn permille(&self, buckets: u64) -> u16 {
        u16::try_from(buckets * 1_000 / u64::from(self.space.buckets())).unwrap_or(1_000)
    }
}

impl Steering for DirectorSteering {
    /// A draining target keeps its TCP connections, which show their beginning. Flows of other protocols show none, and go
    /// to the others at once.
    fn abilities(&self) -> Abilities {
        Abilities {
            keeps_flows: true,
            moves_least: true,
            waits_max: 2 * ANSWER_TIME_MAX * DIRECTORS_MAX as u32,
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        let started = clock::now();
        let table = self
            .table_of(desired)
            .inspect_err(|_| self.counts.refused += 1)?;
        let was_applied = self.is_applied && self.begun.as_ref() == Some(desired);
        // From here on an older state is refused, even if this one fails half way.
        self.begun = Some(desired.clone());
        self.is_applied = false;
        let changed = self
            .bring_about(&table)
            .inspect_err(|_| self.counts.failed += 1)?;
        let moved = self.permille(u64::from(table.differences(&self.table)));
        self.table = table;
        self.is_applied = true;
        self.counts.applied += 1;
        self.counts.changed += u64::from(changed);
        self.counts.repaired += u64::from(was_applied && changed > 0);
        Ok(InForce {
            generation: desired.generation(),
            changed,
            moved_permille: Some(moved),
            took: started.elapsed(),
        })
    }

    fn observe(&mut self) -> Result<Observed, SteeringError> {
        let present = self.look()?;
        let mut observed = Observed {
            generation: self.generation(),
            as_applied: self.is_applied,
            targets: Vec::new(),
            elsewhere_permille: 0,
        };
        for (number, host) in self.hosts.iter().enumerate() {
            let Some((name, _)) = host else {
                continue;
            };
            let here = present.iter().filter_map(|one| one.targets.get(number));
            let least = here.clone().map(|target| target.buckets).min();
            observed.targets.push(ObservedTarget {
                name: name.clone(),
                share_permille: self.permille(least.unwrap_or(0)),
                link_down: here.clone().any(|target| !target.is_reachable),
            });
        }
        for statistics in &present {
            observed.as_applied &= statistics.table_digest_now == self.table.digest();
            let known = self.hosts.iter().zip(&statistics.targets);
            let steered: u64 = known
                .filter(|(host, _)| host.is_some())
                .map(|(_, target)| target.buckets)
                .sum();
            let elsewhere = u64::from(self.space.buckets()).saturating_sub(steered);
            let elsewhere = self.permille(elsewhere);
            observed.elsewhere_permille = observed.elsewhere_permille.max(elsewhere);
        }
        Ok(observed)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn buckets(&mut self) -> Option<&mut dyn Buckets> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
