//! `floor.one-way`, `floor.two-way`, `floor.instructions`: the yardsticks themselves.

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::floor::{BURST, Nat, Verdict};
use crate::instructions::{self, Work, Workload};
use crate::memory::prefetch;
use crate::timing::{LostTime, Spread, Stopwatch};
use crate::traffic::{Buffers, Flows, Protocol, Random, Templates};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "floor.one-way",
        make: one_way,
    },
    Measure {
        name: "floor.two-way",
        make: two_way,
    },
    Measure {
        name: "floor.instructions",
        make: count_instructions,
    },
];

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "floor.two-way",
        prepare: prepare::<true>,
    },
    Workload {
        name: "floor.one-way",
        prepare: prepare::<false>,
    },
];

/// The sizes, their names, and the earlier floor's ns at each.
const SIZES: [(u32, &str, f64); 3] = [
    (10_000, "10k", 22.0),
    (100_000, "100k", 28.0),
    (1_000_000, "1m", 64.0),
];
/// Buffers of a pass: more than the second-level cache holds at their stride.
const BUFFERS: u32 = 4_096;
/// Passes of a window: some 10 ms.
const PASSES: u32 = 64;
const FLOWS_FOR_INSTRUCTIONS: u32 = 1_000;

fn one_way(context: &Context) -> Result<Outcome, Failure> {
    let mut worst = Outcome::new(0.0, 0);
    let mut worst_ratio = 0.0;
    let mut extras = Vec::new();
    for (flows, name, anchor) in SIZES {
        let found = at_size::<false>(context, flows, name)?;
        let ratios: Vec<f64> = found.with_source.iter().map(|ns| ns / anchor).collect();
        let spread = Spread::of(&ratios);
        if spread.median > worst_ratio {
            worst_ratio = spread.median;
            worst = Outcome::of(&spread);
        }
        extras.push((name, found));
    }
    Ok(with_variants(worst, extras))
}

fn two_way(context: &Context) -> Result<Outcome, Failure> {
    let mut extras = Vec::new();
    for (flows, name, _) in SIZES {
        extras.push((name, at_size::<true>(context, flows, name)?));
    }
    let value = Outcome::of(&Spread::of(&extras[0].1.in_place));
    Ok(with_variants(value, extras))
}

fn count_instructions(context: &Context) -> Result<Outcome, Failure> {
    context.say("stepping");
    let [two_way, one_way] = instructions::per_packet_each(["floor.two-way", "floor.one-way"])?;
    let mut outcome = Outcome::new(two_way, 1).variant("one-way", one_way);
    if let Some(counted) = instructions::per_packet_by_callgrind("floor.two-way") {
        outcome = outcome.variant("callgrind", counted?);
    }
    Ok(outcome)
}

struct Found {
    /// ns per packet, window by window, of frames that lie in their buffers.
    in_place: Vec<f64>,
    /// The same with a source that copies each frame into its buffer first, as the anchors' sources do.
    with_source: Vec<f64>,
    lost: LostTime,
}

fn with_variants(mut outcome: Outcome, found: Vec<(&str, Found)>) -> Outcome {
    for (name, found) in found {
        outcome = outcome
            .variant(name, Spread::of(&found.with_source).median)
            .variant(
                format!("{name}-in-place"),
                Spread::of(&found.in_place).median,
            )
            .samples(name, found.with_source)
            .samples(format!("{name}-in-place"), found.in_place)
            .lost(found.lost);
    }
    outcome
}

fn flows_for<const TWO_WAY: bool>(count: u32, seed: u64) -> Flows {
    if TWO_WAY {
        Flows::of_both(count, seed)
    } else {
        Flows::of(Protocol::Udp, count, seed)
    }
}

fn at_size<const TWO_WAY: bool>(
    context: &Context,
    count: u32,
    name: &str,
) -> Result<Found, Failure> {
    context.say(&format!("{name} flows"));
    let windows = if context.full { 61 } else { 15 };
    let mut bench =
        FloorBench::<TWO_WAY>::new(&flows_for::<TWO_WAY>(count, context.seed), context.seed);
    let mut watch = Stopwatch::default();
    bench.in_place(&mut watch)?;
    bench.with_source(&mut watch)?;
    let mut found = Found {
        in_place: Vec::new(),
        with_source: Vec::new(),
        lost: LostTime::default(),
    };
    for _ in 0..windows {
        found.in_place.push(bench.in_place(&mut watch)?);
        found.with_source.push(bench.with_source(&mut watch)?);
    }
    found.lost = watch.lost();
    Ok(found)
}

