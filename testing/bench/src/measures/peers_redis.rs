//! `peers.redis`: what it costs to count a packet by its source for all instances, as a rate limiter must before it decides,
//! here and in a store.
//!
//! Redis: one server on loopback without files, asked by `INCR` for each packet, with the new count in the answer. Commands
//! are sent 512 at once, which is the best that a batching instance can do, and, as a variant, one at a time, as one that
//! decides packet by packet must. Its time is that of the server and of the client's thread: making commands, and reading
//! every answer. It is one copy and not replicated.
//!
//! Ours: the two hosts of `peers.haproxy`, one of which counts a packet of each source and tells the other; packet, sealing
//! and the other host's time included. The decision waits for nobody, and is late by what is on the way. Times are on-CPU.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::host_process::{Folder, two_addresses, wait};
use super::lab::needs;
use super::peers_haproxy::{KEYS, Ours, address};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, process_cpu_ns, thread_cpu_ns};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "peers.redis",
    make: redis,
}];

/// Rounds that count, after one in which every key is new.
const ROUNDS: u32 = 9;
/// Rounds of the long form.
const ROUNDS_FULL: u32 = 25;
/// Commands sent at once, as many as our packets between two turns of the other host.
const COMMANDS: usize = 512;
/// Commands of a round that are sent one at a time.
const SINGLE: usize = 5_000;

/// A server, and a connection to it.
struct Server {
    child: Child,
    stream: TcpStream,
    /// The command of each key.
    commands: Vec<Vec<u8>>,
    answers: Vec<u8>,
    _folder: Folder,
}

/// `INCR` of a key, as clients send it.
fn command(key: u32) -> Vec<u8> {
    let key = address(key).to_string();
    format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
}

/// Answers that are whole, and how many of them are this count; the place after the last.
fn counts(answers: &[u8], count: u32) -> (usize, usize, usize) {
    let expected = format!(":{count}\r");
    let (mut whole, mut right, mut end) = (0, 0, 0);
    for (place, byte) in answers.iter().enumerate() {
        if *byte == b'\n' {
            whole += 1;
            right += usize::from(&answers[end..place] == expected.as_bytes());
            end = place + 1;
        }
    }
    (whole, right, end)
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let folder = Folder::new()?;
        let [own, _] = two_addresses()?;
        let port = own.rsplit(':').next().unwrap_or_default().to_owned();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", ""])
            .args(["--appendonly", "no", "--daemonize", "no", "--dir"])
            .arg(folder.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::Absent(format!("redis-server was not started: {error}")))?;
        let mut made = Made(Some(child));
        let stream = wait("redis-server to listen", || {
            Ok(TcpStream::connect(&own).ok())
        })?;
        stream
            .set_nodelay(true)
            .map_err(|error| Failure::Absent(error.to_string()))?;
        let child = made
            .0
            .take()
            .ok_or_else(|| Failure::Unsound("no server".into()))?;
        Ok(Self {
            child,
            stream,
            commands: (0..KEYS).map(command).collect(),
            answers: Vec::with_capacity(1 << 16),
            _folder: folder,
        })
    }

    fn cpu_ns(&self) -> Result<u64, Failure> {
        process_cpu_ns(self.child.id())
            .ok_or_else(|| Failure::Unsound("redis-server ended by itself".into()))
    }

    /// Counts each of the first `keys` once more, `together` at once; their new count must be `count`. On-CPU ns of a
    /// command, at the server and here.
    fn round(&mut self, keys: usize, together: usize, count: u32) -> Result<[f64; 2], Failure> {
        let server = self.cpu_ns()?;
        let client = thread_cpu_ns();
        let mut bytes = Vec::new();
        for commands in self.commands[..keys].chunks(together) {
            bytes.clear();
            for command in commands {
                bytes.extend_from_slice(command);
            }
            let right = ask(
                &mut self.stream,
                &bytes,
                commands.len(),
                &mut self.answers,
                count,
            )
            .map_err(|error| Failure::Unsound(format!("redis-server does not answer: {error}")))?;
            if right != commands.len() {
                return Err(Failure::Unsound(format!(
                    "{right} of {} answers of redis-server are {count}",
                    commands.len()
                )));
            }
        }
        let client = thread_cpu_ns() - client;
        // It is accounted when it waits again, which it does after its last answer.
        std::thread::park_timeout(std::time::Duration::from_millis(5));
        let server = self.cpu_ns()? - server;
        Ok([server, client].map(|ns| ns as f64 / keys as f64))
    }
}

