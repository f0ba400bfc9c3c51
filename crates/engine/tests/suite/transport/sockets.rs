//! The transport alone, without a state channel: what it does when the kernel refuses.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use asterism_engine::Destination;
use asterism_engine::transport::{
    PACE_BURST, SEND_QUEUE_DATAGRAMS_MAX, TransportError, TransportEvent, UdpConfig, UdpTransport,
};
use asterism_io::clock::MonotonicClock;
use asterism_placement::{MemberId, Time};

use crate::transport::hosts::Addresses;

/// Two transports that know each other.
fn pair(change: impl Fn(&mut UdpConfig)) -> (UdpTransport, UdpTransport) {
    let addresses = Addresses::new();
    let open = |number| {
        let mut udp = addresses.unicast(number, 2);
        change(&mut udp);
        UdpTransport::open(&udp, 1_472, Time::ZERO).unwrap()
    };
    (open(0), open(1))
}

fn queue(transport: &mut UdpTransport, now: Time, length: usize, byte: u8) -> bool {
    let Some(buffer) = transport.buffer(now) else {
        return false;
    };
    buffer.clear();
    buffer.resize(length, byte);
    transport.queue(Destination::All);
    true
}

fn receive(transport: &mut UdpTransport, wanted: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let begun = Instant::now();
    while received.len() < wanted && begun.elapsed() < Duration::from_secs(10) {
        transport.receive(Time::ZERO, |_, datagram| received.push(datagram.to_vec()));
    }
    received
}

#[test]
fn a_kernel_that_refuses_segments_gets_datagrams_one_by_one() {
    let (mut sender, mut receiver) = pair(|_| ());
    assert!(sender.is_segmenting());
    // Without checksums the kernel does not cut (`udp_send_skb`).
    let one = 1i32;
    // SAFETY: the option's value lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            sender.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const one).cast(),
            4,
        )
    };
    assert_eq!(result, 0);
    for number in 0..100 {
        assert!(queue(&mut sender, Time::ZERO, 1_000, number));
    }
    sender.flush(Time::ZERO);
    let received = receive(&mut receiver, 100);
    assert_eq!(received.len(), 100, "none is lost");
    for (number, datagram) in received.iter().enumerate() {
        assert_eq!(datagram, &vec![number as u8; 1_000], "and all in order");
    }
    assert!(!sender.is_segmenting());
    let counted = sender.statistics();
    assert_eq!(counted.segmentation_refused, 1);
    assert_eq!((counted.datagrams_sent, counted.segmented_sent), (100, 0));
    assert_eq!(counted.given_up, 0);
    assert!(matches!(
        sender.poll_event(),
        Some(TransportEvent::SegmentationRefused {
            errno: libc::EINVAL | libc::EIO
        })
    ));
}

#[test]
fn segments_and_joined_datagrams_arrive_as_they_were() {
    for (segmentation, receive_offload) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let (mut sender, mut receiver) = pair(|udp| {
            udp.segmentation = segmentation;
            udp.receive_offload = receive_offload;
        });
        let lengths = [1_472, 1_472, 1_472, 9, 1_000, 1_000, 1, 1_472, 600, 600];
        for (number, length) in lengths.into_iter().enumerate() {
            assert!(queue(&mut sender, Time::ZERO, length, number as u8));
        }
        sender.flush(Time::ZERO);
        let received = receive(&mut receiver, lengths.len());
        let expected: Vec<Vec<u8>> = lengths
            .into_iter()
            .enumerate()
            .map(|(number, length)| vec![number as u8; length])
            .collect();
        assert_eq!(received, expected);
        let (sent, taken) = (sender.statistics(), receiver.statistics());
        assert_eq!(sent.segmented_sent > 0, segmentation);
        assert_eq!(taken.joined_received > 0, segmentation && receive_offload);
        assert_eq!(taken.receive_buffer_drops, 0);
    }
}

