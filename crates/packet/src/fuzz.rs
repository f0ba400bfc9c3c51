//! What the fuzz target runs: every parse, accessor, edit and builder on arbitrary bytes, and the laws that hold for all of
//! them. A broken law is a panic.

use core::hint::black_box;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    Cut, Endpoint, Flow4, FlowKey, Layout, MacAddress, Network, Packet, Protocol, build, checksum,
};

/// Longer inputs are cut.
const FRAME_MAX: usize = 2048;

/// Parses `data` as a frame; reads and edits it with its own layout, and with that layout on cut and on foreign bytes.
pub fn fuzz_packet(data: &[u8]) {
    let data = data.get(..FRAME_MAX).unwrap_or(data);
    let mut buffer = [0; FRAME_MAX];
    let Some(frame) = buffer.get_mut(..data.len()) else {
        return;
    };
    frame.copy_from_slice(data);

    let parsed = Layout::parse(frame);
    let unverified = Layout::parse_unverified(frame);
    assert!(
        parsed.is_err() || parsed == unverified,
        "the header checksum is all that may differ"
    );
    build_about(data);
    let Ok(layout) = unverified else { return };
    assert!(
        layout.network_offset() <= layout.transport_offset()
            && layout.transport_offset() <= layout.end()
    );
    assert!(layout.end() <= frame.len());

    let seed = u64::from(checksum::of(data)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    read_all(&Packet::with_layout(frame, layout));
    cut_all(&Packet::with_layout(frame, layout), seed);
    for step in 0..EDITS {
        frame.copy_from_slice(data);
        edit_keeps_checksums(&mut Packet::with_layout(frame, layout), step, seed);
    }
    restores(frame, data, layout, seed);

    // The layout of one frame on the bytes of others: nonsense, but never a panic.
    for cut in 0..data.len().min(160) {
        let Some(short) = frame.get_mut(..cut) else {
            return;
        };
        let mut packet = Packet::with_layout(short, layout);
        assert!(cut >= layout.end() || packet.layout().network() == Network::Other);
        read_all(&packet);
        (0..EDITS).for_each(|step| edit(&mut packet, step, seed));
    }
    for (index, byte) in frame.iter_mut().enumerate() {
        *byte = (seed >> (index % 57)) as u8 ^ index as u8;
    }
    let mut packet = Packet::with_layout(frame, layout);
    read_all(&packet);
    (0..EDITS).for_each(|step| edit(&mut packet, step, seed));
    read_all(&packet);
}

fn read_all(packet: &Packet<'_>) {
    black_box((
        packet.ethernet_source(),
        packet.ethernet_destination(),
        packet.ethertype(),
        packet.arp(),
        packet.neighbour_solicitation(),
    ));
    black_box((
        packet.vlan_id(),
        packet.inner_vlan_id(),
        packet.payload().len(),
        packet.payload_range(),
    ));
    black_box((
        packet.ipv4_source(),
        packet.ipv4_destination(),
        packet.ipv4_identification(),
    ));
    black_box((
        packet.ipv4_dont_fragment(),
        packet.ipv4_total_length(),
        packet.ipv4_header_length(),
    ));
    black_box((
        packet.verify_ipv4_checksum(),
        packet.ttl(),
        packet.dscp(),
        packet.fragment_offset(),
    ));
    black_box((
        packet.ipv6_source(),
        packet.ipv6_destination(),
        packet.ipv6_flow_label(),
    ));
    black_box((
        packet.ipv6_identification(),
        packet.flow4(),
        packet.ports(),
        packet.verify_transport_checksum(),
    ));
    black_box((
        packet.tcp_flags(),
        packet.tcp_sequence(),
        packet.tcp_acknowledgement(),
        packet.tcp_window(),
    ));
    black_box((
        packet.tcp_options().map(<[u8]>::len),
        packet.udp_length(),
        packet.icmp_type(),
        packet.icmp_code(),
    ));
    black_box((
        packet.icmp_rest(),
        packet.icmp_kind(),
        packet.icmp_identifier(),
    ));
    if let Some(embedded) = packet.embedded() {
        black_box((
            embedded.flow4(),
            embedded.ports(),
            embedded.fragment(),
            embedded.identification(),
        ));
        black_box((
            embedded.source(),
            embedded.destination(),
            embedded.protocol(),
            embedded.header_checksum_valid(),
        ));
    }
    black_box(FlowKey::of(packet).hash(1));
}

/// Number of edits that [`edit`] knows.
const EDITS: u8 = 14;

fn edit(packet: &mut Packet<'_>, step: u8, seed: u64) {
    let endpoint = Endpoint::from_bits(seed);
    let address = Ipv6Addr::from_bits(u128::from(seed) << 64 | u128::from(!seed));
    match step {
        0 => packet.set_source(endpoint),
        1 => packet.set_destination(endpoint),
        2 => packet.set_ipv6_source(address),
        3 => packet.set_ipv6_destination(address),
        4 => packet.set_source_port(seed as u16),
        5 => packet.set_destination_port(seed as u16),
        6 => {
            packet.decrement_ttl();
        }
        7 => packet.set_embedded_source(endpoint),
        8 => packet.set_embedded_destination(endpoint),
        9 => packet.set_embedded_ipv6_source(address, Some(seed as u16)),
        10 => packet.set_embedded_ipv6_destination(address, None),
        11 => packet.set_ethernet(MacAddress([2; 6]), MacAddress([4; 6])),
        12 => packet.set_vlan_id(seed as u16),
        _ => {
            let length = packet.bytes().len();
            if let Some(byte) = packet
                .bytes_mut()
                .get_mut((seed % (length as u64 + 1)) as usize)
            {
                *byte = !*byte;
            }
        }
    }
}

/// Right checksums stay right, and edits of the headers do not change what is where.
fn edit_keeps_checksums(packet: &mut Packet<'_>, step: u8, seed: u64) {
    let before = (
        packet.verify_ipv4_checksum(),
        packet.verify_transport_checksum(),
    );
    let layout = *packet.layout();
    edit(packet, step, seed);
    if step == EDITS - 1 {
        return;
    }
    if before.0 == Some(true) {
        assert_eq!(
            packet.verify_ipv4_checksum(),
            Some(true),
            "edit {step} broke the IPv4 header checksum"
        );
    }
    if before.1 == Some(true) {
        assert_eq!(
            packet.verify_transport_checksum(),
            Some(true),
            "edit {step} broke the transport checksum"
        );
    }
    assert_eq!(
        Layout::parse_unverified(packet.bytes()),
        Ok(layout),
        "edit {step} changed the layout"
    );
}

/// An edit and its opposite give the packet back, when its checksums were right and so have one form only.
fn restores(frame: &mut [u8], data: &[u8], layout: Layout, seed: u64) {
    frame.copy_from_slice(data);
    let mut packet = Packet::with_layout(frame, layout);
    let Some(flow) = packet.flow4() else { return };
    if packet.verify_ipv4_checksum() != Some(true)
        || packet.verify_transport_checksum() != Some(true)
    {
        return;
    }
    packet.set_source(Endpoint::from_bits(seed));
    packet.set_destination(Endpoint::from_bits(!seed));
    packet.set_destination(flow.destination());
    packet.set_source(flow.source());
    let same = packet
        .bytes()
        .iter()
        .zip(data)
        .filter(|(a, b)| a != b)
        .count();
    // A checksum sent as 0xffff where 0 was meant, or the other way, comes back in its proper form.
    assert!(same <= 4, "an edit and its opposite changed {same} bytes");
    assert_eq!(packet.flow4(), Some(flow));
}

/// The parts of a packet together have its data, none more than it may.
fn cut_all(packet: &Packet<'_>, seed: u64) {
    let longest = (seed % 1_600) as usize;
    let Some(cut) = Cut::of(packet, longest) else {
        return;
    };
    let mut out = [0; FRAME_MAX];
    let header = packet.ipv4_header_length().unwrap_or(0);
    let network_at = packet.layout().network_offset();
    let mut data = 0;
    for part in 0..cut.count() {
        // Beyond 65,535 bytes no offset reaches.
        let Some(length) = cut.write(packet.bytes(), part, &mut out) else {
            return;
        };
        assert!(length - network_at <= longest);
        data += length - network_at - header;
    }
    assert_eq!(data, packet.layout().end() - network_at - header);
}

fn build_about(data: &[u8]) {
    let mut out = [0; 700];
    let from = Ipv4Addr::new(192, 0, 2, 254);
    let lengths = [
        build::icmp_time_exceeded(data, from, &mut out),
        build::icmp_fragmentation_needed(data, from, 1280, &mut out),
        build::icmp_unreachable(data, from, 13, &mut out),
    ];
    if let Some(length) = lengths[2] {
        let Some(error) = out.get_mut(..length) else {
            panic!("longer than the buffer")
        };
        let packet = Packet::parse(error).expect("an ICMP error is well-formed");
        assert_eq!(packet.verify_transport_checksum(), Some(true));
        assert!(packet.embedded().is_some());
    }
    let flow = Flow4 {
        source: from,
        destination: Ipv4Addr::BROADCAST,
        source_port: 1,
        destination_port: 2,
        protocol: data.first().copied().unwrap_or(Protocol::UDP.0),
    };
    if let Some(length) = build::flow4(&flow, data.get(..600).unwrap_or(data), &mut out) {
        let Some(frame) = out.get_mut(..length) else {
            panic!("longer than the buffer")
        };
        let packet = Packet::parse(frame).expect("a built packet is well-formed");
        assert_eq!(packet.verify_transport_checksum(), Some(true));
    }
}
