//! Tests of sealing as a whole: `datagrams` (one sealer, one opener), `golden` (against the public vectors), `admission`
//! (hosts in memory under a virtual clock, by `hosts`), `rotation` (changes of keys), `versions` (upgrades), `recorded`
//! (captures), `hostile` (floods, replays, bytes of any kind).

mod admission;
mod datagrams;
mod golden;
mod hostile;
mod hosts;
mod recorded;
mod rotation;
mod versions;

use super::*;
use crate::{ClusterId, Epoch, Incarnation, MemberId};

pub(super) const CLUSTER: ClusterId = ClusterId(0xc1);

/// What hosts understand that know one version.
pub(super) const ONE: Versions = Versions {
    oldest: 1,
    newest: 1,
};

pub(super) fn key(id: u8) -> ClusterKey {
    ClusterKey::from_random(id, core::array::from_fn(|i| i as u8 ^ id))
}

pub(super) fn session(member: u16, salt: u8) -> Session {
    Session {
        member: MemberId(member),
        incarnation: Incarnation(0x1000 + u64::from(member)),
        salt: Salt([salt; 16]),
    }
}

/// Numbers for tests: the same seed gives the same numbers (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
