//! The chains that `chain.order` plays, and what their stages tell in the end.

use std::net::Ipv4Addr;
use std::sync::Arc;

use asterism_function::MacAddress;
use asterism_function::chain::{Chain, ChainState, Stage};
use asterism_functions::firewall::{Firewall, FirewallConfig, FirewallState, read_rules};
use asterism_functions::monitor::{Monitor, MonitorConfig, MonitorState};
use asterism_functions::nat::{Interface, Nat, NatConfig, Prefix, Route, Side};
use asterism_functions::pass_through::{Access, PassThrough, PassThroughState};
use asterism_functions::port_scan::{PortScan, PortScanConfig, PortScanState, Response};
use asterism_functions::signature::{
    Carrier, Response as Answer, Signature, SignatureConfig, SignatureState, Signatures,
};
use asterism_state::{Absence, ObjectSettings};

use super::{INSIDE, OUTSIDE};

/// What the NAT's inside hosts appear with.
pub(super) const TRANSLATED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// The firewall's rules: inside may begin nearly anything, outside nothing.
const RULES: &str = "\
drop udp, tcp on inside to any port 135, 137-139, 445 log
block 10m tcp on inside to any port 31337
allow any on inside
default drop
";

/// What the captures have some of.
const SIGNATURES: [&str; 6] = [
    "<script",
    "/etc/passwd",
    "UNION SELECT",
    "BitTorrent protocol",
    "GNUTELLA CONNECT",
    "INVITE sip:",
];

/// A chain that captures are played through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Row {
    /// A firewall, a NAT, an IDPS of two stages and a monitor: what is detected behind the NAT is reported, signatures end their connection.
    Edge,
    /// A detector of scans in front of the NAT, which blocks who scans, and a counter.
    Scans,
}

impl Row {
    pub(super) const ALL: [Self; 2] = [Self::Edge, Self::Scans];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Edge => "firewall-nat-idps-monitor",
            Self::Scans => "scans-nat-count",
        }
    }

    /// The stage that is the NAT.
    pub(super) fn nat(self) -> usize {
        1
    }

    /// The chain, with tables of so many entries; hosts are where the NAT's prefixes for private addresses have them, but for those
    /// of these routes.
    pub(super) fn chain(self, routes: &[(Ipv4Addr, Side)], entries: u32) -> Chain {
        let nat = Stage::new("nat", Arc::new(nat(routes, entries)));
        let scan = |response| Arc::new(scan(response, entries));
        let stages = match self {
            Self::Edge => vec![
                Stage::new("firewall", Arc::new(firewall(entries))),
                nat,
                Stage::new("port-scan", scan(Response::Detect)),
                Stage::new("signature", Arc::new(signatures(entries))),
                Stage::new("monitor", Arc::new(monitor(entries))),
            ],
            Self::Scans => {
                let count = PassThrough {
                    access: Access::ReadWrite,
                };
                vec![
                    Stage::new("port-scan", scan(Response::Block { block_s: 600 })),
                    nat,
                    Stage::new("count", Arc::new(count)),
                ]
            }
        };
        Chain::new(stages).expect("a sound chain")
    }

    /// What the stages say that they saw and did, without the ports that a NAT chose.
    pub(super) fn account(self, state: &ChainState) -> Vec<String> {
        let stages = state.tallies().count();
        let mut account: Vec<String> = (0..stages)
            .flat_map(|stage| reported(state, stage))
            .collect();
        account.sort_unstable();
        account
    }
}

fn reported(state: &ChainState, stage: usize) -> Vec<String> {
    let mut reported = Vec::new();
    if let Some(state) = state.stage::<FirewallState>(stage) {
        state
            .hits
            .for_each(|rule, count| reported.push(format!("rule {rule}: {count}")));
    } else if let Some(state) = state.stage::<PortScanState>(stage) {
        let alerts = state.alerts().into_iter();
        reported.extend(alerts.map(|(subject, _)| format!("{subject:?}")));
    } else if let Some(state) = state.stage::<SignatureState>(stage) {
        let alerts = state.alerts().into_iter();
        reported.extend(alerts.map(|(subject, _)| format!("signature {}", subject.id)));
    } else if let Some(state) = state.stage::<MonitorState>(stage) {
        let counts = state.protocol_counts().into_iter();
        reported.extend(counts.map(|count| format!("{count:?}")));
    } else if let Some(state) = state.stage::<PassThroughState>(stage) {
        reported.push(format!("{:?} packets", state.packets.get()));
    }
    reported
}

