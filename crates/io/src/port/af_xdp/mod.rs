//! Packets of one queue of a network interface by an AF_XDP socket (`Documentation/networking/af_xdp.rst`), on system calls
//! alone: `rings.rs` has the shared memory, `system/bpf.rs` the program that hands packets to the socket.
//!
//! Packets are copied between the socket's memory and the frame pool, so that a pool serves ports of every kind
//! (`docs/src/architecture/packet-path.md`).

mod rings;

use super::interface::{
    Attachment, Interface, InterfaceError, LinkState, Offloads, OffloadsOff, apply_offloads,
    patiently,
};
use super::offload::{complete_if_partial, plainly};
use super::setting::{SettingError, XDP_CHUNKS_MAX};
use super::system::{self, bpf};
use super::{PacketTooLongError, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{Burst, FramePool};
use asterism_placement::Time;
use rings::Rings;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// System calls made for one burst, at most, until the kernel has taken all of it.
const KICKS_MAX: u32 = 8;
const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;

/// Where in the kernel packets are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver. Fails for drivers that have no XDP.
    #[default]
    Native,
    /// Behind the driver: every interface can, and on veth it is no slower.
    Generic,
}

/// How an [`AfXdpPort`] is opened. [`AfXdpConfig::new`] has sane values for all but the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// What the port is called in configuration, logs and metrics.
    pub name: String,
    /// The interface, in the network namespace of the thread that opens (and that calls `advance`, when it is opened again).
    pub interface: String,
    /// The queue of the interface. Packets of its other queues go to the kernel: interfaces with several are best asked to use one
    /// (`ethtool -L … combined 1`). One port an interface.
    pub queue: u32,
    /// Where packets are taken.
    pub mode: XdpMode,
    /// Packets that may wait each way. Sane: 2048. Bound: 64 to [`XDP_CHUNKS_MAX`], rounded up to a power of two.
    pub chunks: u32,
    /// Bytes for each of them, 256 of which are the kernel's. 2048 or 4096: longer packets cannot be received.
    pub chunk_bytes: u32,
    /// Complete the checksum of packets received with only their pseudo header's sum in it. XDP does not say that the sender
    /// left it to the hardware, which over veth every local sender does.
    pub completes_checksums: bool,
    /// What to do with the interface's offloads.
    pub offloads: Offloads,
}

impl AfXdpConfig {
    /// A port called `name` on queue 0 of `interface`, in native mode.
    pub fn new(name: impl Into<String>, interface: impl Into<String>) -> AfXdpConfig {
        AfXdpConfig {
            name: name.into(),
            interface: interface.into(),
            queue: 0,
            mode: XdpMode::Native,
            chunks: 2048,
            chunk_bytes: 2048,
            completes_checksums: true,
            offloads: Offloads::Keep,
        }
    }

    fn check(&self) -> Result<(), SettingError> {
        if !(64..=XDP_CHUNKS_MAX).contains(&self.chunks) {
            return Err(SettingError::Chunks(self.chunks));
        }
        if !matches!(self.chunk_bytes, 2048 | 4096) {
            return Err(SettingError::ChunkBytes(self.chunk_bytes));
        }
        Ok(())
    }
}

/// A port on a queue of a network interface by AF_XDP. Needs `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`.
///
/// While the interface is down or gone, packets to it are dropped as `port-link-down`; an interface of that name that comes
/// back is opened by `advance`. Opening again allocates; nothing else does.
#[derive(Debug)]
pub struct AfXdpPort {
    config: AfXdpConfig,
    attachment: Attachment<Medium>,
    statistics: PortStatistics,
    /// What sockets that were closed since had counted, and what this one had when last asked.
    kernel_drops: Cell<(u64, u64)>,
    /// The first error of sending that no reason is for.
    sending: Option<i32>,
    long_bytes: usize,
    reported_long: bool,
    mtu: usize,
}

/// What is open on the interface. Dropped in this order: the rings' mappings first, else the queue stays busy.
#[derive(Debug)]
struct Medium {
    rings: Rings,
    socket: OwnedFd,
    _attached: OwnedFd,
    _map: OwnedFd,
    _offloads: Option<OffloadsOff>,
}

