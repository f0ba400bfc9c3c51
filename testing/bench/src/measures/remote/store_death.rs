//! `remote.store-death`: the store's primary is killed, and a replica of it promoted a moment later.
//!
//! - *Packets of known flows.* A probe's datagrams go through one firewall and come back through another one, which keep answers and serve
//!   known flows while the store is away. The primary is killed again and again, and once nobody is promoted for three seconds, which is
//!   longer than any packet waits. The value is how many datagrams were lost. The same long outage without a cache must lose some.
//! - *State.* Flows begin by one firewall, `ack = "replica"`, while the primary is killed. Each flow whose first datagram left is asked for by
//!   an answer through the other firewall, which never heard of it: `state-lost` is how many of them are not known. The same with
//!   `ack = "primary"`, and with replicas that were cut off before, must lose some.

use std::time::Duration;

use asterism_lab::nat::SERVER;
use asterism_lab::{Probe, pause};

use super::datagrams::Datagrams;
use super::firewalls::{self, Firewalls, Flows, Setting};
use crate::contract::{Failure, Outcome};
use crate::measures::Context;
use crate::measures::lab::absent;

/// Known flows, and the time between two datagrams of them.
const KNOWN: usize = 24;
const INTERVAL: Duration = Duration::from_micros(625);
const PROBE_PORT: u16 = 7_777;
/// From the kill until the replica is promoted.
const PROMOTED_AFTER: Duration = Duration::from_millis(100);
/// Longer than packets wait for their store.
const LONG: Duration = Duration::from_secs(3);
/// How long datagrams go on before and after a kill.
const BESIDE: Duration = Duration::from_millis(500);
/// Kills of the primary.
const KILLS: usize = 3;
const KILLS_FULL: usize = 30;
/// Flows that begin, by how many sockets of the client, and the time between two of them.
const NEW: usize = 1_000;
const CLIENTS: usize = 20;
const NEW_INTERVAL: Duration = Duration::from_micros(1_500);
/// Longer than packets wait for their store.
const LAST_LEAVES: Duration = Duration::from_millis(2_500);
/// How often a flow is asked for before it counts as unknown, and how long an answer takes at most.
const ASKS: usize = 3;
const ANSWER: Duration = Duration::from_millis(300);

/// How known flows fared.
#[derive(Default)]
struct Known {
    sent: usize,
    lost: usize,
    /// Of them, over the long outage.
    lost_long: usize,
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    firewalls::needs(&[])?;
    let kills = if context.full { KILLS_FULL } else { KILLS };
    let cached = "cache = {}\nwhen_down = \"serve-known\"\nknown_for = \"10s\"";
    let known = known_flows(context, cached, kills)?;
    let uncached = known_flows(context, "", 0)?;
    if uncached.lost == 0 {
        return Err(Failure::Unsound(
            "without a cache nothing is lost over three seconds without a store: the outage is none".into(),
        ));
    }
    let rounds = if context.full { 10 } else { 1 };
    let (mut begun, mut lost) = (0, 0);
    for _ in 0..rounds {
        let (of, unknown) = new_flows(context, "ack = \"replica\"", true)?;
        begun += of;
        lost += unknown;
    }
    let (_, lost_by_primary) = new_flows(context, "ack = \"primary\"", false)?;
    if lost_by_primary == 0 {
        return Err(Failure::Unsound(
            "flows that no replica has are known after the primary's death: nothing asks the store"
                .into(),
        ));
    }
    Ok(Outcome::new(known.lost as f64, kills as u32 + 1)
        .variant("state-lost", lost as f64)
        .variant("packets-of-known-flows", known.sent as f64)
        .variant("lost-over-a-long-outage", known.lost_long as f64)
        .variant("lost-without-cache", uncached.lost as f64)
        .variant("new-flows", begun as f64)
        .variant("state-lost-without-replica", lost_by_primary as f64))
}

