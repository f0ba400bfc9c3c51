//! The embedded store on real files: laws, restarts, `kill -9`, cuts, damage and the lock.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asterism_truth_store::clock;
use asterism_truth_store::embedded::{EmbeddedStore, OpenError};
use asterism_truth_store::laws::{self, World};
use asterism_truth_store::{
    Campaigned, Changes, Key, Outcome, Prefix, Revision, TERM_MIN, Transaction, TruthStore,
};
use tempfile::TempDir;

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(folder, clock::monotonic()).unwrap()
}

fn put(store: &mut EmbeddedStore, name: &str, value: &[u8]) -> Revision {
    let outcome = store.commit(&Transaction::new().put(key(name), value));
    match outcome {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_keeps_the_laws() {
    let folder = TempDir::new().unwrap();
    let now = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&now);
    let clock = Box::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
    let mut store = EmbeddedStore::open(folder.path(), clock).unwrap();
    laws::check(&mut World {
        stores: vec![&mut store],
        pass: &mut || {
            now.fetch_add(300, Ordering::Relaxed);
        },
        wait: Duration::ZERO,
    })
    .unwrap();
}

#[test]
fn everything_but_leadership_outlives_the_process() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    put(&mut store, "epochs/1", b"one");
    put(&mut store, "epochs/2", b"two");
    let Ok(Campaigned::Leads(old)) = store.campaign(&key("leader"), &key("me"), TERM_MIN) else {
        panic!("it leads")
    };
    let before = store.read(&Prefix::all()).unwrap();
    drop(store);
    let mut store = open(folder.path());
    assert_eq!(store.read(&Prefix::all()).unwrap(), before);
    assert_eq!(store.dropped_bytes(), 0);
    // The leader was the process that ended. Its token is not given again, and stops nothing but its own writes.
    let write = Transaction::new().put(key("x"), *b"x").under(&old);
    assert_eq!(store.commit(&write), Ok(Outcome::Deposed));
    let Ok(Campaigned::Leads(new)) = store.campaign(&key("leader"), &key("me"), TERM_MIN) else {
        panic!("it leads")
    };
    assert!(new.token() > old.token());
    let changes = store
        .changes(&Prefix::all(), Revision(1), Duration::ZERO)
        .unwrap();
    assert!(matches!(changes, Changes::UpTo { changes, .. } if changes.len() == 1));
}

#[test]
fn a_second_process_is_refused() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    let second = EmbeddedStore::open(folder.path(), clock::monotonic());
    assert!(matches!(second, Err(OpenError::Locked(_))), "{second:?}");
    drop(store);
    open(folder.path());
}

#[test]
fn a_file_cut_anywhere_is_opened_with_its_whole_changes_or_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("truth.log");
    let mut store = open(folder.path());
    let mut ends = vec![fs::metadata(&file).unwrap().len()];
    for i in 0..4u8 {
        put(&mut store, "a", &[i; 20]);
        ends.push(fs::metadata(&file).unwrap().len());
    }
    drop(store);
    let whole = fs::read(&file).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let opened = EmbeddedStore::open(folder.path(), clock::monotonic());
        let kept = ends.iter().filter(|end| **end <= cut as u64).count();
        if kept == 0 {
            let said = opened.unwrap_err().to_string();
            assert!(said.contains("is damaged at byte"), "{said}");
            assert_eq!(fs::read(&file).unwrap(), &whole[..cut], "it stays as it is");
            continue;
        }
        let mut opened = opened.unwrap();
        assert_eq!(opened.dropped_bytes(), cut as u64 - ends[kept - 1]);
        let snapshot = opened.read(&Prefix::all()).unwrap();
        assert_eq!(snapshot.revision, Revision(kept as u64 - 1), "cut at {cut}");
        // What follows is written where the torn tail was.
        let next = put(&mut opened, "b", b"next");
        drop(opened);
        let again = open(folder.path()).read(&Prefix::all()).unwrap();
        assert_eq!(again.revision, next);
        assert_eq!(again.get(&key("a")), snapshot.get(&key("a")));
    }
}

#[test]
fn a_flipped_byte_anywhere_is_refused_with_a_sentence() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("truth.log");
    let mut store = open(folder.path());
    for i in 0..3u8 {
        put(&mut store, "a", &[i; 5]);
    }
    drop(store);
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff, whole[at]] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            if bytes == whole {
                continue;
            }
            fs::write(&file, &bytes).unwrap();
            let error = EmbeddedStore::open(folder.path(), clock::monotonic()).unwrap_err();
            let said = error.to_string();
            assert!(
                matches!(error, OpenError::Damaged { .. }),
                "byte {at}: {said}"
            );
        }
    }
}

#[test]
fn what_a_compaction_left_unfinished_is_removed() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    put(&mut store, "a", b"a");
    drop(store);
    fs::write(folder.path().join("truth.new"), b"half").unwrap();
    let mut store = open(folder.path());
    assert_eq!(store.read(&Prefix::all()).unwrap().entries.len(), 1);
    assert!(!folder.path().join("truth.new").exists());
}

const CHILD: &str = "ASTERISM_TRUTH_TEST_FOLDER";

/// As a child: writes until killed, and prints each revision that was answered. As a parent: kills it, ten times.
#[test]
fn what_was_answered_is_there_after_kill_9() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let mut store = open(Path::new(&folder));
        for i in 0.. {
            // Large enough for a compaction now and then.
            let revision = put(&mut store, &format!("k{}", i % 7), &vec![i as u8; 40_000]);
            println!("answered {}", revision.0);
        }
    }
    let folder = TempDir::new().unwrap();
    let mut answered = 0;
    let mut compacted = false;
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "embedded::what_was_answered_is_there_after_kill_9",
            ])
            .args(["--nocapture", "--test-threads", "1"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < 20 + round * 3 {
            let line = lines.next().expect("the child writes").unwrap();
            if let Some(revision) = line.strip_prefix("answered ") {
                answered = revision.parse().unwrap();
                seen += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(Ok(revision)) = line.strip_prefix("answered ").map(str::parse) {
                answered = revision;
            }
        }
        let mut store = open(folder.path());
        let snapshot = store.read(&Prefix::all()).unwrap();
        let revision = snapshot.revision.0;
        assert!(
            revision == answered || revision == answered + 1,
            "{revision}, {answered}"
        );
        for entry in &snapshot.entries {
            assert_eq!(entry.value.len(), 40_000);
            assert!(entry.value.iter().all(|byte| *byte == entry.value[0]));
        }
        let length = fs::metadata(folder.path().join("truth.log")).unwrap().len();
        compacted |= length < answered * 40_000;
        assert!(length < 8 * 1024 * 1024);
    }
    assert!(compacted, "{answered} changes were never compacted");
}
