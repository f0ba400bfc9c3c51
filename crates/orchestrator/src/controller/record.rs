//! The record of a cluster in the truth store: the epoch, the process that each incarnation was named for, and the operator's orders.

use std::collections::{BTreeMap, BTreeSet};

use asterism_epochs::{EpochFile, HostEntry, ParseError};
use serde::{Deserialize, Serialize};

use super::input::{Order, Process};

/// Bytes of a record's text at most: an epoch's, and for each of 64 places a name, a process, an order and a host.
pub const RECORD_BYTES_MAX: usize = asterism_epochs::EPOCH_BYTES_MAX + 48 * 1024;

/// What the truth store holds of a cluster. Only its leader changes it, one version after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The epoch; `None` before the first.
    pub epoch: Option<EpochFile>,
    /// The process for which each member's incarnation was named. No other process begins it.
    pub named: BTreeMap<String, Process>,
    /// Hosts that get no new flows, by the operator's order, or before they are stopped: their places.
    pub drained: BTreeSet<String>,
    /// Hosts that get no packets, since they are about to be stopped: their places.
    pub withdrawn: BTreeSet<String>,
    /// The hosts of a cluster that lists no members, and their places. All else in the record is of places.
    pub hosts: BTreeMap<String, HostEntry>,
}

/// The record in the form in which it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    epoch: Option<String>,
    #[serde(default)]
    named: BTreeMap<String, Process>,
    #[serde(default)]
    drained: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    withdrawn: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hosts: BTreeMap<String, HostEntry>,
}

/// Why bytes are no record. The orchestrator decides nothing by them.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There are too many of them.
    #[error("the cluster's record has {0} bytes: at most {RECORD_BYTES_MAX} are read")]
    TooLong(usize),
    /// They are not JSON with a record's entries.
    #[error("the cluster's record is not understood: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The epoch is none of this cluster.
    #[error(
        "the cluster's record: {0}; if the list of members was changed, begin orchestrators and hosts with the former one, or give the cluster another name"
    )]
    Epoch(#[from] ParseError),
}

impl Record {
    /// The record as stored: JSON, with the epoch in the form of its file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = Stored {
            epoch: self.epoch.as_ref().map(EpochFile::text),
            named: self.named.clone(),
            drained: self.drained.clone(),
            withdrawn: self.withdrawn.clone(),
            hosts: self.hosts.clone(),
        };
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    /// Reads a stored record of a cluster with these places.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn from_bytes(bytes: &[u8], places: &[String]) -> Result<Record, RecordError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong(bytes.len()));
        }
        let stored: Stored = serde_json::from_slice(bytes)?;
        let read = |text: String| EpochFile::parse(&text, "the cluster's record", places);
        Ok(Record {
            epoch: stored.epoch.map(read).transpose()?,
            named: stored.named,
            drained: stored.drained,
            withdrawn: stored.withdrawn,
            hosts: stored.hosts,
        })
    }

    /// Whether the record has what an order asks for.
    #[must_use]
    pub(super) fn has(&self, order: &Order) -> bool {
        let place = |host: &String| {
            self.hosts
                .get(host)
                .map_or(host, |entry| &entry.place)
                .clone()
        };
        match order {
            Order::Drain(host) => self.drained.contains(&place(host)),
            Order::Withdraw(host) => self.withdrawn.contains(&place(host)),
            Order::Restore(host) => {
                let place = place(host);
                !self.drained.contains(&place) && !self.withdrawn.contains(&place)
            }
            Order::Fence(..) => true,
            Order::Forget(host) => !self.hosts.contains_key(host),
        }
    }

    /// The number of its epoch; 0 before the first.
    #[must_use]
    pub fn epoch_number(&self) -> u32 {
        self.epoch.as_ref().map_or(0, |epoch| epoch.epoch)
    }

    /// The incarnation in which a host takes part.
    #[must_use]
    pub fn member(&self, host: &str) -> Option<u64> {
        self.epoch.as_ref()?.members.get(host).copied()
    }

    /// The last incarnation of a place; `None` if it never had one.
    #[must_use]
    pub fn last_incarnation(&self, host: &str) -> Option<u64> {
        let left = || self.epoch.as_ref()?.left.get(host).copied();
        self.member(host).or_else(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let places: Vec<String> = ["a", "b"].map(String::from).into();
        let process = Process {
            folder: 7,
            start: 2,
        };
        let record = Record {
            epoch: Some(EpochFile::first(&places)),
            named: [("a".to_owned(), process)].into(),
            drained: ["b".to_owned()].into(),
            withdrawn: ["a".to_owned()].into(),
            hosts: BTreeMap::new(),
        };
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(&bytes, &places).unwrap(), record);
        let empty = Record::default();
        assert_eq!(
            Record::from_bytes(&empty.to_bytes(), &places).unwrap(),
            empty
        );
        for cut in 0..bytes.len() {
            assert!(Record::from_bytes(&bytes[..cut], &places).is_err(), "{cut}");
        }
        let foreign = Record::from_bytes(&bytes, &places[..1]).unwrap_err();
        assert!(
            foreign.to_string().contains("b is not a member"),
            "{foreign}"
        );
        let long = vec![b' '; RECORD_BYTES_MAX + 1];
        assert!(matches!(
            Record::from_bytes(&long, &places),
            Err(RecordError::TooLong(_))
        ));
    }
}
