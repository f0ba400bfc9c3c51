//! A TAP interface: the kernel's own network stack, or a virtual machine, as the other side (`Documentation/networking/tuntap.rst`).
//!
//! Packets go one system call each. With offload headers on, the kernel hands over TCP of up to 64 KiB without checksums, and
//! takes such.

use super::af_packet::Failure;
use super::interface::{
    Attachment, DeviceCounters, Interface, InterfaceError, LinkState, patiently,
};
use super::offload::{self, Offload, header_of};
use super::setting::{SettingError, TAP_MTU_MAX};
use super::system::{self, HEADER_BYTES};
use super::{PacketTooLongError, Port, PortDrop, PortError, PortStatistics};
use crate::frame::{Burst, Frame, FramePool};
use asterism_placement::Time;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

const ETHERNET_BYTES: usize = 14;

/// How a [`TapPort`] is opened. [`TapConfig::new`] has sane values for all but the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// What the port is called in configuration, logs and metrics.
    pub name: String,
    /// The interface. It is made if there is none, and vanishes with the port unless `persistent`.
    pub interface: String,
    /// Set the interface up.
    pub up: bool,
    /// Its MTU in bytes. `None`: as it is (1500 for a new one). Bound: 68 to [`TAP_MTU_MAX`].
    pub mtu: Option<u32>,
    /// Let packets pass without checksums and of up to 64 KiB, which spares the kernel and the port work for each 1,500
    /// bytes. Wants a frame pool with [`STRIDE_BYTES_MAX`](crate::frame::STRIDE_BYTES_MAX). Off: packets are as on a wire.
    pub offloads: bool,
    /// Share the interface with the ports of other instances; the kernel gives each flow to one of them. All say so or none.
    pub multi_queue: bool,
    /// Keep the interface, with its addresses, when the port closes.
    pub persistent: bool,
}

impl TapConfig {
    /// A port called `name` on a TAP interface, set up, without offloads.
    pub fn new(name: impl Into<String>, interface: impl Into<String>) -> TapConfig {
        TapConfig {
            name: name.into(),
            interface: interface.into(),
            up: true,
            mtu: None,
            offloads: false,
            multi_queue: false,
            persistent: false,
        }
    }
}

/// A port to a TAP interface. Needs `CAP_NET_ADMIN`, or an interface made for this user (`ip tuntap add … user …`).
///
/// An interface that somebody deletes is made again by `advance`.
#[derive(Debug)]
pub struct TapPort {
    config: TapConfig,
    attachment: Attachment<File>,
    statistics: PortStatistics,
    counters: Option<DeviceCounters>,
    failure: Failure,
}

impl TapPort {
    /// Makes the interface or attaches to it. Waits up to half a second for one that is still held. Fails in words when the capability is missing, when the name is that of another kind of
    /// interface or one that another program holds, or for values out of bounds.
    pub fn open(config: &TapConfig) -> Result<TapPort, PortError> {
        if let Some(mtu) = config.mtu
            && !(68..=TAP_MTU_MAX).contains(&mtu)
        {
            return Err(PortError::new(&config.name, SettingError::TapMtu(mtu)));
        }
        let attachment = Attachment::new(&config.name, &config.interface, |interface, _| {
            patiently(|| open(config, interface))
        })?;
        Ok(TapPort {
            config: config.clone(),
            attachment,
            statistics: PortStatistics::default(),
            counters: DeviceCounters::new(),
            failure: Failure::default(),
        })
    }

    fn watch(&mut self) {
        let config = &self.config;
        // Deleted by somebody: made again, because nobody else would.
        self.attachment
            .watch(|interface, _| open(config, interface));
    }
}

fn open(config: &TapConfig, interface: &Interface) -> Result<File, InterfaceError> {
    let refused = |what: &'static str| move |error: io::Error| interface.refused(what, error);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(refused("opening /dev/net/tun"))?;
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if config.offloads {
        flags |= libc::IFF_VNET_HDR;
    }
    if config.multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    system::interface_control(&file, libc::TUNSETIFF, &config.interface, flags as u64)
        .map_err(refused("attaching to a TAP interface"))?;
    if config.offloads {
        system::control_value(&file, libc::TUNSETVNETHDRSZ, HEADER_BYTES as i32)
            .map_err(refused("asking for offload headers"))?;
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        // Kernels before 6.2 do not know UDP's.
        system::control_number(&file, libc::TUNSETOFFLOAD, u64::from(tcp | udp))
            .or_else(|_| system::control_number(&file, libc::TUNSETOFFLOAD, u64::from(tcp)))
            .map_err(refused("switching offloads on"))?;
    } else {
        system::control_number(&file, libc::TUNSETOFFLOAD, 0)
            .map_err(refused("switching offloads off"))?;
    }
    if config.persistent {
        system::control_number(&file, libc::TUNSETPERSIST, 1)
            .map_err(refused("keeping the interface"))?;
    }
    if let Some(mtu) = config.mtu {
        interface.set_mtu(mtu).map_err(refused("setting the MTU"))?;
    }
    if config.up {
        interface.set_up().map_err(refused("setting it up"))?;
    }
    Ok(file)
}

