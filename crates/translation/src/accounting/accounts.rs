//! The account of each subscriber, in a table of fixed size, so that no packet allocates.

use asterism_function::objects::hash;

/// What a subscriber has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Account {
    /// Outside ports in use.
    pub(super) ports: u32,
    /// The first of its blocks, plus one; 0: none.
    pub(super) first_block: u32,
    /// Thousandths of a session that were opened and not yet made up for by time.
    pub(super) spent: u64,
    /// When `spent` was reckoned, in microseconds of this instance's clock.
    pub(super) reckoned_us: u64,
}

impl Account {
    fn is_empty(&self) -> bool {
        self.ports == 0 && self.first_block == 0
    }

    /// Thousandths of a session that are still spent at a time, of so many sessions a second that are made up for.
    pub(super) fn spent_at(&self, now_us: u64, per_second: u32) -> u64 {
        let passed = now_us.saturating_sub(self.reckoned_us);
        // A thousandth of a session is made up for in 1000 / `per_second` microseconds.
        let made_up = passed.saturating_mul(per_second.into()) / 1_000;
        self.spent.saturating_sub(made_up)
    }
}

/// Accounts by subscriber: open addressing, so that one is a cache line or two away.
#[derive(Debug)]
pub(super) struct Accounts {
    slots: Vec<Option<(u32, Account)>>,
    used: u32,
    most: u32,
    /// Of the cluster's secret, so that nobody can choose addresses that crowd one place.
    seed: u64,
}

impl Accounts {
    /// Room for so many subscribers.
    pub(super) fn new(most: u32, seed: u64) -> Self {
        let slots = (most.max(1) as usize).saturating_mul(2).next_power_of_two();
        Self {
            slots: vec![None; slots],
            used: 0,
            most,
            seed,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.used
    }

    pub(super) fn get(&self, subscriber: u32) -> Option<Account> {
        let at = self.find(subscriber).ok()?;
        self.slots[at].map(|(_, account)| account)
    }

    /// Whether there is an account, or room for one.
    pub(super) fn has_room_for(&self, subscriber: u32) -> bool {
        self.used < self.most || self.find(subscriber).is_ok()
    }

    /// Changes an account, making it first where there is none; false where there is no room. One that is empty afterwards is
    /// closed.
    pub(super) fn change(&mut self, subscriber: u32, change: impl FnOnce(&mut Account)) -> bool {
        let at = match self.find(subscriber) {
            Ok(at) => at,
            Err(_) if self.used >= self.most => return false,
            Err(at) => {
                self.slots[at] = Some((subscriber, Account::default()));
                self.used += 1;
                at
            }
        };
        if let Some((_, account)) = &mut self.slots[at] {
            change(account);
            if account.is_empty() {
                self.close(at);
            }
        }
        true
    }

    /// Where a subscriber's account is, or would be.
    fn find(&self, subscriber: u32) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(subscriber);
        // At most half of the places are used, so a free one comes.
        loop {
            match &self.slots[at] {
                Some((known, _)) if *known == subscriber => return Ok(at),
                Some(_) => at = (at + 1) & mask,
                None => return Err(at),
            }
        }
    }

    fn home(&self, subscriber: u32) -> usize {
        hash::word(subscriber.into(), self.seed) as usize & (self.slots.len() - 1)
    }

    /// Frees a place, and moves up what stood behind it.
    fn close(&mut self, mut at: usize) {
        let mask = self.slots.len() - 1;
        self.slots[at] = None;
        self.used -= 1;
        let mut next = (at + 1) & mask;
        while let Some((subscriber, _)) = self.slots[next] {
            let home = self.home(subscriber);
            let reaches = (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask);
            if reaches {
                self.slots.swap(at, next);
                at = next;
            }
            next = (next + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Beside a map: what is opened and closed in any order is found, and nothing else.
    #[test]
    fn accounts_are_found_while_they_are_open() {
        const MOST: u32 = 50;
        let mut accounts = Accounts::new(MOST, 3);
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        let mut refused = 0;
        for draw in 0..20_000_u64 {
            let subscriber = (hash::words(draw, 1, 9) % 80) as u32;
            let ports = (hash::words(draw, 2, 9) % 3) as u32;
            let fits = model.len() < MOST as usize || model.contains_key(&subscriber);
            assert_eq!(accounts.has_room_for(subscriber), fits);
            let changed = accounts.change(subscriber, |account| account.ports = ports);
            assert_eq!(changed, fits);
            refused += u32::from(!changed);
            if changed && ports > 0 {
                model.insert(subscriber, ports);
            } else if changed {
                model.remove(&subscriber);
            }
            assert_eq!(accounts.len() as usize, model.len());
            for subscriber in 0..80 {
                let ports = accounts.get(subscriber).map(|account| account.ports);
                assert_eq!(ports, model.get(&subscriber).copied());
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn time_makes_up_for_what_was_spent() {
        let account = Account {
            spent: 10_000,
            reckoned_us: 1_000_000,
            ..Account::default()
        };
        assert_eq!(account.spent_at(1_000_000, 5), 10_000);
        assert_eq!(account.spent_at(1_200_000, 5), 9_000);
        assert_eq!(
            account.spent_at(900_000, 5),
            10_000,
            "clocks do not run back"
        );
        assert_eq!(account.spent_at(u64::MAX, u32::MAX), 0);
    }
}
