//! ICMP errors that a router sends, and its echo replies.

use core::net::Ipv4Addr;

use asterism_function::objects::TableAct;
use asterism_function::{
    Ask, At, Endpoint, Fragment, Late, Map, Packet, Protocol, Reason, Single, State, Tick, Vacancy,
    Value, Verdict, Wire, build, checksum::Change,
};

use crate::interface::{Side, is_host};
use crate::router::Router;
use crate::state::Forwards;

/// ICMP errors sent in the current second, for each side. Best `local`: nobody else needs it.
pub type Errors = Map<u8, ErrorsSent>;

/// Seconds after which the count of a side is forgotten.
pub const ERRORS_IDLE: [Tick; 1] = [60];
/// Entries of the table of errors sent.
pub const ERRORS_MAX: u32 = 2;

/// How many errors were sent in a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire, Value)]
#[value(order)]
pub struct ErrorsSent {
    second: Tick,
    sent: u16,
}

impl ErrorsSent {
    /// The count with one error more, unless that would be more than `most` in this second.
    fn one_more(known: Option<Self>, now: Tick, most: u16) -> Option<Self> {
        let sent = known
            .filter(|known| known.second == now)
            .map_or(0, |known| known.sent);
        (sent < most).then_some(Self {
            second: now,
            sent: sent + 1,
        })
    }
}

/// An error that is within the bound of its second, and what it takes to count it.
#[derive(Debug)]
pub struct OneMore {
    side: u8,
    count: ErrorsSent,
    known: Option<At<Single<u8>, ErrorsSent>>,
    vacancy: Option<Vacancy>,
}

impl OneMore {
    /// `None` beyond `most` errors of a side (or of what else they are counted by) in this second. Late where `errors` is.
    pub fn within(errors: &Errors, side: u8, now: Tick, most: u16) -> Result<Option<Self>, Late> {
        let known = errors.get(&side)?;
        let Some(count) = ErrorsSent::one_more(known.map(|known| known.value), now, most) else {
            return Ok(None);
        };
        let vacancy = match known {
            None => errors.vacancy()?,
            Some(_) => None,
        };
        Ok(Some(Self {
            side,
            count,
            known,
            vacancy,
        }))
    }

    /// Counts it; false where there is no room for the count: it is not to be sent then.
    pub fn count(self, errors: &mut TableAct<'_, Single<u8>, ErrorsSent>) -> bool {
        match (self.known, self.vacancy) {
            (Some(known), _) => errors.update(&known, self.count),
            (None, Some(vacancy)) => errors.insert(vacancy, self.side, self.count),
            (None, None) => return false,
        }
        true
    }
}

/// Why a packet went no further, as its sender reads it in an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Its time to live ended here.
    TimeExceeded,
    /// It is longer than this and must not be fragmented.
    TooBig(u16),
    /// There is no route.
    NetworkUnreachable,
    /// Nobody is there who could answer.
    HostUnreachable,
    /// There is no room or port for a new session (RFC 5508 REQ-8, RFC 4787 §8).
    Prohibited,
}

impl Report {
    /// Writes the error about a packet, from one of our addresses. `None`: none may be sent about it.
    fn write(
        self,
        packet: &Packet<'_>,
        from: Ipv4Addr,
        identification: [u8; 2],
        out: &mut [u8],
    ) -> Option<usize> {
        let original = packet.bytes();
        let length = match self {
            Self::TimeExceeded => build::icmp_time_exceeded(original, from, out),
            Self::TooBig(mtu) => build::icmp_fragmentation_needed(original, from, mtu, out),
            Self::NetworkUnreachable => build::icmp_unreachable(original, from, 0, out),
            Self::HostUnreachable => build::icmp_unreachable(original, from, 1, out),
            Self::Prohibited => build::icmp_unreachable(original, from, 13, out),
        };
        let at = packet.layout().network_offset();
        let service = original.get(at + 1).map_or(0, |service| service & SERVICE);
        replace(
            out,
            at,
            |[version, _]| [version, NETWORK_CONTROL | service],
            at + 10,
        );
        replace(out, at + 4, |_| identification, at + 10);
        length
    }
}

impl Router {
    /// Drops the packet for `reason` and tells its sender so by ICMP, within the rate limit ([`Reason::IcmpLimited`] beyond
    /// it). Late where `errors` is.
    #[cold]
    pub fn report<S: Forwards>(
        &self,
        ask: Ask<'_, S>,
        report: Report,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        let Some(side) = self.side(ask.port()) else {
            return Ok(Verdict::Drop(reason));
        };
        let (now, errors) = (ask.now(), ask.tables().errors);
        let most = self.icmp_errors_per_second;
        let Some(one_more) = OneMore::within(errors, side as u8, now, most)? else {
            return Ok(Verdict::Drop(Reason::IcmpLimited));
        };
        let from = self.reports_from(ask.packet(), side);
        let identification = own_identification(&ask);
        let mut act = ask.act()?;
        if !one_more.count(S::writes(&mut act).errors) {
            return Ok(Verdict::Drop(Reason::IcmpLimited));
        }
        act.emit(self.link(side).interface.port, |packet, out| {
            report.write(packet, from, identification, out)
        });
        Ok(Verdict::Drop(reason))
    }

