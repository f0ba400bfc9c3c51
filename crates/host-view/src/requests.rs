//! What others ask of an instance, and what it answers.

use std::any::Any;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use asterism_engine::{Repaired, TracedPacket};
use asterism_function::PortNumber;
use asterism_state::audit::LeafSet;
use asterism_state::{Shown, Since};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::flow_text::FlowWanted;

/// Entries that one search finds at most.
pub const FOUND_MAX: usize = 64;

/// A part of a saved state does not decode: the entries before it are taken, and nothing after it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a part of it does not decode; {taken} entries before it were taken")]
pub struct RestoreError {
    /// Entries that were taken.
    pub taken: u64,
}

/// What others ask of an instance. A reply that nobody waits for any more is dropped.
#[derive(Debug)]
pub enum Request {
    /// The next packets, looked at one by one.
    Trace {
        /// How many.
        packets: usize,
        /// After that time those that came are all.
        within: Duration,
        /// Where they go once they are there.
        reply: SyncSender<Vec<TracedPacket>>,
    },
    /// The entries with a key, or a value.
    Find {
        /// Which.
        sought: Sought,
        /// In this object only.
        object: Option<u8>,
        /// Where the answer goes.
        reply: SyncSender<Found>,
    },
    /// To write again what it has of some parts of an object.
    Repair {
        /// The object.
        object: u8,
        /// Its parts.
        leaves: LeafSet,
        /// Whether what only others have of them is removed there.
        removes: bool,
        /// What was done.
        reply: SyncSender<Repaired>,
    },
    /// What the function tells of its state, in parts; the channel closes behind the last.
    Report {
        /// In the function's own words.
        question: u32,
        /// Where the parts go.
        parts: SyncSender<Vec<u8>>,
    },
    /// To go on with another function of the same kind: an `Arc` of it. Packets that are parked are called again with it.
    Replace {
        /// The function.
        function: Box<dyn Any + Send>,
        /// Reported once the instance goes on with it.
        taken: SyncSender<()>,
    },
    /// A digest of each object.
    Digests {
        /// Where they go.
        reply: SyncSender<Vec<u64>>,
    },
    /// The whole shared state, in parts. An empty one is the end: a channel that closes without it reported a part of the state.
    Save {
        /// Where the parts go.
        parts: SyncSender<Vec<u8>>,
    },
    /// Something that the control side tells the function, by a frame.
    Tell {
        /// As from this port: [`CONTROL`](asterism_function::CONTROL), or that of a chain's stage.
        port: PortNumber,
        /// The frame.
        frame: Box<[u8]>,
        /// Reported whether the function was called, if anybody waits for it.
        called: Option<SyncSender<bool>>,
    },
    /// A saved state, in parts.
    Restore {
        /// The parts.
        parts: Receiver<Vec<u8>>,
        /// How long it was away.
        since: Since,
        /// How many entries were taken, or why not all.
        reply: SyncSender<Result<u64, RestoreError>>,
    },
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The entries, at most [`FOUND_MAX`].
    pub entries: Vec<FoundEntry>,
    /// Whether there were more.
    pub more: bool,
    /// What of the store of remote objects was not searched, a sentence for each part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<String>,
}

/// What is sought: entries for which all holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sought {
    /// A word of the key's text, or all of it.
    pub key: Option<String>,
    /// The same of the value's.
    pub value: Option<String>,
    /// The key is that of such a flow.
    pub flow: Option<FlowWanted>,
}

/// An entry as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundEntry {
    /// Of which object.
    pub object: &'static str,
    /// What it is found by.
    pub key: String,
    /// What it holds.
    pub value: String,
    /// Who wrote it and how long it lives; a sum has nothing of that.
    #[serde(flatten)]
    pub provenance: Option<FoundProvenance>,
}

/// What is shown of a table's entry besides its key and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundProvenance {
    /// Which of the object's idle times holds for it.
    pub idle_class: u8,
    /// That time in seconds; 0 is for ever.
    pub idle_s: u32,
    /// Seconds since its last announced use.
    pub unused_s: u32,
    /// How often it was rewritten.
    pub generation: u64,
    /// Which member wrote it last, by its number.
    pub member: u16,
    /// That incarnation of it.
    pub incarnation: String,
    /// Under which number.
    pub sequence: u64,
    /// Another entry with the same key is preferred.
    pub alias: bool,
    /// This instance says when it idles out.
    pub ends_here: bool,
}

