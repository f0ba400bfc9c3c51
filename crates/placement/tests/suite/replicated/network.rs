//! A network and its faults, drawn from one seed.

use asterism_placement::Time;
use asterism_placement::replicated::PAYLOAD_BYTES_MIN;

pub(crate) use crate::random::Random;

/// What one seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) members: usize,
    pub(crate) ordered: bool,
    pub(crate) loss_percent: u64,
    pub(crate) duplicate_percent: u64,
    pub(crate) delay_us: u64,
    pub(crate) jitter_us: u64,
    /// How long groups are committed and faults happen.
    pub(crate) storm_us: u64,
    pub(crate) groups_each: u64,
    pub(crate) log_groups_max: usize,
    pub(crate) reorder_groups_max: usize,
    pub(crate) unapplied_groups_max: usize,
    pub(crate) payload_bytes_max: usize,
    pub(crate) lookahead_us: u64,
    pub(crate) acknowledge_delay_us: u64,
    /// Groups applied per turn.
    pub(crate) apply_budget: usize,
    /// Cut off, from, until: a member hears nobody, or nobody hears it.
    pub(crate) cuts: Vec<Cut>,
    /// A member stands still, from, until.
    pub(crate) pauses: Vec<(usize, u64, u64)>,
    /// Strange messages per thousand: another incarnation, another epoch, frames of a later build.
    pub(crate) strange_permille: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) member: usize,
    pub(crate) hears: bool,
    pub(crate) is_heard: bool,
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
}

impl Schedule {
    pub(crate) fn from_seed(random: &mut Random) -> Schedule {
        let members = random.range(2, 5) as usize;
        let storm_us = random.range(30_000, 150_000);
        let delay_us = [50, 300, 2_000, 15_000][random.below(4) as usize];
        let window = |random: &mut Random| {
            let from = random.below(storm_us);
            (from, from + random.range(storm_us / 10, storm_us))
        };
        let cuts = (0..random.below(3))
            .map(|_| {
                let (from_us, until_us) = window(random);
                let kind = random.below(3);
                let member = random.below(members as u64) as usize;
                Cut {
                    member,
                    hears: kind == 0,
                    is_heard: kind == 1,
                    from_us,
                    until_us,
                }
            })
            .collect();
        let pauses = (0..random.below(2))
            .map(|_| {
                let (from, until) = window(random);
                (random.below(members as u64) as usize, from, until)
            })
            .collect();
        let loss = random.below(5);
        Schedule {
            members,
            ordered: random.chance(60),
            loss_percent: [0, 1, 5, 15, 30][loss as usize],
            duplicate_percent: random.below(3) * 5,
            delay_us,
            jitter_us: random.below(3) * delay_us / 2,
            storm_us,
            groups_each: random.range(30, 150),
            log_groups_max: [16, 48, 400][random.below(3) as usize],
            reorder_groups_max: [64, 128][random.below(2) as usize],
            unapplied_groups_max: [8, 40, 1_000][random.below(3) as usize],
            payload_bytes_max: [PAYLOAD_BYTES_MIN, 1_400][random.below(2) as usize],
            acknowledge_delay_us: [500, 2_000][random.below(2) as usize],
            lookahead_us: [0, 0, 500][random.below(3) as usize],
            apply_budget: [1, 5, 100][random.below(3) as usize],
            cuts,
            pauses,
            strange_permille: random.below(2) * 30,
        }
    }

    pub(crate) fn is_paused(&self, member: usize, at: Time) -> Option<u64> {
        let within = |&&(paused, from, until): &&(usize, u64, u64)| {
            paused == member && (from..until).contains(&at.0)
        };
        self.pauses
            .iter()
            .filter(within)
            .map(|&(_, _, until)| until)
            .max()
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize, at: Time) -> bool {
        self.cuts.iter().any(|cut| {
            (cut.from_us..cut.until_us).contains(&at.0)
                && ((cut.member == to && !cut.hears) || (cut.member == from && !cut.is_heard))
        })
    }
}
