//! The director as a station: ARP and neighbour discovery, announcements, hosts that are learnt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use asterism_director::{ANNOUNCEMENTS, Command, Host, HostLink, MacAddress};
use asterism_packet::{ArpOperation, Packet, build};

use crate::harness::*;

const SHARED6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const ASKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

fn with_both() -> World {
    let mut config = config();
    config.arms[0].shared = vec![IpAddr::from(SHARED), IpAddr::from(SHARED6)];
    World::new(config)
}

fn written(build: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut out = vec![0; 200];
    let length = build(&mut out).unwrap();
    out.truncate(length);
    out
}

#[test]
fn shared_addresses_are_announced_and_answered() {
    let mut world = with_both();
    world.pass(Duration::from_secs(10));
    let announced = world.sent();
    assert_eq!(announced.len(), 2 * ANNOUNCEMENTS as usize);
    let mut gratuitous = announced[0].clone();
    let arp = Packet::parse(&mut gratuitous).unwrap().arp().unwrap();
    assert_eq!((arp.sender, arp.target), (SHARED, SHARED));
    assert_eq!(arp.sender_mac, DIRECTOR);

    let asked = written(|out| build::arp_request(CLIENT, ASKER, SHARED, out));
    let mut answers = world.through(&[asked]);
    assert_eq!(answers.len(), 1);
    let answer = Packet::parse(&mut answers[0]).unwrap();
    assert_eq!(answer.ethernet_destination(), CLIENT);
    let arp = answer.arp().unwrap();
    assert_eq!(arp.operation, ArpOperation::Reply);
    assert_eq!((arp.sender, arp.sender_mac), (SHARED, DIRECTOR));

    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    let asked = written(|out| build::neighbour_solicitation(CLIENT, source, SHARED6, out));
    let mut answers = world.through(&[asked]);
    let answer = Packet::parse(&mut answers[0]).unwrap();
    assert_eq!(answer.ipv6_source(), Some(SHARED6));
    assert_eq!(answer.ipv6_destination(), Some(source));
    assert_eq!(answer.ethernet_source(), DIRECTOR);

    let other = Ipv4Addr::new(192, 0, 2, 2);
    let asked = written(|out| build::arp_request(CLIENT, ASKER, other, out));
    assert!(world.through(&[asked]).is_empty());
    let claimed = written(|out| build::arp_request(CLIENT, SHARED, SHARED, out));
    assert!(world.through(&[claimed]).is_empty());
    let statistics = world.statistics();
    assert_eq!((statistics.answered, statistics.conflicts), (2, 1));
}

#[test]
fn hosts_are_learnt_by_asking_them() {
    let mut world = World::with_three();
    let address = Ipv4Addr::new(192, 0, 2, 50);
    let host = Host::on_first_arm(HostLink {
        mac: None,
        address: Some(address),
    });
    for number in 0..3 {
        let slot = slot(number);
        world.command(Command::RemoveHost(slot)).unwrap();
    }
    let slot = slot(0);
    world.command(Command::SetHost { slot, host }).unwrap();
    let all = Box::new(table(&[0], &[]));
    world.command(Command::Table(all)).unwrap();
    world.pass(Duration::from_millis(10));
    let mut asked = world.sent();
    assert_eq!(asked.len(), 1);
    let question = Packet::parse(&mut asked[0]).unwrap().arp().unwrap();
    assert_eq!(question.target, address);
    assert!(world.through(&[udp(1)]).is_empty(), "nobody answered yet");
    let station = MacAddress([2, 0x40, 0, 0, 0, 9]);
    let answer = written(|out| build::arp_reply(&question, station, out));
    assert!(world.through(std::slice::from_ref(&answer)).is_empty());
    let sent = world.through(&[udp(1)]);
    assert_eq!(sent[0][..6], station.0);
    // The same answer again, which nobody asked for, teaches nothing.
    let forged = written(|out| build::arp_reply(&question, MacAddress([2; 6]), out));
    world.through(&[forged]);
    assert_eq!(world.through(&[udp(1)])[0][..6], station.0);
    let statistics = world.statistics();
    assert_eq!(statistics.hosts_learnt, 1);
    // It is asked again from time to time, at most once a second.
    world.pass(Duration::from_secs(40));
    let asked = world.sent().len();
    assert!((2..=12).contains(&asked), "{asked}");
}
