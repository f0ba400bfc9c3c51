//! What must hold: after each call, after each step, now and then, and once all is at rest.
//!
//! Each check compares the system with the oracle or with a bound of its configuration, never one of its
//! counts with another of the same core alone.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_engine::{BACKLOG_BYTES_MAX, Cluster, Instance, PARKED_MAX};
use asterism_placement::{MemberId, Time};
use asterism_secure_channel::Refusal;

use asterism_state::State;
use asterism_state::audit::{LEAVES, Leaf};

use crate::exercise::{Done, Exercise, Exercised, Joined, Verb};
use crate::moved::Moved;
use crate::oracle::Oracle;
use crate::report::Failure;
use crate::sums::{of_the_last_while, sums};
use crate::witness::Witness;

pub(crate) type Checked = Result<(), Failure>;

pub(crate) fn instances(
    cluster: &Cluster<Exercise>,
) -> impl Iterator<Item = ((usize, usize), &Instance<Exercise>)> {
    cluster
        .members()
        .iter()
        .enumerate()
        .flat_map(|(place, member)| {
            let lanes = member.instances.iter().enumerate();
            lanes.map(move |(lane, instance)| ((place, lane), instance))
        })
}

pub(crate) fn name((place, lane): (usize, usize)) -> String {
    format!("m{place}.{lane}")
}

/// After a call on an instance: it was given the entry that it asked for, a port that it took is no other flow's
/// anywhere, and a session that was used lately was found.
pub fn a_call(
    cluster: &Cluster<Exercise>,
    oracle: &Oracle,
    at: (usize, usize),
    now: Time,
    done: &Done,
) -> Checked {
    if let Some(given) = done.given
        && given != done.command.key
    {
        return Err(Failure::new(
            "a read gives what was asked for",
            format!(
                "{}: {:?} was given the entry of {given}",
                name(at),
                done.command
            ),
        ));
    }
    if !done.granted {
        return Ok(());
    }
    let (client, Some(port)) = (done.command.key, done.port) else {
        return Ok(());
    };
    for (other, instance) in instances(cluster) {
        let mut found = None;
        instance.state().sessions.for_each(|pair, _| {
            if pair.1 == port && pair.0 != client {
                found = Some(pair.0);
            }
        });
        if let Some(flow) = found {
            return Err(Failure::new(
                "no port to two flows",
                format!(
                    "{} gave port {port} to client {client} while {} has it for client {flow}",
                    name(at),
                    name(other)
                ),
            ));
        }
    }
    let used = oracle.used.get(&(at.0 * 2 + at.1, client));
    if let Some((last, applied)) = used
        // Nobody closed it but those whose closing was applied there before its last use.
        && (0..applied.len()).all(|member| {
            let closed = oracle.closed.get(&(client, member));
            closed.is_none_or(|&through| through <= applied[member])
        })
    {
        let last = *last;
        let idle = Duration::from_secs(u64::from(oracle.idle_seconds));
        // Clocks differ by the skew, and count whole seconds.
        let least = idle.saturating_sub(oracle.skew_most + Duration::from_secs(1));
        if now < last + least {
            return Err(Failure::new(
                "an entry lives while it is used",
                format!(
                    "{} used the session of client {client} at {last} and found none at {now}; it idles out after {idle:?}",
                    name(at)
                ),
            ));
        }
    }
    Ok(())
}

/// Notes for [`a_call`] that a session was used, in a burst before which its member had written as far as `before`.
pub fn note_use(
    cluster: &Cluster<Exercise>,
    oracle: &mut Oracle,
    at: (usize, usize),
    now: Time,
    before: u64,
    done: &Done,
) {
    if done.command.verb != Verb::Open || !(done.found || done.granted) {
        return;
    }
    let progress = cluster.members()[at.0].channel.progress();
    let alone = cluster.members()[at.0].instances.len() == 1;
    let applied = (0..oracle.heads.len()).map(|member| match member == at.0 {
        // What a sibling closed may not be known here yet.
        // Nor in which order a burst used and closed it.
        true if alone => before,
        true => 0,
        false => progress.applied(MemberId(member as u16)),
    });
    let key = (at.0 * 2 + at.1, done.command.key);
    oracle.used.insert(key, (now, applied.collect()));
}

