//! Fragments: the first of a datagram has the ports and is judged; the later ones pass where it did, also on other instances.
//!
//! Nothing is reassembled (RFC 791 §3.2, RFC 8200 §4.5): a tracker passes fragments that a receiver may refuse. Any function
//! that judges packets by their ports can use such a table without a [`Track`](crate::Track).

use core::net::IpAddr;

use asterism_function::objects::TableAct;
use asterism_function::{
    Ask, At, Builder, Fragment, Host, Key, Late, Map, Packet, Protocol, Reason, Single, State,
    Stop, Tick, Vacancy, Vlan, Wire,
};

use crate::flow::kind_of;

/// Fragmented datagrams whose first fragment passed.
pub type Fragments = Map<Datagram, ()>;

/// Seconds after its last part after which a fragmented datagram is forgotten: senders send the parts one after the other, and one that
/// comes first waits for 100 ms alone. Longer would serve who wants the table full.
const IDLE: [Tick; 1] = [1];
/// Microseconds for which a later fragment waits for the first one, parked.
const FIRST_WAIT_US: u64 = 100_000;
/// The least offset of a TCP fragment behind the header (RFC 3128 §3).
const TCP_HEADER_BYTES: u16 = 20;

/// Builds the table `fragments`, of so many datagrams at most over the whole cluster.
#[must_use]
pub fn fragments(builder: &Builder, datagrams_max: u32) -> Fragments {
    builder.table("fragments", datagrams_max, &IDLE)
}

/// Names a fragmented datagram (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
#[key(between = Self::hosts)]
pub struct Datagram {
    source: Host,
    destination: Host,
    identification: u32,
    /// The VLAN's number above the protocol's, which is 0 of IPv6: later fragments may name another one there.
    #[wire(varint)]
    kind: u32,
}

impl Datagram {
    /// The datagram of a fragment on a VLAN; `None` if the packet is none.
    #[must_use]
    pub fn of(packet: &Packet<'_>, vlan: Vlan) -> Option<Self> {
        let (source, destination) = Host::ends(packet)?;
        let (identification, protocol) = match packet.ipv4_identification() {
            Some(identification) => (identification.into(), packet.layout().protocol()),
            None => (packet.ipv6_identification()?, 0),
        };
        Some(Self {
            source,
            destination,
            identification,
            kind: kind_of(vlan, protocol),
        })
    }

    fn hosts(&self) -> (IpAddr, IpAddr) {
        (self.source.address(), self.destination.address())
    }
}

/// What a packet that passes leaves for the parts behind it: of a first fragment its datagram, of all others nothing.
#[derive(Debug)]
#[must_use = "later fragments pass where the first one was written"]
pub struct FirstFragment(Option<(Datagram, Vacancy)>);

impl FirstFragment {
    /// Of a packet that may pass, on a VLAN; without room its later fragments will be dropped.
    #[inline]
    pub fn of(packet: &Packet<'_>, vlan: Vlan, fragments: &Fragments) -> Result<Self, Late> {
        if packet.layout().fragment() != Fragment::First {
            return Ok(Self(None));
        }
        let vacancy = fragments.vacancy()?;
        Ok(Self(Datagram::of(packet, vlan).zip(vacancy)))
    }

    /// The packet passes.
    #[inline]
    pub fn write(self, fragments: &mut TableAct<'_, Single<Datagram>, ()>) {
        if let Some((datagram, vacancy)) = self.0 {
            fragments.insert(vacancy, datagram, ());
        }
    }
}

/// The datagram of a fragment on a VLAN without a transport header, to be touched when that passes; `Err`: why it does not. It waits, parked, for a
/// first fragment that it may have overtaken.
pub fn later_fragment<S: State>(
    ask: &Ask<'_, S>,
    vlan: Vlan,
    fragments: &Fragments,
) -> Result<At<Single<Datagram>, ()>, Stop> {
    let packet = ask.packet();
    let is_tcp = packet.layout().protocol() == Protocol::TCP.0;
    if is_tcp && packet.fragment_offset() < Some(TCP_HEADER_BYTES) {
        return Err(Stop::Refused(Reason::FragmentTiny));
    }
    let Some(datagram) = Datagram::of(packet, vlan) else {
        return Err(Stop::Refused(Reason::FragmentUnmatched));
    };
    if let Some(known) = fragments.get(&datagram)? {
        return Ok(known);
    }
    ask.expect(FIRST_WAIT_US)?;
    Err(Stop::Refused(Reason::FragmentUnmatched))
}