    /// The address that an error comes from: that of the link that it leaves by (RFC 1812 §4.3.2.4). An inside host that
    /// talks to an address that we answer for hears of that alone, as it does of errors from beyond (RFC 5508 REQ-7).
    fn reports_from(&self, packet: &Packet<'_>, side: Side) -> Ipv4Addr {
        let hairpins = |address: &Ipv4Addr| side == Side::Inside && self.answers_for(*address);
        let destination = packet.ipv4_destination().filter(hairpins);
        destination.unwrap_or(self.link(side).interface.address)
    }

    /// A packet to one of our own addresses that the function has no use for: an echo request is answered where that is
    /// configured (RFC 1812 §4.3.3.6), the rest ends here. `is_genuine` says whether an asker may come from this side.
    #[cold]
    pub fn own<S: State>(
        &self,
        ask: Ask<'_, S>,
        is_genuine: impl FnOnce(Ipv4Addr) -> bool,
    ) -> Result<Verdict, Late> {
        let (port, packet) = (ask.port(), ask.packet());
        let addressed = packet
            .ipv4_destination()
            .is_some_and(|address| self.is_interface(address) || self.answers_for(address));
        let is_echo = packet.icmp_type() == Some(ECHO_REQUEST)
            && packet.layout().fragment() == Fragment::Whole;
        let ends = (
            packet.ipv4_source(),
            packet.ipv4_destination(),
            packet.icmp_identifier(),
        );
        let (true, true, true, (Some(source), Some(destination), Some(identifier))) =
            (self.answers_echo, addressed, is_echo, ends)
        else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        if !is_host(source) || !is_genuine(source) {
            return Ok(Verdict::Drop(Reason::SpoofedSource));
        }
        let side = self.side(port).unwrap_or(Side::Inside);
        let (mac, station) = (self.link(side).interface.mac, packet.ethernet_source());
        let identification = own_identification(&ask);
        let mut act = ask.act()?;
        let end = |address| Endpoint::new(address, identifier, Protocol::ICMP);
        act.packet.set_ethernet(mac, station);
        act.packet.set_source(end(destination));
        act.packet.set_destination(end(source));
        make_echo_reply(&mut act.packet, identification);
        Ok(Verdict::Forward(port))
    }
}

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// The type of service of errors: precedence "internetwork control", the rest as in the packet that the error is
/// about (RFC 1812 §4.3.2.5).
const NETWORK_CONTROL: u8 = 0xc0;
const SERVICE: u8 = 0x1e;
/// Which draw of [`Ask::random`] an identification is.
const IDENTIFICATION_DRAW: u64 = 16;
/// The time to live of what the NAT itself sends.
const OWN_TTL: u8 = 64;

/// The identification of a packet that the router makes itself. It must not soon come again between the same hosts
/// (RFC 6864 §4.3); what it makes is short and rare enough for numbers drawn at random.
pub(crate) fn own_identification<S: State>(ask: &Ask<'_, S>) -> [u8; 2] {
    (ask.random(IDENTIFICATION_DRAW) as u16).to_be_bytes()
}

/// Changes the word at `at` and repairs the checksum at `checksum_at`.
fn replace(
    bytes: &mut [u8],
    at: usize,
    change: impl FnOnce([u8; 2]) -> [u8; 2],
    checksum_at: usize,
) {
    let word = |bytes: &[u8], at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    if let (Some(old), Some(checksum)) = (word(bytes, at), word(bytes, checksum_at)) {
        let new = change(old);
        bytes[at..at + 2].copy_from_slice(&new);
        let checksum = Change::NONE.and16(old, new).apply(checksum);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&checksum);
    }
}

/// Makes an echo request, whose ends were exchanged already, its reply (RFC 792).
fn make_echo_reply(packet: &mut Packet<'_>, own: [u8; 2]) {
    let (network_at, transport_at) = (
        packet.layout().network_offset(),
        packet.layout().transport_offset(),
    );
    let bytes = packet.bytes_mut();
    replace(
        bytes,
        transport_at,
        |[_, code]| [ECHO_REPLY, code],
        transport_at + 2,
    );
    replace(
        bytes,
        network_at + 8,
        |[_, protocol]| [OWN_TTL, protocol],
        network_at + 10,
    );
    // A datagram of ours: its identification, and no word about fragments.
    replace(bytes, network_at + 4, |_| own, network_at + 10);
    replace(bytes, network_at + 6, |_| [0, 0], network_at + 10);
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::laws;

    #[test]
    fn counts_join_as_the_law_says() {
        let sent = |draw: u64| ErrorsSent {
            second: (draw % 5) as Tick,
            sent: (draw / 5 % 4) as u16,
        };
        for draw in 0..200 {
            laws::value(sent(draw), sent(draw * 7 + 1), sent(draw * 5 + 2));
        }
    }
}
