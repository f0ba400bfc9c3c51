//! [`UdpTransport`]: a host's sockets. Datagrams go out by [`UdpTransport::buffer`], [`UdpTransport::queue`] and
//! [`UdpTransport::flush`], and come in by [`UdpTransport::receive`]; no call waits. `sockets` opens the sockets, `path`
//! finds the path MTU, `addresses` changes the members' addresses.

mod addresses;
mod path;
mod sockets;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use asterism_placement::replicated::{FRAME_BYTES, PAYLOAD_BYTES_MIN};
use asterism_placement::{MemberId, Time};
use asterism_secure_channel::OVERHEAD_BYTES;

use super::config::{PathMtu, TransportError, UdpConfig, UdpPeer};
use super::kernel::{self, Arrivals, Socket};
use super::outbound::{Outbound, Refused};
use super::pace::Pace;
use super::sources::{Source, Sources};
use super::statistics::{PeerTraffic, TransportEvent, TransportState, TransportStatistics};
use crate::channel::Destination;
use path::PATH_INTERVAL;
use sockets::{failed, find_interface, open_group, open_own, set_buffer};

/// Bytes of UDP payload below which a datagram's bound never goes, however narrow the path: the longest group
/// must fit, in a relay's frame too. It fits a link of 1,280 bytes with IPv6. On a narrower path long datagrams are fragmented.
pub const DATAGRAM_BYTES_MIN: usize = PAYLOAD_BYTES_MIN + OVERHEAD_BYTES + FRAME_BYTES;
const _: () = assert!(DATAGRAM_BYTES_MIN + 40 + 8 <= 1_280);
/// Receiving calls for each socket and turn at most, so that a flood leaves time to send.
const RECEIVE_CALLS_PER_TURN: usize = 4;
/// Returned datagrams read in a turn at most.
const RETURNED_PER_TURN: usize = 64;
/// Tries of a message before it is given up.
const TRIES_MAX: u32 = 4;
/// How long what the kernel has no memory for waits.
const KERNEL_WAIT: Duration = Duration::from_micros(500);
/// How often at most a full receive buffer is reported.
const DROPS_INTERVAL: Duration = Duration::from_secs(1);
/// Events kept at most.
const EVENTS_MAX: usize = 64;

/// A host's end of the network between hosts.
#[derive(Debug)]
pub struct UdpTransport {
    own: Socket,
    group: Option<Socket>,
    local: SocketAddr,
    group_address: Option<SocketAddr>,
    /// Name and number of the multicast interface.
    interface: (String, u32),
    path_mode: PathMtu,
    peers: Vec<PeerTraffic>,
    /// Places in `peers` of members that have no address now: they take no part.
    absent: Vec<usize>,
    sources: Sources,
    arrivals: Arrivals,
    outbound: Outbound,
    pace: Pace,
    segmentation: bool,
    receive_offload: bool,
    buffer_bytes: (usize, usize),
    /// By configuration.
    datagram_bytes_limit: usize,
    /// By configuration and path.
    datagram_bytes: usize,
    /// UDP payload that the narrowest path takes whole.
    whole_bytes_max: usize,
    path_mtu: usize,
    path_asked: Time,
    /// With [`PathMtu::Probe`]: what this machine said when a datagram was too long, and when.
    probed: Option<(usize, Time)>,
    is_fragmenting: bool,
    fragmented_before: u64,
    is_full: bool,
    kernel_wait: Option<Time>,
    is_pacing: bool,
    tries: u32,
    /// What each socket said it dropped, last.
    drops: [u32; 2],
    drops_reported: (Time, u64),
    statistics: TransportStatistics,
    events: VecDeque<TransportEvent>,
}

