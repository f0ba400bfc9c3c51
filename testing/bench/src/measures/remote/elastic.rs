//! `remote.elastic`: a ramp of load through firewalls that share a store; two are added at its top, and taken away on the way down (Figure 4.8
//! of the StatelessNF paper).
//!
//! The client opens flows at each step, and the server streams datagrams back by all of them in turn: a firewall lets in what it knows, and
//! nothing else. Both directions are spread over the firewalls flow by flow, so that most flows change their firewall each time. A
//! firewall is started when it is added, and stopped when it is taken away. The value is datagrams received over datagrams
//! sent; `dropped-as-unknown` counts what firewalls dropped since they knew no such flow.
//!
//! The same with flows in each firewall's own memory must lose datagrams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use asterism_lab::{Finished, Probe, Program, pause, wait_until};

use super::datagrams::Datagrams;
use super::firewalls::{self, Firewalls, Flows, Setting};
use crate::contract::{Failure, Outcome};
use crate::measures::Context;
use crate::measures::lab::unsound;

/// The ramp: the load of each step, and how many firewalls there are.
const RAMP: [(usize, usize); 10] = [
    (1, 1),
    (2, 1),
    (3, 1),
    (4, 1),
    (5, 2),
    (5, 3),
    (4, 3),
    (3, 2),
    (2, 1),
    (1, 1),
];
const FIREWALLS: usize = 3;
/// Datagrams a second of a load of one.
const UNIT: usize = 4_000;
const UNIT_FULL: usize = 8_000;
/// How long a step lasts.
const STEP: Duration = Duration::from_secs(2);
const STEP_FULL: Duration = Duration::from_secs(5);
/// The same where nothing is in the store.
const STEP_LOCAL: Duration = Duration::from_secs(1);
/// Flows that are opened at each step, by how many sockets of the client.
const FLOWS: usize = 40;
const CLIENTS: usize = 16;
/// Bytes of a datagram.
const BYTES: usize = 1_200;
/// Between two looks at sockets.
const LOOK: Duration = Duration::from_micros(500);
/// A firewall that has received nothing for so long has handled all that was sent to it.
const DRAINED: Duration = Duration::from_millis(200);
/// How long the last ones may take to the client.
const LAST_COME: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// SIGTERM.
const TERMINATE: i32 = 15;
/// Why a firewall drops packets of flows that it does not know.
const UNKNOWN: &str = "denied";

/// What goes on, as its threads see it.
#[derive(Default)]
struct Load {
    step: AtomicUsize,
    per_second: AtomicUsize,
    flows: AtomicUsize,
    ends: AtomicBool,
    /// Nothing is sent any more.
    has_ended: AtomicBool,
}

/// What a ramp found: by step datagrams that were sent, and those of them that were received.
struct Ran {
    steps: Vec<[usize; 2]>,
    /// Packets that firewalls and their ports dropped, by reason.
    dropped: BTreeMap<String, u64>,
    /// How long each step lasted, in seconds.
    lasted: Vec<f64>,
}

impl Ran {
    fn share(&self) -> f64 {
        let sum = |which: usize| self.steps.iter().map(|step| step[which]).sum::<usize>();
        sum(1) as f64 / sum(0).max(1) as f64
    }

    fn unknown(&self) -> u64 {
        self.dropped.get(UNKNOWN).copied().unwrap_or(0)
    }

