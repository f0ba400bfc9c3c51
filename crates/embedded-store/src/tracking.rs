//! Connections that keep what they have read (`CLIENT TRACKING`): each hears once of the next change of each key that it read, or of all
//! changes of keys that begin as it says (`BCAST`), whether it read them or not.

use std::collections::{BTreeMap, BTreeSet};

use asterism_resp::ReplyWriter;

/// Keys that are tracked for all connections together at most, and their bytes. One more, and the first of them counts as changed.
const TRACKED_MAX: usize = 1 << 20;
const TRACKED_BYTES_MAX: usize = 64 << 20;
/// Bytes of keys that a connection is to hear of since they begin as it says, at most. With more it hears that all have changed.
const BROADCAST_BYTES_MAX: usize = 4 << 20;
/// Beginnings of keys that one connection hears of at most, and their bytes.
pub(crate) const PREFIXES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 1 << 14;

/// What a connection is to hear.
#[derive(Debug, Default)]
struct Invalidations {
    changed: Vec<Vec<u8>>,
    /// Keys that begin as it says, each once however often it has changed.
    broadcast: BTreeSet<Vec<u8>>,
    /// Of these.
    broadcast_bytes: usize,
    /// All keys have changed.
    all: bool,
}

impl Invalidations {
    fn all_changed(&mut self) {
        self.changed.clear();
        self.broadcast.clear();
        (self.broadcast_bytes, self.all) = (0, true);
    }

    fn broadcast(&mut self, key: &[u8]) {
        if self.broadcast_bytes + key.len() > BROADCAST_BYTES_MAX {
            return self.all_changed();
        }
        if self.broadcast.insert(key.to_vec()) {
            self.broadcast_bytes += key.len();
        }
    }
}

/// Why nothing of a connection is tracked that was not before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrackingError {
    /// What has changed cannot be announced in version 2 of the protocol.
    Version,
    /// Keys that begin so, where the keys that are read are tracked.
    PrefixAlone,
    /// The keys that are read are tracked, or those that begin so, and the other is asked for.
    Switched,
    /// The connection hears of keys that begin with the other one already, and keys may begin with both.
    Known {
        one: Vec<u8>,
        other: Vec<u8>,
    },
    /// The same of two that it names together.
    Provided {
        one: Vec<u8>,
        other: Vec<u8>,
    },
    TooMany,
}

impl TrackingError {
    /// As Redis says it, but for what it does not refuse.
    pub(crate) fn text(&self) -> String {
        let overlap = |one: &[u8], other_is: &str, other: &[u8]| {
            let [one, other] = [one, other].map(String::from_utf8_lossy);
            format!(
                "ERR Prefix '{one}' overlaps with {other_is} prefix '{other}'. Prefixes for a single client must not overlap."
            )
        };
        match self {
            Self::Version => {
                "ERR this store tracks in version 3 of the protocol: HELLO 3 first".into()
            }
            Self::PrefixAlone => "ERR PREFIX option requires BCAST mode to be enabled".into(),
            Self::Switched => "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.".into(),
            Self::Known { one, other } => overlap(one, "an existing", other),
            Self::Provided { one, other } => overlap(one, "another provided", other),
            Self::TooMany => {
                format!("ERR more than {PREFIXES_MAX} prefixes, or prefixes that are too long")
            }
        }
    }
}

/// Who has read which keys, by the numbers of connections.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    readers: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Of these keys.
    bytes: usize,
    /// Who hears of all keys that begin so.
    prefixes: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    unheard: BTreeMap<u64, Invalidations>,
    last: u64,
}

