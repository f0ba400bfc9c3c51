//! Instances with replicated state that exchange operations when the test says so, and that can die.

use std::cell::Cell;
use std::rc::Rc;

use asterism_function::objects::{Context, Identity, ObjectSettings, OriginName, Sequencer};
use asterism_function::{
    Builder, Call, Emissions, Late, Layout, NetworkFunction, Packet, PortNumber, Reason, State,
    Verdict, call,
};
use asterism_functions::signature::{SignatureConfig, SignatureState, Signatures, Subject};

use crate::signature::packets::made;

/// Groups written by one member: (sequence, bytes).
type Groups = Vec<(u64, Vec<u8>)>;

/// What lets a packet through.
pub(crate) const PASSES: Verdict = Verdict::Forward(PortNumber(1));

/// Instances; what they write waits until [`Cluster::exchange`].
pub(crate) struct Cluster {
    members: Vec<Member>,
    pub(crate) tick: u32,
    serial: u64,
}

struct Member {
    name: OriginName,
    function: Signatures,
    context: Rc<Context>,
    state: SignatureState,
    emissions: Emissions,
    waiting: Groups,
    is_dead: bool,
}

impl Cluster {
    pub(crate) fn new(config: &SignatureConfig, count: u16) -> Self {
        let function = made(config);
        let names: Vec<u16> = (0..count).collect();
        let member = |member: u16| {
            let name = OriginName {
                member,
                incarnation: 1,
            };
            let identity = Identity {
                own: name,
                members: names.clone(),
                lane: (0, 1),
            };
            let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 7, Vec::new());
            let context = Rc::new(context);
            let settings = |_: &str| ObjectSettings::REPLICATED;
            let state = function.state(&Builder::new(context.clone(), settings));
            Member {
                name,
                function: function.clone(),
                context,
                state,
                emissions: Emissions::default(),
                waiting: Vec::new(),
                is_dead: false,
            }
        };
        let members = names.iter().copied().map(member).collect();
        Self {
            members,
            tick: 1_000,
            serial: 0,
        }
    }

    /// Hands a packet to a member that lives; none may be late.
    pub(crate) fn packet(&mut self, place: usize, frame: &[u8]) -> Verdict {
        assert!(!self.members[place].is_dead, "the dead handle no packets");
        if Layout::parse(frame).is_err() {
            return Verdict::Drop(Reason::LinkTooShort);
        }
        self.begin(place);
        let verdict = self.call(place, frame).expect("replicas are not late");
        self.end(place);
        verdict
    }

    /// Hands a packet to a member, which must wait for what `meanwhile` does.
    pub(crate) fn packet_that_waits(
        &mut self,
        place: usize,
        frame: &[u8],
        meanwhile: impl FnOnce(&mut Self),
    ) -> Verdict {
        self.begin(place);
        let first = self.call(place, frame);
        assert!(first.is_err(), "it waits: {first:?}");
        let (parked, _) = self.members[place].context.park();
        meanwhile(self);
        self.members[place].context.resume(parked);
        let verdict = self.call(place, frame).expect("it waits no more");
        self.end(place);
        verdict
    }

    fn begin(&mut self, place: usize) {
        self.serial += 1;
        let context = &self.members[place].context;
        let now_us = u64::from(self.tick) * 1_000_000;
        context.set_now(now_us, self.tick);
        context.arrive(now_us);
        context.begin(self.serial);
    }

    fn call(&mut self, place: usize, frame: &[u8]) -> Result<Verdict, Late> {
        let member = &mut self.members[place];
        let mut bytes = frame.to_vec();
        let given = Call {
            state: &mut member.state,
            context: &member.context,
            emissions: &mut member.emissions,
            port: PortNumber(0),
        };
        let packet = Packet::parse(&mut bytes).expect("it was parsed before");
        call(&member.function, packet, given)
    }

    fn end(&mut self, place: usize) {
        let member = &mut self.members[place];
        member.context.end(|_, _| {});
        member.state.settle();
    }

    /// Has a member go on with another configuration, as a reload has it.
    pub(crate) fn take_up(&mut self, place: usize, config: &SignatureConfig) {
        let member = &mut self.members[place];
        member.function = made(config);
        member.function.take_up(&mut member.state);
    }

    /// Ends a member: what it wrote since the last exchange is lost.
    pub(crate) fn kill(&mut self, place: usize) {
        self.members[place].is_dead = true;
        self.members[place].waiting.clear();
    }

    /// Delivers what was written since the last exchange, each member's groups in order.
    pub(crate) fn exchange(&mut self) {
        let tick = self.tick;
        for member in self.members.iter_mut().filter(|member| !member.is_dead) {
            member.context.set_now(u64::from(tick) * 1_000_000, tick);
            member
                .state
                .for_each_object(|object| _ = object.flush(&mut 1_000_000));
            let waiting = &mut member.waiting;
            member
                .context
                .take_groups(|sequence, bytes| waiting.push((sequence, bytes.to_vec())));
        }
        for from in 0..self.members.len() {
            let name = self.members[from].name;
            let groups = std::mem::take(&mut self.members[from].waiting);
            let others = self.members.iter_mut().enumerate();
            for (_, member) in others.filter(|(place, member)| *place != from && !member.is_dead) {
                for (sequence, bytes) in &groups {
                    let applied = member.state.apply(&member.context, name, *sequence, bytes);
                    assert!(applied.is_ok(), "a group of member {from} is read");
                }
            }
        }
    }

    pub(crate) fn state(&self, place: usize) -> &SignatureState {
        &self.members[place].state
    }

    /// What a member's alerts are about, sorted.
    pub(crate) fn found(&self, place: usize) -> Vec<Subject> {
        let alerts = self.state(place).alerts().into_iter();
        let mut found: Vec<Subject> = alerts.map(|(subject, _)| subject).collect();
        found.sort();
        found
    }

    /// What the pieces make up that no alert tells.
    pub(crate) fn unreported(&self, place: usize) -> Vec<Subject> {
        let member = &self.members[place];
        member.function.unreported(&member.state)
    }

    /// The alerts, demanding that all that live agree on the whole state.
    pub(crate) fn agreed(&mut self) -> Vec<Subject> {
        self.exchange();
        let alive: Vec<usize> = (0..self.members.len())
            .filter(|place| !self.members[*place].is_dead)
            .collect();
        let digests = self.state(alive[0]).digests();
        for &place in &alive {
            assert_eq!(self.state(place).digests(), digests, "members disagree");
            assert_eq!(self.state(place).unrecorded.get(), Ok(0));
        }
        self.found(alive[0])
    }
}
