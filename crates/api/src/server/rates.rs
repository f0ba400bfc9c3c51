//! How often an address and a token may ask: token buckets in bounded tables.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Addresses that are remembered. Beyond them, addresses that were idle are forgotten; the rest share one bucket.
pub(super) const ADDRESSES_MAX: usize = 1_024;
/// Callers that are remembered: as many as a file has tokens.
const CALLERS_MAX: usize = crate::tokens::TOKENS_MAX;
/// A bucket holds so many seconds' worth of requests.
const BURST_SECONDS: u32 = 10;
/// Time between two searches for idle addresses.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// An address as it is counted: IPv4 whole, IPv6 by its /64, which one customer has whole.
pub(super) fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

/// A bucket that fills over time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Thousandths of requests in it.
    level: u64,
    filled: Instant,
}

impl Bucket {
    fn full(rate: u32, now: Instant) -> Bucket {
        Bucket {
            level: capacity(rate),
            filled: now,
        }
    }

    fn fill(&mut self, rate: u32, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_micros();
        // Thousandths of a request in so many microseconds.
        let gained = passed.saturating_mul(u128::from(rate)) / 1_000;
        if gained > 0 {
            let gained = u64::try_from(gained).unwrap_or(u64::MAX);
            self.level = self.level.saturating_add(gained).min(capacity(rate));
            self.filled = now;
        }
    }

    /// Takes so many requests, or says how long to wait for them. More than it has are taken too if `must`.
    fn take(&mut self, rate: u32, now: Instant, requests: u32, must: bool) -> Result<(), Duration> {
        self.fill(rate, now);
        let wanted = u64::from(requests) * 1_000;
        if must {
            self.level = self.level.saturating_sub(wanted);
            return Ok(());
        }
        match self.level.checked_sub(wanted) {
            Some(level) => {
                self.level = level;
                Ok(())
            }
            None => {
                let missing = wanted - self.level;
                Err(Duration::from_millis(missing.div_ceil(u64::from(rate))))
            }
        }
    }
}

fn capacity(rate: u32) -> u64 {
    u64::from(rate) * u64::from(BURST_SECONDS) * 1_000
}

/// The buckets of all addresses and callers.
#[derive(Debug)]
pub(super) struct Rates {
    of_address: u32,
    of_caller: u32,
    addresses: BTreeMap<IpAddr, Bucket>,
    callers: BTreeMap<String, Bucket>,
    /// For addresses, and for callers, beyond the tables.
    beyond: [Bucket; 2],
    searched: Instant,
}

impl Rates {
    pub(super) fn new(of_address: u32, of_caller: u32, now: Instant) -> Rates {
        Rates {
            of_address,
            of_caller,
            addresses: BTreeMap::new(),
            callers: BTreeMap::new(),
            beyond: [Bucket::full(of_address, now), Bucket::full(of_caller, now)],
            searched: now,
        }
    }

    /// One request of an address; the error is how long to wait.
    pub(super) fn address(&mut self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let rate = self.of_address;
        self.bucket(address, now).take(rate, now, 1, false)
    }

    /// A wrong token of an address: its next requests wait longer.
    pub(super) fn fault(&mut self, address: IpAddr, requests: u32, now: Instant) {
        let rate = self.of_address;
        // `must` never fails.
        let _ = self.bucket(address, now).take(rate, now, requests, true);
    }

    /// One request of a caller; the error is how long to wait.
    pub(super) fn caller(&mut self, caller: &str, now: Instant) -> Result<(), Duration> {
        let rate = self.of_caller;
        if self.callers.len() >= CALLERS_MAX && !self.callers.contains_key(caller) {
            // Tokens that were replaced are still there: a full bucket says no more than an absent one.
            self.callers.retain(|_, bucket| {
                bucket.fill(rate, now);
                bucket.level < capacity(rate)
            });
            if self.callers.len() >= CALLERS_MAX {
                return self.beyond[1].take(rate, now, 1, false);
            }
        }
        let bucket = self.callers.entry(caller.to_owned());
        let bucket = bucket.or_insert_with(|| Bucket::full(rate, now));
        bucket.take(rate, now, 1, false)
    }

    fn bucket(&mut self, address: IpAddr, now: Instant) -> &mut Bucket {
        let (address, rate) = (prefix(address), self.of_address);
        let has_place =
            self.addresses.contains_key(&address) || self.addresses.len() < ADDRESSES_MAX;
        if !has_place && now.saturating_duration_since(self.searched) >= SEARCH_PAUSE {
            self.searched = now;
            self.addresses.retain(|_, bucket| {
                bucket.fill(rate, now);
                bucket.level < capacity(rate)
            });
        }
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&address) {
            return &mut self.beyond[0];
        }
        let bucket = self.addresses.entry(address);
        bucket.or_insert_with(|| Bucket::full(rate, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_burst_passes_and_the_rate_holds_after_it() {
        let start = clock::now();
        let mut rates = Rates::new(10, 5, start);
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..100 {
            rates.address(one, start).unwrap();
        }
        assert_eq!(rates.address(one, start), Err(Duration::from_millis(100)));
        rates.address("192.0.2.2".parse().unwrap(), start).unwrap();
        let later = start + Duration::from_millis(100);
        rates.address(one, later).unwrap();
        rates.address(one, later).unwrap_err();
        let passed = (0..2_000).filter(|step| {
            let now = later + Duration::from_millis(5 * step);
            rates.address(one, now).is_ok()
        });
        assert_eq!(passed.count(), 99, "ten seconds at ten a second");
    }

    #[test]
    fn callers_have_buckets_of_their_own_and_faults_cost_more() {
        let start = clock::now();
        let mut rates = Rates::new(10, 5, start);
        for _ in 0..50 {
            rates.caller("alice", start).unwrap();
        }
        rates.caller("alice", start).unwrap_err();
        rates.caller("bob", start).unwrap();
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..11 {
            rates.fault(one, 10, start);
        }
        rates.address(one, start).unwrap_err();
    }

    #[test]
    fn tables_stay_bounded() {
        let start = clock::now();
        let mut rates = Rates::new(1, 1, start);
        let passed = (0..1_000_000_u32).filter(|number| {
            let address = IpAddr::V6((u128::from(*number) << 64).into());
            rates.address(address, start).is_ok()
        });
        assert_eq!(passed.count(), ADDRESSES_MAX + 10);
        assert_eq!(rates.addresses.len(), ADDRESSES_MAX);
        // Once idle, they make place.
        let later = start + Duration::from_secs(60);
        rates.address("192.0.2.1".parse().unwrap(), later).unwrap();
        assert_eq!(rates.addresses.len(), 1);
        for number in 0..10_000 {
            let _ = rates.caller(&format!("caller-{number}"), start);
        }
        assert_eq!(rates.callers.len(), CALLERS_MAX);
    }

    #[test]
    fn addresses_of_one_prefix_are_one() {
        let text = |text: &str| prefix(text.parse().unwrap()).to_string();
        assert_eq!(text("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(text("::ffff:192.0.2.1"), "192.0.2.1");
    }
}