/// Kills the primary so often with a short outage each, and once with a long one.
fn known_flows(context: &Context, store: &'static str, kills: usize) -> Result<Known, Failure> {
    let mut firewalls = Firewalls::start(&Setting {
        firewalls: 2,
        started: 2,
        servers: 2,
        store,
        flows: Flows::Remote,
    })?;
    firewalls.replies_through(&[1])?;
    let at = (SERVER, PROBE_PORT).into();
    let (client, server) = (&firewalls.lab.client, &firewalls.lab.server);
    let probe = Probe::start(client, server, at, KNOWN, INTERVAL).map_err(absent)?;
    // By then all flows are known to both.
    pause(BESIDE * 2);
    let known_since = Probe::now();
    let mut primary = 0;
    for _ in 0..kills {
        fail_over(&mut firewalls, primary, PROMOTED_AFTER)?;
        pause(BESIDE);
        firewalls.start_server(primary, Some(1 - primary))?;
        primary = 1 - primary;
        pause(BESIDE);
    }
    let long_since = Probe::now();
    fail_over(&mut firewalls, primary, LONG)?;
    pause(BESIDE);
    let sent = probe.end();
    let mut known = Known::default();
    for one in sent.iter().filter(|one| one.at >= known_since) {
        known.sent += 1;
        known.lost += usize::from(!one.came_back);
        known.lost_long += usize::from(!one.came_back && one.at >= long_since);
    }
    context.say(&format!(
        "{} of {} datagrams of known flows lost over {kills} deaths of the primary, and {} over {} s without one",
        known.lost - known.lost_long,
        known.sent,
        known.lost_long,
        LONG.as_secs(),
    ));
    Ok(known)
}

/// Kills the primary, promotes the best replica after so long, and waits until both firewalls are connected to it.
fn fail_over(firewalls: &mut Firewalls, primary: usize, after: Duration) -> Result<(), Failure> {
    firewalls.kill_server(primary);
    pause(after);
    let heir = firewalls.fail_over()?;
    for place in 0..2 {
        firewalls.wait_until_connected(place, Some(heir))?;
    }
    Ok(())
}

/// Flows that begin while the primary is killed: how many of them left, and how many of those are not known afterwards.
fn new_flows(
    context: &Context,
    store: &'static str,
    replicated: bool,
) -> Result<(usize, usize), Failure> {
    let mut firewalls = Firewalls::start(&Setting {
        firewalls: 2,
        started: 2,
        servers: 3,
        store,
        flows: Flows::Remote,
    })?;
    firewalls.replies_through(&[1])?;
    if !replicated {
        for replica in [1, 2] {
            firewalls.cut_off(replica)?;
        }
    }
    let datagrams = Datagrams::new(&firewalls, NEW, CLIENTS)?;
    let mut left = vec![false; NEW];
    let before = std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            for flow in 0..NEW {
                datagrams.open(flow);
                pause(NEW_INTERVAL);
            }
        });
        pause(BESIDE);
        let killed = fail_over(&mut firewalls, 0, PROMOTED_AFTER);
        datagrams.opened(|flow| left[flow] = true);
        let before = left.iter().filter(|left| **left).count();
        opener
            .join()
            .map_err(|_| Failure::Unsound("the client panicked".into()))?;
        killed.map(|()| before)
    })?;
    pause(LAST_LEAVES);
    datagrams.opened(|flow| left[flow] = true);
    let mut known = vec![false; NEW];
    for _ in 0..ASKS {
        for flow in 0..NEW {
            if left[flow] && !known[flow] {
                datagrams.answer(flow, flow, 0);
                pause(Duration::from_micros(100));
            }
        }
        pause(ANSWER);
        datagrams.answered(|flow| known[flow] = true);
    }
    let begun = left.iter().filter(|left| **left).count();
    let unknown = (0..NEW).filter(|flow| left[*flow] && !known[*flow]).count();
    context.say(&format!(
        "{store}: of {begun} flows that began, {before} before the replica was promoted, {unknown} are unknown"
    ));
    if before == 0 || begun == before || begun == unknown {
        return Err(Failure::Unsound(format!(
            "of {begun} flows {before} began before the replica was promoted and {unknown} are unknown: nothing was tried"
        )));
    }
    Ok((begun, unknown))
}
