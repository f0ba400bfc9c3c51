//! The fuzz target on its checked-in corpus, on every truncation of it, and on seeded random mutations.

use std::fs;
use std::path::Path;

use asterism_packet::{Layout, fuzz::fuzz_packet};

/// Mutants of the corpus per run: a few seconds.
const MUTANTS: usize = 300_000;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut inputs: Vec<_> = fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            (
                path.file_stem()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned(),
                fs::read(path).expect("a file"),
            )
        })
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn the_corpus_is_well_formed_and_breaks_nothing() {
    let corpus = corpus();
    assert!(corpus.len() >= 27, "{} inputs", corpus.len());
    for (name, input) in corpus {
        assert!(
            Layout::parse(&input).is_ok(),
            "{name}: {:?}",
            Layout::parse(&input)
        );
        for length in 0..=input.len() {
            fuzz_packet(&input[..length]);
        }
    }
}

#[test]
fn seeded_mutations_break_nothing() {
    let corpus = corpus();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize % below.max(1)
    };
    let (mut parsed, mut input) = (0, Vec::new());
    for _ in 0..MUTANTS {
        input.clear();
        input.extend(&corpus[random(corpus.len())].1);
        for _ in 0..=random(6) {
            let at = random(input.len());
            match random(5) {
                0 => input.truncate(at.max(1)),
                1 => input.insert(at, random(256) as u8),
                2 => input[at] ^= 1 << random(8),
                3 => input[at] = [0, 1, 0x45, 0x60, 0x7f, 0x80, 0xfe, 0xff][random(8)],
                _ => {
                    let other = &corpus[random(corpus.len())].1;
                    let from = random(other.len());
                    input.extend(&other[from..]);
                }
            }
        }
        parsed += usize::from(Layout::parse_unverified(&input).is_ok());
        fuzz_packet(&input);
    }
    // Mutations that nearly all fail to parse would test nothing behind the parse.
    assert!(parsed > MUTANTS / 4, "only {parsed} of {MUTANTS} parsed");
}
