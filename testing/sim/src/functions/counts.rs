//! The monitor and pass-through: what they say in the end is what the hosts handled, each packet once. Of a host that died only the
//! counts may lack that nobody else was reported.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::time::Duration;

use asterism_function::build::Segment;
use asterism_function::{Endpoint, NetworkFunction, Packet, Protocol, TcpFlags};
use asterism_functions::monitor::{Flow, Monitor, MonitorConfig, MonitorState};
use asterism_functions::pass_through::{Access, PassThrough};
use asterism_placement::Time;

use super::drive::World;
use super::hosts::{Arrival, Hosts, Left, PORTS, TICK_AT_ZERO};
use super::plan::Plan;
use super::talks::frame;
use crate::report::Failure;
use crate::scenario::Draws;

/// Flows.
const FLOWS: u16 = 10;
/// After links are good load goes on for so long.
const IN_CALM: Duration = Duration::from_millis(40);

/// What a function says that it counted, by flow: number [`ALL`] is all packets together.
pub(crate) trait Counting {
    /// The function.
    type Function: NetworkFunction;
    /// How much later than with the next flush its counts may be reported.
    const WAITS: Duration;
    /// The function, configured.
    fn function() -> Self::Function;
    /// What a replica says of a flow: packets, and bytes if it counts them; `None` if it does not tell flows apart.
    fn counted(state: &<Self::Function as NetworkFunction>::State, flow: u16) -> Option<Sums>;
}

/// Packets and bytes.
pub(crate) type Sums = (u64, Option<u64>);

/// In place of a flow's number: all flows together.
pub(crate) const ALL: u16 = u16::MAX;

/// Of a monitor.
pub(crate) struct Monitored;

/// A monitor of a few flows.
pub(crate) fn monitor() -> Monitor {
    Monitor::new(MonitorConfig {
        edges_max: 1 << 10,
        flows_max: 1 << 10,
        places: 1 << 6,
        cells: 1 << 6,
        alarms_max: 1 << 6,
        ..MonitorConfig::default()
    })
}

/// What a monitor says of a protocol by its number.
pub(crate) fn said_of_protocol(state: &MonitorState, protocol: u8) -> Sums {
    let counts = state.protocol_counts();
    let wanted = Some((protocol, false));
    let of = counts.iter().find(|count| count.protocol == wanted);
    of.map_or((0, Some(0)), |count| (count.packets, Some(count.bytes)))
}

/// The bytes of a packet as monitors count them.
pub(crate) fn bytes_of(packet: &Packet<'_>) -> u64 {
    let layout = packet.layout();
    (layout.end() - layout.network_offset()) as u64
}

impl Counting for Monitored {
    type Function = Monitor;
    const WAITS: Duration = LAZINESS;

    fn function() -> Monitor {
        monitor()
    }

    fn counted(state: &<Monitor as NetworkFunction>::State, flow: u16) -> Option<Sums> {
        if flow == ALL {
            return Some(said_of_protocol(state, Protocol::UDP.0));
        }
        let (from, to) = ends(flow);
        let wanted = Flow {
            source: from.address.into(),
            destination: to.address.into(),
            source_port: from.port,
            destination_port: to.port,
            protocol: 17,
        };
        let mut sums = (0, Some(0));
        let whole = (0, u32::MAX);
        let more = state.flows_at(TICK_AT_ZERO, whole, |record| {
            if record.flow == wanted {
                sums = (record.packets, Some(record.bytes));
            }
        });
        assert_eq!(more, None, "the whole table is scanned at once");
        Some(sums)
    }
}

/// Of pass-through.
pub(crate) struct Passed;

impl Counting for Passed {
    type Function = PassThrough;
    const WAITS: Duration = Duration::ZERO;

    fn function() -> PassThrough {
        PassThrough {
            access: Access::ReadWrite,
        }
    }

    fn counted(state: &<PassThrough as NetworkFunction>::State, flow: u16) -> Option<Sums> {
        let packets = state.packets.get().unwrap_or_default();
        (flow == ALL).then_some((packets, None))
    }
}

/// Sums that are reported lazily wait so long.
pub(crate) const LAZINESS: Duration = Duration::from_millis(200);

/// What was counted by when is reported, if it may wait so long.
pub(crate) fn before(reported: Time, patience: Duration) -> Time {
    Time::from_micros(
        reported
            .as_micros()
            .saturating_sub(patience.as_micros() as u64),
    )
}

fn ends(flow: u16) -> (Endpoint, Endpoint) {
    let end = |network, number, port| {
        let address = Ipv4Addr::new(10, network, 0, number);
        Endpoint::new(address, port, Protocol::UDP)
    };
    let (source, destination) = (flow as u8 % 4, flow as u8 / 4);
    (end(1, source, 1_000 + flow), end(2, destination, 53))
}

/// A packet that was handled: when, and its bytes.
type Once = (Time, u64);

/// Packets and bytes that a dead host handled, and how many of those somebody surely knows.
type OfTheDead = ((u64, u64), (u64, u64));

fn sum<'a>(handled: impl IntoIterator<Item = &'a Once>) -> (u64, u64) {
    let handled = handled.into_iter();
    handled.fold((0, 0), |(packets, bytes), one| (packets + 1, bytes + one.1))
}

/// What hosts handled, and what a function has to say of it.
#[derive(Default)]
pub(crate) struct Handled {
    /// What each host handled of each flow; once it died, that of its next incarnation.
    by_host: BTreeMap<(u16, usize), Vec<Once>>,
    /// What the dead handled of each flow, and how much of that somebody surely knows.
    dead: BTreeMap<u16, OfTheDead>,
    checked: u64,
    lost: u64,
}