impl AsFd for Medium {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AfXdpPort {
    /// Opens the port. Waits up to half a second while the kernel lets go of a port on the same queue that was closed just now.
    /// Fails in words when there is no such interface, when capabilities or XDP are missing, or for values out of bounds.
    pub fn open(config: &AfXdpConfig) -> Result<AfXdpPort, PortError> {
        let checked = config.check();
        checked.map_err(|error| PortError::new(&config.name, error))?;
        let attachment = Attachment::new(&config.name, &config.interface, |interface, index| {
            let index = index.map_err(|error| interface.refused("opening a port", error))?;
            patiently(|| open(config, interface, index))
        })?;
        let mtu = attachment.interface.mtu().unwrap_or(1500) as usize;
        Ok(AfXdpPort {
            config: config.clone(),
            attachment,
            statistics: PortStatistics::default(),
            kernel_drops: Cell::default(),
            sending: None,
            long_bytes: 0,
            reported_long: false,
            mtu,
        })
    }

    fn watch(&mut self) {
        self.look_at_kernel_drops();
        let config = &self.config;
        let before = self.attachment.reopened();
        self.attachment.watch(|interface, index| {
            let index = index.map_err(|error| interface.refused("opening again", error))?;
            open(config, interface, index)
        });
        if self.attachment.reopened() != before {
            let (past, last) = self.kernel_drops.get();
            self.kernel_drops.set((past + last, 0));
        }
        if let Ok(mtu) = self.attachment.interface.mtu() {
            self.mtu = mtu as usize;
        }
    }

    fn look_at_kernel_drops(&self) {
        if let Some(medium) = &self.attachment.medium
            && let Ok(counted) = system::option::<libc::xdp_statistics>(
                &medium.socket,
                libc::SOL_XDP,
                libc::XDP_STATISTICS,
            )
        {
            let (past, _) = self.kernel_drops.get();
            self.kernel_drops
                .set((past, counted.rx_dropped + counted.rx_ring_full));
        }
    }
}

fn open(config: &AfXdpConfig, interface: &Interface, index: u32) -> Result<Medium, InterfaceError> {
    let refused = |what: &'static str| move |error: io::Error| interface.refused(what, error);
    let offloads = apply_offloads(interface, config.offloads)?;
    let map = bpf::socket_map(config.queue + 1).map_err(refused("making a socket map"))?;
    let program = bpf::redirecting_program(&map).map_err(refused("loading an XDP program"))?;
    let attached = bpf::attach(&program, index, config.mode == XdpMode::Native)
        .map_err(refused("attaching an XDP program"))?;
    let socket = system::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
        .map_err(refused("opening an AF_XDP socket"))?;
    let rings = Rings::new(
        &socket,
        config.chunks.next_power_of_two(),
        config.chunk_bytes,
    )
    .map_err(refused("making an AF_XDP socket's rings"))?;
    system::bind_xdp(
        &socket,
        index,
        config.queue,
        libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
    )
    .map_err(refused("binding an AF_XDP socket"))?;
    bpf::put_socket(&map, config.queue, &socket).map_err(refused("directing packets"))?;
    Ok(Medium {
        rings,
        socket,
        _attached: attached,
        _map: map,
        _offloads: offloads,
    })
}

/// Puts a burst into the transmit ring and wakes the kernel.
fn transmit(
    medium: &mut Medium,
    mtu: usize,
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
) -> (usize, Option<io::Error>) {
    let Medium { rings, socket, .. } = medium;
    rings.reclaim();
    let mut error = None;
    if (rings.free.len() as u32) < burst.len() as u32 {
        error = kick(rings, socket);
        rings.reclaim();
    }
    let mut sent = 0;
    for frame in burst.iter() {
        let length = frame.len();
        let reason = if length < ETHERNET_BYTES {
            PortDrop::TooShort
        } else if length > mtu + ETHERNET_BYTES + VLAN_BYTES {
            PortDrop::BeyondMtu
        } else if length > rings.chunk_bytes as usize {
            PortDrop::TooLong
        } else if rings.transmit.room(1) == 0 {
            PortDrop::QueueFull
        } else if let Some(chunk) = rings.free.pop() {
            rings.chunks.copy_in(chunk as usize, pool.bytes(frame));
            rings.transmit.put(chunk, length as u32);
            statistics.count_sent(length);
            sent += 1;
            continue;
        } else {
            PortDrop::QueueFull
        };
        statistics.count_dropped(reason);
    }
    pool.release_all(burst);
    if sent > 0 {
        rings.transmit.publish();
        error = kick(rings, socket).or(error);
    }
    (sent, error)
}

/// Wakes the kernel if it waits for that, until it has taken all; an error that is more than "not now".
fn kick(rings: &mut Rings, socket: &OwnedFd) -> Option<io::Error> {
    for _ in 0..KICKS_MAX {
        if !rings.transmit.needs_wakeup() {
            return None;
        }
        match system::wake_sender(socket) {
            Ok(()) => return None,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                _ => return Some(error),
            },
        }
    }
    None
}

