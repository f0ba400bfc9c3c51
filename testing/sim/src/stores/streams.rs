//! Streams in which a signature stands now and then, in one segment or over several, which come to any host.

use asterism_function::build::Segment;
use asterism_function::{Endpoint, PortNumber, Protocol, TcpFlags};
use asterism_functions::signature::{self, Carrier, Signature, SignatureConfig, Signatures};

use super::plan::{Homes, StorePlan};
use super::world::World;
use crate::functions::frame;
use crate::scenario::Draws;

const SIGNATURE: &[u8] = b"GET /asterism-needle?x=1";
const STREAMS: usize = 8;
/// A stream with a new one of its names begins once another ended.
const NAMES: u64 = 200;
/// Bytes of a segment at most.
const SEGMENT_MAX: u64 = 30;

/// A stream, and what of it was not sent.
struct Stream {
    ends: (Endpoint, Endpoint),
    sequence: u32,
    bytes: Vec<u8>,
    /// A segment that is sent after the one behind it.
    kept_back: Option<(u32, Vec<u8>)>,
}

impl Stream {
    fn new(name: u64, draws: &mut Draws) -> Self {
        let endpoint = |address: [u8; 4], port| Endpoint::new(address.into(), port, Protocol::TCP);
        let mut bytes = Vec::new();
        for _ in 0..draws.within(1, 3) {
            bytes.extend((0..draws.within(0, 40)).map(|_| b'.'));
            let cut = match draws.percent(50) {
                true => 0,
                false => draws.within(1, 12) as usize,
            };
            bytes.extend(&SIGNATURE[..SIGNATURE.len() - cut]);
        }
        bytes.extend(b"....");
        Self {
            ends: (
                endpoint([10, 7, 0, (name % 250) as u8 + 1], 20_000 + name as u16),
                endpoint([198, 51, 100, 1], 80),
            ),
            sequence: draws.word() as u32,
            bytes,
            kept_back: None,
        }
    }

    /// The next segment: of some bytes, or of none.
    fn next(&mut self, draws: &mut Draws) -> (u32, Vec<u8>) {
        if let Some(kept) = self.kept_back.take() {
            return kept;
        }
        let mut cut = || {
            let length = draws.within(0, SEGMENT_MAX).min(self.bytes.len() as u64);
            let rest = self.bytes.split_off(length as usize);
            let segment = (self.sequence, core::mem::replace(&mut self.bytes, rest));
            self.sequence = self.sequence.wrapping_add(length as u32);
            segment
        };
        let first = cut();
        if first.0.is_multiple_of(5) {
            let second = cut();
            self.kept_back = Some(first);
            return second;
        }
        first
    }

    fn is_over(&self) -> bool {
        self.bytes.is_empty() && self.kept_back.is_none()
    }
}

/// Those who send.
pub(super) struct Streams {
    config: SignatureConfig,
    draws: Draws,
    streams: Vec<Stream>,
    names: u64,
}

impl Streams {
    pub(super) fn new(plan: &StorePlan) -> Self {
        let mut draws = Draws::new(plan.seed, 62);
        let signature = Signature {
            id: 7,
            message: "a needle".to_owned(),
            bytes: SIGNATURE.to_vec(),
            carrier: Carrier::Any,
            ports: Vec::new(),
        };
        // The last room of a host's own table is not reserved while the store decides.
        let is_narrow = plan.homes == Homes::All && draws.percent(50);
        let config = SignatureConfig {
            response: match draws.percent(70) {
                true => signature::Response::BlockConnection { block_s: 600 },
                false => signature::Response::Detect,
            },
            wait_us: draws.one_of(&[0, 0, 3_000]),
            pieces_max: if is_narrow { 1 << 3 } else { 1 << 9 },
            alerts_max: if is_narrow { 1 << 2 } else { 1 << 9 },
            ..SignatureConfig::new(vec![signature])
        };
        let streams = (0..STREAMS as u64).map(|name| Stream::new(name, &mut draws));
        let streams = streams.collect();
        Self {
            config,
            draws,
            streams,
            names: STREAMS as u64,
        }
    }
}

impl World for Streams {
    type Function = Signatures;

    fn function(&self) -> Signatures {
        Signatures::new(self.config.clone()).expect("a sound configuration")
    }

    fn packet(&mut self) -> (PortNumber, Vec<u8>) {
        let place = self.draws.within(0, STREAMS as u64 - 1) as usize;
        let stream = &mut self.streams[place];
        if stream.is_over() {
            self.names = (self.names + 1) % NAMES;
            *stream = Stream::new(self.names, &mut self.draws);
        }
        let (sequence, bytes) = stream.next(&mut self.draws);
        let segment = Segment {
            sequence,
            ..Segment::with_flags(TcpFlags::ACK)
        };
        (PortNumber(0), frame(stream.ends, &segment, &bytes))
    }
}
