//! Two web caches, and what passes between them, who asks, and the hosts: queries, answers, reports, and digests in frames.

use core::net::Ipv4Addr;
use std::collections::BTreeSet;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, Packet, Protocol, TcpFlags};
use asterism_functions::cache_digests::icp::{Message, read_answer, write_query};
use asterism_functions::cache_digests::squid::{self, Header, StoreKey};
use asterism_functions::cache_digests::{self, Cache, CacheDigestsConfig, Head, Source};

use crate::functions::talks::frame;

/// The cache whose digest is fetched, and the one that reports: their numbers.
pub(super) const FETCHED: usize = 0;
pub(super) const REPORTS: usize = 1;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const COLLECTOR: Endpoint = Endpoint::new(Ipv4Addr::new(192, 0, 2, 9), 5_140, Protocol::UDP);
const ICP_PORT: u16 = 3_130;
/// What the fetched digest is made for, so that it takes two frames; and the reported one.
const CAPACITIES: [u32; 2] = [1_000, 200];

/// A digest: what stands before its bits, and them.
pub(super) type Digest = (Header, Vec<u8>);

/// What the hosts are informed of the caches.
pub(super) fn configuration() -> CacheDigestsConfig {
    let cache = |number: usize, source| Cache {
        address: ADDRESSES[number],
        icp_port: ICP_PORT,
        source,
    };
    CacheDigestsConfig {
        caches: vec![
            cache(FETCHED, Source::Digest),
            cache(REPORTS, Source::Reports(CAPACITIES[REPORTS])),
        ],
        reports: Some((COLLECTOR.address, COLLECTOR.port)),
        blocks_max: 1 << 10,
        ..CacheDigestsConfig::default()
    }
}

fn url(number: u32) -> String {
    format!("http://o.example/{number}")
}

fn header(cache: usize) -> Header {
    let reported = configuration().caches[cache].filter();
    reported.unwrap_or_else(|| Header::sized(CAPACITIES[cache], 5))
}

/// Numbers of objects with bits of their own in a cache's filter.
pub(super) fn apart(cache: usize, count: usize) -> Vec<u32> {
    let bits = header(cache).bits();
    let mut taken = BTreeSet::new();
    let is_apart = |number: &u32| {
        let places = StoreKey::of_get(url(*number).as_bytes()).places(bits);
        let is_apart = places.iter().all(|place| !taken.contains(place));
        taken.extend(places.into_iter().filter(|_| is_apart));
        is_apart
    };
    (0..).filter(is_apart).take(count).collect()
}

/// The digest of a cache that has these objects, as it makes it.
pub(super) fn digest(numbers: impl Iterator<Item = u32>) -> Digest {
    let Header {
        capacity,
        bits_per_entry,
        ..
    } = header(FETCHED);
    let keys = numbers.map(|number| StoreKey::of_get(url(number).as_bytes()));
    squid::digest(capacity, bits_per_entry, keys)
}

/// The frames by which a host writes a digest that it fetched: of blocks, each with the number of its first one, and then the head's.
pub(super) fn reported((header, mask): &Digest, fetched: u32) -> Vec<Vec<u8>> {
    let head = Head {
        fetched,
        header: *header,
    };
    cache_digests::frames(FETCHED as u16, &head, mask).collect()
}

fn datagram(ends: (Endpoint, Endpoint), payload: &[u8]) -> Vec<u8> {
    frame(ends, &Segment::with_flags(TcpFlags::default()), payload)
}

/// A query by one who asks.
pub(super) fn query(id: u32, asker: u8, cache: usize, number: u32) -> Vec<u8> {
    let from = Ipv4Addr::new(192, 0, 2, 10 + asker);
    let mut payload = [0; 128];
    let length = write_query(id, url(number).as_bytes(), &mut payload).unwrap_or(0);
    let end = |address| Endpoint::new(address, ICP_PORT, Protocol::UDP);
    datagram((end(from), end(ADDRESSES[cache])), &payload[..length])
}

/// A line of the log of the cache's store: an object is stored, or let go.
pub(super) fn report(reporter: u16, number: u32, stores: bool) -> Vec<u8> {
    let action = if stores { "SWAPOUT" } else { "RELEASE" };
    let line = format!(
        "1795423463.329 {action} 00 00000000 52FAF89614672CA3DA5D82478E9D788F 200 1 1 1 unknown 5/5 GET {}\n",
        url(number)
    );
    let from = Endpoint::new(ADDRESSES[REPORTS], 40_000 + reporter, Protocol::UDP);
    datagram((from, COLLECTOR), line.as_bytes())
}

/// What a frame is.
#[derive(Clone, Copy)]
pub(super) enum Known {
    /// A query, by its number.
    Query(u32),
    /// The answer to one, and whether it is a hit.
    Answer(u32, bool),
    /// A report of an object, by its number.
    Report(u32),
}

impl Known {
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let mut frame = frame.to_vec();
        let packet = Packet::parse(&mut frame).ok()?;
        let payload = packet.payload();
        if packet.flow4()?.destination() == COLLECTOR {
            let line = core::str::from_utf8(payload).ok()?;
            let number = line.trim_end().rsplit('/').next()?;
            return number.parse().ok().map(Self::Report);
        }
        match Message::read(payload) {
            Message::Query { number, .. } => Some(Self::Query(number)),
            _ => read_answer(payload).map(|(number, hit)| Self::Answer(number, hit)),
        }
    }
}