    /// Megabits a second that were received in a step.
    fn goodput(&self, step: usize) -> f64 {
        (self.steps[step][1] * BYTES * 8) as f64 / self.lasted[step] / 1e6
    }
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    firewalls::needs(&[])?;
    let (unit, step) = match context.full {
        true => (UNIT_FULL, STEP_FULL),
        false => (UNIT, STEP),
    };
    let remote = ramp(context, Flows::Remote, unit, step)?;
    let local = ramp(context, Flows::Local, UNIT, STEP_LOCAL)?;
    if local.share() > 0.99 || local.unknown() == 0 {
        return Err(Failure::Unsound(format!(
            "firewalls that know no flows of others let {:.4} of the datagrams pass: nothing was tried",
            local.share()
        )));
    }
    let sent = |ran: &Ran| ran.steps.iter().map(|step| step[0]).sum::<usize>() as f64;
    let mut outcome = Outcome::new(remote.share(), 1)
        .variant("dropped-as-unknown", remote.unknown() as f64)
        .variant("sent", sent(&remote))
        .variant("local-share", local.share())
        .variant("local-dropped-as-unknown", local.unknown() as f64);
    for (reason, count) in &remote.dropped {
        outcome = outcome.variant(format!("dropped-{reason}"), *count as f64);
    }
    for step in 0..RAMP.len() {
        outcome = outcome
            .variant(format!("step-{step}-mbps"), remote.goodput(step))
            .variant(format!("step-{step}-local-mbps"), local.goodput(step));
    }
    Ok(outcome)
}

fn ramp(context: &Context, flows: Flows, unit: usize, step: Duration) -> Result<Ran, Failure> {
    let mut firewalls = Firewalls::start(&Setting {
        firewalls: FIREWALLS,
        started: 1,
        servers: 1,
        store: "cache = {}",
        flows,
    })?;
    let datagrams = Datagrams::new(&firewalls, FLOWS * RAMP.len(), CLIENTS)?;
    let load = Load::default();
    let (sent, received, lasted, dropped) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&datagrams, &load));
        let receiver = scope.spawn(|| receive(&datagrams, &load));
        let climbed = climb(&mut firewalls, &datagrams, &load, unit, step);
        load.ends.store(true, Ordering::Release);
        let sent = sender.join();
        pause(LAST_COME);
        load.has_ended.store(true, Ordering::Release);
        let received = receiver.join();
        let (lasted, mut dropped) = climbed?;
        add(&mut dropped, firewalls.dropped(0)?);
        let panicked = |_| Failure::Unsound("a thread panicked".into());
        Ok::<_, Failure>((
            sent.map_err(panicked)?,
            received.map_err(panicked)?,
            lasted,
            dropped,
        ))
    })?;
    let ran = Ran {
        steps: by_step(&sent, &received)?,
        dropped,
        lasted,
    };
    for (number, (step, (_, count))) in ran.steps.iter().zip(RAMP).enumerate() {
        let [sent, received] = step;
        context.say(&format!(
            "{count} firewalls: {received} of {sent} datagrams received, {:.0} Mb/s",
            ran.goodput(number)
        ));
    }
    if !ran.dropped.is_empty() {
        context.say(&format!("dropped by firewalls: {:?}", ran.dropped));
    }
    Ok(ran)
}

/// Takes all steps: how long each lasted, and what firewalls that were taken away had dropped.
fn climb(
    firewalls: &mut Firewalls,
    datagrams: &Datagrams,
    load: &Load,
    unit: usize,
    step: Duration,
) -> Result<(Vec<f64>, BTreeMap<String, u64>), Failure> {
    let (mut lasted, mut dropped, mut running) = (Vec::new(), BTreeMap::new(), 1);
    let mut stopping: Vec<Program> = Vec::new();
    for (number, (weight, count)) in RAMP.into_iter().enumerate() {
        let began = Probe::now();
        load.step.store(number, Ordering::Release);
        open(datagrams, load, number)?;
        load.per_second.store(weight * unit, Ordering::Release);
        for place in running..count {
            firewalls.start_host(place)?;
        }
        let places: Vec<usize> = (0..count).collect();
        firewalls.requests_through(&places)?;
        firewalls.replies_through(&places)?;
        for place in count..running {
            drain(firewalls, place)?;
            add(&mut dropped, firewalls.dropped(place)?);
            if let Some(host) = firewalls.hosts[place].take() {
                host.signal(TERMINATE);
                stopping.push(host);
            }
        }
        running = count;
        pause((began + step).saturating_sub(Probe::now()));
        lasted.push((Probe::now() - began).as_secs_f64());
    }
    for host in stopping {
        host.wait(PATIENCE)
            .and_then(Finished::successful)
            .map_err(unsound)?;
    }
    Ok((lasted, dropped))
}