impl UdpTransport {
    /// Opens the sockets. `datagram_bytes_max` is the longest datagram that will be sent, in bytes of UDP
    /// payload. Waits for nothing.
    ///
    /// # Errors
    /// See [`TransportError`]; nothing stays open.
    pub fn open(
        config: &UdpConfig,
        datagram_bytes_max: usize,
        now: Time,
    ) -> Result<Self, TransportError> {
        let errors = config.errors();
        if !errors.is_empty() {
            return Err(TransportError::Configuration(errors));
        }
        let interface = match &config.multicast {
            Some(multicast) => find_interface(&multicast.interface)?,
            None => (String::new(), 0),
        };
        let own = open_own(config, interface.1)?;
        let local = own.local().map_err(failed("asking for", config.bind))?;
        let group = config
            .multicast
            .as_ref()
            .map(|multicast| open_group(multicast.group, interface.1))
            .transpose()?;
        let group_address = config.multicast.as_ref().map(|multicast| multicast.group);

        let mut events = VecDeque::with_capacity(EVENTS_MAX);
        let mut given = |socket: &Socket, asked, force, plain, which| {
            let given = set_buffer(socket, asked, force, plain);
            if given < asked {
                events.push_back(TransportEvent::BufferSmaller {
                    which,
                    asked,
                    given,
                });
            }
            given
        };
        let mut receive_bytes = usize::MAX;
        for socket in [Some(&own), group.as_ref()].into_iter().flatten() {
            receive_bytes = receive_bytes.min(given(
                socket,
                config.receive_buffer_bytes,
                kernel::RECEIVE_BUFFER_FORCE,
                kernel::RECEIVE_BUFFER,
                "receive",
            ));
        }
        let send_bytes = given(
            &own,
            config.send_buffer_bytes,
            kernel::SEND_BUFFER_FORCE,
            kernel::SEND_BUFFER,
            "send",
        );
        // A kernel that knows the option accepts "no segments" for the whole socket.
        let segmentation = config.segmentation && own.set(kernel::SEGMENT, 0).is_ok();
        if config.segmentation && !segmentation {
            events.push_back(TransportEvent::SegmentationRefused { errno: 0 });
        }
        let mut receive_offload = config.receive_offload;
        for socket in [Some(&own), group.as_ref()].into_iter().flatten() {
            if receive_offload && let Err(error) = socket.set(kernel::RECEIVE_OFFLOAD, 1) {
                receive_offload = false;
                let errno = error.raw_os_error().unwrap_or(0);
                events.push_back(TransportEvent::ReceiveOffloadRefused { errno });
            }
        }

        let peers: Vec<PeerTraffic> = config
            .peers
            .iter()
            .map(
                |&UdpPeer {
                     member,
                     address,
                     multicast,
                     near,
                 }| PeerTraffic {
                    member,
                    address,
                    multicast: multicast && near && group_address.is_some(),
                    near,
                    datagrams_sent: 0,
                    datagrams_received: 0,
                    returned: 0,
                    is_unreachable: false,
                },
            )
            .collect();
        let addresses: Vec<SocketAddr> = peers.iter().map(|peer| peer.address).collect();
        let lanes = addresses.iter().copied().chain(group_address);
        let mut transport = Self {
            outbound: Outbound::new(lanes, datagram_bytes_max),
            sources: Sources::new(addresses),
            own,
            group,
            local,
            group_address,
            interface,
            path_mode: config.path_mtu,
            peers,
            absent: Vec::new(),
            arrivals: Arrivals::new(),
            pace: Pace::new(config.bandwidth_bits_per_second),
            segmentation,
            receive_offload,
            buffer_bytes: (receive_bytes, send_bytes),
            datagram_bytes_limit: datagram_bytes_max,
            datagram_bytes: datagram_bytes_max,
            whole_bytes_max: datagram_bytes_max,
            path_mtu: 0,
            path_asked: now,
            probed: None,
            is_fragmenting: config.path_mtu == PathMtu::Fragment,
            fragmented_before: 0,
            is_full: false,
            kernel_wait: None,
            is_pacing: false,
            tries: 0,
            drops: [0; 2],
            drops_reported: (now, 0),
            statistics: TransportStatistics::default(),
            events,
        };
        transport.learn_path(now);
        Ok(transport)
    }

