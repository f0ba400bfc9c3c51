//! The demo's traffic: conversations taken from captures or made here, each between an inside endpoint and a remote one of its
//! own, and the scans that the IDPS is to find.
//!
//! A conversation is a script of packets; a packet goes once the one before it arrived at the other end, as between real
//! hosts, so what the NAT holds up or loses is seen.

use std::io::Cursor;
use std::net::Ipv4Addr;
use std::time::Duration;

use asterism_function::build::{self, Header4, Segment};
use asterism_function::{Endpoint, Flow4, Packet, Protocol, TcpFlags};
use asterism_io::link::SeededRandom;
use asterism_io::port::{CaptureError, CaptureReader};

/// Conversations that TRex ships as templates of its mix (Apache-2.0; see `data/README.md`).
const TEMPLATES: [(&str, &[u8]); 5] = [
    ("http", include_bytes!("../../data/trex-http_get_0.pcap")),
    ("dns", include_bytes!("../../data/trex-dns_0.pcap")),
    ("smtp", include_bytes!("../../data/trex-smtp_0.pcap")),
    ("pop", include_bytes!("../../data/trex-mail_pop_0.pcap")),
    (
        "exchange",
        include_bytes!("../../data/trex-exchange_0.pcap"),
    ),
];

/// Scans by nmap, recorded for this project.
const SCANS: [&[u8]; 3] = [
    include_bytes!("../../data/nmap-sS-sweep-22-445.pcap"),
    include_bytes!("../../data/nmap-sT-top200.pcap"),
    include_bytes!("../../data/nmap-sS-top1000.pcap"),
];
/// Who scans in them.
pub(super) const SCANNER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// One of so many conversations is a template, the others are made here.
const TEMPLATE_EVERY: usize = 6;
/// One of so many conversations begins with two packets at once, which different hosts get.
const BURST_EVERY: usize = 40;
/// A pause of a template is at most so long here.
const PAUSE_MOST: Duration = Duration::from_millis(300);
/// What a remote host takes to answer at the least.
const ANSWER_LEAST: Duration = Duration::from_millis(2);

/// A conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// Who began it; no other conversation has this endpoint.
    pub(super) inside: Endpoint,
    /// The peer; no other conversation has this endpoint.
    pub(super) remote: Endpoint,
    /// When its first packet goes.
    pub(super) start: Duration,
    /// Its packets.
    pub(super) steps: Vec<Step>,
}

/// One packet of a conversation.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// From inside; otherwise an answer.
    pub(super) from_inside: bool,
    /// How long after the packet before it arrived.
    pub(super) pause: Duration,
    /// Goes together with the one before it, without waiting.
    pub(super) together: bool,
    /// The packet as it leaves its sender; of an answer the destination is still the inside endpoint.
    pub(super) bytes: Vec<u8>,
}

/// A packet of a scan.
#[derive(Clone, Debug)]
pub(super) struct ScanPacket {
    /// From the scanner; otherwise an answer.
    pub(super) from_scanner: bool,
    /// When, from the scan's start.
    pub(super) at: Duration,
    /// The packet.
    pub(super) bytes: Vec<u8>,
}

/// Makes `count` conversations that begin over `span`. The same seed makes the same.
pub(super) fn conversations(
    count: usize,
    span: Duration,
    seed: u64,
) -> Result<Vec<Conversation>, CaptureError> {
    let mut random = SeededRandom::new(seed);
    let templates: Vec<Vec<Template>> = TEMPLATES
        .iter()
        .map(|(name, bytes)| template(name, bytes))
        .collect::<Result<_, _>>()?;
    let mut all: Vec<Conversation> = (0..count)
        .map(|number| {
            let start = Duration::from_micros(random.up_to(span.as_micros() as u64));
            let picked = templates.get(number / TEMPLATE_EVERY % templates.len());
            let steps = match picked {
                Some(template) if number.is_multiple_of(TEMPLATE_EVERY) => template.clone(),
                _ if number % BURST_EVERY == 1 => burst(),
                _ => made(&mut random),
            };
            let protocol = steps.first().map_or(Protocol::UDP, |step| step.protocol);
            let (inside, remote) = endpoints(number, protocol, &mut random);
            Conversation {
                inside,
                remote,
                start,
                steps: steps
                    .into_iter()
                    .filter_map(|step| step.between(inside, remote))
                    .collect(),
            }
        })
        .collect();
    all.sort_by_key(|conversation| conversation.start);
    Ok(all)
}

