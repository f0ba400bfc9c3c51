//! `firewall.flood`: ten million connections that are begun and never completed, and what they do to everybody else.
//!
//! Each SYN is of a source of its own. The first half goes to one server, the second to many. Meanwhile connections that are
//! established go on, hosts inside begin and complete connections, and in the first half so do clients outside with other servers.
//! A minute later everybody can begin connections again.

use asterism_function::build::{self, Header4, Segment};
use asterism_function::testkit::{Testkit, measured};
use asterism_function::{PortNumber, TcpFlags, Verdict};
use asterism_functions::firewall::{Firewall, FirewallConfig, read_rules};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::memory::resident_bytes;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "firewall.flood",
    make: flood,
}];

const FLOOD: u32 = 10_000_000;
/// Virtual seconds that it takes.
const SECONDS: u32 = 20;
/// Servers behind the firewall; the first one is flooded alone.
const SERVERS: u32 = 64;
/// Connections that are established before.
const ESTABLISHED: u32 = 500;
/// SYNs of the flood between two rounds of everybody else.
const ROUND: u32 = 1_000;
/// Seconds after which nothing of it is known any more: the window, and the idle time of what is half open, a quarter of it and some.
const OVER: u32 = 90;
/// Inside may begin everything, outside only connections to port 80.
const RULES: &str = "allow tcp on outside to any port 80\nallow any on inside\n";

const INSIDE: PortNumber = PortNumber(0);
const OUTSIDE: PortNumber = PortNumber(1);
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);

/// An address and a port.
type End = (u32, u16);

/// Inside hosts, which servers are.
fn inside(number: u32) -> u32 {
    10 << 24 | number
}

/// Hosts outside: those that the flood forges have numbers from 0 on, others from here on.
const OTHERS: u32 = 20_000_000;

fn outside(number: u32) -> u32 {
    11 << 24 | number
}

/// The firewall, and the connections that it failed.
struct Gate {
    kit: Testkit<Firewall>,
    frame: [u8; 256],
    /// Packets that had to pass and did not.
    refused: u64,
    /// Those that did.
    passed: u64,
}

impl Gate {
    /// Whether a segment passes.
    fn passes(&mut self, port: PortNumber, (from, to): (End, End), segment: &Segment) -> bool {
        let header = Header4::between(from.0.into(), to.0.into());
        let written = build::tcp4(&header, from.1, to.1, segment, &[], &mut self.frame);
        let length = written.unwrap_or_default();
        let outcome = self.kit.packet(port, &self.frame[..length]);
        matches!(outcome.verdict, Verdict::Forward(_))
    }

    fn must_pass(
        &mut self,
        port: PortNumber,
        ends: (End, End),
        flags: TcpFlags,
        numbers: (u32, u32),
    ) {
        let segment = Segment {
            sequence: numbers.0,
            acknowledgement: numbers.1,
            window: 64_000,
            ..Segment::with_flags(flags)
        };
        match self.passes(port, ends, &segment) {
            true => self.passed += 1,
            false => self.refused += 1,
        }
    }

    /// A connection from a client by a link to a server, up to where both have agreed.
    fn connect(&mut self, from: PortNumber, client: End, server: End) {
        let back = PortNumber(from.0 ^ 1);
        self.must_pass(from, (client, server), TcpFlags::SYN, (1, 0));
        self.must_pass(back, (server, client), SYN_ACK, (7, 2));
        self.must_pass(from, (client, server), TcpFlags::ACK, (2, 8));
    }

    /// Both ends of an established connection say something.
    fn go_on(&mut self, client: End, server: End) {
        self.must_pass(OUTSIDE, (client, server), TcpFlags::ACK, (2, 8));
        self.must_pass(INSIDE, (server, client), TcpFlags::ACK, (8, 2));
    }

    fn measured(&self, name: &str) -> f64 {
        measured(self.kit.function(), self.kit.state(), name) as f64
    }
}

fn client(number: u32) -> End {
    (outside(OTHERS + number), 40_000)
}

fn server(number: u32) -> End {
    (inside(number % SERVERS), 80)
}

fn flood(context: &Context) -> Result<Outcome, Failure> {
    let config = FirewallConfig {
        rules: read_rules(RULES).map_err(|mistakes| Failure::Unsound(format!("{mistakes:?}")))?,
        settle_us: 0,
        ..FirewallConfig::default()
    };
    let limit = f64::from(config.half_open_total);
    let mut gate = Gate {
        kit: Testkit::new(Firewall::new(config)),
        frame: [0; 256],
        refused: 0,
        passed: 0,
    };
    for number in 0..ESTABLISHED {
        gate.connect(OUTSIDE, client(number), server(number));
    }
    gate.kit.advance(OVER);
    let (mut let_in, mut half_open_most, mut flows_most) = (0u32, 0f64, 0f64);
    let mut resident_at_first = None;
    let begun = Segment::with_flags(TcpFlags::SYN);
    for number in 0..FLOOD {
        let target = if number < FLOOD / 2 { 0 } else { number };
        let source = (outside(number), 1_024 + (number % 60_000) as u16);
        let_in += u32::from(gate.passes(OUTSIDE, (source, server(target)), &begun));
        if number % ROUND == 0 {
            let round = number / ROUND;
            let old = round % ESTABLISHED;
            gate.go_on(client(old), server(old));
            let port = 1_024 + (round % 50_000) as u16;
            gate.connect(
                INSIDE,
                (inside(1_000 + round % 200), port),
                client(ESTABLISHED),
            );
            if number < FLOOD / 2 {
                let port = 1_024 + (round % 50_000) as u16;
                let new = outside(OTHERS + 1_000 + round % 200);
                gate.connect(OUTSIDE, (new, port), server(1 + round % (SERVERS - 1)));
            }
        }
        if number % (FLOOD / SECONDS) == 0 {
            gate.kit.advance(1);
            half_open_most = half_open_most.max(gate.measured("half_open_connections"));
            flows_most = flows_most.max(gate.measured("flows"));
            context.say(&format!("{number} of {FLOOD}: {let_in} let in"));
        }
        // By then all tables are as full as they get.
        if number == FLOOD / 4 * 3 {
            resident_at_first = Some(resident_bytes()?);
        }
    }
    let grown = (resident_bytes()? - resident_at_first.unwrap_or_default()).max(0.0);
    gate.kit.advance(OVER);
    let left = gate.measured("half_open_connections");
    for number in 0..SERVERS {
        gate.connect(OUTSIDE, client(5_000 + number), server(number));
    }
    if let_in == 0 || f64::from(let_in) > limit + 1.0 || left > 0.0 {
        return Err(Failure::Unsound(format!(
            "{let_in} of the flood were let in within a minute of {limit}, and {left} half-open connections are left"
        )));
    }
    Ok(Outcome::new(gate.refused as f64, 1)
        .variant("half-open-begun", f64::from(FLOOD))
        .variant("half-open-let-in", f64::from(let_in))
        .variant("half-open-most", half_open_most)
        .variant("flows-most", flows_most)
        .variant("others-packets", (gate.passed + gate.refused) as f64)
        .variant("memory-growth-mib", grown / f64::from(1 << 20)))
}
