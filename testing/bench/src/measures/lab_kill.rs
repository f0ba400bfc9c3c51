//! `lab.kill`: 200 downloads of 1 MiB from nginx, 100 at once, spread over three NAT hosts both ways; one host is killed while
//! all hundred are under way.
//!
//! Nobody tells the network: the dead host's interfaces stay up and swallow what is sent to them, until after a stated delay,
//! which stands for the orchestrator's detection, the steering is applied without it and an epoch leaves it out.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use asterism_lab::http::{DownloadReport, Downloads, Progress, document};
use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig, SERVER};
use asterism_lab::{pause, wait_until};
use asterism_orchestrator::steering::ecmp::{SLOTS_SANE, Spread};

use super::lab::{absent, needs, product, start, unsound, write_epoch};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "lab.kill",
    make: kill,
}];

const HOSTS: usize = 3;
const DOWNLOADS: usize = 200;
const AT_ONCE: usize = 100;
const DOCUMENT_BYTES: usize = 1 << 20;
/// Small documents, and how many at once: some thousand connections a second.
const OPENINGS: usize = 6_000;
const OPENINGS_AT_ONCE: usize = 30;
const SMALL_BYTES: usize = 1_000;
/// What nginx gives a connection each second, and in which pieces: one every 62 ms, so that a longer silence is a stall.
const BYTES_PER_SECOND: u64 = 256 << 10;
const PIECE_BYTES: u64 = 16 << 10;
/// The state channel's delay one way.
const CHANNEL_DELAY: Duration = Duration::from_millis(5);
/// From the kill until the steering is reported: what an orchestrator takes to be sure that a host is dead.
const DETECTION: Duration = Duration::from_millis(200);
/// What a host that nobody steers to may still be sent: questions for Ethernet addresses and what is on its way.
const STRAY_FRAMES_MAX: u64 = 40;
/// Each host must have had at least this share of the frames each way before the kill, a third being its due.
const SHARE_PERCENT_MIN: u64 = 15;
const PATIENCE: Duration = Duration::from_secs(10);

/// One run.
struct Setting {
    name: &'static str,
    spread: Spread,
    /// The place of the host that is killed.
    killed: usize,
    /// Datagrams of the state channel that are lost.
    loss: f64,
    what: What,
}

/// What is downloaded.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The 200 documents that the measure is of; the kill comes when the first hundred lack half of their bytes.
    Documents,
    /// Small ones, one connection after another, so that some are being opened at the kill: what only the dead host knew
    /// is lost, and shows here.
    Openings,
}

impl What {
    fn count(self) -> usize {
        match self {
            What::Documents => DOWNLOADS,
            What::Openings => OPENINGS,
        }
    }

    fn at_once(self) -> usize {
        match self {
            What::Documents => AT_ONCE,
            What::Openings => OPENINGS_AT_ONCE,
        }
    }
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "slots",
        spread: Spread::Slots(SLOTS_SANE),
        killed: 1,
        loss: 0.0,
        what: What::Documents,
    },
    Setting {
        name: "weights-lossy",
        spread: Spread::Weights,
        killed: 0,
        loss: 0.01,
        what: What::Documents,
    },
    Setting {
        name: "openings",
        spread: Spread::Slots(SLOTS_SANE),
        killed: 2,
        loss: 0.0,
        what: What::Openings,
    },
];

fn kill(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip", "nginx"])?;
    let product = product()?;
    let rounds = if context.full { 5 } else { 1 };
    let (mut complete, mut runs) = (0, 0);
    let mut outcome = Outcome::new(0.0, 1);
    for round in 0..rounds {
        for setting in &SETTINGS {
            let ran = run(context, &product, setting)?;
            if setting.what == What::Documents {
                complete += ran.report.complete();
                runs += 1;
            }
            let round = if round > 0 {
                format!("-{}", round + 1)
            } else {
                String::new()
            };
            for (name, figure) in ran.figures(setting.what) {
                outcome = outcome.variant(format!("{}{round}-{name}", setting.name), figure);
            }
        }
    }
    let all = DOWNLOADS * usize::try_from(runs).unwrap_or(1);
    Ok(outcome.with_value(100.0 * complete as f64 / all as f64, runs))
}

/// What a run found.
struct Ran {
    report: DownloadReport,
    /// Downloads under way when the host was killed, and the bytes that they lacked.
    under_way: usize,
    bytes_left: usize,
    /// When it was killed, from the first download's beginning.
    killed_at: Duration,
    /// From the kill until the steering, and until the survivors' epoch, was in force.
    steered: Duration,
    epoch: Duration,
    /// How long applying it took, and the share of flows that moved.
    apply: Duration,
    moved_permille: u16,
    /// Segments that client and server sent again until the kill, and in all.
    retransmissions: [u64; 2],
    /// Groups that a host had not yet applied, or that were not acknowledged, at worst of some looks before the kill.
    lag: Lag,
    link_late_us: u64,
    /// Percent of the frames before the kill that the dead host had, from the client and from the server.
    shares: [u64; 2],
}

