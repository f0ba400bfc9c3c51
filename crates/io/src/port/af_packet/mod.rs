//! Packets of a network interface by a packet socket (`packet(7)`, `Documentation/networking/packet_mmap.rst`): the port that
//! works on every interface and kernel.
//!
//! *Ring* mode reads a ring that the kernel fills (`ring.rs`) and is the fastest for packets as they are on the wire. *Bulk*
//! mode reads and writes packets of up to 64 KiB with their offload headers (`bulk.rs`), so that interfaces keep their
//! offloads and TCP its speed. Both send bursts by one system call (`transmit.rs`).

mod bulk;
mod ring;
mod transmit;

use super::interface::{
    Attachment, Interface, InterfaceError, LinkState, Offloads, OffloadsOff, apply_offloads,
};
use super::offload::{self, header_of};
use super::setting::{RING_SLOTS_MAX, SLOT_BYTES_MAX, SettingError};
use super::system::{self, HEADER_BYTES};
use super::{PacketTooLongError, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{BURST, Burst, FramePool};
use asterism_placement::Time;
use bulk::Bulk;
use ring::Ring;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use transmit::transmit_merged;
pub(crate) use transmit::{Failure, transmit};

/// How an [`AfPacketPort`] moves packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfPacketMode {
    /// By a ring that the kernel fills: for packets as they are on the wire, up to `slot_bytes`. Some 1.5 Mpps.
    #[default]
    Ring,
    /// By messages with offload headers: for interfaces that hand over packets of 64 KiB without checksums (offloads on). The
    /// most bytes a second, fewer packets. Wants a frame pool with
    /// [`STRIDE_BYTES_MAX`](crate::frame::STRIDE_BYTES_MAX).
    Bulk,
}

/// Ports of several instances on one interface: the kernel gives each flow to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// A number that all ports of the group share, and no other group in the network namespace has.
    pub group: u16,
}

/// How an [`AfPacketPort`] is opened. [`AfPacketConfig::new`] has sane values for all but the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// What the port is called in configuration, logs and metrics.
    pub name: String,
    /// The interface, in the network namespace of the thread that opens (and that calls `advance`, when it is opened again).
    pub interface: String,
    /// How packets are moved.
    pub mode: AfPacketMode,
    /// Ring: slots that the kernel may fill before the loop reads. Sane: 4096. Bound: 32 to [`RING_SLOTS_MAX`], rounded up to
    /// a power of two. Takes slots × `slot_bytes` of memory.
    pub ring_slots: u32,
    /// Ring: bytes of a slot, some 80 of which are the kernel's own. Sane: 2048; 16384 for jumbo frames. Bound: 2048 to
    /// [`SLOT_BYTES_MAX`], a power of two.
    pub slot_bytes: u32,
    /// Bytes that the kernel may queue: in bulk mode for receiving, in both for sending. Sane: 8 MiB.
    pub socket_buffer_bytes: u32,
    /// Receive packets to other Ethernet addresses too. Sane: true for a function that forwards for others.
    pub promiscuous: bool,
    /// Ring: send to the driver directly, past the queueing discipline. Sane: true. Packets then are not shaped, and a driver
    /// whose queue is full drops them (counted as `port-back-pressure`).
    pub bypasses_queueing: bool,
    /// Ring: hand segments of one TCP connection that follow each other in a burst to the interface as one packet, which it, or the
    /// kernel if it has no segmentation offload, cuts again: a fraction of the work for a segment. Sane: true towards a network
    /// card; false on veth and TAP interfaces with offloads on, which hand the long packet on uncut. Then all packets go by the
    /// queueing discipline, and `bypasses_queueing` has no meaning: a packet past it may not be cut.
    pub merges_segments: bool,
    /// Keep what the interface receives from the kernel's own network stack. Sane: true where nobody else lives on the interface.
    /// Needs Linux 6.6, `CAP_BPF` and `CAP_NET_ADMIN`.
    pub exclusive: bool,
    /// Share the interface with the ports of other instances. `None`: this port gets every packet.
    pub fanout: Option<Fanout>,
    /// What to do with the interface's offloads.
    pub offloads: Offloads,
}

impl AfPacketConfig {
    /// A port called `name` on `interface`, in ring mode.
    pub fn new(name: impl Into<String>, interface: impl Into<String>) -> AfPacketConfig {
        AfPacketConfig {
            name: name.into(),
            interface: interface.into(),
            mode: AfPacketMode::Ring,
            ring_slots: 4096,
            slot_bytes: 2048,
            socket_buffer_bytes: 8 << 20,
            promiscuous: true,
            bypasses_queueing: true,
            merges_segments: false,
            exclusive: false,
            fanout: None,
            offloads: Offloads::Keep,
        }
    }

    fn check(&self) -> Result<(), SettingError> {
        if !(32..=RING_SLOTS_MAX).contains(&self.ring_slots) {
            return Err(SettingError::RingSlots(self.ring_slots));
        }
        if !(2048..=SLOT_BYTES_MAX).contains(&self.slot_bytes) || !self.slot_bytes.is_power_of_two()
        {
            return Err(SettingError::SlotBytes(self.slot_bytes));
        }
        Ok(())
    }
}

