//! Bursts of frames through a socket, one system call each way, with the offload header in front of each packet if the socket
//! speaks it; and descriptors sent to another process.

use crate::frame::{BURST, Frame, FramePool};
use crate::port::offload::Runs;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of the header that says what is left to do with a packet: `struct virtio_net_hdr`.
pub(crate) const HEADER_BYTES: usize = 10;
/// That header.
pub(crate) type Header = [u8; HEADER_BYTES];

/// What the kernel says beside a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Auxiliary {
    /// `TP_STATUS_…`.
    pub(crate) status: u32,
    /// The tag that was taken off.
    pub(crate) vlan_tag: u16,
    /// Its Ethernet type.
    pub(crate) vlan_type: u16,
}

/// One received packet: its frame's content begins at the packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The packet's length on the wire; more than the frame holds if it was cut.
    pub(crate) bytes: usize,
    pub(crate) header: Header,
    pub(crate) auxiliary: Auxiliary,
}

/// Room for one control message with `struct tpacket_auxdata`, aligned for it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 48]);

/// Sends the first of `frames` (at most a burst); returns how many were taken. With `headers`, one goes in front of each.
/// The error is about the first frame: those behind it were not tried.
pub(crate) fn send_frames(
    socket: BorrowedFd<'_>,
    pool: &mut FramePool,
    frames: &[Frame],
    headers: Option<&[Header]>,
) -> io::Result<usize> {
    let with_header = headers.map_or(BURST, <[Header]>::len);
    let count = frames.len().min(BURST).min(with_header);
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * BURST];
    // SAFETY: `mmsghdr` is numbers and pointers: zeroes are a value of it.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { mem::zeroed() };
    for (place, frame) in frames.iter().take(count).enumerate() {
        let (packet, room) = pool.room(frame);
        let header = headers.map_or(std::ptr::null(), |headers| headers[place].as_ptr());
        parts[2 * place].write(libc::iovec {
            iov_base: header.cast_mut().cast(),
            iov_len: HEADER_BYTES,
        });
        parts[2 * place + 1].write(libc::iovec {
            iov_base: packet.cast(),
            iov_len: frame.len().min(room),
        });
        let skipped = usize::from(headers.is_none());
        let message = &mut messages[place].msg_hdr;
        message.msg_iov = parts[2 * place + skipped].as_mut_ptr();
        message.msg_iovlen = 2 - skipped;
    }
    // SAFETY: `count` messages whose parts were written above; they point into the pool's mapping and into `headers`, of which
    // the kernel reads.
    unsafe { send_messages(socket, &mut messages[..count]) }
}

/// Sends messages by one call; returns how many were taken. The error is about the first.
///
/// # Safety
/// Their parts point to memory that may be read.
unsafe fn send_messages(
    socket: BorrowedFd<'_>,
    messages: &mut [libc::mmsghdr],
) -> io::Result<usize> {
    // SAFETY: as many messages as are said, whose parts may be read, by the caller.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as u32,
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends the frames of a burst from `at` on, each run of them as one packet; returns how many frames were taken. The error is about
/// the first run.
pub(crate) fn send_runs(
    socket: BorrowedFd<'_>,
    pool: &mut FramePool,
    frames: &[Frame],
    runs: &Runs,
    at: usize,
) -> io::Result<usize> {
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * BURST];
    // SAFETY: `mmsghdr` is numbers and pointers: zeroes are a value of it.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { mem::zeroed() };
    let frames = &frames[..frames.len().min(BURST)];
    let (mut next, mut count, mut used) = (at, 0, 0);
    while next < frames.len() {
        let run = &frames[next..(next + runs.frames(next)).min(frames.len())];
        let begin = used;
        parts[used].write(libc::iovec {
            iov_base: runs.header(next).as_ptr().cast_mut().cast(),
            iov_len: HEADER_BYTES,
        });
        used += 1;
        for (place, frame) in run.iter().enumerate() {
            let (packet, room) = pool.room(frame);
            let length = frame.len().min(room);
            let skipped = if place == 0 {
                0
            } else {
                runs.payload_at(next).min(length)
            };
            parts[used].write(libc::iovec {
                iov_base: packet.wrapping_add(skipped).cast(),
                iov_len: length - skipped,
            });
            used += 1;
        }
        let message = &mut messages[count].msg_hdr;
        message.msg_iov = parts[begin].as_mut_ptr();
        message.msg_iovlen = used - begin;
        count += 1;
        next += run.len();
    }
    // SAFETY: `count` messages whose parts were written above, at most two for each frame; they point into the pool's mapping
    // and into `runs`, of which the kernel reads.
    let sent = unsafe { send_messages(socket, &mut messages[..count])? };
    Ok((0..sent).fold(0, |taken, _| taken + runs.frames(at + taken)))
}

