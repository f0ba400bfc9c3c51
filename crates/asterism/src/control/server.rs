//! Answers at the control socket: a thread that accepts, and one for each of a few connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use asterism_state::audit::LeafSet;
use serde_json::Value;

use super::audit::Repaired;
use super::place::Place;
use super::{Answer, Ask, REQUEST_BYTES_MAX, show};
use crate::run::backends;
use crate::run::blocked;
use crate::run::caches;
use crate::run::requests::{Request, Sought};
use crate::run::rules;
use crate::run::traffic;
use crate::run::worker::TRACED_MAX;
use crate::view::View;

/// Connections at a time; further ones are closed.
/// How long an instance may take to write a table again.
const REPAIR_MAX: Duration = Duration::from_secs(50);
const CONNECTIONS_MAX: usize = 8;
/// How long a connection may be silent, or not take its answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Commands that wait for the main thread at most.
pub const COMMANDS_MAX: usize = 4;
/// How long the main thread has for a command. A stop takes longer, and says at once that it begins.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// How long a trace may wait for packets.
const TRACE_MAX: Duration = Duration::from_secs(60);

/// What only the main thread can do.
#[derive(Debug)]
pub struct Command {
    /// What.
    pub kind: CommandKind,
    reply: SyncSender<Result<String, String>>,
}

/// What only the main thread can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// To read no more packets.
    Drain,
    /// To read the configuration anew.
    Reload,
    /// To stop.
    Stop,
}

impl Command {
    /// Says how it went.
    pub fn answer(self, result: Result<String, String>) {
        // Whoever asked may have gone.
        let _ = self.reply.try_send(result);
    }
}

/// Starts the thread that answers. It ends with the process.
///
/// # Errors
/// No thread or descriptor could be had.
pub fn start(place: &Place, view: Arc<View>, commands: SyncSender<Command>) -> std::io::Result<()> {
    let listener = place.listener()?;
    let thread = std::thread::Builder::new().name("control".into());
    thread
        .spawn(move || accept(&listener, &view, &commands))
        .map(drop)
}

fn accept(listener: &UnixListener, view: &Arc<View>, commands: &SyncSender<Command>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors are left, most likely: not a whole core for that.
            std::thread::park_timeout(Duration::from_millis(100));
            continue;
        };
        let before = open.fetch_add(1, Ordering::AcqRel);
        let counted = Open(open.clone());
        if before >= CONNECTIONS_MAX {
            let _ = refuse(&stream, "there are too many connections already: try again");
            continue;
        }
        let (view, commands) = (view.clone(), commands.clone());
        let thread = std::thread::Builder::new().name("control-answer".into());
        // A thread that cannot be made drops what it was to have: the connection is closed and not counted any more.
        let _ = thread.spawn(move || {
            let _counted = counted;
            let _ = serve(&stream, &view, &commands);
        });
    }
}

/// A connection that is counted as open until this is dropped, whatever becomes of its thread.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refuse(mut stream: &UnixStream, error: &str) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let answer = Answer {
        result: None,
        error: Some(error.to_owned()),
    };
    stream.write_all((serde_json::to_string(&answer)? + "\n").as_bytes())
}

/// Answers the requests of one connection until it ends, is silent too long, or says nonsense.
fn serve(stream: &UnixStream, view: &View, commands: &SyncSender<Command>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut input).take(REQUEST_BYTES_MAX as u64);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            return refuse(
                stream,
                &format!("a request is one line of at most {REQUEST_BYTES_MAX} bytes"),
            );
        }
        let result = match serde_json::from_slice::<Ask>(&line) {
            Ok(ask) => answer(ask, view, commands),
            Err(error) => Err(format!("this is no request: {error}")),
        };
        let answer = match result {
            Ok(result) => Answer {
                result: Some(result),
                error: None,
            },
            Err(error) => Answer {
                result: None,
                error: Some(error),
            },
        };
        let mut output = stream;
        output.write_all((serde_json::to_string(&answer)? + "\n").as_bytes())?;
    }
}

