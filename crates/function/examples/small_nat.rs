//! A NAT in one direction, as small as it gets: every inside endpoint gets an outside one.
//! `cargo run -p asterism-function --example small_nat`

use asterism_function::testkit::Testkit;
use asterism_function::{
    Ask, BiMap, Builder, Endpoint, EndpointSpace, Late, NetworkFunction, Pool, PortNumber,
    Protocol, Reason, Verdict, build, state,
};
use core::net::Ipv4Addr;

/// What every instance of this NAT shares. Where it lives is the configuration's business.
#[state]
pub struct NatState {
    /// Inside endpoint and outside endpoint: one record, unique both ways.
    bindings: BiMap<Endpoint, Endpoint>,
    /// Outside endpoints, leased to hosts in blocks.
    ports: Pool<EndpointSpace>,
}

struct Nat;

const OUTSIDE: PortNumber = PortNumber(1);

impl NetworkFunction for Nat {
    type State = NatState;

    fn state(&self, builder: &Builder) -> NatState {
        let outside = [Ipv4Addr::new(203, 0, 113, 1)];
        let space = EndpointSpace::new(&outside, 1024..=u16::MAX, &[Protocol::UDP]);
        let mut state = NatState {
            bindings: builder.table("bindings", 10_000, &[300]),
            ports: builder.pool("ports", space),
        };
        // A port returns once everybody has forgotten the last binding with it, and one that is in use is granted to nobody,
        // anyone who took it: another host, or this one before it was restarted.
        let returns = state.ports.returns();
        state.bindings.on_forget(1, move |pair, last| {
            if last {
                returns.item(&pair.1);
            }
        });
        let holds = state.ports.returns();
        state.bindings.on_adopt(move |pair| holds.hold(&pair.1));
        state
    }

    fn packet(&self, ask: Ask<'_, NatState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        // Asking may be late: then the packet waits, and the function is called again.
        let known = ask.bindings.by_left(&flow.source())?;
        let fresh = match known {
            Some(_) => None,
            None => ask.ports.grant(0, 0)?.zip(ask.bindings.vacancy()?),
        };
        // Acting neither waits nor fails.
        let mut act = ask.act()?;
        let outside = match (known, fresh) {
            (Some(binding), _) => {
                act.bindings.touch(&binding);
                binding.row.1
            }
            (None, Some((grant, vacancy))) => {
                let outside = act.ports.take(grant);
                act.bindings.insert(vacancy, (flow.source(), outside), ());
                outside
            }
            (None, None) => return Ok(Verdict::Drop(Reason::PortsExhausted)),
        };
        act.packet.set_source(outside);
        Ok(Verdict::Forward(OUTSIDE))
    }
}

fn main() {
    let mut kit = Testkit::new(Nat);
    for host in 1..=3 {
        let inside = Ipv4Addr::new(10, 0, 0, host);
        let header = build::Header4::between(inside, Ipv4Addr::new(198, 51, 100, 7));
        let mut frame = [0; 100];
        let length = build::udp4(&header, 4000, 53, b"?", &mut frame).expect("it fits");
        let outcome = kit.packet(PortNumber(0), &frame[..length]);
        assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
        kit.state()
            .bindings
            .for_each(|pair, ()| println!("{:?} <-> {:?}", pair.0, pair.1));
        println!();
    }
}