#[test]
fn members_come_at_addresses_that_epochs_say_and_go() {
    let at_any = || UdpConfig::new("127.0.0.1:0".parse().unwrap(), []);
    let open = || UdpTransport::open(&at_any(), 1_472, Time::ZERO).unwrap();
    let (mut sender, mut first, mut second) = (open(), open(), open());
    let own = sender.state().local;
    let (one, two) = (first.state().local, second.state().local);
    let send = |sender: &mut UdpTransport, byte| {
        assert!(queue(sender, Time::ZERO, 100, byte));
        sender.flush(Time::ZERO);
    };
    let nothing = |receiver: &mut UdpTransport| {
        let mut count = 0;
        std::thread::yield_now();
        receiver.receive(Time::ZERO, |_, _| count += 1);
        count == 0
    };
    // Nobody is there yet; its own address and one of the other family are nobody's.
    let wrong = [
        (MemberId(7), own),
        (MemberId(8), "[::1]:7400".parse().unwrap()),
    ];
    sender.set_addresses(Time::ZERO, &wrong);
    assert!(sender.peers().is_empty());
    sender.set_addresses(Time::ZERO, &[(MemberId(2), one)]);
    send(&mut sender, 1);
    assert_eq!(receive(&mut first, 1), [vec![1; 100]]);
    // Another member, at another address.
    sender.set_addresses(Time::ZERO, &[(MemberId(2), one), (MemberId(3), two)]);
    send(&mut sender, 2);
    assert_eq!(receive(&mut first, 1), [vec![2; 100]]);
    assert_eq!(receive(&mut second, 1), [vec![2; 100]]);
    // The first is out, and is sent nothing; its datagrams are a stranger's.
    sender.set_addresses(Time::ZERO, &[(MemberId(3), two)]);
    send(&mut sender, 3);
    assert_eq!(receive(&mut second, 1), [vec![3; 100]]);
    assert!(nothing(&mut first));
    first.set_addresses(Time::ZERO, &[(MemberId(1), own)]);
    send(&mut first, 4);
    assert_eq!(receive(&mut sender, 1), [vec![4; 100]]);
    assert_eq!(sender.statistics().strangers_received, 1);
    // It is back, where the second was.
    sender.set_addresses(Time::ZERO, &[(MemberId(2), two)]);
    send(&mut sender, 5);
    assert_eq!(receive(&mut second, 1), [vec![5; 100]]);
    assert!(nothing(&mut first));
    assert_eq!(sender.peers().len(), 2, "as many as were there");
    second.set_addresses(Time::ZERO, &[(MemberId(1), own)]);
    send(&mut second, 6);
    assert_eq!(receive(&mut sender, 1), [vec![6; 100]]);
    assert_eq!(sender.statistics().strangers_received, 1);
    assert_eq!(sender.peers()[0].datagrams_received, 1);
}

#[test]
fn the_queue_has_a_bound_and_a_full_socket_makes_it_wait() {
    let (mut sender, mut receiver) = pair(|udp| udp.segmentation = false);
    for _ in 0..SEND_QUEUE_DATAGRAMS_MAX {
        assert!(queue(&mut sender, Time::ZERO, 1_472, 1));
    }
    assert!(
        !queue(&mut sender, Time::ZERO, 1_472, 1),
        "no more than the bound"
    );
    sender.flush(Time::ZERO);
    assert!(!sender.is_waiting());
    assert_eq!(
        receive(&mut receiver, SEND_QUEUE_DATAGRAMS_MAX).len(),
        SEND_QUEUE_DATAGRAMS_MAX
    );
    // Nobody is at that number: counted, and the buffer is used again.
    let _ = sender.buffer(Time::ZERO);
    sender.queue(Destination::Source(u64::MAX));
    sender.queue(Destination::Member(MemberId(77)));
    assert_eq!(sender.statistics().unaddressed, 2);
}

#[test]
fn the_cap_holds_within_its_stated_error() {
    const RATE: u64 = 8_000_000;
    let (mut sender, mut receiver) = pair(|udp| udp.bandwidth_bits_per_second = Some(RATE));
    let clock = MonotonicClock::new();
    let begun = clock.now();
    let mut end = begun;
    while end - begun < Duration::from_millis(500) {
        while queue(&mut sender, end, 972, 1) {
            sender.flush(end);
        }
        assert!(sender.next_send().is_some_and(|at| at > end));
        receiver.receive(end, |_, _| ());
        end = clock.now();
    }
    let bits = sender.statistics().datagrams_sent as f64 * 8_000.0;
    let seconds = (end - begun).as_secs_f64();
    let most = RATE as f64 * (seconds + PACE_BURST.as_secs_f64()) + 8_000.0;
    assert!(bits <= most, "{bits} bits in {seconds} s");
    // How close it comes is tested with a clock of its own; here the machine may stand still.
    assert!(bits > most / 20.0, "{bits} bits in {seconds} s");
    assert!(sender.statistics().pace_waits > 0);
}

#[test]
fn what_cannot_be_opened_is_said_with_its_cure() {
    let addresses = Addresses::new();
    let udp = addresses.unicast(0, 2);
    let taken = UdpSocket::bind(udp.bind).unwrap();
    let error = UdpTransport::open(&udp, 1_472, Time::ZERO).unwrap_err();
    assert!(
        error.to_string().contains("another process has it"),
        "{error}"
    );
    drop(taken);

    let mut elsewhere = udp.clone();
    elsewhere.bind = "192.0.2.1:4747".parse().unwrap();
    let error = UdpTransport::open(&elsewhere, 1_472, Time::ZERO).unwrap_err();
    assert!(
        error.to_string().contains("does not have that address"),
        "{error}"
    );

    let nowhere = udp.clone().with_multicast(addresses.group(), "no-such-if");
    let error = UdpTransport::open(&nowhere, 1_472, Time::ZERO).unwrap_err();
    assert!(matches!(error, TransportError::Interface { .. }), "{error}");
    assert!(error.to_string().contains("no-such-if"), "{error}");

    let mut wrong = udp;
    wrong.receive_buffer_bytes = 0;
    let error = UdpTransport::open(&wrong, 1_472, Time::ZERO).unwrap_err();
    assert!(matches!(error, TransportError::Configuration(_)), "{error}");
}
