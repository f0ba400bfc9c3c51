//! The fuzz target by seeds: programs of commands, frames of the packet parser's corpus, damaged and whole, and bytes at random.

use asterism_director::fuzz::replay;
use asterism_director::{DirectorDrop, DirectorStatistics};

use crate::hostile::corpus;

/// Programs of a run: some seconds.
const PROGRAMS: usize = 4_000;
/// Operations of a program at most.
const OPERATIONS: usize = 120;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % below.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}

/// A frame of the corpus in the form that the target reads, now and then damaged.
fn frame(random: &mut Random, corpus: &[Vec<u8>], program: &mut Vec<u8>) {
    let mut frame = corpus[random.below(corpus.len())].clone();
    for _ in 0..random.below(3) {
        let at = random.below(frame.len());
        frame[at] ^= 1 << random.below(8);
    }
    // Lengths of more than a byte are in steps of eight.
    let is_long = frame.len() > 255;
    let step = if is_long { 8 } else { 1 };
    let length = (frame.len() / step).min(255);
    let flags = (random.byte() & !4) | if is_long { 4 } else { 0 };
    program.extend([0, flags, length as u8]);
    program.extend(&frame[..length * step]);
}

/// A flow is suspended or not, and has more frames than may wait.
fn stream(random: &mut Random, program: &mut Vec<u8>) {
    let number = random.byte();
    if random.below(2) == 0 {
        program.extend([13, 1, number]);
    }
    for _ in 0..random.below(60) {
        program.extend([4, random.byte() & 8, number]);
    }
    program.push(7);
}

#[test]
fn every_program_counts_every_frame_once() {
    let corpus = corpus();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut all = DirectorStatistics::default();
    for _ in 0..PROGRAMS {
        let mut program = vec![random.byte()];
        // Most begin with hosts and a table, or nothing would be steered.
        if random.below(4) > 0 {
            for place in 0..3 {
                program.extend([10, place, 3]);
            }
            program.extend([9, 7, random.byte() & 8]);
        }
        for _ in 0..random.below(OPERATIONS) {
            match random.below(8) {
                0 | 1 => frame(&mut random, &corpus, &mut program),
                // Anything, which may be a frame that takes the operations after it.
                2 => program.extend((0..4).map(|_| random.byte())),
                3 => stream(&mut random, &mut program),
                // A flow's frame, or one of the operations that are no frames, with all that they read.
                4 => program.extend([4, random.byte(), random.byte()]),
                _ => {
                    let operation = 6 + random.below(10) as u8;
                    program.extend([operation, random.byte(), random.byte()]);
                    if operation == 14 {
                        program.push(random.byte());
                    }
                }
            }
        }
        let counts = replay(&program).unwrap();
        for (sum, count) in all.dropped.iter_mut().zip(counts.dropped) {
            *sum += count;
        }
        all.forwarded += counts.forwarded;
        all.resumed += counts.resumed;
        all.answered += counts.answered;
        all.drain_exceptions += counts.drain_exceptions;
        all.drain_refused += counts.drain_refused;
        all.suspensions_ended += counts.suspensions_ended;
        all.heartbeats_sent += counts.heartbeats_sent;
    }
    // Programs that reach little would prove little.
    for reason in DirectorDrop::ALL {
        // As many datagrams in pieces as fill that table are no program of this size.
        let is_reached = all.dropped(*reason) > 0;
        assert!(
            is_reached || *reason == DirectorDrop::FragmentTableFull,
            "{reason:?} was not reached: {all:?}"
        );
    }
    let rest = [
        all.resumed,
        all.answered,
        all.drain_exceptions,
        all.drain_refused,
        all.suspensions_ended,
        all.heartbeats_sent,
    ];
    assert!(rest.iter().all(|count| *count > 0), "{all:?}");
    assert!(all.forwarded > 10_000, "{}", all.forwarded);
}

#[test]
fn a_program_may_end_anywhere() {
    assert!(replay(&[]).is_none());
    let corpus = corpus();
    let mut random = Random(7);
    let mut program = vec![0, 10, 0, 3, 9, 1, 0];
    for _ in 0..6 {
        frame(&mut random, &corpus, &mut program);
    }
    for length in 1..program.len() {
        assert!(replay(&program[..length]).is_some(), "{length}");
    }
}
