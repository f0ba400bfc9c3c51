//! Hosts that ask a NAT for outside ports by PCP: anyone who has an endpoint keeps it, at whichever host it asks again, everybody
//! outside reaches it there, and nobody else changes it.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, Packet, Protocol, TcpFlags};
use asterism_functions::nat::{Nat, pcp};
use asterism_placement::Time;

use super::bindings::Bindings;
use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, Place};
use super::plan::Plan;
use super::services::{GATEWAY, Translated};
use super::talks::frame;
use crate::report::Failure;
use crate::scenario::Draws;

/// Endpoints inside that are asked for.
const WISHES: u8 = 10;
/// Who gets no answer asks again after so long.
const ASKS_AGAIN: Duration = Duration::from_millis(25);
/// What a thief has in place of a wish's number.
const THIEF: u8 = 0xee;
/// Answers and visits that each must have once links are good.
const IN_CALM: u32 = 2;
/// The port of the first of them; the others have those after it.
const FIRST_PORT: u16 = 2_000;
/// What routers deal packets by: of wishes their numbers, of visits and of the thief's requests so much more.
const VISITS: u64 = 100;
const THEFTS: u64 = 200;
/// Seconds that are asked for.
const LIFETIME: u32 = 3_600;

/// The message of RFC 6887 §11.1.
fn request(inside: Endpoint, nonce: u8, lifetime: u32) -> Vec<u8> {
    let mut message = vec![2, 1, 0, 0];
    message.extend(lifetime.to_be_bytes());
    message.extend(inside.address.to_ipv6_mapped().octets());
    message.extend([nonce; 12]);
    message.extend([inside.protocol.0, 0, 0, 0]);
    message.extend(inside.port.to_be_bytes());
    message.extend([0; 2]);
    message.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
    let client = Endpoint::new(inside.address, 40_000, Protocol::UDP);
    let server = Endpoint::new(GATEWAY, pcp::PORT, Protocol::UDP);
    let segment = Segment::with_flags(TcpFlags::default());
    frame((client, server), &segment, &message)
}

/// What an answer says.
struct Answer {
    code: u8,
    /// Of the wish, or the thief's.
    nonce: u8,
    internal_port: u16,
    outside: Endpoint,
}

impl Answer {
    fn read(answer: &[u8]) -> Option<Self> {
        let map: [u8; 36] = answer.get(24..60)?.try_into().ok()?;
        let port = |at: usize| u16::from_be_bytes([map[at], map[at + 1]]);
        let address = Ipv4Addr::new(map[32], map[33], map[34], map[35]);
        Some(Self {
            code: answer[3],
            nonce: map[0],
            internal_port: port(16),
            outside: Endpoint::new(address, port(18), Protocol(map[12])),
        })
    }
}

/// An endpoint inside that is asked for.
struct Wish {
    inside: Endpoint,
    asks_at: Time,
    outside: Option<Endpoint>,
    visited_at: Time,
    answers_in_calm: u32,
    visits_in_calm: u32,
}

/// What was asked of one host in the roll call, and what came back.
#[derive(Default)]
struct Call {
    answered: BTreeSet<u8>,
    visited: BTreeSet<u8>,
}

/// Hosts that ask, those who visit them, and a thief.
pub(crate) struct Asked {
    nat: Translated,
    draws: Draws,
    wishes: Vec<Wish>,
    bindings: Bindings,
    call: Option<Call>,
    is_calm: bool,
    now: Time,
    judged: BTreeMap<&'static str, u64>,
}

impl Asked {
    pub(crate) fn new(plan: &Plan) -> Self {
        let wish = |number: u8| Wish {
            inside: Endpoint::new(
                // Two of a host each.
                Ipv4Addr::new(10, 0, 0, 1 + number / 2),
                FIRST_PORT + u16::from(number),
                match number % 3 {
                    0 => Protocol::UDP,
                    _ => Protocol::TCP,
                },
            ),
            asks_at: Time::ZERO,
            outside: None,
            visited_at: Time::ZERO,
            answers_in_calm: 0,
            visits_in_calm: 0,
        };
        Self {
            nat: Translated::new(plan),
            draws: super::drive::draws(plan),
            wishes: (0..WISHES).map(wish).collect(),
            bindings: Bindings::default(),
            call: None,
            is_calm: false,
            now: Time::ZERO,
            judged: BTreeMap::new(),
        }
    }

