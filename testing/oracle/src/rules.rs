//! The five rules that explain a difference, each with its clause.
//!
//! A rule is no filter: `compare.rs` applies it to a packet only after it has shown that the rule's condition holds for
//! that packet. What no rule explains counts.

/// Why a packet may differ from Linux's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A NAT is silent where Linux answers or passes.
    SilentlyDropped,
    /// Errors and replies of the NAT's own have an identification of its own.
    OwnIdentification,
    /// Our NAT remembers a session longer than Linux.
    LivesLonger,
    /// No outside port is left.
    NoPortLeft,
    /// Our NAT sends fragments on as they come.
    FragmentByFragment,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 5] = [
        Rule::SilentlyDropped,
        Rule::OwnIdentification,
        Rule::LivesLonger,
        Rule::NoPortLeft,
        Rule::FragmentByFragment,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rule::SilentlyDropped => "silently-dropped",
            Rule::OwnIdentification => "own-identification",
            Rule::LivesLonger => "lives-longer",
            Rule::NoPortLeft => "no-port-left",
            Rule::FragmentByFragment => "fragment-by-fragment",
        }
    }

    /// The clause that allows, or demands, what our NAT does.
    #[must_use]
    pub const fn clause(self) -> &'static str {
        match self {
            Rule::SilentlyDropped => "RFC 5382 REQ-4a, RFC 5508 REQ-3a",
            Rule::OwnIdentification => "RFC 6864 §4.1, §4.3",
            Rule::LivesLonger => "RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 7857 §2.2",
            Rule::NoPortLeft => "RFC 4787 REQ-3, RFC 5382 REQ-7, RFC 5508 REQ-8",
            Rule::FragmentByFragment => "RFC 791 §3.2, RFC 4787 REQ-14",
        }
    }

    /// What differs, and when the rule applies.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Rule::SilentlyDropped => {
                "Packets that a NAT must drop silently. A packet to the box itself without a translation: Linux answers \
                 as a host, by a reset or \"port unreachable\". An ICMP error that quotes a damaged IPv4 header: Linux \
                 passes it. Applies to packets that Linux alone sent because of such a packet."
            }
            Rule::OwnIdentification => {
                "The identification serves only reassembly, and a datagram's sender chooses it: Linux counts, our NAT \
                 draws a number. Applies where only identification and header checksum differ, in an ICMP error or echo \
                 reply of the NAT itself."
            }
            Rule::LivesLonger => {
                "Linux forgets sessions sooner than a NAT may: at once after an unanswered reset, 10 s after a reset, 30 \
                 s after UDP without a reply. Applies to packets that our NAT alone sent inwards, if both had translated \
                 the session before and the session was ended, or idle for Linux's shortest time."
            }
            Rule::NoPortLeft => {
                "An outside endpoint has one inside endpoint. Our NAT never gives a port to two; Linux does as long as \
                 their remote endpoints differ. A session without a free port is refused by an ICMP error. Applies to our \
                 \"administratively prohibited\" about a packet that opens a session, and to packets of that session that \
                 Linux alone sent."
            }
            Rule::FragmentByFragment => {
                "Linux reassembles a datagram and fragments it again, our NAT translates fragment by fragment: the \
                 boundaries of fragments are free. Applies if both reassembled datagrams are equal; or if the datagram \
                 never became whole, so that Linux sent nothing of it."
            }
        }
    }
}
