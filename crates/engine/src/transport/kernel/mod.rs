//! The kernel's side of the transport, with all its `unsafe`: sockets, their options, batches of datagrams in and out, the
//! error queue, the thread.
//!
//! This file has the sockets; `send` sends, `receive` receives, `thread` sets up a thread, `address` has the kernel's form of
//! addresses.

mod address;
mod receive;
mod send;
mod thread;

use core::mem::{size_of, zeroed};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, sockaddr_in6, socklen_t};

use address::{decode, encode};
pub(super) use receive::Arrivals;
pub(super) use send::{MESSAGE_BYTES_MAX, MESSAGES_MAX, Message, PARTS_MAX, SEGMENTS_MAX};
pub(super) use thread::{EventDescriptor, pin, sharpen_timers, thread_time, wait};

/// An option's value that is not known to `libc`.
const IP_MULTICAST_ALL: c_int = 49;
/// Level of the options of UDP.
const SOL_UDP: c_int = 17;

/// What came back for a datagram sent earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    /// Error number.
    pub(super) errno: i32,
    /// The path's MTU, with `EMSGSIZE`.
    pub(super) mtu: usize,
    /// Whether this machine says so, not a router or the addressee.
    pub(super) is_local: bool,
    /// Where the datagram was to go.
    pub(super) to: Option<SocketAddr>,
}

/// A whole-number option of a socket, by the address family of the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketOption {
    v4: (c_int, c_int),
    v6: (c_int, c_int),
}

const fn same(level: c_int, name: c_int) -> SocketOption {
    SocketOption {
        v4: (level, name),
        v6: (level, name),
    }
}
const fn either(v4: c_int, v6: c_int) -> SocketOption {
    SocketOption {
        v4: (libc::IPPROTO_IP, v4),
        v6: (libc::IPPROTO_IPV6, v6),
    }
}