/// A port on a network interface by a packet socket. Needs `CAP_NET_RAW` (and `CAP_NET_ADMIN` for `offloads = "off"`).
///
/// While the interface is down or gone, packets to it are dropped as `port-link-down`; an interface of that name that comes
/// back is opened by `advance`. Opening again allocates; nothing else does.
#[derive(Debug)]
pub struct AfPacketPort {
    config: AfPacketConfig,
    attachment: Attachment<Medium>,
    statistics: PortStatistics,
    /// What sockets that were closed since had counted, and this one up to the last look.
    kernel_drops: Cell<u64>,
    failure: Failure,
}

/// What is open on the interface.
#[derive(Debug)]
struct Medium {
    way: Direction,
    socket: OwnedFd,
    /// Sends merged segments. One that receives would have offload headers in its ring.
    merging: Option<OwnedFd>,
    /// Bytes of the interface's MTU at the last look.
    mtu: usize,
    _offloads: Option<OffloadsOff>,
    /// Keeps packets from the kernel while it is open.
    _exclusive: Option<OwnedFd>,
}

#[derive(Debug)]
enum Direction {
    Ring(Ring),
    Bulk(Box<Bulk>),
}

impl AsFd for Medium {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AfPacketPort {
    /// Opens the port: from here on packets of the interface wait in it. Fails in words when there is no such interface, when
    /// the capabilities are missing, or for values out of bounds.
    pub fn open(config: &AfPacketConfig) -> Result<AfPacketPort, PortError> {
        let checked = config.check();
        checked.map_err(|error| PortError::new(&config.name, error))?;
        let attachment = Attachment::new(&config.name, &config.interface, |interface, index| {
            open(config, interface, index)
        })?;
        Ok(AfPacketPort {
            config: config.clone(),
            attachment,
            statistics: PortStatistics::default(),
            kernel_drops: Cell::new(0),
            failure: Failure::default(),
        })
    }

    fn watch(&mut self) {
        self.take_kernel_drops();
        let config = &self.config;
        self.attachment
            .watch(|interface, index| open(config, interface, index));
        if let Some(medium) = &mut self.attachment.medium
            && let Ok(mtu) = self.attachment.interface.mtu()
        {
            medium.mtu = mtu as usize;
        }
    }

    /// The kernel's counters begin again whenever they are read.
    fn take_kernel_drops(&self) {
        if let Some(medium) = &self.attachment.medium
            && let Ok(counted) = system::option::<libc::tpacket_stats>(
                &medium.socket,
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
            )
        {
            let drops = self.kernel_drops.get() + u64::from(counted.tp_drops);
            self.kernel_drops.set(drops);
        }
    }

    fn too_long(&self, bytes: usize) -> PacketTooLongError {
        match self.config.mode {
            AfPacketMode::Ring => PacketTooLongError::Ring {
                bytes,
                slot_bytes: self.config.slot_bytes,
                interface: self.config.interface.clone(),
            },
            AfPacketMode::Bulk => PacketTooLongError::Bulk { bytes },
        }
    }
}

/// Makes a socket that receives nothing until all is set up, then ties it to the interface.
fn open(
    config: &AfPacketConfig,
    interface: &Interface,
    index: io::Result<u32>,
) -> Result<Medium, InterfaceError> {
    let index = index.map_err(|error| interface.refused("opening a port", error))?;
    if !interface.is_ethernet().unwrap_or(true) {
        let interface = interface.name().to_owned();
        return Err(InterfaceError::NotEthernet { interface });
    }
    let refused = |what: &'static str| move |error: io::Error| interface.refused(what, error);
    let offloads = apply_offloads(interface, config.offloads)?;
    // Protocol 0: no packet of any interface comes in before the socket is bound.
    let socket = system::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
        .map_err(refused("opening a packet socket"))?;
    let set = |name: i32, value: i32| system::set_option(&socket, libc::SOL_PACKET, name, &value);
    set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(refused("ignoring outgoing packets"))?;
    let sockets = |name: i32| {
        system::set_option(
            &socket,
            libc::SOL_SOCKET,
            name,
            &(config.socket_buffer_bytes.min(1 << 30) as i32),
        )
    };
    // Beyond the system's limit with CAP_NET_ADMIN, else up to it.
    sockets(libc::SO_SNDBUFFORCE)
        .or_else(|_| sockets(libc::SO_SNDBUF))
        .map_err(refused("sizing the socket's buffer"))?;
    let way = match config.mode {
        AfPacketMode::Ring => {
            if config.bypasses_queueing {
                set(libc::PACKET_QDISC_BYPASS, 1).map_err(refused("bypassing the queue"))?;
            }
            let ring = Ring::new(&socket, config.ring_slots, config.slot_bytes)
                .map_err(refused("making a receive ring"))?;
            Direction::Ring(ring)
        }
        AfPacketMode::Bulk => {
            sockets(libc::SO_RCVBUFFORCE)
                .or_else(|_| sockets(libc::SO_RCVBUF))
                .map_err(refused("sizing the socket's buffer"))?;
            set(libc::PACKET_VNET_HDR, 1).map_err(refused("asking for offload headers"))?;
            set(libc::PACKET_AUXDATA, 1).map_err(refused("asking for VLAN tags"))?;
            Direction::Bulk(Box::default())
        }
    };
    if config.promiscuous {
        let membership = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        system::set_option(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )
        .map_err(refused("listening to all addresses"))?;
    }
    system::bind_packet(&socket, index).map_err(refused("binding a packet socket"))?;
    if let Some(fanout) = config.fanout {
        let kind = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        set(
            libc::PACKET_FANOUT,
            i32::from(fanout.group) | (kind << 16) as i32,
        )
        .map_err(refused("joining the fanout group"))?;
    }
    let exclusive = config
        .exclusive
        .then(|| system::bpf::keep_from_kernel(index));
    let exclusive = exclusive
        .transpose()
        .map_err(|error| InterfaceError::Exclusive {
            interface: interface.name().to_owned(),
            error,
        })?;
    let merging = if config.merges_segments && config.mode == AfPacketMode::Ring {
        let sender = merging_sender(config, index);
        Some(sender.map_err(refused("opening a packet socket to send by"))?)
    } else {
        None
    };
    Ok(Medium {
        way,
        socket,
        merging,
        mtu: interface.mtu().unwrap_or(1500) as usize,
        _offloads: offloads,
        _exclusive: exclusive,
    })
}

/// A socket through which packets leave with offload headers.
fn merging_sender(config: &AfPacketConfig, index: u32) -> io::Result<OwnedFd> {
    let socket = system::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    let bytes = config.socket_buffer_bytes.min(1 << 30) as i32;
    system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))?;
    system::bind_packet_sender(&socket, index)?;
    Ok(socket)
}

