//! Counts over whole captures against those that tshark gave, `../shared/traces/facts`.

use std::collections::BTreeMap;
use std::fs;

use asterism_packet::{Fragment, Layout, Malformed, Network, Packet, TcpFlags, Transport};
use serde_json::Value;

const COUNTED: [&str; 12] = [
    "frames",
    "ipv4",
    "ipv6",
    "tcp",
    "udp",
    "icmp_or_icmpv6",
    "arp",
    "ipv4_fragments",
    "syn",
    "synack",
    "fin",
    "rst",
];

/// Captures in which the counts differ, and why that is right. A capture that is not listed must agree in every count,
/// and a listed one must differ: a reason that is no longer needed fails the test.
const EXCEPTIONS: [(&str, &str); 5] = [
    (
        "encap/libtrace-ip-in-mpls.pcap",
        "tshark counts the packets inside MPLS, which is passed through unread here",
    ),
    (
        "encap/ppp-MplsPackets.pcap",
        "tshark counts the packets inside MPLS, which is passed through unread here",
    ),
    (
        "encap/mercury-pppoe-vlan.pcap",
        "tshark counts the packets inside PPPoE, which is passed through unread here",
    ),
    (
        "frag/zeek-gtp1-frag.pcap",
        "tshark counts the packets inside GTP, not the UDP datagrams that carry them",
    ),
    (
        "reassembly/ppp-tcp-reassembly.pcap",
        "tshark counts the sampled packet inside an sFlow datagram, not its UDP",
    ),
];

type Counts = BTreeMap<&'static str, u64>;

#[test]
fn counts_agree_with_tshark() {
    let Some(folder) = crate::captures::folder("counts_agree_with_tshark") else {
        return;
    };
    let mut compared = 0;
    let mut wrong = Vec::new();
    let mut facts: Vec<_> = fs::read_dir(folder.join("facts"))
        .expect("the facts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    facts.sort();
    for path in facts {
        let facts: Value = serde_json::from_slice(&fs::read(&path).expect("facts")).expect("JSON");
        let name = facts["file"].as_str().expect("a file name");
        if facts["capinfos"]["encapsulation"] == "chdlc" {
            continue; // Cisco HDLC: not Ethernet, and not for this crate.
        }
        let expected: Counts = COUNTED
            .into_iter()
            .map(|key| (key, facts["tshark"]["counts"][key].as_u64().unwrap_or(0)))
            .collect();
        let counted = count(&crate::captures::frames(&folder.join(name)));
        compared += 1;
        let differences: Vec<String> = expected
            .iter()
            .filter(|(key, value)| counted.get(*key).copied().unwrap_or(0) != **value)
            .map(|(key, value)| {
                format!(
                    "{key}: tshark {value}, here {}",
                    counted.get(key).copied().unwrap_or(0)
                )
            })
            .collect();
        let exception = EXCEPTIONS.iter().find(|(file, _)| *file == name);
        match (differences.is_empty(), exception) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(_)) => wrong.push(format!("{name}: agrees, take it off the list")),
            (false, None) => wrong.push(format!("{name}: {}", differences.join("; "))),
        }
    }
    assert!(compared >= 70, "only {compared} captures compared");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn count(frames: &[Vec<u8>]) -> Counts {
    let mut counts = Counts::new();
    let mut add = |key: &'static str| *counts.entry(key).or_default() += 1;
    for frame in frames {
        add("frames");
        let mut bytes = frame.clone();
        // tshark counts what has a wrong header checksum, as sent through a card that fills it in.
        let layout = match Layout::parse(&bytes) {
            Err(Malformed::HeaderChecksum) => Layout::parse_unverified(&bytes),
            result => result,
        };
        let Ok(layout) = layout else { continue };
        let packet = Packet::with_layout(&mut bytes, layout);
        match layout.network() {
            Network::Ipv4 => add("ipv4"),
            Network::Ipv6 => add("ipv6"),
            Network::Arp => add("arp"),
            Network::Other => {}
        }
        if layout.network() == Network::Ipv4 && layout.fragment() != Fragment::Whole {
            add("ipv4_fragments");
        }
        match layout.transport() {
            Transport::Tcp => {
                add("tcp");
                let flags = packet.tcp_flags().expect("TCP");
                match (flags.contains(TcpFlags::SYN), flags.contains(TcpFlags::ACK)) {
                    (true, false) => add("syn"),
                    (true, true) => add("synack"),
                    _ => {}
                }
                if flags.contains(TcpFlags::FIN) {
                    add("fin");
                }
                if flags.contains(TcpFlags::RST) {
                    add("rst");
                }
            }
            Transport::Udp => add("udp"),
            Transport::Icmp | Transport::Icmpv6 => add("icmp_or_icmpv6"),
            Transport::None => {}
        }
    }
    counts
}
