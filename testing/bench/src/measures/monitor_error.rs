//! `monitor.error`: how far the monitor's sketches are from the truth, over what they state; and their memory.
//!
//! Three instances see a part of every flow's packets each; flows are as popular as Zipf's law has it. What one instance knows
//! when all has arrived is compared with exact counts: the volume of every flow, the heaviest flows by bytes and packets, and
//! how many flows have how many packets. The stated errors follow from rows and cells, places, and cells.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use asterism_function::{
    Builder, Call, CountMin, Emissions, Layout, NetworkFunction, Packet, PortNumber, State, call,
    state,
};
use asterism_functions::monitor::{
    Flow, Monitor, MonitorConfig, MonitorState, VOLUME_DOUBT, VOLUME_ERROR,
};
use asterism_state::{Context as StateContext, Identity, ObjectSettings, OriginName, Sequencer};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::memory::resident_bytes;
use crate::traffic::frames::{FRAME_BYTES, frame_between};
use crate::traffic::{Endpoint, Protocol, Random};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "monitor.error",
    make: error,
}];

const INSTANCES: u16 = 3;
const FLOWS: usize = 20_000;
/// Flows of the run in which the sketch of sizes is looked at: half as many as it has cells.
const FLOWS_OF_SIZES: usize = 2_048;
const PACKETS: usize = 200_000;
/// Clusters whose memory is looked at together: pages that were free before do not count then.
const CLUSTERS: usize = 8;
/// The common second at which all is counted.
const TICK: u32 = 1_200;

/// Sketches as they are by default; tables small, for they are exact and not looked at.
const CONFIG: MonitorConfig = MonitorConfig {
    interval_s: 3_600,
    out_degree: 0,
    in_degree: 0,
    edge_idle_s: 300,
    edges_max: 64,
    flows_max: 64,
    places: 512,
    cells: 4_096,
    alarms_max: 64,
    alarm_keep_s: 3_600,
};

/// An instance without a packet loop.
struct Replica {
    name: OriginName,
    context: Rc<StateContext>,
    state: MonitorState,
}

/// Instances that tell one another all when asked to.
struct Cluster {
    function: Monitor,
    replicas: Vec<Replica>,
    emissions: Emissions,
    serial: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let function = Monitor::new(CONFIG);
        let members: Vec<u16> = (0..INSTANCES).collect();
        let replica = |&member: &u16| {
            let name = OriginName {
                member,
                incarnation: 1,
            };
            let identity = Identity {
                own: name,
                members: members.clone(),
                lane: (0, 1),
            };
            let sequencer = Sequencer::Own(Cell::new(0));
            let context = Rc::new(StateContext::new(identity, sequencer, seed, Vec::new()));
            context.set_now(0, TICK);
            let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
            let state = function.state(&builder);
            Replica {
                name,
                context,
                state,
            }
        };
        Self {
            replicas: members.iter().map(replica).collect(),
            function,
            emissions: Emissions::default(),
            serial: 0,
        }
    }

    fn packet(&mut self, place: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        self.serial += 1;
        let replica = &mut self.replicas[place];
        let layout = Layout::parse(bytes)
            .map_err(|error| Failure::Unsound(format!("a frame is no packet: {error:?}")))?;
        replica.context.arrive(0);
        replica.context.begin(self.serial);
        let given = Call {
            state: &mut replica.state,
            context: &replica.context,
            emissions: &mut self.emissions,
            port: PortNumber(0),
        };
        call(&self.function, Packet::with_layout(bytes, layout), given)
            .map_err(|_| Failure::Unsound("a replica was late".into()))?;
        replica.context.end(|_, _| {});
        replica.state.settle();
        Ok(())
    }

    /// Everybody hears everything.
    fn exchange(&mut self) -> Result<(), Failure> {
        let mut groups = Vec::new();
        for (place, replica) in self.replicas.iter_mut().enumerate() {
            replica
                .state
                .for_each_object(|object| _ = object.flush(&mut 100_000_000));
            replica.context.take_groups(|sequence, bytes| {
                groups.push((place, replica.name, sequence, bytes.to_vec()));
            });
        }
        for (from, name, sequence, bytes) in &groups {
            for (place, replica) in self.replicas.iter_mut().enumerate() {
                if place == *from {
                    continue;
                }
                replica
                    .state
                    .apply(&replica.context, *name, *sequence, bytes)
                    .map_err(|_| Failure::Unsound("a group cannot be read".into()))?;
            }
        }
        let digests = self.replicas[0].state.digests();
        if self
            .replicas
            .iter()
            .any(|one| one.state.digests() != digests)
        {
            return Err(Failure::Unsound("the instances' states differ".into()));
        }
        Ok(())
    }

    /// Packets of flows as popular as Zipf's law has it; the packets of each flow.
    fn traffic(
        &mut self,
        flows: usize,
        packets: usize,
        random: &mut Random,
    ) -> Result<HashMap<Flow, u64>, Failure> {
        let mut sums = Vec::with_capacity(flows);
        let mut sum = 0.0;
        for rank in 1..=flows {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let mut exact: HashMap<Flow, u64> = HashMap::new();
        for number in 0..packets {
            let drawn = random.unit() * sum;
            let flow = sums
                .partition_point(|&before| before < drawn)
                .min(flows - 1);
            let end = |address, port| Endpoint { address, port };
            let mut frame = frame_between(
                Protocol::Udp,
                end(0x0a00_0000 + flow as u32, 4_000),
                end(0xc633_6402, 53),
            );
            let key = Packet::parse(&mut frame)
                .ok()
                .and_then(|packet| Flow::of(&packet));
            let key = key.ok_or_else(|| Failure::Unsound("a frame has no flow".into()))?;
            *exact.entry(key).or_default() += 1;
            self.packet(random.below(INSTANCES.into()) as usize, &mut frame)?;
            if number % 20_000 == 19_999 {
                self.exchange()?;
            }
        }
        self.exchange()?;
        Ok(exact)
    }
}

