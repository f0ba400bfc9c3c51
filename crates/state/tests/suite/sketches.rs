//! Sketches and filters beside other implementations of the same mathematics: at the same size and over the same streams ours err
//! as little. What the others answered was recorded by `tools/sketches/record.py`, which says with what; here the streams are played
//! again, and a digest of each says that they are the same.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use asterism_state::{
    Bloom, Builder, Context, CountMin, CountingBloom, Identity, ObjectSettings, OriginName,
    Sequencer, State, state,
};

const RECORDED: &str = include_str!("../recorded/sketches.txt");
/// By how much ours may differ from the others at the least, and at the most however few the runs. Between the two are five
/// standard errors of the ratio. Better would be wrong too: then the two would not be at the same task.
const DIFFERENCE: core::ops::RangeInclusive<f64> = 0.02..=0.25;

const DRAWS: u64 = 200_000;
const RANKS: u64 = 20_000;
const AMOUNT_MAX: u64 = 1_500;
const KEYS: u32 = 10_000;
const STRANGERS: u32 = 50_000;

#[state]
struct Sums {
    fine: CountMin<u64>,
    coarse: CountMin<u64>,
}

#[state]
struct Filters {
    seen: Bloom<u64>,
    present: CountingBloom<u64>,
}

/// A builder for a host alone, whose places follow from the seed.
fn builder(seed: u64) -> Builder {
    let identity = Identity {
        own: OriginName {
            member: 0,
            incarnation: 1,
        },
        members: vec![0],
        lane: (0, 1),
    };
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Rc::new(Context::new(identity, sequencer, seed, vec![]));
    context.set_now(0, 100);
    Builder::new(context, |_| ObjectSettings::LOCAL)
}

/// SplitMix64's output for a state, as the recording's program has it.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

fn key_of(run: u64, rank: u64) -> u64 {
    mixed(run << 32 | rank)
}

/// A record: its name and its numbers.
struct Record {
    name: &'static str,
    fields: HashMap<&'static str, u64>,
}

impl Record {
    fn number(&self, field: &str) -> u64 {
        self.fields[field]
    }
}

fn recorded(kind: &str) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            records.push(Record {
                name,
                fields: HashMap::new(),
            });
        } else if let Some((field, value)) = line.split_once(' ') {
            let record = records.last_mut().expect("a field is of a record");
            record
                .fields
                .insert(field, value.parse().expect("a number"));
        }
    }
    records.retain(|record| record.name == kind);
    assert_eq!(records.len() % 16, 0, "runs of {kind}");
    assert!(!records.is_empty(), "nothing of {kind}");
    records
}

/// The mean, and its standard error as a share of it.
fn mean(numbers: impl Iterator<Item = u64>) -> (f64, f64) {
    let numbers: Vec<f64> = numbers.map(|number| number as f64).collect();
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt() / mean)
}

/// Ours against theirs, over as many runs.
fn compare(what: &str, ours: &[u64], theirs: &[u64]) {
    let ((our_mean, our_error), (their_mean, their_error)) =
        (mean(ours.iter().copied()), mean(theirs.iter().copied()));
    let error = our_error.hypot(their_error);
    let ratio = our_mean / their_mean;
    println!(
        "{what}: ours {our_mean:.4e}, theirs {their_mean:.4e}, ratio {ratio:.3}, its standard error {error:.3}"
    );
    let allowed = (error * 5.0).max(*DIFFERENCE.start());
    assert!(
        allowed <= *DIFFERENCE.end(),
        "{what}: too few runs to tell, {error}"
    );
    assert!(
        (ratio - 1.0).abs() <= allowed,
        "{what}: ours {our_mean}, theirs {their_mean}"
    );
}

/// Weights of ranks, summed up.
fn cumulated(kind: &str) -> Vec<u64> {
    let weight = |rank| match kind {
        "uniform" => 1 << 40,
        _ => (1 << 40) / (rank + 1),
    };
    let mut sum = 0;
    (0..RANKS)
        .map(|rank| {
            sum += weight(rank);
            sum
        })
        .collect()
}

fn stream(sums: &[u64], run: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let all = u128::from(sums[sums.len() - 1]);
    (0..DRAWS).map(move |draw| {
        let number = mixed(mixed(run) ^ draw);
        let target = ((u128::from(number) * all) >> 64) as u64;
        let rank = sums.partition_point(|sum| *sum <= target) as u64;
        (key_of(run, rank), 1 + mixed(number) % AMOUNT_MAX)
    })
}

/// What one run of count-min showed.
#[derive(Default)]
struct Errors {
    sum: u64,
    over: u64,
    keys: u64,
}

fn errors(sketch: &CountMin<u64>, truth: &HashMap<u64, u64>) -> Errors {
    let mut errors = Errors::default();
    for (key, &truth) in truth {
        let said = sketch.get(key).expect("local");
        assert!(said >= truth, "a sum fell short");
        errors.sum += said - truth;
        errors.over += u64::from((said - truth) as f64 > sketch.excess());
        errors.keys += 1;
    }
    errors
}

