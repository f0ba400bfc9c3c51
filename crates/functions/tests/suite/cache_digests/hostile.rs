//! Bytes that lie: whatever they are, a verdict comes and nothing breaks.

use asterism_function::Verdict;
use asterism_function::testkit::Testkit;
use asterism_functions::cache_digests::fuzz::fuzz_caches;
use asterism_functions::cache_digests::{CONTROL, read_directory};

use crate::cache_digests::frames::*;

/// Mutants of each input.
const MUTANTS: usize = 30_000;

fn random() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize % below.max(1)
    }
}

fn change(input: &mut Vec<u8>, random: &mut impl FnMut(usize) -> usize) {
    for _ in 0..=random(4) {
        let at = random(input.len());
        match random(4) {
            0 => input.truncate(at.max(1)),
            1 => input.insert(at, random(256) as u8),
            2 => input[at] ^= 1 << random(8),
            _ => input[at] = [0, 1, 0x20, 0x7f, 0x80, 0xff][random(6)],
        }
    }
}

/// The fuzz target on what caches really say, on every truncation of it and on mutants.
#[test]
fn what_caches_say_is_read_whatever_it_is() {
    let mut random = random();
    let mut seeds = vec![
        include_bytes!("squid-5.7-of-50.digest").to_vec(),
        line("SWAPOUT", 1).into_bytes(),
        Vec::new(),
    ];
    let mut payload = [0; 200];
    let length = asterism_functions::cache_digests::icp::write_query(9, b"http://a/", &mut payload);
    seeds.push(payload[..length.unwrap()].to_vec());
    let mut digests = 0;
    for seed in &seeds {
        for length in 0..=seed.len() {
            fuzz_caches(&seed[..length]);
        }
        for _ in 0..MUTANTS {
            let mut input = seed.clone();
            input.push(0);
            input.pop();
            if !input.is_empty() {
                change(&mut input, &mut random);
            }
            digests += usize::from(fuzz_caches(&input));
        }
    }
    // Mutants that are all refused would test nothing behind the checks.
    assert!(digests > MUTANTS / 10, "{digests}");
}

#[test]
fn frames_that_lie_get_a_verdict() {
    let mut random = random();
    let mut kit = Testkit::new(function());
    let digest = digest(0..100, 3_000);
    let mut seeds: Vec<_> = fetched_frames(FETCHED.0, &digest, 7)
        .into_iter()
        .map(|frame| (CONTROL, frame))
        .collect();
    seeds.push((INSIDE, query(FETCHED.1, 1)));
    seeds.push((OUTSIDE, report(&(line("SWAPOUT", 1) + &line("RELEASE", 1)))));
    // More lines than are looked at.
    seeds.push((OUTSIDE, report(&"x\n".repeat(500))));
    let mut passed = 0;
    for round in 0..MUTANTS {
        let (port, frame) = &seeds[round % seeds.len()];
        let mut frame = frame.clone();
        // Every second time behind the headers alone, so that what is in them is looked at.
        let kept = if round % 2 == 0 {
            42.min(frame.len() - 1)
        } else {
            0
        };
        let mut tail = frame.split_off(kept);
        change(&mut tail, &mut random);
        frame.extend(tail);
        let outcome = kit.packet(*port, &frame);
        passed += usize::from(!matches!(outcome.verdict, Verdict::Drop(_)));
    }
    assert!(passed > MUTANTS / 4, "{passed}");
    let counts: Vec<_> = read_directory(&reported(&kit, 0)).unwrap();
    assert!(counts[0].1[3] > 0, "queries that are none are counted");
    assert!(counts[1].1[7] > 0, "so are reports that are none");
}
