//! Instructions of the parse, the flow and the edits, one function each, for an instruction counter:
//!
//! ```text
//! cargo build --release -p asterism-packet --example instruction_cost
//! valgrind --tool=callgrind --callgrind-out-file=cost.out target/release/examples/instruction_cost
//! callgrind_annotate cost.out | grep instruction_cost
//! ```
//!
//! Every function runs once for each of 1,000 packets of 64 bytes, half TCP and half UDP: thousandths of the counts
//! are instructions per packet, call and return included.

use std::hint::black_box;
use std::net::Ipv4Addr;

use asterism_packet::{Endpoint, Flow4, FlowKey, Layout, MacAddress, Packet, Protocol, build};

const PACKETS: usize = 1_000;

fn main() {
    let mut frames = vec![[0u8; 64]; PACKETS];
    for (index, frame) in frames.iter_mut().enumerate() {
        let is_tcp = index % 2 == 0;
        let flow = Flow4 {
            source: Ipv4Addr::from_bits(0x0a00_0000 + index as u32),
            destination: Ipv4Addr::new(192, 0, 2, 1),
            source_port: 1024 + index as u16,
            destination_port: 443,
            protocol: if is_tcp { 6 } else { 17 },
        };
        build::flow4(&flow, &[0; 22][..if is_tcp { 10 } else { 22 }], frame).expect("64 bytes");
    }
    let outside = Endpoint::new(Ipv4Addr::new(203, 0, 113, 1), 40_000, Protocol::TCP);
    for frame in &mut frames {
        let layout = parse(frame).expect("well-formed");
        black_box(flow4(&mut Packet::with_layout(frame, layout)));
        black_box(flow_key_hash(&mut Packet::with_layout(frame, layout)));
        set_source(&mut Packet::with_layout(frame, layout), outside);
        set_destination(&mut Packet::with_layout(frame, layout), outside);
        black_box(decrement_ttl(&mut Packet::with_layout(frame, layout)));
        black_box(whole_nat(frame, outside));
    }
}

#[inline(never)]
fn parse(frame: &[u8]) -> Option<Layout> {
    Layout::parse(frame).ok()
}

#[inline(never)]
fn flow4(packet: &mut Packet<'_>) -> Option<Flow4> {
    packet.flow4()
}

#[inline(never)]
fn flow_key_hash(packet: &mut Packet<'_>) -> u64 {
    FlowKey::of(packet).hash(7)
}

#[inline(never)]
fn set_source(packet: &mut Packet<'_>, to: Endpoint) {
    packet.set_source(to);
}

#[inline(never)]
fn set_destination(packet: &mut Packet<'_>, to: Endpoint) {
    packet.set_destination(to);
}

#[inline(never)]
fn decrement_ttl(packet: &mut Packet<'_>) -> Option<u8> {
    packet.decrement_ttl()
}

/// What a NAT does to an established flow's packet beside its table: parse, flow, time to live, rewrite, next hop.
#[inline(never)]
fn whole_nat(frame: &mut [u8], outside: Endpoint) -> Option<u64> {
    let mut packet = Packet::parse(frame).ok()?;
    let key = packet.flow4()?.source().to_bits();
    packet.decrement_ttl()?;
    packet.set_source(outside);
    packet.set_ethernet(
        MacAddress([2, 0, 0, 0, 0, 1]),
        MacAddress([2, 0, 0, 0, 0, 2]),
    );
    Some(key)
}
