//! Clusters that an orchestrator runs, in network namespaces: `lab.failover` kills hosts, `lab.false-alarm` pauses them and loses
//! packets on every link, `lab.headless` takes the orchestrators and their store away.
//!
//! A probe sends 16,000 datagrams in ten seconds over 24 flows through the cluster and back; downloads by TCP run beside it. Nobody but the
//! orchestrator writes an epoch or a route. A killed host is started again at once, as a service manager does.

use std::path::Path;
use std::time::Duration;

use asterism_io::link::LinkConditions;
use asterism_lab::http::{Downloads, document};
use asterism_lab::nat::{HostOptions, NatLabConfig, OrchestratedLab, SERVER};
use asterism_lab::{Probe, Sent, pause};

use super::lab::{absent, needs, product, unsound};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "lab.failover",
        make: failover,
    },
    Measure {
        name: "lab.false-alarm",
        make: false_alarm,
    },
    Measure {
        name: "lab.headless",
        make: headless,
    },
];

const MS: Duration = Duration::from_millis(1);
const HOSTS: usize = 3;
/// The state channel's delay one way.
const CHANNEL_DELAY: Duration = Duration::from_millis(2);
const FLOWS: usize = 24;
/// Time between two datagrams of the probe.
const PROBE_INTERVAL: Duration = Duration::from_micros(625);
/// Documents that are downloaded over a kill, and how many at once.
const DOWNLOADS: usize = 24;
const DOCUMENT_BYTES: usize = 192 << 10;
/// What nginx gives a connection each second, and in which pieces.
const BYTES_PER_SECOND: u64 = 128 << 10;
const PIECE_BYTES: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
const KILLS: usize = 10;
const KILLS_FULL: usize = 50;
const PAUSES: usize = 10;
const PAUSE: Duration = Duration::from_millis(300);
const LOSS: f64 = 0.05;
/// How long packets are lost, and how long there is no orchestrator, in the long form and in the short one.
const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(20);
/// SIGSTOP and SIGCONT.
const STOP: i32 = 19;
const CONTINUE: i32 = 18;

fn start(product: &Path, orchestrators: usize) -> Result<OrchestratedLab, Failure> {
    let config = NatLabConfig::new(HOSTS, CHANNEL_DELAY).orchestrators(orchestrators);
    let options = HostOptions::default().absent("wait 20ms");
    OrchestratedLab::start(product, &config, options).map_err(absent)
}

fn probe(cluster: &OrchestratedLab) -> Result<Probe, Failure> {
    cluster.probe(FLOWS, PROBE_INTERVAL).map_err(absent)
}

fn lost(sent: &[Sent]) -> impl Iterator<Item = Duration> + '_ {
    let lost = sent.iter().filter(|one| !one.came_back);
    lost.map(|one| one.at)
}

/// What one kill cost, in milliseconds from the kill.
#[derive(Clone, Copy, Default)]
struct Killed {
    /// Until the last packet that was lost was sent.
    last_lost: f64,
    detected: f64,
    steered: f64,
    epoch: f64,
    /// Datagrams lost.
    lost: usize,
    /// Downloads that were not complete.
    broken: usize,
}

