//! What a monitor measures, for programs that collect metrics.

use asterism_function::{OwnMetric, Protocol};

use super::{MonitorState, ProtocolCount};

/// Kinds of traffic that are distinguished among the metrics: by name, and the numbers of transport protocols that each is.
const KINDS: [(u8, u8); 3] = [
    (Protocol::TCP.0, Protocol::TCP.0),
    (Protocol::UDP.0, Protocol::UDP.0),
    (Protocol::ICMP.0, Protocol::ICMPV6.0),
];
/// Where other protocols over IP are counted, and what is not IP.
const OTHER_IP: usize = KINDS.len();
const NOT_IP: usize = OTHER_IP + 1;

pub(super) const METRICS: [OwnMetric; 12] = [
    OwnMetric::counter(
        "tcp_packets_total",
        "TCP packets of all hosts, as this one knows.",
    ),
    OwnMetric::counter("tcp_bytes_total", "Their bytes, with the headers of IP."),
    OwnMetric::counter(
        "udp_packets_total",
        "UDP packets of all hosts, as this one knows.",
    ),
    OwnMetric::counter("udp_bytes_total", "Their bytes, with the headers of IP."),
    OwnMetric::counter(
        "icmp_packets_total",
        "ICMP and ICMPv6 packets of all hosts, as this one knows.",
    ),
    OwnMetric::counter("icmp_bytes_total", "Their bytes, with the headers of IP."),
    OwnMetric::counter(
        "other_ip_packets_total",
        "Packets of other protocols over IP of all hosts, as this one knows.",
    ),
    OwnMetric::counter(
        "other_ip_bytes_total",
        "Their bytes, with the headers of IP.",
    ),
    OwnMetric::counter(
        "not_ip_packets_total",
        "Frames of all hosts that are not IP, as this one knows.",
    ),
    OwnMetric::counter("not_ip_bytes_total", "Their bytes."),
    OwnMetric::gauge(
        "talking_hosts",
        "Hosts that sent something or that something was sent to, within the time of an edge.",
    ),
    OwnMetric::counter(
        "unrecorded_total",
        "Flows, edges and alarms of all hosts for which there was no room.",
    ),
];

/// The place of a protocol among the metrics.
fn kind(count: &ProtocolCount) -> usize {
    match count.protocol {
        None => NOT_IP,
        Some((number, _)) => KINDS
            .iter()
            .position(|&(one, other)| number == one || number == other)
            .unwrap_or(OTHER_IP),
    }
}

impl MonitorState {
    /// Appends a value for each of [`METRICS`]. Looks at the sums of protocols: some tens where traffic is honest, a thousand at most.
    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        let mut sums = [[0u64; 2]; NOT_IP + 1];
        for count in self.protocol_counts() {
            let [packets, bytes] = &mut sums[kind(&count)];
            *packets = packets.saturating_add(count.packets);
            *bytes = bytes.saturating_add(count.bytes);
        }
        values.extend(sums.as_flattened());
        values.push(self.links.nodes() as u64);
        values.push(self.unrecorded.total());
    }
}
