//! What leaves a socket: many messages by one call, each of them one datagram or several that the kernel cuts apart.

use core::mem::{MaybeUninit, zeroed};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{c_int, sockaddr_in6};

use super::address::encode;
use super::{SOL_UDP, Socket, checked};

/// Messages of one call at most: each a datagram, or up to [`SEGMENTS_MAX`] of them to one address.
pub(in crate::transport) const MESSAGES_MAX: usize = 64;
/// Datagrams of one call at most.
pub(in crate::transport) const PARTS_MAX: usize = 1_024;
/// Datagrams that the kernel cuts from one message at most (`UDP_MAX_SEGMENTS` of Linux before 6.9).
pub(in crate::transport) const SEGMENTS_MAX: usize = 64;
/// Bytes of UDP payload in one message at most, whatever the address family.
pub(in crate::transport) const MESSAGE_BYTES_MAX: usize = 65_507;
/// Words of a control buffer for one `UDP_SEGMENT`.
const CONTROL_WORDS: usize = 4;

/// What is sent by one entry of a call: `count` datagrams, beginning with part `first`, to one address.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport) struct Message {
    pub(in crate::transport) to: SocketAddr,
    pub(in crate::transport) first: usize,
    pub(in crate::transport) count: usize,
    /// Length of each datagram but the last, where the kernel is to cut; 0 for one datagram.
    pub(in crate::transport) segment_bytes: u16,
}

/// Room for a call's structures, of which only those are written that the call has: mostly it is one of 64, and all of them
/// are 24 KiB, most of a first-level cache.
struct CallStorage {
    headers: [MaybeUninit<libc::mmsghdr>; MESSAGES_MAX],
    names: [MaybeUninit<sockaddr_in6>; MESSAGES_MAX],
    controls: [MaybeUninit<[u64; CONTROL_WORDS]>; MESSAGES_MAX],
    vectors: [MaybeUninit<libc::iovec>; PARTS_MAX],
}

impl CallStorage {
    #[inline(always)]
    const fn new() -> Self {
        Self {
            headers: [const { MaybeUninit::uninit() }; MESSAGES_MAX],
            names: [const { MaybeUninit::uninit() }; MESSAGES_MAX],
            controls: [const { MaybeUninit::uninit() }; MESSAGES_MAX],
            vectors: [const { MaybeUninit::uninit() }; PARTS_MAX],
        }
    }
}

impl Socket {
    /// Sends up to [`MESSAGES_MAX`] messages made of up to [`PARTS_MAX`] parts by one system call; tells how
    /// many left. `part` gives each datagram by its number. An error is that of the first message.
    pub(in crate::transport) fn send<'p>(
        &self,
        messages: &[Message],
        part: impl Fn(usize) -> &'p [u8],
    ) -> io::Result<usize> {
        if let [message] = messages
            && message.count == 1
        {
            return self.send_one(message.to, part(message.first));
        }
        let count = messages.len().min(MESSAGES_MAX);
        let mut room = CallStorage::new();
        let mut used = 0;
        for (place, message) in messages.iter().enumerate().take(count) {
            let vectors = &mut room.vectors[used..used + message.count];
            for (vector, number) in vectors.iter_mut().zip(message.first..) {
                let bytes = part(number);
                vector.write(libc::iovec {
                    // The kernel does not write to these.
                    iov_base: bytes.as_ptr().cast_mut().cast(),
                    iov_len: bytes.len(),
                });
            }
            used += message.count;
            let (name, length) = encode(message.to);
            // SAFETY: all zeroes is valid for this structure of numbers and pointers.
            let mut header: libc::msghdr = unsafe { zeroed() };
            header.msg_name = (&raw mut *room.names[place].write(name)).cast();
            header.msg_namelen = length;
            header.msg_iov = vectors.as_mut_ptr().cast();
            header.msg_iovlen = message.count;
            if message.segment_bytes != 0 {
                let control = room.controls[place].write([0; CONTROL_WORDS]);
                header.msg_control = control.as_mut_ptr().cast();
                // SAFETY: pure arithmetic; then the first control header of a message whose control buffer is
                // set and has room for it and its two bytes of data.
                unsafe {
                    header.msg_controllen = libc::CMSG_SPACE(2) as usize;
                    let control = libc::CMSG_FIRSTHDR(&raw const header);
                    (*control).cmsg_level = SOL_UDP;
                    (*control).cmsg_type = libc::UDP_SEGMENT;
                    (*control).cmsg_len = libc::CMSG_LEN(2) as usize;
                    libc::CMSG_DATA(control)
                        .cast::<u16>()
                        .write_unaligned(message.segment_bytes);
                }
            }
            room.headers[place].write(libc::mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            });
        }
        // SAFETY: the first `count` headers are written, and all they point to lives until the call returns.
        let sent = checked(unsafe {
            libc::sendmmsg(
                self.as_raw_fd(),
                room.headers.as_mut_ptr().cast(),
                count as u32,
                libc::MSG_NOSIGNAL,
            )
        })?;
        Ok(sent as usize)
    }

    /// Sends one datagram, as most turns do: a twentieth less than a list of one takes.
    fn send_one(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<usize> {
        let (name, length) = encode(to);
        // SAFETY: the bytes and the address live until the call returns, and their lengths are said.
        checked(unsafe {
            libc::sendto(
                self.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                (&raw const name).cast(),
                length,
            ) as c_int
        })
        .map(|_| 1)
    }
}
