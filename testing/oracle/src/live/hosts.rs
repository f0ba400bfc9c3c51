//! The hosts on both sides of the box, and what a script can have them say.

use core::net::Ipv4Addr;
use std::time::Duration;

use asterism_function::{MacAddress, TcpFlags, build};
use asterism_functions::nat::Side;

use super::{Network, Scenario};
use crate::recording::Frame;
use crate::wire::{self, End, IP, Ip};

/// A link of the box.
pub(super) struct BoxLink {
    pub(super) name: &'static str,
    pub(super) prefix: &'static str,
    pub(super) mac: &'static str,
}

pub(super) const BOX: [BoxLink; 2] = [
    BoxLink {
        name: "inside",
        prefix: "192.168.50.1/24",
        mac: "02:00:00:00:00:01",
    },
    BoxLink {
        name: "outside",
        prefix: "198.51.100.1/24",
        mac: "02:00:00:00:00:02",
    },
];

/// The box outside.
pub(super) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The box inside.
pub(super) const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 1);
/// Hosts inside.
pub(super) const A: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 2);
/// See [`A`].
pub(super) const B: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 3);
/// Hosts outside, on the link.
pub(super) const X: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// See [`X`].
pub(super) const Y: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
/// The router to everywhere else.
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
/// A host beyond the router.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// A router on the way, whose errors arrive.
pub(super) const HOP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

const NEIGHBOURS: [[Ipv4Addr; 3]; 2] = [[A, B, Ipv4Addr::new(192, 168, 50, 4)], [X, Y, ROUTER]];

fn mac(address: Ipv4Addr) -> MacAddress {
    let [a, b, c, d] = address.octets();
    MacAddress([2, 0, a, b, c, d])
}

/// `box.txt` of a scenario.
pub(super) fn description(scenario: &Scenario) -> String {
    let mut text = format!("# {}\n", scenario.about);
    for (path, value) in scenario.sysctls {
        text += &format!("# sysctl net.{} = {value}\n", path.replace('/', "."));
    }
    for (link, mtu) in BOX.iter().zip([scenario.mtu.0, scenario.mtu.1]) {
        text += &format!("{} = {} {} mtu {mtu}\n", link.name, link.prefix, link.mac);
    }
    for address in NEIGHBOURS.iter().flatten() {
        text += &format!("neighbour = {address} {}\n", mac(*address));
    }
    text += &format!("route = outside 0.0.0.0/0 via {ROUTER}\n");
    for line in scenario.settings.lines().map(str::trim) {
        if !line.is_empty() {
            text += &format!("{line}\n");
        }
    }
    text
}

/// Lines of `ip` that give the box its addresses, routes and neighbours.
pub(super) fn links(scenario: &Scenario) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    for (place, link) in BOX.iter().enumerate() {
        let mtu = [scenario.mtu.0, scenario.mtu.1][place];
        lines.push(format!("address add {} dev g{place}", link.prefix));
        lines.push(format!("link set g{place} mtu {mtu} up"));
        for address in NEIGHBOURS[place] {
            let mac = mac(address);
            lines.push(format!(
                "neighbour add {address} lladdr {mac} dev g{place} nud permanent"
            ));
        }
    }
    lines.push(format!("route add default via {ROUTER}"));
    lines
}

/// A packet that a script wants sent.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Time to live.
    pub ttl: u8,
    /// "Don't fragment".
    pub dont_fragment: bool,
    /// The type of service.
    pub service: u8,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            ttl: 64,
            dont_fragment: true,
            service: 0,
        }
    }
}

/// A TCP segment that a script wants sent.
#[derive(Clone, Copy, Debug)]
pub struct Seg {
    /// Control bits.
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
}

