//! The state of metering as the truth store holds it: JSON in which each tenant's name stands once.
//!
//! With the most tenants and members that a configuration may have it is at most 400 kB. Accounts that are closed come on top: those
//! closed first are settled before their day is over, if the value would be too long.

use std::collections::BTreeMap;

use asterism_elasticity::usage::{Account, Counts, Meter, Usage, UsageState};
use asterism_truth_store::VALUE_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// The form's number; one of another form is not read.
const VERSION: u32 = 1;

/// Why a state is not stored, or what is stored is no state.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is too long although nothing can be settled any more. Nothing was stored.
    #[error(
        "usage of {tenants} tenants at {accounts} members has {bytes} bytes, and a value of the truth store at most {VALUE_BYTES_MAX}"
    )]
    TooLong {
        /// Tenants.
        tenants: usize,
        /// Members.
        accounts: usize,
        /// Bytes of the state.
        bytes: usize,
    },
    /// It is none of this form. Nothing is metered, and nothing written over it.
    #[error(
        "the stored usage is not understood, and left as it is: {0}; a later version may have written it"
    )]
    Syntax(#[from] serde_json::Error),
    /// It is of another version. Nothing is metered, and nothing written over it.
    #[error(
        "the stored usage has version {0}, and is left as it is; this program writes {VERSION}"
    )]
    Version(u32),
    /// A count is of a tenant that is not listed.
    #[error(
        "the stored usage has counts of tenant {0}, which it does not list; it is left as it is"
    )]
    NoTenant(usize),
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    epoch: u64,
    refused: u64,
    tenants: Vec<String>,
    /// By tenant: packets, bytes, flows, milliseconds.
    settled: Vec<(usize, u128, u128, u128, u128)>,
    accounts: Vec<StoredAccount>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAccount {
    host: String,
    incarnation: u64,
    opened_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed_ms: Option<u64>,
    counts: Vec<(usize, u64, u64, u64, u64)>,
}

/// The state's bytes. Settles accounts that were closed first, as far as the bytes would be too many.
pub(super) fn encode(meter: &mut Meter) -> Result<Vec<u8>, StoredError> {
    loop {
        let bytes = serde_json::to_vec(&Stored::of(meter.state()))?;
        if bytes.len() <= VALUE_BYTES_MAX {
            return Ok(bytes);
        }
        if !meter.settle_oldest() {
            return Err(StoredError::TooLong {
                tenants: meter.totals().len(),
                accounts: meter.state().accounts.len(),
                bytes: bytes.len(),
            });
        }
    }
}

/// Reads a state; the empty one if there is none yet.
pub(super) fn decode(bytes: Option<&[u8]>) -> Result<UsageState, StoredError> {
    let Some(bytes) = bytes else {
        return Ok(UsageState::default());
    };
    let Versioned { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(StoredError::Version(version));
    }
    serde_json::from_slice::<Stored>(bytes)?.state()
}

impl Stored {
    fn of(state: &UsageState) -> Stored {
        let of_accounts = state.accounts.values().flat_map(BTreeMap::values);
        let tenants = of_accounts.flat_map(|account| account.tenants.keys());
        let mut places: BTreeMap<&String, usize> = BTreeMap::new();
        for tenant in tenants.chain(state.settled.keys()) {
            places.insert(tenant, 0);
        }
        for (number, place) in places.values_mut().enumerate() {
            *place = number;
        }
        let place = |tenant: &String| places.get(tenant).copied().unwrap_or_default();
        let settled = state.settled.iter().map(|(tenant, usage)| {
            let Usage {
                packets,
                bytes,
                flows,
                instance_ms,
            } = *usage;
            (place(tenant), packets, bytes, flows, instance_ms)
        });
        let counts = |(tenant, counts): (&String, &Counts)| {
            let Counts {
                packets,
                bytes,
                flows,
                instance_ms,
            } = *counts;
            (place(tenant), packets, bytes, flows, instance_ms)
        };
        let accounts = state.accounts.iter().flat_map(|(host, accounts)| {
            accounts.iter().map(|(incarnation, account)| StoredAccount {
                host: host.clone(),
                incarnation: *incarnation,
                opened_ms: account.opened_ms,
                closed_ms: account.closed_ms,
                counts: account.tenants.iter().map(counts).collect(),
            })
        });
        Stored {
            version: VERSION,
            epoch: state.epoch,
            refused: state.refused,
            settled: settled.collect(),
            accounts: accounts.collect(),
            tenants: places.keys().map(|tenant| (*tenant).clone()).collect(),
        }
    }

    fn state(self) -> Result<UsageState, StoredError> {
        let tenants = self.tenants;
        let name = |place: usize| {
            let name = tenants.get(place);
            name.cloned().ok_or(StoredError::NoTenant(place))
        };
        let mut state = UsageState {
            epoch: self.epoch,
            refused: self.refused,
            ..UsageState::default()
        };
        for (tenant, packets, bytes, flows, instance_ms) in self.settled {
            let usage = Usage {
                packets,
                bytes,
                flows,
                instance_ms,
            };
            state.settled.insert(name(tenant)?, usage);
        }
        for stored in self.accounts {
            let mut account = Account {
                opened_ms: stored.opened_ms,
                closed_ms: stored.closed_ms,
                ..Account::default()
            };
            for (tenant, packets, bytes, flows, instance_ms) in stored.counts {
                let counts = Counts {
                    packets,
                    bytes,
                    flows,
                    instance_ms,
                };
                account.tenants.insert(name(tenant)?, counts);
            }
            let accounts = state.accounts.entry(stored.host).or_default();
            accounts.insert(stored.incarnation, account);
        }
        Ok(state)
    }
}
