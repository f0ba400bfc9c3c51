//! The contract's clauses on events, documentation and drain: what they let pass, and what they catch. The others are shown by the
//! functions of the library, which have all of them.

use asterism_function::notice::{End, Notice, QUESTION};
use asterism_function::testkit::{Contract, Reached, Step};
use asterism_function::{
    Ask, Builder, Endpoint, EndpointSpace, Late, Map, NetworkFunction, Observable, OwnEvent, Pool,
    PortNumber, Protocol, Reason, Tick, Value, Verdict, Wire, build, state,
};
use core::net::Ipv4Addr;
use std::cell::Cell;
use std::panic::{UnwindSafe, catch_unwind};

const SEEN: OwnEvent = OwnEvent::new(1, "Packet was seen", "Misc activity", 3);
const MISSED: OwnEvent = OwnEvent::new(2, "Packet was missed", "Misc activity", 3);
const PAGE: &str = "It notes in `packets` what left (\"Packet was seen\"), each by one of `ports`.";

/// A packet that left.
#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
struct Left {
    #[join(min)]
    at: Tick,
    #[join(max)]
    source: Ipv4Addr,
}

#[state]
struct GateState {
    packets: Map<u16, Left>,
    ports: Pool<EndpointSpace>,
}

/// What the function does wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bug {
    None,
    TellsOfWhatItDoesNotList,
    TellsTwice,
    TellsFirstWhoAsks,
    AnswersWhateverIsAsked,
    KeepsPorts,
}

/// Has each packet leave by a port of its own, and notes it.
struct Gate {
    bug: Bug,
    /// What no function should have.
    reported: Cell<bool>,
}

fn gate(bug: Bug) -> Gate {
    let reported = Cell::new(false);
    Gate { bug, reported }
}

impl NetworkFunction for Gate {
    type State = GateState;

    fn state(&self, builder: &Builder) -> GateState {
        let space = EndpointSpace::new(&[Ipv4Addr::LOCALHOST], 1..=2_000, &[Protocol::UDP]);
        let mut state = GateState {
            packets: builder.table("packets", 10_000, &[60]),
            ports: builder.pool("ports", space),
        };
        let returns = state.ports.returns();
        let keeps = self.bug == Bug::KeepsPorts;
        let place = Endpoint::new(Ipv4Addr::LOCALHOST, 1, Protocol::UDP);
        state.packets.on_forget(0, move |port, _| {
            if !keeps {
                returns.item(&Endpoint {
                    port: port.0,
                    ..place
                });
            }
        });
        state
    }

    fn packet(&self, ask: Ask<'_, GateState>) -> Result<Verdict, Late> {
        let Some(source) = ask.packet().ipv4_source() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let (Some(vacancy), Some(grant)) = (ask.packets.vacancy()?, ask.ports.grant(0, 0)?) else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let at = ask.now();
        let mut act = ask.act()?;
        let port = act.ports.take(grant).port;
        act.packets.insert(vacancy, port, Left { at, source });
        act.packet.set_source_port(port);
        Ok(Verdict::Forward(PortNumber(1)))
    }

    fn observable(&self) -> Option<&dyn Observable<GateState>> {
        Some(self)
    }
}

impl Observable<GateState> for Gate {
    fn report(
        &self,
        state: &GateState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if self.bug == Bug::AnswersWhateverIsAsked {
            out.push(7);
            return None;
        }
        if question != QUESTION || self.bug == Bug::TellsFirstWhoAsks && self.reported.get() {
            return None;
        }
        let next = state.packets.for_each_from(range, |port, left, member| {
            let seen = Notice {
                first: Some(left.at),
                source: End::endpoint((left.source.into(), port.0)),
                ..Notice::of(&SEEN, member)
            };
            match self.bug {
                Bug::TellsOfWhatItDoesNotList => Notice::of(&MISSED, member).write(out),
                Bug::TellsTwice => {
                    seen.write(out);
                    seen.write(out);
                }
                _ => seen.write(out),
            }
        });
        self.reported.set(next.is_none());
        next
    }