    fn asks(&self, number: u8, host: Option<usize>) -> Arrival {
        Arrival {
            port: PORTS[0],
            path: number.into(),
            host,
            frame: request(self.wishes[usize::from(number)].inside, number, LIFETIME),
        }
    }

    /// A packet from anywhere to what a wish was reported.
    fn visit(&mut self, number: u8, outside: Endpoint, host: Option<usize>) -> Arrival {
        let address = Ipv4Addr::new(198, 51, 100, self.draws.within(1, 250) as u8);
        let remote = Endpoint::new(address, 1_000, outside.protocol);
        let segment = Segment {
            sequence: number.into(),
            ..Segment::with_flags(TcpFlags::SYN)
        };
        let payload: &[u8] = match outside.protocol {
            Protocol::UDP => &[number; 8],
            _ => &[],
        };
        Arrival {
            port: PORTS[1],
            path: VISITS + u64::from(number),
            host,
            frame: frame((remote, outside), &segment, payload),
        }
    }

    fn judged(&mut self, what: &'static str) {
        *self.judged.entry(what).or_default() += 1;
    }

    /// An answer to who asked.
    fn answered(&mut self, answer: &[u8], client: Ipv4Addr, at: Place) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::new("wishes are granted, and kept", what));
        let Some(said) = Answer::read(answer) else {
            return wrong(format!("{at:?} answered {answer:x?}"));
        };
        let (code, number, outside) = (said.code, said.nonce, said.outside);
        if number == THIEF {
            // Where nothing is known yet there is nothing to end.
            let flow = u64::from(said.internal_port.saturating_sub(FIRST_PORT));
            if code == 0 && self.bindings.knew(flow, at, self.now) {
                return wrong(format!("{at:?} let a thief end {flow}"));
            }
            self.judged(match code {
                0 => "thefts of nothing",
                _ => "thefts refused",
            });
            return Ok(());
        }
        let Some(wish) = self.wishes.get_mut(usize::from(number)) else {
            return wrong(format!("{at:?} answered nobody: {answer:x?}"));
        };
        let inside = wish.inside;
        if code != 0 || client != inside.address || outside.protocol != inside.protocol {
            return wrong(format!("{at:?} answered {inside} by {code} and {outside}"));
        }
        wish.outside = Some(outside);
        wish.answers_in_calm += u32::from(self.is_calm);
        wish.asks_at = self.now + self.draws.micros(20_000, 80_000);
        if let Some(call) = &mut self.call {
            call.answered.insert(number);
        }
        let (flow, value) = (u64::from(number), outside.to_bits());
        if let Err(what) = self.bindings.leaves(flow, value, at, self.now) {
            return wrong(what);
        }
        match self.bindings.others(flow, value) {
            Some(other) => wrong(format!("{outside} is of {inside} and of wish {other}")),
            None => Ok(()),
        }
    }

    /// A packet to somebody inside.
    fn visited(&mut self, packet: &Packet<'_>) -> Result<(), Failure> {
        let Some(flow) = packet.flow4() else {
            return Ok(());
        };
        let inside = flow.destination();
        let number = match inside.protocol {
            Protocol::UDP => packet.payload().first().copied(),
            _ => packet.tcp_sequence().map(|sequence| sequence as u8),
        };
        let wish = number.and_then(|number| self.wishes.get_mut(usize::from(number)));
        match (wish, number) {
            (Some(wish), Some(number)) if wish.inside == inside => {
                wish.visits_in_calm += u32::from(self.is_calm);
                if let Some(call) = &mut self.call {
                    call.visited.insert(number);
                }
                self.judged("visits of asked ports");
                Ok(())
            }
            _ => Err(Failure::new(
                "visitors come to the host that they want",
                format!("to {inside} instead of wish {number:?}"),
            )),
        }
    }
}

