//! The bytes of the embedded store's file: a head, a record with a snapshot, then a record for each change. Without I/O.
//!
//! ```text
//! head      8 magic "ASTTRUTH" | 4 version (1) | 4 CRC-32C of the 12 bytes before
//! record    4 length of body | 4 check of length | 4 CRC-32C of body | body | 4 end mark ("end\n")
//! body      1 kind | 8 revision | 4 count | items
//! item      1 present | 2 key length | key | 8 version | 4 value length | value
//! ```
//!
//! Numbers are little-endian. The check of a length is the CRC-32C of its four bytes: a damaged length cannot hide the rest
//! of the file as a torn tail. The end mark has no zero, so that a record whose last bytes the system never wrote is seen.

use std::fmt;
use std::sync::Arc;

use super::checksum::crc32c;
use crate::answer::{Entry, Revision, Version};
use crate::key::KEY_BYTES_MAX;
use crate::key::Key;
use crate::keyspace::{ENTRIES_MAX, Keyspace, STORE_BYTES_MAX};
use crate::mutant::{Mutant, active};
use crate::transaction::Write;

const MAGIC: &[u8; 8] = b"ASTTRUTH";
const FORMAT_VERSION: u32 = 1;
pub(super) const HEAD_BYTES: usize = 16;
const RECORD_HEAD_BYTES: usize = 12;
pub(super) const END: &[u8; 4] = b"end\n";
/// Bytes of an item besides its key and value.
const ITEM_BYTES: usize = 15;
/// Bytes of a record's body at most: a full snapshot.
const BODY_BYTES_MAX: usize = 13 + STORE_BYTES_MAX + ENTRIES_MAX * ITEM_BYTES;

const SNAPSHOT: u8 = 1;
const WRITES: u8 = 2;
const ELECTION: u8 = 3;

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);

/// Where a file is damaged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: usize,
    pub(super) fault: Fault,
}

/// How a file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Magic,
    Version(u32),
    Head,
    Snapshot,
    Length,
    Body,
    End,
    Content,
    Order,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self {
            Fault::Magic => "it does not begin like a truth store",
            Fault::Version(version) => {
                return write!(
                    f,
                    "its format is version {version}, this build reads {FORMAT_VERSION}"
                );
            }
            Fault::Head => "the checksum of its head is wrong",
            Fault::Snapshot => "its snapshot is not whole",
            Fault::Length => "the checksum of a record's length is wrong",
            Fault::Body => "the checksum of a record is wrong",
            Fault::End => "a record does not end where it should",
            Fault::Content => "a record's checksum is right, its content is not",
            Fault::Order => "a record is missing, or there twice",
        };
        f.write_str(said)
    }
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) keyspace: Keyspace,
    /// Bytes up to the end of the last whole record. What follows is a torn tail, to be cut off.
    pub(super) good: usize,
}

/// A whole file that holds these entries and no history.
pub(super) fn file(revision: Revision, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let items = entries
        .iter()
        .map(|entry| (&entry.key, entry.version.0, Some(&*entry.value)));
    let highest = entries.iter().map(|entry| entry.version.0).max();
    let revision = match active(Mutant::SnapshotForgetsRevision) {
        true => Revision(highest.unwrap_or(0)),
        false => revision,
    };
    record(&mut bytes, SNAPSHOT, revision, items);
    bytes
}

/// The record of a transaction.
pub(super) fn writes(revision: Revision, writes: &[Write]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let items = writes
        .iter()
        .map(|write| (&write.key, revision.0, write.value.as_deref()));
    record(&mut bytes, WRITES, revision, items);
    bytes
}

/// The record of an election that was won, so that its token is never given again.
pub(super) fn election(revision: Revision) -> Vec<u8> {
    let mut bytes = Vec::new();
    record(&mut bytes, ELECTION, revision, std::iter::empty());
    bytes
}

