//! What a seed decides of a run of a network function: the cluster, its links, who dies and who returns.

use std::time::Duration;

use asterism_io::link::LinkConditions;

use crate::scenario::Draws;

/// The end of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Death {
    /// Whose.
    pub victim: usize,
    /// When, from the start of the load.
    pub at: Duration,
    /// How long routers go on sending it packets, all of which are lost.
    pub noticed: Duration,
    /// From the death to the first host that is informed of an epoch without it.
    pub reported: Duration,
    /// From there to its next incarnation, which joins; `None`: it stays away.
    pub returns: Option<Duration>,
    /// Its next incarnation is in the very epoch that ends the former one.
    pub at_once: bool,
}

/// What a seed decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Hosts: 2 to 4.
    pub hosts: usize,
    /// Instances of each host: 1 or 2.
    pub lanes: u16,
    /// Every way of the state channel.
    pub link: LinkConditions,
    /// Each packet takes a host of its own; if not, each direction of each conversation does.
    pub sprays: bool,
    /// When hosts go or come, routers deal all paths again; if not, only those that must move.
    pub deals_again: bool,
    /// Packets come in so often.
    pub step: Duration,
    /// For how long there is load while links are bad, without what a death takes.
    pub load: Duration,
    /// The end of a host, if one dies.
    pub death: Option<Death>,
    /// The longest silence of a host.
    pub keep_alive: Duration,
    /// The shortest and the longest retransmission timeout.
    pub retransmit: (Duration, Duration),
    /// How often accumulators are flushed.
    pub flush: Duration,
    /// For how long a congested path may keep changes back.
    pub coalescing: Duration,
    /// Packets leave once so many other hosts have what they depend on; `None`: they leave at once. Only of functions with [talks].
    ///
    /// [talks]: crate::functions::Subject::has_talks
    pub copies: Option<u32>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let draws = &mut Draws::new(seed, 40);
        let hosts = draws.one_of(&[2, 3, 3, 3, 4]);
        let delay_us = draws.one_of(&[50, 300, 1_000, 4_000]);
        let clean = draws.percent(15);
        let share = |draws: &mut Draws, of: &[f64]| if clean { 0.0 } else { draws.one_of(of) };
        let link = LinkConditions {
            delay: Duration::from_micros(delay_us),
            jitter: draws.micros(0, delay_us),
            loss: share(draws, &[0.01, 0.03, 0.08, 0.15]),
            duplication: share(draws, &[0.01, 0.05, 0.1]),
            reordering: share(draws, &[0.02, 0.05, 0.15]),
            reordering_delay: draws.micros(delay_us, delay_us * 5),
            ..LinkConditions::default()
        };
        let load = draws.micros(120_000, 260_000);
        let death = draws.percent(88).then(|| Death {
            victim: draws.within(0, hosts as u64 - 1) as usize,
            at: draws.micros(10_000, load.as_micros() as u64),
            noticed: draws.micros(0, 30_000),
            reported: draws.micros(5_000, 60_000),
            returns: draws.percent(45).then(|| draws.micros(30_000, 90_000)),
            at_once: draws.percent(30),
        });
        Self {
            seed,
            hosts,
            lanes: draws.one_of(&[1, 1, 2]),
            link,
            sprays: draws.percent(35),
            deals_again: draws.percent(40),
            step: draws.micros(400, 1_200),
            load,
            death,
            keep_alive: draws.micros(5_000, 20_000),
            retransmit: (draws.micros(1_000, 4_000), draws.micros(30_000, 100_000)),
            flush: draws.micros(200, 2_000),
            coalescing: draws.one_of(&[Duration::ZERO, Duration::from_millis(50)]),
            copies: copies(seed, hosts),
        }
    }
}

/// Of two seeds one holds packets back. Draws of its own, so that all else of a seed is as it would be.
fn copies(seed: u64, hosts: usize) -> Option<u32> {
    let draws = &mut Draws::new(seed, 45);
    let copies = draws.within(1, (hosts as u64 - 1).min(2));
    draws.percent(50).then_some(copies as u32)
}
