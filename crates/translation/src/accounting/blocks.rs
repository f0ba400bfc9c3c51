//! The owner of each block of outside ports.
//!
//! A block is its ports in use, as a binding is its sessions (`docs/src/architecture/functions.md`): nothing about blocks
//! travels. A block belongs to a subscriber from its first port on. When all instances forgot its last port, the block is in
//! quarantine, still the subscriber's, and then free. The leases of ports decide which instance gives out a free block
//! (`accounting/mod.rs`), so two instances never give one block to two subscribers.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use asterism_function::Tick;

use crate::config::NatConfig;

/// Blocks of one subscriber that are looked at.
pub(super) const CHAIN_MAX: usize = 64;

/// How a block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Nobody's.
    Free,
    /// The owner has ports of it in use.
    Used,
    /// All its ports were given back.
    Resting {
        /// From this time on it may be given to others.
        until: Tick,
    },
    /// Has ports that are forwarded for ever, so it is nobody's ever.
    Reserved,
}

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) standing: Standing,
    /// The subscriber.
    pub(super) owner: u32,
    /// Since when it is the owner's, as this instance saw it.
    pub(super) since: Tick,
    /// Ports in use.
    pub(super) ports: u32,
    /// The owner's next block, plus one.
    pub(super) next: u32,
    /// It is among those that rest.
    queued: bool,
    /// It became free, and another instance was to say so.
    pub(super) unsaid: bool,
}

const FREE: Block = Block {
    standing: Standing::Free,
    owner: 0,
    since: 0,
    ports: 0,
    next: 0,
    queued: false,
    unsaid: false,
};

/// All blocks, address by address.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) all: Vec<Block>,
    /// Blocks of an address.
    pub(super) per_address: u32,
    /// Ports of a block.
    pub(super) size: u32,
    pub(super) first_port: u16,
    /// Those that rest, the first to be free first, with when that is; some were used again meanwhile. Each stands here once.
    queue: VecDeque<(u32, Tick)>,
    pub(super) used: u32,
    pub(super) quarantined: u32,
}

impl Blocks {
    /// The blocks of a configuration, all free; `None` where there are none.
    pub(super) fn new(config: &NatConfig) -> Option<Self> {
        let size = u32::from(config.blocks?.ports.max(1));
        let (first_port, last_port) = config.outside_ports;
        let range = u32::from(last_port.saturating_sub(first_port)) + 1;
        let per_address = range / size;
        let count = per_address as usize * config.outside_addresses.len();
        let mut blocks = Self {
            all: vec![FREE; count],
            per_address,
            size,
            first_port,
            queue: VecDeque::with_capacity(count),
            used: 0,
            quarantined: 0,
        };
        for forward in &config.forwards {
            let places = &config.outside_addresses;
            let address = places
                .iter()
                .position(|address| *address == forward.outside.address);
            let block = address.and_then(|at| blocks.of(at as u32, forward.outside.port));
            if let Some(number) = block {
                blocks.all[number as usize].standing = Standing::Reserved;
            }
        }
        Some(blocks)
    }

    /// The block of a port of an address (by its place in the list); `None` behind the last whole block.
    pub(super) fn of(&self, address: u32, port: u16) -> Option<u32> {
        let number = u32::from(port.checked_sub(self.first_port)?) / self.size;
        (number < self.per_address).then_some(address * self.per_address + number)
    }

    /// The place of a block's address, and the first of its ports.
    pub(super) fn place(&self, number: u32) -> (u32, u16) {
        let first = number % self.per_address * self.size;
        (number / self.per_address, self.first_port + first as u16)
    }

    /// First and last port.
    pub(super) fn ports(&self, number: u32) -> (u16, u16) {
        let (_, first) = self.place(number);
        (first, first + (self.size - 1) as u16)
    }

