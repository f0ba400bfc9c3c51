//! Socket addresses in the kernel's form.

use core::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_int, sockaddr_in, sockaddr_in6, socklen_t};

/// A socket address as the kernel reads it, and its length. The longer form has room for the shorter.
pub(super) fn encode(address: SocketAddr) -> (sockaddr_in6, socklen_t) {
    // SAFETY: all zeroes is a socket address of family 0.
    let mut raw: sockaddr_in6 = unsafe { zeroed() };
    match address {
        SocketAddr::V4(address) => {
            let short = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            const { assert!(size_of::<sockaddr_in>() <= size_of::<sockaddr_in6>()) }
            // SAFETY: the longer form has room for the shorter, and the same alignment or a stricter one.
            unsafe { (&raw mut raw).cast::<sockaddr_in>().write_unaligned(short) };
            (raw, size_of::<sockaddr_in>() as socklen_t)
        }
        SocketAddr::V6(address) => {
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_port = address.port().to_be();
            raw.sin6_addr.s6_addr = address.ip().octets();
            raw.sin6_scope_id = address.scope_id();
            (raw, size_of::<sockaddr_in6>() as socklen_t)
        }
    }
}

/// The address in a buffer that the kernel wrote. The flow label is left out, so that addresses compare.
pub(super) fn decode(raw: &sockaddr_in6) -> Option<SocketAddr> {
    match c_int::from(raw.sin6_family) {
        libc::AF_INET => {
            // SAFETY: a buffer with this family holds the shorter form, of which it has room.
            let short = unsafe { (&raw const *raw).cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(short.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(short.sin_port)).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_return_as_they_went() {
        for text in ["192.0.2.7:65535", "[2001:db8::1]:1", "[fe80::1%7]:4000"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(address).0), Some(address), "{text}");
        }
        // SAFETY: all zeroes is a socket address of family 0.
        assert_eq!(decode(&unsafe { zeroed() }), None);
    }
}