/// Cheap ones, after every step, of members in which something moved.
pub(crate) fn each_step(cluster: &Cluster<Exercise>, oracle: &Oracle, moved: Moved) -> Checked {
    for (at, instance) in instances(cluster).filter(|(at, _)| moved.has(at.0)) {
        let total = instance.state().commands.get().unwrap_or(0);
        if total > oracle.commands {
            return Err(Failure::new(
                "no effect twice",
                format!(
                    "{} counts {total} commands of {}",
                    name(at),
                    oracle.commands
                ),
            ));
        }
        let tally = instance.tally();
        if tally.groups_bad > 0 {
            return Err(Failure::new(
                "groups decode",
                format!("{}: {} groups did not", name(at), tally.groups_bad),
            ));
        }
    }
    Ok(())
}

/// Dearer ones, every few milliseconds.
pub fn now_and_then(cluster: &Cluster<Exercise>, oracle: &Oracle) -> Checked {
    for (place, member) in cluster.members().iter().enumerate() {
        let replicator = member.channel.replicator();
        let config = replicator.config();
        let room = replicator.log_room();
        if room.groups > config.log_groups_max
            || member.inbox() > asterism_engine::INBOX_DATAGRAMS_MAX
        {
            return Err(Failure::new(
                "memory is bounded",
                format!("m{place}: {room:?}"),
            ));
        }
        if member.channel.backlog_bytes() > BACKLOG_BYTES_MAX / 16 {
            return Err(Failure::new(
                "memory is bounded",
                format!(
                    "m{place}: {} bytes of backlog",
                    member.channel.backlog_bytes()
                ),
            ));
        }
        let tally = member.channel.tally();
        if tally.refused_opened > oracle.strange_messages {
            let mut reasons = Vec::new();
            replicator.counters().each(|_, reason, count| {
                if let Some(reason) = reason
                    && count > 0
                {
                    reasons.push(format!("{reason}: {count}"));
                }
            });
            return Err(Failure::new(
                "no message of a member is refused",
                format!("m{place}: {}", reasons.join(", ")),
            ));
        }
        for (reason, count) in member.channel.secure().refusals().iter() {
            let expected = matches!(
                reason,
                Refusal::Replayed
                    | Refusal::TooOld
                    | Refusal::NotAdmitted
                    | Refusal::HandshakeBudget
                    | Refusal::StaleEcho
                    | Refusal::StaleRetry
                    | Refusal::NotForUs
            );
            if count > 0 && !expected && !oracle.stranger_about {
                return Err(Failure::new(
                    "no datagram of a member is refused",
                    format!("m{place}: {reason}: {count}"),
                ));
            }
        }
    }
    for (at, instance) in instances(cluster) {
        let tally = instance.tally();
        if instance.frames_in_use() != tally.parked || tally.parked > PARKED_MAX {
            return Err(Failure::new(
                "frames come back",
                format!(
                    "{}: {} frames in use, {} packets parked",
                    name(at),
                    instance.frames_in_use(),
                    tally.parked
                ),
            ));
        }
        let state = instance.state();
        let full = [
            ("tokens", state.tokens.tally().refused_full),
            ("winners", state.winners.tally().refused_full),
            ("joined", state.joined.tally().refused_full),
            ("sessions", state.sessions.tally().refused_full),
            ("banned", state.banned.tally().refused_full),
            ("visited", state.visited.tally().refused_full),
            ("pairs", state.pairs.tally().refused_full),
            ("limits", state.limits.tally().refused_full),
        ];
        if let Some((table, count)) = full.into_iter().find(|(_, count)| *count > 0) {
            return Err(Failure::new(
                "leases leave room for all",
                format!(
                    "{}: {table} had no room for {count} entries of others",
                    name(at)
                ),
            ));
        }
        parts_once(cluster, at, instance)?;
        if let Err(mut failure) = not_resurrected(cluster, oracle, at, instance) {
            for (at, instance) in instances(cluster) {
                let mut entries = Vec::new();
                instance
                    .state()
                    .winners
                    .for_each(|row, value| entries.push((row.0, value.0)));
                failure.detail += &format!("; {} has {entries:?}", name(at));
            }
            return Err(failure);
        }
    }
    Ok(())
}

/// An instance applies each part of a snapshot once at most; of groups see [`Groups`](crate::groups::Groups).
fn parts_once(
    cluster: &Cluster<Exercise>,
    at: (usize, usize),
    instance: &Instance<Exercise>,
) -> Checked {
    let counters = cluster.members()[at.0].channel.counters();
    let (applied, most) = (
        instance.tally().snapshot_parts_applied,
        counters.snapshot_chunks_delivered,
    );
    if applied > most {
        return Err(Failure::new(
            "each part of a snapshot once",
            format!("{} applied {applied} parts of {most}", name(at)),
        ));
    }
    Ok(())
}

