//! Answers requests: from the host's published statistics, by an instance, or by the main thread.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asterism_config::Cluster;
use asterism_engine::Removal;
use asterism_epochs::Refusal;
use asterism_state::audit::LeafSet;
use serde::Serialize;
use serde_json::Value;

use super::{Answer, Ask, show};
use crate::run::backends;
use crate::run::blocked;
use crate::run::caches;
use crate::run::entries;
use crate::run::flows;
use crate::run::manual;
use crate::run::rules;
use crate::run::traffic;
use crate::run::worker::TRACED_MAX;
use asterism_epochs::EpochFile;
use asterism_event_log::Event;
use asterism_host_view::View;
use asterism_host_view::audit::{RemovalDocument, RepairDocument};
use asterism_host_view::requests::{Request, Sought};

/// Time limit for an instance to write a table again.
const REPAIR_MAX: Duration = Duration::from_secs(50);
/// Maximum number of commands that wait for the main thread.
pub const COMMANDS_MAX: usize = 4;
/// Time limit for the main thread's commands. A stop takes longer, and is acknowledged when it begins.
const COMMAND_MAX: Duration = Duration::from_secs(10);
/// Time that the socket's thread has to pass the last answer on before the process ends.
pub const LAST_WORD: Duration = Duration::from_millis(50);
/// Maximum time that a trace waits for packets.
const TRACE_MAX: Duration = Duration::from_secs(60);
/// Interval and number of checks whether a starting host runs, for each request.
const STARTING_TRIED_EVERY: Duration = Duration::from_millis(10);
const STARTING_TRIES_MAX: u32 = 200;

/// A command that only the main thread can carry out.
#[derive(Debug)]
pub struct Command {
    kind: CommandKind,
    reply: SyncSender<Result<Value, Refused>>,
}

/// A command that only the main thread can carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// To change to an epoch.
    Hand(EpochFile),
    /// To read no more packets.
    Drain,
    /// To re-read the configuration.
    Reload,
    /// To stop.
    Stop,
}

/// The reason of a refusal: a sentence and, where callers depend on the reason, a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    reason: Option<Refusal>,
    why: String,
}

impl Refused {
    /// With a word.
    #[must_use]
    pub fn new(reason: Refusal, why: impl Into<String>) -> Refused {
        let (reason, why) = (Some(reason), why.into());
        Refused { reason, why }
    }
}

