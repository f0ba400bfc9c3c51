//! `remote.ceiling`: keys that the store answers in a second of its own core's time to a NAT, over those that it answers to its own benchmark
//! tool, which sends the same commands.
//!
//! A first run of the NAT shows how many keys it asks for by a command, at the median, and how long keys and values are. The store gets as many other
//! keys as there are flows, as long and with values as long, and `redis-benchmark` asks for as many of these by each `MGET`, drawn at random, by as many
//! connections and with as many commands under way as the NAT. Known flows write nothing; a run in which the store counts
//! anything but reads, or does not find a key, is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::channel;

use asterism_lab::redis::Redis;

use super::new_flow::calls;
use super::wire::Asking;
use super::{Context, FLOWS, Home, NAT, ROUND, Remote, TOGETHER, nat, to_server};
use crate::contract::{Failure, Outcome};
use crate::timing::{PAIRS_MIN, Pairs, children_cpu_ns};

const ROUNDS: u32 = PAIRS_MIN;
const ROUNDS_FULL: u32 = 21;
/// Commands of the NAT whose replies are waited for at a time, all by one connection.
const PIPELINED: &str = "2";
const CONNECTIONS: &str = "1";
/// Keys that the tool asks for in a round, in all.
const KEYS: usize = 10 * ROUND as usize;
/// What the tool puts a random number of twelve digits in place of.
const RANDOM: &str = "__rand_int__";
/// Commands that are sent together while keys are written.
const FILLED_TOGETHER: usize = 1_000;
/// Commands that come with time, of which there are few.
const PERIODIC_MAX: u64 = 100;

/// What the NAT asks for.
struct Shape {
    keys_of_command: usize,
    key_bytes: usize,
    value_bytes: usize,
}

pub(super) fn measure(context: &Context) -> Result<Outcome, Failure> {
    let shape = shape()?;
    context.say(&format!(
        "{} keys of {} bytes by a command, values of {} bytes",
        shape.keys_of_command, shape.key_bytes, shape.value_bytes
    ));
    let function = (nat(FLOWS as u32, 1), to_server as fn(usize) -> _);
    let mut nat = Remote::open(FLOWS, function, NAT, Home::Store, Asking::Batched)?;
    let prefix = "k".repeat(shape.key_bytes.saturating_sub(RANDOM.len()));
    fill(&nat.redis, &prefix, shape.value_bytes)?;
    nat.drive(ROUND, TOGETHER)?;
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut all: [Vec<Side>; 2] = Default::default();
    for round in 0..rounds {
        let mut order = [0, 1];
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            all[which].push(match which {
                0 => ours(&mut nat)?,
                _ => theirs(&nat.redis, &nat, &shape, &prefix)?,
            });
        }
    }
    let [ours, theirs] = &all;
    let by_store = pairs(ours, theirs, Side::by_store);
    let by_client = pairs(ours, theirs, Side::by_client);
    let by_time = pairs(ours, theirs, Side::by_time);
    let median = |figures: &[f64]| crate::timing::Spread::of(figures).median;
    Ok(Outcome::of(&by_store.spread())
        .variant("ours-per-second-of-the-store", median(&by_store.first))
        .variant("theirs-per-second-of-the-store", median(&by_store.second))
        .variant("ours-per-second-of-the-client", median(&by_client.first))
        .variant("theirs-per-second-of-the-client", median(&by_client.second))
        .variant("ours-per-second", median(&by_time.first))
        .variant("theirs-per-second", median(&by_time.second))
        .variant("keys-of-a-command", shape.keys_of_command as f64)
        .variant("value-bytes", shape.value_bytes as f64))
}

fn pairs(ours: &[Side], theirs: &[Side], figure: impl Fn(&Side) -> f64) -> Pairs {
    let of = |sides: &[Side]| sides.iter().map(&figure).collect::<Vec<_>>();
    let (first, second) = (of(ours), of(theirs));
    let ratios = first.iter().zip(&second);
    Pairs {
        ratios: ratios.map(|(ours, theirs)| ours / theirs).collect(),
        first,
        second,
    }
}

/// What the keys of a round took: of the store's time, of the client's and of wall time.
struct Side {
    keys: f64,
    store_ns: u64,
    client_ns: u64,
    wall_ns: u64,
}

impl Side {
    fn by_store(&self) -> f64 {
        self.keys * 1e9 / self.store_ns.max(1) as f64
    }

    fn by_client(&self) -> f64 {
        self.keys * 1e9 / self.client_ns.max(1) as f64
    }

    fn by_time(&self) -> f64 {
        self.keys * 1e9 / self.wall_ns.max(1) as f64
    }
}

fn ours(nat: &mut Remote<asterism_functions::nat::Nat>) -> Result<Side, Failure> {
    begin(&nat.redis)?;
    let cpu = nat.store_cpu_ns()?;
    let took = nat.drive(ROUND, TOGETHER)?;
    let store_ns = nat.store_cpu_ns()?.saturating_sub(cpu);
    Ok(Side {
        // Each packet is a read of its own.
        keys: end(&nat.redis, ROUND)? as f64,
        store_ns,
        client_ns: took.cpu_ns,
        wall_ns: took.wall_ns,
    })
}