fn firewall(entries: u32) -> Firewall {
    Firewall::new(FirewallConfig {
        rules: read_rules(RULES).expect("good rules"),
        flows_max: entries,
        fragments_max: entries,
        blocked_max: 1 << 10,
        events_max: 1 << 10,
        sources_max: entries,
        destinations_max: entries,
        ..FirewallConfig::default()
    })
}

fn scan(response: Response, entries: u32) -> PortScan {
    PortScan::new(PortScanConfig {
        response,
        histories_max: entries,
        samples_max: entries,
        alerts_max: 1 << 10,
        ..PortScanConfig::default()
    })
}

fn signatures(entries: u32) -> Signatures {
    let signature = |(place, bytes): (usize, &&str)| Signature {
        id: place as u32 + 1,
        message: (*bytes).to_owned(),
        bytes: bytes.as_bytes().to_vec(),
        carrier: Carrier::Any,
        ports: Vec::new(),
    };
    let signatures = SIGNATURES.iter().enumerate().map(signature).collect();
    Signatures::new(SignatureConfig {
        response: Answer::BlockConnection { block_s: 600 },
        wait_us: 5_000,
        pieces_max: entries,
        alerts_max: 1 << 10,
        ..SignatureConfig::new(signatures)
    })
    .expect("good signatures")
}

fn monitor(entries: u32) -> Monitor {
    Monitor::new(MonitorConfig {
        edges_max: entries,
        flows_max: entries,
        places: 1 << 6,
        cells: 1 << 8,
        alarms_max: 1 << 8,
        ..MonitorConfig::default()
    })
}

/// A NAT for any capture: private addresses are inside and all else outside, but for the hosts that these routes name; each side is
/// behind a router.
fn nat(routes: &[(Ipv4Addr, Side)], entries: u32) -> Nat {
    let mac = MacAddress([2, 0, 0, 0, 0, 1]);
    let (near, far) = (Ipv4Addr::new(100, 64, 0, 2), Ipv4Addr::new(203, 0, 112, 2));
    let mut inside = Interface::new(INSIDE, Ipv4Addr::new(100, 64, 0, 1), 24, mac);
    let mut outside = Interface::new(OUTSIDE, Ipv4Addr::new(203, 0, 112, 1), 24, mac);
    for interface in [&mut inside, &mut outside] {
        interface.promiscuous = true;
        interface.mtu = 0;
    }
    let route = |prefix, side| Route {
        prefix,
        side,
        next_hop: Some(match side {
            Side::Inside => near,
            Side::Outside => far,
        }),
    };
    let private = [
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
    ]
    .map(|(address, length)| route(Prefix::new(address.into(), length), Side::Inside));
    let hosts = routes
        .iter()
        .map(|&(host, side)| route(Prefix::new(host, 32), side));
    let all = route(Prefix::ALL, Side::Outside);
    Nat::new(NatConfig {
        routes: hosts.chain(private).chain([all]).collect(),
        neighbours: [near, far]
            .map(|router| (router, MacAddress([2, 0, 0, 0, 0, 9])))
            .to_vec(),
        sessions_max: entries,
        fragments_max: entries,
        neighbours_max: 1 << 8,
        ..NatConfig::new(inside, outside, vec![TRANSLATED])
    })
    .expect("a sound configuration")
}

pub(super) fn settings(name: &str) -> ObjectSettings {
    ObjectSettings {
        absence: match name {
            "nat.ports" => Absence::Wait { us: 20_000 },
            _ => Absence::Answer,
        },
        ..ObjectSettings::REPLICATED
    }
}
