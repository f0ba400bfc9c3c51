//! The store on a disk that fails, in memory. Tests on real files are in `tests/suite/embedded.rs`.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::Effect;

/// A disk in memory that fails at the call that it is set to.
struct Failing {
    bytes: Vec<u8>,
    /// Calls until it fails; 0: it does not.
    fails_in: Arc<AtomicUsize>,
    /// Whether it stays broken from then on.
    stays_broken: bool,
    /// Bytes of a failing write that arrive.
    partial: usize,
    /// Where its bytes are shown after each call.
    shown: mpsc::Sender<Vec<u8>>,
}

impl Failing {
    fn strike(&mut self) -> io::Result<()> {
        let left = self.fails_in.load(Ordering::Relaxed);
        if left > 1 || !self.stays_broken && left > 0 {
            self.fails_in.store(left - 1, Ordering::Relaxed);
        }
        match left {
            1 => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn show(&self) {
        self.shown.send(self.bytes.clone()).unwrap();
    }
}

impl Disk for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let struck = self.strike();
        let arrives = if struck.is_err() {
            self.partial.min(bytes.len())
        } else {
            bytes.len()
        };
        self.bytes.extend_from_slice(&bytes[..arrives]);
        self.show();
        struck
    }

    fn sync(&mut self) -> io::Result<()> {
        self.strike()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.strike()?;
        self.bytes.truncate(length as usize);
        self.show();
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<(), ReplaceError> {
        self.strike().map_err(ReplaceError::Kept)?;
        self.bytes = bytes.to_vec();
        self.show();
        self.strike().map_err(ReplaceError::Unsynced)
    }
}

struct World {
    store: EmbeddedStore,
    fails_in: Arc<AtomicUsize>,
    shown: mpsc::Receiver<Vec<u8>>,
    bytes: RefCell<Vec<u8>>,
}

impl World {
    fn new(partial: usize) -> World {
        World::with(partial, false)
    }

    fn with(partial: usize, stays_broken: bool) -> World {
        let (sender, shown) = mpsc::channel();
        let bytes = format::file(Revision(0), &[]);
        let fails_in = Arc::new(AtomicUsize::new(0));
        let disk = Failing {
            bytes: bytes.clone(),
            fails_in: Arc::clone(&fails_in),
            stays_broken,
            partial,
            shown: sender,
        };
        let length = bytes.len() as u64;
        let clock: Clock = Box::new(|| Duration::ZERO);
        let store = EmbeddedStore::new(
            Keyspace::default(),
            Box::new(disk),
            clock,
            "it".into(),
            length,
        );
        World {
            store,
            fails_in,
            shown,
            bytes: RefCell::new(bytes),
        }
    }

    fn fail_in(&self, calls: usize) {
        self.fails_in.store(calls, Ordering::Relaxed);
    }

    /// What the disk holds, as the next process reads it.
    fn on_disk(&self) -> Snapshot {
        if let Some(last) = self.shown.try_iter().last() {
            *self.bytes.borrow_mut() = last;
        }
        format::load(&self.bytes.borrow())
            .unwrap()
            .keyspace
            .snapshot(&Prefix::all())
    }

    fn put(&mut self, name: &str, bytes: usize) -> Result<Outcome, TruthError> {
        let key = Key::new(name).unwrap();
        self.store
            .commit(&Transaction::new().put(key, vec![7; bytes]))
    }
}

#[test]
fn a_full_disk_leaves_memory_and_disk_equal() {
    for partial in 0..80 {
        let mut world = World::new(partial);
        let _ = world.put("a", 3).unwrap();
        let before = world.store.read(&Prefix::all()).unwrap();
        world.fail_in(1);
        let full = world.put("b", 20).unwrap_err();
        assert!(matches!(full, TruthError::Full { .. }), "{full}");
        assert_eq!(full.effect(), Effect::NotDone);
        assert_eq!(world.store.read(&Prefix::all()).unwrap(), before);
        assert_eq!(world.on_disk(), before);
        // Once there is space, it goes on.
        let _ = world.put("b", 20).unwrap();
        assert_eq!(world.on_disk(), world.store.read(&Prefix::all()).unwrap());
    }
}

#[test]
fn a_failed_sync_ends_the_store() {
    let mut world = World::new(0);
    let _ = world.put("a", 3).unwrap();
    world.fail_in(2);
    let failed = world.put("b", 3).unwrap_err();
    assert!(matches!(failed, TruthError::SyncFailed(_)), "{failed}");
    assert_eq!(failed.effect(), Effect::Unknown);
    // The disk has it, memory has not: so memory answers nothing any more.
    assert_eq!(world.on_disk().entries.len(), 2);
    let key = Key::new("x").unwrap();
    let ended = world.store.read(&Prefix::all()).unwrap_err();
    assert!(matches!(ended, TruthError::Ended(_)), "{ended}");
    assert!(matches!(world.put("c", 1), Err(TruthError::Ended(_))));
    let term = Duration::from_secs(5);
    assert!(matches!(
        world.store.campaign(&key, &key, term),
        Err(TruthError::Ended(_))
    ));
    assert_eq!(world.on_disk().entries.len(), 2);
    assert_eq!(
        (world.store.counts().unknown, world.store.counts().failed),
        (1, 3)
    );
}

#[test]
fn a_write_that_cannot_be_undone_ends_the_store() {
    let mut world = World::with(5, true);
    let _ = world.put("a", 3).unwrap();
    world.fail_in(1);
    let failed = world.put("b", 3).unwrap_err();
    assert!(matches!(failed, TruthError::SyncFailed(_)), "{failed}");
    assert!(matches!(
        world.store.read(&Prefix::all()),
        Err(TruthError::Ended(_))
    ));
    // The torn record is dropped by the next process.
    assert_eq!(world.on_disk().entries.len(), 1);
}

#[test]
fn a_grown_log_is_compacted_and_a_failed_compaction_changes_nothing() {
    let mut world = World::new(0);
    let mut failed = false;
    for round in 0..40 {
        let length = world.store.length;
        let is_due = length + 512 * 1024 > world.store.compact_at;
        if is_due && !failed {
            // Append, sync, then the replacement.
            world.fail_in(3);
            failed = true;
        }
        let _ = world.put(&format!("k{}", round % 3), 512 * 1024).unwrap();
        assert_eq!(world.on_disk(), world.store.read(&Prefix::all()).unwrap());
        assert!(world.store.length <= FILE_BYTES_MAX);
    }
    let counts = world.store.counts();
    assert_eq!(counts.compaction_failed, 1);
    assert!(counts.compacted >= 1);
    assert!(
        world.store.length < 8 * 1024 * 1024,
        "{}",
        world.store.length
    );
}

#[test]
fn a_replacement_that_is_not_durable_ends_the_store() {
    let mut world = World::new(0);
    for _ in 0..2 {
        let _ = world.put("a", 3).unwrap();
    }
    world.fail_in(2);
    world.store.compact();
    let ended = world.put("a", 3).unwrap_err();
    assert!(matches!(ended, TruthError::Ended(_)), "{ended}");
    assert_eq!(world.on_disk().revision, Revision(2));
}

#[test]
fn a_file_that_cannot_be_compacted_fills_up() {
    let mut world = World::new(0);
    world.store.length = FILE_BYTES_MAX - 10;
    // The only call: the compaction before the write.
    world.fail_in(1);
    let full = world.put("a", 3).unwrap_err();
    assert!(matches!(full, TruthError::Full { .. }), "{full}");
    let _ = world.put("a", 3).unwrap();
    assert_eq!(world.on_disk().entries.len(), 1);
}
