//! Three instances that tell each other what they wrote: connections whose packets take any of them, and a death.

use std::cell::Cell;
use std::rc::Rc;

use asterism_function::objects::{
    Context, Flush, Identity, ObjectSettings, OriginName, Sequencer, Settle,
};
use asterism_function::{
    Builder, Call, Emissions, Endpoint, Late, NetworkFunction, Packet, PortNumber, State, TcpFlags,
    Verdict, call,
};
use asterism_functions::balancer::{Balancer, BalancerState, CONTROL, Choice, Finding, Service};

use crate::network::*;

const MS: u64 = 1_000;

struct Member {
    place: u16,
    balancer: Balancer,
    context: Rc<Context>,
    state: BalancerState,
    emissions: Emissions,
}

impl Member {
    fn new(place: u16, service: Service) -> Self {
        let balancer = balancer(config(vec![service]));
        let identity = Identity {
            own: Self::name(place),
            members: vec![0, 1, 2],
            lane: (0, 1),
        };
        let context = Rc::new(Context::new(
            identity,
            Sequencer::Own(Cell::new(0)),
            7,
            Vec::new(),
        ));
        let settings = |_: &str| ObjectSettings::REPLICATED;
        let state = balancer.state(&Builder::new(context.clone(), settings));
        Self {
            place,
            balancer,
            context,
            state,
            emissions: Emissions::default(),
        }
    }

    fn name(place: u16) -> OriginName {
        OriginName {
            member: place,
            incarnation: 1,
        }
    }

    fn packet(
        &mut self,
        (arrived_us, now_us): (u64, u64),
        port: PortNumber,
        bytes: &[u8],
    ) -> Result<(Verdict, Vec<u8>), Late> {
        self.context.set_now(now_us, 1_000);
        self.context.arrive(arrived_us);
        self.context.begin(arrived_us);
        let mut packet = bytes.to_vec();
        let given = Call {
            state: &mut self.state,
            context: &self.context,
            emissions: &mut self.emissions,
            port,
        };
        let result = call(&self.balancer, Packet::parse(&mut packet).unwrap(), given);
        self.context.end(|_, _| {});
        for object in 0..BalancerState::OBJECTS.len() as u8 {
            self.state.look(object, Settle);
        }
        result.map(|verdict| (verdict, packet))
    }

    fn goes_to(&mut self, from: Endpoint, flags: TcpFlags) -> Endpoint {
        let bytes = frame(CLIENTS, from, asked(), flags);
        let (verdict, packet) = self.packet((0, 50 * MS), CLIENTS, &bytes).unwrap();
        assert_eq!(verdict, Verdict::Forward(BACKENDS));
        ends_of(&packet).destination()
    }

    fn answers(&mut self, from: Endpoint, to: Endpoint, flags: TcpFlags) -> Result<Endpoint, Late> {
        let bytes = frame(BACKENDS, from, to, flags);
        let (verdict, packet) = self.packet((2 * MS, 2 * MS), BACKENDS, &bytes)?;
        assert_eq!(verdict, Verdict::Forward(CLIENTS));
        Ok(ends_of(&packet).source())
    }
}

/// What one wrote comes to all others but those that are dead.
fn tell(members: &mut [Member], from: usize) {
    for object in 0..BalancerState::OBJECTS.len() as u8 {
        let mut room = 1 << 16;
        assert!(
            members[from]
                .state
                .with(object, Flush(&mut room))
                .is_some_and(|all| all)
        );
    }
    let mut groups = Vec::new();
    members[from]
        .context
        .take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
    let name = Member::name(members[from].place);
    for (place, other) in members.iter_mut().enumerate() {
        if place != from {
            for (sequence, bytes) in &groups {
                let applied = other.state.apply(&other.context, name, *sequence, bytes);
                assert!(applied.is_ok());
            }
        }
    }
}

fn three(choice: Choice) -> Vec<Member> {
    let service = Service {
        choice,
        checked: true,
        ..service(5)
    };
    (0..3)
        .map(|place| Member::new(place, service.clone()))
        .collect()
}

/// A SYN by one, the answer by another, which waits for word of the flow; then the first dies, and all goes on.
#[test]
fn a_connection_outlives_the_instance_that_opened_it() {
    let mut members = three(Choice::LeastConnections);
    let mut flows = Vec::new();
    for number in 0..60 {
        let server = members[0].goes_to(client(number), SYN);
        flows.push((client(number), server));
    }
    for (client, server) in &flows {
        assert!(
            members[1].answers(*server, *client, SYN_ACK).is_err(),
            "it waits"
        );
    }
    tell(&mut members, 0);
    for (client, server) in &flows {
        assert_eq!(
            members[1].answers(*server, *client, SYN_ACK).unwrap(),
            asked()
        );
    }
    tell(&mut members, 1);
    members.remove(0);
    for (client, server) in &flows {
        for member in &mut members {
            assert_eq!(member.goes_to(*client, ACK), *server);
            assert_eq!(member.answers(*server, *client, ACK).unwrap(), asked());
        }
    }
}

/// Instances that know nothing of one another choose alike, and so do those that learnt of a death.
#[test]
fn instances_choose_alike() {
    let mut members = three(Choice::Hash);
    let dead = endpoint_of(2);
    for told in [false, true] {
        if told {
            for place in 0..3 {
                let finding = Finding {
                    member: place as u16,
                    backend: dead,
                    is_down: place != 1,
                };
                members[place]
                    .packet((0, 0), CONTROL, &finding.frame())
                    .unwrap();
                tell(&mut members, place);
            }
        }
        for number in 0..100 {
            let from = client(number + if told { 1_000 } else { 0 });
            let server = members[0].goes_to(from, SYN);
            for member in &mut members[1..] {
                assert_eq!(member.goes_to(from, SYN), server);
            }
            assert!(!told || server != dead);
        }
    }
}

/// What each counts is the sum of all.
#[test]
fn least_connections_count_all_instances() {
    let mut members = three(Choice::LeastConnections);
    for number in 0..100 {
        let place = number as usize % 3;
        members[place].goes_to(client(number), SYN);
        tell(&mut members, place);
    }
    for member in &members {
        for number in 0..5 {
            let place = member.balancer.usage_place(endpoint_of(number)).unwrap();
            assert_eq!(member.state.usage.get(place), Ok(20));
        }
    }
    let digests = members[0].state.digests();
    assert!(
        members
            .iter()
            .all(|member| member.state.digests() == digests)
    );
}
