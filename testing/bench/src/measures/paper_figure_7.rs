//! `paper.figure-7`: throughput of a host whose tables another one joins by, and of the host beside it, slice by slice.
//!
//! The same runs as `join.pause`, read as the paper's figure 7 shows them: packets of each slice of on-CPU time, before, while and
//! after a third host joins. The value is the worst slice of the join over the mean of all slices before it, at the paper's
//! 20,000 entries. The paper's instance stands still for less than a millisecond in `fork`, and is unsteady for some
//! milliseconds while the state is sent.

use super::join_load::PACKETS;
use super::join_pause::turns_of;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "paper.figure-7",
    make: figure,
}];

/// Entries, what they are called, runs in the short form (none: only in the long one), and microseconds of a slice.
const SIZES: [(u32, &str, usize, f64); 3] = [
    (20_000, "20k", 5, 100.0),
    (1_000_000, "1m", 4, 100.0),
    (10_000_000, "10m", 0, 1_000.0),
];

/// Millions of packets a second, in each slice of so many microseconds on the processor: whole turns, so a slice is a little
/// longer than that.
fn slices(turns: &[u32], slice_us: f64) -> Vec<f64> {
    let mut slices = Vec::new();
    let (mut packets, mut us) = (0, 0.0);
    for &turn in turns {
        packets += PACKETS;
        us += f64::from(turn) / 1e3;
        if us >= slice_us {
            slices.push(packets as f64 / us);
            (packets, us) = (0, 0.0);
        }
    }
    slices
}

fn figure(context: &Context) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut value = None;
    for (entries, name, runs, slice_us) in SIZES {
        let Some((turns, _)) = turns_of(context, (entries, name, runs))? else {
            continue;
        };
        for (who, all) in [("sponsor", &turns.sponsor), ("other", &turns.other)] {
            let before = slices(&all[..turns.join.0], slice_us);
            let during = slices(&all[turns.join.0..turns.join.1], slice_us);
            let after = slices(&all[turns.join.1..], slice_us);
            let mean = |slices: &[f64]| slices.iter().sum::<f64>() / slices.len() as f64;
            let least = |slices: &[f64]| slices.iter().copied().fold(f64::INFINITY, f64::min);
            if before.is_empty() || during.is_empty() || after.is_empty() {
                return Err(Failure::Unsound(format!("{name}: a join without slices")));
            }
            let worst = least(&during) / mean(&before);
            outcome = outcome
                .variant(format!("{name}-{who}-mpps-before"), mean(&before))
                .variant(format!("{name}-{who}-mpps-join"), mean(&during))
                .variant(format!("{name}-{who}-mpps-after"), mean(&after))
                .variant(format!("{name}-{who}-worst-slice"), worst)
                .variant(
                    format!("{name}-{who}-worst-slice-before"),
                    least(&before) / mean(&before),
                )
                .variant(format!("{name}-{who}-slices-before"), before.len() as f64)
                .variant(format!("{name}-{who}-slices-join"), during.len() as f64)
                .samples(format!("{name}-{who}"), [before, during, after].concat());
            if (name, who) == ("20k", "sponsor") {
                value = Some((worst, runs));
            }
        }
        outcome = outcome.variant(format!("{name}-slice-us"), slice_us);
    }
    let (worst, runs) = value.ok_or_else(|| Failure::Unsound("nothing was tried".into()))?;
    Ok(outcome.with_value(worst, runs as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_whole_turns() {
        let turns = [10_000, 10_000, 5_000, 40_000, 1_000];
        assert_eq!(slices(&turns, 20.0), [64.0 / 20.0, 64.0 / 45.0]);
        assert!(slices(&turns[..1], 20.0).is_empty());
    }
}