fn theirs(
    redis: &Redis,
    nat: &Remote<asterism_functions::nat::Nat>,
    shape: &Shape,
    prefix: &str,
) -> Result<Side, Failure> {
    let commands = KEYS.div_ceil(shape.keys_of_command);
    let (port, flows) = (redis.address().port().to_string(), FLOWS.to_string());
    begin(redis)?;
    let (cpu, own, begun) = (
        nat.store_cpu_ns()?,
        children_cpu_ns(),
        crate::timing::wall_ns(),
    );
    let asked = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port, "-q", "-r", &flows])
        .args(["-c", CONNECTIONS, "-P", PIPELINED])
        .args(["-n", &commands.to_string(), "MGET"])
        .args((0..shape.keys_of_command).map(|_| format!("{prefix}{RANDOM}")))
        .output()
        .map_err(|error| Failure::Absent(format!("redis-benchmark: {error}")))?;
    if !asked.status.success() {
        return Err(Failure::Unsound("redis-benchmark failed".into()));
    }
    let store_ns = nat.store_cpu_ns()?.saturating_sub(cpu);
    let (client_ns, wall_ns) = (children_cpu_ns() - own, crate::timing::wall_ns() - begun);
    let keys = commands * shape.keys_of_command;
    Ok(Side {
        keys: end(redis, keys as u64)? as f64,
        store_ns,
        client_ns,
        wall_ns,
    })
}

fn asked(redis: &Redis, words: &[&str]) -> Result<String, Failure> {
    let answer = redis.command(words);
    answer.map_err(|error| Failure::Unsound(format!("redis-server: {error}")))
}

fn begin(redis: &Redis) -> Result<(), Failure> {
    asked(redis, &["CONFIG", "RESETSTAT"]).map(|_| ())
}

/// How many keys the store found. Refuses a round in which it did anything else, or found fewer than these.
fn end(redis: &Redis, keys: u64) -> Result<u64, Failure> {
    let commands = asked(redis, &["INFO", "commandstats"])?;
    let others: u64 = calls(&commands)
        .filter(|(name, _)| *name != "mget")
        .map(|(_, calls)| calls)
        .sum();
    let stats = asked(redis, &["INFO", "stats"])?;
    let of = |name: &str| -> Option<u64> {
        let mut lines = stats.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let found = of("keyspace_hits:").unwrap_or_default();
    let missed = of("keyspace_misses:").unwrap_or(keys);
    if others > PERIODIC_MAX || missed > PERIODIC_MAX || found < keys {
        return Err(Failure::Unsound(format!(
            "of {keys} keys the store found {found} and missed {missed}, with {others} commands of other kinds"
        )));
    }
    Ok(found)
}

/// What a NAT asks for, found out by a run of its own.
fn shape() -> Result<Shape, Failure> {
    let (to, seen) = channel();
    let function = (nat(FLOWS as u32, 1), to_server as fn(usize) -> _);
    let mut nat = Remote::open(FLOWS, function, NAT, Home::Store, Asking::Watched(to))?;
    nat.drive(ROUND, TOGETHER)?;
    seen.try_iter().for_each(drop);
    nat.drive(ROUND, TOGETHER)?;
    let mut commands: Vec<(usize, Vec<u8>)> = seen.try_iter().collect();
    commands.sort();
    let Some((keys_of_command, key)) = commands.get(commands.len() / 2) else {
        return Err(Failure::Unsound("nothing was asked for".into()));
    };
    let mut asked = format!("*2\r\n$6\r\nSTRLEN\r\n${}\r\n", key.len()).into_bytes();
    asked.extend(key);
    asked.extend(b"\r\n");
    let lost = |error: std::io::Error| Failure::Unsound(format!("redis-server: {error}"));
    let mut stream = TcpStream::connect(nat.redis.address()).map_err(lost)?;
    stream.write_all(&asked).map_err(lost)?;
    let mut reply = [0; 32];
    let count = stream.read(&mut reply).map_err(lost)?;
    let reply = String::from_utf8_lossy(&reply[..count]).into_owned();
    let value_bytes = reply.trim().strip_prefix(':');
    let value_bytes = value_bytes.and_then(|length| length.parse().ok());
    match value_bytes {
        Some(value_bytes @ 1..) => Ok(Shape {
            keys_of_command: *keys_of_command,
            key_bytes: key.len(),
            value_bytes,
        }),
        _ => Err(Failure::Unsound(format!("of a key that was read: {reply}"))),
    }
}

/// Writes as many keys as there are flows, which the tool draws from.
fn fill(redis: &Redis, prefix: &str, value_bytes: usize) -> Result<(), Failure> {
    let lost = |error: std::io::Error| Failure::Unsound(format!("redis-server: {error}"));
    let mut stream = TcpStream::connect(redis.address()).map_err(lost)?;
    let value = "v".repeat(value_bytes);
    let key_bytes = prefix.len() + RANDOM.len();
    for first in (0..FLOWS).step_by(FILLED_TOGETHER) {
        let mut commands = String::new();
        for number in first..first + FILLED_TOGETHER {
            commands += &format!(
                "*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{prefix}{number:012}\r\n${value_bytes}\r\n{value}\r\n"
            );
        }
        stream.write_all(commands.as_bytes()).map_err(lost)?;
        let mut replies = [0; 5 * FILLED_TOGETHER];
        stream.read_exact(&mut replies).map_err(lost)?;
        if !replies.chunks(5).all(|reply| reply == b"+OK\r\n") {
            return Err(Failure::Unsound("keys could not be written".into()));
        }
    }
    Ok(())
}
