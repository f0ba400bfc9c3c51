//! The testkit's own tests: what it must let pass, and what it must catch.

use std::cell::Cell;

use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, Counter, Counters, EndpointSpace, Flow4Key, Late, Map, NetworkFunction, Pool,
    PortNumber, Protocol, Reason, Verdict, build, state,
};
use core::net::Ipv4Addr;

/// Packets of each flow.
#[state]
struct FlowState {
    flows: Counters<Flow4Key>,
}

/// The smallest useful function: counts each flow's packets.
struct FlowCounter;

const OUT: PortNumber = PortNumber(1);

impl NetworkFunction for FlowCounter {
    type State = FlowState;

    fn state(&self, builder: &Builder) -> FlowState {
        FlowState {
            flows: builder.counters("flows", 4),
        }
    }

    fn packet(&self, ask: Ask<'_, FlowState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(tally) = ask.flows.find(&flow.into())? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let mut act = ask.act()?;
        act.flows.add(&tally, 1);
        Ok(Verdict::Forward(OUT))
    }
}

fn frame(host: u8, port: u16) -> Vec<u8> {
    let inside = Ipv4Addr::new(10, 0, 0, host);
    let header = build::Header4::between(inside, Ipv4Addr::new(198, 51, 100, 7));
    let mut frame = vec![0; 100];
    let length = build::udp4(&header, port, 53, b"?", &mut frame).expect("it fits");
    frame.truncate(length);
    frame
}

/// Few hosts and ports, so that flows come again and tables fill; with pauses.
fn steps() -> Vec<(u32, PortNumber, Vec<u8>)> {
    (0..40u16)
        .map(|step| {
            let pause = if step % 11 == 10 { 400 } else { 0 };
            let packet = frame((step % 3) as u8, 1000 + step * 7 % 5);
            (pause, PortNumber(step % 2), packet)
        })
        .collect()
}

#[test]
fn counts_flows_and_refuses_the_fifth() {
    let mut kit = Testkit::new(FlowCounter);
    for port in [1, 2, 1, 3, 4, 5, 1] {
        let outcome = kit.packet(PortNumber(0), &frame(1, port));
        let full = Verdict::Drop(Reason::TableFull);
        assert_eq!(
            outcome.verdict,
            if port == 5 {
                full
            } else {
                Verdict::Forward(OUT)
            }
        );
        assert_eq!(outcome.calls, 1);
    }
    let mut most = 0;
    kit.state()
        .flows
        .for_each(|_, packets| most = most.max(packets));
    assert_eq!(most, 3);
    let cut = kit.packet(PortNumber(0), &frame(1, 1)[..20]);
    assert!(matches!(cut.verdict, Verdict::Drop(_)) && cut.calls == 0);
}

#[test]
fn a_good_function_fares_alike_when_late() {
    late_everywhere(|| FlowCounter, &steps());
    late_everywhere(|| leaser(Bug::None), &steps());
}

/// What the next function does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    CountsCalls,
    KeepsItsOwnTime,
    GrantsOnFirstCallOnly,
    ForgetsWhatItAsked,
    IgnoresLateness,
    ErrsAfterActing,
    AsksForEver,
}

#[state]
struct LeaserState {
    users: Map<u16, ()>,
    other: Counter,
    ports: Pool<EndpointSpace>,
}

/// Leases a port to each source port.
struct Leaser {
    bug: Bug,
    /// What no function should have.
    calls: Cell<u64>,
}

fn leaser(bug: Bug) -> Leaser {
    let calls = Cell::new(0);
    Leaser { bug, calls }
}

impl NetworkFunction for Leaser {
    type State = LeaserState;

    fn state(&self, builder: &Builder) -> LeaserState {
        let space = EndpointSpace::new(&[Ipv4Addr::LOCALHOST], 1..=9, &[Protocol::UDP]);
        let mut state = LeaserState {
            users: builder.table("users", 100, &[100]),
            other: builder.counter("other"),
            ports: builder.pool("ports", space),
        };
        let returns = state.ports.returns();
        let place = asterism_function::Endpoint::new(Ipv4Addr::LOCALHOST, 1, Protocol::UDP);
        state.users.on_forget(0, move |user, _| {
            returns.item(&asterism_function::Endpoint {
                port: user.0,
                ..place
            });
        });
        state
    }

