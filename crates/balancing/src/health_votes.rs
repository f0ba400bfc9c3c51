//! Health votes on a backend, which join. Each host checks all backends and has one vote on each; flows vote by clients that
//! the backend refused or did not answer, and by its next answer.

use asterism_function::objects::hash;
use asterism_function::{BadBytes, Endpoint, Reader, Tick, Value, Wire, Writer, layout};

use crate::mutant::{self, Mutant};

/// Seconds for which a vote counts after it was given.
pub const VOTE_SECONDS: Tick = 30;
/// Seconds after which a host's unchanged vote is written again.
const RENEW_SECONDS: Tick = VOTE_SECONDS / 3;
/// Hosts that have a vote; of a larger cluster several share one, and the latest counts.
pub const VOTERS: usize = 32;
/// A flow that was not answered counts from so many seconds on after its SYN was sent again: the backend has had a whole second to
/// answer any flow, which clears it. So SYNs that are sent again before they can be answered say nothing of a backend that lives.
pub const SILENCE_SECONDS: Tick = 2;
/// Flows whose failures are distinguished, by a hash of their client.
pub const FAILURES: usize = 8;
/// Seconds after which what was said of a backend is forgotten.
pub(crate) const IDLE: [Tick; 1] = [4 * VOTE_SECONDS];

/// The votes of all hosts on one backend, and what its flows say of it.
#[derive(Clone, Copy, PartialEq, Eq, Value)]
pub struct HealthVotes {
    /// Of each host: twice the time, plus one for a backend that does not answer; zero for none.
    #[join(max, each)]
    slots: [u32; VOTERS],
    /// When it answered a flow last, as far as that was of interest.
    #[join(max)]
    answered: Tick,
    /// When flows failed, those of clients whose hashes have this place in common: twice the time, plus one where the backend
    /// refused. Of silence it is when it began, as far as it goes on.
    #[join(max, each)]
    failed: [u32; FAILURES],
}

impl Default for HealthVotes {
    fn default() -> Self {
        Self {
            slots: [0; VOTERS],
            answered: 0,
            failed: [0; FAILURES],
        }
    }
}

impl core::fmt::Debug for HealthVotes {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let given = (0..).zip(self.slots).filter(|(_, slot)| *slot != 0);
        let mut list = formatter.debug_list();
        for (member, slot) in given {
            let word = if slot & 1 == 1 { "down" } else { "up" };
            list.entry(&format_args!("{member} {word} at {}", slot >> 1));
        }
        for failed in self.failed.iter().filter(|failed| **failed != 0) {
            let word = match is_refusal(*failed) {
                true => "refused",
                false => "not answered",
            };
            list.entry(&format_args!("a flow was {word} at {}", failed >> 1));
        }
        if self.answered != 0 {
            list.entry(&format_args!("answered at {}", self.answered));
        }
        list.finish()
    }
}

impl HealthVotes {
    /// With a vote given at `now`.
    #[must_use]
    pub fn with(mut self, member: u16, now: Tick, is_down: bool) -> Self {
        let slot = &mut self.slots[usize::from(member) % VOTERS];
        *slot = (*slot).max(now << 1 | u32::from(is_down));
        self
    }

    /// Whether most hosts that spoke within [`VOTE_SECONDS`] find that the backend does not answer. Where they are divided,
    /// or nobody spoke, it counts as alive: a client that it does not answer is no worse off than one that is refused.
    #[must_use]
    pub fn is_down(&self, now: Tick) -> bool {
        let (votes, down) = self.counted(now);
        2 * down > votes
    }

    /// How many hosts spoke within [`VOTE_SECONDS`], and how many of them find that the backend does not answer.
    #[must_use]
    pub fn counted(&self, now: Tick) -> (u32, u32) {
        let (mut votes, mut down) = (0, 0);
        for slot in self.slots.iter().filter(|slot| **slot != 0) {
            if now <= (slot >> 1).saturating_add(VOTE_SECONDS) {
                votes += 1;
                down += slot & 1;
            }
        }
        (votes, down)
    }

    /// With a flow of a client that was refused at `now`, or whose SYN was sent again.
    #[must_use]
    pub fn with_failure(mut self, client: Endpoint, now: Tick, is_refused: bool) -> Self {
        let place = hash::word(client.to_bits(), 0) as usize % FAILURES;
        let known = self.failed[place];
        // Silence that goes on has begun when it was noted first.
        if is_refused || !self.stands(known, now) {
            self.failed[place] = known.max(now << 1 | u32::from(is_refused));
        }
        self
    }

    /// With an answer that was seen at `now`.
    #[must_use]
    pub fn with_answer(mut self, now: Tick) -> Self {
        self.answered = self.answered.max(now);
        self
    }

    /// Whether a failure was within [`VOTE_SECONDS`] and since the backend answered last.
    fn stands(&self, failed: u32, now: Tick) -> bool {
        failed >> 1 > self.answered && now <= (failed >> 1).saturating_add(VOTE_SECONDS)
    }

    /// Whether an answer would clear anything.
    pub(crate) fn has_failures(&self, now: Tick) -> bool {
        self.failed.iter().any(|failed| self.stands(*failed, now))
    }

