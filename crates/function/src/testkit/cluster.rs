//! Testing a function on several instances: each has a replica, and the test decides which updates each instance receives,
//! and when.

use std::cell::Cell;
use std::rc::Rc;

use asterism_packet::{Layout, Malformed, Packet};
use asterism_state::{
    Builder, Context, Identity, Late, ObjectSettings, OriginName, Sequencer, State,
};

use super::{Outcome, START_TICK, entries};
use crate::emissions::Emissions;
use crate::function::{Call, NetworkFunction, PortNumber, Verdict, call};
use crate::reason::Reason;

/// Steps of a flush: more than any table of a test has records.
const FLUSH_STEPS: usize = 1_000_000;
/// Bytes of a part of a snapshot: so few that most snapshots of tests have several.
const SNAPSHOT_BYTES: usize = 1_000;

/// Instances of one function with replicated state. What one writes waits until the test has it reported: so packets and news
/// overtake each other as the test likes.
pub struct ClusterKit<F: NetworkFunction> {
    function: F,
    members: Vec<Member<F>>,
    now_us: u64,
    serial: u64,
}

impl<F: NetworkFunction> core::fmt::Debug for ClusterKit<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "ClusterKit of {} members", self.members.len())
    }
}

struct Member<F: NetworkFunction> {
    context: Rc<Context>,
    state: F::State,
    emissions: Emissions,
    /// Every group that it wrote: its sequence number and its bytes.
    written: Vec<(u64, Vec<u8>)>,
    /// How many groups of each other one it has.
    heard: Vec<usize>,
    /// Seconds that its clock is behind the others'.
    behind: u32,
    is_alive: bool,
}

impl<F: NetworkFunction> Member<F> {
    /// Looks at all its entries for those that ended.
    fn sweep(&mut self) {
        self.state
            .for_each_object(|object| _ = object.sweep_share(1));
    }

    /// Takes what it wrote, accumulated changes included.
    fn gather(&mut self) {
        self.state
            .for_each_object(|object| _ = object.flush(&mut { FLUSH_STEPS }));
        let written = &mut self.written;
        self.context
            .take_groups(|sequence, bytes| written.push((sequence, bytes.to_vec())));
    }
}

fn name(place: usize) -> OriginName {
    OriginName {
        member: place as u16,
        incarnation: 1,
    }
}

impl<F: NetworkFunction> ClusterKit<F> {
    /// So many instances that answer at once from their replica. `seed` draws the cluster's secret.
    pub fn new(function: F, members: u16, seed: u64) -> Self {
        Self::with_settings(function, members, seed, |_| ObjectSettings::REPLICATED)
    }

    /// The same with settings of the test's choice, by object name.
    pub fn with_settings(
        function: F,
        members: u16,
        seed: u64,
        settings: impl Fn(&str) -> ObjectSettings + Clone + 'static,
    ) -> Self {
        let addresses: Vec<u32> = function
            .addresses()
            .iter()
            .map(|address| address.to_bits())
            .collect();
        let member = |place: u16| {
            let identity = Identity {
                own: name(usize::from(place)),
                members: (0..members).collect(),
                lane: (0, 1),
            };
            let sequencer = Sequencer::Own(Cell::new(0));
            let context = Rc::new(Context::new(identity, sequencer, seed, addresses.clone()));
            context.set_now(0, START_TICK);
            let builder = Builder::new(context.clone(), settings.clone());
            let state = builder.built(function.state(&builder));
            Member {
                context,
                state,
                emissions: Emissions::default(),
                written: Vec::new(),
                heard: vec![0; usize::from(members)],
                behind: 0,
                is_alive: true,
            }
        };
        let members = (0..members).map(member).collect();
        Self {
            function,
            members,
            now_us: 0,
            serial: 0,
        }
    }

    /// The function.
    pub fn function(&self) -> &F {
        &self.function
    }
    /// An instance's replica, to read.
    pub fn state(&self, member: usize) -> &F::State {
        &self.members[member].state
    }
    /// The time at all instances, in microseconds from the kit's making.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Moves the clock of all instances. Entries do not end by it: that is the business of members that agree on what is stable.
    pub fn advance(&mut self, seconds: u32) {
        self.advance_us(u64::from(seconds) * 1_000_000);
    }

    /// The same in microseconds.
    pub fn advance_us(&mut self, us: u64) {
        self.now_us += us;
        let tick = START_TICK + (self.now_us / 1_000_000) as u32;
        for member in &self.members {
            member.context.set_now(self.now_us, tick - member.behind);
        }
    }

    /// Sets an instance's clock behind the others', at most by what the kit's clock began with ([`START_TICK`]).
    pub fn set_behind(&mut self, member: usize, seconds: u32) {
        self.members[member].behind = seconds.min(START_TICK);
        self.advance_us(0);
    }

    /// Another member has a later epoch in force than this instance's host, or no longer.
    pub fn set_outdated(&self, member: usize, is_outdated: bool) {
        self.members[member].context.set_outdated(is_outdated);
    }

    /// A packet that arrives at an instance now, by this port.
    ///
    /// # Panics
    /// When the function is late: replicas answer at once unless settings ask for a wait.
    pub fn packet(&mut self, member: usize, port: PortNumber, bytes: &[u8]) -> Outcome {
        self.packet_since(member, self.now_us, port, bytes)
            .expect("replicas that need not wait are not late")
    }

