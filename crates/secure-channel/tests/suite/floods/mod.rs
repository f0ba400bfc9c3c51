//! Floods of forged handshakes: a host that starts is admitted within a few round trips all the same.
//!
//! The attacker has no key. It has recorded handshakes of an earlier incarnation of the newcomer, may change any byte of them, and
//! may send from any address, the newcomer's own included; what is sent to that address it does not see.

#[cfg(asterism_mutants)]
mod planted;

use std::collections::VecDeque;
use std::time::Duration;

use asterism_secure_channel::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::{
    ClusterKey, Destination, Refusal, STRANGER_SOURCES_FROM, SecureChannel, SecureConfig, Terms,
};

/// One way of the link, in microseconds.
const DELAY_US: u64 = 500;
/// A hello, a challenge, an echo and a welcome: four ways, and a turn each.
const ADMITTED_WITHIN_US: u64 = 4 * (DELAY_US + STEP_US);
/// Each of those sent again with a cookie after a Retry: three times as many.
const PROVEN_WITHIN_US: u64 = 3 * ADMITTED_WITHIN_US;
const STEP_US: u64 = 50;

/// From where forged handshakes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forged {
    /// From one address of the attacker's.
    OneAddress,
    /// From another address each time.
    ManyAddresses,
    /// In the newcomer's own name: from its configured address.
    NewcomersAddress,
}

const ALL_FORGED: [Forged; 3] = [
    Forged::OneAddress,
    Forged::ManyAddresses,
    Forged::NewcomersAddress,
];

/// Two hosts: the first has run for long, the second starts. `address` is what each knows of where the other is.
struct Pair {
    now: u64,
    hosts: [SecureChannel; 2],
    /// The number that the running host has for the newcomer's address.
    newcomer_from: u64,
    wire: VecDeque<(u64, usize, Vec<u8>)>,
    /// All that either sent.
    recorded: Vec<(usize, Vec<u8>)>,
}

impl Pair {
    fn new(incarnation: u8, newcomer_from: u64) -> Pair {
        let host = |member: u16, incarnation: u64, salt: u8| {
            let key = ClusterKey::from_random(1, core::array::from_fn(|i| i as u8 ^ 1));
            let config = SecureConfig::new(
                key,
                ClusterId(0xc1),
                MemberId(member),
                Incarnation(incarnation),
                vec![MemberId(0), MemberId(1)],
            );
            let (keep_alive, silent) = (Duration::from_millis(20), Duration::from_secs(1));
            let terms = Some(Terms::new("members = a, b", keep_alive, silent));
            let config = SecureConfig { terms, ..config };
            SecureChannel::new(config, [salt; 16], [salt ^ 0x5a; 32]).unwrap()
        };
        Pair {
            now: 10_000_000,
            hosts: [
                host(0, 100 + u64::from(incarnation), 2 * incarnation),
                host(1, 200 + u64::from(incarnation), 2 * incarnation + 1),
            ],
            newcomer_from,
            wire: VecDeque::new(),
            recorded: Vec::new(),
        }
    }

    fn now(&self) -> Time {
        Time::from_micros(self.now)
    }

    fn is_done(&self) -> bool {
        self.hosts[0].admitted(MemberId(1)).is_some()
            && self.hosts[1].admitted(MemberId(0)).is_some()
    }

    /// One step of both hosts and of the link.
    fn step(&mut self) {
        self.now += STEP_US;
        let now = self.now();
        while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, to, mut datagram) = self.wire.pop_front().unwrap();
            let from = if to == 0 { self.newcomer_from } else { 0 };
            let _ = self.hosts[to].handle(now, from, &mut datagram);
        }
        let mut out = Vec::new();
        for at in 0..2 {
            self.hosts[at].handle_timeout(now);
            while let Some(destination) = self.hosts[at].poll_transmit(&mut out) {
                let other = MemberId(1 - at as u16);
                let reaches = match destination {
                    Destination::Member(member) => member == other,
                    Destination::Source(from) => at == 1 || from == self.newcomer_from,
                };
                if reaches {
                    self.recorded.push((at, out.clone()));
                    self.wire
                        .push_back((self.now + DELAY_US, 1 - at, out.clone()));
                }
            }
            while self.hosts[at].poll_event().is_some() {}
        }
    }
}

/// What was recorded of an earlier incarnation.
fn recorded() -> Vec<(usize, Vec<u8>)> {
    let mut pair = Pair::new(1, 1);
    while !pair.is_done() {
        pair.step();
    }
    pair.recorded
}