/// All packets of all scans, one scan after the other.
pub(super) fn scans() -> Result<Vec<ScanPacket>, CaptureError> {
    let mut all = Vec::new();
    let mut start = Duration::ZERO;
    for bytes in SCANS {
        let mut first = None;
        let mut last = Duration::ZERO;
        for (timestamp_ns, bytes) in read("scan", bytes)? {
            let first = *first.get_or_insert(timestamp_ns);
            last = Duration::from_nanos(timestamp_ns.saturating_sub(first));
            let mut copy = bytes.clone();
            let from_scanner =
                Packet::parse(&mut copy).is_ok_and(|packet| packet.ipv4_source() == Some(SCANNER));
            all.push(ScanPacket {
                from_scanner,
                at: start + last,
                bytes,
            });
        }
        start += last + Duration::from_millis(200);
    }
    Ok(all)
}

/// A step before it is given endpoints.
#[derive(Clone, Debug)]
struct Template {
    from_inside: bool,
    pause: Duration,
    together: bool,
    protocol: Protocol,
    bytes: Vec<u8>,
}

impl Template {
    fn between(mut self, inside: Endpoint, remote: Endpoint) -> Option<Step> {
        let mut packet = Packet::parse(&mut self.bytes).ok()?;
        let (source, destination) = if self.from_inside {
            (inside, remote)
        } else {
            (remote, inside)
        };
        packet.set_source(source);
        packet.set_destination(destination);
        Some(Step {
            from_inside: self.from_inside,
            pause: self.pause,
            together: self.together,
            bytes: self.bytes,
        })
    }
}

/// The packets of a capture with one conversation, whose first packet is from inside.
fn template(name: &str, bytes: &'static [u8]) -> Result<Vec<Template>, CaptureError> {
    let mut steps = Vec::new();
    let mut client = None;
    let mut before_ns = None;
    for (timestamp_ns, mut bytes) in read(name, bytes)? {
        let Some(flow) = Packet::parse(&mut bytes)
            .ok()
            .and_then(|packet| packet.flow4())
        else {
            continue;
        };
        let from_inside = *client.get_or_insert(flow.source()) == flow.source();
        let pause =
            Duration::from_nanos(timestamp_ns.saturating_sub(before_ns.unwrap_or(timestamp_ns)));
        before_ns = Some(timestamp_ns);
        steps.push(Template {
            from_inside,
            pause: pause.clamp(ANSWER_LEAST, PAUSE_MOST),
            together: false,
            protocol: Protocol(flow.protocol),
            bytes,
        });
    }
    Ok(steps)
}

fn read(name: &str, bytes: &'static [u8]) -> Result<Vec<(u64, Vec<u8>)>, CaptureError> {
    let mut reader = CaptureReader::new(name, Cursor::new(bytes))?;
    let mut packets = Vec::new();
    let mut bytes = Vec::new();
    while let Some(packet) = reader.next(&mut bytes)? {
        packets.push((packet.timestamp_ns, bytes.clone()));
    }
    Ok(packets)
}