/// What a script plays with.
#[derive(Debug)]
pub struct Hosts<'a> {
    network: &'a mut Network,
    identification: u16,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(network: &'a mut Network) -> Self {
        Self {
            network,
            identification: 100,
        }
    }

    /// Lets time pass.
    pub fn pause(&mut self, milliseconds: u64) {
        self.network.pause(Duration::from_millis(milliseconds));
    }

    /// Sends a frame as it is.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn raw(&mut self, side: Side, frame: Vec<u8>) -> Result<Vec<Frame>, String> {
        self.network.send(side, frame)
    }

    /// Sends frames one right after another, as a host sends fragments.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn raw_all(&mut self, side: Side, frames: Vec<Vec<u8>>) -> Result<Vec<Frame>, String> {
        self.network.send_all(side, frames)
    }

    fn header(&mut self, side: Side, from: Ipv4Addr, to: Ipv4Addr, wish: &Wish) -> build::Header4 {
        self.identification = self.identification.wrapping_add(1);
        let at_link = NEIGHBOURS[usize::from(side == Side::Outside)].contains(&from);
        let station = match (at_link, side) {
            (true, _) => from,
            (false, Side::Outside) => ROUTER,
            (false, Side::Inside) => A,
        };
        let own = match side {
            Side::Inside => MacAddress([2, 0, 0, 0, 0, 1]),
            Side::Outside => MacAddress([2, 0, 0, 0, 0, 2]),
        };
        build::Header4 {
            ethernet_source: mac(station),
            ethernet_destination: own,
            ttl: wish.ttl,
            identification: self.identification,
            dont_fragment: wish.dont_fragment,
            ..build::Header4::between(from, to)
        }
    }

    /// A UDP datagram's frame.
    pub fn udp_frame(
        &mut self,
        side: Side,
        from: End,
        to: End,
        data: &[u8],
        wish: &Wish,
    ) -> Vec<u8> {
        let header = self.header(side, from.0, to.0, wish);
        built(wish, |out| build::udp4(&header, from.1, to.1, data, out))
    }

    /// A TCP segment's frame.
    pub fn tcp_frame(
        &mut self,
        side: Side,
        from: End,
        to: End,
        seg: Seg,
        data: &[u8],
        wish: &Wish,
    ) -> Vec<u8> {
        let header = self.header(side, from.0, to.0, wish);
        let segment = build::Segment {
            flags: TcpFlags(seg.flags),
            sequence: seg.sequence,
            acknowledgement: seg.acknowledgement,
            window: 60_000,
        };
        built(wish, |out| {
            build::tcp4(&header, from.1, to.1, &segment, data, out)
        })
    }

    /// An ICMP message's frame.
    pub fn icmp_frame(
        &mut self,
        side: Side,
        ends: (Ipv4Addr, Ipv4Addr),
        kind: (u8, u8),
        rest: [u8; 4],
        data: &[u8],
        wish: &Wish,
    ) -> Vec<u8> {
        let header = self.header(side, ends.0, ends.1, wish);
        built(wish, |out| {
            build::icmp4(&header, kind.0, kind.1, rest, data, out)
        })
    }

    /// Sends a UDP datagram.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn udp(
        &mut self,
        side: Side,
        from: End,
        to: End,
        data: &[u8],
    ) -> Result<Vec<Frame>, String> {
        let frame = self.udp_frame(side, from, to, data, &Wish::default());
        self.raw(side, frame)
    }

    /// Sends a TCP segment.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn tcp(
        &mut self,
        side: Side,
        from: End,
        to: End,
        seg: (u8, u32, u32),
        data: &[u8],
    ) -> Result<Vec<Frame>, String> {
        let seg = Seg {
            flags: seg.0,
            sequence: seg.1,
            acknowledgement: seg.2,
        };
        let frame = self.tcp_frame(side, from, to, seg, data, &Wish::default());
        self.raw(side, frame)
    }

    /// Sends an echo request or reply.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn echo(
        &mut self,
        side: Side,
        ends: (Ipv4Addr, Ipv4Addr),
        kind: u8,
        identifier: u16,
        data: &[u8],
    ) -> Result<Vec<Frame>, String> {
        let [a, b] = identifier.to_be_bytes();
        let rest = [a, b, 0, 1];
        let frame = self.icmp_frame(side, ends, (kind, 0), rest, data, &Wish::default());
        self.raw(side, frame)
    }

    /// Sends an ICMP error about a packet, of which `length` bytes are quoted.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn error(
        &mut self,
        side: Side,
        from: Ipv4Addr,
        kind: (u8, u8),
        rest: [u8; 4],
        about: &Frame,
        length: usize,
    ) -> Result<Vec<Frame>, String> {
        let Some(ip) = Ip::of(&about.bytes) else {
            return Err("an error needs a packet to be about".to_owned());
        };
        let end = (IP + length).min(ip.end);
        let quoted = about.bytes[IP..end].to_vec();
        let frame = self.icmp_frame(
            side,
            (from, ip.source),
            kind,
            rest,
            &quoted,
            &Wish::default(),
        );
        self.raw(side, frame)
    }

    /// Opens a TCP connection from inside; where it stands afterwards.
    ///
    /// # Errors
    /// When Linux did not pass the handshake.
    pub fn connect(&mut self, from: End, to: End) -> Result<Connected, String> {
        let (ours, theirs) = (1_000, 9_000);
        let syn = only(self.tcp(Side::Inside, from, to, (wire::SYN, ours, 0), b"")?)?;
        let outside = ends(&syn)?.0;
        self.tcp(Side::Outside, to, outside, (SYN_ACK, theirs, ours + 1), b"")?;
        self.tcp(Side::Inside, from, to, (ACK, ours + 1, theirs + 1), b"")?;
        Ok(Connected {
            inside: from,
            remote: to,
            outside,
            ours: ours + 1,
            theirs: theirs + 1,
        })
    }
}

