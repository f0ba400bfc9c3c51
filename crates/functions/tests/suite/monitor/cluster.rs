//! Several instances of any function that exchange operations over links with a delay, and may die. Used by several tests.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use asterism_function::objects::{Context, Identity, ObjectSettings, OriginName, Sequencer};
use asterism_function::{
    Builder, Call, Emissions, Layout, NetworkFunction, Packet, PortNumber, Reason, State, Verdict,
    call,
};

/// A group on its way: when it arrives, who wrote it, its sequence number and its bytes.
type Message = (u64, usize, u64, Rc<Vec<u8>>);

/// Instances with replicated state.
pub(crate) struct Cluster<F: NetworkFunction> {
    pub(crate) function: Arc<F>,
    members: Vec<Member<F>>,
    pub(crate) now_us: u64,
    first_tick: u32,
    delay_us: u64,
    serial: u64,
}

struct Member<F: NetworkFunction> {
    name: OriginName,
    context: Rc<Context>,
    state: F::State,
    emissions: Emissions,
    incoming: VecDeque<Message>,
    is_alive: bool,
}

impl<F: NetworkFunction> Cluster<F> {
    /// `count` instances; what one writes reaches the others after `delay_us`.
    pub(crate) fn new(function: F, count: u16, delay_us: u64, seed: u64) -> Self {
        let function = Arc::new(function);
        let names: Vec<u16> = (0..count).collect();
        let member = |&member: &u16| {
            let name = OriginName {
                member,
                incarnation: 1,
            };
            let identity = Identity {
                own: name,
                members: names.clone(),
                lane: (0, 1),
            };
            let sequencer = Sequencer::Own(Cell::new(0));
            let context = Rc::new(Context::new(identity, sequencer, seed, Vec::new()));
            let settings = |_: &str| ObjectSettings::REPLICATED;
            let state = function.state(&Builder::new(context.clone(), settings));
            Member {
                name,
                context,
                state,
                emissions: Emissions::default(),
                incoming: VecDeque::new(),
                is_alive: true,
            }
        };
        let mut cluster = Self {
            members: names.iter().map(member).collect(),
            function,
            now_us: 0,
            first_tick: 1_200,
            delay_us,
            serial: 0,
        };
        cluster.run_to(1);
        cluster
    }

    /// The cluster's common seconds.
    pub(crate) fn tick(&self) -> u32 {
        self.first_tick + (self.now_us / 1_000_000) as u32
    }

    pub(crate) fn state(&self, member: usize) -> &F::State {
        &self.members[member].state
    }

    pub(crate) fn is_alive(&self, member: usize) -> bool {
        self.members[member].is_alive
    }

    /// Ends an instance at once: what it has not reported yet is lost, what is on its way arrives.
    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].is_alive = false;
    }

    /// Moves the clock, and delivers what arrives until then.
    pub(crate) fn run_to(&mut self, now_us: u64) {
        self.now_us = now_us;
        let tick = self.tick();
        for place in 0..self.members.len() {
            self.members[place].context.set_now(now_us, tick);
            while self.members[place]
                .incoming
                .front()
                .is_some_and(|message| message.0 <= now_us)
            {
                let Some((_, from, sequence, bytes)) = self.members[place].incoming.pop_front()
                else {
                    break;
                };
                let name = self.members[from].name;
                let member = &mut self.members[place];
                member
                    .state
                    .apply(&member.context, name, sequence, &bytes)
                    .unwrap_or_else(|_| panic!("{place} cannot read a group of {from}"));
            }
        }
    }

    pub(crate) fn packet(&mut self, member: usize, port: u16, frame: &[u8]) -> Verdict {
        self.serial += 1;
        let (serial, now_us) = (self.serial, self.now_us);
        let member = &mut self.members[member];
        assert!(member.is_alive, "nobody sends packets to the dead");
        let mut bytes = frame.to_vec();
        let Ok(layout) = Layout::parse(&bytes) else {
            return Verdict::Drop(Reason::LinkTooShort);
        };
        member.context.arrive(now_us);
        member.context.begin(serial);
        let given = Call {
            state: &mut member.state,
            context: &member.context,
            emissions: &mut member.emissions,
            port: PortNumber(port),
        };
        let packet = Packet::with_layout(&mut bytes, layout);
        let verdict = call(&*self.function, packet, given).expect("replicas are not late");
        member.context.end(|_, _| {});
        member.state.settle();
        assert_eq!(bytes, frame, "the packet leaves as it came");
        verdict
    }

    /// All tell what they have to tell.
    pub(crate) fn flush(&mut self) {
        for from in 0..self.members.len() {
            let member = &mut self.members[from];
            if !member.is_alive {
                continue;
            }
            member
                .state
                .for_each_object(|object| _ = object.flush(&mut 1_000_000));
            let mut written = Vec::new();
            member
                .context
                .take_groups(|sequence, bytes| written.push((sequence, Rc::new(bytes.to_vec()))));
            let arrives_us = self.now_us + self.delay_us;
            for (sequence, bytes) in written {
                for (place, member) in self.members.iter_mut().enumerate() {
                    if place != from && member.is_alive {
                        let message = (arrives_us, from, sequence, bytes.clone());
                        member.incoming.push_back(message);
                    }
                }
            }
        }
    }

    /// Everybody knows everything.
    pub(crate) fn settle(&mut self) {
        for _ in 0..3 {
            self.flush();
            self.run_to(self.now_us + self.delay_us + 1);
        }
    }

    /// Lets time pass for idle entries.
    pub(crate) fn sweep(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.is_alive) {
            for object in 0..F::State::OBJECTS.len() as u8 {
                for _ in 0..2 {
                    member
                        .state
                        .object_mut(object)
                        .expect("an object")
                        .sweep_share(1);
                }
            }
        }
    }

    /// The digests, demanding that all that live agree.
    pub(crate) fn agree(&mut self) {
        self.settle();
        let mut living = self.members.iter().filter(|member| member.is_alive);
        let first = living.next().expect("somebody lives").state.digests();
        for member in living {
            assert_eq!(member.state.digests(), first, "members disagree");
        }
    }
}
