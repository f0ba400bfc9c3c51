//! Hosts on the loopback interface: no root needed.

use asterism_engine::ChannelEvent;
use asterism_engine::transport::{Notice, RunConfig, UdpConfig};
use asterism_placement::MemberId;
use asterism_secure_channel::Event;

use crate::transport::hosts::{Addresses, Host, exercise, free_ports, meet};

#[test]
fn two_and_three_hosts_agree_by_unicast() {
    for count in [2, 3] {
        let mut hosts = Addresses::new().start(count, |_, _| ());
        exercise(&hosts, 2_000, 0);
        for host in &mut hosts {
            let admitted = |notice: &&Notice| {
                matches!(
                    notice,
                    Notice::Channel(ChannelEvent::Secure(Event::Admitted { .. }))
                )
            };
            let others = usize::from(count) - 1;
            assert_eq!(host.take_notices().iter().filter(admitted).count(), others);
            let snapshot = host.snapshot();
            assert_eq!(snapshot.members.len(), usize::from(count));
            assert_eq!(snapshot.transport.strangers_received, 0);
            for member in &snapshot.members {
                if member.progress.member == host.name {
                    continue;
                }
                assert!(member.admitted.is_some() && member.has_welcomed);
                assert!(member.progress.round_trip.samples > 0);
                let traffic = member.traffic.unwrap();
                assert!(traffic.datagrams_sent > 0 && traffic.datagrams_received > 0);
            }
        }
        for host in hosts {
            let stopped = host.stop();
            assert!(stopped.snapshot.thread.turns > 0);
        }
    }
}

#[test]
fn two_hosts_agree_by_unicast_over_ipv6() {
    let at = free_ports("[::1]", 2);
    let hosts: Vec<Host> = (0..2u16)
        .map(|number| {
            let other = 1 - number;
            let udp = UdpConfig::new(
                at[usize::from(number)],
                [(MemberId(other), at[usize::from(other)])],
            );
            Host::start(number, 2, &udp, RunConfig::default())
        })
        .collect();
    exercise(&hosts, 2_000, 0);
}

#[test]
fn three_hosts_agree_by_multicast() {
    let addresses = Addresses::new();
    let hosts = addresses.start(3, |_, udp| {
        *udp = udp.clone().with_multicast(addresses.group(), "lo");
    });
    meet(&hosts);
    exercise(&hosts, 2_000, 0);
    for host in &hosts {
        let snapshot = host.snapshot();
        let counted = snapshot.transport;
        assert!(counted.multicast_sent > 10, "{counted:?}");
        // Handshakes, and what one member alone lacked, are for one. On a slow machine hosts repeat much at once: many datagrams, a few dozen groups each.
        let repeated = &snapshot.replication;
        let again = repeated.retransmits_by_echo + repeated.retransmits_by_timeout;
        let again = again + repeated.groups_retransmitted / 40;
        let alone = counted.datagrams_sent - counted.multicast_sent;
        assert!(
            alone <= 20 + again,
            "{counted:?} {:?}",
            snapshot.replication
        );
    }
}