    /// Takes what has arrived, at most some hundred messages, and hands each datagram to `handle` with the
    /// number of its source. Returns how many datagrams there were.
    pub fn receive(&mut self, now: Time, mut handle: impl FnMut(u64, &mut [u8])) -> usize {
        let before = self.statistics.datagrams_received;
        for place in 0..2 {
            for _ in 0..RECEIVE_CALLS_PER_TURN {
                let Some(socket) = [Some(&self.own), self.group.as_ref()][place] else {
                    break;
                };
                match self.arrivals.receive(socket) {
                    Ok(count) => {
                        self.statistics.receive_calls += 1;
                        for number in 0..count {
                            self.take(place, number, &mut handle);
                        }
                        if !self.arrivals.may_be_more() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The socket tells of a datagram that came back; the next call receives.
                    Err(error) if is_returned(&error) => {
                        self.take_returned(now);
                    }
                    Err(_) => {
                        self.statistics.receive_errors += 1;
                        break;
                    }
                }
            }
        }
        let (reported_at, reported) = self.drops_reported;
        let drops = self.statistics.receive_buffer_drops;
        if drops > reported && now.since(reported_at) >= DROPS_INTERVAL {
            self.drops_reported = (now, drops);
            self.note(TransportEvent::ReceiveBufferFull {
                datagrams: drops - reported,
            });
        }
        (self.statistics.datagrams_received - before) as usize
    }

    fn take(&mut self, socket: usize, number: usize, handle: &mut impl FnMut(u64, &mut [u8])) {
        let Some((arrival, bytes)) = self.arrivals.get(number) else {
            return;
        };
        let statistics = &mut self.statistics;
        statistics.messages_received += 1;
        if let Some(drops) = arrival.drops {
            let more = drops.wrapping_sub(self.drops[socket]);
            // Reports of one batch may come in any order of two queues: a step back is none.
            if more < 1 << 31 {
                statistics.receive_buffer_drops += u64::from(more);
                self.drops[socket] = drops;
            }
        }
        if arrival.is_cut {
            statistics.cut_received += 1;
            return;
        }
        if arrival.from == self.local {
            statistics.own_received += 1;
            return;
        }
        let from = self.sources.number(arrival.from);
        let length = match arrival.segment_bytes {
            0 => bytes.len().max(1),
            length => length,
        };
        let is_joined = bytes.len() > length;
        let mut count = 0;
        for datagram in bytes.chunks_mut(length) {
            count += 1;
            statistics.bytes_received += datagram.len() as u64;
            handle(from, datagram);
        }
        // A datagram may be empty.
        statistics.datagrams_received += count.max(1);
        statistics.joined_received += if is_joined { count } else { 0 };
        match usize::try_from(from)
            .ok()
            .and_then(|place| self.peers.get_mut(place))
        {
            Some(peer) => {
                peer.datagrams_received += count;
                if peer.is_unreachable {
                    peer.is_unreachable = false;
                    let member = peer.member;
                    self.note(TransportEvent::Heard { member });
                }
            }
            None => statistics.strangers_received += count.max(1),
        }
    }

    /// The buffer to write the next datagram into; `None` while the queue is full or the bandwidth cap holds.
    /// Then [`UdpTransport::queue`] it, or leave it.
    pub fn buffer(&mut self, now: Time) -> Option<&mut Vec<u8>> {
        if !self.pace.may_send(now) {
            self.is_pacing = true;
            return None;
        }
        self.outbound.buffer()
    }

    /// Queues the datagram in the buffer. Who cannot be addressed is counted.
    pub fn queue(&mut self, destination: Destination) {
        let bytes = self.outbound.buffer().map_or(0, |buffer| buffer.len());
        let group = self.group_address.map(|_| self.peers.len());
        let copies = match destination {
            Destination::All | Destination::Near => {
                let (peers, absent) = (&self.peers, &self.absent);
                let is_meant = |place: &usize| {
                    let is_near = destination == Destination::All || peers[*place].near;
                    is_near && !absent.contains(place)
                };
                let apart = (0..peers.len())
                    .filter(is_meant)
                    .filter(|&place| !peers[place].multicast);
                let some_listen = peers.iter().any(|peer| peer.multicast);
                self.outbound
                    .push(apart.chain(group.filter(|_| some_listen)))
            }
            Destination::Member(member) => {
                let absent = &self.absent;
                let place = place(&self.peers, member);
                self.outbound
                    .push(place.filter(|place| !absent.contains(place)))
            }
            Destination::Source(number) => match self.sources.resolve(number) {
                Some(Source::Member(place)) => self.outbound.push(core::iter::once(place)),
                Some(Source::Stranger(address)) => self.outbound.push_answer(address),
                None => 0,
            },
        };
        self.pace.spend(copies * (bytes + self.around_bytes()));
        if copies == 0 && !(destination == Destination::All && self.peers.is_empty()) {
            self.statistics.unaddressed += 1;
        }
    }

    /// Hands what is queued to the kernel. What it has no room for stays queued; call it again when the socket
    /// has room or [`UdpTransport::next_send`] is due.
    pub fn flush(&mut self, now: Time) {
        if core::mem::take(&mut self.is_pacing) {
            self.statistics.pace_waits += 1;
        }
        if self.kernel_wait.is_some_and(|until| now < until) {
            return;
        }
        self.kernel_wait = None;
        self.is_full = false;
        if now.since(self.path_asked) >= PATH_INTERVAL {
            self.learn_path(now);
        }
        while self.outbound.waiting() > 0 {
            let Self {
                outbound,
                own,
                peers,
                statistics,
                ..
            } = self;
            let sent = outbound.send(
                own,
                self.segmentation,
                self.whole_bytes_max,
                |lane, bytes| {
                    statistics.datagrams_sent += 1;
                    statistics.bytes_sent += bytes as u64;
                    match lane.map(|lane| peers.get_mut(lane)) {
                        Some(Some(peer)) => peer.datagrams_sent += 1,
                        Some(None) => statistics.multicast_sent += 1,
                        None => {}
                    }
                },
            );
            match sent {
                Ok(left) => {
                    self.tries = 0;
                    statistics.send_calls += 1;
                    statistics.messages_sent += left.messages;
                    statistics.segmented_sent += left.segmented;
                    statistics.fragmented_sent += left.fragmented;
                }
                Err((error, refused)) => {
                    if !self.refused(now, &error, &refused) {
                        return;
                    }
                }
            }
        }
    }

    /// The kernel refused the first message. Whether to go on now.
    fn refused(&mut self, now: Time, error: &io::Error, refused: &Refused) -> bool {
        let errno = error.raw_os_error().unwrap_or(0);
        match errno {
            libc::EAGAIN => {
                self.statistics.send_buffer_waits += 1;
                self.is_full = true;
                return false;
            }
            libc::ENOBUFS | libc::ENOMEM => {
                self.statistics.kernel_waits += 1;
                self.kernel_wait = Some(now + KERNEL_WAIT);
                return false;
            }
            libc::EINTR => return true,
            _ => {}
        }
        self.tries += 1;
        if self.tries > TRIES_MAX {
            self.tries = 0;
            self.statistics.given_up += self.outbound.give_up(refused);
            let address = refused.to;
            self.note(TransportEvent::GivenUp { address, errno });
            self.learn_path_again(now);
            return true;
        }
        match errno {
            libc::EMSGSIZE => {
                self.statistics.too_long += 1;
                let whole = self.whole_bytes_max;
                self.take_returned(now);
                self.learn_path_again(now);
                if refused.is_segmented {
                    self.outbound.separate(refused);
                } else if refused.longest > self.whole_bytes_max || self.whole_bytes_max == whole {
                    // Cut for a wider path, or for one that nobody can tell: it must go all the same.
                    self.fragment(true);
                }
            }
            _ if refused.is_segmented && is_segmentation_refused(errno) => {
                self.statistics.segmentation_refused += 1;
                self.outbound.separate(refused);
                // With datagrams that the path takes whole it is not their length that is refused.
                if refused.longest <= self.whole_bytes_max {
                    self.segmentation = false;
                    self.note(TransportEvent::SegmentationRefused { errno });
                }
            }
            libc::EPERM | libc::EACCES => self.statistics.forbidden += 1,
            _ if is_returned(error) => {
                // Mostly the error of a datagram sent earlier, which the error queue tells; else of this one.
                if self.take_returned(now) == 0 {
                    self.statistics.host_unreachable += 1;
                    self.unreachable(Some(refused.to), errno);
                }
            }
            _ => self.statistics.send_errors += 1,
        }
        true
    }

    /// Reads what came back for datagrams sent earlier; how many did.
    fn take_returned(&mut self, now: Time) -> usize {
        let mut count = 0;
        while count < RETURNED_PER_TURN
            && let Some(returned) = self.own.take_error()
        {
            count += 1;
            match returned.errno {
                libc::EMSGSIZE if returned.is_local => self.probed = Some((returned.mtu, now)),
                libc::EMSGSIZE => {
                    self.statistics.too_long += 1;
                    self.learn_path_again(now);
                }
                libc::EPERM | libc::EACCES => self.statistics.forbidden += 1,
                libc::ECONNREFUSED => {
                    self.statistics.port_unreachable += 1;
                    self.unreachable(returned.to, returned.errno);
                }
                _ => {
                    self.statistics.host_unreachable += 1;
                    self.unreachable(returned.to, returned.errno);
                }
            }
        }
        self.own.clear_error();
        count
    }

    fn unreachable(&mut self, address: Option<SocketAddr>, errno: i32) {
        let Some(place) = address.and_then(|address| self.sources.place(address)) else {
            return;
        };
        let peer = &mut self.peers[place];
        peer.returned += 1;
        if !core::mem::replace(&mut peer.is_unreachable, true) {
            let PeerTraffic {
                member, address, ..
            } = *peer;
            self.note(TransportEvent::Unreachable {
                member,
                address,
                errno,
            });
        }
    }

    /// When what waits by the cap or for the kernel can go on; `None` if nothing waits for a time.
    pub fn next_send(&self) -> Option<Time> {
        self.kernel_wait.into_iter().chain(self.pace.next()).max()
    }

    /// UDP payload bytes of a datagram at most, now: what the path takes and the configuration allows.
    pub fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Whether messages are cut by the kernel, so that datagrams of one length cost less.
    pub fn is_segmenting(&self) -> bool {
        self.segmentation
    }

    /// Whether datagrams wait for the kernel.
    pub fn is_waiting(&self) -> bool {
        self.outbound.waiting() > 0
    }

    /// Forgets what waits for the kernel, counted as given up.
    pub fn give_up_waiting(&mut self) {
        self.statistics.given_up += self.outbound.clear();
    }

    /// What was counted.
    pub fn statistics(&self) -> TransportStatistics {
        self.statistics
    }

    /// The members, in the order of the configuration.
    pub fn peers(&self) -> &[PeerTraffic] {
        &self.peers
    }

    /// What is in use.
    pub fn state(&self) -> TransportState {
        TransportState {
            local: self.local,
            group: self.group_address,
            receive_buffer_bytes: self.buffer_bytes.0,
            send_buffer_bytes: self.buffer_bytes.1,
            segmentation: self.segmentation,
            receive_offload: self.receive_offload,
            path_mtu: self.path_mtu,
            datagram_bytes_max: self.datagram_bytes,
            is_fragmenting: self.is_fragmenting,
            waiting: self.outbound.waiting(),
        }
    }

    /// The next thing that happened, for the log.
    pub fn poll_event(&mut self) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    /// Waits until something can be received, room is there for what waits, the waker rings or the time is over.
    pub(super) fn wait(&mut self, now: Time, waker: &kernel::EventDescriptor, timeout: Duration) {
        let ready = kernel::wait(&self.own, self.group.as_ref(), waker, self.is_full, timeout);
        if ready.is_rung {
            waker.quiet();
        }
        if ready.has_error {
            self.take_returned(now);
        }
    }

    /// Bytes of IP and UDP headers.
    fn around_bytes(&self) -> usize {
        if self.local.is_ipv6() { 48 } else { 28 }
    }

    fn note(&mut self, event: TransportEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.statistics.events_lost += 1;
        }
    }
}

impl AsRawFd for UdpTransport {
    /// The socket that sends, and receives all but multicast.
    fn as_raw_fd(&self) -> RawFd {
        self.own.as_raw_fd()
    }
}

fn place(peers: &[PeerTraffic], member: MemberId) -> impl Iterator<Item = usize> {
    peers
        .iter()
        .position(|peer| peer.member == member)
        .into_iter()
}

/// Whether a call failed because of a datagram sent earlier, or because its addressee cannot be reached.
fn is_returned(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EPROTO
                | libc::EOPNOTSUPP
                | libc::EMSGSIZE
        )
    )
}

fn is_segmentation_refused(errno: i32) -> bool {
    matches!(
        errno,
        libc::EIO | libc::EINVAL | libc::ENOPROTOOPT | libc::EOPNOTSUPP
    )
}
