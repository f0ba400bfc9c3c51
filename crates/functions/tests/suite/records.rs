//! Bytes, refusals, hashes and joins of every record stay what they are: hosts of different versions talk, and state files are
//! read by later ones.
//!
//! For each record a digest over thousands of inputs, damaged and cut, recorded when all of them were written manually. A record that
//! is to change gets a new line here, on purpose.

use asterism_forwarding as forwarding;
use asterism_function::objects::hash;
use asterism_function::{Host, Key, Reader, Value, Wire, Writer};
use asterism_functions::{
    balancer, cache_digests, firewall, limiter, monitor, nat, port_scan, signature,
};

/// Addresses that are worth one byte.
const LISTED: [u32; 2] = [0x0a00_0001, 0xcb00_7109];
const DRAWS: u64 = 4_000;

/// An input: the example, mostly damaged in up to three places, sometimes cut.
fn input(example: &[u8], draw: u64) -> Vec<u8> {
    let number = |place: u64| hash::words(draw, place, 43) as usize;
    let mut bytes = example.to_vec();
    for place in 0..draw % 4 {
        let at = number(10 * place) % bytes.len();
        let to = number(10 * place + 1);
        bytes[at] = match to % 3 {
            0 => (to >> 8) as u8,
            1 => (to >> 8) as u8 % 8,
            _ => bytes[at] ^ 1 << ((to >> 8) % 8),
        };
    }
    if number(99).is_multiple_of(9) {
        bytes.truncate(number(98) % (bytes.len() + 1));
    }
    bytes
}

fn bytes<W: Wire>(record: &W) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes, &LISTED));
    bytes
}

/// What became of all inputs, and the records among them.
fn sweep<W: Wire>(example: &str) -> (u64, Vec<W>) {
    let digits: Vec<char> = example.chars().filter(|one| *one != ' ').collect();
    let example: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("digits"))
        .collect();
    let mut digest = 0;
    let mut records = Vec::new();
    for draw in 0..DRAWS {
        let input = input(&example, draw);
        let mut reader = Reader::new(&input, &LISTED);
        let record = W::decode(&mut reader);
        if let Ok(record) = record {
            let left = reader.raw(0).map(|_| reader.is_empty());
            digest = hash::bytes(&bytes(&record), digest ^ u64::from(left == Ok(true)));
            records.push(record);
        } else {
            assert!(draw % 4 != 0 || input.len() < example.len(), "the example");
            digest = hash::word(digest, 1);
        }
    }
    (digest, records)
}

fn wire<W: Wire>(example: &str) -> u64 {
    sweep::<W>(example).0
}

fn key<K: Key>(example: &str) -> u64 {
    let (digest, records) = sweep::<K>(example);
    records.iter().fold(digest, |digest, record| {
        hash::words(record.hash(0), record.hash(u64::MAX / 3), digest)
    })
}

fn value<V: Value>(example: &str) -> u64 {
    let (digest, records) = sweep::<V>(example);
    let pairs = records.iter().zip(records.iter().skip(1));
    pairs.fold(digest, |digest, (own, other)| {
        let mut joined = *own;
        joined.join(other);
        let order = own.order(other) as i8 as u8;
        let said = [order, own.idle_class(), V::JOINS.into()];
        hash::bytes(&bytes(&joined), hash::bytes(&said, digest))
    })
}

