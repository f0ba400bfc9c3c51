//! Metering: usage by tenant from cumulative counts of hosts, each unit once.
//!
//! A host's incarnation is an account. Its counts only grow, so the greatest that was ever reported is what is known: reports that
//! come twice, late or out of order change nothing, and a lost one is made up for by the next. A restart is another incarnation,
//! so another account. Lists of members open accounts, and close those that they no longer name; a closed account takes late
//! reports for [`SETTLED_AFTER_MS`], and is then added to its tenants' settled usage and forgotten. Neither lists nor reports
//! open it again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::mutant::{self, Mutant};
use super::report::{Counts, NAME_BYTES_MAX, Report, TENANTS_MAX};

/// Milliseconds for which a closed account takes late reports: a day.
pub const SETTLED_AFTER_MS: u64 = 86_400_000;
/// Accounts at most; the account that was closed first is settled before a further one opens.
pub const ACCOUNTS_MAX: usize = 1_024;
/// Milliseconds by which the clock may have gone back since an account was opened, before its counts look absurd: an hour.
const SKEW_MS: u64 = 3_600_000;

/// Usage of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Packets handled.
    pub packets: u128,
    /// Bytes of these packets.
    pub bytes: u128,
    /// Flows that began.
    pub flows: u128,
    /// Time in which instances ran, in milliseconds, summed over instances.
    pub instance_ms: u128,
}

impl Usage {
    /// Adds counts of an account. Sums stay below 2¹²⁸ for longer than any host runs.
    fn add(&mut self, counts: Counts) {
        let add = |sum: &mut u128, count: u64| *sum = sum.saturating_add(u128::from(count));
        add(&mut self.packets, counts.packets);
        add(&mut self.bytes, counts.bytes);
        add(&mut self.flows, counts.flows);
        add(&mut self.instance_ms, counts.instance_ms);
    }
}

/// One incarnation of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// When it was opened, in milliseconds of UTC.
    pub opened_ms: u64,
    /// When the list of members no longer had it; None while it is open.
    pub closed_ms: Option<u64>,
    /// What is known, by tenant.
    pub tenants: BTreeMap<String, Counts>,
}

/// What metering remembers: a plain value. A leader stores it before it exports totals, with each list of members, and when a
/// report was taken to a closed account ([`Taken::Closed`]); the next leader continues with it. What it lacks comes with the next
/// reports of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageState {
    /// The epoch of the last list of members.
    pub epoch: u64,
    /// Accounts by host and incarnation.
    pub accounts: BTreeMap<String, BTreeMap<u64, Account>>,
    /// Usage of accounts that were settled, by tenant.
    pub settled: BTreeMap<String, Usage>,
    /// Reports refused so far.
    pub refused: u64,
}

/// What a report was taken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The account of a member: what a lost state lacks comes with the member's next report.
    Open,
    /// The account of an incarnation that left. It may never report again: the caller stores the state now.
    Closed,
}

/// Why a report or a list of members was not taken. Nothing was changed, but that refused reports are counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The list is not newer than the last one.
    #[error("members of epoch {offered} are not newer than those of epoch {known}")]
    OldMembers {
        /// The epoch of the list.
        offered: u64,
        /// The epoch of the last one.
        known: u64,
    },
    /// There are more open accounts than may be.
    #[error("{members} members are more than {ACCOUNTS_MAX}")]
    TooManyMembers {
        /// How many there are.
        members: usize,
    },
    /// No list of members had the incarnation, or its account was settled.
    #[error(
        "incarnation {incarnation} of {host} has no account: no epoch named it, or it left over a day ago"
    )]
    NoAccount {
        /// The host.
        host: String,
        /// The incarnation.
        incarnation: u64,
    },
    /// The report has more tenants than a cluster may have.
    #[error("{tenants} tenants are more than {TENANTS_MAX}")]
    TooManyTenants {
        /// How many there would be.
        tenants: usize,
    },
    /// A name is empty or too long.
    #[error("the name \"{0}\" must have 1 to {NAME_BYTES_MAX} bytes")]
    Name(String),
    /// A count is beyond all that a host can do.
    #[error("{field} of tenant {tenant} at {host} cannot be that much")]
    Absurd {
        /// The host.
        host: String,
        /// The tenant.
        tenant: String,
        /// The count.
        field: &'static str,
    },
}