/// A monitor's sketch of volumes and nothing else.
#[state]
struct Sketch {
    volumes: CountMin<u64>,
}

/// Memory of the sketch of volumes in an instance of a cluster, all of whose instances add to every cell.
fn sketch_mib(seed: u64) -> Result<f64, Failure> {
    let count = CLUSTERS * usize::from(INSTANCES);
    let contexts: Vec<_> = (0..count)
        .map(|place| {
            let name = OriginName {
                member: place as u16 % INSTANCES,
                incarnation: 1,
            };
            let identity = Identity {
                own: name,
                members: (0..INSTANCES).collect(),
                lane: (0, 1),
            };
            let sequencer = Sequencer::Own(Cell::new(0));
            let context = Rc::new(StateContext::new(identity, sequencer, seed, Vec::new()));
            context.set_now(0, TICK);
            (name, context)
        })
        .collect();
    let before = resident_bytes()?;
    let mut sketches: Vec<Sketch> = contexts
        .iter()
        .map(|(_, context)| {
            let builder = Builder::new(context.clone(), |_| ObjectSettings::REPLICATED);
            Sketch {
                volumes: builder.count_min("volumes", VOLUME_ERROR, VOLUME_DOUBT),
            }
        })
        .collect();
    for place in 0..count {
        let (name, context) = &contexts[place];
        for key in 0..FLOWS as u64 {
            sketches[place].act().volumes.add(&key, 1 + key);
        }
        sketches[place]
            .object_mut(0)
            .expect("an object")
            .flush(&mut 100_000_000);
        let mut groups = Vec::new();
        context.take_groups(|sequence, bytes| groups.push((sequence, bytes.to_vec())));
        let cluster = place / usize::from(INSTANCES) * usize::from(INSTANCES);
        for other in (cluster..cluster + usize::from(INSTANCES)).filter(|other| *other != place) {
            for (sequence, bytes) in &groups {
                sketches[other]
                    .apply(&contexts[other].1, *name, *sequence, bytes)
                    .map_err(|_| Failure::Unsound("a group cannot be read".into()))?;
            }
        }
    }
    let bytes = (resident_bytes()? - before) / count as f64;
    if sketches
        .iter()
        .any(|sketch| sketch.volumes.get(&9).is_ok_and(|sum| sum < 30))
    {
        return Err(Failure::Unsound("a sketch lacks what others added".into()));
    }
    Ok(bytes / f64::from(1 << 20))
}

/// Memory of an instance's whole state, small tables, contexts and all.
fn state_mib(random: &mut Random) -> Result<f64, Failure> {
    let before = resident_bytes()?;
    let mut clusters = Vec::new();
    for _ in 0..CLUSTERS {
        let mut cluster = Cluster::new(random.bits());
        cluster.traffic(FLOWS, PACKETS / 4, random)?;
        clusters.push(cluster);
    }
    let instances = (CLUSTERS * usize::from(INSTANCES)) as f64;
    Ok((resident_bytes()? - before) / instances / f64::from(1 << 20))
}

fn error(context: &Context) -> Result<Outcome, Failure> {
    let mut random = Random::new(context.seed);
    let frame_bytes = FRAME_BYTES as u64 - 14;
    let (mut volume, mut heavy, mut sizes) = (0.0f64, 0.0f64, 0.0f64);
    let runs = if context.full { 8 } else { 2 };
    for _ in 0..runs {
        let mut cluster = Cluster::new(random.bits());
        let exact = cluster.traffic(FLOWS, PACKETS, &mut random)?;
        let state = &cluster.replicas[0].state;
        let stated = state.volumes.excess();
        for (flow, packets) in &exact {
            let reported = state.volumes.get(flow).unwrap_or(0);
            let truth = packets * frame_bytes;
            if reported < truth {
                return Err(Failure::Unsound("a volume is too small".into()));
            }
            volume = volume.max((reported - truth) as f64 / stated);
        }
        for (of, weight) in [(&state.heavy_bytes, frame_bytes), (&state.heavy_packets, 1)] {
            for (flow, packets) in &exact {
                let reported = of.get(flow).unwrap_or(0);
                heavy = heavy.max(reported.abs_diff(packets * weight) as f64 / of.excess() as f64);
            }
        }
        let mut cluster = Cluster::new(random.bits());
        let exact = cluster.traffic(FLOWS_OF_SIZES, PACKETS / 4, &mut random)?;
        let reported = cluster.replicas[0].state.sizes_at(TICK, CONFIG.cells);
        let stated = reported
            .error()
            .ok_or_else(|| Failure::Unsound("all cells are in use".into()))?;
        for (packets, flows) in reported.table() {
            let truth = exact.values().filter(|&&of| of >= packets).count();
            sizes = sizes.max((flows as f64 - truth as f64).abs() / stated);
        }
    }
    let memory_mib = sketch_mib(context.seed)?;
    let state_mib = state_mib(&mut random)?;
    let worst = volume.max(heavy).max(sizes);
    context.say(&format!(
        "volumes {volume:.3}, heaviest {heavy:.3}, sizes {sizes:.3} of what they state; {memory_mib:.2} MiB, all {state_mib:.1} MiB"
    ));
    Ok(Outcome::new(worst, runs)
        .variant("volumes", volume)
        .variant("heaviest", heavy)
        .variant("sizes", sizes)
        .variant("memory-mib", memory_mib)
        .variant("whole-state-mib", state_mib))
}