impl Handled {
    /// A host handled a packet of a flow, of so many bytes.
    pub(crate) fn add(&mut self, flow: u16, host: usize, now: Time, bytes: u64) {
        let handled = self.by_host.entry((flow, host)).or_default();
        handled.push((now, bytes));
    }

    /// What those who live handled of a flow.
    fn living(&self, flow: u16) -> (u64, u64) {
        let of = self.by_host.iter().filter(|((of, _), _)| *of == flow);
        sum(of.flat_map(|(_, handled)| handled))
    }

    /// A host died; all that it wrote by `reported` somebody knows.
    pub(crate) fn died<F: NetworkFunction>(
        &mut self,
        (victim, reported): (usize, Time),
        flows: impl Iterator<Item = u16>,
        hosts: &Hosts<F>,
        said: impl Fn(&F::State, u16) -> Option<Sums>,
    ) {
        for flow in flows {
            let of_victim = self.by_host.remove(&(flow, victim)).unwrap_or_default();
            let living = self.living(flow);
            // By when it was handled, or by what somebody says beyond all that those who live handled.
            let early = of_victim
                .iter()
                .filter(|(at, _)| *at + hosts.reported_within() < reported);
            let (mut packets, mut bytes) = sum(early);
            for (_, instance) in hosts.instances() {
                let said = said(instance.state(), flow).unwrap_or_default();
                packets = packets.max(said.0.saturating_sub(living.0));
                let said = said.1.unwrap_or_default();
                bytes = bytes.max(said.saturating_sub(living.1));
            }
            self.dead.insert(flow, (sum(&of_victim), (packets, bytes)));
        }
    }

    /// Holds what each instance says against what was handled.
    pub(crate) fn judge<F: NetworkFunction>(
        &mut self,
        flows: impl Iterator<Item = u16>,
        hosts: &Hosts<F>,
        said: impl Fn(&F::State, u16) -> Option<Sums>,
    ) -> Result<(), Failure> {
        for flow in flows {
            let living = self.living(flow);
            let (dead, known) = self.dead.get(&flow).copied().unwrap_or_default();
            for (at, instance) in hosts.instances() {
                let Some(said) = said(instance.state(), flow) else {
                    continue;
                };
                let packets = living.0 + known.0..=living.0 + dead.0;
                let bytes = living.1 + known.1..=living.1 + dead.1;
                if !packets.contains(&said.0) || said.1.is_some_and(|said| !bytes.contains(&said)) {
                    return Err(Failure::new(
                        "counts are what was handled",
                        format!(
                            "{at:?} says {said:?} of flow {flow}; those who live handled {living:?}, the dead {dead:?}, of which {known:?} were known"
                        ),
                    ));
                }
                self.checked += 1;
                self.lost += living.0 + dead.0 - said.0;
            }
        }
        Ok(())
    }

    /// How much was judged, by name.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("sums held against packets", self.checked),
            ("packets that only the dead had counted", self.lost),
        ])
    }
}

/// Packets of some flows.
pub(crate) struct Counted<C: Counting> {
    draws: Draws,
    handled: Handled,
    until: Option<Time>,
    now: Time,
    counting: core::marker::PhantomData<C>,
}

impl<C: Counting> Counted<C> {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            draws: super::drive::draws(plan),
            handled: Handled::default(),
            until: None,
            now: Time::ZERO,
            counting: core::marker::PhantomData,
        }
    }

    fn flows() -> impl Iterator<Item = u16> {
        (0..FLOWS).chain([ALL])
    }
}

impl<C: Counting> World for Counted<C> {
    type Function = C::Function;

    fn function(&mut self) -> C::Function {
        C::function()
    }

    fn due(&mut self, now: Time, out: &mut Vec<Arrival>) {
        self.now = now;
        if self.until.is_some_and(|until| now >= until) {
            return;
        }
        for _ in 0..self.draws.within(0, 4) {
            // Some flows are much heavier than others.
            let most = self.draws.within(0, u64::from(FLOWS) - 1);
            let flow = self.draws.within(0, most) as u16;
            let bytes = vec![0; self.draws.within(1, 60) as usize];
            let segment = Segment::with_flags(TcpFlags::default());
            out.push(Arrival {
                port: PORTS[0],
                path: flow.into(),
                host: None,
                frame: frame(ends(flow), &segment, &bytes),
            });
        }
    }

    fn leaves(&mut self, mut left: Left, _: &Hosts<C::Function>) -> Result<(), Failure> {
        let Ok(packet) = Packet::parse(&mut left.frame) else {
            return Ok(());
        };
        let Some(of) = packet.flow4() else {
            return Ok(());
        };
        for flow in [of.source_port - 1_000, ALL] {
            let bytes = bytes_of(&packet);
            self.handled.add(flow, left.at.host, self.now, bytes);
        }
        Ok(())
    }

    fn died(&mut self, victim: usize, reported: Time, hosts: &Hosts<C::Function>) {
        let died = (victim, before(reported, C::WAITS));
        self.handled.died(died, Self::flows(), hosts, C::counted);
    }

    fn calms(&mut self, now: Time) {
        self.until = Some(now + IN_CALM);
    }

    fn unfinished(&self) -> Option<String> {
        let until = self.until?;
        (self.now < until).then(|| format!("there is load until {until}"))
    }

    fn roll_call(&mut self, _: usize, _: usize, _: Time, _: &mut Vec<Arrival>) {}

    fn called(&mut self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn judge(&mut self, hosts: &Hosts<C::Function>) -> Result<(), Failure> {
        self.handled.judge(Self::flows(), hosts, C::counted)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.handled.counts()
    }
}
