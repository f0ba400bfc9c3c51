//! The five rules that explain a difference, each with its clause. Imports nothing.
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
                "What the clauses say a NAT is to drop in silence. A packet to the box itself that is no translation: \
                 Linux answers as a host, by a reset or \"port unreachable\". An ICMP error that quotes a damaged IPv4 \
                 header: Linux passes it. Applies to what Linux alone sent because of such a packet."
            }
            Rule::OwnIdentification => {
                "The identification serves reassembly alone, and anyone who makes a datagram chooses it: Linux counts, \
                 our NAT draws a number. Applies where identification and header checksum alone differ, in an ICMP \
                 error or echo reply that the NAT made itself."
            }
            Rule::LivesLonger => {
                "Linux forgets sessions sooner than a NAT may: at once after a reset that nobody replied to, after 10 \
                 s when reset, after 30 s when UDP has no reply. Applies to what our NAT alone sent inwards, if both \
                 had translated the session before and it was ended, or idle for Linux's shortest time."
            }
            Rule::NoPortLeft => {
                "An outside endpoint has one inside endpoint: our NAT never gives a port to two, where Linux does so \
                 as long as their remote endpoints differ; and a session for which no port is left is refused \
                 aloud. Applies to our \"administratively prohibited\" about a packet that opens a session, and to \
                 what Linux alone sent of that session."
            }
            Rule::FragmentByFragment => {
                "Linux reassembles a datagram and fragments it again, our NAT translates fragment by fragment: which \
                 bytes are in which fragment is free. Applies if both datagrams, put together, are equal; or if the \
                 datagram never became whole, so that Linux sent nothing of it."
            }
        }
    }
}
