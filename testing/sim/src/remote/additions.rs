//! Sums that packets add to: a shard has what was added by the transactions that its primary made, each once.

use std::collections::{BTreeMap, BTreeSet};

use asterism_state::{Fetch, State, Transaction};

use super::keys::ShardKeys;
use super::ledger::{BUDGET, BUDGETS, Name, WRITERS};
use super::network::Incarnation;
use super::servers::Server;
use crate::report::Failure;

/// A sum: its object, its bucket of time and its field.
type Sum = (u8, u32, Vec<u8>);
/// What a transaction adds to sums.
pub(super) type Additions = Vec<(Sum, i64)>;

/// What a transaction adds: to the sum of one account one at most, and to what was spent of one budget as much.
///
/// # Errors
/// It adds something else.
pub(super) fn of(state: &impl State, transaction: &Transaction) -> Result<Additions, Failure> {
    let (mut additions, mut result) = (Additions::new(), Ok(()));
    let written = state.each_write(transaction.writes(), |number, _, write| {
        if let (WRITERS | BUDGETS, Some(object)) = (number, state.object(number)) {
            let each = Fetch::each_addition(object, write, &mut |addition| {
                let sum = (number, addition.bucket, addition.field.to_vec());
                additions.push((sum, addition.amount));
            });
            result = result.and(each);
        }
    });
    let of = |object| additions.iter().filter(move |((of, ..), _)| *of == object);
    let is_so = of(WRITERS).count() <= 1
        && of(BUDGETS).count() <= 1
        && additions.iter().all(|(_, amount)| *amount == 1);
    match written.and(result).is_ok() && is_so {
        true => Ok(additions),
        false => Err(Failure::new(
            "a packet adds what it counts",
            format!("{additions:?}"),
        )),
    }
}

/// What has been added.
#[derive(Default)]
pub(super) struct Sums(BTreeMap<Sum, i64>);

impl Sums {
    pub(super) fn add(&mut self, additions: &Additions) {
        for (sum, amount) in additions {
            *self.0.entry(sum.clone()).or_default() += amount;
        }
    }

    /// The server has these sums, of all objects or of those that the additions name; buckets of time that have ended it need not have.
    pub(super) fn are_there(
        &self,
        (keys, server): (&ShardKeys, &mut Server),
        added: Option<&Additions>,
    ) -> Result<(), Failure> {
        let all = self.0.keys().map(|(object, bucket, _)| (*object, *bucket));
        let named = added.map(|added| {
            let named = added
                .iter()
                .map(|((object, bucket, _), _)| (*object, *bucket));
            named.collect::<BTreeSet<_>>()
        });
        for (object, bucket) in named.unwrap_or_else(|| all.collect()) {
            let expected = self
                .0
                .iter()
                .filter(|((of, at, _), _)| (*of, *at) == (object, bucket));
            let expected: BTreeMap<Vec<u8>, i64> = expected
                .map(|((.., field), sum)| (field.clone(), *sum))
                .collect();
            let found = keys.sums(server, (object, bucket));
            let has_ended = bucket != 0 && found.is_empty() && added.is_none();
            if found != expected && !has_ended {
                return Err(Failure::new(
                    "what packets add is added once",
                    format!("{found:x?} instead of {expected:x?} in {object}, bucket {bucket}"),
                ));
            }
        }
        Ok(())
    }
}

/// What packets of a host spent of a client's budget: by their arrival, and when that was committed.
#[derive(Default)]
pub(super) struct Spent(BTreeMap<(Incarnation, Name), Vec<(u64, u64)>>);

impl Spent {
    pub(super) fn note(&mut self, host: Incarnation, at_us: (u64, u64), additions: &Additions) {
        for ((object, _, field), _) in additions {
            if *object == BUDGETS {
                let spent = self.0.entry((host, Name::of_row(field))).or_default();
                spent.push(at_us);
            }
        }
    }

    /// No host spent more than there was, whatever the store answered it: a packet that waits has what comes back while it does.
    pub(super) fn judge(&mut self) -> Result<(), Failure> {
        for ((host, client), spent) in &mut self.0 {
            spent.sort_unstable();
            for (place, (from_us, _)) in spent.iter().enumerate() {
                let mut until_us = 0;
                for (count, (to_us, committed_us)) in (1..).zip(&spent[place..]) {
                    until_us = until_us.max(*committed_us);
                    let refilled = BUDGET.tokens_per_second * (until_us - from_us) / 1_000_000;
                    if count > BUDGET.burst_tokens + refilled + 1 {
                        return Err(Failure::new(
                            "a host spends what there is",
                            format!(
                                "{count} of {client:?} at host {host} in {} us",
                                to_us - from_us
                            ),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().map(|spent| spent.len() as u64).sum()
    }
}
