//! Rings against a queue as the model, and across threads: every reader gets every record, in order and whole.

use asterism_io::ring::{Broadcast, ByteRing, RECORD_BYTES_MAX, Refused, RingReader, RingWriter};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    /// Reserve so many bytes, commit fewer or none.
    Reserve(usize, Option<usize>),
    Publish,
    Take(usize, usize),
    Release(usize),
    Drain(usize, usize),
    LookAhead(usize, usize),
    DropReader(usize),
}

fn step(readers: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..160).prop_map(Step::Push),
        2 => (0usize..160, proptest::option::of(0usize..160)).prop_map(|(length, used)| Step::Reserve(length, used)),
        4 => Just(Step::Publish),
        6 => (0..readers, 0usize..12).prop_map(|(reader, count)| Step::Take(reader, count)),
        2 => (0..readers).prop_map(Step::Release),
        3 => (0..readers, 0usize..12).prop_map(|(reader, count)| Step::Drain(reader, count)),
        2 => (0..readers, 0usize..12).prop_map(|(reader, count)| Step::LookAhead(reader, count)),
        1 => (0..readers * 20).prop_map(Step::DropReader),
    ]
}

/// A ring beside what it must hold.
struct Model {
    writer: RingWriter,
    readers: Vec<Option<RingReader>>,
    staged: Vec<Vec<u8>>,
    visible: Vec<VecDeque<Vec<u8>>>,
    counter: u8,
}

impl Model {
    fn new(bytes: usize, readers: usize) -> Model {
        let (writer, handles) = Broadcast::new(bytes, readers).unwrap();
        Model {
            writer,
            readers: handles.into_iter().map(Some).collect(),
            staged: Vec::new(),
            visible: vec![VecDeque::new(); readers],
            counter: 0,
        }
    }

    fn record(&mut self, length: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        (0..length)
            .map(|at| self.counter.wrapping_mul(31).wrapping_add(at as u8))
            .collect()
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Push(length) => {
                let record = self.record(length);
                let free = self.writer.free_bytes();
                assert!(self.writer.has_free(free) && !self.writer.has_free(free + 1));
                match self.writer.try_push(&record) {
                    Ok(()) => self.staged.push(record),
                    Err(Refused::TooLong) => assert!(length > self.writer.record_bytes_max()),
                    // A record never needs more than twice its own footprint, so space is not withheld.
                    Err(Refused::Full) => {
                        assert!(free < 2 * (length + 12), "{free} free refused {length}")
                    }
                }
            }
            Step::Reserve(length, used) => {
                let record = self.record(length);
                if let Ok(space) = self.writer.reserve(length) {
                    space.copy_from_slice(&record);
                    if let Some(used) = used {
                        self.writer.commit(used);
                        self.staged.push(record[..used.min(length)].to_vec());
                    }
                }
            }
            Step::Publish => {
                self.writer.publish();
                for queue in &mut self.visible {
                    queue.extend(self.staged.iter().cloned());
                }
                self.staged.clear();
            }
            Step::Take(reader, count) => {
                let Some(handle) = &mut self.readers[reader] else {
                    return;
                };
                for _ in 0..count {
                    let expected = self.visible[reader].pop_front();
                    assert_eq!(handle.next(), expected.as_deref());
                }
                assert_eq!(handle.is_empty(), self.visible[reader].is_empty());
            }
            Step::Release(reader) => {
                if let Some(handle) = &mut self.readers[reader] {
                    handle.release();
                }
            }
            Step::Drain(reader, count) => {
                let Some(handle) = &mut self.readers[reader] else {
                    return;
                };
                let queue = &mut self.visible[reader];
                let expected = queue.len().min(count);
                let taken = handle.drain(count, |record| {
                    assert_eq!(Some(record), queue.pop_front().as_deref());
                });
                assert!(
                    taken <= expected && (taken > 0 || expected == 0),
                    "drained {taken} of {expected}"
                );
            }
            Step::LookAhead(reader, count) => {
                let Some(handle) = &mut self.readers[reader] else {
                    return;
                };
                let mut queue = self.visible[reader].iter();
                let expected = queue.len().min(count);
                let seen = handle.look_ahead(count, |record| {
                    assert_eq!(Some(record), queue.next().map(Vec::as_slice));
                });
                assert!(
                    seen <= expected && (seen > 0 || expected == 0),
                    "saw {seen} of {expected}"
                );
            }
            Step::DropReader(reader) => {
                if let Some(slot) = self.readers.get_mut(reader) {
                    *slot = None;
                }
            }
        }
    }

    fn finish(mut self) {
        self.run(&Step::Publish);
        drop(self.writer);
        for (slot, queue) in self.readers.iter_mut().zip(&mut self.visible) {
            let Some(reader) = slot else { continue };
            while let Some(expected) = queue.pop_front() {
                assert!(!reader.is_finished());
                assert_eq!(reader.next(), Some(&expected[..]));
            }
            assert_eq!(reader.next(), None);
            assert!(reader.is_finished());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_broadcast_ring_behaves_as_a_queue_for_each_reader(
        exponent in 6u32..11,
        (readers, steps) in (1usize..4).prop_flat_map(|readers| (Just(readers), proptest::collection::vec(step(readers), 0..200))),
    ) {
        let mut model = Model::new(1 << exponent, readers);
        steps.iter().for_each(|step| model.run(step));
        model.finish();
    }
}

#[test]
fn every_size_up_to_the_longest_passes_an_empty_ring_at_every_offset() {
    let (mut writer, mut reader) = ByteRing::new(256).unwrap();
    let longest = writer.record_bytes_max();
    assert_eq!(longest, 120);
    for round in 0..2000usize {
        let length = round * 7 % (longest + 1);
        let record = vec![round as u8; length];
        assert_eq!(
            writer.try_push(&record),
            Ok(()),
            "an empty ring takes any record, round {round}"
        );
        writer.publish();
        assert_eq!(reader.next(), Some(&record[..]));
        reader.release();
    }
    assert_eq!(writer.try_push(&[0; 121]), Err(Refused::TooLong));
}

#[test]
fn unpublished_records_are_not_seen_and_a_full_ring_refuses() {
    let (mut writer, mut readers) = Broadcast::new(1024, 2).unwrap();
    let mut pushed = 0u64;
    while writer.try_push(&pushed.to_le_bytes()).is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, 1024 / 16);
    assert_eq!(readers[0].next(), None);
    writer.publish();
    assert_eq!(writer.lag_bytes(), 1024);
    while readers[0].next().is_some() {}
    assert_eq!(
        writer.try_push(&[1; 8]),
        Err(Refused::Full),
        "the slower reader holds the space"
    );
    assert_eq!(readers[1].next(), Some(&0u64.to_le_bytes()[..]));
    readers[1].release();
    assert_eq!(writer.try_push(&[1; 8]), Ok(()));
    assert_eq!(writer.try_push(&[1; 8]), Err(Refused::Full));
    drop(readers.remove(1));
    assert_eq!(
        writer.try_push(&[1; 8]),
        Ok(()),
        "a reader that is gone holds nobody back"
    );
    assert_eq!(writer.readers(), 1);
}

