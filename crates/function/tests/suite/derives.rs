//! The derives of `Wire`, `Key` and `Value`: golden bytes and hashes of one type of each shape, round trips, inputs cut at every
//! length and damaged, laws.

use core::fmt::Debug;
use core::net::{Ipv4Addr, Ipv6Addr};

use asterism_function::objects::hash;
use asterism_function::{
    BadBytes, Endpoint, Key, MacAddress, Protocol, Reader, Value, Wire, Writer, laws,
};

const LISTED: [u32; 1] = [0x0a00_0001];

fn bytes(record: &impl Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes, &LISTED));
    bytes
}

fn read<W: Wire>(bytes: &[u8]) -> Result<W, BadBytes> {
    let mut input = Reader::new(bytes, &LISTED);
    let record = W::decode(&mut input)?;
    if input.is_empty() {
        Ok(record)
    } else {
        Err(BadBytes)
    }
}

/// These are the bytes of the record, all of which are needed; and whatever else is read is written as it was read.
fn is_written_as<W: Wire + PartialEq + Debug>(record: W, golden: &[u8]) {
    assert_eq!(bytes(&record), golden, "{record:?}");
    assert_eq!(read::<W>(golden).as_ref(), Ok(&record));
    for length in 0..golden.len() {
        assert_eq!(
            read::<W>(&golden[..length]),
            Err(BadBytes),
            "{record:?} of {length}"
        );
    }
    for at in 0..golden.len() {
        for byte in 0..=u8::MAX {
            let mut damaged = golden.to_vec();
            damaged[at] = byte;
            if let Ok(other) = read::<W>(&damaged) {
                assert_eq!(read::<W>(&bytes(&other)), Ok(other));
            }
        }
    }
}