impl<T: Into<String>> From<T> for Refused {
    fn from(why: T) -> Refused {
        let (reason, why) = (None, why.into());
        Refused { reason, why }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The result in the form of an answer.
///
/// # Errors
/// The result has no form in JSON.
pub fn in_json(result: &impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(result).map_err(|error| error.to_string().into())
}

/// The result of a query in the form of an answer.
fn done(result: Result<impl Serialize, impl fmt::Display>) -> Result<Value, Refused> {
    in_json(&result.map_err(because)?)
}

fn because(why: impl fmt::Display) -> Refused {
    why.to_string().into()
}

impl Command {
    /// What.
    #[must_use]
    pub fn kind(&self) -> &CommandKind {
        &self.kind
    }

    /// Reports the result.
    pub fn answer(self, result: Result<Value, Refused>) {
        // The caller may have disconnected.
        let _ = self.reply.try_send(result);
    }
}

/// The sources of answers.
#[derive(Debug)]
pub struct RequestHandler {
    /// The host's cluster.
    cluster: Cluster,
    /// The host, once its threads run, and the channel for its log events.
    host: OnceLock<(Arc<View>, SyncSender<Event>)>,
    commands: SyncSender<Command>,
}

impl RequestHandler {
    /// The state before the host runs: the host accepts epochs, and can be stopped.
    #[must_use]
    pub fn new(cluster: Cluster, commands: SyncSender<Command>) -> RequestHandler {
        RequestHandler {
            cluster,
            host: OnceLock::new(),
            commands,
        }
    }

    /// Called when the host runs: requests may now query it. Requests that change the host go to `events`.
    pub fn open(&self, view: Arc<View>, events: SyncSender<Event>) {
        // Called once.
        let _ = self.host.set((view, events));
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn answer(&self, ask: Ask) -> Result<Value, Refused> {
        match ask {
            Ask::Epoch { cluster, text } => self.hand(cluster.as_deref(), &text),
            Ask::Drain => self.command(CommandKind::Drain, COMMAND_MAX),
            Ask::Reload => self.command(CommandKind::Reload, COMMAND_MAX),
            // The longest `drain_max`, and the work that follows it.
            Ask::Stop => self.command(CommandKind::Stop, Duration::from_secs(700)),
            Ask::Status { digests } => in_json(&self.view()?.status(digests)),
            Ask::Trace {
                packets,
                instance,
                within_ms,
            } => trace(
                self.view()?,
                packets,
                instance,
                Duration::from_millis(within_ms),
            ),
            Ask::Repair {
                object,
                parts,
                remove,
            } => repair(self.view()?, &object, parts, remove),
            Ask::StateGet {
                key,
                value,
                object,
                instance,
            } => {
                let view = self.view()?;
                let object = object.map(|name| object_named(view, &name)).transpose()?;
                let flow = None;
                let sought = Sought { key, value, flow };
                let here = view.ask(instance, Duration::ZERO, |reply| Request::Find {
                    sought: sought.clone(),
                    object,
                    reply,
                });
                let mut found = here.map_err(because)?;
                entries::in_store(view, &sought, object, &mut found);
                in_json(&found)
            }
            Ask::Entries(wanted) => {
                let view = self.view()?;
                let object = wanted.object.map(|name| object_named(view, &name));
                let sought = Sought {
                    key: wanted.key,
                    value: wanted.value,
                    flow: wanted.flow,
                };
                done(entries::query(view, &sought, object.transpose()?))
            }
            Ask::Digests { url } => done(caches::query(self.view()?, url.as_deref())),
            Ask::Backends => done(backends::query(self.view()?)),
            Ask::Blocked => done(blocked::query(self.view()?)),
            Ask::Block {
                source,
                seconds,
                function,
            } => {
                let host = self.host()?;
                let function = function.as_deref();
                done(manual::block(host, source, seconds, function))
            }
            Ask::Unblock { source, function } => {
                done(manual::unblock(self.host()?, source, function.as_deref()))
            }
            Ask::EndFlows { filter, function } => {
                done(flows::end(self.host()?, &filter, function.as_deref()))
            }
            Ask::Rules => done(rules::query(self.view()?)),
            Ask::Traffic(wanted) => done(traffic::query(self.view()?, wanted)),
        }
    }

    /// The view of the host.
    fn view(&self) -> Result<&View, Refused> {
        Ok(self.host()?.0)
    }

    /// The view, with the channel of the host's events. Threads start within a moment; a host that awaits its epoch has none.
    fn host(&self) -> Result<(&View, &SyncSender<Event>), Refused> {
        for _ in 0..STARTING_TRIES_MAX {
            if let Some((view, events)) = self.host.get() {
                return Ok((view, events));
            }
            std::thread::park_timeout(STARTING_TRIED_EVERY);
        }
        Err(
            "the host does not run yet: it starts, or waits for an epoch that names it; see its log"
                .into(),
        )
    }

    fn command(&self, kind: CommandKind, within: Duration) -> Result<Value, Refused> {
        let busy = |why: &str| match kind {
            CommandKind::Hand(_) => Refused::new(Refusal::Busy, why),
            _ => why.into(),
        };
        let (reply, answer) = sync_channel(1);
        let command = Command {
            kind: kind.clone(),
            reply,
        };
        self.commands
            .try_send(command)
            .map_err(|_| busy("the host has too many commands already: try again"))?;
        let result = answer.recv_timeout(within);
        result.map_err(|_| busy("the host has not answered; see its log"))?
    }

    /// Parses a handed epoch like its file, and passes it to the main thread.
    fn hand(&self, cluster: Option<&str>, text: &str) -> Result<Value, Refused> {
        let name = &self.cluster.name;
        if let Some(other) = cluster.filter(|other| other != name) {
            return Err(Refused::new(
                Refusal::OtherCluster,
                format!(
                    "the epoch is for the cluster \"{other}\", but this host belongs to \"{name}\""
                ),
            ));
        }
        if self.cluster.epochs.is_none() {
            return Err(Refused::new(
                Refusal::NoEpochs,
                "[cluster] epochs names no file: all members take part from the start, and no epoch changes that",
            ));
        }
        let file = EpochFile::parse(text, "the epoch that was handed", &self.cluster.members)
            .map_err(|error| Refused::new(error.refusal(), error.to_string()))?;
        self.command(CommandKind::Hand(file), COMMAND_MAX)
    }
}

impl From<Result<Value, Refused>> for Answer {
    fn from(result: Result<Value, Refused>) -> Answer {
        match result {
            Ok(result) => Answer {
                result: Some(result),
                error: None,
                reason: None,
            },
            Err(refused) => Answer {
                result: None,
                error: Some(refused.why),
                reason: refused.reason,
            },
        }
    }
}

/// The number of the object with this name.
fn object_named(view: &View, name: &str) -> Result<u8, Refused> {
    let objects = view.names.objects;
    let place = objects.iter().position(|object| *object == name);
    place.map(|place| place as u8).ok_or_else(|| {
        format!(
            "there is no object \"{name}\"; objects are {}",
            objects.join(", ")
        )
        .into()
    })
}

fn trace(view: &View, packets: usize, instance: usize, within: Duration) -> Result<Value, Refused> {
    if packets == 0 || packets > TRACED_MAX {
        return Err(format!("packets is {packets}: it must be 1 to {TRACED_MAX}").into());
    }
    if within > TRACE_MAX {
        return Err(format!(
            "within_ms is {}: it must be at most {}",
            within.as_millis(),
            TRACE_MAX.as_millis()
        )
        .into());
    }
    let traced = view.ask(instance, within, |reply| Request::Trace {
        packets,
        within,
        reply,
    });
    let traced = traced.map_err(because)?;
    in_json(&show::traced(&traced, &view.names))
}

fn repair(
    view: &View,
    object: &str,
    parts: Option<Vec<u8>>,
    remove: bool,
) -> Result<Value, Refused> {
    let object = object_named(view, object)?;
    let audited = view.channel().audit.objects.clone();
    if !audited.iter().any(|&(known, _)| known == object) {
        return Err(
            "this object cannot be repaired: it is not shared, or its kind is not audited (pools, token buckets in escrow)".into(),
        );
    }
    let leaves = parts.map_or(LeafSet::ALL, LeafSet::from_iter);
    let (mut entries, mut removal) = (0, Removal::NotAsked);
    for instance in 0..view.instances() {
        let done = view.ask(instance, REPAIR_MAX, |reply| Request::Repair {
            object,
            leaves,
            removes: remove,
            reply,
        });
        let done = done.map_err(because)?;
        entries += done.entries;
        removal = removal.max(done.removal);
    }
    in_json(&RepairDocument {
        entries,
        removal: RemovalDocument::of(removal),
    })
}
