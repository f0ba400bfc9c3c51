//! What each instance has really applied, seen in its state: how the claims of protocol cores are judged.

use asterism_engine::{Cluster, Instance};
use asterism_placement::Time;

use crate::exercise::Exercise;
use crate::moved::Moved;
use crate::oracle::Oracle;
use crate::report::Failure;

/// What is known of one member's instances and of what it claims.
#[derive(Debug, Default)]
struct Seen {
    /// Of each instance and origin, how many of the origin's first commits it holds.
    holds: Vec<Vec<usize>>,
    /// Of each instance, the counts at which it was last looked at.
    looked: Vec<(u64, u64)>,
    /// Of each origin: for each of its commits that all instances hold, how many own commits there were
    /// when they came to hold it.
    own_when_held: Vec<Vec<u32>>,
    /// Own commits before this step.
    own_before: u32,
    /// Up to which commit claims were judged: acknowledged by each other member, stable of each origin,
    /// covered of each other member.
    acknowledged: Vec<usize>,
    stable: Vec<usize>,
    covered: Vec<usize>,
    /// The claims as they were last judged: a claim is judged when it moves.
    claims: Vec<(u64, u64, u64)>,
}

/// Judges, after every step, what members claim of each other.
#[derive(Debug)]
pub struct Witness {
    seen: Vec<Seen>,
    /// Claims judged.
    pub judged: u64,
}

fn holds(instance: &Instance<Exercise>, tokens: (u32, u32)) -> bool {
    let has = |token| instance.state().tokens.contains(&token) == Ok(true);
    has(tokens.0) && (tokens.0 == tokens.1 || has(tokens.1))
}

impl Witness {
    /// Nothing seen yet.
    pub fn new(cluster: &Cluster<Exercise>) -> Self {
        let members = cluster.members().len();
        let seen = cluster
            .members()
            .iter()
            .map(|member| Seen {
                holds: vec![vec![0; members]; member.instances.len()],
                looked: vec![(u64::MAX, 0); member.instances.len()],
                own_when_held: vec![Vec::new(); members],
                own_before: 0,
                acknowledged: vec![0; members],
                stable: vec![0; members],
                covered: vec![0; members],
                claims: vec![(0, 0, 0); members],
            })
            .collect();
        Self { seen, judged: 0 }
    }

    /// How many of an origin's first commits an instance holds.
    pub fn held(&self, member: usize, lane: usize, origin: usize) -> usize {
        self.seen[member].holds[lane][origin]
    }

    fn held_by_all(&self, member: usize, origin: usize) -> usize {
        let holds = self.seen[member].holds.iter();
        holds.map(|holds| holds[origin]).min().unwrap_or(0)
    }

    /// To be called before each step and after each command given.
    pub fn before_step(&mut self, oracle: &Oracle) {
        for (member, seen) in self.seen.iter_mut().enumerate() {
            seen.own_before = oracle.commits[member].len() as u32;
        }
    }

    /// Looks at what was applied, then judges what is claimed.
    pub(crate) fn after_step(
        &mut self,
        cluster: &Cluster<Exercise>,
        oracle: &Oracle,
        (moved, judge_time): (Moved, bool),
    ) -> Result<(), Failure> {
        self.query(cluster, oracle, moved);
        for (place, member) in moved.members(cluster) {
            let progress = member.channel.progress();
            for claimed in progress.members() {
                let other = usize::from(claimed.member.0);
                let claims = (
                    claimed.acknowledged,
                    claimed.stable,
                    claimed.covered_until.as_micros(),
                );
                if self.seen[place].claims[other] == claims {
                    continue;
                }
                let before = core::mem::replace(&mut self.seen[place].claims[other], claims);
                self.judged += 1;
                if other != place && before.0 != claims.0 {
                    self.judge_acknowledged(oracle, place, other, claims.0)?;
                }
                if before.1 != claims.1 {
                    self.judge_stable(oracle, place, other, claims.1)?;
                }
                if other != place && judge_time && before.2 != claims.2 {
                    let until =
                        Time::from_micros(claims.2.saturating_sub(member.skew.as_micros() as u64));
                    self.judge_covered(oracle, place, other, until)?;
                }
            }
        }
        Ok(())
    }

