//! `remote.failure`: downloads from nginx through three firewalls that share a store, a hundred at once, spread over all three both ways; one
//! of the firewalls is killed when the first hundred lack half of their bytes (Figure 4.7 of the StatelessNF paper).
//!
//! As in the paper somebody knows of the death at once: routes lead to the other two as soon as they can be written (`steered-after-ms`), and the
//! dead one's interfaces swallow what is sent to them until then. How long it takes to know of a death is what `lab.failover` is about.
//! Downloads have a rate each, so that the machine is not what they wait for. The value is the share of downloads that are complete, every
//! byte as it must be; `slowest-over-no-failure` compares the slowest one with that of a run in which nobody dies.
//!
//! The same with flows in each firewall's own memory, all through the first one and then through the second, must break downloads.

use std::time::Duration;

use asterism_lab::http::{DownloadReport, Downloads, Progress, document};
use asterism_lab::nat::SERVER;
use asterism_lab::{Probe, wait_until};

use super::firewalls::{self, Firewalls, Flows, Setting};
use crate::contract::{Failure, Outcome};
use crate::measures::Context;
use crate::measures::lab::{absent, unsound};

const FIREWALLS: usize = 3;
const AT_ONCE: usize = 100;
/// Each firewall must have had at least this share of the frames each way before the kill, a third being its due.
const SHARE_PERCENT_MIN: u64 = 15;
/// How long a download may be without news: longer than any stall that it survives.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the first hundred may take to half of their bytes.
const HALF_WITHIN: Duration = Duration::from_secs(60);
const PIECE_BYTES: u64 = 16 << 10;

/// Times what its rate allows that a download may take at most if nobody dies: it is what others are compared with.
const DISTURBED: f64 = 1.3;

/// What is downloaded.
#[derive(Clone, Copy)]
struct Size {
    count: usize,
    bytes: usize,
    /// What nginx gives a connection each second.
    bytes_per_second: u64,
}

const SHORT: Size = Size {
    count: 200,
    bytes: 3 << 19,
    bytes_per_second: 256 << 10,
};
/// The paper's.
const FULL: Size = Size {
    count: 500,
    bytes: 20 << 20,
    bytes_per_second: 512 << 10,
};

/// Who dies.
#[derive(Clone, Copy, PartialEq)]
enum Dies {
    Nobody,
    Second,
    /// It alone had all packets until then.
    First,
}

/// What a run found.
struct Ran {
    report: DownloadReport,
    /// From the kill until other routes were in force.
    steered: Duration,
}

impl Ran {
    /// How long the slowest complete one took.
    fn slowest_s(&self) -> f64 {
        let whole = self.report.downloads.iter();
        let whole = whole.filter(|one| one.fault.is_none());
        let took = whole.map(|one| one.ended.saturating_sub(one.began));
        took.max().unwrap_or_default().as_secs_f64()
    }

    /// The longest time without news of any download that is complete.
    fn stall_ms(&self) -> f64 {
        let whole = self.report.downloads.iter();
        let whole = whole.filter(|one| one.fault.is_none());
        let stalls = whole.map(|one| one.stall.lasted);
        stalls.max().unwrap_or_default().as_secs_f64() * 1e3
    }
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    firewalls::needs(&["nginx"])?;
    let (size, rounds) = if context.full { (FULL, 2) } else { (SHORT, 1) };
    let (mut complete, mut of) = (0, 0);
    let (mut well, mut failing, mut stall, mut steered) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for _ in 0..rounds {
        let ran = run(context, size, Flows::Remote, Dies::Nobody)?;
        if ran.report.complete() != size.count {
            return Err(Failure::Unsound(format!(
                "downloads break though nobody dies: {}",
                ran.report.faults()
            )));
        }
        let most = DISTURBED * size.bytes as f64 / size.bytes_per_second as f64;
        if ran.slowest_s() > most {
            return Err(Failure::Unsound(format!(
                "a download takes {:.1} s though nobody dies and at most {most:.1} are to be expected: the machine has no time",
                ran.slowest_s()
            )));
        }
        well = well.max(ran.slowest_s());
        let ran = run(context, size, Flows::Remote, Dies::Second)?;
        complete += ran.report.complete();
        of += size.count;
        failing = failing.max(ran.slowest_s());
        stall = stall.max(ran.stall_ms());
        steered = steered.max(ran.steered.as_secs_f64() * 1e3);
    }
    let alone = Size {
        count: AT_ONCE,
        ..SHORT
    };
    let ran = run(context, alone, Flows::Local, Dies::First)?;
    let local = ran.report.complete();
    if local == alone.count {
        return Err(Failure::Unsound(
            "connections of a dead firewall go on by one that does not know them: nothing was tried".into(),
        ));
    }
    Ok(Outcome::new(100.0 * complete as f64 / of as f64, rounds)
        .variant("slowest-over-no-failure", failing / well)
        .variant("slowest-s", failing)
        .variant("slowest-without-failure-s", well)
        .variant("complete", complete as f64)
        .variant("of", of as f64)
        .variant("stall-worst-ms", stall)
        .variant("steered-after-ms", steered)
        .variant("local-complete", 100.0 * local as f64 / alone.count as f64))
}

