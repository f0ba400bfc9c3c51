//! Transactions: what one call read in stores, and what it wrote.

use crate::query::Query;

/// What one call read in stores, and all that it wrote: committed whole, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// For each read its object, lane, hash, key's length, key, and what the call depends on.
    reads: Vec<u8>,
    /// For each write a tag, its length in two bytes, and what its object recorded.
    writes: Vec<u8>,
    /// Of the packet: see [`Query::conversation`].
    conversation: u64,
}

impl Transaction {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.conversation = 0;
    }

    /// The conversation of its packet, for a store of several shards; else 0. It is not carried to where the transaction is committed.
    pub fn conversation(&self) -> u64 {
        self.conversation
    }

    pub(crate) fn set_conversation(&mut self, conversation: u64) {
        self.conversation = conversation;
    }

    /// What was read, and what of it must be so when the transaction is committed: see `State::still_holds`.
    pub fn reads(&self) -> impl Iterator<Item = (Query<'_>, Depends)> {
        let (mut rest, conversation) = (self.reads.as_slice(), self.conversation);
        core::iter::from_fn(move || {
            let (head, after) = rest.split_at_checked(READ_HEAD_BYTES)?;
            let word = |from: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&head[from..from + 8]);
                u64::from_le_bytes(bytes)
            };
            let (key, after) = after.split_at_checked(word(19) as usize)?;
            rest = after;
            let query = Query {
                object: head[0],
                lane: head[1],
                hash: word(3),
                key,
                conversation,
            };
            let depends = match head[2] {
                ON_ENTRY => Depends::OnEntry(word(11)),
                _ => Depends::OnAnswer(word(11)),
            };
            Some((query, depends))
        })
    }

    /// What was written: see `State::commit`.
    pub fn writes(&self) -> &[u8] {
        &self.writes
    }

    /// Takes these writes, and leaves those that it had, to be used again.
    pub fn swap_writes(&mut self, writes: &mut Vec<u8>) {
        core::mem::swap(&mut self.writes, writes);
    }

    /// Bytes of the transaction as [`Transaction::write`] writes it.
    pub fn written_bytes(&self) -> usize {
        LENGTH_BYTES + self.reads.len() + self.writes.len()
    }

    /// Appends the transaction, to be carried to where it is committed.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.reads.len() as u32).to_le_bytes());
        out.extend(&self.reads);
        out.extend(&self.writes);
    }

    /// Takes over what [`Transaction::write`] wrote. False if the bytes are none; then it is empty.
    pub fn read(&mut self, bytes: &[u8]) -> bool {
        self.clear();
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return false;
        };
        let Some((reads, writes)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        else {
            return false;
        };
        self.reads.extend(reads);
        self.writes.extend(writes);
        true
    }

    /// Notes a read, and what of it must be so.
    pub fn add_read(&mut self, query: Query<'_>, depends: Depends) {
        let Query {
            object,
            lane,
            hash,
            key,
            conversation: _,
        } = query;
        let (kind, depended) = match depends {
            Depends::OnAnswer(hash) => (0, hash),
            Depends::OnEntry(hash) => (ON_ENTRY, hash),
        };
        self.reads.extend([object, lane, kind]);
        for word in [hash, depended, key.len() as u64] {
            self.reads.extend(word.to_le_bytes());
        }
        self.reads.extend(key);
    }
}

/// Bytes of the length of a transaction's reads.
const LENGTH_BYTES: usize = 4;
/// Object, lane, what it depends on, and three words: hash, the hash of that, length of the key.
const READ_HEAD_BYTES: usize = 27;
/// In a read's head: the call depends on one entry.
const ON_ENTRY: u8 = 1;

/// What must be so when a transaction is committed, of one of its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depends {
    /// The answer is as it was: [`stable_hash`].
    OnAnswer(u64),
    /// One entry of a group is as it was, whatever others there are: [`entry_hash`]. The call asked for any, and took this one.
    OnEntry(u64),
}

/// The hash of an entry as an answer has it: `FetchedEntry::bytes`.
#[must_use]
pub fn entry_hash(bytes: &[u8]) -> u64 {
    asterism_memory::hash::bytes(bytes, 0)
}

/// The hash of the part of an answer that must be the same when the transaction is committed. An answer is that part's length (two
/// bytes), the part, and what may change meanwhile.
#[must_use]
pub fn stable_hash(answer: &[u8]) -> u64 {
    let length = answer
        .first_chunk()
        .map_or(0, |&length| u16::from_le_bytes(length));
    let stable = answer.get(2..2 + usize::from(length)).unwrap_or(answer);
    asterism_memory::hash::bytes(stable, 0)
}
