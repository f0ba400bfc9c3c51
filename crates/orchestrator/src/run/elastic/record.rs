//! What the launching of hosts remembers in the truth store: which places shall have a process, and in which launch; the last order;
//! the state of the decisions. It is written before anything is done by it, so that the next leader does the same and no more.

use std::collections::BTreeMap;

use asterism_elasticity::{State, UnixMs};
use serde::{Deserialize, Serialize};

/// Bytes of a record at most: for each of 64 places a name, a number and its time, and the state of the decisions.
pub(super) const RECORD_BYTES_MAX: usize = 64 * 1024;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchRecord {
    /// The places that have, or had, a process.
    #[serde(default)]
    pub(super) places: BTreeMap<String, Place>,
    /// The number of hosts that an operator ordered last, until it is reached or, without a policy, until the next order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ordered: Option<u32>,
    /// What the decisions remember.
    #[serde(default)]
    pub(super) state: State,
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    /// The number of its last launch; 0: none was made.
    pub(super) launch: u64,
    /// The orchestrator that made it; empty: somebody else started the process.
    #[serde(default)]
    pub(super) by: String,
    /// What is wanted of it.
    pub(super) wanted: Wanted,
    /// Whether the process has never taken packets: if it ends, its launch has failed.
    #[serde(default)]
    pub(super) is_new: bool,
}

/// What is wanted of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wanted {
    /// A process.
    Runs,
    /// No process: it is drained, then stopped.
    Leaves {
        /// Since when.
        since: UnixMs,
        /// How long it may keep its flows.
        until: UnixMs,
    },
    /// No process.
    Off,
}

impl Place {
    /// Whether the place has a process, or shall have one.
    pub(super) fn is_on(&self) -> bool {
        self.wanted != Wanted::Off
    }
}

impl LaunchRecord {
    /// The record as stored.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// The bytes are none: nobody decides by them.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<LaunchRecord, String> {
        if bytes.len() > RECORD_BYTES_MAX {
            let length = bytes.len();
            return Err(format!(
                "it has {length} bytes: at most {RECORD_BYTES_MAX} are read"
            ));
        }
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Whether another record has the same but for the time of the last decision.
    pub(super) fn is_as(&self, other: &LaunchRecord) -> bool {
        let timeless = |record: &LaunchRecord| {
            let mut record = record.clone();
            record.state.seen = None;
            record
        };
        timeless(self) == timeless(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let leaves = Wanted::Leaves {
            since: UnixMs(7),
            until: UnixMs(9),
        };
        let place = |wanted| Place {
            launch: 3,
            by: "one".to_owned(),
            wanted,
            is_new: true,
        };
        let record = LaunchRecord {
            places: [("a", Wanted::Runs), ("b", leaves), ("c", Wanted::Off)]
                .map(|(name, wanted)| (name.to_owned(), place(wanted)))
                .into(),
            ordered: Some(2),
            state: State::new("edge"),
        };
        let bytes = record.to_bytes();
        assert_eq!(LaunchRecord::from_bytes(&bytes).as_ref(), Ok(&record));
        for cut in 0..bytes.len() {
            assert!(LaunchRecord::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(LaunchRecord::from_bytes(&vec![b' '; RECORD_BYTES_MAX + 1]).is_err());
        let mut later = record.clone();
        later.state.seen = Some(UnixMs(1));
        assert!(record.is_as(&later));
        later.ordered = None;
        assert!(!record.is_as(&later));
    }
}