/// A removed value is not found again where its removal was applied.
fn not_resurrected(
    cluster: &Cluster<Exercise>,
    oracle: &Oracle,
    at: (usize, usize),
    instance: &Instance<Exercise>,
) -> Checked {
    let state = instance.state();
    let mut live = BTreeMap::new();
    state.winners.for_each(|row, value| {
        live.insert(row.0, value.0);
    });
    let progress = cluster.members()[at.0].channel.progress();
    for erased in &oracle.erased {
        // The token alone may have come with the first part of a snapshot.
        let applied = erased.member == at.0
            || progress.applied(MemberId(erased.member as u16)) >= erased.through;
        if applied
            && live.get(&erased.key) == Some(&erased.value)
            && state.tokens.contains(&erased.token) == Ok(true)
        {
            return Err(Failure::new(
                "nothing removed returns",
                format!("{} has {erased:?}", name(at)),
            ));
        }
    }
    Ok(())
}

/// Whether every instance holds every commit, and what nothing ends is equal everywhere: cheap to ask often.
pub fn is_whole(cluster: &Cluster<Exercise>, oracle: &Oracle, witness: &Witness) -> bool {
    holds_all(cluster, oracle, witness) && are_equal(cluster, |name| !ENDING.contains(&name))
}

/// Whether every instance holds every commit.
pub fn holds_all(cluster: &Cluster<Exercise>, oracle: &Oracle, witness: &Witness) -> bool {
    instances(cluster).all(|((place, lane), instance)| {
        instance.state().commands.get() == Ok(oracle.commands)
            && oracle
                .commits
                .iter()
                .enumerate()
                .all(|(origin, commits)| witness.held(place, lane, origin) == commits.len())
    })
}

/// Objects whose kept digests are of all that they are.
const OF_ENTRIES: [&str; 9] = [
    "tokens", "winners", "joined", "sessions", "banned", "elected", "raised", "visited", "pairs",
];

/// The sum of the digests that an object keeps of its parts; `None` if it keeps none.
pub(crate) fn kept(instance: &Instance<Exercise>, object: u8) -> Option<u64> {
    let mut leaves = [Leaf::default(); LEAVES];
    let kept = instance.state().object(object)?.leaves(0, &mut leaves);
    let sum = |sum: u64, leaf: &Leaf| sum.wrapping_add(leaf.digest);
    kept.then(|| leaves.iter().fold(0, sum))
}

/// Whether these objects are equal everywhere by the digests that they keep, where they do: cheap to ask often. Whether those are
/// true is judged by [`digests_are_equal`].
fn are_equal(cluster: &Cluster<Exercise>, which: impl Fn(&str) -> bool) -> bool {
    let named = (0..).zip(Exercised::OBJECTS);
    let mut objects = named.filter(|(_, name)| which(name));
    objects.all(|(object, name)| {
        let digest = |instance: &Instance<Exercise>| {
            // What adds up keeps digests of what was announced, not of what it is.
            let kept = OF_ENTRIES.contains(name).then(|| kept(instance, object));
            let kept = kept.flatten();
            kept.or_else(|| instance.state().digest(object))
        };
        let mut digests = instances(cluster).map(|(_, instance)| digest(instance));
        let first = digests.next();
        digests.all(|digest| Some(digest) == first)
    })
}

/// Objects whose entries idle out, at any moment, and those that say by themselves that time passes.
const ENDING: [&str; 7] = [
    "winners", "sessions", "banned", "visited", "pairs", "surges", "limits",
];

/// Whether all objects seem equal everywhere, those included from which entries idle out just now.
pub fn is_equal(cluster: &Cluster<Exercise>) -> bool {
    are_equal(cluster, |_| true)
}

/// Everything that must be so once all is quiet.
pub fn at_rest(cluster: &Cluster<Exercise>, oracle: &Oracle, witness: &Witness) -> Checked {
    for (at, instance) in instances(cluster) {
        for (origin, commits) in oracle.commits.iter().enumerate() {
            let held = witness.held(at.0, at.1, origin);
            if held < commits.len() {
                return Err(Failure::new(
                    "nothing known is forgotten",
                    format!(
                        "{} holds {held} of m{origin}'s {} commits; the next is {:?}; {}",
                        name(at),
                        commits.len(),
                        commits[held],
                        standing(cluster)
                    ),
                ));
            }
        }
        contents(oracle, at, instance)?;
        of_the_last_while(cluster, oracle, at, instance)?;
    }
    digests_are_equal(cluster)?;
    unique_both_ways(cluster)?;
    sides_agree(cluster)
}

