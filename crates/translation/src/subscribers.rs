//! Outside ports for subscribers: from the pool of their network, within their quota, in blocks where configured (RFC 6888).
//! Only packets that open a session come here.

use core::net::Ipv4Addr;

use asterism_forwarding::Prefix;
use asterism_function::objects::BLOCK_ITEMS;
use asterism_function::{Ask, Endpoint, Grant, Late, Reason, Space, Stop};

use crate::accounting::PortAccounting;
use crate::bindings::ADDRESSES_TRIED_MAX;
use crate::config::NatConfig;
use crate::session::BY_INSIDE;
use crate::state::{Translates, Translations};
use crate::translator::Translator;

/// Grants that are asked for in a block: one that a late packet has had since may lie elsewhere by now.
const GRANTS_TRIED_MAX: u32 = 2;

/// Which outside addresses an inside address may appear with.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Networks, the longest prefix first, with the place of their pool.
    networks: Vec<(Prefix, usize)>,
    /// For each pool the places of its addresses; that of everybody else last.
    addresses: Vec<Vec<u32>>,
}

impl Pools {
    /// The pools of a configuration that was found right.
    pub(crate) fn new(config: &NatConfig) -> Self {
        let places = |wanted: &dyn Fn(&Ipv4Addr) -> bool| {
            let all = (0..).zip(&config.outside_addresses);
            all.filter(|(_, address)| wanted(address))
                .map(|(place, _)| place)
                .collect::<Vec<u32>>()
        };
        let pools = config.pools.iter();
        let mut addresses: Vec<Vec<u32>> = pools
            .clone()
            .map(|pool| places(&|address| pool.outside.contains(address)))
            .collect();
        let is_named =
            |address: &Ipv4Addr| pools.clone().any(|pool| pool.outside.contains(address));
        addresses.push(places(&|address| !is_named(address)));
        let mut networks: Vec<(Prefix, usize)> = pools
            .clone()
            .enumerate()
            .flat_map(|(place, pool)| pool.inside.iter().map(move |prefix| (*prefix, place)))
            .collect();
        networks.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.length));
        Self {
            networks,
            addresses,
        }
    }

    /// The places of the addresses for an inside address; none where everybody else has none.
    pub(crate) fn of(&self, inside: Ipv4Addr) -> &[u32] {
        let mut networks = self.networks.iter();
        let found = networks.find(|(prefix, _)| prefix.contains(inside));
        let pool = found.map_or(self.addresses.len() - 1, |(_, pool)| *pool);
        &self.addresses[pool]
    }

    /// What all members must have alike.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        for (prefix, pool) in &self.networks {
            bytes.extend((prefix.address.to_bits() & prefix.mask()).to_be_bytes());
            bytes.push(prefix.length);
            bytes.extend((*pool as u32).to_be_bytes());
        }
        for pool in &self.addresses {
            bytes.extend((pool.len() as u32).to_be_bytes());
            bytes.extend(pool.iter().flat_map(|place| place.to_be_bytes()));
        }
    }
}