    fn events(&self) -> &[OwnEvent] {
        &[SEEN]
    }
}

fn steps() -> Vec<Step> {
    let packet = |number: u8| {
        let header = build::Header4::between(
            Ipv4Addr::new(10, 0, 0, number % 23),
            Ipv4Addr::new(198, 51, 100, 7),
        );
        let mut frame = vec![0; 100];
        let length = build::udp4(&header, 1_000, 53, b"?", &mut frame).expect("it fits");
        frame.truncate(length);
        frame
    };
    let each = (0..60).map(|number| (0, PortNumber(0), packet(number)));
    each.collect()
}

fn contract(make: fn() -> Gate) -> Contract<Gate> {
    Contract {
        make,
        steps,
        reasons: &[(Reason::UnsupportedProtocol, Reached::ByPackets)],
        events: &[(SEEN, Reached::ByPackets)],
        keeps: &[],
        shares: Some("ports are leased to members"),
        page: PAGE,
    }
}

/// What a clause says of what it does not let pass.
fn refusal(clause: impl FnOnce() + UnwindSafe) -> String {
    let fault = catch_unwind(clause).expect_err("this must not pass");
    fault
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| fault.downcast_ref::<&str>().map(|said| (*said).to_owned()))
        .expect("a sentence")
}

#[test]
fn a_good_function_meets_them() {
    let contract = contract(|| gate(Bug::None));
    contract.names();
    contract.documentation();
    contract.events();
    contract.placements();
    contract.drain();
    contract.silence();
}

#[test]
fn events_that_are_not_as_listed_are_caught() {
    for (make, said) in [
        (
            (|| gate(Bug::TellsOfWhatItDoesNotList)) as fn() -> Gate,
            "is of no kind that is listed",
        ),
        (|| gate(Bug::TellsTwice), "is reported twice"),
        (|| gate(Bug::TellsFirstWhoAsks), "tell of other events"),
        (|| gate(Bug::AnswersWhateverIsAsked), "are not notices"),
    ] {
        let fault = refusal(|| contract(make).events());
        assert!(fault.contains(said), "caught for another reason: {fault}");
    }
    for (events, said) in [
        (&[][..], "\"Packet was seen\" is not listed"),
        (
            &[(SEEN, Reached::ByPackets), (MISSED, Reached::ByPackets)],
            "\"Packet was missed\" is not of its events",
        ),
        (
            &[(SEEN, Reached::Otherwise("nobody comes"))],
            "is reached by packets: say so",
        ),
    ] {
        let fault = refusal(|| {
            let contract = contract(|| gate(Bug::None));
            Contract { events, ..contract }.events();
        });
        assert!(fault.contains(said), "caught for another reason: {fault}");
    }
}

#[test]
fn a_page_that_lacks_something_is_caught() {
    for (page, said) in [
        (
            "It notes `packets` (\"Packet was seen\").",
            "object \"ports\"",
        ),
        ("`packets`, `ports`", "event \"Packet was seen\""),
    ] {
        let fault = refusal(|| {
            let contract = contract(|| gate(Bug::None));
            Contract { page, ..contract }.documentation();
        });
        assert!(fault.contains(said), "caught for another reason: {fault}");
    }
}

#[test]
fn a_function_that_does_not_go_on_elsewhere_is_caught() {
    // Whose ports these are depends on the host, and the contract does not say so.
    let fault = refusal(|| {
        let contract = contract(|| gate(Bug::None));
        let shares = None;
        Contract { shares, ..contract }.drain();
    });
    assert!(
        fault.contains("where the first host is drained, a packet fares differently"),
        "{fault}"
    );
    let fault = refusal(|| contract(|| gate(Bug::KeepsPorts)).drain());
    assert!(fault.contains("ports keeps entries"), "{fault}");
}