fn failover(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip", "nginx"])?;
    let product = product()?;
    let kills = if context.full { KILLS_FULL } else { KILLS };
    let (leaderless, with_leader) = leader_killed(context, &product)?;
    let mut all: Vec<Killed> = Vec::new();
    // A host that dies again and again waits longer each time: further kills are of another cluster.
    while all.len() < kills {
        let mut cluster = start(&product, 1)?;
        let right = document(DOCUMENT_BYTES);
        let folder = cluster.lab.lab.folder().to_owned();
        cluster.lab.lab.file("document", &right).map_err(absent)?;
        let _nginx = cluster
            .lab
            .serve_pieces(&folder, BYTES_PER_SECOND, PIECE_BYTES)
            .map_err(absent)?;
        for kill in 0..KILLS {
            let killed = one_kill(&mut cluster, kill % HOSTS, &right)?;
            all.push(killed);
            context.say(&format!(
                "kill {}: last packet lost after {:.0} ms; detected {:.0}, steered {:.0}, epoch {:.0} ms; {} datagrams, {} downloads broken",
                all.len(), killed.last_lost, killed.detected, killed.steered, killed.epoch, killed.lost, killed.broken
            ));
        }
    }
    let of = |figure: fn(&Killed) -> f64| {
        let mut figures: Vec<f64> = all.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let (worst, median) = (of(|one| one.last_lost), kills / 2);
    let value = match context.full {
        true => worst[kills * 99 / 100],
        false => worst[kills - 1],
    };
    let last = |figures: Vec<f64>| figures[kills - 1];
    let broken: usize = all.iter().map(|one| one.broken).sum();
    Ok(Outcome::new(value, kills as u32)
        .variant("median", worst[median])
        .variant("detected-median", of(|one| one.detected)[median])
        .variant("detected-worst", last(of(|one| one.detected)))
        .variant("steered-median", of(|one| one.steered)[median])
        .variant("steered-worst", last(of(|one| one.steered)))
        .variant("epoch-median", of(|one| one.epoch)[median])
        .variant("epoch-worst", last(of(|one| one.epoch)))
        .variant("downloads-broken", broken as f64)
        .variant("leader-killed-too", with_leader)
        .variant("leader-killed-too-next-leads", leaderless))
}

/// Kills a host under load, starts it again, and waits until it takes packets.
fn one_kill(cluster: &mut OrchestratedLab, place: usize, right: &[u8]) -> Result<Killed, Failure> {
    let name = cluster.name(place);
    let silent = format!("{name} was silent");
    let takes = format!("{name} takes packets");
    let [silent_before, takes_before] = [&silent, &takes].map(|line| cluster.count(line));
    let epochs_before = epochs(cluster);
    let victim = cluster.hosts[place].take();
    let probe = probe(cluster)?;
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: "/document".to_owned(),
        document: right,
        count: DOWNLOADS,
        at_once: DOWNLOADS,
        patience: PATIENCE,
    };
    let mut killed = Killed::default();
    let of_cluster = &*cluster;
    let (at, started) = std::thread::scope(|scope| {
        let running = scope.spawn(|| downloads.run(&of_cluster.lab.client));
        pause(MS * 500);
        let at = Probe::now();
        let steered_before = of_cluster.count("event=steered");
        if let Some(host) = victim {
            host.kill();
        }
        let until = |what: &str, is_there: &dyn Fn() -> bool| -> Result<f64, Failure> {
            while !is_there() {
                if Probe::now() > at + PATIENCE {
                    let log = of_cluster.log();
                    return Err(Failure::Unsound(format!("no {what}: {log}")));
                }
                pause(MS * 2);
            }
            Ok((Probe::now() - at).as_secs_f64() * 1e3)
        };
        killed.detected = until(&silent, &|| of_cluster.count(&silent) > silent_before)?;
        killed.steered = until("steering", &|| {
            of_cluster.count("event=steered") > steered_before
        })?;
        let started = of_cluster.begin_host(place).map_err(unsound)?;
        // Both survivors have the epoch that leaves it out.
        killed.epoch = until("epoch", &|| {
            let now = epochs(of_cluster);
            let mut both = now.iter().zip(&epochs_before).enumerate();
            both.all(|(host, (now, before))| host == place || now > before)
        })?;
        until(&takes, &|| of_cluster.count(&takes) > takes_before)?;
        let report = running
            .join()
            .map_err(|_| Failure::Unsound("the downloads panicked".to_owned()))?
            .map_err(unsound)?;
        killed.broken = DOWNLOADS - report.complete();
        Ok((at, started))
    })?;
    cluster.hosts[place] = Some(started);
    cluster.wait_until_steered().map_err(unsound)?;
    pause(MS * 200);
    let sent = probe.end();
    killed.lost = lost(&sent).count();
    killed.last_lost = last_lost_ms(&sent, at);
    Ok(killed)
}

/// How many epochs each host has put in force.
fn epochs(cluster: &OrchestratedLab) -> Vec<usize> {
    let hosts = cluster.hosts.iter();
    hosts
        .map(|host| {
            host.as_ref()
                .map_or(0, |host| host.stderr().matches("event=epoch host").count())
        })
        .collect()
}

/// From then until the last datagram that was lost was sent.
fn last_lost_ms(sent: &[Sent], since: Duration) -> f64 {
    let last = lost(sent).max().unwrap_or(since);
    last.saturating_sub(since).as_secs_f64() * 1e3
}

/// Kills a host and, at the same moment, the orchestrator that leads. How long until the other one leads, and until the last
/// packet that was lost, in milliseconds.
fn leader_killed(context: &Context, product: &Path) -> Result<(f64, f64), Failure> {
    if let Err(why) = needs(&["etcd"]) {
        context.say("leader-killed-too is left out: there is no etcd");
        return Err(why);
    }
    let mut cluster = start(product, 2)?;
    const LEADS: &str = "this orchestrator leads, in term";
    let leads = |cluster: &OrchestratedLab, place: usize| {
        let orchestrator = cluster.orchestrators[place].as_ref();
        orchestrator.is_some_and(|one| one.stderr().contains(LEADS))
    };
    let leader = usize::from(!leads(&cluster, 0));
    let probe = probe(&cluster)?;
    pause(MS * 1_000);
    let at = Probe::now();
    cluster.kill_orchestrator(leader);
    cluster.kill_host(1);
    while !leads(&cluster, 1 - leader) {
        if Probe::now() > at + PATIENCE {
            return Err(Failure::Unsound(format!(
                "the other orchestrator does not lead: {}",
                cluster.log()
            )));
        }
        pause(MS * 2);
    }
    let led = (Probe::now() - at).as_secs_f64() * 1e3;
    cluster.wait_for("event=steered", 1).map_err(unsound)?;
    pause(MS * 1_000);
    let last = last_lost_ms(&probe.end(), at);
    context.say(&format!(
        "leader and host killed: the other leads after {led:.0} ms, last packet lost after {last:.0} ms"
    ));
    Ok((led, last))
}

