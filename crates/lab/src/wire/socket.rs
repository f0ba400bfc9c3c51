//! Raw frames of one interface: a TPACKET_V2 receive ring and batched sends, both with the kernel's meta-data
//! (`PACKET_VNET_HDR`), so that frames without checksum and of 64 KiB pass as they are.
//!
//! Sources: packet(7), linux/if_packet.h, Documentation/networking/packet_mmap.rst.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of `struct virtio_net_hdr`, which stands before every frame.
pub(crate) const META_BYTES: usize = 10;
/// Frames sent by one system call at most.
pub(crate) const BATCH: usize = 64;
/// Bytes of a block of the ring, at least.
const BLOCK_BYTES: usize = 64 * 1024;
/// Bytes that the kernel may have under way for the sending socket.
const SEND_BUFFER_BYTES: libc::c_int = 16 << 20;

/// `struct tpacket2_hdr`.
#[repr(C)]
struct Header {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    network: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_tag: u16,
    vlan_type: u16,
    padding: [u8; 4],
}

/// What a port could not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFaults {
    /// Frames that the kernel dropped because the ring was full: the wire was not running for too long.
    pub ring_full: u64,
    /// Frames longer than the ring's slots, or with a VLAN tag, which the wire does not carry.
    pub not_carried: u64,
    /// Frames that the kernel did not take for sending.
    pub not_sent: u64,
}

/// The two sockets of an interface.
#[derive(Debug)]
pub(crate) struct RawInterface {
    receiver: OwnedFd,
    sender: OwnedFd,
    ring: NonNull<u8>,
    ring_bytes: usize,
    slot_bytes: usize,
    slots: usize,
    next: usize,
    faults: PortFaults,
}

// SAFETY: the mapping belongs to the process; only the owner of the value touches it.
unsafe impl Send for RawInterface {}

impl RawInterface {
    /// Opens an interface of the calling thread's namespace, with slots for frames of up to `frame_bytes`.
    pub(crate) fn open(
        index: i32,
        frame_bytes: usize,
        ring_bytes: usize,
    ) -> io::Result<RawInterface> {
        // The slot also holds the header and room before the frame; powers of two divide blocks evenly.
        let slot_bytes = (frame_bytes + 256).next_power_of_two();
        let block_bytes = slot_bytes.max(BLOCK_BYTES);
        let blocks = (ring_bytes / block_bytes).max(1);
        let ring_bytes = blocks * block_bytes;
        let slots = ring_bytes / slot_bytes;

        let receiver = packet_socket()?;
        set(
            &receiver,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as libc::c_int),
        )?;
        set(&receiver, libc::PACKET_VNET_HDR, &1)?;
        set(&receiver, libc::PACKET_IGNORE_OUTGOING, &1)?;
        let count = |number: usize| {
            libc::c_uint::try_from(number).map_err(|_| io::Error::other("the ring is too large"))
        };
        let request = libc::tpacket_req {
            tp_block_size: count(block_bytes)?,
            tp_block_nr: count(blocks)?,
            tp_frame_size: count(slot_bytes)?,
            tp_frame_nr: count(slots)?,
        };
        set(&receiver, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping over the ring that was just made; no address is asked for.
        let ring = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                ring_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                receiver.as_raw_fd(),
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(ring) = NonNull::new(ring.cast::<u8>()) else {
            return Err(io::Error::other("the ring was mapped at address zero"));
        };
        let opened = RawInterface {
            receiver,
            sender: packet_socket()?,
            ring,
            ring_bytes,
            slot_bytes,
            slots,
            next: 0,
            faults: PortFaults::default(),
        };
        set(&opened.sender, libc::PACKET_VNET_HDR, &1)?;
        set(&opened.sender, libc::PACKET_QDISC_BYPASS, &1)?;
        set_at(
            &opened.sender,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &SEND_BUFFER_BYTES,
        )?;
        // Bound last: until then nothing arrives. The sender has protocol 0 and never receives.
        bind(&opened.sender, index, 0)?;
        bind(&opened.receiver, index, libc::ETH_P_ALL as u16)?;
        Ok(opened)
    }