/// A look at all that objects hold finds the same everywhere.
pub fn digests_are_equal(cluster: &Cluster<Exercise>) -> Checked {
    let first = cluster.members()[0].instances[0].digests();
    for (at, instance) in instances(cluster) {
        let digests = instance.digests();
        if digests != first {
            let differing: Vec<_> = instance
                .entries()
                .iter()
                .zip(digests.iter().zip(&first))
                .filter(|(_, (left, right))| left != right)
                .map(|(object, _)| object.0)
                .collect();
            return Err(Failure::new(
                "digests are equal",
                format!(
                    "{} differs from m0.0 in {}: {}",
                    name(at),
                    differing.join(", "),
                    differences(cluster, instance)
                ),
            ));
        }
    }
    Ok(())
}

/// Whichever side of a pair is asked, on whichever instance, the answers fit each other.
fn sides_agree(cluster: &Cluster<Exercise>) -> Checked {
    let mut answers: BTreeMap<u16, Option<u16>> = BTreeMap::new();
    for (at, instance) in instances(cluster) {
        let pairs = &instance.state().pairs;
        let mut fault = None;
        pairs.for_each(|pair, ()| {
            let found = pairs
                .by_left(&pair.0)
                .ok()
                .flatten()
                .map(|found| found.row.1);
            if *answers.entry(pair.0).or_insert(found) != found {
                fault = Some(format!("{} goes to {found:?} here, elsewhere not", pair.0));
            }
            if let Some(right) = found {
                let back = pairs
                    .by_right(&right)
                    .ok()
                    .flatten()
                    .map(|found| found.row.0);
                if back != Some(pair.0) {
                    fault = Some(format!(
                        "{} goes to {right}, which goes to {back:?}",
                        pair.0
                    ));
                }
            }
        });
        if let Some(fault) = fault {
            return Err(Failure::new(
                "pairs are unique both ways",
                format!("{}: {fault}", name(at)),
            ));
        }
    }
    Ok(())
}

/// What two instances hold differently, in a few words.
fn differences(cluster: &Cluster<Exercise>, instance: &Instance<Exercise>) -> String {
    let list = |instance: &Instance<Exercise>| {
        let mut all = BTreeMap::new();
        let state = instance.state();
        state.winners.for_each(|row, value| {
            all.insert(("winners", row.0, 0), value.0.into());
        });
        state.sessions.for_each(|row, value| {
            all.insert(("sessions", row.0, row.1), u64::from(value.most));
        });
        state.banned.for_each(|row, ()| {
            all.insert(("banned", row.0, 0), 0);
        });
        state.visited.for_each(|row, value| {
            all.insert(("visited", row.0, 0), u64::from(value.most));
        });
        all
    };
    let (left, right) = (list(&cluster.members()[0].instances[0]), list(instance));
    let mut out = Vec::new();
    for (key, value) in &left {
        if right.get(key) != Some(value) {
            out.push(format!("{key:?}: {value} against {:?}", right.get(key)));
        }
    }
    for (key, value) in &right {
        if !left.contains_key(key) {
            out.push(format!("{key:?}: none against {value}"));
        }
    }
    out.truncate(5);
    out.join("; ")
}

