//! The code of docs/src/tutorial.md: a gate that lets only replies in. The page shows pieces of this file as they
//! stand here; `documents` checks that.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::{Cluster, HostConfig, host};
use asterism_io::frame::FramePool;
use asterism_io::link::{LinkConditions, Network};
use asterism_io::port::{MemoryPort, Port};
use asterism_placement::{ClusterId, Incarnation, MemberId, Time};
use asterism_secure_channel::ClusterKey;
use asterism_state::{Absence, ObjectSettings};

use asterism_function::{
    Ask, Builder, Flow4, Flow4Key, Late, NetworkFunction, PortNumber, Reason, Set, Verdict, state,
};

/// Where the hosts are that may begin a conversation.
pub const INSIDE: PortNumber = PortNumber(0);
/// Where everybody else is.
pub const OUTSIDE: PortNumber = PortNumber(1);

/// What all instances of the gate share.
#[state]
pub struct GateState {
    /// Conversations that were begun from inside, as the packets from inside name them.
    pub begun: Set<Flow4Key>,
}

/// Lets inside hosts begin conversations, and lets replies in.
pub struct Gate;

impl NetworkFunction for Gate {
    type State = GateState;

    fn state(&self, builder: &Builder) -> GateState {
        GateState {
            // Room for 100,000 over the whole cluster; one ends 300 seconds after its last packet.
            begun: builder.table("begun", 100_000, &[300]),
        }
    }

    fn packet(&self, ask: Ask<'_, GateState>) -> Result<Verdict, Late> {
        let Some(flow) = ask.packet().flow4() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        if ask.port() == OUTSIDE {
            self.inbound(ask, flow)
        } else {
            self.outbound(ask, flow)
        }
    }
}

impl Gate {
    fn inbound(&self, ask: Ask<'_, GateState>, flow: Flow4) -> Result<Verdict, Late> {
        let Some(conversation) = ask.begun.get(&flow.reversed().into())? else {
            return Ok(Verdict::Drop(Reason::NoBinding));
        };
        let mut act = ask.act()?;
        act.begun.touch(&conversation);
        Ok(Verdict::Forward(INSIDE))
    }

    fn outbound(&self, ask: Ask<'_, GateState>, flow: Flow4) -> Result<Verdict, Late> {
        if let Some(conversation) = ask.begun.get(&flow.into())? {
            let mut act = ask.act()?;
            act.begun.touch(&conversation);
            return Ok(Verdict::Forward(OUTSIDE));
        }
        // What can run out is reserved while asking ...
        let Some(vacancy) = ask.begun.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        // ... and spent while acting, which cannot fail.
        let mut act = ask.act()?;
        act.begun.insert(vacancy, Flow4Key::from(flow), ());
        Ok(Verdict::Forward(OUTSIDE))
    }
}

use asterism_function::build;
use asterism_function::testkit::{Testkit, late_everywhere};

