//! System calls of the ports on real interfaces, wrapped so that the ports themselves need no `unsafe`. Each wrapper fails
//! with the kernel's error.
//!
//! This file has sockets, options and `ioctl`; beside it are `bpf.rs`, `mapping.rs` (memory shared with the kernel or another
//! process) and `messages.rs` (bursts of frames through a socket).

pub(crate) mod bpf;
mod mapping;
mod messages;

pub(crate) use mapping::Mapping;
pub(crate) use messages::{
    HEADER_BYTES, Header, Received, receive_descriptors, receive_frames, send_descriptors,
    send_frames, send_runs,
};

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of an interface's name, its closing zero included.
pub(crate) const NAME_BYTES: usize = libc::IFNAMSIZ;

/// Types of plain integers without padding: any bytes are a value, and every byte of a value is initialised.
///
/// # Safety
/// Only for such types.
pub(crate) unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($name:ty),*) => {$(
        // SAFETY: integers only, laid out by C without padding.
        unsafe impl Plain for $name {}
    )*};
}
plain!(
    u8,
    i32,
    u32,
    u64,
    libc::tpacket_req,
    libc::tpacket_stats,
    libc::packet_mreq,
    libc::ucred,
    libc::xdp_umem_reg,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics
);

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let descriptor = checked(result)?;
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A socket that does not wait and is not inherited.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only.
    owned(unsafe { libc::socket(domain, kind, protocol) })
}