impl Translator {
    /// The pool of an inside endpoint, and which of its addresses the subscriber is paired with (RFC 6888 REQ-2).
    pub(crate) fn paired<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        inside: Endpoint,
    ) -> (&[u32], u32) {
        let pool = self.pools.of(inside.address);
        let subscriber = inside.address.to_bits() & self.config.subscribers.mask();
        (pool, ask.choose(subscriber.into(), pool.len() as u32))
    }

    /// Asks for what the first packet of an inside endpoint reads: what its binding is found by, and what is known of the port that
    /// it will likely have, and of its neighbours.
    pub fn prefetch_first<S: Translates>(&self, ask: &Ask<'_, S>, inside: Endpoint) {
        let Translations {
            sessions, ports, ..
        } = ask.translations();
        sessions.prefetch_group(BY_INSIDE, &inside);
        let (pool, paired) = self.paired(ask, inside);
        let Some(&address) = pool.get(paired as usize) else {
            return;
        };
        let space = ports.space();
        let range = space.range(address, inside.protocol);
        let wish = space.wish(range, inside.port);
        ports.prefetch(range, wish);
        if let Some(accounting) = space.accounting() {
            accounting.prefetch_number(range * space.items() + wish);
        }
    }

    /// Why the subscriber of an inside endpoint may open no session, if so; one that `is_bound` needs no further port.
    pub(crate) fn refuses<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        inside: Endpoint,
        is_bound: bool,
    ) -> Option<Reason> {
        let Translations { ports, .. } = ask.translations();
        let accounting = ports.space().accounting()?;
        let subscriber = accounting.subscriber(inside);
        accounting.wake(ask.now(), ports);
        if !accounting.may_open(subscriber, ask.arrived_us()) {
            return Some(Reason::RateLimited);
        }
        if is_bound {
            return None;
        }
        accounting.refuses(subscriber)
    }

    /// A port in a block of the subscriber's, or else in a further one, on the address that its blocks are of; or why there is
    /// none.
    pub(crate) fn grant_in_block<S: Translates>(
        &self,
        ask: &Ask<'_, S>,
        inside: Endpoint,
    ) -> Result<Grant<Endpoint>, Stop> {
        let Translations { ports, .. } = ask.translations();
        let (Some(accounting), Some(settings)) = (ports.space().accounting(), self.config.blocks)
        else {
            return Err(Stop::Refused(Reason::PortsExhausted));
        };
        let subscriber = accounting.subscriber(inside);
        let used = accounting.used_blocks(subscriber);
        for &block in used.all() {
            if let Some(granted) = grant_of(ask, accounting, inside, block)? {
                return Ok(granted);
            }
        }
        if used.all().len() >= usize::from(settings.per_subscriber_max) {
            return Err(Stop::Refused(Reason::SubscriberQuota));
        }
        let (pool, paired) = self.paired(ask, inside);
        let addresses = pool.len() as u32;
        // All its blocks are of one address (RFC 6888 REQ-2); the first may be of any that has one left.
        let only = used
            .all()
            .first()
            .and_then(|&block| accounting.block(block));
        let tried = if only.is_some() {
            1
        } else {
            addresses.min(ADDRESSES_TRIED_MAX)
        };
        for address in 0..tried {
            let address = match only {
                Some((address, _)) => address,
                None => pool[((paired + address) % addresses) as usize],
            };
            let turn = ask.random(u64::from(address)) as u32;
            let place = (address, turn);
            let block = accounting.vacant_block(subscriber, place, ask.now(), ports);
            if let Some(block) = block
                && let Some(granted) = grant_of(ask, accounting, inside, block)?
            {
                return Ok(granted);
            }
        }
        Err(Stop::Refused(Reason::PortsExhausted))
    }
}

/// A free port of a block that this instance leases, at random.
fn grant_of<S: Translates>(
    ask: &Ask<'_, S>,
    accounting: &PortAccounting,
    inside: Endpoint,
    block: u32,
) -> Result<Option<Grant<Endpoint>>, Late> {
    let Translations { ports, .. } = ask.translations();
    let Some((address, (first, last))) = accounting.block(block) else {
        return Ok(None);
    };
    let space = ports.space();
    let Some(&outside) = space.all_addresses().get(address as usize) else {
        return Ok(None);
    };
    let range = space.range(address, inside.protocol);
    let (size, part) = (u32::from(last - first) + 1, BLOCK_ITEMS);
    let draw = ask.random(1 << 40 | u64::from(block));
    let (turn, step) = (draw as u32, (draw >> 32) as u32);
    let at = |offset: u32| Endpoint::new(outside, first + (offset % size) as u16, inside.protocol);
    // Leases are of so many ports together, so most of a block is passed over in a few steps.
    for number in 0..size / part {
        let begin = (turn % (size / part) + number) * part;
        let ends = [at(begin), at(begin + part - 1)];
        if !ends.iter().any(|port| ports.is_own(port)) {
            continue;
        }
        let free = (0..part)
            .map(|place| at(begin + (step.wrapping_add(place)) % part))
            .find(|port| ports.is_own(port) && !ports.is_used(port));
        let Some(port) = free else {
            continue;
        };
        let Some((_, place)) = space.place(&port) else {
            continue;
        };
        for _ in 0..GRANTS_TRIED_MAX {
            let Some(granted) = ports.grant(range, place)? else {
                return Ok(None);
            };
            let subscriber = accounting.subscriber(inside);
            if accounting.fits(granted.item(), subscriber, ask.now(), ports) {
                return Ok(Some(granted));
            }
        }
    }
    Ok(None)
}
