//! The library as an author uses it: a wire that marks which backend it would choose, made of nothing else.

use asterism_balancing::{
    Backend, CheckResult, Choice, Clients, ControlAction, Flow, Flows, Health, Known, Pools,
    SILENCE_SECONDS, Service, Sizes, VOTE_SECONDS, tables,
};
use asterism_forwarding::{Ends, IdleTimes, Segment, Side, StationRequest};
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{
    Ask, Builder, CONTROL, Endpoint, Late, NetworkFunction, PortNumber, Protocol, Reason, TcpFlags,
    Vector, Verdict, build, state,
};

const BACKENDS_MAX: usize = 8;
const CLIENTS: PortNumber = PortNumber(0);
const BACKENDS: PortNumber = PortNumber(1);
/// A backend's packets leave by the port of this number and its own.
const MARK: u16 = 100;

#[state]
struct MarksState {
    flows: Flows,
    affinity: Clients,
    usage: Vector,
    health: Health,
}

/// Forwards a client's packet by the port that says which backend its flow has, and ends what backends say.
struct Classes(Pools);

impl NetworkFunction for Classes {
    type State = MarksState;

    fn state(&self, builder: &Builder) -> MarksState {
        let sizes = Sizes {
            flows_max: 4_096,
            idle: IdleTimes::RFC,
            half_closed_s: 120,
            affinity_max: 64,
            persistence_s: 60,
            backends_max: BACKENDS_MAX,
        };
        let (flows, affinity, usage, health) = tables(builder, &sizes);
        MarksState {
            flows,
            affinity,
            usage,
            health,
        }
    }

    fn packet(&self, ask: Ask<'_, MarksState>) -> Result<Verdict, Late> {
        if ask.port() == CONTROL {
            match self.0.reported(&ask, &ask.health)? {
                ControlAction::Write(said) => said.write(&mut ask.act()?.health),
                ControlAction::End(verdict) => return Ok(verdict),
                ControlAction::Resolve(_) => {}
            }
            return Ok(Verdict::Consumed);
        }
        let from = match ask.port() {
            CLIENTS => Side::Outside,
            _ => Side::Inside,
        };
        let Some(packet) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let (source, destination) = (packet.source(), packet.destination());
        let segment = Segment::of(ask.packet());
        let known = Flow::of(&ask.flows, from, &Ends::between(source, destination))?;
        if let Some(at) = known {
            let said = self.0.said(&ask, &ask.health, from, &at)?;
            let mut act = ask.act()?;
            act.flows
                .update(&at, at.row.after(at.value, from, &segment));
            if let Some(said) = said {
                said.write(&mut act.health);
            }
            return Ok(marked(&at.row));
        }
        let Some(pool) = self.0.of(destination) else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        let known = Known {
            flows: &ask.flows,
            affinity: &ask.affinity,
            usage: &ask.usage,
            health: &ask.health,
        };
        let Some(chosen) = pool.choose(&ask, known, (source, destination))? else {
            return Ok(Verdict::Drop(Reason::NoBackend));
        };
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let keeping = chosen.keeping(&ask.affinity, ask.now())?;
        let (flow, mut act) = (chosen.flow, ask.act()?);
        let connection = flow.opened_by(&segment);
        act.flows.insert(vacancy, flow, connection);
        keeping.write(&mut act.affinity);
        Ok(marked(&flow))
    }
}

fn marked(flow: &Flow) -> Verdict {
    let number = flow.backend.address.octets()[3];
    Verdict::Forward(PortNumber(MARK + u16::from(number)))
}

fn end(network: u8, last: u8, port: u16) -> Endpoint {
    Endpoint::new([10, 0, network, last].into(), port, Protocol::TCP)
}

fn asked() -> Endpoint {
    end(0, 1, 80)
}

fn backend(number: u8) -> Endpoint {
    end(1, number, 8_080)
}

fn client(number: u16) -> Endpoint {
    end(2, (number / 200) as u8, 1_000 + number % 200)
}

fn service(count: u8) -> Service {
    let backends = (0..count).map(|number| Backend::new(backend(number).address, 8_080));
    Service {
        checked: true,
        ..Service::new(asked(), backends.collect())
    }
}

fn marks(service: Service) -> Testkit<Classes> {
    Testkit::new(Classes(Pools::new(&[service], BACKENDS_MAX).unwrap()))
}

fn frame(from: Endpoint, to: Endpoint, flags: TcpFlags) -> Vec<u8> {
    let mut frame = vec![0; 128];
    let header = build::Header4::between(from.address, to.address);
    let segment = build::Segment::with_flags(flags);
    let length = build::tcp4(&header, from.port, to.port, &segment, b"", &mut frame);
    frame.truncate(length.unwrap());
    frame
}

/// Who gets a client's SYN.
fn opened(kit: &mut Testkit<Classes>, client: Endpoint) -> Option<u8> {
    match kit
        .packet(CLIENTS, &frame(client, asked(), TcpFlags::SYN))
        .verdict
    {
        Verdict::Forward(port) => Some((port.0 - MARK) as u8),
        verdict => {
            assert_eq!(verdict, Verdict::Drop(Reason::NoBackend));
            None
        }
    }
}

fn tell(kit: &mut Testkit<Classes>, backend: Endpoint, is_down: bool) -> Verdict {
    let finding = CheckResult {
        member: 0,
        backend,
        is_down,
    };
    kit.packet(CONTROL, &finding.frame()).verdict
}