/// Starts the newcomer in a flood and answers after how many microseconds both have admitted each other; `None` after 20 s.
fn admitted_after_us(
    per_second: u64,
    forged: Forged,
    changed: bool,
    newcomer_from: u64,
) -> Option<u64> {
    let recorded = recorded();
    let mut pair = Pair::new(2, newcomer_from);
    let mut number = 0_u64;
    // The flood has gone on for a while: all budgets that it can spend are spent.
    let begun = pair.now + 1_000_000;
    let mut owed = 0;
    loop {
        owed += per_second * STEP_US;
        while owed >= 1_000_000 {
            owed -= 1_000_000;
            number += 1;
            for (sender, datagram) in &recorded {
                let mut datagram = datagram.clone();
                if changed {
                    datagram[24..32].copy_from_slice(&(number + 1_000).to_le_bytes());
                }
                let to = 1 - sender;
                let from = match forged {
                    Forged::OneAddress => STRANGER_SOURCES_FROM + (7 << 32) + 1,
                    Forged::ManyAddresses => STRANGER_SOURCES_FROM + (number << 28),
                    Forged::NewcomersAddress if to == 0 => newcomer_from,
                    Forged::NewcomersAddress => 0,
                };
                let now = pair.now();
                let handled = pair.hosts[to].handle(now, from, &mut datagram);
                assert!(!matches!(handled, Ok(Some(_))), "a forged datagram opened");
            }
        }
        if pair.now < begun {
            pair.now += STEP_US;
            // Nobody says anything yet but what the flood asks for.
            let mut out = Vec::new();
            for host in &mut pair.hosts {
                while host.poll_transmit(&mut out).is_some() {}
            }
            continue;
        }
        pair.step();
        if pair.is_done() {
            let refused = pair.hosts[0].refusals();
            assert!(
                refused.get(Refusal::HandshakeBudget) > 0,
                "no budget was spent"
            );
            return Some(pair.now - begun);
        }
        if pair.now > begun + 20_000_000 {
            return None;
        }
    }
}

fn assert_admitted(per_second: u64, forged: Forged, changed: bool, newcomer_from: u64) {
    let after = admitted_after_us(per_second, forged, changed, newcomer_from);
    let label =
        format!("{per_second} a second, {forged:?}, changed: {changed}, from {newcomer_from:#x}");
    let after = after.unwrap_or_else(|| panic!("not admitted within 20 s: {label}"));
    // An address that is configured is asked for no cookie while nobody forges it.
    let is_untouched = newcomer_from < STRANGER_SOURCES_FROM && forged != Forged::NewcomersAddress;
    let within = if is_untouched {
        ADMITTED_WITHIN_US
    } else {
        PROVEN_WITHIN_US
    };
    assert!(after <= within, "admitted after {after} us: {label}");
}

/// Recorded handshakes with another counter, as reported: 1,000 a second delayed an admission by 6 s, 20,000 by 60 s.
#[test]
fn forged_handshakes_delay_no_member_at_its_address() {
    for per_second in [1_000, 20_000] {
        for forged in ALL_FORGED {
            assert_admitted(per_second, forged, true, 1);
        }
    }
}

/// Recorded handshakes as they were: they are authentic, and spend what forged ones spend.
#[test]
fn replayed_handshakes_delay_no_member_at_its_address() {
    for forged in ALL_FORGED {
        assert_admitted(20_000, forged, false, 1);
    }
}

/// A member whose datagrams come from an address that is not configured has the budget of its proven address.
#[test]
fn a_member_at_another_address_proves_it() {
    let moved = STRANGER_SOURCES_FROM + (99 << 32) + 5;
    for changed in [true, false] {
        assert_admitted(1_000, Forged::OneAddress, changed, moved);
        assert_admitted(1_000, Forged::ManyAddresses, changed, moved);
    }
}

/// Without a flood nobody is asked for a cookie, so hosts of builds that know none get along.
#[test]
fn a_quiet_admission_takes_no_cookie() {
    let recorded = recorded();
    assert!(!recorded.is_empty());
    assert!(
        recorded
            .iter()
            .all(|(_, datagram)| datagram.len() % 32 == 0)
    );
}

/// A Retry is shorter than what draws it, and there are only so many: a flood is not amplified.
#[test]
fn retries_are_shorter_and_bounded() {
    let recorded = recorded();
    let hello = &recorded.iter().find(|(sender, _)| *sender == 1).unwrap().1;
    let mut pair = Pair::new(2, 1);
    let (mut sent, mut received, mut answers) = (0_usize, 0_usize, 0_u64);
    let mut out = Vec::new();
    for number in 0..200_000_u64 {
        let mut datagram = hello.clone();
        datagram[24..32].copy_from_slice(&(number + 1_000).to_le_bytes());
        received += datagram.len();
        let from = STRANGER_SOURCES_FROM + (number << 28);
        let _ = pair.hosts[0].handle(pair.now(), from, &mut datagram);
        pair.now += 5;
        while pair.hosts[0].poll_transmit(&mut out).is_some() {
            answers += 1;
            sent += out.len();
        }
    }
    assert!(sent < received, "{sent} of {received} bytes");
    // Within one second: the rate, the burst, and challenges within the budget of handshakes.
    let most = asterism_secure_channel::STRANGER_RETRIES_PER_SECOND_MAX
        + asterism_secure_channel::RETRIES_BURST_MAX
        + 100;
    assert!((1_000..=most).contains(&answers), "{answers} answers");
}