fn run(context: &Context, size: Size, flows: Flows, dies: Dies) -> Result<Ran, Failure> {
    let mut firewalls = Firewalls::start(&Setting {
        firewalls: FIREWALLS,
        started: FIREWALLS,
        servers: 1,
        store: "cache = {}",
        flows,
    })?;
    let all: Vec<usize> = (0..FIREWALLS).collect();
    let (before, dead, after) = match dies {
        Dies::Nobody => (&all[..], None, &all[..]),
        Dies::Second => (&all[..], Some(1), &[0, 2][..]),
        Dies::First => (&[0][..], Some(0), &[1][..]),
    };
    through(&firewalls, before)?;
    let right = document(size.bytes);
    firewalls.lab.lab.file("document", &right).map_err(absent)?;
    let folder = firewalls.lab.lab.folder();
    let _nginx = firewalls
        .lab
        .serve_pieces(folder, size.bytes_per_second, PIECE_BYTES)
        .map_err(absent)?;
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: "/document".to_owned(),
        document: &right,
        count: size.count,
        at_once: AT_ONCE,
        patience: PATIENCE,
    };
    let progress = Progress::default();
    let victim = dead.and_then(|dead: usize| firewalls.hosts[dead].take());
    let firewalls = &firewalls;
    let (report, steered) = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run_watched(&firewalls.lab.client, &progress));
        let half = AT_ONCE * size.bytes / 2;
        wait_until("half of the downloads", HALF_WITHIN, || {
            progress.under_way() == AT_ONCE && progress.bytes_left() <= half
        })
        .map_err(|error| firewalls.unsound(error))?;
        if before.len() == FIREWALLS {
            all_take_part(firewalls)?;
        }
        let at = Probe::now();
        let mut steered = Duration::ZERO;
        if let Some(victim) = victim {
            victim.kill();
            through(firewalls, after)?;
            steered = Probe::now() - at;
        }
        let report = running
            .join()
            .map_err(|_| Failure::Unsound("the downloads panicked".into()))?
            .map_err(unsound)?;
        Ok::<_, Failure>((report, steered))
    })?;
    let ran = Ran { report, steered };
    let what = match (flows, dead) {
        (Flows::Remote, None) => "nobody dies",
        (Flows::Remote, Some(_)) => "one of three dies",
        (Flows::Local, _) => "one dies that alone knew its flows",
    };
    context.say(&format!(
        "{what}: {} of {} complete, the slowest in {:.2} s, the longest stall {:.0} ms",
        ran.report.complete(),
        size.count,
        ran.slowest_s(),
        ran.stall_ms()
    ));
    if ran.report.complete() < size.count {
        context.say(&ran.report.faults());
    }
    Ok(ran)
}

/// Sends both ways through these firewalls.
fn through(firewalls: &Firewalls, places: &[usize]) -> Result<(), Failure> {
    firewalls.requests_through(places)?;
    firewalls.replies_through(places)
}

/// Each firewall has its share of the frames both ways.
fn all_take_part(firewalls: &Firewalls) -> Result<(), Failure> {
    for interface in ["in", "out"] {
        let counts = firewalls.lab.counts(interface).map_err(absent)?;
        let received: Vec<u64> = counts.iter().map(|one| one.received).collect();
        if !is_shared(&received) {
            return Err(Failure::Unsound(format!(
                "a firewall had less than {SHARE_PERCENT_MIN} % of the frames before the kill: {received:?}"
            )));
        }
    }
    Ok(())
}

fn is_shared(received: &[u64]) -> bool {
    let all: u64 = received.iter().sum();
    let least = received.iter().min().copied().unwrap_or(0);
    all > 0 && 100 * least >= SHARE_PERCENT_MIN * all
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_lab::http::{Download, Stall};

    #[test]
    fn a_firewall_without_packets_is_none() {
        assert!(is_shared(&[900, 1_000, 1_100]));
        assert!(!is_shared(&[900, 1_000, 100]));
        assert!(!is_shared(&[0, 0, 0]));
    }

    #[test]
    fn the_slowest_is_one_that_is_complete() {
        let ms = Duration::from_millis;
        let one = |began, ended, stall, fault: Option<&str>| Download {
            began: ms(began),
            connect: Some(ms(1)),
            ended: ms(ended),
            stall: Stall {
                began: ms(began),
                lasted: ms(stall),
            },
            fault: fault.map(str::to_owned),
        };
        let downloads = vec![
            one(0, 4_000, 70, None),
            one(1_000, 5_500, 400, None),
            one(0, 9_000, 5_000, Some("it timed out")),
        ];
        let ran = Ran {
            report: DownloadReport { downloads },
            steered: ms(210),
        };
        assert_eq!((ran.slowest_s(), ran.stall_ms()), (4.5, 400.0));
    }
}