/// `ACK`.
pub(super) const ACK: u8 = 16;
/// `SYN` and `ACK`.
pub(super) const SYN_ACK: u8 = 18;
/// `FIN` and `ACK`.
pub(super) const FIN_ACK: u8 = 17;
/// `RST` and `ACK`.
pub(super) const RST_ACK: u8 = 20;

/// A TCP connection under way.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    /// The inside host.
    pub inside: End,
    /// The remote host.
    pub remote: End,
    /// What the remote host sees.
    pub outside: End,
    /// The inside host's next sequence number.
    pub ours: u32,
    /// The remote host's next sequence number.
    pub theirs: u32,
}

impl Connected {
    /// A segment from inside.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn out(
        &mut self,
        hosts: &mut Hosts<'_>,
        flags: u8,
        data: &[u8],
    ) -> Result<Vec<Frame>, String> {
        let seg = (flags, self.ours, self.theirs);
        let sent = hosts.tcp(Side::Inside, self.inside, self.remote, seg, data)?;
        self.ours += data.len() as u32 + u32::from(flags & wire::FIN);
        Ok(sent)
    }

    /// A segment from outside.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn back(
        &mut self,
        hosts: &mut Hosts<'_>,
        flags: u8,
        data: &[u8],
    ) -> Result<Vec<Frame>, String> {
        let seg = (flags, self.theirs, self.ours);
        let sent = hosts.tcp(Side::Outside, self.remote, self.outside, seg, data)?;
        self.theirs += data.len() as u32 + u32::from(flags & wire::FIN);
        Ok(sent)
    }

    /// FINs of both, acknowledged.
    ///
    /// # Errors
    /// When the kernel refuses a segment.
    pub fn close(&mut self, hosts: &mut Hosts<'_>) -> Result<(), String> {
        self.out(hosts, FIN_ACK, b"")?;
        self.back(hosts, FIN_ACK, b"")?;
        self.out(hosts, ACK, b"")?;
        Ok(())
    }
}

fn built(wish: &Wish, build: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = vec![0; 65_600];
    let length = build(&mut out).unwrap_or(0);
    out.truncate(length);
    if wish.service != 0 {
        let version = u16::from(out[IP]) << 8;
        wire::replace(
            &mut out,
            IP,
            version | u16::from(wish.service),
            IP + 10,
            false,
        );
    }
    out
}

/// The one frame that was sent.
///
/// # Errors
/// When there was another number.
pub(super) fn only(mut frames: Vec<Frame>) -> Result<Frame, String> {
    match (frames.pop(), frames.len()) {
        (Some(frame), 0) => Ok(frame),
        (_, others) => Err(format!("Linux sent {} packets instead of one", others + 1)),
    }
}

/// Both ends of a frame.
///
/// # Errors
/// When it is no IPv4 packet.
pub(super) fn ends(frame: &Frame) -> Result<(End, End), String> {
    let ip = Ip::of(&frame.bytes).ok_or("no IPv4 packet")?;
    Ok(ip.ends(&frame.bytes))
}

/// A frame cut into fragments with this many bytes of data, a multiple of eight, in order.
pub(super) fn fragments(frame: &[u8], data_bytes: usize) -> Vec<Vec<u8>> {
    let Some(ip) = Ip::of(frame) else {
        return Vec::new();
    };
    let data = &frame[ip.body()];
    let last = data.len().div_ceil(data_bytes).saturating_sub(1);
    let parts = data.chunks(data_bytes).enumerate();
    parts
        .map(|(place, part)| {
            let mut bytes = frame[..ip.transport].to_vec();
            bytes.extend_from_slice(part);
            let more = if place == last { 0 } else { 0x2000 };
            let length = (bytes.len() - IP) as u16;
            let offset = (place * data_bytes / 8) as u16;
            wire::put(&mut bytes, IP + 2, length);
            wire::put(&mut bytes, IP + 6, offset | more);
            wire::put(&mut bytes, IP + 10, 0);
            let sum = !wire::fold(wire::sum(&bytes[IP..ip.transport]));
            wire::put(&mut bytes, IP + 10, sum);
            bytes
        })
        .collect()
}