#[derive(Clone, Copy, Default)]
struct Lag {
    groups: u64,
    us: u64,
    unacknowledged: u64,
}

fn run(context: &Context, product: &Path, setting: &Setting) -> Result<Ran, Failure> {
    let config = NatLabConfig::new(HOSTS, CHANNEL_DELAY).loss(setting.loss);
    let lab = NatLab::new(&config).map_err(absent)?;
    let right = document(DOCUMENT_BYTES);
    lab.lab.file("document", &right).map_err(absent)?;
    lab.lab
        .file("small", &right[..SMALL_BYTES])
        .map_err(absent)?;
    let (path, right) = match setting.what {
        What::Documents => ("/document", &right[..]),
        What::Openings => ("/small", &right[..SMALL_BYTES]),
    };
    let _nginx = lab
        .serve_pieces(lab.lab.folder(), BYTES_PER_SECOND, PIECE_BYTES)
        .map_err(absent)?;
    let options = HostOptions {
        epochs: true,
        ..HostOptions::default().absent("wait 20ms")
    };
    let mut hosts: Vec<_> = start(&lab, product, &options)?
        .into_iter()
        .map(Some)
        .collect();
    let configuration = lab.lab.folder().join("asterism.toml");
    let mut steering = lab.steering(setting.spread).map_err(absent)?;
    steering.without(&[]).map_err(unsound)?;

    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: path.to_owned(),
        document: right,
        count: setting.what.count(),
        at_once: setting.what.at_once(),
        patience: PATIENCE,
    };
    let progress = Progress::default();
    let before = frames(&lab)?;
    let first_sent = retransmissions(&lab)?;
    let began = timing::wall_ns();
    let since = |from: u64| Duration::from_nanos(timing::wall_ns() - from);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run_watched(&lab.client, &progress));
        let half = AT_ONCE * DOCUMENT_BYTES / 2;
        wait_until("half of the downloads", PATIENCE, || match setting.what {
            What::Documents => progress.under_way() == AT_ONCE && progress.bytes_left() <= half,
            What::Openings => progress.ended() >= OPENINGS / 2,
        })
        .map_err(unsound)?;
        let mut lag = Lag::default();
        for place in 0..HOSTS {
            lag = worse(lag, lag_of(product, &lab, place)?);
        }
        let taken = difference(&frames(&lab)?, &before);
        let sent = retransmissions(&lab)?;
        let (under_way, bytes_left) = (progress.under_way(), progress.bytes_left());
        let killed_at = since(began);
        let killed = timing::wall_ns();
        if let Some(host) = hosts[setting.killed].take() {
            host.kill();
        }

        pause(DETECTION);
        let (moved_permille, apply) = steering.without(&[setting.killed]).map_err(unsound)?;
        let steered = since(killed);
        let name = lab.hosts[setting.killed].name();
        write_epoch(product, &configuration, &["--without", name])?;
        wait_until("the survivors' epoch", PATIENCE, || {
            (0..HOSTS)
                .filter(|place| *place != setting.killed)
                .all(|place| {
                    status(product, &lab, place).is_ok_and(|reported| reported["epoch"] == 2)
                })
        })
        .map_err(unsound)?;
        let epoch = since(killed);
        let left = frames(&lab)?;
        let report = running
            .join()
            .map_err(|_| Failure::Unsound("the downloads panicked".to_owned()))?
            .map_err(unsound)?;
        let swallowed = difference(&frames(&lab)?, &left);
        prove(setting, under_way, &taken, &swallowed)?;
        if report.complete() < downloads.count {
            context.say(&report.faults());
        }
        let sum = |way: usize| taken.iter().map(|host| host[way]).sum::<u64>().max(1);
        let link = match &lab.channel {
            Some(channel) => channel.report().map_err(absent)?,
            None => return Err(Failure::Unsound("there is no state channel".to_owned())),
        };
        let ran = Ran {
            under_way,
            bytes_left,
            killed_at,
            steered,
            epoch,
            apply,
            moved_permille,
            retransmissions: [sent - first_sent, retransmissions(&lab)? - first_sent],
            lag,
            link_late_us: link.lateness.at_most_us(0.99),
            shares: [0, 1].map(|way| 100 * taken[setting.killed][way] / sum(way)),
            report,
        };
        for host in hosts.drain(..).flatten() {
            host.terminate(PATIENCE)
                .and_then(asterism_lab::Finished::successful)
                .map_err(unsound)?;
        }
        context.say(&format!("{}: {}", setting.name, ran.in_words()));
        Ok(ran)
    })
}

