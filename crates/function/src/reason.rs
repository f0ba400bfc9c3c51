//! Why packets end: one list for metrics, legends and documentation.

use asterism_packet::Malformed;

use crate::own::{OWN_REASONS_MAX, OwnReason};

macro_rules! reasons {
    ($($name:ident $label:literal $meaning:literal;)*) => {
        /// Why a packet was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        // As wide as a port's number: so a verdict is two words, which are passed and tested each on its own.
        #[repr(u16)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)*
        }

        impl Reason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The name in metrics and reports.
            pub const fn label(self) -> &'static str {
                match self { $(Reason::$name => $label,)* }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning,)* }
            }
        }
    };
}

reasons! {
    LinkTooShort "link-too-short" "The frame ends inside its Ethernet header or a VLAN tag.";
    NetworkTooShort "network-too-short" "The frame ends inside its ARP, IPv4 or IPv6 header.";
    BadVersion "bad-version" "The IP version disagrees with the Ethernet type.";
    BadHeaderLength "bad-header-length" "The IPv4 header length is below 20 bytes or beyond the packet.";
    LengthBeyondFrame "length-beyond-frame" "The IP length exceeds the frame, which is cut by a snap length or forged.";
    BadHeaderChecksum "bad-header-checksum" "The IPv4 header checksum is wrong.";
    ExtensionTooShort "extension-too-short" "An IPv6 extension header ends beyond the packet.";
    TooManyExtensions "too-many-extensions" "The packet has more IPv6 extension headers than are parsed.";
    ExtensionOrder "extension-order" "The order of the IPv6 extension headers is not allowed.";
    FragmentBeyondDatagram "fragment-beyond-datagram" "The fragment would reach beyond 65,535 bytes.";
    TransportTooShort "transport-too-short" "An unfragmented packet ends inside its transport header.";
    BadTcpOffset "bad-tcp-offset" "The TCP data offset is below 20 bytes or beyond the packet.";
    BadUdpLength "bad-udp-length" "The UDP length is below 8 bytes or beyond the packet.";
    MappedAddress "mapped-address" "An IPv6 source or destination is an IPv4-mapped address (`::ffff:0:0/96`), which no packet may have (RFC 6890).";
    NotForUs "not-for-us" "The frame's destination is not an address of this port.";
    UnsupportedProtocol "unsupported-protocol" "The function does not handle this kind of packet.";
    TtlExceeded "ttl-exceeded" "The packet's time to live ended here; the sender was informed by ICMP where allowed.";
    PacketTooBig "packet-too-big" "The packet exceeds the next link's MTU and may not be fragmented; the sender was informed by ICMP.";
    NoRoute "no-route" "There is no next hop for the destination.";
    NoBinding "no-binding" "No binding or session matches the packet from outside.";
    Filtered "filtered" "The filtering policy refuses a packet from this remote endpoint.";
    PortsExhausted "ports-exhausted" "No outside port is left in this instance's leases.";
    TableFull "table-full" "This instance's share of the table's capacity is used up.";
    SpoofedSource "spoofed-source" "The source address cannot come from this side.";
    FragmentUnmatched "fragment-unmatched" "The first fragment of this later fragment was not seen.";
    IcmpUnmatched "icmp-unmatched" "The ICMP error belongs to no known session.";
    IcmpLimited "icmp-limited" "An ICMP error was due, but the rate limit was reached.";
    NoBackend "no-backend" "No backend of the service's pool accepts new flows; the client was informed by ICMP where allowed.";
    Blocked "blocked" "The source is blocked.";
    PortBlocked "port-blocked" "The destination port is blocked for exceeding its volume.";
    Denied "denied" "A rule, or the default, refuses the new flow.";
    NoConnection "no-connection" "The packet belongs to no known connection and cannot open a connection.";
    BadTcpFlags "bad-tcp-flags" "The control bits are a combination that no TCP sends.";
    OutOfWindow "out-of-window" "The TCP segment's numbers are more than a window away from the connection's.";
    HalfOpenLimit "half-open-limit" "The source, the destination or the link has too many half-open connections.";
    FragmentTiny "fragment-tiny" "The fragment cuts, or would overwrite, a transport header.";
    RateLimited "rate-limited" "A rate limit of the packet is used up.";
    ParkedTooLong "parked-too-long" "A late answer did not come before the packet's deadline.";
    ParkedOverflow "parked-overflow" "Too many packets waited for late answers, or behind such packets; a packet was dropped.";
    ParkedFlow "parked-flow" "Too many packets of one flow waited; the newest was dropped.";
    TruncatedCapture "truncated-capture" "The capture holds only part of the packet.";
    PortDown "port-down" "The packet's outgoing port does not exist or is down.";
    EmissionOverflow "emission-overflow" "The function emitted too many packets in a burst.";
    NoBuffer "no-buffer" "No packet buffer was free.";
    StageLate "stage-late" "A stage of the chain was late for longer than its bound.";
    ChainLoop "chain-loop" "The stages of the chain passed the packet back and forth.";
    SignatureFound "signature-found" "The packet completes a signature whose response blocks.";
    ConnectionBlocked "connection-blocked" "The connection is blocked because of a signature in it.";
    FragmentNotInspected "fragment-not-inspected" "IP fragments, in which no signature is looked for, are configured to be dropped.";
    SubscriberQuota "subscriber-quota" "The subscriber's quota of outside ports or port blocks is used up; the subscriber was informed by ICMP where allowed.";
    HeldTooLong "held-too-long" "The packet waited for other members to have what it depends on for as long as it may.";
    HeldOverflow "held-overflow" "Too many packets waited for other members to have what they depend on; the newest was dropped.";
    StoreTooMuch "store-too-much" "The packet asked a store for more than a packet may, or was answered with more than it may be.";
    StoreAnswer "store-answer" "A store answered with what is no answer.";
    NotReassembled "not-reassembled" "The segment leaves more gaps in its TCP stream than are kept, or the table of streams is full; only if the function is strict.";
    Own0 "own-0" "The function's own reason 0.";
    Own1 "own-1" "The function's own reason 1.";
    Own2 "own-2" "The function's own reason 2.";
    Own3 "own-3" "The function's own reason 3.";
    Own4 "own-4" "The function's own reason 4.";
    Own5 "own-5" "The function's own reason 5.";
    Own6 "own-6" "The function's own reason 6.";
    Own7 "own-7" "The function's own reason 7.";
}