/// All widths of numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
struct Numbers {
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    e: i8,
    f: i16,
    g: i32,
    h: i64,
    i: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
struct Tuple(u16, #[wire(varint)] u32, #[wire(u24)] u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
struct Nothing;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
enum Colour {
    Red = 1,
    Green = 7,
    Blue = 0xff,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
enum Target {
    #[wire(tag = 9)]
    Anybody,
    #[wire(tag = 3)]
    Host(Ipv4Addr),
    #[wire(tag = 4)]
    Service {
        #[wire(varint)]
        port: u16,
        colour: Colour,
    },
}

/// Everything that may lie in another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
struct Nested {
    tuple: Tuple,
    nothing: Nothing,
    target: Target,
    ends: (Endpoint, [u16; 2]),
    station: MacAddress,
    perhaps: Option<u16>,
    six: Ipv6Addr,
}

#[derive(Clone, Copy, PartialEq, Debug, Wire)]
#[wire(check = Self::is_in_order)]
struct Range {
    first: u8,
    last: u8,
}

impl Range {
    const fn is_in_order(&self) -> bool {
        self.first <= self.last
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
struct Of<K> {
    key: K,
    place: u16,
}

const NUMBERS: Numbers = Numbers {
    a: 1,
    b: 0x0203,
    c: 0x0405_0607,
    d: 0x0809_0a0b_0c0d_0e0f,
    e: -2,
    f: -3,
    g: -4,
    h: -5,
    i: true,
};
const TUPLE: Tuple = Tuple(0x0102, 300, 0x03_0405);
const SERVICE: Target = Target::Service {
    port: 443,
    colour: Colour::Green,
};

fn nested() -> Nested {
    Nested {
        tuple: TUPLE,
        nothing: Nothing,
        target: SERVICE,
        ends: (
            Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 80, Protocol::TCP),
            [5, 6],
        ),
        station: MacAddress([2, 0, 0, 0, 0, 1]),
        perhaps: Some(7),
        six: Ipv6Addr::LOCALHOST,
    }
}

#[test]
fn the_bytes_are_the_fields_in_their_order() {
    is_written_as(
        NUMBERS,
        &[
            1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 254, 253, 255, 252, 255, 255, 255,
            251, 255, 255, 255, 255, 255, 255, 255, 1,
        ],
    );
    is_written_as(TUPLE, &[2, 1, 0xac, 2, 5, 4, 3]);
    is_written_as(Nothing, &[]);
    is_written_as(Colour::Red, &[1]);
    is_written_as(Colour::Blue, &[255]);
    is_written_as(Target::Anybody, &[9]);
    is_written_as(Target::Host(Ipv4Addr::new(10, 0, 0, 1)), &[3, 0]);
    is_written_as(Target::Host(Ipv4Addr::LOCALHOST), &[3, 255, 1, 0, 0, 127]);
    is_written_as(SERVICE, &[4, 0xbb, 3, 7]);
    is_written_as(
        Of {
            key: 5u32,
            place: 6,
        },
        &[5, 0, 0, 0, 6, 0],
    );
    is_written_as(Range { first: 3, last: 4 }, &[3, 4]);
    let golden = [
        &[
            2, 1, 0xac, 2, 5, 4, 3, 4, 0xbb, 3, 7, 0, 80, 0, 6, 5, 0, 6, 0,
        ][..],
        &[2, 0, 0, 0, 0, 1, 1, 7, 0],
        &Ipv6Addr::LOCALHOST.octets(),
    ];
    is_written_as(nested(), &golden.concat());
}

#[test]
fn what_no_record_is_written_as_is_refused() {
    for tag in (0..=u8::MAX).filter(|tag| ![1, 7, 255].contains(tag)) {
        assert_eq!(read::<Colour>(&[tag]), Err(BadBytes));
    }
    assert_eq!(read::<Target>(&[0]), Err(BadBytes));
    assert_eq!(
        read::<Target>(&[4, 1, 2]),
        Err(BadBytes),
        "a bad tag within"
    );
    assert_eq!(read::<bool>(&[2]), Err(BadBytes));
    assert_eq!(read::<Option<u8>>(&[2, 0]), Err(BadBytes));
    assert_eq!(read::<Option<u8>>(&[0]), Ok(None));
    assert_eq!(read::<Range>(&[5, 4]), Err(BadBytes), "the check");
    // A number that its type cannot hold, and one longer than any.
    let of = |port: &[u8]| read::<Target>(&[&[4], port, &[1]].concat());
    assert!(of(&[0xff, 0xff, 3]).is_ok());
    assert_eq!(of(&[0x80, 0x80, 4]), Err(BadBytes));
    assert_eq!(of(&[0x80; 11]), Err(BadBytes));
}

#[test]
fn a_hash_is_that_of_the_fields_side_by_side() {
    const SEED: u64 = 0x0123_4567_89ab_cdef;
    let of = |key: &dyn Fn(u64) -> u64| key(SEED);
    let tuple = 0x0102 << 32 | 300;
    assert_eq!(
        of(&|seed| TUPLE.hash(seed)),
        hash::words(tuple, 0x03_0405, SEED),
        "what does not fit begins the next word"
    );
    assert_eq!(Nothing.hash(SEED), SEED);
    assert_eq!(Colour::Green.hash(SEED), hash::word(7, SEED));
    let pair = Of {
        key: 5u32,
        place: 6,
    };
    assert_eq!(pair.hash(SEED), hash::word(5 << 16 | 6, SEED));
    let two = Of {
        key: pair,
        place: 7,
    };
    assert_eq!(
        two.hash(SEED),
        hash::word(5 << 32 | 6 << 16 | 7, SEED),
        "a derived key lies in another field by field"
    );
    assert_eq!(Target::Anybody.hash(SEED), hash::word(9, SEED));
    assert_eq!(
        SERVICE.hash(SEED),
        hash::word(443 << 8 | 7, hash::word(4, SEED))
    );
    let end = Of {
        key: Endpoint::new(Ipv4Addr::from_bits(0x0102_0304), 0x0708, Protocol::UDP),
        place: 9,
    };
    assert_eq!(
        end.hash(SEED),
        hash::words(0x01_0203_0411_0708, 9, SEED),
        "an endpoint has 56 bits"
    );
    let words = [
        0x0001_0203_0405_0607,
        NUMBERS.d,
        0xfe_fffd_ffff_fffc,
        -5i64 as u64,
    ];
    let first = hash::words(words[0], words[1], SEED);
    assert_eq!(
        NUMBERS.hash(SEED),
        hash::word(1, hash::words(words[2], words[3], first))
    );
    let opaque = Of {
        key: Some(5u32),
        place: 6,
    };
    assert_eq!(
        opaque.hash(SEED),
        Some(5u32).hash(hash::word(6, SEED)),
        "a hash of its own has what came before as its seed"
    );
}

#[test]
fn fields_do_not_cancel_each_other() {
    // All that two small fields, a tag or an absence can do, and each bit of large ones.
    let mut hashes = std::collections::BTreeSet::new();
    let mut keys = 0;
    let mut add = |key: Nested| {
        for seed in [0, 1, u64::MAX] {
            assert!(hashes.insert((seed, key.hash(seed))), "{key:?}");
        }
        keys += 1;
    };
    for bit in 0..16 {
        let with = |change: &dyn Fn(&mut Nested)| {
            let mut key = nested();
            change(&mut key);
            key
        };
        add(with(&|key| key.tuple.0 ^= 1 << bit));
        add(with(&|key| key.tuple.1 ^= 1 << bit));
        add(with(&|key| key.tuple.2 ^= 1 << bit));
        add(with(&|key| key.ends.1[0] ^= 1 << bit));
        add(with(&|key| key.ends.1[1] ^= 1 << bit));
        add(with(&|key| key.ends.0.port ^= 1 << bit));
        add(with(&|key| key.perhaps = Some(7 ^ 1 << bit)));
        add(with(&|key| key.station.0[4 + bit / 8] ^= 1 << (bit % 8)));
        add(with(&|key| {
            key.target = Target::Host(Ipv4Addr::from_bits(1 << bit))
        }));
        add(with(&|key| {
            key.target = Target::Service {
                port: 1 << bit,
                colour: Colour::Red,
            }
        }));
    }
    add(nested());
    add(Nested {
        perhaps: None,
        ..nested()
    });
    add(Nested {
        target: Target::Anybody,
        ..nested()
    });
    assert_eq!(hashes.len(), 3 * keys);
}

#[test]
fn keys_that_differ_spread_over_all_of_a_hash() {
    let (mut low, mut high) = ([0u32; 256], [0u32; 256]);
    for draw in 0..256 * 64u32 {
        let key = Of {
            key: Ipv4Addr::from_bits(0x0a00_0000 | draw >> 4),
            place: (draw & 15) as u16,
        };
        let hash = key.hash(99);
        low[(hash & 255) as usize] += 1;
        high[(hash >> 56) as usize] += 1;
    }
    for bucket in low.iter().chain(&high) {
        assert!((20..=120).contains(bucket), "{bucket} of 64");
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Wire, Value)]
struct Joining {
    #[join(min)]
    first: u32,
    #[join(max)]
    last: Option<u16>,
    #[join(or)]
    bits: u8,
    #[join(or)]
    blocked: bool,
    #[join(max, each)]
    most: [u8; 2],
    #[join(or, each)]
    sets: [u64; 2],
    #[join]
    within: Earlier,
}

/// Joins as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire, Value)]
#[join(min)]
struct Earlier {
    at: u8,
    by: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[join(max)]
#[value(idle_class = Self::class)]
enum Phase {
    Begun = 0,
    Open = 1,
    Over = 2,
}

impl Phase {
    fn class(&self) -> u8 {
        *self as u8
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
struct Plain(u8);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[value(order)]
struct Ordered(u8, u8);

#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
#[value(order(since, by))]
struct Chosen {
    by: u8,
    weight: u8,
    since: u8,
}

fn number(draw: u64, place: u64, below: u64) -> u64 {
    hash::words(draw, place, 5) % below
}

fn joining(draw: u64) -> Joining {
    let number = |place, below| number(draw, place, below);
    Joining {
        first: number(0, 3) as u32,
        last: (number(1, 3) > 0).then_some(number(2, 3) as u16),
        bits: number(3, 8) as u8,
        blocked: number(4, 2) == 1,
        most: [number(5, 3) as u8, number(6, 3) as u8],
        sets: [number(7, 4), number(8, 4)],
        within: Earlier {
            at: number(9, 3) as u8,
            by: number(10, 3) as u8,
        },
    }
}

#[test]
fn what_is_derived_keeps_the_laws() {
    for draw in 0..3_000 {
        let draws = [draw, draw + 10_000, draw + 20_000];
        let [a, b, c] = draws.map(joining);
        laws::value(a, b, c);
        let [a, b, c] = draws.map(|draw| joining(draw).within);
        laws::value(a, b, c);
        let [a, b, c] = draws
            .map(|draw| [Phase::Begun, Phase::Open, Phase::Over][number(draw, 11, 3) as usize]);
        laws::value(a, b, c);
        let [a, b, c] =
            draws.map(|draw| Ordered(number(draw, 12, 3) as u8, number(draw, 13, 3) as u8));
        laws::value(a, b, c);
        let [a, b, c] = draws.map(|draw| Chosen {
            by: number(draw, 14, 3) as u8,
            weight: number(draw, 15, 3) as u8,
            since: number(draw, 16, 3) as u8,
        });
        laws::value(a, b, c);
    }
}

#[test]
fn fields_join_by_their_laws() {
    let mut own = Joining {
        first: 5,
        last: None,
        bits: 1,
        blocked: false,
        most: [1, 9],
        sets: [1, 2],
        within: Earlier { at: 2, by: 1 },
    };
    own.join(&Joining {
        first: 4,
        last: Some(0),
        bits: 2,
        blocked: true,
        most: [8, 3],
        sets: [4, 2],
        within: Earlier { at: 1, by: 9 },
    });
    let joined = Joining {
        first: 4,
        last: Some(0),
        bits: 3,
        blocked: true,
        most: [8, 9],
        sets: [5, 2],
        within: Earlier { at: 1, by: 9 },
    };
    assert_eq!(own, joined);
    const { assert!(Joining::JOINS && Earlier::JOINS && Phase::JOINS && !Plain::JOINS) };
    let mut phase = Phase::Over;
    phase.join(&Phase::Open);
    assert_eq!((phase, phase.idle_class()), (Phase::Over, 2));
    assert_eq!(Plain(1).order(&Plain(2)), core::cmp::Ordering::Equal);
    assert_eq!(Plain(1).idle_class(), 0);
    assert!(Ordered(1, 2).order(&Ordered(1, 1)).is_gt());
    let chosen = |by, weight, since| Chosen { by, weight, since };
    assert!(
        chosen(1, 9, 2).order(&chosen(2, 1, 1)).is_gt(),
        "the time first"
    );
    assert!(
        chosen(1, 9, 2).order(&chosen(2, 1, 2)).is_lt(),
        "then by the backend"
    );
    assert!(
        chosen(1, 9, 2).order(&chosen(1, 1, 2)).is_eq(),
        "the weight is not asked"
    );
}
