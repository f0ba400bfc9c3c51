//! Hosts of two sites in network namespaces: a bridge with multicast in each, and a router between them that forwards none. Needs
//! root.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use asterism_engine::transport::{RunConfig, UdpConfig};
use asterism_lab::{Cable, Lab, Node, permitted};
use asterism_placement::MemberId;
use asterism_placement::replicated::{SiteId, SitesConfig};

use crate::transport::hosts::{Host, exercise, host_config, meet};

/// Hosts of each of two sites.
const EACH: u16 = 3;

/// How addresses of one family are written.
#[derive(Clone, Copy)]
struct Family {
    length: u8,
    group: &'static str,
    is_v6: bool,
}

const FAMILIES: [Family; 2] = [
    Family {
        length: 24,
        group: "239.192.7.7:4748",
        is_v6: false,
    },
    Family {
        length: 64,
        group: "[ff15::7:7]:4748",
        is_v6: true,
    },
];

fn site(number: u16) -> u16 {
    number / EACH
}

impl Family {
    fn ip(self, site: u16, number: u16) -> String {
        match self.is_v6 {
            true => format!("fd78:{site}::{number:x}"),
            false => format!("10.78.{site}.{number}"),
        }
    }

    fn at(self, number: u16) -> SocketAddr {
        let ip = self.ip(site(number), number + 1);
        SocketAddr::new(ip.parse().unwrap(), 4747)
    }

    fn address(self, node: &Node, interface: &str, ip: &str) {
        node.sysctl(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "0")
            .unwrap();
        let flag = if self.is_v6 { "nodad" } else { "" };
        let line = format!("address add {ip}/{} dev {interface} {flag}", self.length);
        node.ip(&[line]).unwrap();
    }

    /// The router, its switches and the hosts.
    fn network(self, lab: &Lab) -> (Node, Vec<Node>, Vec<Node>) {
        let router = lab.node("router").unwrap();
        router.sysctl("net/ipv4/ip_forward", "1").unwrap();
        router.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
        let hosts: Vec<Node> = (0..2 * EACH)
            .map(|number| lab.node(&format!("host{number}")).unwrap())
            .collect();
        let mut switches = Vec::new();
        for (place, name) in ["west", "east"].into_iter().enumerate() {
            let switch = lab.node(&format!("switch-{name}")).unwrap();
            let members = (0..2 * EACH).filter(|&number| usize::from(site(number)) == place);
            let mut ends: Vec<_> = members
                .map(|number| (&hosts[usize::from(number)], "eth0"))
                .collect();
            ends.push((&router, name));
            lab.bridge(&switch, "br", &ends, &Cable::default()).unwrap();
            self.address(&router, name, &self.ip(place as u16, 254));
            switches.push(switch);
        }
        for (number, host) in (0..).zip(&hosts) {
            self.address(host, "eth0", &self.ip(site(number), number + 1));
            let via = self.ip(site(number), 254);
            let line = match self.is_v6 {
                true => format!("route add ::/0 via {via}"),
                false => format!("route add default via {via}"),
            };
            host.ip(&[line]).unwrap();
        }
        (router, switches, hosts)
    }

    fn start(self, node: &Node, number: u16) -> Host {
        let others = (0..2 * EACH).filter(|&other| other != number);
        let peers = others.map(|other| (MemberId(other), self.at(other)));
        let mut udp = UdpConfig::new(self.at(number), peers)
            .with_multicast(self.group.parse().unwrap(), "eth0");
        for peer in &mut udp.peers {
            peer.near = site(peer.member.0) == site(number);
        }
        let mut config = host_config(number, 2 * EACH);
        let of = (0..2 * EACH).map(|member| (MemberId(member), SiteId(site(member) as u8)));
        config.replica.sites = Some(SitesConfig::new(of.collect()));
        node.enter(|| Host::start_as(config, &udp, RunConfig::default()))
            .unwrap()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn goes_by_relays(host: &Host) -> bool {
    let snapshot = host.snapshot();
    snapshot
        .sites
        .iter()
        .all(|site| site.relayed && site.direct == 0)
}

#[test]
fn two_sites_behind_a_router_share_state_by_their_relays() {
    if !permitted() {
        println!("SKIPPED sites in network namespaces: only root may make them");
        return;
    }
    for family in FAMILIES {
        let lab = Lab::new().unwrap();
        let (router, _switches, nodes) = family.network(&lab);
        let mut hosts: Vec<Host> = (0..)
            .zip(&nodes)
            .map(|(number, node)| family.start(node, number))
            .collect();
        meet(&hosts);
        wait_until("all go by relays", || hosts.iter().all(goes_by_relays));
        let direct = |host: &Host| host.snapshot().relay.direct_copies;
        let before: Vec<u64> = hosts.iter().map(direct).collect();
        let sent = |host: &Host| host.snapshot().transport.multicast_sent;
        let multicasts: u64 = hosts.iter().map(sent).sum();
        let through = router.interface_counts("east").unwrap().sent;
        exercise(&hosts, 1_000, 0);
        let after: Vec<u64> = hosts.iter().map(direct).collect();
        let through = router.interface_counts("east").unwrap().sent - through;
        let multicasts = hosts.iter().map(sent).sum::<u64>() - multicasts;
        println!("{through} frames into one site for {multicasts} multicasts in both");
        for (host, (before, after)) in hosts.iter().zip(before.iter().zip(&after)) {
            // A loaded machine may stand still for longer than a relay may be silent.
            if host.snapshot().replication.relay_fallbacks == 0 {
                assert_eq!(before, after, "{:?}", host.name);
            }
        }
        for relay in [0, EACH] {
            let tally = hosts[usize::from(relay)].snapshot().relay;
            assert!(
                tally.handed_on > 100 && tally.acknowledgements_kept > 0,
                "{tally:?}"
            );
        }

        // A relay dies: what is written then arrives all the same, and nobody waits for an epoch.
        hosts.remove(usize::from(EACH)).stop();
        let (writer, reader) = (&hosts[1], &hosts[usize::from(EACH)]);
        wait_until("it is passed by", || {
            let snapshot = writer.snapshot();
            snapshot.sites[1].direct == usize::from(EACH) && !snapshot.sites[1].relayed
        });
        let held = reader.held().entries;
        writer.feed(0x00ff_0000..0x00ff_0100);
        wait_until("it arrives", || reader.held().entries == held + 0x100);
    }
}