/// Receives packets into `frames` (at most a burst), from the start of each, and describes them in `received`; returns how many.
/// With `headers`, the socket puts one in front of each. No packet is an error of kind `WouldBlock`.
pub(crate) fn receive_frames(
    socket: BorrowedFd<'_>,
    pool: &mut FramePool,
    frames: &[Frame],
    received: &mut [Received; BURST],
    headers: bool,
) -> io::Result<usize> {
    let count = frames.len().min(BURST);
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * BURST];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BURST];
    // SAFETY: `mmsghdr` is numbers and pointers: zeroes are a value of it.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { mem::zeroed() };
    let skipped = usize::from(!headers);
    for (place, frame) in frames.iter().take(count).enumerate() {
        let (packet, room) = pool.room(frame);
        parts[2 * place].write(libc::iovec {
            iov_base: received[place].header.as_mut_ptr().cast(),
            iov_len: HEADER_BYTES,
        });
        parts[2 * place + 1].write(libc::iovec {
            iov_base: packet.cast(),
            iov_len: room,
        });
        let message = &mut messages[place].msg_hdr;
        message.msg_iov = parts[2 * place + skipped].as_mut_ptr();
        message.msg_iovlen = 2 - skipped;
        message.msg_control = controls[place].as_mut_ptr().cast();
        message.msg_controllen = mem::size_of::<Control>() as _;
    }
    // SAFETY: `count` messages whose parts were written above; they point into buffers of the pool that `frames` own alone, into
    // `received` and into `controls`, none of which is looked at during the call.
    let taken = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as u32,
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            std::ptr::null_mut(),
        )
    };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    let taken = (taken as usize).min(count);
    for (message, received) in messages.iter().zip(received.iter_mut()).take(taken) {
        let bytes = message.msg_len as usize;
        received.bytes = bytes.saturating_sub(if headers { HEADER_BYTES } else { 0 });
        received.auxiliary = auxiliary(&message.msg_hdr);
    }
    Ok(taken)
}

/// The first control message, if it is what a packet socket says beside a packet.
fn auxiliary(message: &libc::msghdr) -> Auxiliary {
    // SAFETY: the kernel filled the header and the control buffer that it points to, and set their length.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(message);
        if control.is_null()
            || (*control).cmsg_level != libc::SOL_PACKET
            || (*control).cmsg_type != libc::PACKET_AUXDATA
            || ((*control).cmsg_len as usize)
                < libc::CMSG_LEN(mem::size_of::<libc::tpacket_auxdata>() as u32) as usize
        {
            return Auxiliary::default();
        }
        let data: libc::tpacket_auxdata = libc::CMSG_DATA(control)
            .cast::<libc::tpacket_auxdata>()
            .read_unaligned();
        Auxiliary {
            status: data.tp_status,
            vlan_tag: data.tp_vlan_tci,
            vlan_type: data.tp_vlan_tpid,
        }
    }
}

/// The most descriptors of one message.
const DESCRIPTORS_MAX: usize = 4;

/// Sends `bytes` and a copy of each descriptor (at most [`DESCRIPTORS_MAX`]) to the process at the other end of a Unix socket.
pub(crate) fn send_descriptors(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut control = Control([0; 48]);
    let count = descriptors.len().min(DESCRIPTORS_MAX);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zeroes are a value of it.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if count > 0 {
        let data_bytes = (count * mem::size_of::<RawFd>()) as u32;
        message.msg_control = (&raw mut control).cast();
        // SAFETY: pure arithmetic.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(data_bytes) } as _;
        // SAFETY: the control buffer has room for the header and four descriptors (32 bytes), and is aligned for it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(data_bytes) as _;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (place, descriptor) in descriptors.iter().take(count).enumerate() {
                data.add(place).write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: the message's parts live through the call.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_fd().as_raw_fd(),
            &message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives one message of a Unix socket into `bytes` and the descriptors that came with it; returns its length, 0 when the
/// other side hung up.
pub(crate) fn receive_descriptors(
    socket: impl AsFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = Control([0; 48]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zeroes are a value of it.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = mem::size_of::<Control>() as _;
    // SAFETY: the message's parts live through the call, and nobody else looks at them.
    let received = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled the control buffer up to the length that it set; each descriptor in it is ours alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data_bytes =
                    ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for place in 0..data_bytes / mem::size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(place).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok(received)
}