/// Sends commands and reads their answers; how many of them are `count`.
fn ask(
    stream: &mut TcpStream,
    bytes: &[u8],
    commands: usize,
    answers: &mut Vec<u8>,
    count: u32,
) -> std::io::Result<usize> {
    stream.write_all(bytes)?;
    answers.clear();
    let (mut whole_all, mut right_all) = (0, 0);
    let mut buffer = [0; 1 << 14];
    while whole_all < commands {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answers.extend_from_slice(&buffer[..length]);
        let (whole, right, end) = counts(answers, count);
        whole_all += whole;
        right_all += right;
        answers.drain(..end);
    }
    Ok(right_all)
}

/// A process that is ended unless somebody takes it.
struct Made(Option<Child>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn redis(context: &Context) -> Result<Outcome, Failure> {
    needs(&["redis-server"])?;
    let rounds = if context.full { ROUNDS_FULL } else { ROUNDS };
    let mut server = Server::start()?;
    let mut ours = Ours::start()?;
    // Every key is new. The keys asked for one at a time are counted twice in each round that counts, so they come last.
    server.round(KEYS as usize, COMMANDS, 1)?;
    ours.round(1)?;
    let (mut ratios, mut theirs_all, mut ours_all) = (Vec::new(), Vec::new(), Vec::new());
    for number in 2..rounds + 2 {
        // A B, B A, ...
        let theirs_first = number % 2 == 0;
        let mut theirs = [0.0; 2];
        if theirs_first {
            theirs = server.round(KEYS as usize, COMMANDS, number)?;
        }
        let own = ours.round(number)?;
        if !theirs_first {
            theirs = server.round(KEYS as usize, COMMANDS, number)?;
        }
        context.say(&format!(
            "ns per update: redis {:.0} and {:.0} at its client, ours {:.0} and {:.0} at the other host",
            theirs[0], theirs[1], own[0], own[1]
        ));
        ratios.push((theirs[0] + theirs[1]) / (own[0] + own[1]));
        theirs_all.push(theirs);
        ours_all.push(own);
    }
    let mut single_all = Vec::new();
    for number in rounds + 2..2 * rounds + 2 {
        single_all.push(server.round(SINGLE, 1, number)?);
    }
    ours.pair.check(u64::from(KEYS * (rounds + 1)))?;
    let median = |all: &[[f64; 2]], part: fn(&[f64; 2]) -> f64| {
        Spread::of(&all.iter().map(part).collect::<Vec<f64>>()).median
    };
    let sum = |one: &[f64; 2]| one[0] + one[1];
    let (ours_ns, single_ns) = (median(&ours_all, sum), median(&single_all, sum));
    context.say(&format!("one at a time: redis {single_ns:.0} ns"));
    Ok(Outcome::of(&Spread::of(&ratios))
        .variant("one-at-a-time", single_ns / ours_ns)
        .variant("redis-server-ns", median(&theirs_all, |one| one[0]))
        .variant("redis-client-ns", median(&theirs_all, |one| one[1]))
        .variant(
            "redis-one-at-a-time-server-ns",
            median(&single_all, |one| one[0]),
        )
        .variant(
            "redis-one-at-a-time-client-ns",
            median(&single_all, |one| one[1]),
        )
        .variant("our-sender-ns", median(&ours_all, |one| one[0]))
        .variant("our-receiver-ns", median(&ours_all, |one| one[1]))
        .variant("updates", f64::from(KEYS * rounds))
        .samples("batched", ratios)
        .lost(ours.pair.lost()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_as_clients_send_them() {
        assert_eq!(
            command(1),
            b"*2\r\n$4\r\nINCR\r\n$8\r\n10.0.0.1\r\n".to_vec()
        );
    }

    #[test]
    fn answers_are_counted_when_they_are_whole_and_held_against_the_count() {
        assert_eq!(counts(b":12\r\n:12\r\n:13\r\n:1", 12), (3, 2, 15));
        assert_eq!(counts(b"-ERR no\r\n", 12), (1, 0, 9));
        assert_eq!(counts(b":1", 1), (0, 0, 0));
    }
}
