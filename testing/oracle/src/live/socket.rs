//! A raw packet socket on one interface.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// All of what an interface receives, and a way to send on it.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Bytes of a frame at most: a link of 1,500 bytes with room for what should not be there.
const FRAME_BYTES_MAX: usize = 65_600;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Socket {
    /// On an interface of the calling thread's namespace.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        let every = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain system calls; every pointer is to a value that lives longer than the call, with its own size,
        // and the descriptor has no other owner.
        unsafe {
            let fd = checked(libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                every.into(),
            ))?;
            let socket = Self(OwnedFd::from_raw_fd(fd));
            let index = libc::if_nametoindex(name.as_ptr());
            if index == 0 {
                return Err(io::Error::last_os_error());
            }
            let on: libc::c_int = 1;
            checked(libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            ))?;
            let mut address: libc::sockaddr_ll = core::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = every;
            address.sll_ifindex = index as i32;
            checked(libc::bind(
                fd,
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            ))?;
            Ok(socket)
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is as long as is said.
        let sent = unsafe {
            libc::send(
                self.0.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if sent == frame.len() as isize {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The next frame, if there is one.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; FRAME_BYTES_MAX];
        // SAFETY: the buffer is as long as is said.
        let length = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let length = usize::try_from(length).ok()?;
        frame.truncate(length);
        Some(frame)
    }
}

/// Waits until one of the sockets has a frame, at most so long.
pub(crate) fn wait(sockets: &[Socket; 2], milliseconds: i32) {
    let mut polled = sockets.each_ref().map(|socket| libc::pollfd {
        fd: socket.0.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the array is as long as is said. What poll says does not matter: the sockets are asked next.
    unsafe {
        libc::poll(polled.as_mut_ptr(), 2, milliseconds);
    }
}