/// A UDP packet of a conversation between an inside host and a server.
fn packet(flow: Flow4) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = build::flow4(&flow, b"hello", &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

const QUESTION: Flow4 = Flow4 {
    source: Ipv4Addr::new(10, 0, 0, 7),
    destination: Ipv4Addr::new(192, 0, 2, 1),
    source_port: 40_000,
    destination_port: 53,
    protocol: 17,
};

#[test]
fn only_replies_come_in() {
    let mut gate = Testkit::new(Gate);
    let reply = packet(QUESTION.reversed());

    assert_eq!(
        gate.packet(OUTSIDE, &reply).verdict,
        Verdict::Drop(Reason::NoBinding)
    );
    assert_eq!(
        gate.packet(INSIDE, &packet(QUESTION)).verdict,
        Verdict::Forward(OUTSIDE)
    );
    assert_eq!(
        gate.packet(OUTSIDE, &reply).verdict,
        Verdict::Forward(INSIDE)
    );

    gate.advance(1_000);
    assert_eq!(
        gate.packet(OUTSIDE, &reply).verdict,
        Verdict::Drop(Reason::NoBinding)
    );
    assert!(gate.state().begun.is_empty_now());
}

#[test]
fn late_reads_change_nothing() {
    let steps = [
        (0, OUTSIDE, packet(QUESTION.reversed())),
        (0, INSIDE, packet(QUESTION)),
        (1, OUTSIDE, packet(QUESTION.reversed())),
        (1_000, OUTSIDE, packet(QUESTION.reversed())),
    ];
    late_everywhere(|| Gate, &steps);
}

use asterism_function::{Key, Tick, Value, Wire};

/// Two hosts that talk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Key)]
pub struct Acquaintance {
    /// One of ours.
    pub inside: Ipv4Addr,
    /// Somebody else.
    pub outside: Ipv4Addr,
}

/// What is known of their talk.
#[derive(Clone, Copy, PartialEq, Debug, Wire, Value)]
pub struct Known {
    /// When it began, as far as anybody saw.
    #[join(min)]
    pub since: Tick,
    /// Whether the other one ever said anything, to whichever host.
    #[join(or)]
    pub answered: bool,
}

#[test]
fn what_two_hosts_saw_becomes_one() {
    let mut here = Known {
        since: 7,
        answered: false,
    };
    let there = Known {
        since: 9,
        answered: true,
    };
    here.join(&there);
    assert_eq!((here.since, here.answered), (7, true));
}

#[test]
fn an_acquaintance_is_found_and_kept_as_any_key() {
    use asterism_function::{Reader, Writer, laws};
    let known = |since, answered| Known { since, answered };
    laws::value(known(7, false), known(9, true), known(7, true));
    let key = Acquaintance {
        inside: QUESTION.source,
        outside: QUESTION.destination,
    };
    let mut bytes = Vec::new();
    key.encode(&mut Writer::new(&mut bytes, &[]));
    assert_eq!(Acquaintance::decode(&mut Reader::new(&bytes, &[])), Ok(key));
    let other = Acquaintance {
        inside: key.outside,
        outside: key.inside,
    };
    assert_ne!(key.hash(1), other.hash(1));
}

/// Two hosts with a gate each, over a link that delays by 5 ms in each direction.
fn two_gates(begun: ObjectSettings) -> Cluster<Gate> {
    let mut network = Network::new(1);
    network.set_defaults(LinkConditions::with_delay(Duration::from_millis(5)));
    let names = vec![MemberId(0), MemberId(1)];
    let key = ClusterKey::from_random(1, [7; 32]); // a real host reads the file that `asterism keygen` wrote
    let hosts = names.iter().map(|&name| {
        let secrets = [name.0 as u8 + 1; 48]; // a real host draws these from the operating system
        let incarnation = Incarnation(u64::from(name.0) + 1);
        let config = HostConfig::new(
            ClusterId(1),
            name,
            incarnation,
            names.clone(),
            key.clone(),
            secrets,
        );
        let (channel, parts) = host(config, Time::ZERO).unwrap();
        let start = |parts: asterism_engine::InstanceParts| {
            let ports: Vec<Box<dyn Port>> = vec![
                Box::new(MemoryPort::sink("inside")),
                Box::new(MemoryPort::sink("outside")),
            ];
            parts.start(
                Arc::new(Gate),
                move |_| begun,
                FramePool::new(256).unwrap(),
                ports,
            )
        };
        (name, channel, parts.into_iter().map(start).collect())
    });
    let mut cluster = Cluster::new(hosts.collect(), network);
    cluster.run_until(Time::from_micros(500_000)); // the hosts admit one another
    cluster
}

/// The question leaves by the first host; its reply comes in by the second, 1 ms later.
fn reply_by_the_other_host(begun: ObjectSettings) -> Cluster<Gate> {
    let mut cluster = two_gates(begun);
    assert!(cluster.inject(0, 0, INSIDE, &packet(QUESTION)));
    while cluster.members()[0].instances[0].tally().forwarded == 0 {
        cluster.run_until(cluster.now() + Duration::from_micros(100));
    }
    cluster.run_until(cluster.now() + Duration::from_millis(1));
    assert!(cluster.inject(1, 0, OUTSIDE, &packet(QUESTION.reversed())));
    cluster.run_until(cluster.now() + Duration::from_millis(100));
    cluster
}

#[test]
fn a_reply_may_overtake_the_state() {
    let second = |settings| {
        reply_by_the_other_host(settings).members()[1].instances[0]
            .tally()
            .clone()
    };

    // Absence taken as it is: the reply came before the operation, and is dropped.
    let answers = second(ObjectSettings::REPLICATED);
    assert_eq!(
        (answers.forwarded, answers.dropped(Reason::NoBinding)),
        (0, 1)
    );

    // Absence that may be late: the reply waits for what the other host may have written.
    let waits = second(ObjectSettings {
        absence: Absence::Wait { us: 20_000 },
        ..ObjectSettings::REPLICATED
    });
    assert_eq!((waits.forwarded, waits.dropped_total()), (1, 0));
    assert!(waits.late > 0);
}

#[test]
fn both_hosts_end_with_the_same_state() {
    let cluster = reply_by_the_other_host(ObjectSettings::REPLICATED);
    let [first, second] = cluster.members() else {
        panic!("there are two hosts")
    };
    assert_eq!(first.instances[0].digests(), second.instances[0].digests());
}