    fn query(&mut self, cluster: &Cluster<Exercise>, oracle: &Oracle, moved: Moved) {
        for (place, member) in moved.members(cluster) {
            let seen = &mut self.seen[place];
            let mut changed = false;
            for (lane, instance) in member.instances.iter().enumerate() {
                let tally = instance.tally();
                let counts = (tally.groups_applied, tally.groups_written);
                if seen.looked[lane] == counts {
                    continue;
                }
                seen.looked[lane] = counts;
                changed = true;
                for (origin, commits) in oracle.commits.iter().enumerate() {
                    let held = &mut seen.holds[lane][origin];
                    while *held < commits.len() && holds(instance, commits[*held].tokens) {
                        *held += 1;
                    }
                }
            }
            if !changed {
                continue;
            }
            for origin in 0..oracle.commits.len() {
                let all = seen.holds.iter().map(|holds| holds[origin]).min();
                let own = seen.own_before;
                seen.own_when_held[origin].resize(all.unwrap_or(0), own);
            }
        }
    }

    /// `other` says that it applied what `place` wrote, up to this number.
    fn judge_acknowledged(
        &mut self,
        oracle: &Oracle,
        place: usize,
        other: usize,
        through: u64,
    ) -> Result<(), Failure> {
        let commits = &oracle.commits[place];
        let mut judged = self.seen[place].acknowledged[other];
        while commits
            .get(judged)
            .is_some_and(|commit| commit.through <= through)
        {
            judged += 1;
        }
        self.seen[place].acknowledged[other] = judged;
        let held = self.held_by_all(other, place);
        if judged > held {
            return Err(Failure::new(
                "acknowledgements are honest",
                format!(
                    "m{other} acknowledged m{place}'s groups up to {through}, which are {judged} commits; its instances hold {held}"
                ),
            ));
        }
        Ok(())
    }

    /// `place` takes what `origin` wrote for stable, up to this number.
    fn judge_stable(
        &mut self,
        oracle: &Oracle,
        place: usize,
        origin: usize,
        through: u64,
    ) -> Result<(), Failure> {
        let commits = &oracle.commits[origin];
        let mut judged = self.seen[place].stable[origin];
        while commits
            .get(judged)
            .is_some_and(|commit| commit.through <= through)
        {
            judged += 1;
        }
        self.seen[place].stable[origin] = judged;
        if judged == 0 {
            return Ok(());
        }
        for other in 0..self.seen.len() {
            // The origin too: what one of its instances wrote, the others have to apply.
            let held = self.held_by_all(other, origin);
            if judged > held {
                return Err(Failure::new(
                    "stability is honest",
                    format!(
                        "m{place} takes m{origin}'s groups up to {through} ({judged} commits) for stable; m{other} holds {held}"
                    ),
                ));
            }
            if other == place || other == origin {
                continue;
            }
            let before = self.seen[other].own_when_held[origin][judged - 1] as usize;
            let here = self.held_by_all(place, other);
            if before > here {
                return Err(Failure::new(
                    "stability is honest",
                    format!(
                        "m{place} takes m{origin}'s groups up to {through} for stable, but m{other} had made {before} commits before it had them, of which m{place} holds {here}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// `place` says that it has all that `other` had committed by then.
    fn judge_covered(
        &mut self,
        oracle: &Oracle,
        place: usize,
        other: usize,
        until: Time,
    ) -> Result<(), Failure> {
        let commits = &oracle.commits[other];
        let mut judged = self.seen[place].covered[other];
        while commits.get(judged).is_some_and(|commit| commit.at < until) {
            judged += 1;
        }
        self.seen[place].covered[other] = judged;
        let held = self.held_by_all(place, other);
        if judged > held {
            return Err(Failure::new(
                "coverage is honest",
                format!(
                    "m{place} says it has all that m{other} committed before {until}, which are {judged} commits; it holds {held}"
                ),
            ));
        }
        Ok(())
    }
}
