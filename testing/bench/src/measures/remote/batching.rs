//! `remote.batching`: packets a second of known flows of a NAT, as many under way on either side, with reads batched and without.
//!
//! Without batching each key is asked for by a command of its own. Commands that wait are written together in one case, which is pipelining
//! (`pipelined`); in the other one each is written by itself, as a client does that sends each packet's request when the packet comes
//! (`single`). A packet at a time (`one-at-a-time`) is the figure by which the paper compares, which is that of a round trip.

use super::wire::Asking;
use super::{Context, FLOWS, Home, NAT, ROUND, ROUND_SINGLE, Remote, TOGETHER, nat, to_server};
use crate::contract::{Failure, Outcome};
use crate::timing::{PAIRS_MIN, Spread};

/// Rounds of each.
const ROUNDS: usize = PAIRS_MIN as usize;
const ROUNDS_FULL: usize = 21;

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let mut nats = Vec::new();
    for asking in [Asking::Batched, Asking::Apart, Asking::Single] {
        let function = (nat(FLOWS as u32, 1), to_server as fn(usize) -> _);
        let mut nat = Remote::open(FLOWS, function, NAT, Home::Store, asking)?;
        nat.drive(ROUND, TOGETHER)?;
        nats.push(nat);
    }
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut keys_of_command = [0.0; 3];
    for round in 0..rounds {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let nat = &mut nats[which];
            let commands = nat.reading_commands()?;
            let took = nat.drive(ROUND, TOGETHER)?;
            rates[which].push(ROUND as f64 * 1e9 / took.cpu_ns as f64);
            let commands = nat.reading_commands()? - commands;
            // Each packet is a read of its own.
            keys_of_command[which] = ROUND as f64 / commands.max(1) as f64;
        }
    }
    if keys_of_command[0] < 8.0 || keys_of_command[1..].iter().any(|keys| *keys > 1.1) {
        let why = format!("{keys_of_command:?} keys were asked for by a command");
        return Err(Failure::Unsound(why));
    }
    let batched = &mut nats[0];
    batched.drive(ROUND_SINGLE, 1)?;
    let alone: Result<Vec<f64>, Failure> = (0..rounds / 2)
        .map(|_| Ok(ROUND_SINGLE as f64 * 1e9 / batched.drive(ROUND_SINGLE, 1)?.cpu_ns as f64))
        .collect();
    let over = |base: usize| -> Spread {
        let pairs = rates[0].iter().zip(&rates[base]);
        Spread::of(&pairs.map(|(ours, base)| ours / base).collect::<Vec<_>>())
    };
    let medians = rates.each_ref().map(|rates| Spread::of(rates).median);
    let alone = Spread::of(&alone?).median;
    for (name, rate) in ["batched", "pipelined", "single"].iter().zip(medians) {
        context.say(&format!("{name}: {rate:.0} packets/s"));
    }
    Ok(Outcome::of(&over(2))
        .variant("over-pipelined", over(1).median)
        .variant("over-one-at-a-time", medians[0] / alone)
        .variant("batched-packets-per-second", medians[0])
        .variant("pipelined-packets-per-second", medians[1])
        .variant("single-packets-per-second", medians[2])
        .variant("one-at-a-time-packets-per-second", alone)
        .variant("keys-of-a-command", keys_of_command[0])
        .variant("under-way", TOGETHER as f64))
}