    /// Failures that count: refusals, and silence that has lasted.
    #[must_use]
    pub fn failures(&self, now: Tick) -> usize {
        let has_lasted = |failed: u32| {
            is_refusal(failed)
                || now >= (failed >> 1).saturating_add(SILENCE_SECONDS)
                || mutant::active(Mutant::SilenceCountsAtOnce)
        };
        let counts = |failed: &&u32| self.stands(**failed, now) && has_lasted(**failed);
        self.failed.iter().filter(counts).count()
    }

    /// Whether so many flows failed that it counts as dead: `passive` of them, if that is not 0.
    #[must_use]
    pub fn fails(&self, now: Tick, passive: u8) -> bool {
        passive > 0 && self.failures(now) >= usize::from(passive)
    }

    /// Whether a host's vote says the same and is fresh.
    pub(crate) fn holds(&self, member: u16, now: Tick, is_down: bool) -> bool {
        let slot = self.slots[usize::from(member) % VOTERS];
        slot != 0
            && slot & 1 == u32::from(is_down)
            && now <= (slot >> 1).saturating_add(RENEW_SECONDS)
    }
}

/// Whether a failure is a refusal, not silence.
const fn is_refusal(failed: u32) -> bool {
    failed & 1 == 1
}

/// The slots in use, each with its number; the same of failures; and when it answered.
impl Wire for HealthVotes {
    const LAYOUT: u64 = layout::manual("balancer votes", 1);
    fn encode(&self, out: &mut Writer<'_>) {
        let given = || (0u8..).zip(self.slots).filter(|(_, slot)| *slot != 0);
        out.u8(given().count() as u8);
        for (number, slot) in given() {
            out.u8(number);
            out.u32(slot);
        }
        let failed = || (0u8..).zip(self.failed).filter(|(_, failed)| *failed != 0);
        out.u8(failed().count() as u8);
        for (number, failed) in failed() {
            out.u8(number);
            out.u32(failed);
        }
        out.u32(self.answered);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let mut votes = Self::default();
        for _ in 0..input.u8()? {
            let number = usize::from(input.u8()?);
            *votes.slots.get_mut(number).ok_or(BadBytes)? = input.u32()?;
        }
        for _ in 0..input.u8()? {
            let number = usize::from(input.u8()?);
            *votes.failed.get_mut(number).ok_or(BadBytes)? = input.u32()?;
        }
        votes.answered = input.u32()?;
        Ok(votes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Protocol, laws};

    #[test]
    fn most_of_those_that_spoke_lately_decide() {
        let votes = HealthVotes::default();
        assert!(!votes.is_down(100), "nobody spoke");
        let one = votes.with(0, 100, true);
        assert!(one.is_down(100) && one.is_down(130));
        assert!(!one.is_down(131), "that was long ago");
        let divided = one.with(1, 100, false);
        assert!(!divided.is_down(110));
        assert!(divided.with(2, 105, true).is_down(110));
        assert!(!one.with(0, 101, false).is_down(110), "the later counts");
    }

    fn client(last: u8) -> Endpoint {
        Endpoint::new([10, 0, 0, last].into(), 80, Protocol::TCP)
    }

    #[test]
    fn silence_counts_when_it_has_lasted_and_refusals_at_once() {
        let votes = HealthVotes::default();
        let silent = votes.with_failure(client(1), 100, false);
        assert!(!silent.fails(101, 1) && silent.fails(102, 1) && silent.fails(130, 1));
        assert!(!silent.fails(131, 1), "it is tried again");
        // Further SYNs do not put it off, and after its time it begins again.
        let longer = silent.with_failure(client(1), 101, false);
        assert_eq!(longer, silent);
        let again = silent.with_failure(client(1), 131, false);
        assert!(!again.fails(132, 1) && again.fails(133, 1));
        let answered = silent.with_answer(101);
        assert!(!answered.fails(102, 1));
        let again = answered.with_failure(client(1), 102, false);
        assert!(!again.fails(103, 1) && again.fails(104, 1));
        assert!(
            !answered
                .with_failure(client(1), 101, false)
                .has_failures(110)
        );
        let refused = silent.with_failure(client(1), 101, true);
        assert!(refused.fails(101, 1) && !refused.fails(101, 2));
        assert_eq!(refused.with_failure(client(1), 103, false), refused);
        // Words of two hosts join to the later one.
        let mut joined = silent;
        joined.join(&votes.with_failure(client(1), 101, false));
        assert!(!joined.fails(102, 1) && joined.fails(103, 1));
    }

    #[test]
    fn votes_join_as_the_law_says_and_come_back_from_the_wire() {
        let random = |draw: u64| {
            let mut votes = HealthVotes::default();
            for number in 0..VOTERS as u64 {
                let bits = hash::words(draw, number, 5);
                if bits & 3 == 0 {
                    votes.slots[number as usize] = (bits >> 40) as u32;
                }
                if bits & 12 == 0 {
                    votes.failed[number as usize % FAILURES] = (bits >> 8) as u32;
                }
            }
            votes.answered = hash::word(draw, 6) as u32 & 3;
            votes
        };
        for draw in 0..500 {
            laws::value(random(draw), random(draw + 1_000), random(draw + 2_000));
            let mut bytes = Vec::new();
            random(draw).encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(HealthVotes::decode(&mut input), Ok(random(draw)));
            assert!(input.is_empty());
        }
        for beyond in [
            [1, VOTERS as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 1, FAILURES as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(
                HealthVotes::decode(&mut Reader::new(&beyond, &[])),
                Err(BadBytes)
            );
        }
    }
}