impl Found {
    /// Takes an entry of an object if it is sought, as long as there is room.
    pub fn look_at(&mut self, sought: &Sought, object: &'static str, entry: &Shown<'_>) {
        let key = format!("{:?}", entry.key);
        let is_it = |text: &str, word: &Option<String>| {
            word.as_ref().is_none_or(|word| has_word(text, word))
        };
        let is_flow = || sought.flow.as_ref().is_none_or(|flow| flow.is_in(&key));
        if !is_it(&key, &sought.key) || !is_flow() {
            return;
        }
        let value = format!("{:?}", entry.value);
        if !is_it(&value, &sought.value) {
            return;
        }
        if self.entries.len() >= FOUND_MAX {
            self.more = true;
            return;
        }
        self.entries.push(FoundEntry {
            object,
            key,
            value,
            provenance: entry.provenance.map(|provenance| FoundProvenance {
                idle_class: provenance.idle_class,
                idle_s: provenance.idle,
                unused_s: provenance.unused,
                generation: provenance.generation,
                member: provenance.origin.member,
                incarnation: format!("{:016x}", provenance.origin.incarnation),
                sequence: provenance.sequence,
                alias: provenance.alias,
                ends_here: provenance.ends_here,
            }),
        });
    }
}

/// Whether a text has this word, with or without what follows a slash (`10.0.0.1:4000` finds `10.0.0.1:4000/udp`).
pub fn has_word(text: &str, word: &str) -> bool {
    let marks = |letter: char| letter.is_whitespace() || "()[]{},\"".contains(letter);
    text.split(marks).any(|part| {
        part == word
            || part
                .split_once('/')
                .is_some_and(|(before, _)| before == word)
    }) || text == word
}

/// The result of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StateDocument {
    /// The entries.
    pub entries: Vec<EntryDocument>,
    /// Whether more entries match.
    pub more: bool,
    /// What of the store of remote objects was not searched, a sentence for each part: there may be entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<String>,
}

/// An entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as of `FoundEntry`")]
pub struct EntryDocument {
    pub object: String,
    pub key: String,
    pub value: String,
    #[serde(flatten)]
    pub provenance: Option<FoundProvenance>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_state::{OriginName, Provenance};

    #[test]
    fn keys_are_found_by_their_words() {
        let text =
            "inside 10.0.0.1:4000/udp outside 203.0.113.1:1024/udp remote 198.51.100.1:53/udp";
        for found in ["10.0.0.1:4000", "10.0.0.1:4000/udp", "198.51.100.1:53"] {
            assert!(has_word(text, found), "{found}");
        }
        for absent in ["10.0.0.1:400", "10.0.0.1", "10.0.0.1:4000/tcp", "udp", ""] {
            assert!(!has_word(text, absent), "{absent}");
        }
        assert!(has_word("Single(192.0.2.1)", "192.0.2.1"));
    }

    /// A value that is shown as it is written.
    struct Text(&'static str);
    impl core::fmt::Debug for Text {
        fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            formatter.write_str(self.0)
        }
    }

    #[test]
    fn entries_are_found_by_words_of_key_and_value_and_sums_tell_no_writer() {
        let origin = OriginName {
            member: 3,
            incarnation: 255,
        };
        let provenance = Provenance {
            idle_class: 1,
            idle: 30,
            unused: 2,
            generation: 4,
            origin,
            sequence: 9,
            alias: false,
            ends_here: true,
        };
        let entries = [
            (1, "3 of 200 tokens, short", None),
            (1, "udp", Some(provenance)),
            (2, "150 of 200 tokens", None),
        ];
        let found = |key: Option<&str>, value: Option<&str>| {
            let [key, value] = [key, value].map(|word| word.map(str::to_owned));
            let flow = None;
            let (sought, mut found) = (Sought { key, value, flow }, Found::default());
            for (key, value, provenance) in &entries {
                let value = &Text(value);
                found.look_at(
                    &sought,
                    "object",
                    &Shown {
                        key,
                        value,
                        provenance: *provenance,
                    },
                );
            }
            found.entries
        };
        assert_eq!(found(Some("1"), None).len(), 2);
        assert_eq!(found(Some("3"), None), [], "that is no key");
        let short = found(None, Some("short"));
        assert_eq!(short, found(Some("1"), Some("short")));
        assert_eq!(found(Some("2"), Some("short")), []);
        let json = |entry: &FoundEntry| serde_json::to_value(entry).expect("it is plain");
        assert_eq!(
            json(&short[0]),
            serde_json::json!({"object": "object", "key": "1", "value": "3 of 200 tokens, short"})
        );
        let written = json(&found(None, Some("udp"))[0]);
        assert_eq!(
            (&written["member"], &written["idle_s"]),
            (&3.into(), &30.into())
        );
        // The command reads both as they were reported.
        for (entry, has_provenance) in [(&short[0], false), (&found(None, Some("udp"))[0], true)] {
            let read: EntryDocument =
                serde_json::from_value(json(entry)).expect("it is a document");
            assert_eq!(read.provenance.is_some(), has_provenance);
            assert_eq!(read.provenance, entry.provenance);
        }
    }

    #[test]
    fn what_is_beyond_the_bound_is_said_to_be_there() {
        let (sought, mut found) = (Sought::default(), Found::default());
        for key in 0..=FOUND_MAX {
            assert!(!found.more);
            let entry = Shown {
                key: &key,
                value: &0,
                provenance: None,
            };
            found.look_at(&sought, "object", &entry);
        }
        assert_eq!((found.entries.len(), found.more), (FOUND_MAX, true));
    }
}
