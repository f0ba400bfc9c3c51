//! Heartbeats to the orchestrators, and the epochs that they hand.
//!
//! The main thread posts facts at each of its turns (`facts.rs` makes them), a thread of its own sends them (`thread.rs`), and a second
//! one hands epochs to the main thread as the control socket does; a third one answers questions (`questions.rs`). If the main thread stands still, heartbeats stop after two
//! seconds. If the thread of heartbeats stands still, packets go on, and only the orchestrator's view of the host suffers.

mod facts;
mod questions;
mod thread;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_config::Config;
use asterism_epochs::{Process, ProcessRecord, RecordError};
use asterism_heartbeat::{Heartbeat, HostLinkConfig, Stage};
use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;
use asterism_secure_channel::KeyRing;

use super::jobs::{HostContext, HostLog};
use super::metering::{Metering, UsageMeter};
use crate::control::request_handler::RequestHandler;
use asterism_event_log::Event;
use facts::{LoadMeter, of_running};

/// Facts are posted so often at most, unless the host's stage changes.
const POST_INTERVAL: Duration = Duration::from_millis(10);
/// Messages to the thread that wait at most; beyond, facts are left out, and newer ones follow.
const MESSAGES_MAX: usize = 16;
/// Events that wait to be logged at most; more are left out.
const EVENTS_MAX: usize = 16;
/// How long the last heartbeat may take to be answered.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// What the thread is handed.
#[derive(Debug)]
enum Message {
    Facts(Heartbeat),
    Keys(KeyRing),
    /// To say this, and to end once it is answered.
    Last(Heartbeat),
}

/// The heartbeats of a host with orchestrators.
#[derive(Debug)]
pub(super) struct Heartbeats {
    messages: SyncSender<Message>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
    /// Counts this start, and keeps a second process out of the folder.
    record: ProcessRecord,
    host: String,
    /// Where the state channel is, if the host registers.
    address: Option<SocketAddr>,
    launch: u64,
    posted: Option<(Time, Stage)>,
    load: LoadMeter,
    /// Whether the state was found equal to the others' since the host serves.
    comparison: facts::Comparison,
    usage: UsageMeter,
}

/// Why there are no heartbeats: the host is not started.
#[derive(Debug, thiserror::Error)]
pub enum HeartbeatsError {
    /// The process is not counted.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no randomness for the identity of this start.
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
    /// The variable by which a launcher names a start holds something else.
    #[error(
        "{LAUNCH_VARIABLE} is set to {0:?}: a launcher ends it with # and the number of the launch; unset it to start a host otherwise"
    )]
    Launch(String),
    /// There is no thread.
    #[error("heartbeats have no thread: {0}")]
    NoThread(io::Error),
}

/// The variable by which a launcher marks the processes that it starts: `FOLDER/CLUSTER/HOST#LAUNCH`.
const LAUNCH_VARIABLE: &str = "ASTERISM_LAUNCH";

impl Heartbeats {
    /// Begins to send heartbeats, if the cluster has orchestrators.
    ///
    /// # Errors
    /// This start cannot be counted, or has no thread.
    pub(super) fn start(
        config: &Config,
        epochs: Option<&Path>,
        keys: &KeyRing,
        handler: &Arc<RequestHandler>,
        clock: MonotonicClock,
    ) -> Result<Option<Heartbeats>, HeartbeatsError> {
        let cluster = &config.cluster;
        let Some(epochs) = epochs.filter(|_| !cluster.orchestrators.is_empty()) else {
            return Ok(None);
        };
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        let (salt, folder) = random.split_at(16);
        let folder = u64::from_le_bytes(folder.try_into().unwrap_or_default());
        let record = ProcessRecord::begin(epochs, &config.host.name, folder, &machine())?;
        let link = HostLinkConfig {
            cluster: cluster.id(),
            keys: keys.clone(),
            salt: salt.try_into().unwrap_or_default(),
            orchestrators: cluster.orchestrators.len(),
            interval: cluster.heartbeat,
        };
        let (messages, received) = sync_channel(MESSAGES_MAX);
        let (event_sender, events) = sync_channel(EVENTS_MAX);
        let thread = thread::start(
            link,
            cluster.orchestrators.clone(),
            clock,
            received,
            event_sender,
            handler.clone(),
        )
        .map_err(HeartbeatsError::NoThread)?;
        Ok(Some(Heartbeats {
            messages,
            events,
            thread: Some(thread),
            record,
            host: config.host.name.clone(),
            address: config.host.address,
            launch: launch()?,
            posted: None,
            load: LoadMeter::default(),
            comparison: facts::Comparison::default(),
            usage: UsageMeter::default(),
        }))
    }

