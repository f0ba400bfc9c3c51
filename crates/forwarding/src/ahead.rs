//! Address resolution before the first packet to a station. The host's control side sends a frame for each station on a port
//! of its own ([`CONTROL`](asterism_function::CONTROL)), so that the request enters the state on the packets' path.

use core::net::Ipv4Addr;

use asterism_function::{Ask, Late, Reason, Verdict};

use crate::interface::Side;
use crate::neighbour::{NextHop, next_hop};
use crate::router::Router;
use crate::state::Forwards;

/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Where the frame says what it is. Frames of functions that are made of this crate have other kinds.
const KIND_AT: usize = 16;
/// The kind of a request for the inside link and for the outside link.
const KINDS: [(u8, Side); 2] = [(2, Side::Inside), (3, Side::Outside)];
const LENGTH: usize = 24;

/// A request to know the station that packets to an address leave to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StationRequest {
    /// The link that packets to the address leave by.
    pub side: Side,
    /// The destination of packets, or the router before it.
    pub address: Ipv4Addr,
}

impl StationRequest {
    /// The frame by which the control side sends it.
    #[must_use]
    pub fn frame(&self) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&ETHERTYPE);
        frame[KIND_AT] = match self.side {
            Side::Inside => KINDS[0].0,
            Side::Outside => KINDS[1].0,
        };
        frame[20..LENGTH].copy_from_slice(&self.address.octets());
        frame
    }

    /// The request in a frame; `None` if it is no such frame.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let frame = frame.first_chunk::<LENGTH>()?;
        let (_, side) = KINDS
            .into_iter()
            .find(|(kind, _)| *kind == frame[KIND_AT])?;
        let address = [frame[20], frame[21], frame[22], frame[23]];
        (frame[12..14] == ETHERTYPE).then_some(Self {
            side,
            address: address.into(),
        })
    }
}

impl Router {
    /// Asks by ARP for the station that packets to an address leave to, if it is not known or was silent for long, at most once a second.
    /// The station of an address beyond the link is its router's. A configured station and an address without a route need nothing.
    ///
    /// The verdict is `Consumed`, or a drop by [`Reason::TableFull`]. Late where `neighbours` is.
    #[cold]
    pub fn resolve_ahead<S: Forwards>(
        &self,
        ask: Ask<'_, S>,
        request: StationRequest,
    ) -> Result<Verdict, Late> {
        let link = self.link(request.side);
        let neighbours = ask.tables().neighbours;
        let address = match next_hop(neighbours, ask.now(), link, request.address)? {
            NextHop::Unresolved(address) => address,
            NextHop::Ageing(known) => known.row.0,
            NextHop::Station(_) | NextHop::Unreachable => return Ok(Verdict::Consumed),
        };
        Ok(match self.request_station(ask, link, address)? {
            true => Verdict::Consumed,
            false => Verdict::Drop(Reason::TableFull),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_from_their_frames_and_damaged_ones_do_not() {
        for side in [Side::Inside, Side::Outside] {
            let request = StationRequest {
                side,
                address: [10, 0, 0, 7].into(),
            };
            let frame = request.frame();
            assert_eq!(StationRequest::read(&frame), Some(request));
            for length in 0..LENGTH {
                assert_eq!(StationRequest::read(&frame[..length]), None);
            }
            for (place, value) in [(12, 8), (13, 0), (KIND_AT, 0), (KIND_AT, 4)] {
                let mut damaged = frame;
                damaged[place] = value;
                assert_eq!(StationRequest::read(&damaged), None);
            }
        }
    }
}
