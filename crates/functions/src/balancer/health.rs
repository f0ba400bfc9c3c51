//! What hosts say of backends: each host checks all of them and has one vote for each, and the votes join. Imports
//! `asterism_function` alone.
//!
//! Checks are made by a host's control side. It tells the function of a result by a frame on a port of its own
//! ([`CONTROL`]), which no port of the outside world has, so that results take the packets' path into the state.

use asterism_function::{
    Ask, BadBytes, Endpoint, Late, PortNumber, Protocol, Reader, Reason, Tick, Value, Verdict,
    Wire, Writer,
};

use super::{Balancer, BalancerState};

/// The port by which a host's control side speaks to the function. No configuration can have so many ports.
pub const CONTROL: PortNumber = PortNumber(u16::MAX);
/// Seconds for which a vote counts after it was given.
pub const VOTE_SECONDS: Tick = 30;
/// Seconds after which a host's unchanged vote is written again.
const RENEW_SECONDS: Tick = VOTE_SECONDS / 3;
/// Hosts that have a vote; of a larger cluster several share one, and the latest counts.
pub const VOTERS: usize = 32;
/// Seconds after which what was said of a backend is forgotten.
pub(super) const IDLE: [Tick; 1] = [4 * VOTE_SECONDS];

/// The votes of all hosts on one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Votes {
    /// Of each host: twice the time, plus one for a backend that does not answer; zero for none.
    slots: [u32; VOTERS],
}

impl Default for Votes {
    fn default() -> Self {
        Self { slots: [0; VOTERS] }
    }
}

impl Votes {
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
        let (mut votes, mut down) = (0, 0);
        for slot in self.slots.iter().filter(|slot| **slot != 0) {
            if now <= (slot >> 1).saturating_add(VOTE_SECONDS) {
                votes += 1;
                down += slot & 1;
            }
        }
        2 * down > votes
    }

    /// Whether a host's vote says the same and is fresh.
    fn holds(&self, member: u16, now: Tick, is_down: bool) -> bool {
        let slot = self.slots[usize::from(member) % VOTERS];
        slot != 0
            && slot & 1 == u32::from(is_down)
            && now <= (slot >> 1).saturating_add(RENEW_SECONDS)
    }
}

impl Value for Votes {
    const JOINS: bool = true;

    fn join(&mut self, other: &Self) {
        for (slot, theirs) in self.slots.iter_mut().zip(other.slots) {
            *slot = (*slot).max(theirs);
        }
    }
}

/// The slots in use, each with its number.
impl Wire for Votes {
    fn encode(&self, out: &mut Writer<'_>) {
        let given = || (0u8..).zip(self.slots).filter(|(_, slot)| *slot != 0);
        out.u8(given().count() as u8);
        for (number, slot) in given() {
            out.u8(number);
            out.u32(slot);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let mut votes = Self::default();
        for _ in 0..input.u8()? {
            let number = usize::from(input.u8()?);
            *votes.slots.get_mut(number).ok_or(BadBytes)? = input.u32()?;
        }
        Ok(votes)
    }
}

/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const LENGTH: usize = 24;

/// What one host found of one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The host, by its number in the cluster.
    pub member: u16,
    /// The backend that was checked.
    pub backend: Endpoint,
    /// Whether it does not answer.
    pub is_down: bool,
}

impl Finding {
    /// The frame that tells the function of it.
    #[must_use]
    pub fn frame(&self) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&ETHERTYPE);
        frame[14..16].copy_from_slice(&self.member.to_be_bytes());
        frame[16] = self.is_down.into();
        frame[17] = self.backend.protocol.0;
        frame[18..20].copy_from_slice(&self.backend.port.to_be_bytes());
        frame[20..LENGTH].copy_from_slice(&self.backend.address.octets());
        frame
    }

    /// What a frame tells.
    fn read(frame: &[u8]) -> Option<Self> {
        let frame = frame.first_chunk::<LENGTH>()?;
        if frame[12..14] != ETHERTYPE || frame[16] > 1 {
            return None;
        }
        let address = [frame[20], frame[21], frame[22], frame[23]];
        let port = u16::from_be_bytes([frame[18], frame[19]]);
        Some(Self {
            member: u16::from_be_bytes([frame[14], frame[15]]),
            is_down: frame[16] == 1,
            backend: Endpoint::new(address.into(), port, Protocol(frame[17])),
        })
    }
}

impl Balancer {
    /// Takes up what the host's control side found.
    #[cold]
    #[inline(never)]
    pub(super) fn told(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let Some(Finding {
            member,
            backend,
            is_down,
        }) = Finding::read(ask.packet().bytes())
        else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        // Of a pool that has changed since.
        if !self.checks(backend) {
            return Ok(Verdict::Consumed);
        }
        let now = ask.now();
        let known = ask.health.get(&backend)?;
        let votes = known.map(|known| known.value).unwrap_or_default();
        if votes.holds(member, now, is_down) {
            return Ok(Verdict::Consumed);
        }
        let vacancy = match known {
            Some(_) => None,
            None => ask.health.vacancy()?,
        };
        let mut act = ask.act()?;
        let votes = votes.with(member, now, is_down);
        match (known, vacancy) {
            (Some(known), _) => act.health.update(&known, votes),
            (None, Some(vacancy)) => act.health.insert(vacancy, backend, votes),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Consumed)
    }

    /// Whether hosts found that a backend does not answer.
    pub(super) fn is_down(
        &self,
        ask: &Ask<'_, BalancerState>,
        backend: Endpoint,
    ) -> Result<bool, Late> {
        let known = ask.health.get(&backend)?;
        Ok(known.is_some_and(|known| known.value.is_down(ask.now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{laws, objects::hash};

    #[test]
    fn most_of_those_that_spoke_lately_decide() {
        let votes = Votes::default();
        assert!(!votes.is_down(100), "nobody spoke");
        let one = votes.with(0, 100, true);
        assert!(one.is_down(100) && one.is_down(130));
        assert!(!one.is_down(131), "that was long ago");
        let divided = one.with(1, 100, false);
        assert!(!divided.is_down(110));
        assert!(divided.with(2, 105, true).is_down(110));
        assert!(!one.with(0, 101, false).is_down(110), "the later counts");
    }

    #[test]
    fn votes_join_as_the_law_says_and_come_back_from_the_wire() {
        let random = |draw: u64| {
            let mut votes = Votes::default();
            for number in 0..VOTERS as u64 {
                let bits = hash::words(draw, number, 5);
                if bits & 3 == 0 {
                    votes.slots[number as usize] = (bits >> 40) as u32;
                }
            }
            votes
        };
        for draw in 0..500 {
            laws::value(random(draw), random(draw + 1_000), random(draw + 2_000));
            let mut bytes = Vec::new();
            random(draw).encode(&mut Writer::new(&mut bytes, &[]));
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(Votes::decode(&mut input), Ok(random(draw)));
            assert!(input.is_empty());
        }
        let beyond = [1, VOTERS as u8, 0, 0, 0, 0];
        assert_eq!(Votes::decode(&mut Reader::new(&beyond, &[])), Err(BadBytes));
    }

    #[test]
    fn findings_come_back_from_their_frames() {
        let finding = Finding {
            member: 513,
            backend: Endpoint::new([10, 0, 0, 7].into(), 8_080, Protocol::TCP),
            is_down: true,
        };
        let frame = finding.frame();
        assert_eq!(Finding::read(&frame), Some(finding));
        for length in 0..LENGTH {
            assert_eq!(Finding::read(&frame[..length]), None);
        }
    }
}