impl Reason {
    /// Whether the function could not do its work, rather than judge the packet: what a stage of a chain may be bypassed for.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::PortsExhausted | Self::TableFull | Self::StageLate
        )
    }

    /// The function's own reason of this number, by its place in [`Observable::reasons`](crate::Observable::reasons).
    ///
    /// # Panics
    /// From [`OWN_REASONS_MAX`] on; as the value of a constant it does not compile then.
    #[must_use]
    pub const fn own(number: usize) -> Self {
        assert!(
            number < OWN_REASONS_MAX,
            "there are not so many own reasons"
        );
        Self::ALL[Self::FIRST_OWN + number]
    }

    const FIRST_OWN: usize = Self::Own0 as usize;

    /// Its place among the function's own reasons, if it is one.
    #[inline]
    #[must_use]
    pub const fn own_number(self) -> Option<usize> {
        (self as usize).checked_sub(Self::FIRST_OWN)
    }

    /// Its name where a function with these reasons of its own runs; `None` of an own one that it does not have.
    #[must_use]
    pub fn label_among(self, own: &[OwnReason]) -> Option<&'static str> {
        match self.own_number() {
            None => Some(self.label()),
            Some(number) => own.get(number).map(|reason| reason.label),
        }
    }
}

const _: () = assert!(Reason::ALL.len() == Reason::FIRST_OWN + OWN_REASONS_MAX);

impl From<Malformed> for Reason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::LinkTooShort => Self::LinkTooShort,
            Malformed::NetworkTooShort => Self::NetworkTooShort,
            Malformed::Version => Self::BadVersion,
            Malformed::HeaderLength => Self::BadHeaderLength,
            Malformed::LengthBeyondFrame => Self::LengthBeyondFrame,
            Malformed::HeaderChecksum => Self::BadHeaderChecksum,
            Malformed::ExtensionTooShort => Self::ExtensionTooShort,
            Malformed::TooManyExtensions => Self::TooManyExtensions,
            Malformed::ExtensionOrder => Self::ExtensionOrder,
            Malformed::FragmentBeyondDatagram => Self::FragmentBeyondDatagram,
            Malformed::TransportTooShort => Self::TransportTooShort,
            Malformed::TcpDataOffset => Self::BadTcpOffset,
            Malformed::UdpLength => Self::BadUdpLength,
            Malformed::MappedAddress => Self::MappedAddress,
        }
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_numbers_are_places() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place);
            assert_eq!(
                Reason::ALL
                    .iter()
                    .filter(|other| other.label() == reason.label())
                    .count(),
                1
            );
            assert!(reason.meaning().ends_with('.'));
        }
    }

    #[test]
    fn own_reasons_have_the_functions_names() {
        let own = [OwnReason {
            label: "share-used-up",
            meaning: "It is.",
        }];
        assert_eq!(Reason::own(0).label_among(&own), Some("share-used-up"));
        assert_eq!(Reason::own(1).label_among(&own), None);
        assert_eq!(Reason::TableFull.label_among(&own), Some("table-full"));
        for number in 0..OWN_REASONS_MAX {
            assert_eq!(Reason::own(number).own_number(), Some(number));
        }
        assert_eq!(Reason::FragmentNotInspected.own_number(), None);
    }
}