impl Port for AfPacketPort {
    fn name(&self) -> &str {
        self.attachment.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let Some(medium) = &mut self.attachment.medium else {
            return 0;
        };
        match &mut medium.way {
            Direction::Ring(ring) => {
                ring.receive(pool, burst, &mut self.statistics, &mut self.failure)
            }
            Direction::Bulk(bulk) => bulk.receive(
                medium.socket.as_fd(),
                pool,
                burst,
                &mut self.statistics,
                &mut self.failure,
            ),
        }
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let statistics = &mut self.statistics;
        // Without a carrier the kernel drops silently, or says that its queue is full.
        let down = self.attachment.is_down();
        let Some(medium) = self.attachment.medium.as_ref().filter(|_| !down) else {
            statistics.count_dropped_many(PortDrop::LinkDown, burst.len());
            pool.release_all(burst);
            return 0;
        };
        let (socket, failure) = (medium.socket.as_fd(), &mut self.failure);
        let sent = match medium.way {
            Direction::Ring(_) => offload::plainly(
                pool,
                burst,
                statistics,
                |pool, burst, statistics| match &medium.merging {
                    Some(merging) => {
                        let (socket, mtu) = (merging.as_fd(), medium.mtu);
                        transmit_merged(socket, pool, burst, mtu, statistics, failure)
                    }
                    None => transmit(socket, pool, burst, None, statistics, failure),
                },
            ),
            Direction::Bulk(_) => {
                let mut headers = [[0; HEADER_BYTES]; BURST];
                if burst.iter().any(crate::frame::Frame::is_offloaded) {
                    bulk::describe(pool, burst, &mut headers, statistics);
                }
                transmit(socket, pool, burst, Some(&headers), statistics, failure)
            }
        };
        if std::mem::take(&mut failure.link_down) {
            self.attachment.watch_soon();
        }
        sent
    }

    fn statistics(&self) -> PortStatistics {
        self.take_kernel_drops();
        let mut statistics = self.statistics;
        statistics.dropped[PortDrop::KernelQueue as usize] += self.kernel_drops.get();
        self.attachment.add_to(&mut statistics);
        statistics
    }

    fn advance(&mut self, now: Time) {
        if self.attachment.advance(now) {
            self.watch();
        }
    }

    fn next_due(&self) -> Option<Time> {
        Some(self.attachment.next_due())
    }

    fn flush(&mut self, _pool: &mut FramePool) -> Result<(), PortError> {
        if self.attachment.take_socket_error() {
            self.watch();
        }
        if let Some(bytes) = self.failure.take_too_long() {
            let too_long = self.too_long(bytes);
            self.attachment.report(too_long);
        }
        if let Some(why) = self.failure.take_sending() {
            let interface = &self.attachment.interface;
            let reported = interface.refused("sending", why);
            self.attachment.report(reported);
        }
        self.attachment.take_problem()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.attachment.medium.as_ref().map(AsFd::as_fd)
    }

    fn link(&self) -> LinkState {
        self.attachment.link()
    }
}