/// The number of the object with this name.
fn object_named(view: &View, name: &str) -> Result<u8, String> {
    let objects = view.names.objects;
    let place = objects.iter().position(|object| *object == name);
    place.map(|place| place as u8).ok_or_else(|| {
        format!(
            "there is no object \"{name}\"; objects are {}",
            objects.join(", ")
        )
    })
}

fn answer(ask: Ask, view: &View, commands: &SyncSender<Command>) -> Result<Value, String> {
    let value =
        |result: Result<Value, serde_json::Error>| result.map_err(|error| error.to_string());
    match ask {
        Ask::Status { digests } => value(serde_json::to_value(view.status(digests))),
        Ask::Trace {
            packets,
            instance,
            within_ms,
        } => {
            if packets == 0 || packets > TRACED_MAX {
                return Err(format!(
                    "packets is {packets}: it must be 1 to {TRACED_MAX}"
                ));
            }
            let within = Duration::from_millis(within_ms);
            if within > TRACE_MAX {
                return Err(format!(
                    "within_ms is {within_ms}: it must be at most {}",
                    TRACE_MAX.as_millis()
                ));
            }
            let traced = view.ask(instance, within, |reply| Request::Trace {
                packets,
                within,
                reply,
            })?;
            let names = &view.names;
            value(serde_json::to_value(show::traced(&traced, names)))
        }
        Ask::Repair {
            object,
            parts,
            remove,
        } => {
            let object = object_named(view, &object)?;
            let audited = view.channel().audit.objects.clone();
            if !audited.iter().any(|&(known, _)| known == object) {
                return Err(
                    "this object is not shared, or is of a kind that is not audited (pools, token buckets in escrow): there is nothing to repair".into(),
                );
            }
            let leaves = parts.map_or(LeafSet::ALL, LeafSet::from_iter);
            let mut done = Repaired {
                entries: 0,
                removes: remove.then_some(false),
            };
            for instance in 0..view.instances() {
                let (entries, removes) =
                    view.ask(instance, REPAIR_MAX, |reply| Request::WriteAgain {
                        object,
                        leaves,
                        remove,
                        reply,
                    })?;
                done.entries += entries;
                done.removes = done.removes.map(|before| before || removes);
            }
            value(serde_json::to_value(done))
        }
        Ask::StateGet {
            key,
            value: held,
            object,
            instance,
        } => {
            let object = object.map(|name| object_named(view, &name)).transpose()?;
            let sought = Sought { key, value: held };
            let found = view.ask(instance, Duration::ZERO, |reply| Request::Find {
                sought,
                object,
                reply,
            })?;
            value(serde_json::to_value(found))
        }
        Ask::Digests { url } => value(serde_json::to_value(caches::look(view, url.as_deref())?)),
        Ask::Backends => value(serde_json::to_value(backends::look(view)?)),
        Ask::Blocked => value(serde_json::to_value(blocked::look(view)?)),
        Ask::Rules => value(serde_json::to_value(rules::look(view)?)),
        Ask::Traffic(wanted) => value(serde_json::to_value(traffic::look(view, wanted)?)),
        Ask::Drain => command(CommandKind::Drain, commands, COMMAND_MAX),
        Ask::Reload => command(CommandKind::Reload, commands, COMMAND_MAX),
        // As long as the longest `drain_max`, and what follows it.
        Ask::Stop => command(CommandKind::Stop, commands, Duration::from_secs(700)),
    }
}

fn command(
    kind: CommandKind,
    commands: &SyncSender<Command>,
    within: Duration,
) -> Result<Value, String> {
    let (reply, answer) = sync_channel(1);
    commands
        .try_send(Command { kind, reply })
        .map_err(|_| "the host has too many commands already: try again".to_owned())?;
    let result = answer.recv_timeout(within);
    result
        .map_err(|_| "the host has not answered; see its log".to_owned())?
        .map(Value::String)
}
