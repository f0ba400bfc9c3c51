//! Linux as a firewall between two links: a bridge whose packets netfilter judges, in a namespace of its own. Imports
//! `live::socket`.
//!
//! A bridge and not a router: so addresses that no router forwards, and times to live, play no part, and what is compared
//! is connection tracking. Delivery is synchronous: when a frame was sent, what came of it is there.

use asterism_lab::{Cable, Lab, Node};

use super::{Direction, MAC_INSIDE, MAC_OUTSIDE, Policy};
use crate::live::{Socket, wait};

/// Kernel settings, where the kernel has them.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("bridge/bridge-nf-call-iptables", "1"),
    ("bridge/bridge-nf-call-ip6tables", "1"),
    // Captures have checksums that a card would have filled in.
    ("netfilter/nf_conntrack_checksum", "0"),
];

/// The Ethernet type of markers: for local experiments (IEEE 802).
const MARKER: [u8; 2] = [0x88, 0xb5];
/// Milliseconds that a marker is waited for at once, and how often.
const MARKER_WAIT_MS: i32 = 100;
const MARKER_WAITS_MAX: u32 = 50;

/// A Linux firewall.
#[derive(Debug)]
pub(super) struct Linux {
    sockets: [Socket; 2],
    bridge: Node,
    // With it go the links.
    _lab: Lab,
    _hosts: Node,
    zone: u16,
    serial: u64,
}

impl Linux {
    /// Builds namespaces, links and the bridge. Needs root.
    pub(super) fn start() -> Result<Self, String> {
        Self::build().map_err(|error| format!("the Linux firewall was not built: {error}"))
    }

    fn build() -> Result<Self, String> {
        let words = |error: asterism_lab::LabError| error.to_string();
        let lab = Lab::new().map_err(words)?;
        let (bridge, hosts) = (
            lab.node("bridge").map_err(words)?,
            lab.node("ends").map_err(words)?,
        );
        for node in [&bridge, &hosts] {
            for (setting, value) in SYSCTLS.iter().take(2) {
                node.sysctl(&format!("net/{setting}"), value)
                    .map_err(words)?;
            }
        }
        for place in 0..2 {
            let (own, end) = (format!("g{place}"), format!("h{place}"));
            lab.cable((&bridge, &own), (&hosts, &end), &Cable::default())
                .map_err(words)?;
        }
        bridge
            .ip(&[
                "link add br0 type bridge stp_state 0 mcast_snooping 0 forward_delay 0",
                "link set g0 mtu 65535",
                "link set g1 mtu 65535",
                "link set g0 master br0",
                "link set g1 master br0",
                "link set br0 up",
            ])
            .map_err(words)?;
        hosts
            .ip(&["link set h0 mtu 65535", "link set h1 mtu 65535"])
            .map_err(words)?;
        let sockets = hosts
            .enter(|| Ok([Socket::open("h0")?, Socket::open("h1")?]))
            .map_err(words)?;
        let sockets =
            sockets.map_err(|error: std::io::Error| format!("a packet socket: {error}"))?;
        let mut linux = Self {
            sockets,
            bridge,
            _lab: lab,
            _hosts: hosts,
            zone: 0,
            serial: 0,
        };
        // Connection tracking begins with the first rule that asks for it, and its settings with it.
        linux.begin(&Policy::STRICT)?;
        for (setting, value) in &SYSCTLS[2..] {
            linux
                .bridge
                .sysctl(&format!("net/{setting}"), value)
                .map_err(words)?;
        }
        Ok(linux)
    }

    /// Forgets every flow, by going on in another zone, and follows a policy.
    pub(super) fn begin(&mut self, policy: &Policy) -> Result<(), String> {
        self.zone += 1;
        let ruleset = format!(
            "table inet firewall\ndelete table inet firewall\n\
             table inet firewall {{\n\
             chain zone {{ type filter hook prerouting priority raw; policy accept; ct zone set {}; }}\n\
             chain forward {{ type filter hook forward priority filter; policy drop;\n\
             ct state established,related accept\n\
             ct state untracked accept\n\
             ct state invalid drop\n{}}}\n}}\n",
            self.zone, policy.nft
        );
        let words = |error: asterism_lab::LabError| error.to_string();
        self.bridge
            .program("nft")
            .args(["-f", "-"])
            .input(ruleset)
            .run()
            .map_err(words)?;
        let loose = if policy.picks_up { "1" } else { "0" };
        self.bridge
            .sysctl("net/netfilter/nf_conntrack_tcp_loose", loose)
            .map_err(words)?;
        while self.receive().is_some() {}
        Ok(())
    }

    /// Sends a frame to one link; what leaves by the other because of it.
    pub(super) fn send(&mut self, way: Direction, frame: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let (from, to) = match way {
            Direction::Out => (0, 1),
            Direction::In => (1, 0),
        };
        self.sockets[from]
            .send(frame)
            .map_err(|error| format!("sending {} bytes: {error}", frame.len()))?;
        let own = match way {
            Direction::Out => MAC_INSIDE,
            Direction::In => MAC_OUTSIDE,
        };
        let mut left = Vec::new();
        self.collect(to, own, &mut left);
        if left.iter().any(|left| left == frame) {
            return Ok(left);
        }
        // Frames keep their order: once the one behind is there, this one was judged.
        self.serial += 1;
        let mut marker = frame[..12].to_vec();
        marker.extend(MARKER);
        marker.extend(self.serial.to_be_bytes());
        marker.resize(60, 0);
        self.sockets[from]
            .send(&marker)
            .map_err(|error| format!("sending a marker: {error}"))?;
        for _ in 0..MARKER_WAITS_MAX {
            self.collect(to, own, &mut left);
            if let Some(place) = left.iter().position(|left| *left == marker) {
                left.remove(place);
                return Ok(left);
            }
            wait(&self.sockets, MARKER_WAIT_MS);
        }
        Err("the bridge swallowed a frame that is not IP".to_owned())
    }

    fn collect(&self, link: usize, own: [u8; 6], left: &mut Vec<Vec<u8>>) {
        while let Some(bytes) = self.sockets[link].receive() {
            if bytes.get(6..12) == Some(&own) {
                left.push(bytes);
            }
        }
    }

    fn receive(&self) -> Option<Vec<u8>> {
        self.sockets.iter().find_map(Socket::receive)
    }
}
