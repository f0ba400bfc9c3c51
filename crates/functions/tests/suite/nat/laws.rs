//! What replicas rely on: rows and values that merge the same way everywhere, and few bytes.

use std::net::Ipv4Addr;

use asterism_function::{Endpoint, Paired, Protocol, Reader, TcpFlags, Value, Wire, Writer, laws};
use asterism_functions::nat::{Connection, Direction, Ends, Session};
use proptest::prelude::*;

/// Few values each, so that keys are often shared.
fn session() -> impl Strategy<Value = Session> {
    let end = || (0u32..3, 0u16..3);
    (end(), end(), end(), 0usize..3, any::<bool>()).prop_map(
        |(inside, remote, outside, protocol, hairpins)| {
            let protocol = [Protocol::TCP, Protocol::UDP, Protocol::ICMP][protocol];
            let endpoint =
                |(address, port)| Endpoint::new(Ipv4Addr::from_bits(address), port, protocol);
            let mut remote = endpoint(remote);
            if protocol == Protocol::ICMP {
                remote.port = 0;
            }
            Session::new(endpoint(inside), remote, endpoint(outside), hairpins)
        },
    )
}

fn connection() -> impl Strategy<Value = Connection> {
    any::<u8>().prop_map(|byte| Connection::decode(&mut Reader::new(&[byte], &[])).unwrap())
}

proptest! {
    #[test]
    fn sessions_are_rows(a in session(), b in session(), seed: u64) {
        laws::row(a, b, seed);
        prop_assert_eq!(a.left() == b.left(), (a.inside(), a.remote()) == (b.inside(), b.remote()));
        let right = |one: &Session| (one.outside(), one.remote(), one.hairpins());
        prop_assert_eq!(a.right() == b.right(), right(&a) == right(&b));
        // What packets from outside find, and what none does.
        let is_with_nobody = a.remote().address.is_unspecified() && a.remote().port == 0;
        let seen = Ends::between(a.remote(), a.outside());
        let is_seen = !a.hairpins() && !is_with_nobody;
        prop_assert_eq!(a.right(), if is_seen { seen } else { seen.unseen() });
    }

    #[test]
    fn connections_join(a in connection(), b in connection(), c in connection()) {
        laws::value(a, b, c);
    }

    #[test]
    fn what_two_instances_saw_is_one_handshake(flags: Vec<(u8, bool, bool)>) {
        let remote = Endpoint::new(Ipv4Addr::LOCALHOST, 80, Protocol::TCP);
        let mut alone = Connection::new(remote);
        let mut here = alone;
        let mut there = alone;
        for (flags, outbound, is_here) in flags {
            let direction = if outbound { Direction::Outbound } else { Direction::Inbound };
            alone = alone.after(TcpFlags(flags), direction);
            let saw = if is_here { &mut here } else { &mut there };
            *saw = saw.after(TcpFlags(flags), direction);
        }
        here.join(&there);
        prop_assert_eq!(here, alone);
        prop_assert_eq!(here.idle_class(), alone.idle_class());
    }

    #[test]
    fn sessions_come_back_from_the_wire(session in session(), listed: bool) {
        let addresses = [session.outside().address.to_bits()];
        let addresses: &[u32] = if listed { &addresses } else { &[] };
        let mut bytes = Vec::new();
        session.encode(&mut Writer::new(&mut bytes, addresses));
        prop_assert!(!listed || bytes.len() <= 16);
        let mut input = Reader::new(&bytes, addresses);
        prop_assert_eq!(Session::decode(&mut input), Ok(session));
        prop_assert!(input.is_empty());
    }

    #[test]
    fn any_bytes_are_a_session_or_refused(bytes: Vec<u8>) {
        if let Ok(session) = Session::decode(&mut Reader::new(&bytes, &[7])) {
            let mut again = Vec::new();
            session.encode(&mut Writer::new(&mut again, &[7]));
            prop_assert_eq!(Session::decode(&mut Reader::new(&again, &[7])), Ok(session));
        }
    }
}

#[test]
fn a_session_and_its_header_fit_a_cache_line() {
    // The table's own part of an entry has 28 bytes.
    assert!(28 + size_of::<Session>() + size_of::<Connection>() <= 64);
    assert_eq!(size_of::<Connection>(), 1);
}