    /// A packet that arrived at an instance at that time, handled now: what was late is handled again so.
    ///
    /// # Errors
    /// [`Late`] where the function waits for what others may have written.
    pub fn packet_since(
        &mut self,
        member: usize,
        arrived_us: u64,
        port: PortNumber,
        bytes: &[u8],
    ) -> Result<Outcome, Late> {
        self.serial += 1;
        let member = &mut self.members[member];
        assert!(member.is_alive, "a packet for an instance that was killed");
        let mut packet = bytes.to_vec();
        let verdict = match Layout::parse(&packet) {
            Ok(layout) => {
                member.context.arrive(arrived_us);
                member.context.begin(self.serial);
                let given = Call {
                    state: &mut member.state,
                    context: &member.context,
                    emissions: &mut member.emissions,
                    port,
                };
                let result = call(
                    &self.function,
                    Packet::with_layout(&mut packet, layout),
                    given,
                );
                let state = &member.state;
                member.context.end(|object, number| {
                    state.give_back(object, number);
                });
                member.state.settle();
                result?
            }
            Err(malformed) => Verdict::Drop(<Reason as From<Malformed>>::from(malformed)),
        };
        let mut emitted = Vec::new();
        member
            .emissions
            .take(|port, frame| emitted.push((port, frame.to_vec())));
        Ok(Outcome {
            verdict,
            packet,
            emitted,
            calls: 1,
        })
    }

    /// One instance hears everything that another wrote until now.
    pub fn tell(&mut self, from: usize, to: usize) {
        self.members[from].gather();
        self.deliver(from, to);
    }

    /// One instance takes a snapshot of another's whole state, as a newcomer does.
    ///
    /// # Panics
    /// When it cannot read it.
    pub fn take_snapshot(&mut self, from: usize, to: usize) {
        let mut cursor = Some((0, 0));
        while let Some(next) = cursor {
            let mut part = Vec::new();
            cursor = self.members[from]
                .state
                .snapshot(next, SNAPSHOT_BYTES, &mut part);
            let member = &mut self.members[to];
            member
                .state
                .apply_snapshot(&member.context, &part)
                .unwrap_or_else(|_| panic!("member {to} cannot read a snapshot of member {from}"));
        }
    }

    /// All living instances hear everything that the others wrote until now.
    pub fn exchange(&mut self) {
        let living: Vec<_> = (0..self.members.len())
            .filter(|place| self.members[*place].is_alive)
            .collect();
        for from in &living {
            self.members[*from].gather();
        }
        for from in &living {
            for to in &living {
                self.deliver(*from, *to);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        if from == to {
            return;
        }
        let known = self.members[to].heard[from];
        let news = self.members[from].written[known..].to_vec();
        let member = &mut self.members[to];
        for (sequence, bytes) in &news {
            member
                .state
                .apply(&member.context, name(from), *sequence, bytes)
                .unwrap_or_else(|_| panic!("member {to} cannot read a group of member {from}"));
        }
        member.heard[from] += news.len();
        member.context.set_covered(from as u16, self.now_us);
    }

    /// Entries that are idle by now end: anyone who used them last says so, or who inherits that of the dead; all is reported, and what
    /// every living instance knows to have ended is forgotten.
    pub fn idle_out(&mut self) {
        let living: Vec<_> = (0..self.members.len())
            .filter(|place| self.members[*place].is_alive)
            .collect();
        for place in &living {
            let member = &mut self.members[*place];
            let named = living.iter().map(|living| name(*living));
            member.context.set_living(named);
            member.sweep();
        }
        // Once for what ended, once for what was informed of it.
        for _ in 0..2 {
            self.exchange();
            for to in &living {
                for from in 0..self.members.len() {
                    let last = self.members[from].written.last();
                    let sequence = last.map_or(0, |(sequence, _)| *sequence);
                    let context = &self.members[*to].context;
                    if let Some(origin) = context.origin(name(from)) {
                        context.set_applied(origin, sequence);
                        context.set_stable(origin, sequence);
                    }
                }
                self.members[*to].sweep();
            }
        }
    }

    /// An instance dies. What it wrote and reported nobody is lost; what only some heard, all others hear, as those who live complete
    /// it among themselves. From then on nobody waits for it.
    pub fn kill(&mut self, dead: usize) {
        self.members[dead].is_alive = false;
        let reported = self.members.iter().map(|member| member.heard[dead]);
        let most = reported.max().unwrap_or(0);
        self.members[dead].written.truncate(most);
        for to in (0..self.members.len()).filter(|to| *to != dead) {
            if self.members[to].is_alive {
                self.deliver(dead, to);
                self.members[to].context.set_covered(dead as u16, u64::MAX);
            }
        }
    }

    /// An instance that is drained reads no more packets. All that it wrote is reported; then it leaves, and nobody waits for it.
    pub fn drain(&mut self, leaving: usize) {
        self.exchange();
        self.kill(leaving);
    }

    /// Entries that an instance found and held, object by object; of a pool, the items in use.
    pub fn entries(&self, member: usize) -> Vec<(usize, usize)> {
        entries(&self.members[member].state)
    }

    /// Has all reported, and demands that the living have the same state.
    ///
    /// # Panics
    /// Where they differ.
    pub fn agree(&mut self) {
        self.exchange();
        let mut living = self
            .members
            .iter()
            .enumerate()
            .filter(|(_, one)| one.is_alive);
        let Some((first, one)) = living.next() else {
            return;
        };
        let digests = one.state.digests();
        for (place, other) in living {
            assert_eq!(
                other.state.digests(),
                digests,
                "members {first} and {place} differ though all was reported"
            );
        }
    }
}
