//! For how long packets wait: a shard that is away holds up those of its own conversations alone.

use std::collections::BTreeMap;

use super::network::Incarnation;
use crate::report::Failure;

/// What a packet may wait for its shard, of which nothing is away: for connections that are cut, of which nobody says so, and that are made again.
const HELD_UP_US: u64 = 250_000;
/// After what happened to a shard, or to a host's links to it, clients are with it again within so long.
const RECOVERS_US: u64 = 300_000;

/// Something is away for a while: a shard, all links of a host, or those between both.
#[derive(Clone, Copy, Debug)]
struct Away {
    host: Option<Incarnation>,
    shard: Option<usize>,
    from_us: u64,
    until_us: u64,
}

impl Away {
    fn concerns(&self, (host, shard): (Incarnation, usize)) -> bool {
        self.host.is_none_or(|one| one == host) && self.shard.is_none_or(|one| one == shard)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waits {
    away: Vec<Away>,
    /// By the packet's number: its host and its shard, and since when it waits.
    waiting: BTreeMap<u32, ((Incarnation, usize), u64)>,
}

impl Waits {
    /// From now on until then a shard is away, a host is, or a host's links to a shard are.
    pub(super) fn is_away(
        &mut self,
        (host, shard): (Option<Incarnation>, Option<usize>),
        (from_us, until_us): (u64, u64),
    ) {
        self.away.push(Away {
            host,
            shard,
            from_us,
            until_us,
        });
    }

    /// A packet comes to a host.
    pub(super) fn arrives(&mut self, number: u32, to: (Incarnation, usize), now_us: u64) {
        self.waiting.insert(number, (to, now_us));
    }

    /// A packet leaves: whether another shard was away all the while, and its own was not.
    pub(super) fn leaves(&mut self, number: u32, now_us: u64) -> Result<bool, Failure> {
        let Some((to, arrived_us)) = self.waiting.remove(&number) else {
            return Ok(false);
        };
        let own = self.away.iter().filter(|away| away.concerns(to));
        let own = own.filter(|away| away.until_us + RECOVERS_US >= arrived_us);
        let since_us = own.clone().map(|away| away.until_us + RECOVERS_US);
        let since_us = since_us.max().unwrap_or_default().max(arrived_us);
        if now_us > since_us + HELD_UP_US {
            return Err(Failure::new(
                "a shard that is away holds up its own packets alone",
                format!("packet {number} to {to:?} waited from {arrived_us} to {now_us}"),
            ));
        }
        let is_elsewhere = self.away.iter().any(|away| {
            away.shard.is_some()
                && !away.concerns(to)
                && away.host.is_none_or(|host| host == to.0)
                && away.from_us <= arrived_us
                && away.until_us >= now_us
        });
        Ok(is_elsewhere && since_us == arrived_us)
    }
}