#[test]
fn the_longest_record_is_64_kib_and_unfit_rings_are_refused_in_words() {
    let (mut writer, mut reader) = ByteRing::new(1 << 20).unwrap();
    assert_eq!(writer.record_bytes_max(), RECORD_BYTES_MAX);
    assert_eq!(writer.try_push(&vec![3; RECORD_BYTES_MAX]), Ok(()));
    assert_eq!(
        writer.try_push(&vec![3; RECORD_BYTES_MAX + 1]),
        Err(Refused::TooLong)
    );
    writer.publish();
    assert_eq!(reader.next().map(<[u8]>::len), Some(RECORD_BYTES_MAX));
    for (bytes, readers) in [(0, 1), (63, 1), (usize::MAX, 1), (4096, 0), (4096, 257)] {
        assert!(
            Broadcast::new(bytes, readers)
                .unwrap_err()
                .to_string()
                .contains("it must have from")
        );
    }
}

/// Records whose length and bytes follow from their number, so that a reader can check all of each.
fn numbered(number: u64, into: &mut [u8; 200]) -> &[u8] {
    let length = 8 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57) as usize;
    into[..8].copy_from_slice(&number.to_le_bytes());
    into[8..length].fill(number as u8);
    &into[..length]
}

#[test]
fn threads_get_every_record_in_order_and_whole() {
    let count: u64 = if cfg!(miri) { 200 } else { 300_000 };
    let bytes = if cfg!(miri) { 1024 } else { 16 * 1024 };
    let (mut writer, readers) = Broadcast::new(bytes, 3).unwrap();
    std::thread::scope(|scope| {
        for (index, mut reader) in readers.into_iter().enumerate() {
            scope.spawn(move || {
                let mut buffer = [0; 200];
                let mut expected = 0;
                while expected < count {
                    let Some(record) = reader.next() else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert_eq!(record, numbered(expected, &mut buffer), "reader {index}");
                    expected += 1;
                    if expected.is_multiple_of(1 + 40 * index as u64) {
                        reader.release();
                    }
                }
            });
        }
        let mut buffer = [0; 200];
        let mut next = 0;
        while next < count {
            for _ in 0..17 {
                if next < count && writer.try_push(numbered(next, &mut buffer)).is_ok() {
                    next += 1;
                }
            }
            writer.publish();
            if writer.lag_bytes() > bytes / 2 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(writer.readers(), 0);
}