impl World for Asked {
    type Function = Nat;

    fn function(&mut self) -> Nat {
        self.nat.that_is_asked()
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        for number in 0..WISHES {
            let wish = &mut self.wishes[usize::from(number)];
            if self.call.is_some() {
                return;
            }
            let outside = wish.outside.filter(|_| now >= wish.visited_at);
            if now >= wish.asks_at {
                wish.asks_at = now + ASKS_AGAIN;
                out.push(self.asks(number, None));
            }
            if let Some(outside) = outside {
                let wait = self.draws.micros(5_000, 20_000);
                self.wishes[usize::from(number)].visited_at = now + wait;
                out.push(self.visit(number, outside, None));
            }
        }
        if self.draws.percent(3) {
            let number = self.draws.within(0, u64::from(WISHES) - 1);
            let inside = self.wishes[number as usize].inside;
            out.push(Arrival {
                port: PORTS[0],
                path: THEFTS + number,
                host: None,
                frame: request(inside, THIEF, 0),
            });
        }
    }

    fn arrives(&mut self, arrival: &Arrival, at: Place, hosts: &Hosts<Nat>) {
        let (wishes, path) = (u64::from(WISHES), arrival.path);
        for flow in [Some(path), path.checked_sub(THEFTS)]
            .into_iter()
            .flatten()
            .filter(|flow| *flow < wishes)
        {
            self.bindings.arrives(flow, at, hosts);
        }
    }

    fn leaves(&mut self, mut left: Left, _: &Hosts<Nat>) -> Result<(), Failure> {
        if left.port != PORTS[0] {
            return Ok(());
        }
        let Ok(packet) = Packet::parse(&mut left.frame) else {
            return Ok(());
        };
        match packet.flow4() {
            Some(flow) if flow.source() == Endpoint::new(GATEWAY, pcp::PORT, Protocol::UDP) => {
                let client = flow.destination().address;
                self.answered(packet.payload(), client, left.at)
            }
            _ => self.visited(&packet),
        }
    }

    fn died(&mut self, victim: usize, reported: Time, _: &Hosts<Nat>) {
        self.bindings.died(victim, reported);
    }

    fn calms(&mut self, _: Time) {
        self.is_calm = true;
    }

    fn unfinished(&self) -> Option<String> {
        let lacks = |wish: &&Wish| wish.answers_in_calm < IN_CALM || wish.visits_in_calm < IN_CALM;
        let wish = self.wishes.iter().find(lacks)?;
        Some(format!(
            "{} had {} answers, the last {:?}, and {} visits",
            wish.inside, wish.answers_in_calm, wish.outside, wish.visits_in_calm
        ))
    }

    fn roll_call(&mut self, host: usize, next: usize, _: Time, out: &mut Vec<Arrival>) {
        self.call = Some(Call::default());
        for number in 0..WISHES {
            out.push(self.asks(number, Some(host)));
            if let Some(outside) = self.wishes[usize::from(number)].outside {
                out.push(self.visit(number, outside, Some(next)));
            }
        }
    }

    fn called(&mut self, host: usize) -> Result<(), Failure> {
        let all: BTreeSet<u8> = (0..WISHES).collect();
        let call = self.call.as_ref();
        if call.is_none_or(|call| call.answered != all || call.visited != all) {
            return Err(Failure::new(
                "mappings are known at every host",
                format!("m{host} answered {:?}", call.map(|call| &call.answered)),
            ));
        }
        self.judged("roll calls");
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<Nat>) -> Result<(), Failure> {
        for (at, instance) in hosts.instances() {
            // Beside them stands when the first request came.
            let known = instance.state().mappings.len_now() - 1;
            if known != usize::from(WISHES) {
                return Err(Failure::new(
                    "mappings are known at every host",
                    format!("{at:?} knows who may change {known}"),
                ));
            }
        }
        Ok(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.judged.clone();
        counts.insert("bindings given again", self.bindings.again);
        counts.insert("bindings lost with their host", self.bindings.lost);
        counts.insert("packets that had to keep a binding", self.bindings.kept);
        counts
    }
}