    /// This start.
    pub(super) fn process(&self) -> Process {
        self.record.process()
    }

    /// Posts that the host waits for an epoch; `epoch` is the one that this process was handed last, 0 for none.
    pub(super) fn post_waiting(&mut self, now: Time, epoch: u32, log: &mut impl FnMut(&Event)) {
        while let Ok(event) = self.events.try_recv() {
            log(&event);
        }
        let heartbeat = Heartbeat {
            epoch,
            address: self.address,
            ..self.heartbeat(Stage::Awaiting)
        };
        self.post(now, heartbeat);
    }

    /// Posts what is true of a host that has begun its incarnation. Called at each turn of the main thread.
    pub(super) fn post_running(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        while let Ok(event) = self.events.try_recv() {
            log.write(&event);
        }
        let stage = facts::stage(host.view.phase(), host.view.names.incarnation);
        let is_due = self
            .posted
            .is_none_or(|(at, before)| before != stage || now.since(at) >= POST_INTERVAL);
        if is_due {
            let heartbeat = self.heartbeat(stage);
            let heartbeat = of_running(
                heartbeat,
                now,
                host,
                &mut self.load,
                &mut self.comparison,
                &mut self.usage,
            );
            self.post(now, heartbeat);
        }
    }

    /// Goes on under other keys.
    pub(super) fn set_keys(&self, keys: KeyRing) {
        // A full queue is emptied within milliseconds.
        let _ = self.messages.send(Message::Keys(keys));
    }

    /// Says that the incarnation has ended: after the packet loops and the state channel have. Waits for the answer for a moment.
    pub(super) fn end(mut self, now: Time, incarnation: u64, metering: Option<&Metering>) {
        let last = Heartbeat {
            usage: self.usage.last(now, metering),
            ..self.heartbeat(Stage::Ended(incarnation))
        };
        let _ = self.messages.send(Message::Last(last));
        if let Some(thread) = self.thread.take() {
            // A panic was said on standard error when it happened.
            let _ = thread.join();
        }
    }

    fn post(&mut self, now: Time, heartbeat: Heartbeat) {
        let stage = heartbeat.stage;
        if self.messages.try_send(Message::Facts(heartbeat)).is_ok() {
            self.posted = Some((now, stage));
        }
    }

    fn heartbeat(&self, stage: Stage) -> Heartbeat {
        Heartbeat {
            host: self.host.clone(),
            address: None,
            process: self.process(),
            stage,
            epoch: 0,
            silent: 0,
            digests_agree: false,
            launch: self.launch,
            load: asterism_heartbeat::Load::default(),
            usage: [].into(),
        }
    }
}

/// A name of this machine that no other one has, as far as it tells.
fn machine() -> String {
    let text = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name: String = text
        .trim()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .collect();
    match name.is_empty() {
        true => "unnamed".to_owned(),
        false => name,
    }
}

/// The number under which a launcher started this process; 0: none did.
fn launch() -> Result<u64, HeartbeatsError> {
    match std::env::var(LAUNCH_VARIABLE) {
        Err(_) => Ok(0),
        Ok(text) => {
            let number = text
                .rsplit_once('#')
                .and_then(|(_, number)| number.parse().ok());
            number.ok_or(HeartbeatsError::Launch(text))
        }
    }
}
