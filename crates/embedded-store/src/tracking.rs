//! Connections that keep what they have read (`CLIENT TRACKING`): each hears once of the next change of each key that it read.

use std::collections::{BTreeMap, BTreeSet};

use asterism_resp::ReplyWriter;

/// Keys that are tracked for all connections together at most, and their bytes. One more, and the first of them counts as changed.
const TRACKED_MAX: usize = 1 << 20;
const TRACKED_BYTES_MAX: usize = 64 << 20;

/// What a connection is to hear.
#[derive(Debug, Default)]
struct Invalidations {
    changed: Vec<Vec<u8>>,
    /// All keys have changed.
    all: bool,
}

/// Who has read which keys, by the numbers of connections.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    readers: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Of these keys.
    bytes: usize,
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
        }
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
    }

    /// All keys have.
    pub(crate) fn all_changed(&mut self) {
        self.readers.clear();
        self.bytes = 0;
        for unheard in self.unheard.values_mut() {
            unheard.changed.clear();
            unheard.all = true;
        }
    }

    fn tell(&mut self, key: &[u8], readers: &BTreeSet<u64>) {
        for reader in readers {
            if let Some(unheard) = self.unheard.get_mut(reader) {
                unheard.changed.push(key.to_vec());
            }
        }
    }

    /// Writes what a connection is to hear.
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
}
