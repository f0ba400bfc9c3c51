//! Queries, reports and digests as frames.

use core::net::Ipv4Addr;

use asterism_function::testkit::Testkit;
use asterism_function::{Observable, Packet, PortNumber, build};
use asterism_functions::cache_digests::icp::{read_answer, write_query};
use asterism_functions::cache_digests::squid::{self, Header, StoreKey};
use asterism_functions::cache_digests::{
    Cache, CacheDigests, CacheDigestsConfig, Head, Source, frames,
};

pub(crate) const INSIDE: PortNumber = PortNumber(0);
pub(crate) const OUTSIDE: PortNumber = PortNumber(1);
/// Who asks.
pub(crate) const ASKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
/// A cache whose digest is fetched, and one that reports.
pub(crate) const FETCHED: (u16, Ipv4Addr) = (0, Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const REPORTS: (u16, Ipv4Addr) = (1, Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const COLLECTOR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 9), 5_140);

pub(crate) fn function() -> CacheDigests {
    CacheDigests::new(config())
}

pub(crate) fn config() -> CacheDigestsConfig {
    let cache = |address, source| Cache {
        address,
        icp_port: 3_130,
        source,
    };
    CacheDigestsConfig {
        caches: vec![
            cache(FETCHED.1, Source::Digest),
            cache(REPORTS.1, Source::Reports(1_000)),
        ],
        reports: Some(COLLECTOR),
        ..CacheDigestsConfig::default()
    }
}

pub(crate) fn url(number: u32) -> String {
    format!("http://origin.example/objects/{number}")
}

/// A query about an object, from a port of the asker's.
pub(crate) fn query(cache: Ipv4Addr, number: u32) -> Vec<u8> {
    let mut payload = [0; 1_500];
    let length = write_query(number, url(number).as_bytes(), &mut payload).unwrap();
    datagram((ASKER, 3_130), (cache, 3_130), &payload[..length])
}

pub(crate) fn datagram(
    (from, from_port): (Ipv4Addr, u16),
    (to, to_port): (Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [0; 1_600];
    let header = build::Header4::between(from, to);
    let length = build::udp4(&header, from_port, to_port, payload, &mut frame).unwrap();
    frame[..length].to_vec()
}

/// A line of Squid's log of its store.
pub(crate) fn line(action: &str, number: u32) -> String {
    format!(
        "1795423463.329 {action} 00 00000000 52FAF89614672CA3DA5D82478E9D788F  200 1795423463 1795337063 1795509863 unknown 512/512 GET {}\n",
        url(number)
    )
}

pub(crate) fn report(text: &str) -> Vec<u8> {
    datagram((REPORTS.1, 40_000), COLLECTOR, text.as_bytes())
}

/// A digest of these objects, as a cache makes it.
pub(crate) fn digest(numbers: core::ops::Range<u32>, capacity: u32) -> (Header, Vec<u8>) {
    let keys = numbers.map(|number| StoreKey::of_get(url(number).as_bytes()));
    squid::digest(capacity, 5, keys)
}

/// The frames by which the control side writes a digest.
pub(crate) fn fetched_frames(
    cache: u16,
    (header, mask): &(Header, Vec<u8>),
    fetched: u32,
) -> Vec<Vec<u8>> {
    let head = Head {
        header: *header,
        fetched,
    };
    frames(cache, &head, mask).collect()
}

/// The answer among what was emitted: whether it is a hit. Checks that it is from the cache and goes back to who asked.
pub(crate) fn hit(emitted: &[(PortNumber, Vec<u8>)], cache: Ipv4Addr, number: u32) -> bool {
    let [(port, frame)] = emitted else {
        panic!("one answer, not {}", emitted.len())
    };
    assert_eq!(*port, INSIDE);
    let mut frame = frame.clone();
    let packet = Packet::parse(&mut frame).unwrap();
    let flow = packet.flow4().unwrap();
    assert_eq!((flow.source, flow.destination), (cache, ASKER));
    assert_eq!((flow.source_port, flow.destination_port), (3_130, 3_130));
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    let (answered, hit) = read_answer(packet.payload()).unwrap();
    assert_eq!(answered, number);
    hit
}

/// What the state tells of a question.
pub(crate) fn reported(kit: &Testkit<CacheDigests>, question: u32) -> Vec<u8> {
    let (mut bytes, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        cursor = kit
            .function()
            .report(kit.state(), question, (from, 3), &mut bytes);
    }
    bytes
}
