//! ARP: requests and replies as built, read back.

use std::net::Ipv4Addr;

use asterism_packet::{ArpOperation, Layout, MacAddress, Malformed, Network, Packet, build};

const ASKER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ASKED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[test]
fn a_reply_answers_its_request() {
    let mut frame = [0; 60];
    let (asker_mac, asked_mac) = (
        MacAddress([2, 0, 0, 0, 0, 1]),
        MacAddress([2, 0, 0, 0, 0, 2]),
    );
    let length = build::arp_request(asker_mac, ASKER, ASKED, &mut frame).expect("it fits");
    assert_eq!(length, 42);
    let packet = Packet::parse(&mut frame).expect("well-formed");
    let request = packet.arp().expect("ARP");
    assert_eq!(packet.ethernet_destination(), MacAddress::BROADCAST);
    assert_eq!(
        (request.operation, request.sender, request.target),
        (ArpOperation::Request, ASKER, ASKED)
    );

    let length = build::arp_reply(&request, asked_mac, &mut frame).expect("it fits");
    let packet = Packet::parse(&mut frame[..length]).expect("well-formed");
    let reply = packet.arp().expect("ARP");
    assert_eq!(
        (packet.ethernet_source(), packet.ethernet_destination()),
        (asked_mac, asker_mac)
    );
    assert_eq!(
        (reply.operation, reply.sender, reply.sender_mac),
        (ArpOperation::Reply, ASKED, asked_mac)
    );
    assert_eq!((reply.target, reply.target_mac), (ASKER, asker_mac));
}

#[test]
fn other_address_families_pass_unread_and_a_cut_one_is_malformed() {
    let mut frame = [0; 42];
    build::arp_request(MacAddress([2; 6]), ASKER, ASKED, &mut frame).expect("it fits");
    for length in 20..42 {
        assert_eq!(
            Layout::parse(&frame[..length]),
            Err(Malformed::NetworkTooShort)
        );
    }
    frame[18] = 8; // Hardware addresses of eight bytes: InfiniBand, not Ethernet.
    assert_eq!(
        Layout::parse(&frame).map(|layout| layout.network()),
        Ok(Network::Other)
    );
    for room in 0..42 {
        assert_eq!(
            build::arp_request(MacAddress([2; 6]), ASKER, ASKED, &mut vec![0; room]),
            None
        );
    }
}