pub(super) const RECEIVE_BUFFER: SocketOption = same(libc::SOL_SOCKET, libc::SO_RCVBUF);
pub(super) const RECEIVE_BUFFER_FORCE: SocketOption = same(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
pub(super) const SEND_BUFFER: SocketOption = same(libc::SOL_SOCKET, libc::SO_SNDBUF);
pub(super) const SEND_BUFFER_FORCE: SocketOption = same(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
pub(super) const COUNT_DROPS: SocketOption = same(libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
pub(super) const REUSE_ADDRESS: SocketOption = same(libc::SOL_SOCKET, libc::SO_REUSEADDR);
pub(super) const RECEIVE_OFFLOAD: SocketOption = same(SOL_UDP, libc::UDP_GRO);
pub(super) const SEGMENT: SocketOption = same(SOL_UDP, libc::UDP_SEGMENT);
pub(super) const MTU_DISCOVER: SocketOption =
    either(libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER);
pub(super) const MTU: SocketOption = either(libc::IP_MTU, libc::IPV6_MTU);
pub(super) const RETURN_ERRORS: SocketOption = either(libc::IP_RECVERR, libc::IPV6_RECVERR);
pub(super) const MULTICAST_LOOP: SocketOption =
    either(libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP);
pub(super) const MULTICAST_HOPS: SocketOption =
    either(libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS);
pub(super) const MULTICAST_ALL: SocketOption = either(IP_MULTICAST_ALL, libc::IPV6_MULTICAST_ALL);

/// A UDP socket that never waits.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    is_v6: bool,
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Socket {
    /// A socket of the family of `address`.
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv6() {
            libc::AF_INET6
        } else {
            libc::AF_INET
        };
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = checked(unsafe { libc::socket(family, kind, libc::IPPROTO_UDP) })?;
        // SAFETY: the kernel just gave this descriptor to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Self {
            fd,
            is_v6: address.is_ipv6(),
        };
        if socket.is_v6 {
            socket.set_raw(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1i32)?;
        }
        Ok(socket)
    }

    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let (raw, length) = encode(address);
        // SAFETY: `raw` holds a socket address of `length` bytes.
        checked(unsafe { libc::bind(self.as_raw_fd(), (&raw const raw).cast(), length) }).map(drop)
    }

    /// Sets the peer, so that the route to it can be asked for. Sends nothing.
    pub(super) fn connect(&self, address: SocketAddr) -> io::Result<()> {
        let (raw, length) = encode(address);
        // SAFETY: `raw` holds a socket address of `length` bytes.
        checked(unsafe { libc::connect(self.as_raw_fd(), (&raw const raw).cast(), length) })
            .map(drop)
    }

    /// The address that the socket is bound to.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        // SAFETY: all zeroes is a socket address of family 0.
        let mut raw: sockaddr_in6 = unsafe { zeroed() };
        let mut length = size_of::<sockaddr_in6>() as socklen_t;
        // SAFETY: `raw` has room for `length` bytes.
        checked(unsafe {
            libc::getsockname(self.as_raw_fd(), (&raw mut raw).cast(), &raw mut length)
        })?;
        decode(&raw).ok_or_else(|| io::Error::other("the socket has no address"))
    }

    pub(super) fn set(&self, option: SocketOption, value: i32) -> io::Result<()> {
        let (level, name) = if self.is_v6 { option.v6 } else { option.v4 };
        self.set_raw(level, name, &value)
    }

    pub(super) fn get(&self, option: SocketOption) -> io::Result<i32> {
        let (level, name) = if self.is_v6 { option.v6 } else { option.v4 };
        let mut value = 0i32;
        let mut length = size_of::<i32>() as socklen_t;
        // SAFETY: `value` has room for `length` bytes.
        checked(unsafe {
            libc::getsockopt(
                self.as_raw_fd(),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        })?;
        Ok(value)
    }

    /// Joins a multicast group on an interface.
    pub(super) fn join(&self, group: SocketAddr, interface: u32) -> io::Result<()> {
        match group {
            SocketAddr::V4(group) => {
                let request = request_v4(*group.ip(), interface);
                self.set_raw(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)
            }
            SocketAddr::V6(group) => {
                let request = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr {
                        s6_addr: group.ip().octets(),
                    },
                    ipv6mr_interface: interface,
                };
                self.set_raw(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
            }
        }
    }

    /// Sends multicast by that interface.
    pub(super) fn send_multicast_by(&self, interface: u32) -> io::Result<()> {
        if self.is_v6 {
            self.set_raw(
                libc::IPPROTO_IPV6,
                libc::IPV6_MULTICAST_IF,
                &(interface as i32),
            )
        } else {
            let request = request_v4(Ipv4Addr::UNSPECIFIED, interface);
            self.set_raw(libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
        }
    }

    fn set_raw<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        // SAFETY: `value` is a whole `T` of plain numbers, and its size is said.
        checked(unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                name,
                (&raw const *value).cast(),
                size_of::<T>() as socklen_t,
            )
        })
        .map(drop)
    }

    /// What came back for datagrams sent earlier; `None` when there is no more.
    pub(super) fn take_error(&self) -> Option<Returned> {
        // SAFETY: all zeroes is valid for these structures of numbers and pointers.
        let (mut header, mut name) =
            unsafe { (zeroed::<libc::msghdr>(), zeroed::<sockaddr_in6>()) };
        let mut control = [0u64; 32];
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<sockaddr_in6>() as socklen_t;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: the header's pointers and lengths are those of live buffers; no room for data is given.
        checked(unsafe {
            libc::recvmsg(
                self.as_raw_fd(),
                &raw mut header,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            ) as c_int
        })
        .ok()?;
        let mut returned = Returned {
            errno: 0,
            mtu: 0,
            is_local: false,
            to: decode(&name),
        };
        each_control(&header, |level, kind, data| {
            let is_error = (level, kind) == (libc::IPPROTO_IP, libc::IP_RECVERR)
                || (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
            // `sock_extended_err`: errno:u32 origin:u8 type:u8 code:u8 pad:u8 info:u32 data:u32.
            if let (true, Some(errno), Some(info)) = (is_error, word(data, 0), word(data, 8)) {
                returned.errno = errno as i32;
                returned.mtu = info as usize;
                returned.is_local = data.get(4) == Some(&libc::SO_EE_ORIGIN_LOCAL);
            }
        });
        Some(returned)
    }

    /// The error that waits at the socket, which this clears.
    pub(super) fn clear_error(&self) {
        // Reading it is what clears it; what it was came by the error queue.
        let _ = self.get(same(libc::SOL_SOCKET, libc::SO_ERROR));
    }
}

