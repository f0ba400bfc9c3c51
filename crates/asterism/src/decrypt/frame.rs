//! Finds what UDP carries in a captured frame, and sets the checksum again after it was changed.

use std::ops::Range;

use asterism_packet::checksum::Sum;
use asterism_packet::{Fragment, Layout, Packet, Transport};

const UDP: u8 = 17;
/// Where a UDP header has its checksum, in bytes from its start.
const CHECKSUM_AT: usize = 6;

/// What a captured frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole UDP datagram, whose payload is there.
    Udp(Range<usize>),
    /// The capture has only its beginning.
    Cut,
    /// A part of a fragmented UDP datagram.
    Fragment,
    /// Anything else.
    Other,
}

/// Looks at a frame; its bytes stay.
pub(super) fn find(frame: &mut [u8], truncated: bool) -> Found {
    if truncated {
        return Found::Cut;
    }
    // A capture on the sending host may have headers whose checksum the interface was to fill in.
    let Ok(layout) = Layout::parse_unverified(frame) else {
        return Found::Other;
    };
    match (layout.fragment(), layout.transport()) {
        (Fragment::First | Fragment::Later, _) if layout.protocol() == UDP => Found::Fragment,
        (Fragment::Whole, Transport::Udp) => {
            Found::Udp(Packet::with_layout(frame, layout).payload_range())
        }
        _ => Found::Other,
    }
}

/// Sets the UDP checksum of a frame that [`find`] found one in; none stays none.
pub(super) fn correct_checksum(frame: &mut [u8]) {
    let Ok(layout) = Layout::parse_unverified(frame) else {
        return;
    };
    let packet = Packet::with_layout(frame, layout);
    let (start, end) = (layout.transport_offset(), packet.payload_range().end);
    let length = end - start;
    let pseudo_header = match (packet.ipv4_source(), packet.ipv4_destination()) {
        (Some(source), Some(destination)) => {
            Sum::pseudo_header4(source, destination, UDP, length as u16)
        }
        _ => match (packet.ipv6_source(), packet.ipv6_destination()) {
            (Some(source), Some(destination)) => {
                Sum::pseudo_header6(source, destination, UDP, length as u32)
            }
            _ => return,
        },
    };
    let datagram = &mut frame[start..end];
    let place = CHECKSUM_AT..CHECKSUM_AT + 2;
    if datagram[place.clone()] == [0, 0] {
        return;
    }
    datagram[place.clone()].fill(0);
    let checksum = pseudo_header.bytes(datagram).finish_udp();
    datagram[place].copy_from_slice(&checksum);
}