/// A floor with its sessions and traffic, to be timed window by window; a product's measure that is held
/// against the floor interleaves its own windows with these.
pub(super) struct FloorBench<const TWO_WAY: bool> {
    nat: Nat<TWO_WAY>,
    templates: Templates,
    buffers: Buffers,
    order: Vec<u32>,
    random: Random,
    now_ticks: u32,
}

impl<const TWO_WAY: bool> FloorBench<TWO_WAY> {
    /// Binds every flow, which touches every slot and frame.
    pub(super) fn new(flows: &Flows, seed: u64) -> Self {
        let mut nat = Nat::new(flows.count());
        for (index, session) in (0..).zip(flows.sessions()) {
            nat.bind(session, flows.outside(index), 0);
        }
        let templates = if TWO_WAY {
            Templates::both_ways(flows, |index| flows.outside(index))
        } else {
            Templates::outbound(flows)
        };
        Self {
            nat,
            templates,
            buffers: Buffers::new(BUFFERS),
            order: vec![0; BUFFERS as usize],
            random: Random::new(seed),
            now_ticks: 0,
        }
    }

    /// On-CPU ns per packet of a window of frames that lie in their buffers, drawn at random outside the window.
    pub(super) fn in_place(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        self.window(watch, |bench, watch| {
            bench.buffers.fill(&bench.templates, &mut bench.random);
            let (all, lengths) = bench.buffers.all();
            watch.window(|| bench.nat.pass(all, lengths, bench.now_ticks))
        })
    }

    /// The same with a source that copies each frame into its buffer first, as the sources of the anchors do.
    pub(super) fn with_source(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        self.window(watch, |bench, watch| {
            let frames = bench.templates.all().len() as u64;
            bench.order.fill_with(|| bench.random.below(frames) as u32);
            watch.window(|| bench.pass_with_source())
        })
    }

    fn window(
        &mut self,
        watch: &mut Stopwatch,
        mut pass: impl FnMut(&mut Self, &mut Stopwatch) -> u32,
    ) -> Result<f64, Failure> {
        self.now_ticks += 1;
        watch.take_cpu_ns();
        let forwarded: u32 = (0..PASSES).map(|_| pass(self, watch)).sum();
        let packets = BUFFERS * PASSES;
        if forwarded != packets {
            return Err(Failure::Unsound(format!(
                "floor: {forwarded} of {packets} packets were sent on"
            )));
        }
        Ok(watch.take_cpu_ns() as f64 / f64::from(packets))
    }

    /// Receives each burst before handling it. The frames of the next burst are prefetched, as a source that
    /// knows them would.
    fn pass_with_source(&mut self) -> u32 {
        let mut verdicts = [Verdict::Drop; BURST];
        let mut forwarded = 0;
        let frames = self.templates.all();
        for (burst, drawn) in self.order.chunks(BURST).enumerate() {
            let first = burst * BURST;
            for later in self.order[first..].iter().skip(BURST).take(BURST) {
                prefetch(&frames[*later as usize]);
            }
            self.buffers
                .receive(first, drawn.iter().map(|index| &frames[*index as usize]));
            let (all, lengths) = self.buffers.all();
            let (now, ahead) = all[first..].split_at_mut(drawn.len());
            let lengths = &lengths[first..first + drawn.len()];
            forwarded += self
                .nat
                .burst(now, lengths, ahead, self.now_ticks, &mut verdicts);
        }
        forwarded
    }
}

/// Bursts recorded beforehand, so that only the NAT's own instructions are counted.
fn prepare<const TWO_WAY: bool>() -> Work {
    let flows = flows_for::<TWO_WAY>(FLOWS_FOR_INSTRUCTIONS, 1);
    let FloorBench {
        mut nat,
        templates,
        mut buffers,
        ..
    } = FloorBench::<TWO_WAY>::new(&flows, 1);
    buffers.fill(&templates, &mut Random::new(1));
    let mut next = 0;
    Box::new(move |packets| {
        let (all, lengths) = buffers.all();
        let (from, to) = (next, next + packets as usize);
        next = to;
        let forwarded = nat.pass(&mut all[from..to], &lengths[from..to], 1);
        assert_eq!(forwarded, packets, "every packet is of a known session");
    })
}
