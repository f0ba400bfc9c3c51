//! `paper.table-3`: what a pass-through costs by what it does with a shared counter.
//!
//! Constellation's table 3: packets a second of the toolkit alone, and of a pass-through that does nothing, reads a counter, writes
//! it, or both. Here the toolkit is the product's ports and a loop that gives each burst to the other port, looking at no packet. The
//! paper's "reference", the search for the instance that owns a counter, has nothing to do here, nor there in Constellation. No
//! network card takes part: a packet costs a tenth of what it costs the paper's, so the same share of it is a tenth of the time.

use asterism_functions::pass_through::Access;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{MemoryPort, Port};

use super::pass_through::{Bench, FRAMES, WINDOW, looping_ports};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, Stopwatch};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "paper.table-3",
    make: table_3,
}];

/// The columns of the table, in its order.
const COLUMNS: [&str; 5] = ["toolkit", "no-operation", "read", "write", "read-write"];
/// The place of the one that others are held against, and of the one that is the value.
const NO_OPERATION: usize = 1;
const READ_WRITE: usize = 4;

/// The ports with no function between them.
struct Toolkit {
    pool: FramePool,
    ports: [MemoryPort; 2],
    burst: Burst,
}

impl Toolkit {
    fn new(seed: u64) -> Self {
        let mut pool = FramePool::new(4 * FRAMES).expect("memory for frames");
        Self {
            ports: looping_ports(&mut pool, seed),
            pool,
            burst: Burst::new(),
        }
    }

    fn turn(&mut self) -> u64 {
        let mut read = 0;
        for number in 0..2 {
            read += self.ports[number].receive(&mut self.pool, &mut self.burst);
            self.ports[number ^ 1].send(&mut self.pool, &mut self.burst);
        }
        read as u64
    }

    fn window(&mut self, watch: &mut Stopwatch) -> Result<f64, Failure> {
        let sent = |ports: &[MemoryPort; 2]| -> u64 {
            let ports = ports.iter();
            ports.map(|port| port.statistics().sent_packets).sum()
        };
        let before = sent(&self.ports);
        let mut read = 0;
        watch.window(|| {
            while read < WINDOW {
                read += self.turn();
            }
        });
        if sent(&self.ports) - before != read {
            return Err(Failure::Unsound("the bare ports lost packets".into()));
        }
        Ok(watch.take_cpu_ns() as f64 / read as f64)
    }
}

fn table_3(context: &Context) -> Result<Outcome, Failure> {
    let rounds = if context.full { 61 } else { 21 };
    let mut toolkit = Toolkit::new(context.seed);
    let mut benches = Access::ALL.map(|access| Bench::new(access, context.seed));
    let mut watch = Stopwatch::default();
    // By column, by round; ns per packet.
    let mut found: [Vec<f64>; COLUMNS.len()] = Default::default();
    // The first round warms up.
    for round in 0..=rounds {
        for turn in 0..COLUMNS.len() {
            // A B C, C B A, ...
            let column = match round % 2 {
                0 => turn,
                _ => COLUMNS.len() - 1 - turn,
            };
            let ns = match column.checked_sub(1) {
                None => toolkit.window(&mut watch)?,
                Some(access) => benches[access].window(&mut watch)?,
            };
            if round > 0 {
                found[column].push(ns);
            }
        }
    }
    for (bench, access) in benches.iter_mut().zip(Access::ALL) {
        bench.check(access)?;
    }
    let mut outcome = Outcome::default();
    for (column, own) in COLUMNS.into_iter().zip(&found) {
        let pairs = || found[NO_OPERATION].iter().zip(own);
        let ratios: Vec<f64> = pairs().map(|(without, own)| without / own).collect();
        let added: Vec<f64> = pairs().map(|(without, own)| own - without).collect();
        let mpps: Vec<f64> = own.iter().map(|ns| 1e3 / ns).collect();
        let (mpps, ratio) = (Spread::of(&mpps).median, Spread::of(&ratios));
        context.say(&format!(
            "{column}: {mpps:.1} Mpps, {:.3} of no operation",
            ratio.median
        ));
        outcome = outcome
            .variant(format!("{column}-mpps"), mpps)
            .variant(format!("{column}-ratio"), ratio.median)
            .variant(format!("{column}-added-ns"), Spread::of(&added).median);
        if column == COLUMNS[READ_WRITE] {
            outcome = outcome
                .with_value(ratio.median, ratio.runs)
                .quartiles(ratio.first_quartile, ratio.third_quartile)
                .samples("read-write-ratio", ratios);
        }
    }
    Ok(outcome.lost(watch.lost()))
}