impl Tracking {
    /// A connection begins to keep what it reads: its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.unheard.insert(self.last, Invalidations::default());
        self.last
    }

    /// It keeps nothing any more.
    pub(crate) fn end(&mut self, reader: u64) {
        if self.unheard.remove(&reader).is_some() {
            let bytes = &mut self.bytes;
            self.readers.retain(|key, readers| {
                readers.remove(&reader);
                if readers.is_empty() {
                    *bytes -= key.len();
                }
                !readers.is_empty()
            });
            self.prefixes.retain(|_, readers| {
                readers.remove(&reader);
                !readers.is_empty()
            });
        }
    }

    /// It hears of all changes of keys that begin so, besides those that it heard of before. No two of its prefixes may overlap.
    pub(crate) fn broadcast(
        &mut self,
        reader: u64,
        prefixes: &[&[u8]],
    ) -> Result<(), TrackingError> {
        let of_reader = self
            .prefixes
            .iter()
            .filter(|(_, who)| who.contains(&reader));
        let known: Vec<&Vec<u8>> = of_reader.map(|(prefix, _)| prefix).collect();
        for (number, one) in prefixes.iter().enumerate() {
            if let Some(other) = known.iter().find(|other| overlap(one, other)) {
                let (one, other) = (one.to_vec(), other.to_vec());
                return Err(TrackingError::Known { one, other });
            }
            let later = prefixes.get(number + 1..).unwrap_or_default();
            if let Some(other) = later.iter().find(|other| overlap(one, other)) {
                let (one, other) = (one.to_vec(), other.to_vec());
                return Err(TrackingError::Provided { one, other });
            }
        }
        // Without any it hears of all keys.
        let all: [&[u8]; 1] = [b""];
        let wanted = if prefixes.is_empty() { &all } else { prefixes };
        let bytes = wanted.iter().map(|prefix| prefix.len());
        let bytes: usize = bytes.chain(known.iter().map(|known| known.len())).sum();
        if known.len() + wanted.len() > PREFIXES_MAX || bytes > PREFIX_BYTES_MAX {
            return Err(TrackingError::TooMany);
        }
        for prefix in wanted {
            let readers = self.prefixes.entry(prefix.to_vec()).or_default();
            readers.insert(reader);
        }
        Ok(())
    }

    /// It has read a key.
    pub(crate) fn read(&mut self, reader: u64, key: &[u8]) {
        match self.readers.get_mut(key) {
            Some(readers) => _ = readers.insert(reader),
            None => {
                self.bytes += key.len();
                self.readers.insert(key.to_vec(), [reader].into());
            }
        }
        while self.readers.len() > TRACKED_MAX || self.bytes > TRACKED_BYTES_MAX {
            let Some((first, readers)) = self.readers.pop_first() else {
                return;
            };
            self.bytes -= first.len();
            self.tell(&first, &readers);
        }
    }

    /// A key has changed.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        if let Some(readers) = self.readers.remove(key) {
            self.bytes -= key.len();
            self.tell(key, &readers);
        }
        for (prefix, readers) in &self.prefixes {
            if !key.starts_with(prefix) {
                continue;
            }
            for reader in readers {
                if let Some(unheard) = self.unheard.get_mut(reader) {
                    unheard.broadcast(key);
                }
            }
        }
    }

    /// All keys have.
    pub(crate) fn all_changed(&mut self) {
        self.readers.clear();
        self.bytes = 0;
        self.unheard
            .values_mut()
            .for_each(Invalidations::all_changed);
    }

    fn tell(&mut self, key: &[u8], readers: &BTreeSet<u64>) {
        for reader in readers {
            if let Some(unheard) = self.unheard.get_mut(reader) {
                unheard.changed.push(key.to_vec());
            }
        }
    }

    /// Writes what a connection is to hear before its next reply: of keys that it has read.
    pub(crate) fn write(&mut self, reader: u64, out: &mut Vec<u8>) {
        let Some(unheard) = self.unheard.get_mut(&reader) else {
            return;
        };
        let mut writer = ReplyWriter::new(out, true);
        if core::mem::take(&mut unheard.all) {
            writer.push(2);
            writer.string(b"invalidate");
            writer.null();
        }
        if !unheard.changed.is_empty() {
            writer.push(2);
            writer.string(b"invalidate");
            writer.array(unheard.changed.len());
            unheard
                .changed
                .drain(..)
                .for_each(|key| writer.string(&key));
        }
    }

    /// Writes what it is to hear behind its replies: of keys that begin as it says.
    pub(crate) fn write_broadcast(&mut self, reader: u64, out: &mut Vec<u8>) {
        let Some(unheard) = self.unheard.get_mut(&reader) else {
            return;
        };
        if unheard.broadcast.is_empty() {
            return;
        }
        let mut writer = ReplyWriter::new(out, true);
        writer.push(2);
        writer.string(b"invalidate");
        writer.array(unheard.broadcast.len());
        unheard.broadcast.iter().for_each(|key| writer.string(key));
        unheard.broadcast.clear();
        unheard.broadcast_bytes = 0;
    }
}

/// Whether keys may begin with both.
fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