    /// Hands over up to `frames_max` frames that have arrived, each with when (nanoseconds of the real clock) and its
    /// meta-data before it; returns how many.
    pub(crate) fn receive(&mut self, frames_max: usize, mut each: impl FnMut(u64, &[u8])) -> usize {
        let mut taken = 0;
        while taken < frames_max {
            // SAFETY: `next` is below `slots`, so the slot lies in the mapping, which lives as long as `self`.
            let slot = unsafe { self.ring.add(self.next * self.slot_bytes) };
            // SAFETY: a slot begins with its status word, aligned to 16 bytes, shared with the kernel as an atomic.
            let status = unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) };
            let now = status.load(Ordering::Acquire);
            if now & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the slot is ours until its status is given back; the kernel filled the header.
            let header = unsafe { &*slot.as_ptr().cast::<Header>() };
            let (start, length) = (usize::from(header.mac), header.captured as usize);
            let whole = header.captured == header.length
                && now & libc::TP_STATUS_VLAN_VALID == 0
                && start >= META_BYTES + size_of::<Header>()
                && start + length <= self.slot_bytes;
            if whole {
                // SAFETY: checked to lie within the slot, which is ours and which nobody writes meanwhile.
                let bytes = unsafe {
                    core::slice::from_raw_parts(
                        slot.as_ptr().add(start - META_BYTES),
                        META_BYTES + length,
                    )
                };
                let real_ns =
                    u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanoseconds);
                each(real_ns, bytes);
            } else {
                self.faults.not_carried += 1;
            }
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
            taken += 1;
        }
        taken
    }

    /// Sends up to [`BATCH`] frames, each with its meta-data before it. What the kernel does not take is counted.
    pub(crate) fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) {
        // SAFETY: all zeroes are messages without name, content and control data.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { core::mem::zeroed() };
        let mut parts = [libc::iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let mut count = 0;
        for (frame, part) in frames.zip(&mut parts) {
            part.iov_base = frame.as_ptr().cast_mut().cast();
            part.iov_len = frame.len();
            count += 1;
        }
        for (message, part) in messages.iter_mut().zip(&mut parts).take(count) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        let mut sent = 0;
        while sent < count {
            // SAFETY: `sent..count` are messages whose parts point to bytes that outlive the call; the kernel only reads them.
            let result = unsafe {
                libc::sendmmsg(
                    self.sender.as_raw_fd(),
                    messages[sent..count].as_mut_ptr(),
                    (count - sent) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(result) {
                Ok(taken) if taken > 0 => sent += taken,
                _ => {
                    // The first of the rest was refused: a full queue, an interface that is down.
                    self.faults.not_sent += 1;
                    sent += 1;
                }
            }
        }
    }

    /// What went wrong since it was opened.
    pub(crate) fn faults(&mut self) -> PortFaults {
        // SAFETY: all zeroes are counts of zero.
        let mut counts: libc::tpacket_stats = unsafe { core::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both point to places of the stated size. The kernel counts again after each reading.
        let result = unsafe {
            libc::getsockopt(
                self.receiver.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counts).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            self.faults.ring_full += u64::from(counts.tp_drops);
        }
        self.faults
    }

    pub(crate) fn descriptor(&self) -> libc::c_int {
        self.receiver.as_raw_fd()
    }
}

impl Drop for RawInterface {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing refers to any more.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.ring_bytes) };
    }
}

/// Waits until one of the descriptors can be read, at most for `time`. Interrupted, it returns early.
pub(crate) fn wait_readable(descriptors: &mut [libc::pollfd], time: Option<Duration>) {
    let timeout = time.map(|time| libc::timespec {
        tv_sec: time.as_secs().min(3_600).cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    });
    let pointer = timeout
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the array and the timeout live until the call returns; no signal mask is given.
    unsafe {
        libc::ppoll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            pointer,
            core::ptr::null(),
        )
    };
}

/// Makes the calling thread's sleeps exact to a nanosecond instead of 50 µs, and prefers it where that is allowed.
pub(crate) fn keep_time() {
    // SAFETY: neither call takes pointers; both concern the calling thread alone. Refused, the lateness shows it.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
    }
}

/// A raw socket that receives nothing before it is bound.
fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn bind(socket: &OwnedFd, index: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeroes are an address without interface.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    // SAFETY: the address lives until the call returns and has the stated size.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

fn set_at<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the value lives until the call returns and has the stated size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            core::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