/// The number of an interface.
pub(super) fn interface(name: &str) -> io::Result<u32> {
    let name =
        std::ffi::CString::new(name).map_err(|_| io::Error::other("the name holds a zero byte"))?;
    // SAFETY: a string that ends with a zero byte.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at + 4)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// Visits the control data that came with a message: level, type, bytes.
fn each_control(header: &libc::msghdr, mut visit: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: the kernel wrote whole control headers into the buffer that the header names, and set its
    // length to what it wrote.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let before = libc::CMSG_LEN(0) as usize;
            let length = ((*control).cmsg_len as usize).saturating_sub(before);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(control), length);
            visit((*control).cmsg_level, (*control).cmsg_type, data);
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
}

fn request_v4(group: Ipv4Addr, interface: u32) -> libc::ip_mreqn {
    let address = |address: Ipv4Addr| libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    };
    libc::ip_mreqn {
        imr_multiaddr: address(group),
        imr_address: address(Ipv4Addr::UNSPECIFIED),
        imr_ifindex: interface as c_int,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_go_and_come_in_batches() {
        let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (left, right) = (Socket::new(bind).unwrap(), Socket::new(bind).unwrap());
        left.bind(bind).unwrap();
        right.bind(bind).unwrap();
        right.set(RECEIVE_OFFLOAD, 1).unwrap();
        let to = right.local().unwrap();
        let bodies: Vec<Vec<u8>> = (0..7u8).map(|number| vec![number; 100]).collect();
        let messages = [
            Message {
                to,
                first: 0,
                count: 1,
                segment_bytes: 0,
            },
            Message {
                to,
                first: 1,
                count: 5,
                segment_bytes: 100,
            },
            Message {
                to,
                first: 6,
                count: 1,
                segment_bytes: 0,
            },
        ];
        assert_eq!(left.send(&messages, |part| &bodies[part]).unwrap(), 3);
        let mut arrivals = Arrivals::new();
        let mut taken = Vec::new();
        while taken.len() < 700 {
            for place in 0..arrivals.receive(&right).unwrap() {
                let (arrival, bytes) = arrivals.get(place).unwrap();
                assert_eq!(arrival.from, left.local().unwrap());
                assert!(!arrival.is_cut && matches!(arrival.segment_bytes, 0 | 100));
                taken.extend_from_slice(bytes);
            }
        }
        assert_eq!(taken, bodies.concat());
        assert_eq!(
            arrivals.receive(&right).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn room_grows_with_what_arrives() {
        let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (left, right) = (Socket::new(bind).unwrap(), Socket::new(bind).unwrap());
        right.bind(bind).unwrap();
        let to = right.local().unwrap();
        let message = |first| Message {
            to,
            first,
            count: 1,
            segment_bytes: 0,
        };
        let messages: Vec<Message> = (0..50).map(message).collect();
        let bodies: Vec<[u8; 1]> = (0..50).map(|number| [number]).collect();
        assert_eq!(left.send(&messages, |part| &bodies[part]).unwrap(), 50);
        let mut arrivals = Arrivals::new();
        let mut came = Vec::new();
        let mut taken = Vec::new();
        while taken.len() < bodies.len() {
            let count = arrivals.receive(&right).unwrap();
            came.push((count, arrivals.may_be_more()));
            taken.extend((0..count).map(|place| arrivals.get(place).unwrap().1.to_vec()));
        }
        assert_eq!(came, [(4, true), (32, true), (14, false)]);
        assert!(taken.iter().zip(&bodies).all(|(taken, body)| taken == body));
        assert!(arrivals.receive(&right).is_err() && !arrivals.may_be_more());
    }

    #[test]
    fn a_closed_port_comes_back_as_an_error_with_its_address() {
        let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket = Socket::new(bind).unwrap();
        socket.bind(bind).unwrap();
        socket.set(RETURN_ERRORS, 1).unwrap();
        let closed = {
            let other = Socket::new(bind).unwrap();
            other.bind(bind).unwrap();
            other.local().unwrap()
        };
        let message = Message {
            to: closed,
            first: 0,
            count: 1,
            segment_bytes: 0,
        };
        socket.send(&[message], |_| b"hello").unwrap();
        let returned = socket.take_error().unwrap();
        assert_eq!(returned.errno, libc::ECONNREFUSED);
        assert_eq!(returned.to, Some(closed));
        assert_eq!(socket.take_error(), None);
    }
}