/// A short TCP conversation: handshake, a question, an answer, and the end.
fn made(random: &mut SeededRandom) -> Vec<Template> {
    let answers = 1 + random.up_to(4);
    let mut steps = vec![
        tcp(true, TcpFlags::SYN, 0),
        tcp(false, TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0), 0),
    ];
    steps.push(tcp(true, TcpFlags::ACK, 0));
    for _ in 0..answers {
        steps.push(tcp(
            true,
            TcpFlags(TcpFlags::PSH.0 | TcpFlags::ACK.0),
            100 + random.up_to(200) as usize,
        ));
        steps.push(tcp(
            false,
            TcpFlags(TcpFlags::PSH.0 | TcpFlags::ACK.0),
            200 + random.up_to(1_000) as usize,
        ));
    }
    steps.push(tcp(true, TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0), 0));
    steps.push(tcp(false, TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0), 0));
    steps.push(tcp(true, TcpFlags::ACK, 0));
    steps
}

/// A UDP conversation that begins with two packets at once: two hosts bind one endpoint before they hear of each other.
fn burst() -> Vec<Template> {
    let mut steps = vec![udp(true), udp(true), udp(false), udp(true), udp(false)];
    steps[1].together = true;
    // The answer comes once every host knows both.
    steps[2].pause = Duration::from_millis(150);
    steps
}

fn tcp(from_inside: bool, flags: TcpFlags, payload: usize) -> Template {
    let header = Header4::between(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(198, 18, 0, 1));
    let mut bytes = vec![0; 64 + payload];
    let length = build::tcp4(
        &header,
        1,
        1,
        &Segment::with_flags(flags),
        &vec![0x61; payload],
        &mut bytes,
    );
    bytes.truncate(length.unwrap_or(0));
    step(from_inside, Protocol::TCP, bytes)
}

fn udp(from_inside: bool) -> Template {
    let flow = Flow4 {
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(198, 18, 0, 1),
        source_port: 1,
        destination_port: 1,
        protocol: Protocol::UDP.0,
    };
    let mut bytes = vec![0; 256];
    let length = build::flow4(&flow, &[0x62; 120], &mut bytes);
    bytes.truncate(length.unwrap_or(0));
    step(from_inside, Protocol::UDP, bytes)
}

fn step(from_inside: bool, protocol: Protocol, bytes: Vec<u8>) -> Template {
    Template {
        from_inside,
        pause: ANSWER_LEAST * 5,
        together: false,
        protocol,
        bytes,
    }
}

/// Endpoints of the conversation of a number: some hundred inside hosts, each with many conversations.
fn endpoints(number: usize, protocol: Protocol, random: &mut SeededRandom) -> (Endpoint, Endpoint) {
    let (host, port) = (number % 250, number / 250);
    let inside = Ipv4Addr::new(10, 0, (random.up_to(3)) as u8, 1 + host as u8);
    let remote = Ipv4Addr::from_bits(0xC612_0000 + 1 + number as u32);
    (
        Endpoint::new(inside, 10_000 + port as u16, protocol),
        Endpoint::new(
            remote,
            if protocol == Protocol::TCP { 443 } else { 53 },
            protocol,
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn conversations_are_many_kinds_with_endpoints_of_their_own() {
        let all = conversations(500, Duration::from_secs(1), 7).unwrap();
        assert_eq!(all.len(), 500);
        let inside: BTreeSet<_> = all.iter().map(|one| one.inside).collect();
        let remote: BTreeSet<_> = all.iter().map(|one| one.remote).collect();
        assert_eq!((inside.len(), remote.len()), (500, 500));
        assert!(
            all.iter()
                .all(|one| one.steps.first().is_some_and(|step| step.from_inside))
        );
        assert!(
            all.iter()
                .any(|one| one.steps.iter().any(|step| step.together))
        );
        assert!(
            all.iter().any(|one| one.steps.len() > 40),
            "a template is among them"
        );
        for step in all.iter().flat_map(|one| &one.steps) {
            let mut bytes = step.bytes.clone();
            assert!(Packet::parse(&mut bytes).is_ok());
        }
    }

    #[test]
    fn scans_are_read_whole() {
        let all = scans().unwrap();
        assert!(all.len() > 2_500);
        assert!(all.iter().filter(|packet| packet.from_scanner).count() > 1_200);
        assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }
}
