//! The code that the pages of the state objects show (`docs/src/objects`), a file for each page, compiled and run. The pages
//! show pieces of these files as they stand here; `documents` checks that.

mod bimap;
mod bloom;
mod count_min;
mod counter;
mod counters;
mod counting_bloom;
mod graph;
mod map;
mod pool;
mod register;
mod set;
mod table;
mod token_bucket;
mod top_k;
mod vector;
mod windowed_count_min;
mod windowed_counters;

use std::cmp::Ordering;
use std::net::Ipv4Addr;

use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{
    Ask, BiMap, Bloom, Builder, CountMin, Counter, Counters, CountingBloom, Endpoint,
    EndpointSpace, Flow4, Graph, Grouped, Late, Map, NetworkFunction, Paired, Pool, PortNumber,
    Protocol, Reason, Register, Row, Set, Spending, State, Table, Tick, TokenBucket, TokenRate,
    TopK, Value, Vector, Verdict, Window, WindowedCountMin, WindowedCounters, Wire, build, state,
};

/// Where packets go that pass.
const OUT: PortNumber = PortNumber(1);
/// What each packet carries.
const PAYLOAD: &[u8] = b"hello";
const PASSES: Verdict = Verdict::Forward(OUT);

/// A function of what a page shows.
struct Shown<S: State> {
    state: fn(&Builder) -> S,
    packet: fn(Ask<'_, S>) -> Result<Verdict, Late>,
}

impl<S: State> NetworkFunction for Shown<S> {
    type State = S;

    fn state(&self, builder: &Builder) -> S {
        (self.state)(builder)
    }

    fn packet(&self, ask: Ask<'_, S>) -> Result<Verdict, Late> {
        (self.packet)(ask)
    }
}

/// A host by its number.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

/// Plays packets, each from a host to a port and a second after the one before, and gives what became of them. Late reads must
/// change nothing of it.
fn play<S: State>(
    state: fn(&Builder) -> S,
    packet: fn(Ask<'_, S>) -> Result<Verdict, Late>,
    packets: &[(u8, u16)],
) -> (Testkit<Shown<S>>, Vec<Verdict>) {
    let steps: Vec<_> = packets
        .iter()
        .map(|&(source, port)| (1, PortNumber(0), bytes(source, port)))
        .collect();
    late_everywhere(|| Shown { state, packet }, &steps);
    let mut kit = Testkit::new(Shown { state, packet });
    let verdicts = steps.iter().map(|(seconds, port, bytes)| {
        kit.advance(*seconds);
        kit.packet(*port, bytes).verdict
    });
    let verdicts = verdicts.collect();
    (kit, verdicts)
}

fn bytes(source: u8, port: u16) -> Vec<u8> {
    let flow = Flow4 {
        source: host(source),
        destination: [192, 0, 2, 1].into(),
        source_port: 5_000,
        destination_port: port,
        protocol: 17,
    };
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, PAYLOAD, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}
