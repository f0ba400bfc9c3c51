//! What the fuzz target runs: arbitrary bytes as the store's file, and as the bodies of records with right checksums. Bytes that are
//! taken for a file hold laws, also if no store has written them; a broken law is a panic.

use super::checksum::crc32c;
use super::format::{self, END, Loaded};
use crate::answer::Revision;
use crate::key::{Key, Prefix};
use crate::transaction::Write;

/// Longer inputs are cut.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// Opens `data` as a file; then a file whose records have the bodies that `data` says, each after two bytes of its length, of which
/// the first record is the snapshot or, by the first byte, is an empty one that is put before them.
pub fn fuzz_log(data: &[u8]) {
    let data = data.get(..FILE_BYTES_MAX).unwrap_or(data);
    load(data);
    let empty = format::file(Revision(0), &[]);
    let Some((kind, mut rest)) = data.split_first() else {
        return;
    };
    let mut bytes = match kind & 1 {
        0 => empty,
        _ => empty[..format::HEAD_BYTES].to_vec(),
    };
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (body, after) = after.split_at(length);
        rest = after;
        let length = (body.len() as u32).to_le_bytes();
        bytes.extend(length);
        bytes.extend(crc32c(&length).to_le_bytes());
        bytes.extend(crc32c(body).to_le_bytes());
        bytes.extend(body);
        bytes.extend(END);
        load(&bytes);
    }
}

fn load(bytes: &[u8]) {
    let Ok(loaded) = format::load(bytes) else {
        return;
    };
    assert!(loaded.good <= bytes.len());
    let snapshot = loaded.keyspace.snapshot(&Prefix::all());
    let entries = snapshot.entries.iter();
    let entry_bytes = entries.map(|entry| entry.key.as_str().len() + entry.value.len());
    assert_eq!(entry_bytes.sum::<usize>(), loaded.keyspace.bytes());
    for entry in &snapshot.entries {
        assert!(entry.version.0 > 0 && entry.version.0 <= snapshot.revision.0);
    }

    // Without the torn tail it is the same, and whole.
    let whole = &bytes[..loaded.good];
    let again = reload(whole);
    assert_eq!(again.good, whole.len());
    assert_eq!(again.keyspace.snapshot(&Prefix::all()), snapshot);

    // So is the file that a compaction makes of it.
    let compacted = format::file(snapshot.revision, &snapshot.entries);
    let again = reload(&compacted);
    assert_eq!(again.good, compacted.len());
    assert_eq!(again.keyspace.snapshot(&Prefix::all()), snapshot);

    // And the next record is read behind it, but for the last revision that there is.
    let Ok(key) = Key::new("next") else {
        return;
    };
    let next = snapshot.revision.0 + 1;
    if next == u64::MAX {
        return;
    }
    let write = Write {
        key: key.clone(),
        value: Some((*b"value").into()),
    };
    for file in [whole, &compacted] {
        let record = format::writes(Revision(next), std::slice::from_ref(&write));
        let loaded = reload(&[file, &record].concat());
        let after = loaded.keyspace.snapshot(&Prefix::all());
        assert_eq!(after.revision, Revision(next));
        assert_eq!(after.version(&key).0, next);
    }
}

fn reload(bytes: &[u8]) -> Loaded {
    match format::load(bytes) {
        Ok(loaded) => loaded,
        Err(damage) => panic!("damaged at byte {}: {}", damage.at, damage.fault),
    }
}
