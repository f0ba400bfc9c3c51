//! The sockets of a transport: how they are opened and set.

use std::io;
use std::net::SocketAddr;

use super::path::discover;
use crate::transport::config::{TransportError, UdpConfig};
use crate::transport::kernel::{self, Socket, SocketOption};

/// An interface with its number; zero for the one that routes name.
pub(super) fn find_interface(name: &str) -> Result<(String, u32), TransportError> {
    let name = name.to_owned();
    if name.is_empty() {
        return Ok((name, 0));
    }
    match kernel::interface(&name) {
        Ok(number) => Ok((name, number)),
        Err(error) => Err(TransportError::Interface { name, error }),
    }
}

pub(super) fn open_own(config: &UdpConfig, interface: u32) -> Result<Socket, TransportError> {
    let bind = config.bind;
    let socket = Socket::new(bind).map_err(failed("making a socket for", bind))?;
    socket
        .bind(bind)
        .map_err(failed("binding a socket to", bind))?;
    let set = |option: SocketOption, value: i32| {
        socket
            .set(option, value)
            .map_err(failed("setting an option of", bind))
    };
    set(kernel::COUNT_DROPS, 1)?;
    set(kernel::RETURN_ERRORS, 1)?;
    set(kernel::MTU_DISCOVER, discover(config.path_mtu))?;
    if let Some(multicast) = &config.multicast {
        set(kernel::MULTICAST_LOOP, i32::from(multicast.loopback))?;
        set(kernel::MULTICAST_HOPS, i32::from(multicast.hops))?;
        socket
            .send_multicast_by(interface)
            .map_err(failed("choosing the interface for", multicast.group))?;
    }
    Ok(socket)
}

/// A socket that hears the group on that interface, and nothing else.
pub(super) fn open_group(group: SocketAddr, interface: u32) -> Result<Socket, TransportError> {
    let group = match group {
        SocketAddr::V6(mut group) if group.scope_id() == 0 => {
            // The kernel wants to know where a group of this machine's link is.
            group.set_scope_id(interface);
            SocketAddr::V6(group)
        }
        group => group,
    };
    let socket = Socket::new(group).map_err(failed("making a socket for", group))?;
    // Several hosts of one machine may listen to one group.
    socket
        .set(kernel::REUSE_ADDRESS, 1)
        .and_then(|()| socket.set(kernel::COUNT_DROPS, 1))
        .and_then(|()| socket.set(kernel::MULTICAST_ALL, 0))
        .map_err(failed("setting an option of", group))?;
    socket
        .bind(group)
        .map_err(failed("binding a socket to", group))?;
    socket
        .join(group, interface)
        .map_err(failed("joining", group))?;
    Ok(socket)
}

/// Asks for a buffer, past the machine's limit where that is permitted; what was given. The kernel shows twice
/// what was asked for: the other half is for its own records.
pub(super) fn set_buffer(
    socket: &Socket,
    asked: usize,
    force: SocketOption,
    plain: SocketOption,
) -> usize {
    let asked = i32::try_from(asked).unwrap_or(i32::MAX);
    if socket.set(force, asked).is_err() {
        // What is given is read back, whatever this says.
        let _ = socket.set(plain, asked);
    }
    socket.get(plain).unwrap_or(0).max(0) as usize / 2
}

pub(super) fn failed(
    what: &'static str,
    address: SocketAddr,
) -> impl Fn(io::Error) -> TransportError {
    move |error| TransportError::Socket {
        what,
        address,
        error,
    }
}