fn false_alarm(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip"])?;
    let product = product()?;
    let cluster = start(&product, 1)?;
    let running = probe(&cluster)?;
    pause(MS * 500);
    for number in 0..PAUSES {
        if let Some(host) = &cluster.hosts[number % HOSTS] {
            host.signal(STOP);
            pause(PAUSE);
            host.signal(CONTINUE);
        }
        pause(MS * 1_500);
    }
    let sent = running.end();
    let (lost_by_pauses, of) = (lost(&sent).count(), sent.len());
    let (evicted, suspected) = (
        cluster.count("is left out"),
        cluster.count("was silent for"),
    );
    context.say(&format!(
        "{PAUSES} pauses: {suspected} suspicions, {evicted} left out, {lost_by_pauses} of {of} datagrams lost"
    ));
    if suspected < PAUSES / 2 {
        return Err(Failure::Unsound(format!(
            "only {suspected} of {PAUSES} pauses were noticed: {}",
            cluster.log()
        )));
    }
    let channel = cluster.lab.channel.as_ref();
    let channel = channel.ok_or_else(|| Failure::Unsound("there is no channel".to_owned()))?;
    let conditions = |loss: f64| LinkConditions {
        delay: CHANNEL_DELAY,
        loss,
        ..LinkConditions::default()
    };
    channel.set_all(&conditions(LOSS)).map_err(unsound)?;
    let running = probe(&cluster)?;
    pause(if context.full { MINUTE } else { SHORT });
    let sent = running.end();
    channel.set_all(&conditions(0.0)).map_err(unsound)?;
    let (lost_by_loss, of) = (lost(&sent).count(), sent.len());
    let evicted_by_loss = cluster.count("is left out") - evicted;
    let suspected_by_loss = cluster.count("was silent for") - suspected;
    context.say(&format!(
        "{LOSS} of all datagrams lost: {suspected_by_loss} suspicions, {evicted_by_loss} left out, {lost_by_loss} of {of} datagrams lost"
    ));
    let all = evicted + evicted_by_loss + lost_by_pauses + lost_by_loss;
    Ok(Outcome::new(all as f64, 1)
        .variant("left-out-by-pauses", evicted as f64)
        .variant("lost-by-pauses", lost_by_pauses as f64)
        .variant("suspected-by-pauses", suspected as f64)
        .variant("left-out-by-loss", evicted_by_loss as f64)
        .variant("lost-by-loss", lost_by_loss as f64)
        .variant("suspected-by-loss", suspected_by_loss as f64))
}

fn headless(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip", "nginx"])?;
    let product = product()?;
    let mut cluster = start(&product, 1)?;
    let right = document(1_000);
    let folder = cluster.lab.lab.folder().to_owned();
    cluster.lab.lab.file("document", &right).map_err(absent)?;
    let _nginx = cluster.lab.serve(&folder, 0).map_err(absent)?;
    // Its store is embedded: both go.
    cluster.kill_orchestrator(0);
    let running = probe(&cluster)?;
    let until = Probe::now() + if context.full { MINUTE } else { SHORT };
    let (mut begun, mut broken) = (0, 0);
    while Probe::now() < until {
        let downloads = Downloads {
            server: (SERVER, 80).into(),
            path: "/document".to_owned(),
            document: &right,
            count: 20,
            at_once: 5,
            patience: PATIENCE,
        };
        let report = downloads.run(&cluster.lab.client).map_err(unsound)?;
        begun += downloads.count;
        broken += downloads.count - report.complete();
        pause(MS * 500);
    }
    cluster.start_orchestrator(0).map_err(unsound)?;
    for place in 0..HOSTS {
        let takes = format!("{} takes packets", cluster.name(place));
        cluster.wait_for(&takes, 1).map_err(unsound)?;
    }
    cluster.wait_until_steered().map_err(unsound)?;
    pause(MS * 1_000);
    let sent = running.end();
    let (lost, of) = (lost(&sent).count(), sent.len());
    let changed = cluster.count("is left out") + cluster.count("begins incarnation");
    let ended = cluster.hosts.iter().flatten().filter(|host| !host.runs());
    let restarted = changed + ended.count();
    context.say(&format!(
        "{begun} connections begun without an orchestrator, {broken} broken; {lost} of {of} datagrams lost; {restarted} hosts ended or began again"
    ));
    Ok(Outcome::new((lost + broken + restarted) as f64, 1)
        .variant("datagrams-lost", lost as f64)
        .variant("datagrams", of as f64)
        .variant("connections-broken", broken as f64)
        .variant("connections", begun as f64)
        .variant("hosts-restarted", restarted as f64))
}
