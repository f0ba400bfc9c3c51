//! Tests of what one packet writes: it is one group up to the bound, has room in the log, and no function may exceed it.

use std::sync::Arc;

use asterism_function::{Ask, Builder, Late, Map, NetworkFunction, PortNumber, Verdict, state};
use asterism_placement::Time;
use asterism_state::{Context, GROUP_BYTES_MAX, ObjectSettings};

use super::sharing::BURST_LOG_BYTES;
use super::{Exchange, InstanceParts};
use crate::exchange::Up;
use asterism_io::frame::{BURST, FramePool};
use asterism_io::ring::ByteRing;

/// Entries of 100 bytes: two of a tag, ten of a generation, three of a time.
const KEY_BYTES: usize = 85;
const WRITES: u32 = (GROUP_BYTES_MAX / (KEY_BYTES + 15)) as u32;

/// A function each packet of which writes so many entries, whose keys have so many bytes.
macro_rules! writes {
    ($function:ident, $state:ident, $bytes:expr, $says:expr) => {
        struct $function(u32);

        #[state]
        struct $state {
            entries: Map<[u8; $bytes], ()>,
        }

        impl NetworkFunction for $function {
            type State = $state;
            fn state(&self, builder: &Builder) -> $state {
                builder.writing($says(self.0), &[]);
                $state {
                    entries: builder.table("entries", 20_000, &[0]),
                }
            }
            fn packet(&self, ask: Ask<'_, $state>) -> Result<Verdict, Late> {
                let draw = ask.random(1).to_be_bytes();
                let mut rooms = [const { None }; 16];
                for (number, room) in rooms.iter_mut().enumerate().take(self.0 as usize) {
                    let mut key = [number as u8; $bytes];
                    key[..4].copy_from_slice(&draw[..4]);
                    *room = Some(ask.entries.entry(key)?);
                }
                let mut act = ask.act()?;
                for room in rooms.into_iter().flatten() {
                    assert!(act.entries.put(room, ()), "there is room");
                }
                Ok(Verdict::Consumed)
            }
        }
    };
}

fn truly(writes: u32) -> u32 {
    writes
}
fn one_fewer(writes: u32) -> u32 {
    writes - 1
}
writes!(Fits, FitsState, KEY_BYTES, truly);
writes!(Exceeds, ExceedsState, KEY_BYTES + 1, truly);
writes!(Longest, LongestState, 400, truly);
writes!(Lies, LiesState, 8, one_fewer);

fn packet() -> Vec<u8> {
    let flow = asterism_function::Flow4 {
        source: [10, 0, 0, 1].into(),
        destination: [192, 0, 2, 1].into(),
        source_port: 1_000,
        destination_port: 53,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = asterism_function::build::flow4(&flow, b"payload", &mut bytes).expect("room");
    bytes.truncate(length);
    bytes
}

#[test]
fn the_largest_write_sets_are_whole_groups_and_find_room_in_a_log_that_is_nearly_full() {
    let (up, mut reader) = ByteRing::new(128 << 10).expect("memory for a ring");
    let (_writer, down) = ByteRing::new(128 << 10).expect("memory for a ring");
    let mut parts = InstanceParts::alone(1);
    parts.exchange = Some(Exchange::of_rings(up, down));
    let pool = FramePool::new(64).expect("memory for frames");
    let function = Arc::new(Fits(WRITES));
    let mut instance = parts.start(function, |_| ObjectSettings::REPLICATED, pool, Vec::new());
    let packet = packet();
    let burst = || (0..BURST).map(|_| packet.as_slice());
    let mut taken = 0;
    for round in 1..=20 {
        // As full as a log may be for a burst to be read.
        let exchange = instance.exchange.as_mut().expect("a host of several");
        let filler = Up::Group {
            sequence: 1,
            bytes: &[0; 500],
        };
        while exchange.up.has_free(BURST_LOG_BYTES + 600) {
            filler.push(&mut exchange.up).expect("room");
        }
        let now = Time::from_micros(1_000 * round);
        assert!(instance.has_log_room());
        taken += instance.inject_burst(now, PortNumber(0), burst());
        assert_eq!(instance.tally().groups_written, taken as u64, "each whole");
        let mut longest = 0;
        while let Some(record) = reader.next() {
            if let Some(Up::Group { bytes, .. }) = Up::read(record) {
                longest = longest.max(bytes.len());
            }
        }
        reader.release();
        // Generations and times take less than they may: nine bytes of each entry.
        assert!(
            longest > GROUP_BYTES_MAX - 10 * WRITES as usize - 1 && longest <= GROUP_BYTES_MAX,
            "{longest} bytes"
        );
    }
    assert_eq!(taken, 20 * BURST);
}

/// What the builder says of a function.
fn built<F: NetworkFunction>(function: &F) -> Result<(), String> {
    let builder = Builder::new(Context::alone().into(), |_| ObjectSettings::LOCAL);
    drop(function.state(&builder));
    builder.check_write_set().map_err(|why| why.to_string())
}

#[test]
fn a_function_that_may_write_a_byte_more_is_refused_when_it_is_built() {
    assert_eq!(built(&Fits(WRITES)), Ok(()));
    let why = built(&Exceeds(WRITES)).expect_err("eleven bytes more");
    assert!(
        why.contains("11 entries of `entries` of up to 101 bytes: 1111 bytes")
            && why.contains("1100 bytes at most"),
        "{why}"
    );
    assert!(built(&Fits(WRITES + 1)).is_err());
    assert!(
        built(&Longest(5)).is_err() && built(&Longest(4)).is_ok(),
        "no entry is longer than an operation may be"
    );
}

#[test]
#[should_panic(expected = "one packet may write 11 entries of `entries` of up to 101 bytes")]
fn its_instance_does_not_start() {
    let pool = FramePool::new(16).expect("memory for frames");
    let function = Arc::new(Exceeds(WRITES));
    InstanceParts::alone(1).start(function, |_| ObjectSettings::LOCAL, pool, Vec::new());
}

#[test]
#[should_panic(expected = "one packet wrote more than 9 entries")]
fn a_function_that_writes_more_than_it_says_fails_its_tests() {
    let pool = FramePool::new(16).expect("memory for frames");
    let settings = |_: &str| ObjectSettings::LOCAL;
    let mut instance =
        InstanceParts::alone(1).start(Arc::new(Lies(10)), settings, pool, Vec::new());
    instance.inject(Time::from_micros(1), PortNumber(0), &packet());
}

#[cfg(asterism_mutants)]
#[test]
fn planted_bugs_of_write_sets_are_found() {
    use asterism_state::mutant::{Mutant, select};
    select(Some(Mutant::WriteSetSplit));
    let test = the_largest_write_sets_are_whole_groups_and_find_room_in_a_log_that_is_nearly_full;
    let result = std::panic::catch_unwind(test);
    select(None);
    assert!(result.is_err(), "it survived");
}