    pub(super) fn address(&self, number: u32, addresses: &[Ipv4Addr]) -> Ipv4Addr {
        let known = addresses.get((number / self.per_address.max(1)) as usize);
        known.copied().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Where the one stands whose lease decides who gives the block out: among the parts of 64 ports of a block by its number,
    /// so that all instances have their share of blocks.
    pub(super) fn lead(&self, number: u32, part: u32) -> u16 {
        let parts = (self.size / part.max(1)).max(1);
        let chosen = number.wrapping_mul(0x9E37_79B1) >> 16;
        let (_, first) = self.place(number);
        first + (chosen % parts * part) as u16
    }

    /// The owner's blocks, the latest first.
    pub(super) fn chain(&self, first: u32) -> impl Iterator<Item = u32> {
        let mut next = first;
        core::iter::from_fn(move || {
            let number = next.checked_sub(1)?;
            next = self.all.get(number as usize)?.next;
            Some(number)
        })
        .take(CHAIN_MAX)
    }

    /// A block of an address that may be given to somebody at `now`, from a place on that `turn` says; `may` says whether by
    /// this instance.
    pub(super) fn vacant(
        &self,
        (address, turn): (u32, u32),
        now: Tick,
        may: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let (first, count) = (address * self.per_address, self.per_address);
        let begin = turn % count.max(1);
        let (head, tail) = (first + begin..first + count, first..first + begin);
        head.chain(tail)
            .find(|&number| self.is_vacant(number, now) && may(number))
    }

    /// Whether a block may be given to somebody else.
    pub(super) fn is_vacant(&self, number: u32, now: Tick) -> bool {
        match self.all[number as usize].standing {
            Standing::Free => true,
            Standing::Resting { until } => now >= until,
            Standing::Used | Standing::Reserved => false,
        }
    }

    /// The next block that has rested at `now`, if there is one; the caller frees it.
    pub(super) fn next_rested(&mut self, now: Tick) -> Option<u32> {
        while let Some(&(number, due)) = self.queue.front() {
            if now < due {
                return None;
            }
            self.queue.pop_front();
            let block = &mut self.all[number as usize];
            match block.standing {
                Standing::Resting { until } if now >= until => {
                    block.queued = false;
                    return Some(number);
                }
                // Used again meanwhile, and given back again.
                Standing::Resting { until } => self.queue.push_back((number, until)),
                _ => block.queued = false,
            }
        }
        None
    }

    /// A port of a block came to use by `owner`, who has the block already if it is quarantined or used; true if the block is new to
    /// the owner, so that it must be put before its other ones.
    pub(super) fn begin(&mut self, number: u32, owner: u32, now: Tick) -> bool {
        let block = &mut self.all[number as usize];
        block.ports += 1;
        let standing = core::mem::replace(&mut block.standing, Standing::Used);
        let is_new = match standing {
            // Of another's that is used: what a part of the cluster did that was cut off. The ports are distinguished all the same.
            Standing::Used => false,
            Standing::Resting { .. } => {
                self.quarantined -= 1;
                self.used += 1;
                block.owner != owner
            }
            Standing::Free | Standing::Reserved => {
                self.used += 1;
                true
            }
        };
        if is_new {
            (block.owner, block.since, block.unsaid) = (owner, now, false);
        }
        is_new
    }

    /// A port of a block is in use no more.
    pub(super) fn end(&mut self, number: u32, until: Tick) {
        let block = &mut self.all[number as usize];
        block.ports = block.ports.saturating_sub(1);
        if block.ports == 0 && block.standing == Standing::Used {
            block.standing = Standing::Resting { until };
            if !block.queued {
                block.queued = true;
                self.queue.push_back((number, until));
            }
            self.used -= 1;
            self.quarantined += 1;
        }
    }

    /// A block that rested is nobody's any more; the caller has taken it out of the owner's chain.
    pub(super) fn free(&mut self, number: u32) {
        let block = &mut self.all[number as usize];
        if matches!(block.standing, Standing::Resting { .. }) {
            (block.standing, block.next) = (Standing::Free, 0);
            self.quarantined -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Blocks {
        Blocks {
            all: vec![FREE; 200],
            per_address: 100,
            size: 512,
            first_port: 1_024,
            queue: VecDeque::new(),
            used: 0,
            quarantined: 0,
        }
    }

    #[test]
    fn ports_and_blocks_name_each_other() {
        let blocks = blocks();
        for number in 0..200 {
            let (address, first) = blocks.place(number);
            let (low, high) = blocks.ports(number);
            assert_eq!(low, first);
            assert_eq!(u32::from(high - low), 511);
            for port in [low, low + 100, high] {
                assert_eq!(blocks.of(address, port), Some(number));
            }
            let lead = blocks.lead(number, 64);
            assert!((low..=high).contains(&lead) && (lead - low).is_multiple_of(64));
        }
        assert_eq!(blocks.of(0, 1_023), None);
        assert_eq!(blocks.of(0, 1_024 + 51_200), None, "no whole block");
    }

    #[test]
    fn a_block_is_somebodys_until_it_has_rested() {
        let mut blocks = blocks();
        assert!(blocks.begin(130, 7, 10));
        assert!(!blocks.begin(130, 7, 11));
        assert!(!blocks.is_vacant(130, 1_000));
        blocks.end(130, 140);
        assert_eq!((blocks.used, blocks.quarantined), (1, 0));
        blocks.end(130, 150);
        assert_eq!((blocks.used, blocks.quarantined), (0, 1));
        assert!(!blocks.is_vacant(130, 149) && blocks.is_vacant(130, 150));
        assert_eq!(blocks.next_rested(149), None);
        assert!(!blocks.begin(130, 7, 20), "it was the owner's all the time");
        assert_eq!(blocks.all[130].since, 10);
        blocks.end(130, 160);
        assert_eq!(blocks.queue.len(), 1, "it stands there once");
        assert_eq!(blocks.next_rested(150), None);
        assert_eq!(blocks.next_rested(159), None);
        assert_eq!(blocks.next_rested(160), Some(130));
        assert_eq!(blocks.next_rested(160), None);
        blocks.free(130);
        assert_eq!((blocks.used, blocks.quarantined), (0, 0));
        assert!(blocks.begin(130, 8, 200));
        assert_eq!(blocks.all[130].owner, 8);
    }

    #[test]
    fn vacant_blocks_are_of_the_address_that_was_asked_for() {
        let mut blocks = blocks();
        for number in 100..199 {
            blocks.begin(number, 1, 0);
        }
        assert_eq!(blocks.vacant((1, 42), 0, |_| true), Some(199));
        assert_eq!(blocks.vacant((1, 42), 0, |number| number < 150), None);
        assert_eq!(blocks.vacant((0, 42), 0, |_| true), Some(42));
        blocks.begin(199, 1, 0);
        assert_eq!(blocks.vacant((1, 0), 0, |_| true), None);
    }
}