fn record<'a>(
    bytes: &mut Vec<u8>,
    kind: u8,
    revision: Revision,
    items: impl Iterator<Item = (&'a Key, u64, Option<&'a [u8]>)>,
) {
    let mut body = vec![kind];
    body.extend_from_slice(&revision.0.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    let mut count = 0u32;
    for (key, version, value) in items {
        count += 1;
        let key = key.as_str().as_bytes();
        body.push(u8::from(value.is_some()));
        // Both lengths are bounded far below their types' ends.
        body.extend_from_slice(&(key.len() as u16).to_le_bytes());
        body.extend_from_slice(key);
        body.extend_from_slice(&version.to_le_bytes());
        let value = value.unwrap_or_default();
        body.extend_from_slice(&(value.len() as u32).to_le_bytes());
        body.extend_from_slice(value);
    }
    body[9..13].copy_from_slice(&count.to_le_bytes());
    let length = (body.len() as u32).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&crc32c(&length).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(END);
}

/// Reads a file. A torn tail, which is the end of a record that was never synced, is left out; anything else is damage.
pub(super) fn load(bytes: &[u8]) -> Result<Loaded, Damage> {
    let damage = |at, fault| Err(Damage { at, fault });
    let Some((head, _)) = bytes.split_at_checked(HEAD_BYTES) else {
        return damage(0, Fault::Snapshot);
    };
    if &head[..8] != MAGIC {
        return damage(0, Fault::Magic);
    }
    if number(head, 12) != Some(crc32c(&head[..12])) {
        return damage(8, Fault::Head);
    }
    match number(head, 8) {
        Some(FORMAT_VERSION) => {}
        version => return damage(8, Fault::Version(version.unwrap_or(0))),
    }
    // The file is renamed to its name after its snapshot was synced, so that the snapshot is never torn.
    let (first, mut good) = match next(bytes, HEAD_BYTES)? {
        Some(found) => found,
        None => return damage(HEAD_BYTES, Fault::Snapshot),
    };
    let wrong = |at| Damage {
        at,
        fault: Fault::Content,
    };
    let Some((SNAPSHOT, revision, items)) = content(first) else {
        return Err(wrong(HEAD_BYTES));
    };
    let entries = items.into_iter().map(|(key, version, value)| {
        Some(Entry {
            key,
            version: Version(version),
            value: value?,
        })
    });
    let entries: Option<Vec<_>> = entries.collect();
    let entries = entries.filter(|entries| is_snapshot(revision, entries));
    let mut keyspace = Keyspace::restored(revision, entries.ok_or(wrong(HEAD_BYTES))?);
    while let Some((body, end)) = next(bytes, good)? {
        let (kind, revision, items) = content(body).ok_or(wrong(good))?;
        if !matches!(kind, WRITES | ELECTION) {
            return damage(good, Fault::Content);
        }
        if keyspace.revision().0.checked_add(1) != Some(revision.0) {
            return damage(good, Fault::Order);
        }
        let writes = items
            .into_iter()
            .map(|(key, _, value)| Write { key, value });
        keyspace.apply(revision, &writes.collect::<Vec<_>>());
        good = end;
    }
    // No store gets so far, and there would be no next one.
    if keyspace.revision().0 == u64::MAX {
        return damage(HEAD_BYTES, Fault::Order);
    }
    Ok(Loaded { keyspace, good })
}

/// Whether a store may have had these entries: each key once, in order, with a version of its time.
fn is_snapshot(revision: Revision, entries: &[Entry]) -> bool {
    let is_version = |entry: &Entry| (1..=revision.0).contains(&entry.version.0);
    entries.is_sorted_by(|a, b| a.key < b.key) && entries.iter().all(is_version)
}

/// The body of the record at a place, and where the record ends. `None`: the file ends there, or the tail is torn.
fn next(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Damage> {
    let damage = |fault| Err(Damage { at, fault });
    let rest = &bytes[at..];
    let Some((head, after)) = rest.split_at_checked(RECORD_HEAD_BYTES) else {
        return Ok(None);
    };
    // The file was made longer, and the system stopped before it wrote the bytes.
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if number(head, 4) != Some(crc32c(&head[..4])) {
        return damage(Fault::Length);
    }
    let length = number(head, 0).unwrap_or(0) as usize;
    if length > BODY_BYTES_MAX {
        return damage(Fault::Length);
    }
    if after.len() < length + END.len() {
        return Ok(None);
    }
    let (body, end) = (&after[..length], &after[length..length + END.len()]);
    let is_last = after.len() == length + END.len();
    let ends_at = at + RECORD_HEAD_BYTES + length + END.len();
    if is_last && end == [0; 4] {
        return Ok(unwritten(body).map(|body| (body, ends_at)));
    }
    if number(head, 8) != Some(crc32c(body)) {
        return match active(Mutant::DamageIsTornTail) {
            true => Ok(None),
            false => damage(Fault::Body),
        };
    }
    if end != END {
        return damage(Fault::End);
    }
    Ok(Some((body, ends_at)))
}

/// What counts of a last record whose end the system never wrote: nothing.
fn unwritten(body: &[u8]) -> Option<&[u8]> {
    (active(Mutant::TornTailBelieved) && content(body).is_some()).then_some(body)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

type Item = (Key, u64, Option<Arc<[u8]>>);

/// Kind, revision and items of a body.
fn content(body: &[u8]) -> Option<(u8, Revision, Vec<Item>)> {
    let mut rest = body;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(taken)
    };
    let kind = take(1)?[0];
    let revision = u64::from_le_bytes(take(8)?.try_into().ok()?);
    let count = u32::from_le_bytes(take(4)?.try_into().ok()?);
    let mut items = Vec::new();
    for _ in 0..count {
        let present = take(1)?[0];
        let length = u16::from_le_bytes(take(2)?.try_into().ok()?);
        let key = std::str::from_utf8(take(usize::from(length))?).ok()?;
        let key = Key::new(key).ok()?;
        let version = u64::from_le_bytes(take(8)?.try_into().ok()?);
        let length = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let value = take(length as usize)?;
        let value = match present {
            0 if value.is_empty() => None,
            1 => Some(value.into()),
            _ => return None,
        };
        items.push((key, version, value));
    }
    rest.is_empty().then_some((kind, Revision(revision), items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Prefix;

    fn put(name: &str, value: &str) -> Write {
        Write {
            key: Key::new(name).unwrap(),
            value: Some(value.as_bytes().into()),
        }
    }

    /// A file of a snapshot and three changes, and where each of its records ends.
    fn sample() -> (Vec<u8>, Vec<usize>) {
        let mut keyspace = Keyspace::default();
        keyspace.apply(Revision(1), &[put("a", "one"), put("b", "two")]);
        let mut bytes = file(Revision(1), &keyspace.snapshot(&Prefix::all()).entries);
        let mut ends = vec![bytes.len()];
        let gone = Write {
            value: None,
            ..put("b", "")
        };
        bytes.extend(writes(Revision(2), &[put("a", "three"), gone]));
        ends.push(bytes.len());
        bytes.extend(election(Revision(3)));
        ends.push(bytes.len());
        bytes.extend(writes(Revision(4), &[put("c", "")]));
        ends.push(bytes.len());
        (bytes, ends)
    }

    #[test]
    fn a_file_cut_anywhere_has_its_whole_records_or_is_refused() {
        let (bytes, ends) = sample();
        for cut in 0..=bytes.len() {
            let loaded = load(&bytes[..cut]);
            if cut < ends[0] {
                assert!(loaded.is_err(), "cut at {cut}");
                continue;
            }
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let loaded = loaded.unwrap();
            assert_eq!(loaded.good, ends[whole - 1], "cut at {cut}");
            assert_eq!(
                loaded.keyspace.revision(),
                Revision(whole as u64),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn no_flipped_byte_passes() {
        let (bytes, _) = sample();
        for at in 0..bytes.len() {
            for flip in 1..=255 {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert!(load(&bytes).is_err(), "byte {at} by {flip:#x}");
            }
        }
    }

    #[test]
    fn a_tail_that_the_system_never_wrote_is_torn() {
        let (bytes, ends) = sample();
        // The file has its new length, and zeros from some place on.
        for at in ends[2]..bytes.len() - 4 {
            let mut bytes = bytes.clone();
            bytes[at..].fill(0);
            let loaded = load(&bytes);
            let is_head = at < ends[2] + 8 && at > ends[2];
            // A head of which half was written, with zeros behind, looks like damage.
            assert!(
                is_head || loaded.is_ok_and(|it| it.good == ends[2]),
                "at {at}"
            );
        }
        // In the middle it is damage.
        let mut bytes = bytes;
        bytes[ends[0]..ends[1]].fill(0);
        assert!(load(&bytes).is_err());
    }

    #[test]
    fn records_twice_or_missing_are_seen() {
        let (bytes, ends) = sample();
        let twice = [&bytes[..ends[1]], &bytes[ends[0]..]].concat();
        assert_eq!(load(&twice).unwrap_err().fault, Fault::Order);
        let missing = [&bytes[..ends[0]], &bytes[ends[1]..]].concat();
        assert_eq!(load(&missing).unwrap_err().fault, Fault::Order);
        let snapshots = [&bytes[..ends[0]], &bytes[HEAD_BYTES..ends[0]]].concat();
        assert_eq!(load(&snapshots).unwrap_err().fault, Fault::Content);
    }

    #[test]
    fn any_bytes_end_in_an_answer() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u8
        };
        let (bytes, ends) = sample();
        for round in 0..20_000 {
            // Half of them begin as a file does, and have the right checksums around a random body.
            let mut bytes = bytes[..ends[0] * (round % 2)].to_vec();
            let body: Vec<u8> = (0..random()).map(|_| random() % 4).collect();
            let length = (body.len() as u32).to_le_bytes();
            bytes.extend(length);
            bytes.extend(crc32c(&length).to_le_bytes());
            bytes.extend(crc32c(&body).to_le_bytes());
            bytes.extend(body);
            bytes.extend(END);
            // Neither a panic nor an endless loop.
            let _ = load(&bytes);
        }
    }
}