    fn packet(&self, ask: Ask<'_, LeaserState>) -> Result<Verdict, Late> {
        let calls = self.calls.get() + 1;
        self.calls.set(calls);
        let grant = match self.bug {
            Bug::GrantsOnFirstCallOnly if calls.is_multiple_of(2) => None,
            _ => ask.ports.grant(0, 0)?,
        };
        let vacancy = ask.users.vacancy()?;
        if self.bug == Bug::AsksForEver && ask.users.contains(&(calls as u16))? {
            return Ok(Verdict::Consumed);
        }
        let seen = match self.bug {
            Bug::IgnoresLateness => ask.other.get().unwrap_or(77),
            Bug::ErrsAfterActing => {
                let late = ask.other.get();
                let mut act = ask.act()?;
                act.other.add(1);
                return late.map(|_| Verdict::Consumed);
            }
            _ => ask.other.get()?,
        };
        let now = ask.now();
        let mut act = ask.act()?;
        match self.bug {
            Bug::CountsCalls => act.other.add(calls),
            Bug::KeepsItsOwnTime => act.packet.set_source_port(now as u16 + calls as u16),
            Bug::ForgetsWhatItAsked if !calls.is_multiple_of(2) => return Ok(Verdict::Consumed),
            _ => act.other.add(1 + seen % 2),
        }
        let (Some(grant), Some(vacancy)) = (grant, vacancy) else {
            return Ok(Verdict::Drop(Reason::PortsExhausted));
        };
        let port = act.ports.take(grant).port;
        act.users.insert(vacancy, port, ());
        act.packet.set_source_port(port);
        Ok(Verdict::Forward(OUT))
    }
}

#[test]
fn bad_functions_are_caught() {
    for (bug, said) in [
        (Bug::CountsCalls, "another state"),
        (Bug::KeepsItsOwnTime, "fares differently"),
        (Bug::GrantsOnFirstCallOnly, "fares differently"),
        (Bug::ForgetsWhatItAsked, "fares differently"),
        (Bug::IgnoresLateness, "another state"),
        (Bug::AsksForEver, "was late 8 times"),
    ] {
        let run = std::panic::catch_unwind(|| late_everywhere(|| leaser(bug), &steps()));
        let fault = run.expect_err("a bad function must not pass");
        let fault = fault
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| fault.downcast_ref::<&str>().map(|said| (*said).to_owned()))
            .unwrap_or_default();
        assert!(fault.contains(said), "caught for another reason: {fault}");
    }
}

#[test]
#[should_panic(expected = "returned `Err` after `act()`")]
fn an_error_after_acting_stops_the_host() {
    Testkit::late(leaser(Bug::ErrsAfterActing)).packet(PortNumber(0), &frame(1, 1));
}

#[test]
fn a_vacancy_asked_before_a_late_read_is_there_on_the_retry() {
    // Room for exactly one: the first call's reservation must not stand in the second one's way.
    let settings = |late_us| {
        move |_: &str| asterism_function::objects::ObjectSettings {
            late_us,
            capacity: 1,
            ..asterism_function::objects::ObjectSettings::LOCAL
        }
    };
    for late_us in [0, 1] {
        let mut kit = Testkit::with_settings(leaser(Bug::None), settings(late_us));
        let outcome = kit.packet(PortNumber(0), &frame(1, 1));
        assert_eq!(outcome.verdict, Verdict::Forward(OUT), "late {late_us}");
    }
}

#[test]
fn what_is_pinned_to_a_packet_stays_while_time_goes_on() {
    let context = asterism_function::objects::Context::alone();
    context.set_now(5, 100);
    context.arrive(5);
    context.begin(9);
    let before = (
        context.arrived_us(),
        context.arrived_tick(),
        context.random(1),
    );
    let (call, _) = context.park();
    context.set_now(1_000, 200);
    context.arrive(1_000);
    context.begin(10);
    assert_ne!(context.random(1), before.2);
    context.resume(call);
    let after = (
        context.arrived_us(),
        context.arrived_tick(),
        context.random(1),
    );
    assert_eq!(before, after);
}

/// Two objects alike.
#[state]
struct TwinState {
    left: Counter,
    right: Counter,
}

/// Builds objects of these names for them.
struct Twin(&'static [&'static str]);

impl NetworkFunction for Twin {
    type State = TwinState;

    fn state(&self, builder: &Builder) -> TwinState {
        let mut built = self.0.iter().map(|name| builder.counter(name));
        let mut next = || built.next().expect("two names");
        let state = TwinState {
            left: next(),
            right: next(),
        };
        built.for_each(drop);
        state
    }

    fn packet(&self, _: Ask<'_, TwinState>) -> Result<Verdict, Late> {
        Ok(Verdict::Consumed)
    }
}

/// What one instance says of an object another would take for what is said of its twin, and nobody would notice.
#[test]
fn objects_are_built_under_the_names_and_in_the_order_of_the_fields() {
    Testkit::new(Twin(&["left", "right"]));
    for (names, said) in [
        (&["right", "left"][..], "object 0 was built as `right`"),
        (&["left", "write"], "has its field `right`"),
        (&["left", "right", "more"], "3 objects were built"),
    ] {
        let run = std::panic::catch_unwind(|| drop(Testkit::new(Twin(names))));
        let fault = run
            .expect_err("other objects than the state has")
            .downcast::<String>();
        let fault = fault.expect("a sentence");
        assert!(fault.contains(said), "{fault}");
    }
}