#[test]
fn records_are_what_they_were() {
    const HOST: &str = "04 ff 0102 0304";
    const HOST6: &str = "06 0000000000b80d20 0100000000000000";
    let with = |parts: &[&str]| parts.concat();
    let stream = with(&["01", HOST, "3930", HOST6, "bb01"]);
    let flow = with(&[HOST, HOST6, "3930 bb01 06"]);
    let digests = [
        ("host", key::<Host>(HOST)),
        ("host of IPv6", key::<Host>(HOST6)),
        (
            "firewall block",
            value::<firewall::Block>("01020304 d804 05060708"),
        ),
        (
            "firewall subject",
            key::<firewall::Subject>(&with(&["07000000", HOST])),
        ),
        (
            "firewall event",
            value::<firewall::Event>(&with(&["01020304 8601", &flow])),
        ),
        (
            "firewall datagram",
            key::<firewall::Datagram>(&with(&[HOST, HOST6, "01020304 11"])),
        ),
        ("firewall flow", key::<firewall::Flow>(&flow)),
        (
            "firewall track",
            value::<firewall::Track>("00 0706 15 03 05 8f01 04 06 9c7f"),
        ),
        ("firewall track of UDP", value::<firewall::Track>("01 2404")),
        (
            "port-scan subject",
            key::<port_scan::Subject>(&with(&[HOST, "03"])),
        ),
        (
            "port-scan alert",
            value::<port_scan::Alert>(&with(&["01020304", HOST, "bb01", HOST, "0700 0900 1100"])),
        ),
        (
            "port-scan block",
            value::<port_scan::Block>("01020304 8601"),
        ),
        (
            "port-scan watch",
            value::<port_scan::Watch>("8601 ffff03 9c7f"),
        ),
        (
            "port-scan scanner",
            key::<port_scan::Scanner>(&with(&[HOST6, "02"])),
        ),
        (
            "port-scan history",
            value::<port_scan::SourceHistory>("8601 1100 0300 0102030405060708 1112131415161718"),
        ),
        (
            "port-scan service",
            key::<port_scan::Service>(&with(&[HOST, "bb01"])),
        ),
        (
            "port-scan sample",
            key::<port_scan::Sample>(&with(&[HOST6, "bb01 02"])),
        ),
        (
            "port-scan flood",
            value::<port_scan::Flood>(&with(&["01020304", "f403 1e", HOST])),
        ),
        (
            "port-scan handshakes",
            value::<port_scan::Handshakes>("8601 8801 21000000 0102030405060708 1112131415161718"),
        ),
        ("signature stream", key::<signature::Stream>(&stream)),
        (
            "signature place",
            key::<signature::Place>(&with(&[&stream, "010203", "04050607"])),
        ),
        (
            "signature connection",
            key::<signature::Target>(&with(&["00", &stream])),
        ),
        (
            "signature source",
            key::<signature::Target>(&with(&["01", HOST])),
        ),
        (
            "signature subject",
            key::<signature::Subject>(&with(&[&stream, "8601"])),
        ),
        ("signature alert", value::<signature::Alert>("01020304 01")),
        ("signature block", value::<signature::Block>("01020304")),
        (
            "signature pieces",
            value::<signature::Pieces>("02 0100 0200 05 0300 0200 06"),
        ),
        (
            "signature reading",
            key::<signature::Reading>(&with(&[&stream, "04050607"])),
        ),
        (
            "signature runs",
            value::<signature::Runs>(
                "02 01020304 050000 0a00 03 0b00 07 01030304 060000 0a00 00 0b00 00",
            ),
        ),
        (
            "digest bits",
            value::<cache_digests::Bits>(&"a5".repeat(128)),
        ),
        (
            "digest head",
            value::<cache_digests::Head>("01020304 05060708 090a0b0c 0d0e0f10 11121314 05"),
        ),
        (
            "digest that is not known",
            wire::<cache_digests::Known>("00"),
        ),
        (
            "digest of a cache",
            wire::<cache_digests::Known>("01 01020304 05060708 090a0b0c 0d0e0f10 11121314 05"),
        ),
        (
            "limiter service",
            key::<limiter::Service>(&with(&[HOST, "bb01 06"])),
        ),
        (
            "monitor suspect",
            key::<monitor::Suspect>(&with(&[HOST, "01"])),
        ),
        (
            "monitor alarm",
            value::<monitor::Alarm>("01020304 05060708"),
        ),
        ("monitor flow", key::<monitor::Flow>(&flow)),
        (
            "monitor observed flow",
            key::<monitor::Observed>(&with(&[&flow, "0700 0103 40"])),
        ),
        (
            "nat event",
            wire::<nat::NatEvent>("02 01020304 05060708 090a0b0c 3930 11 0d0e0f10 0004 ff05"),
        ),
        (
            "nat session",
            wire::<nat::Session>("01 01020304 3930 05060708 bb01 01 0304"),
        ),
        (
            "nat asked",
            value::<nat::Asked>("01020304 05060708090a0b0c 0d0e0f10"),
        ),
        (
            "balancer fragment",
            value::<balancer::Led>("02 ff 01020304 ff 05060708"),
        ),
        (
            "balancer votes",
            value::<balancer::HealthVotes>("02 01 01020304 02 02020304 01 03 02020304 05060708"),
        ),
        (
            "balancer flow",
            wire::<balancer::Flow>("06 ff 01020304 3930 00 bb01 01 901f 01 0500"),
        ),
        (
            "balancer backend",
            value::<balancer::Affinity>("ff 01020304 901f 06 01020304"),
        ),
        (
            "fragment key",
            key::<forwarding::FragmentKey>("ff 01020304 01 0102 11"),
        ),
        (
            "fragment lead",
            value::<forwarding::Fragmented>("ff 01020304 01"),
        ),
        (
            "ends",
            key::<forwarding::Ends>("0102030405060708 090a0b0c 06"),
        ),
        ("connection", value::<forwarding::Connection>("30")),
        (
            "connection progress",
            value::<forwarding::Progress>("30 05 010203 010405"),
        ),
        (
            "neighbour",
            value::<forwarding::Neighbour>("020000000001 01020304 05060708"),
        ),
        (
            "errors sent",
            value::<forwarding::ErrorsSent>("01020304 0506"),
        ),
    ];
    let found: String = digests
        .iter()
        .map(|(name, digest)| format!("{digest:016x} {name}\n"))
        .collect();
    assert_eq!(found, include_str!("../records.digests"));
}
