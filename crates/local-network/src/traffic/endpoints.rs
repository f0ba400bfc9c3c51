//! Which endpoints a flow has: each flow under way has a client's and a server's endpoint that no other flow of its protocol has.
//!
//! An endpoint number names both, so that either station finds a packet's flow by arithmetic.

use core::net::Ipv4Addr;

/// Pairs of endpoints of each protocol.
pub const ENDPOINTS: u32 = 4_096;
/// Clients, each with an address.
const CLIENTS: u32 = 250;
/// Servers, each with an address.
const SERVERS: u32 = 253;
/// The first port of a client's flows, and of a server's.
const CLIENT_PORT: u32 = 20_000;
const SERVER_PORT: u32 = 7_000;

/// An address and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

/// The client's end of an endpoint number.
pub(super) fn client(endpoint: u32) -> End {
    End {
        address: Ipv4Addr::new(10, 78, 0, 1 + (endpoint % CLIENTS) as u8),
        port: (CLIENT_PORT + endpoint / CLIENTS) as u16,
    }
}

/// The server's end of an endpoint number.
pub(super) fn server(endpoint: u32) -> End {
    End {
        address: Ipv4Addr::new(198, 18, 0, 1 + (endpoint % SERVERS) as u8),
        port: (SERVER_PORT + endpoint / SERVERS) as u16,
    }
}

/// The endpoint number of a client's end.
pub(super) fn of_client(end: End) -> Option<u32> {
    number(end, [10, 78, 0], CLIENTS, CLIENT_PORT)
}

/// The endpoint number of a server's end.
pub(super) fn of_server(end: End) -> Option<u32> {
    number(end, [198, 18, 0], SERVERS, SERVER_PORT)
}

fn number(end: End, network: [u8; 3], addresses: u32, first_port: u32) -> Option<u32> {
    let [a, b, c, last] = end.address.octets();
    let place = u32::from(last).checked_sub(1)?;
    let port = u32::from(end.port).checked_sub(first_port)?;
    let is_one = [a, b, c] == network && place < addresses;
    let endpoint = port * addresses + place;
    (is_one && endpoint < ENDPOINTS).then_some(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_number_is_found_from_either_end() {
        for endpoint in 0..ENDPOINTS {
            assert_eq!(of_client(client(endpoint)), Some(endpoint));
            assert_eq!(of_server(server(endpoint)), Some(endpoint));
        }
        assert_eq!(of_client(client(ENDPOINTS)), None);
        assert_eq!(of_client(server(3)), None);
        assert_eq!(of_server(client(3)), None);
    }
}
