//! Flows of datagrams between the client and the server of a laboratory, each with a number.

use std::net::{SocketAddr, UdpSocket};

use asterism_lab::nat::{CLIENT, SERVER};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::firewalls::Firewalls;
use crate::contract::Failure;
use crate::measures::lab::absent;

/// The server's first port.
const FIRST_PORT: u16 = 9_000;
/// The client's first port: no port that a kernel gives away.
const FIRST_CLIENT_PORT: u16 = 20_000;
/// What a socket has room for: a second of the most that comes by it.
const BUFFER_BYTES: usize = 8 << 20;
/// Bytes of a datagram at most.
pub(super) const BYTES_MAX: usize = 1_400;

/// Sockets of the client and of the server; each pair of them is a flow.
pub(super) struct Datagrams {
    clients: Vec<UdpSocket>,
    servers: Vec<UdpSocket>,
}

impl Datagrams {
    /// So many flows, of that many sockets of the client.
    pub(super) fn new(
        firewalls: &Firewalls,
        flows: usize,
        clients: usize,
    ) -> Result<Self, Failure> {
        let bind = |at: SocketAddr| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(true)?;
            // A reader that the machine has no time for is not to lose what firewalls let pass.
            set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)?;
            Ok::<_, std::io::Error>(socket)
        };
        let (client, server) = (&firewalls.lab.client, &firewalls.lab.server);
        let clients = client.enter(|| {
            let ports = (0..clients).map(client_of);
            ports.map(bind).collect::<Result<Vec<_>, _>>()
        });
        let clients: Vec<_> = clients
            .map_err(absent)?
            .map_err(|error| Failure::Absent(error.to_string()))?;
        let servers = server.enter(|| {
            let ports = (0..flows.div_ceil(clients.len())).map(server_of);
            ports.map(bind).collect::<Result<Vec<_>, _>>()
        });
        let servers = servers
            .map_err(absent)?
            .map_err(|error| Failure::Absent(error.to_string()))?;
        Ok(Self { clients, servers })
    }

    /// The client sends a flow's number to the server.
    pub(super) fn open(&self, flow: usize) {
        let (client, server) = self.ends(flow);
        // One that could not be sent is lost like any other.
        let _ = self.clients[client].send_to(&(flow as u64).to_le_bytes(), server_of(server));
    }

    /// Flows whose datagrams the server has received.
    pub(super) fn opened(&self, flow: impl FnMut(usize)) {
        drain(&self.servers, flow);
    }

    /// The server sends a number by a flow, with so many bytes. Whether the kernel took it.
    pub(super) fn answer(&self, flow: usize, number: usize, bytes: usize) -> bool {
        let (client, server) = self.ends(flow);
        let mut datagram = [0; BYTES_MAX];
        datagram[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let length = bytes.clamp(8, BYTES_MAX);
        self.servers[server]
            .send_to(&datagram[..length], client_of(client))
            .is_ok()
    }

    /// Numbers that the client has received.
    pub(super) fn answered(&self, number: impl FnMut(usize)) {
        drain(&self.clients, number);
    }

    fn ends(&self, flow: usize) -> (usize, usize) {
        let clients = self.clients.len();
        (flow % clients, flow / clients)
    }
}

fn client_of(place: usize) -> SocketAddr {
    (CLIENT, FIRST_CLIENT_PORT + place as u16).into()
}

fn server_of(place: usize) -> SocketAddr {
    (SERVER, FIRST_PORT + place as u16).into()
}

fn drain(sockets: &[UdpSocket], mut number: impl FnMut(usize)) {
    let mut datagram = [0; BYTES_MAX];
    for socket in sockets {
        while let Ok((8.., _)) = socket.recv_from(&mut datagram) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&datagram[..8]);
            number(u64::from_le_bytes(bytes) as usize);
        }
    }
}