/// Waits until nothing is on its way through a firewall to which no route leads.
fn drain(firewalls: &Firewalls, place: usize) -> Result<(), Failure> {
    let until = Probe::now() + PATIENCE;
    let mut before = None;
    while Probe::now() < until {
        let reported = firewalls.status(place)?;
        let instance = &reported["instances"][0];
        let received = instance["counts"]["packets_received"].as_u64();
        if received == before && instance["parked"] == 0 {
            return Ok(());
        }
        before = received;
        pause(DRAINED);
    }
    Err(Failure::Unsound(format!(
        "firewall {} is still sent packets",
        place + 1
    )))
}

fn add(sum: &mut BTreeMap<String, u64>, dropped: BTreeMap<String, u64>) {
    for (reason, count) in dropped {
        *sum.entry(reason).or_default() += count;
    }
}

/// The client opens the flows of a step.
fn open(datagrams: &Datagrams, load: &Load, step: usize) -> Result<(), Failure> {
    let flows = step * FLOWS..(step + 1) * FLOWS;
    flows.clone().for_each(|flow| datagrams.open(flow));
    let mut opened = 0;
    wait_until("flows to begin", PATIENCE, || {
        datagrams.opened(|flow| opened += usize::from(flows.contains(&flow)));
        opened == FLOWS
    })
    .map_err(unsound)?;
    load.flows.store(flows.end, Ordering::Release);
    Ok(())
}

/// Sends datagrams by all open flows in turn, as many as are due; in which step each was sent.
fn send(datagrams: &Datagrams, load: &Load) -> Vec<usize> {
    let mut sent = Vec::new();
    let (mut due, mut before) = (0.0, Probe::now());
    while !load.ends.load(Ordering::Acquire) {
        let now = Probe::now();
        let per_second = load.per_second.load(Ordering::Acquire) as f64;
        due += (now - before).as_secs_f64() * per_second;
        before = now;
        let (step, flows) = (
            load.step.load(Ordering::Acquire),
            load.flows.load(Ordering::Acquire).max(1),
        );
        while due >= 1.0 {
            due -= 1.0;
            // What the kernel does not take is not sent.
            if datagrams.answer(sent.len() % flows, sent.len(), BYTES) {
                sent.push(step);
            }
        }
        pause(LOOK);
    }
    sent
}

/// How often each datagram was received.
fn receive(datagrams: &Datagrams, load: &Load) -> Vec<usize> {
    let mut received = Vec::new();
    while !load.has_ended.load(Ordering::Acquire) {
        datagrams.answered(|number| {
            if received.len() <= number {
                received.resize(number + 1, 0);
            }
            received[number] += 1;
        });
        pause(LOOK);
    }
    received
}

/// Datagrams of each step, and those of them that were received, each once.
fn by_step(sent: &[usize], received: &[usize]) -> Result<Vec<[usize; 2]>, Failure> {
    if received.len() > sent.len() || received.iter().any(|count| *count > 1) {
        return Err(Failure::Unsound(
            "datagrams were received that nobody sent, or twice".into(),
        ));
    }
    let mut steps = vec![[0; 2]; RAMP.len()];
    for (number, step) in sent.iter().enumerate() {
        steps[*step][0] += 1;
        steps[*step][1] += received.get(number).copied().unwrap_or(0);
    }
    match steps.iter().all(|step| step[0] > 0) {
        true => Ok(steps),
        false => Err(Failure::Unsound("a step had no datagrams".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_counts_once_in_the_step_in_which_it_was_sent() {
        let sent: Vec<usize> = (0..20).map(|number| number / 2).collect();
        let mut received = vec![1; 20];
        let mut all = vec![[2, 2]; 10];
        assert_eq!(by_step(&sent, &received).ok(), Some(all.clone()));
        received[7] = 0;
        received.truncate(19);
        (all[3], all[9]) = ([2, 1], [2, 1]);
        assert_eq!(by_step(&sent, &received).ok(), Some(all));
        received[2] = 2;
        assert!(by_step(&sent, &received).is_err());
        assert!(by_step(&sent, &[1; 21]).is_err());
        assert!(by_step(&sent[..18], &[1; 18]).is_err());
    }
}