/// The objects that nothing ends hold exactly what was done.
fn contents(oracle: &Oracle, at: (usize, usize), instance: &Instance<Exercise>) -> Checked {
    let fault = |check, what: String| Err(Failure::new(check, format!("{}: {what}", name(at))));
    let state = instance.state();
    if state.commands.get() != Ok(oracle.commands) {
        return fault(
            "no effect twice or never",
            format!("{:?} commands of {}", state.commands.get(), oracle.commands),
        );
    }
    if state.tokens.len_now() as u64 != oracle.tokens {
        return fault(
            "no effect twice or never",
            format!("{} tokens of {}", state.tokens.len_now(), oracle.tokens),
        );
    }
    let mut tallies = BTreeMap::new();
    state.tallies.for_each(|&key, total| {
        if total > 0 {
            tallies.insert(key, total);
        }
    });
    if tallies != oracle.tallies {
        return fault(
            "no effect twice or never",
            format!("tallies {tallies:?}, added {:?}", oracle.tallies),
        );
    }
    sums(oracle, state).or_else(|what| fault("no effect twice or never", what))?;
    let mut joined: BTreeMap<u16, Joined> = BTreeMap::new();
    state.joined.for_each(|row, value| {
        joined.insert(row.0, *value);
    });
    if joined != oracle.joined {
        return fault(
            "tables are the join of all writes",
            match oracle
                .joined
                .iter()
                .find(|&(key, value)| joined.get(key) != Some(value))
            {
                Some((key, value)) => {
                    format!("entry {key} is {:?}, joined {value:?}", joined.get(key))
                }
                None => format!("{} joined entries of {}", joined.len(), oracle.joined.len()),
            },
        );
    }
    if state.raised.get() != Ok(oracle.raised) {
        return fault(
            "tables are the join of all writes",
            "the raised register".into(),
        );
    }
    let elected = state.elected.get().map_or(0, |winner| winner.0);
    if !oracle.elected.is_empty() && !oracle.elected.contains(&elected) {
        return fault(
            "values were written by somebody",
            format!("elected {elected}"),
        );
    }
    let mut unwritten = None;
    state.winners.for_each(|row, value| {
        let written = oracle.written.get(&row.0);
        if !written.is_some_and(|written| written.contains(&value.0)) {
            unwritten = Some((row.0, value.0));
        }
    });
    state.visited.for_each(|row, value| {
        let all = oracle.visited.get(&row.0).copied().unwrap_or_default();
        if value.bits & !all.bits != 0 || value.most > all.most {
            unwritten = Some((row.0, value.most));
        }
    });
    match unwritten {
        Some(entry) => fault("values were written by somebody", format!("{entry:?}")),
        None => Ok(()),
    }
}

/// Over all members no outside port is two clients'.
fn unique_both_ways(cluster: &Cluster<Exercise>) -> Checked {
    let mut owners: BTreeMap<u16, u16> = BTreeMap::new();
    for (at, instance) in instances(cluster) {
        let mut twice = None;
        instance.state().sessions.for_each(|pair, _| {
            let owner = *owners.entry(pair.1).or_insert(pair.0);
            if owner != pair.0 {
                twice = Some((pair.1, owner, pair.0));
            }
        });
        if let Some((port, first, second)) = twice {
            return Err(Failure::new(
                "no port to two flows",
                format!(
                    "{}: port {port} is client {first}'s and {second}'s",
                    name(at)
                ),
            ));
        }
    }
    Ok(())
}

/// Whether everything that idles out was forgotten everywhere.
pub fn is_forgotten(cluster: &Cluster<Exercise>) -> bool {
    after_incarnation(cluster).is_ok()
}

/// What idles out was forgotten everywhere, and what it held was returned.
pub fn after_incarnation(cluster: &Cluster<Exercise>) -> Checked {
    for (at, instance) in instances(cluster) {
        let state = instance.state();
        let held = [
            ("winners", state.winners.held()),
            ("sessions", state.sessions.held()),
            ("banned", state.banned.held()),
            ("visited", state.visited.held()),
            ("pairs", state.pairs.held()),
        ];
        if let Some((table, count)) = held.into_iter().find(|(_, count)| *count > 0) {
            return Err(Failure::new(
                "what is idle is forgotten",
                format!(
                    "{}: {count} entries of {table} are held; {}",
                    name(at),
                    standing(cluster)
                ),
            ));
        }
        let usage = state.ports.usage();
        if usage.in_use > 0 {
            return Err(Failure::new(
                "what is reserved returns",
                format!("{}: {} ports without a session", name(at), usage.in_use),
            ));
        }
    }
    Ok(())
}

/// How far members are, in a few words.
pub fn standing(cluster: &Cluster<Exercise>) -> String {
    let mut out = Vec::new();
    for (place, member) in cluster.members().iter().enumerate() {
        let replicator = member.channel.replicator();
        let mut line = format!("m{place} head {}", replicator.head());
        for other in 0..cluster.members().len() {
            if let Some(progress) = replicator.progress().member(MemberId(other as u16))
                && other != place
            {
                line += &format!(
                    " m{other}: applied {} received {} head {} acknowledged {} stable {} {:?};",
                    progress.applied,
                    progress.received,
                    progress.head,
                    progress.acknowledged,
                    progress.stable,
                    progress.standing
                );
            }
        }
        out.push(line);
    }
    out.join(" | ")
}