/// Meters the usage of one cluster. Does no I/O and reads no clock; a report costs a look-up for each tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    state: UsageState,
}

impl Meter {
    /// Continues with a state, or begins with an empty one.
    #[must_use]
    pub fn resume(state: UsageState) -> Meter {
        Meter { state }
    }

    /// What the next leader needs.
    #[must_use]
    pub fn state(&self) -> &UsageState {
        &self.state
    }

    /// Takes the members of an epoch, each with its incarnation: opens the accounts of newcomers and closes those of all others.
    /// Settles accounts that were closed for long enough.
    ///
    /// # Errors
    /// The epoch is not newer than the last one, or has too many members. Nothing was changed.
    pub fn members(
        &mut self,
        epoch: u64,
        now_ms: u64,
        members: &BTreeMap<String, u64>,
    ) -> Result<(), UsageError> {
        let known = self.state.epoch;
        if epoch <= known && !believes_old_members() {
            return Err(UsageError::OldMembers {
                offered: epoch,
                known,
            });
        }
        if members.len() > ACCOUNTS_MAX {
            let members = members.len();
            return Err(UsageError::TooManyMembers { members });
        }
        self.check_names(members.keys())?;
        self.state.epoch = epoch;
        for (host, accounts) in &mut self.state.accounts {
            for (incarnation, account) in accounts {
                if members.get(host) != Some(incarnation) {
                    account.closed_ms.get_or_insert(now_ms);
                }
            }
        }
        if mutant::active(Mutant::LeavingForgets) {
            self.state
                .accounts
                .retain(|host, _| members.contains_key(host));
        }
        for (host, incarnation) in members {
            self.open(host, *incarnation, now_ms);
        }
        self.settle(now_ms);
        while self.accounts() > ACCOUNTS_MAX && self.settle_oldest() {}
        Ok(())
    }

    fn open(&mut self, host: &str, incarnation: u64, now_ms: u64) {
        let accounts = self.state.accounts.entry(host.to_owned()).or_default();
        if mutant::active(Mutant::RestartForgets) {
            accounts.retain(|other, _| *other == incarnation);
        }
        accounts.entry(incarnation).or_insert_with(|| Account {
            opened_ms: now_ms,
            ..Account::default()
        });
    }

    /// Takes a report. Taking it again, or an older one of the incarnation, changes nothing.
    ///
    /// # Errors
    /// The report is of an incarnation without an account, or cannot be right. It is counted as refused; usage was not changed.
    pub fn report(&mut self, now_ms: u64, report: &Report) -> Result<Taken, UsageError> {
        let taken = self.check(now_ms, report);
        match taken {
            Ok(_) => self.take(report),
            Err(_) => self.state.refused = self.state.refused.saturating_add(1),
        }
        taken
    }

    fn check(&self, now_ms: u64, report: &Report) -> Result<Taken, UsageError> {
        if report.tenants.len() > TENANTS_MAX {
            let tenants = report.tenants.len();
            return Err(UsageError::TooManyTenants { tenants });
        }
        let host = &report.host;
        let Some(account) = self.account(host, report.incarnation) else {
            return Err(UsageError::NoAccount {
                host: host.chars().take(NAME_BYTES_MAX).collect(),
                incarnation: report.incarnation,
            });
        };
        self.check_names(report.tenants.keys())?;
        // Nearly every report has no other tenants than those before it: all others need not be looked through.
        let is_known = |tenant: &String| account.tenants.contains_key(tenant);
        if !report.tenants.keys().all(is_known) {
            let known: BTreeSet<&String> = self.tenants().chain(report.tenants.keys()).collect();
            if known.len() > TENANTS_MAX {
                let tenants = known.len();
                return Err(UsageError::TooManyTenants { tenants });
            }
        }
        let runs_ms = now_ms.saturating_sub(account.opened_ms);
        for (tenant, counts) in &report.tenants {
            if let Some(field) = counts.absurd_after(runs_ms.saturating_add(SKEW_MS)) {
                return Err(UsageError::Absurd {
                    host: host.clone(),
                    tenant: tenant.clone(),
                    field,
                });
            }
        }
        Ok(match account.closed_ms {
            None => Taken::Open,
            Some(_) => Taken::Closed,
        })
    }

