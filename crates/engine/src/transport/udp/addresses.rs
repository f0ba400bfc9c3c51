//! Other addresses of the members, where epochs say them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use asterism_placement::membership::MEMBERS_MAX;
use asterism_placement::{MemberId, Time};

use super::UdpTransport;
use crate::transport::statistics::PeerTraffic;

impl UdpTransport {
    /// The addresses of the other members from now on: a member that is none of these is sent nothing, and may be added again.
    /// Addresses that this host cannot send to, or that are its own, are left out. Not with multicast, where the list stays as it was
    /// configured.
    pub fn set_addresses(&mut self, now: Time, addresses: &[(MemberId, SocketAddr)]) {
        if self.group_address.is_some() {
            return;
        }
        let nowhere = SocketAddr::new(
            match self.local {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            },
            0,
        );
        let usable = |address: &SocketAddr| {
            address.is_ipv6() == self.local.is_ipv6() && *address != self.local
        };
        let of = |member: MemberId| {
            let found = addresses.iter().filter(|(other, _)| *other == member);
            found.map(|(_, address)| *address).find(usable)
        };
        self.absent.clear();
        for place in 0..self.peers.len() {
            let peer = &mut self.peers[place];
            match of(peer.member) {
                Some(address) if address == peer.address => {}
                Some(address) => {
                    (peer.address, peer.is_unreachable) = (address, false);
                    self.outbound.set_address(place, address);
                }
                None => self.absent.push(place),
            }
            let is_absent = self.absent.contains(&place);
            let from = if is_absent {
                nowhere
            } else {
                self.peers[place].address
            };
            self.sources.set(place, from);
        }
        for &(member, address) in addresses {
            let is_known = self.peers.iter().any(|peer| peer.member == member);
            if is_known || !usable(&address) || self.peers.len() >= MEMBERS_MAX {
                continue;
            }
            let place = self.peers.len();
            self.peers.push(PeerTraffic {
                member,
                address,
                multicast: false,
                near: true,
                datagrams_sent: 0,
                datagrams_received: 0,
                returned: 0,
                is_unreachable: false,
            });
            self.outbound.set_address(place, address);
            self.sources.set(place, address);
        }
        self.learn_path(now);
    }
}