/// Sends every packet; one system call each.
fn transmit(
    mut file: &File,
    offloads: bool,
    pool: &mut FramePool,
    burst: &mut Burst,
    statistics: &mut PortStatistics,
    failure: &mut Failure,
) -> usize {
    let mut sent = 0;
    for mut frame in burst.drain() {
        let result = if frame.len() < ETHERNET_BYTES {
            Err(PortDrop::TooShort)
        } else if offloads {
            header_of(pool, &mut frame, statistics).and_then(|header| {
                let parts = [IoSlice::new(&header), IoSlice::new(pool.bytes(&frame))];
                taken(file.write_vectored(&parts), failure)
            })
        } else {
            taken(file.write(pool.bytes(&frame)), failure)
        };
        match result {
            Ok(()) => {
                statistics.count_sent(frame.len());
                sent += 1;
            }
            Err(reason) => statistics.count_dropped(reason),
        }
        pool.release(frame);
    }
    sent
}

fn taken(result: io::Result<usize>, failure: &mut Failure) -> Result<(), PortDrop> {
    let Err(error) = result else {
        return Ok(());
    };
    Err(match error.raw_os_error() {
        // What the interface says while it is down, and what a file says whose interface was deleted.
        Some(libc::EIO | libc::EBADFD | libc::ENODEV | libc::ENETDOWN) => {
            failure.link_down = true;
            PortDrop::LinkDown
        }
        Some(libc::EMSGSIZE) => PortDrop::BeyondMtu,
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => PortDrop::BackPressure,
        _ => {
            failure.sending(&error);
            PortDrop::WriteFailed
        }
    })
}

impl Port for TapPort {
    fn name(&self) -> &str {
        self.attachment.name()
    }

    fn receive(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let Some(mut file) = self.attachment.medium.as_ref() else {
            return 0;
        };
        let before = burst.len();
        while burst.room() > 0 {
            let Some(mut frame) = pool.allocate() else {
                break;
            };
            let mut header = [0; HEADER_BYTES];
            let space = pool.space_mut(&mut frame);
            let room = space.len();
            let read = if self.config.offloads {
                let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(space)];
                file.read_vectored(&mut parts)
                    .map(|bytes| bytes.saturating_sub(HEADER_BYTES))
            } else {
                file.read(space)
            };
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.failure.link_down |= error.raw_os_error() == Some(libc::EBADFD);
                    pool.release(frame);
                    break;
                }
            };
            // The kernel cuts what does not fit and does not say so.
            let reason = if bytes >= room || !pool.set_length(&mut frame, bytes) {
                self.failure.too_long(bytes);
                Some(PortDrop::TooLong)
            } else {
                match Offload::parse(&header, pool.bytes(&frame)) {
                    Ok(offload) => {
                        if let Some(offload) = offload {
                            offload.note(pool, &mut frame);
                        }
                        None
                    }
                    Err(_) => Some(PortDrop::BadDescriptor),
                }
            };
            if let Some(reason) = reason {
                self.statistics.count_dropped(reason);
                pool.release(frame);
                continue;
            }
            self.statistics.count_received(bytes);
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
            }
        }
        if self.failure.link_down {
            self.attachment.watch_soon();
        }
        burst.len() - before
    }

    fn send(&mut self, pool: &mut FramePool, burst: &mut Burst) -> usize {
        let statistics = &mut self.statistics;
        let Some(file) = self.attachment.medium.as_ref() else {
            statistics.count_dropped_many(PortDrop::LinkDown, burst.len());
            pool.release_all(burst);
            return 0;
        };
        let failure = &mut self.failure;
        let sent = if self.config.offloads {
            transmit(file, true, pool, burst, statistics, failure)
        } else if burst.iter().any(Frame::is_offloaded) {
            offload::plainly(pool, burst, statistics, |pool, burst, statistics| {
                transmit(file, false, pool, burst, statistics, failure)
            })
        } else {
            transmit(file, false, pool, burst, statistics, failure)
        };
        if failure.link_down {
            self.attachment.watch_soon();
        }
        sent
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.statistics;
        let name = &self.config.interface;
        let dropped = self
            .counters
            .as_ref()
            .map(|counters| counters.transmit_dropped(name));
        statistics.dropped[PortDrop::KernelQueue as usize] += dropped.unwrap_or(0);
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
        if std::mem::take(&mut self.failure.link_down) {
            self.watch();
        }
        if let Some(bytes) = self.failure.take_too_long() {
            let interface = self.config.interface.clone();
            self.attachment
                .report(PacketTooLongError::Tap { bytes, interface });
        }
        if let Some(why) = self.failure.take_sending() {
            let reported = self.attachment.interface.refused("sending", why);
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
