//! What a group costs the replicated protocol core, sender and receiver, sealing and sockets left out:
//! `cargo run --release -p asterism-placement --example replicated_speed`.
//!
//! One sender, two receivers, groups of 30 bytes in bursts of 32; each receiver reports what it applied after every burst.

#![allow(
    clippy::disallowed_methods,
    reason = "an example that measures reads the clock; the core does not"
)]

use std::time::{Duration, Instant};

use asterism_placement::replicated::{Config, Deliver, Replicator};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

const GROUPS: u64 = 8_000_000;
const BURST: u64 = 32;
const GROUP_BYTES: usize = 30;

#[derive(Default)]
struct Sum(u64);

impl Deliver for Sum {
    fn group(&mut self, _: MemberId, _: Incarnation, sequence: u64, group: &[u8]) {
        self.0 = self
            .0
            .wrapping_add(sequence ^ u64::from(group[0]) ^ u64::from(group[group.len() - 1]));
    }
}

fn main() {
    let members = vec![MemberId(0), MemberId(1), MemberId(2)];
    let node = |member: u16| {
        let member_incarnation = Incarnation(u64::from(member));
        let config = Config::new(
            ClusterId(1),
            Epoch(1),
            MemberId(member),
            member_incarnation,
            members.clone(),
        );
        Replicator::new(config, Time::ZERO).expect("a good configuration")
    };
    let mut sender = node(0);
    let mut receivers = [node(1), node(2)];
    let mut sums = [Sum::default(), Sum::default()];
    let group = [0x5a; GROUP_BYTES];
    let mut buffer = Vec::with_capacity(2_000);
    let mut answers: Vec<(u16, Vec<u8>)> = Vec::new();
    let (mut submitting, mut sending, mut receiving, mut answering, mut answered) =
        Default::default();
    let _: &[Duration; 5] = &[submitting, sending, receiving, answering, answered];
    let (mut messages, mut bytes) = (0u64, 0u64);
    let mut now = Time::ZERO;
    let mut sequence = 0;
    while sequence < GROUPS {
        now = now + Duration::from_micros(10);
        let start = Instant::now();
        for _ in 0..BURST {
            sequence += 1;
            sender.submit(now, sequence, &group).expect("room");
        }
        submitting += start.elapsed();
        loop {
            let start = Instant::now();
            sender.handle_timeout(now);
            let destination = sender.poll_transmit(now, &mut buffer);
            sending += start.elapsed();
            if destination.is_none() {
                break;
            }
            messages += 1;
            bytes += buffer.len() as u64;
            for (receiver, sum) in receivers.iter_mut().zip(&mut sums) {
                let start = Instant::now();
                receiver
                    .handle(now, MemberId(0), Incarnation(0), &buffer, sum)
                    .expect("a good message");
                let received = receiver
                    .progress()
                    .member(MemberId(0))
                    .map_or(0, |progress| progress.received);
                receiver.applied(now, MemberId(0), received);
                receiving += start.elapsed();
            }
        }
        for (place, receiver) in receivers.iter_mut().enumerate() {
            let start = Instant::now();
            receiver.handle_timeout(now);
            while receiver.poll_transmit(now, &mut buffer).is_some() {
                answers.push((place as u16 + 1, buffer.clone()));
            }
            answering += start.elapsed();
        }
        let start = Instant::now();
        for (from, answer) in answers.drain(..) {
            let incarnation = Incarnation(u64::from(from));
            sender
                .handle(
                    now,
                    MemberId(from),
                    incarnation,
                    &answer,
                    &mut Sum::default(),
                )
                .expect("a good message");
        }
        answered += start.elapsed();
    }
    let per_group = |time: Duration| time.as_nanos() as f64 / GROUPS as f64;
    println!(
        "{GROUPS} groups of {GROUP_BYTES} bytes in {messages} messages, {} bytes each",
        bytes / messages
    );
    println!("sender, ns per group: submit {:.1}", per_group(submitting));
    println!(
        "                      timers and messages {:.1}",
        per_group(sending)
    );
    println!(
        "                      acknowledgements {:.1}",
        per_group(answered)
    );
    let sender_ns = per_group(submitting + sending + answered);
    println!(
        "                      together {sender_ns:.1} = {:.1} M groups a second",
        1_000.0 / sender_ns
    );
    println!(
        "receiver, ns per group: handle and applied {:.1}",
        per_group(receiving) / 2.0
    );
    println!(
        "                        acknowledging {:.1}",
        per_group(answering) / 2.0
    );
    println!(
        "bytes per group, before sealing: {:.2}",
        bytes as f64 / GROUPS as f64
    );
    assert_eq!(sums[0].0, sums[1].0);
}
