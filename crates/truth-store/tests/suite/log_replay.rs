//! The fuzz target of the embedded store's file: files that a store has written, cut, damaged and mixed, and records at random.

use std::fs;
use std::time::Duration;

use asterism_truth_store::embedded::EmbeddedStore;
use asterism_truth_store::embedded::fuzz::fuzz_log;
use asterism_truth_store::{Key, TERM_MIN, Transaction, TruthStore, clock};

/// Inputs of a run: a second or two.
const INPUTS: usize = 100_000;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % below.max(1)
    }
}

/// A file as a store leaves it, with transactions, a removal and an election.
fn written() -> Vec<u8> {
    let folder = tempfile::TempDir::new().unwrap();
    let mut store = EmbeddedStore::open(folder.path(), clock::monotonic()).unwrap();
    let key = |name: &str| Key::new(name).unwrap();
    let transactions = [
        Transaction::new()
            .put(key("a"), *b"one")
            .put(key("b"), *b""),
        Transaction::new().remove(key("b")),
        Transaction::new().put(key("c/d"), vec![0; 40]),
    ];
    for transaction in &transactions {
        let _ = store.commit(transaction).unwrap();
    }
    let _ = store.campaign(
        &key("leader"),
        &key("me"),
        TERM_MIN + Duration::from_secs(1),
    );
    drop(store);
    fs::read(folder.path().join("truth.log")).unwrap()
}

/// Bodies of records as the target reads them: one that is like a store's, with some bytes of chance.
fn records(random: &mut Random, input: &mut Vec<u8>) {
    let mut revision = random.below(3) as u64;
    if random.below(40) == 0 {
        revision = u64::MAX - 1;
    }
    for place in 0..1 + random.below(5) {
        let is_first = place == 0;
        let mut body = vec![if is_first {
            1
        } else {
            2 + random.below(2) as u8
        }];
        body.extend(revision.to_le_bytes());
        let count = random.below(4) as u32;
        body.extend(count.to_le_bytes());
        for _ in 0..count {
            let name = *[&b"a"[..], b"b", b"c/d"].get(random.below(3)).unwrap();
            let is_present = random.below(4) > 0 || is_first;
            body.push(u8::from(is_present));
            body.extend((name.len() as u16).to_le_bytes());
            body.extend(name);
            let version = if is_first {
                random.below(3) as u64
            } else {
                revision
            };
            body.extend(version.to_le_bytes());
            let length = if is_present { random.below(4) } else { 0 };
            body.extend((length as u32).to_le_bytes());
            body.extend(vec![7; length]);
        }
        if random.below(8) == 0 {
            let at = random.below(body.len());
            body[at] ^= 1 << random.below(8);
        }
        input.extend((body.len() as u16).to_le_bytes());
        input.extend(body);
        revision = revision.wrapping_add(1);
    }
}

#[test]
fn any_file_is_opened_whole_or_refused() {
    let file = written();
    for cut in 0..=file.len() {
        fuzz_log(&file[..cut]);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..INPUTS {
        let mut input = match random.below(3) {
            0 => file.clone(),
            1 => {
                let mut input = vec![1];
                records(&mut random, &mut input);
                input
            }
            _ => (0..random.below(120))
                .map(|_| random.below(256) as u8)
                .collect(),
        };
        for _ in 0..random.below(3) {
            let at = random.below(input.len());
            match (random.below(4), input.get_mut(at)) {
                (_, None) => {}
                (0, Some(_)) => input.truncate(at),
                (1, Some(byte)) => *byte ^= 1 << random.below(8),
                (2, Some(byte)) => *byte = 0,
                (_, Some(_)) => {
                    let tail = input[at..].to_vec();
                    input.extend(tail);
                }
            }
        }
        fuzz_log(&input);
    }
}