impl Port for AfXdpPort {
    fn name(&self) -> &str {
        self.attachment.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let Some(medium) = &mut self.attachment.medium else {
            return 0;
        };
        let rings = &mut medium.rings;
        let statistics = &mut self.statistics;
        let before = burst.len();
        let mut taken = 0;
        while burst.room() > 0 && rings.receive.waiting() > 0 && rings.fill.room(1) > 0 {
            let Some(mut frame) = pool.allocate() else {
                break;
            };
            let (address, length) = rings.receive.take();
            taken += 1;
            let fits = pool.set_length(&mut frame, length as usize)
                && rings
                    .chunks
                    .copy_out(address as usize, pool.bytes_mut(&mut frame));
            let chunk = address & !(u64::from(rings.chunk_bytes) - 1);
            rings.fill.put(chunk, 0);
            if !fits {
                statistics.count_dropped(PortDrop::TooLong);
                self.long_bytes = length as usize;
                pool.release(frame);
                continue;
            }
            if self.config.completes_checksums && complete_if_partial(pool.bytes_mut(&mut frame)) {
                statistics.checksums_completed += 1;
            }
            statistics.count_received(frame.len());
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
            }
        }
        if taken > 0 {
            rings.receive.give_back();
            rings.fill.publish();
        }
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let statistics = &mut self.statistics;
        // While the link is down the socket would take them for the time when it is up again.
        let down = self.attachment.is_down();
        let Some(medium) = self.attachment.medium.as_mut().filter(|_| !down) else {
            statistics.count_dropped_many(PortDrop::LinkDown, burst.len());
            pool.release_all(burst);
            return 0;
        };
        let mtu = self.mtu;
        let mut failed = None;
        let sent = plainly(pool, burst, statistics, |pool, burst, statistics| {
            let (sent, error) = transmit(medium, mtu, pool, burst, statistics);
            failed = failed.take().or(error);
            sent
        });
        if let Some(error) = failed {
            self.attachment.watch_soon();
            if !matches!(
                error.raw_os_error(),
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
            ) {
                self.sending = self.sending.or(error.raw_os_error());
            }
        }
        sent
    }

    fn statistics(&self) -> PortStatistics {
        self.look_at_kernel_drops();
        let mut statistics = self.statistics;
        let (past, now) = self.kernel_drops.get();
        statistics.dropped[PortDrop::KernelQueue as usize] += past + now;
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
        if let Some(medium) = &mut self.attachment.medium {
            // What the kernel did not take at once waits in the ring.
            if let Some(error) = kick(&mut medium.rings, &medium.socket) {
                self.sending = self.sending.or(error.raw_os_error());
            }
            medium.rings.reclaim();
        }
        if self.long_bytes > 0 && !self.reported_long {
            self.reported_long = true;
            let bytes = self.long_bytes;
            self.attachment.report(PacketTooLongError::Xdp { bytes });
        }
        if let Some(number) = self.sending.take() {
            let interface = &self.attachment.interface;
            let reported = interface.refused("sending", io::Error::from_raw_os_error(number));
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