impl Ran {
    /// Downloads that stood still over the kill for longer than an even flow does, with how long, in milliseconds, in order.
    fn stalls_ms(&self) -> Vec<f64> {
        let over_the_kill = self.report.downloads.iter().filter(|one| {
            let end = one.stall.began + one.stall.lasted;
            one.stall.lasted >= DETECTION && end > self.killed_at && one.began < self.killed_at
        });
        let mut stalls: Vec<f64> = over_the_kill
            .map(|one| one.stall.lasted.as_secs_f64() * 1e3)
            .collect();
        stalls.sort_by(f64::total_cmp);
        stalls
    }

    /// The longest time without news of any download, in milliseconds.
    fn worst_ms(&self) -> f64 {
        let stalls = self.report.downloads.iter().map(|one| one.stall.lasted);
        stalls.max().unwrap_or_default().as_secs_f64() * 1e3
    }

    fn figures(&self, what: What) -> Vec<(&'static str, f64)> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut figures = vec![
            ("stall-worst-ms", self.worst_ms()),
            ("steering-in-force-ms", ms(self.steered)),
            ("channel-lag-groups", self.lag.groups as f64),
            ("channel-lag-us", self.lag.us as f64),
            (
                "channel-unacknowledged-groups",
                self.lag.unacknowledged as f64,
            ),
        ];
        if what == What::Openings {
            let downloads = &self.report.downloads;
            let last = downloads.iter().map(|one| one.ended).max();
            let rate = downloads.len() as f64 / last.unwrap_or_default().as_secs_f64();
            figures.extend([
                ("broken", (downloads.len() - self.report.complete()) as f64),
                ("of", downloads.len() as f64),
                ("per-second", rate),
            ]);
            return figures;
        }
        let stalls = self.stalls_ms();
        let median = stalls.get(stalls.len() / 2).copied().unwrap_or(0.0);
        figures.extend([
            ("complete", self.report.complete() as f64),
            ("under-way-at-the-kill", self.under_way as f64),
            (
                "mebibytes-left-at-the-kill",
                self.bytes_left as f64 / f64::from(1 << 20),
            ),
            ("stalled-by-the-kill", stalls.len() as f64),
            ("stall-median-ms", median),
            ("detection-ms", ms(DETECTION)),
            ("steering-apply-ms", ms(self.apply)),
            ("flows-moved-permille", f64::from(self.moved_permille)),
            ("epoch-in-force-ms", ms(self.epoch)),
            (
                "retransmissions-before-the-kill",
                self.retransmissions[0] as f64,
            ),
            ("retransmissions", self.retransmissions[1] as f64),
            ("dead-host-percent-of-requests", self.shares[0] as f64),
            ("dead-host-percent-of-replies", self.shares[1] as f64),
            ("link-late-p99-us", self.link_late_us as f64),
        ]);
        figures
    }

    fn in_words(&self) -> String {
        let stalls = self.stalls_ms();
        format!(
            "{} of {} whole; {} under way at the kill lacked {:.0} MiB, {} stood still, the worst for {:.0} ms; steering in force after {:.0} ms",
            self.report.complete(),
            self.report.downloads.len(),
            self.under_way,
            self.bytes_left as f64 / f64::from(1 << 20),
            stalls.len(),
            self.worst_ms(),
            self.steered.as_secs_f64() * 1e3,
        )
    }
}

/// Frames that each host took from the client and from the server.
fn frames(lab: &NatLab) -> Result<Vec<[u64; 2]>, Failure> {
    let inside = lab.counts("in").map_err(absent)?;
    let outside = lab.counts("out").map_err(absent)?;
    let both = inside.iter().zip(&outside);
    Ok(both
        .map(|(one, other)| [one.received, other.received])
        .collect())
}

fn difference(after: &[[u64; 2]], before: &[[u64; 2]]) -> Vec<[u64; 2]> {
    let hosts = after.iter().zip(before);
    hosts
        .map(|(after, before)| [after[0] - before[0], after[1] - before[1]])
        .collect()
}

fn retransmissions(lab: &NatLab) -> Result<u64, Failure> {
    let client = lab.client.tcp_retransmissions().map_err(absent)?;
    Ok(client + lab.server.tcp_retransmissions().map_err(absent)?)
}

