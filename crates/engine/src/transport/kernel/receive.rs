//! What arrives at a socket: many messages by one call, each of them one datagram or several joined.

use core::mem::{MaybeUninit, size_of, zeroed};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{sockaddr_in6, socklen_t};

use super::address::decode;
use super::{SOL_UDP, Socket, checked, each_control, word};

/// Messages taken by one call at most, and offered room for at least.
const RECEIVE_MESSAGES_MAX: usize = 32;
const RECEIVE_MESSAGES_LEAST: usize = 4;
/// Bytes for each of them: with receive offload one message is many datagrams.
const RECEIVE_BYTES: usize = 1 << 16;

/// What arrived by one entry of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport) struct Arrival {
    pub(in crate::transport) from: SocketAddr,
    pub(in crate::transport) bytes: usize,
    /// Length of each datagram but the last where the kernel joined several; 0 for one datagram.
    pub(in crate::transport) segment_bytes: usize,
    /// The message was longer than the buffer.
    pub(in crate::transport) is_cut: bool,
    /// Datagrams that this socket dropped so far for want of buffer, if it dropped any; wraps.
    pub(in crate::transport) drops: Option<u32>,
}

/// Bytes of a control buffer for what comes with an arrival: two numbers of 4 bytes, and room to spare.
const ARRIVAL_CONTROL_WORDS: usize = 16;

/// Buffers for what arrives by one call, and what is known of it.
pub(in crate::transport) struct Arrivals {
    memory: Vec<u8>,
    /// What the kernel writes beside the bytes. Kept between calls, so that a call does not clear what it will not use.
    names: Vec<sockaddr_in6>,
    controls: Vec<[u64; ARRIVAL_CONTROL_WORDS]>,
    arrivals: Vec<Arrival>,
    /// Messages that the next call has room for: mostly few come, and preparing room for many takes longer than a system call
    /// that finds none.
    offered: usize,
    /// Whether the last call filled its room.
    is_filled: bool,
}

impl core::fmt::Debug for Arrivals {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Arrivals")
            .field("arrivals", &self.arrivals)
            .finish_non_exhaustive()
    }
}

impl Arrivals {
    pub(in crate::transport) fn new() -> Self {
        Self {
            memory: vec![0; RECEIVE_MESSAGES_MAX * RECEIVE_BYTES],
            // SAFETY: all zeroes is a socket address of family 0.
            names: vec![unsafe { zeroed() }; RECEIVE_MESSAGES_MAX],
            controls: vec![[0; ARRIVAL_CONTROL_WORDS]; RECEIVE_MESSAGES_MAX],
            arrivals: Vec::with_capacity(RECEIVE_MESSAGES_MAX),
            offered: RECEIVE_MESSAGES_LEAST,
            is_filled: false,
        }
    }

    /// Whether more messages than the last call took may be there.
    pub(in crate::transport) fn may_be_more(&self) -> bool {
        self.is_filled
    }

    /// Takes what has arrived at the socket, without waiting; how many messages.
    pub(in crate::transport) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        self.arrivals.clear();
        let offered = core::mem::replace(&mut self.offered, RECEIVE_MESSAGES_LEAST);
        self.is_filled = false;
        let mut vectors = [const { MaybeUninit::uninit() }; RECEIVE_MESSAGES_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RECEIVE_MESSAGES_MAX];
        let buffers = self.memory.chunks_exact_mut(RECEIVE_BYTES);
        let beside = self.names.iter_mut().zip(&mut self.controls);
        for (place, (buffer, (name, control))) in buffers.zip(beside).enumerate().take(offered) {
            // SAFETY: all zeroes is valid for this structure of numbers and pointers.
            let mut header: libc::msghdr = unsafe { zeroed() };
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = size_of::<sockaddr_in6>() as socklen_t;
            header.msg_iov = vectors[place].write(libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: RECEIVE_BYTES,
            });
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of::<[u64; ARRIVAL_CONTROL_WORDS]>();
            headers[place].write(libc::mmsghdr {
                msg_hdr: header,
                msg_len: 0,
            });
        }
        // SAFETY: every one of these headers is written and points to buffers of the said lengths that live until the call returns.
        let count = checked(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                offered as u32,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        })? as usize;
        for (header, name) in headers.iter().zip(&self.names).take(count) {
            // SAFETY: the first `offered` headers were written above, and no more of them are filled.
            let header = unsafe { header.assume_init_ref() };
            let mut arrival = Arrival {
                // An address of no known family names nobody.
                from: decode(name).unwrap_or(SocketAddr::from(([0; 4], 0))),
                bytes: (header.msg_len as usize).min(RECEIVE_BYTES),
                segment_bytes: 0,
                is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                drops: None,
            };
            each_control(&header.msg_hdr, |level, kind, data| {
                let Some(value) = word(data, 0) else { return };
                match (level, kind) {
                    (SOL_UDP, libc::UDP_GRO) => arrival.segment_bytes = value as usize,
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => arrival.drops = Some(value),
                    _ => {}
                }
            });
            self.arrivals.push(arrival);
        }
        self.is_filled = count >= offered;
        self.offered = if self.is_filled {
            RECEIVE_MESSAGES_MAX
        } else {
            (2 * count).clamp(RECEIVE_MESSAGES_LEAST, RECEIVE_MESSAGES_MAX)
        };
        Ok(count)
    }

    /// One of the messages that the last call took, and its bytes.
    pub(in crate::transport) fn get(&mut self, place: usize) -> Option<(Arrival, &mut [u8])> {
        let arrival = *self.arrivals.get(place)?;
        let begin = place * RECEIVE_BYTES;
        let bytes = self.memory.get_mut(begin..begin + arrival.bytes)?;
        Some((arrival, bytes))
    }
}