#[test]
fn a_death_moves_no_flow_of_another() {
    let (mut before, mut after) = (marks(service(4)), marks(service(4)));
    assert_eq!(tell(&mut after, backend(2), true), Verdict::Consumed);
    for number in 0..1_000 {
        let (was, is) = (
            opened(&mut before, client(number)),
            opened(&mut after, client(number)),
        );
        assert_ne!(is, Some(2));
        assert!(was == is || was == Some(2));
    }
    for number in [0, 1, 3] {
        tell(&mut after, backend(number), true);
    }
    assert_eq!(opened(&mut after, client(1_000)), None);
    // Its vote is forgotten.
    after.advance(VOTE_SECONDS + 1);
    assert!(opened(&mut after, client(1_000)).is_some());
}

#[test]
fn the_fewest_flows_for_the_weight_are_counted_of_the_table() {
    let mut weighted = service(3);
    weighted.choice = Choice::LeastConnections;
    weighted.backends[2].weight = 2;
    let mut kit = marks(weighted);
    let mut counts = [0; 3];
    for number in 0..400 {
        counts[usize::from(opened(&mut kit, client(number)).unwrap())] += 1;
    }
    assert_eq!(counts, [100, 100, 200]);
    let pools = &kit.function().0;
    let held = |number| {
        let place = pools.usage_place(backend(number)).unwrap();
        kit.state().usage.get(place).ok()
    };
    assert_eq!(
        [held(0), held(1), held(2)],
        [Some(100), Some(100), Some(200)]
    );
}

#[test]
fn a_client_keeps_its_backend_until_that_dies_and_then_the_next() {
    let mut kit = marks(Service {
        choice: Choice::LeastConnections,
        persistent: true,
        ..service(3)
    });
    let first = opened(&mut kit, client(0)).unwrap();
    for number in 1..20 {
        assert_eq!(opened(&mut kit, client(number)), Some(first));
    }
    assert_eq!(kit.state().affinity.len_now(), 1);
    tell(&mut kit, backend(first), true);
    let second = opened(&mut kit, client(20)).unwrap();
    assert_ne!(second, first);
    tell(&mut kit, backend(first), false);
    assert_eq!(opened(&mut kit, client(21)), Some(second));
}

#[test]
fn what_hosts_say_is_written_when_it_is_news() {
    let mut kit = marks(service(BACKENDS_MAX as u8));
    let votes = |kit: &Testkit<Classes>| kit.state().health.len_now();
    assert_eq!(tell(&mut kit, end(1, 99, 8_080), true), Verdict::Consumed);
    assert_eq!(votes(&kit), 0, "nobody checks that");
    let damaged = kit.packet(CONTROL, &[0; 60]).verdict;
    assert_eq!(damaged, Verdict::Drop(Reason::UnsupportedProtocol));
    // A request for a station is none of a wire's, and says nothing of a backend.
    let request = StationRequest {
        side: Side::Inside,
        address: backend(0).address,
    };
    let outcome = kit.packet(CONTROL, &request.frame());
    assert_eq!(outcome.verdict, Verdict::Consumed);
    assert_eq!(votes(&kit), 0);
    for number in 0..BACKENDS_MAX as u8 {
        assert_eq!(tell(&mut kit, backend(number), false), Verdict::Consumed);
    }
    assert_eq!(votes(&kit), BACKENDS_MAX);
    // Renewed in time, a vote stands for ever.
    for _ in 0..20 {
        kit.advance(VOTE_SECONDS / 2);
        tell(&mut kit, backend(0), true);
        assert!((0..20).all(|number| opened(&mut kit, client(number)) != Some(0)));
    }
}

#[test]
fn flows_that_fail_tell_of_their_backend_until_it_answers() {
    let mut kit = marks(Service {
        checked: false,
        passive: 1,
        ..service(2)
    });
    let silent = opened(&mut kit, client(0)).unwrap();
    // It is asked again, and some time later counts as dead.
    assert_eq!(opened(&mut kit, client(0)), Some(silent));
    let avoids = |kit: &mut Testkit<Classes>, clients: core::ops::Range<u16>| {
        let mut chosen = clients.map(|number| opened(kit, client(number)));
        chosen.all(|chosen| chosen != Some(silent))
    };
    assert!(!avoids(&mut kit, 1..20));
    kit.advance(SILENCE_SECONDS);
    assert!(avoids(&mut kit, 20..40));
    kit.advance(1);
    let flags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
    kit.packet(BACKENDS, &frame(backend(silent), client(0), flags));
    assert!(!avoids(&mut kit, 40..60));
    // One that refuses counts at once, but in the second of an answer; where all do, they are not used.
    kit.advance(1);
    for number in [silent, 1 - silent] {
        let refused = (60..120).find(|one| opened(&mut kit, client(*one)) == Some(number));
        let flags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);
        let to = client(refused.expect("it gets some"));
        kit.packet(BACKENDS, &frame(backend(number), to, flags));
        if number == silent {
            assert!(avoids(&mut kit, 120..140));
        }
    }
    assert!(opened(&mut kit, client(200)).is_some());
}

#[test]
fn it_is_the_same_when_answers_are_late() {
    let persistent = || Service {
        choice: Choice::LeastConnections,
        persistent: true,
        passive: 1,
        ..service(3)
    };
    let function = || Classes(Pools::new(&[persistent()], BACKENDS_MAX).unwrap());
    let finding = CheckResult {
        member: 0,
        backend: backend(0),
        is_down: true,
    };
    let opening = |number| (0, CLIENTS, frame(client(number), asked(), TcpFlags::SYN));
    let packets = [
        opening(0),
        opening(0),
        (3, CONTROL, finding.frame().to_vec()),
        opening(1),
        opening(300),
    ];
    late_everywhere(function, &packets);
}