/// Sets a socket's option.
pub(crate) fn set_option<T: Plain>(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` initialised bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            bytes,
        )
    };
    checked(result).map(drop)
}

/// A socket's option; what the kernel does not fill in is zero.
pub(crate) fn option<T: Plain>(socket: impl AsFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    checked(result)?;
    // SAFETY: zeroes and what the kernel wrote are a value of a plain type.
    Ok(unsafe { value.assume_init() })
}

/// The error that waits at a socket, which is taken by this; `None` if there is none.
pub(crate) fn take_error(socket: impl AsFd) -> Option<io::Error> {
    let number: i32 = option(socket, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
    (number != 0).then(|| io::Error::from_raw_os_error(number))
}

/// Ties a packet socket to an interface: from here on it gets every packet of it, and sends there.
pub(crate) fn bind_packet(socket: impl AsFd, index: u32) -> io::Result<()> {
    bind_packet_of(socket, index, libc::ETH_P_ALL as u16)
}

/// Ties a packet socket to an interface for sending: nothing is received through it.
pub(crate) fn bind_packet_sender(socket: impl AsFd, index: u32) -> io::Result<()> {
    bind_packet_of(socket, index, 0)
}

fn bind_packet_of(socket: impl AsFd, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    bind(socket, &address)
}

/// Ties an AF_XDP socket to a queue of an interface.
pub(crate) fn bind_xdp(socket: impl AsFd, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    bind(socket, &address)
}

fn bind<T>(socket: impl AsFd, address: &T) -> io::Result<()> {
    let bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes of an address that lives through the call.
    let result = unsafe {
        libc::bind(
            socket.as_fd().as_raw_fd(),
            (&raw const *address).cast(),
            bytes,
        )
    };
    checked(result).map(drop)
}

/// What `ioctl` exchanges about an interface: `struct ifreq`, whose union is 24 bytes here.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    argument: [u64; 3],
}

/// Asks or tells something about the interface called `name`. The argument's first bytes are the number that most requests
/// take and give; returned is what stands there afterwards.
pub(crate) fn interface_control(
    socket: impl AsFd,
    request: u64,
    name: &str,
    argument: u64,
) -> io::Result<u64> {
    let mut exchanged = InterfaceRequest {
        name: name_bytes(name)?,
        argument: [argument, 0, 0],
    };
    control(socket, request, &mut exchanged)?;
    Ok(exchanged.argument[0])
}

/// A setting of `SIOCETHTOOL` that is one number: asks for it, or sets it, by `command`.
pub(crate) fn ethtool_value(
    socket: impl AsFd,
    name: &str,
    command: u32,
    value: u32,
) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value {
        command,
        data: value,
    };
    let mut exchanged = InterfaceRequest {
        name: name_bytes(name)?,
        argument: [(&raw mut value) as usize as u64, 0, 0],
    };
    control(socket, libc::SIOCETHTOOL, &mut exchanged)?;
    Ok(value.data)
}

/// The interface's name as the kernel takes it; names that it does not know how to have are refused.
fn name_bytes(name: &str) -> io::Result<[u8; NAME_BYTES]> {
    let mut bytes = [0; NAME_BYTES];
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains(['\0', '/', ' ']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "an interface's name has 1 to 15 bytes, none of them a space or slash: {name:?} is none"
            ),
        ));
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

fn control(socket: impl AsFd, request: u64, exchanged: &mut InterfaceRequest) -> io::Result<()> {
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: requests on interfaces read and write one `struct ifreq`, which this is; what it points to lives in the caller.
    checked(unsafe { libc::ioctl(descriptor, request as _, exchanged) }).map(drop)
}

/// An `ioctl` that takes a number in place of an address (`TUNSETOFFLOAD`, `TUNSETPERSIST`).
pub(crate) fn control_number(file: impl AsFd, request: u64, number: u64) -> io::Result<()> {
    // SAFETY: the kernel takes the argument as a number.
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request as _, number) }).map(drop)
}

/// An `ioctl` that reads one number at an address (`TUNSETVNETHDRSZ`).
pub(crate) fn control_value(file: impl AsFd, request: u64, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads one `int`.
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request as _, &raw const value) })
        .map(drop)
}

/// Memory of `bytes` bytes that can be mapped and handed to other processes, and that nobody can shrink or grow.
pub(crate) fn memory_file(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a name with its closing zero, and flags.
    let file = owned(unsafe {
        libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    })?;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) })?;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, MEMORY_SEALS) })?;
    Ok(file)
}

/// With these a mapping of the file cannot lose its memory, whatever the other process does.
const MEMORY_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The size of memory that came from another process, if it is sealed so that it cannot shrink.
pub(crate) fn sealed_bytes(file: &OwnedFd) -> io::Result<Option<u64>> {
    // SAFETY: takes numbers only.
    let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
    if seals & libc::F_SEAL_SHRINK == 0 {
        return Ok(None);
    }
    let file = std::fs::File::from(file.try_clone()?);
    Ok(Some(file.metadata()?.len()))
}

/// A counter to sleep on and to wake by.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Wakes who sleeps on an event.
pub(crate) fn signal(event: impl AsFd) {
    // An event that cannot be written to is already readable.
    let _ = write_number(event, 1);
}

fn write_number(event: impl AsFd, number: u64) -> io::Result<()> {
    let bytes = number.to_ne_bytes();
    // SAFETY: the kernel reads 8 bytes.
    let written = unsafe {
        libc::write(
            event.as_fd().as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
        )
    };
    checked(written as i32).map(drop)
}

/// Takes what was signalled, so that the event is not readable any more.
pub(crate) fn take_signals(event: impl AsFd) {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most 8 bytes. Nothing to read is no failure here.
    unsafe {
        libc::read(
            event.as_fd().as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
        )
    };
}

/// The user of this process.
pub(crate) fn own_user() -> u32 {
    // SAFETY: takes and touches nothing.
    unsafe { libc::geteuid() }
}

/// One descriptor that is readable when any of `watched` is.
pub(crate) fn any_readable(watched: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let any = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    for descriptor in watched {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: both descriptors are open, and the event lives through the call.
        checked(unsafe {
            libc::epoll_ctl(
                any.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor.as_raw_fd(),
                &mut event,
            )
        })?;
    }
    Ok(any)
}

/// Tells the kernel that an AF_XDP socket's ring has packets to send.
pub(crate) fn wake_sender(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: a message of no bytes: no memory is read.
    let sent = unsafe {
        libc::sendto(
            socket.as_fd().as_raw_fd(),
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