    fn account(&self, host: &str, incarnation: u64) -> Option<&Account> {
        const NONE: &Account = &Account {
            opened_ms: 0,
            closed_ms: None,
            tenants: BTreeMap::new(),
        };
        let account = self.state.accounts.get(host)?.get(&incarnation);
        account.or_else(|| mutant::active(Mutant::SettledCountsAgain).then_some(NONE))
    }

    fn take(&mut self, report: &Report) {
        let accounts = self.state.accounts.entry(report.host.clone()).or_default();
        let account = accounts.entry(report.incarnation).or_default();
        for (tenant, counts) in &report.tenants {
            let known = account.tenants.entry(tenant.clone()).or_default();
            *known = known_after(*known, *counts);
        }
    }

    /// Settles accounts that were closed a day ago. Called with each list of members too, so that it may be called rarely.
    pub fn settle(&mut self, now_ms: u64) {
        let is_due = |account: &Account| {
            let closed = account.closed_ms;
            closed.is_some_and(|closed| now_ms.saturating_sub(closed) >= SETTLED_AFTER_MS)
        };
        let mut due = Vec::new();
        for (host, accounts) in &self.state.accounts {
            let settled = accounts.iter().filter(|(_, account)| is_due(account));
            due.extend(settled.map(|(incarnation, _)| (host.clone(), *incarnation)));
        }
        for (host, incarnation) in due {
            self.settle_one(&host, incarnation);
        }
    }

    /// Settles the account that was closed first; false if all are open. Reports of it are refused from then on.
    pub fn settle_oldest(&mut self) -> bool {
        let mut oldest: Option<(u64, String, u64)> = None;
        for (host, accounts) in &self.state.accounts {
            for (incarnation, account) in accounts {
                let Some(closed) = account.closed_ms else {
                    continue;
                };
                if oldest.as_ref().is_none_or(|(first, ..)| closed < *first) {
                    oldest = Some((closed, host.clone(), *incarnation));
                }
            }
        }
        let Some((_, host, incarnation)) = oldest else {
            return false;
        };
        self.settle_one(&host, incarnation);
        true
    }

    fn settle_one(&mut self, host: &str, incarnation: u64) {
        let Some(accounts) = self.state.accounts.get_mut(host) else {
            return;
        };
        let account = accounts.remove(&incarnation);
        if accounts.is_empty() && !mutant::active(Mutant::SettledCountsAgain) {
            self.state.accounts.remove(host);
        }
        for (tenant, counts) in account.into_iter().flat_map(|account| account.tenants) {
            self.state.settled.entry(tenant).or_default().add(counts);
        }
    }

    fn accounts(&self) -> usize {
        self.state.accounts.values().map(BTreeMap::len).sum()
    }

    fn tenants(&self) -> impl Iterator<Item = &String> {
        let open = self.state.accounts.values().flat_map(BTreeMap::values);
        let open = open.flat_map(|account| account.tenants.keys());
        self.state.settled.keys().chain(open)
    }

    /// Usage of all tenants, by name: settled, and of all accounts as far as it is known. Only grows.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<String, Usage> {
        let mut totals = self.state.settled.clone();
        for account in self.state.accounts.values().flat_map(BTreeMap::values) {
            for (tenant, counts) in &account.tenants {
                totals.entry(tenant.clone()).or_default().add(*counts);
            }
        }
        totals
    }

    fn check_names<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<(), UsageError> {
        for name in names {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                let shown = name.chars().take(NAME_BYTES_MAX).collect();
                return Err(UsageError::Name(shown));
            }
        }
        Ok(())
    }
}

fn believes_old_members() -> bool {
    mutant::active(Mutant::OldMembersBelieved)
}

/// What is known of an account after one more report.
fn known_after(known: Counts, counts: Counts) -> Counts {
    if mutant::active(Mutant::NewestCounts) {
        return counts;
    }
    added(known, counts).unwrap_or_else(|| known.join(counts))
}

/// The sum of two reports, which is a planted bug.
fn added(known: Counts, counts: Counts) -> Option<Counts> {
    mutant::active(Mutant::ReportsAdded).then(|| Counts {
        packets: known.packets.saturating_add(counts.packets),
        bytes: known.bytes.saturating_add(counts.bytes),
        flows: known.flows.saturating_add(counts.flows),
        instance_ms: known.instance_ms.saturating_add(counts.instance_ms),
    })
}