#[test]
fn sums_err_as_little_as_those_of_apache_datasketches() {
    for kind in ["uniform", "zipf"] {
        let sums = cumulated(kind);
        let records = recorded(&format!("count-min {kind}"));
        for (error, doubt) in [(0.001_f64, 0.01_f64), (0.01, 0.05)] {
            // The sizes that both advise for this error and doubt.
            let width = (core::f64::consts::E / error).ceil() as u64;
            let rows = (1.0 / doubt).ln().ceil() as u64;
            let same_size = |record: &&Record| record.number("width") == width;
            let theirs: Vec<&Record> = records.iter().filter(same_size).collect();
            assert_eq!(theirs.len(), 16, "{width} places in a row");
            let mut ours = Vec::new();
            for record in &theirs {
                assert_eq!(record.number("rows"), rows);
                let run = record.number("run");
                let builder = builder(run + 1);
                let mut state = Sums {
                    fine: builder.count_min("fine", 0.001, 0.01),
                    coarse: builder.count_min("coarse", 0.01, 0.05),
                };
                let (mut truth, mut digest) = (HashMap::new(), 0);
                for (key, amount) in stream(&sums, run) {
                    let mut act = state.act();
                    if rows == 5 {
                        act.fine.add(&key, amount);
                    } else {
                        act.coarse.add(&key, amount);
                    }
                    *truth.entry(key).or_insert(0) += amount;
                    digest = mixed(digest ^ key ^ amount);
                }
                assert_eq!(digest, record.number("digest"), "another stream");
                assert_eq!(truth.values().sum::<u64>(), record.number("total"));
                let sketch = if rows == 5 {
                    &state.fine
                } else {
                    &state.coarse
                };
                let errors = errors(sketch, &truth);
                assert_eq!(errors.keys, record.number("keys"));
                ours.push(errors);
            }
            let what = format!("count-min, {kind}, {rows} x {width}");
            let field = |name| -> Vec<u64> { theirs.iter().map(|one| one.number(name)).collect() };
            let sum: Vec<u64> = ours.iter().map(|one| one.sum).collect();
            compare(&what, &sum, &field("error-sum"));
            // The stated bound, of both: of keys that exceed it there are at most a share of `doubt`.
            let keys: u64 = ours.iter().map(|one| one.keys).sum();
            for over in [
                ours.iter().map(|one| one.over).sum::<u64>(),
                field("over").iter().sum(),
            ] {
                println!("{what}: {over} of {keys} keys exceed {error} of all");
                assert!(
                    over as f64 <= doubt * keys as f64,
                    "{what}: {over} of {keys}"
                );
            }
        }
    }
}

#[test]
fn filters_mistake_as_few_as_those_of_pyprobables() {
    for (mistaken, name) in [(0.01_f64, "filter 0.01"), (0.001, "filter 0.001")] {
        let theirs = recorded(name);
        // Rows and width as `docs/src/objects/bloom.md` has them: within a hundredth of the others' bits.
        let rows = (1.0 / mistaken).log2().round();
        let width = (-f64::from(KEYS) / (1.0 - mistaken.powf(1.0 / rows)).ln()).ceil();
        let bits = theirs[0].number("bits") as f64;
        assert!(
            (rows * width / bits - 1.0).abs() < 0.01,
            "{rows} x {width} against {bits}"
        );
        assert_eq!(theirs[0].number("rows") as f64, rows);
        let (mut found, mut overfull, mut counting) = (Vec::new(), Vec::new(), Vec::new());
        for record in &theirs {
            let run = record.number("run");
            let builder = builder(run + 1);
            let mut state = Filters {
                seen: builder.bloom("seen", KEYS, mistaken),
                present: builder.counting_bloom("present", KEYS, mistaken),
            };
            let key = |number: u32| key_of(run, number.into());
            let strangers = 2 * KEYS..2 * KEYS + STRANGERS;
            let count = |contains: &dyn Fn(&u64) -> bool| {
                let all = strangers.clone().map(key);
                all.filter(contains).count() as u64
            };
            let mut act = state.act();
            (0..KEYS).for_each(|number| act.seen.add(&key(number)));
            (0..2 * KEYS).for_each(|number| act.present.add(&key(number)));
            (KEYS..2 * KEYS).for_each(|number| act.present.remove(&key(number)));
            for number in 0..KEYS {
                assert_eq!(state.seen.contains(&key(number)), Ok(true));
                assert_eq!(state.present.contains(&key(number)), Ok(true));
            }
            found.push(count(&|key| state.seen.contains(key) == Ok(true)));
            counting.push(count(&|key| state.present.contains(key) == Ok(true)));
            let mut act = state.act();
            (KEYS..2 * KEYS).for_each(|number| act.seen.add(&key(number)));
            overfull.push(count(&|key| state.seen.contains(key) == Ok(true)));
        }
        let field = |name| -> Vec<u64> { theirs.iter().map(|one| one.number(name)).collect() };
        compare(&format!("{name}, Bloom"), &found, &field("found"));
        compare(
            &format!("{name}, twice the keys"),
            &overfull,
            &field("found-overfull"),
        );
        compare(
            &format!("{name}, counting Bloom"),
            &counting,
            &field("found-counting"),
        );
        // The share that is stated, within four standard errors of what was drawn.
        let expected = mistaken * f64::from(STRANGERS);
        for drawn in [&found, &counting] {
            let (mean, error) = mean(drawn.iter().copied());
            println!(
                "{name}: {:.5} of strangers found",
                mean / f64::from(STRANGERS)
            );
            assert!(
                mean <= expected * (1.0 + 4.0 * error),
                "{mean} of {expected}"
            );
        }
    }
}