/// What `asterism status` says of a host.
fn status(product: &Path, lab: &NatLab, place: usize) -> Result<serde_json::Value, Failure> {
    let socket = lab.control_socket(place);
    let reported = Command::new(product)
        .args(["status", "--format", "json", "--socket"])
        .arg(socket)
        .output();
    let reported = reported.ok().filter(|output| output.status.success());
    reported
        .and_then(|output| serde_json::from_slice(&output.stdout).ok())
        .ok_or_else(|| Failure::Unsound(format!("host {} does not answer", place + 1)))
}

fn lag_of(product: &Path, lab: &NatLab, place: usize) -> Result<Lag, Failure> {
    let reported = status(product, lab, place)?;
    let peers = reported["peers"]
        .as_array()
        .filter(|peers| peers.len() == HOSTS - 1);
    let peers = peers.ok_or_else(|| Failure::Unsound("status shows no two peers".to_owned()))?;
    let mut lag = Lag::default();
    for peer in peers {
        let field = |name: &str| {
            peer[name]
                .as_u64()
                .ok_or_else(|| Failure::Unsound(format!("status has no {name} of a peer")))
        };
        lag = worse(
            lag,
            Lag {
                groups: field("behind_groups")?,
                us: field("behind_us")?,
                unacknowledged: field("unacknowledged_groups")?,
            },
        );
    }
    Ok(lag)
}

fn worse(one: Lag, other: Lag) -> Lag {
    Lag {
        groups: one.groups.max(other.groups),
        us: one.us.max(other.us),
        unacknowledged: one.unacknowledged.max(other.unacknowledged),
    }
}

/// What was measured is what is said to be: a hundred were under way, over all hosts both ways, and the dead one got nothing
/// any more once the steering was in force.
fn prove(
    setting: &Setting,
    under_way: usize,
    taken: &[[u64; 2]],
    swallowed: &[[u64; 2]],
) -> Result<(), Failure> {
    if under_way < AT_ONCE && setting.what == What::Documents {
        return Err(Failure::Unsound(format!(
            "only {under_way} downloads were under way at the kill, not {AT_ONCE}"
        )));
    }
    for way in [0, 1] {
        let all: u64 = taken.iter().map(|host| host[way]).sum();
        let least = taken.iter().map(|host| host[way]).min().unwrap_or(0);
        if all == 0 || 100 * least < SHARE_PERCENT_MIN * all {
            return Err(Failure::Unsound(format!(
                "a host had less than {SHARE_PERCENT_MIN} % of the frames before the kill: {taken:?}"
            )));
        }
    }
    let to_the_dead = swallowed[setting.killed];
    if to_the_dead.iter().sum::<u64>() > STRAY_FRAMES_MAX {
        return Err(Failure::Unsound(format!(
            "the dead host was sent {to_the_dead:?} frames after the steering was in force"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_that_shows_nothing_is_refused() {
        let setting = &SETTINGS[0];
        let even = [[9_000, 20_000], [8_000, 26_000], [7_000, 19_000]];
        let quiet = [[5_000, 9_000], [0, 3], [5_000, 9_000]];
        assert!(prove(setting, 100, &even, &quiet).is_ok());
        assert!(prove(setting, 99, &even, &quiet).is_err());
        let idle = [[9_000, 20_000], [8_000, 1_000], [7_000, 19_000]];
        assert!(prove(setting, 100, &idle, &quiet).is_err());
        assert!(prove(setting, 100, &[[0; 2]; 3], &quiet).is_err());
        let steered = [[5_000, 9_000], [900, 3], [5_000, 9_000]];
        assert!(prove(setting, 100, &even, &steered).is_err());
    }

    #[test]
    fn only_what_spans_the_kill_is_a_stall_of_it() {
        use asterism_lab::http::{Download, Stall};
        let ms = Duration::from_millis;
        let one = |began, stalled_at, lasted| Download {
            began: ms(began),
            connect: Some(ms(1)),
            ended: ms(9_000),
            stall: Stall {
                began: ms(stalled_at),
                lasted: ms(lasted),
            },
            fault: None,
        };
        let ran = Ran {
            report: DownloadReport {
                downloads: vec![
                    one(0, 1_950, 600),
                    one(0, 1_990, 400),
                    one(0, 1_990, 70),
                    one(0, 500, 300),
                    one(2_100, 2_100, 1_000),
                ],
            },
            under_way: 100,
            bytes_left: 0,
            killed_at: ms(2_000),
            steered: ms(210),
            epoch: ms(400),
            apply: ms(10),
            moved_permille: 334,
            retransmissions: [0, 0],
            lag: Lag::default(),
            link_late_us: 0,
            shares: [33, 33],
        };
        assert_eq!(ran.stalls_ms(), [400.0, 600.0]);
        assert_eq!(ran.worst_ms(), 1_000.0);
    }
}
