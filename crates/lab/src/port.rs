//! A port of this machine that is kept for a program which is yet to listen there.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// A TCP port of loopback that the kernel gives to nobody else while this is there. Only who asks for this very port and reuses
/// addresses (`SO_REUSEADDR`), as servers do, listens there: as often as it likes, one after another. Until somebody listens, and
/// between two that do, connections are refused.
#[derive(Debug)]
pub struct KeptPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl KeptPort {
    /// Any port that is free.
    ///
    /// # Errors
    /// There is no socket, or no port is free.
    pub fn new() -> io::Result<KeptPort> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::try_from(getsockname(&socket)?)?;
        Ok(KeptPort {
            address: address.into(),
            _socket: socket,
        })
    }

    /// The port, with its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_port_is_kept_for_one_server_after_another() {
        let port = KeptPort::new().unwrap();
        let is_refused = || {
            let connected = TcpStream::connect(port.address());
            connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        for _ in 0..3 {
            assert!(is_refused());
            let server = TcpListener::bind(port.address()).unwrap();
            let mut client = TcpStream::connect(port.address()).unwrap();
            let (mut served, _) = server.accept().unwrap();
            // The server closes first: its end of the connection stays for a minute.
            io::Write::write_all(&mut served, b"x").unwrap();
            drop((served, server));
            assert_eq!(io::Read::read(&mut client, &mut [0; 2]).unwrap(), 1);
        }
        assert!(is_refused());
    }
}
