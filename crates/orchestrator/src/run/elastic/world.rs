//! All that the runner touches: the controller, the truth store, the launcher, the steering, the clock and the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use asterism_elasticity::{BucketLoad, UnixMs};
use asterism_epochs::Process;

use super::record::LaunchRecord;
use crate::clock;
use crate::controller::Order;
use crate::launch::Launcher;
use crate::run::moves::{MoveError, Moving};
use crate::run::offer;
use crate::run::store::{NotStored, StoreCommand};
use crate::run::view::{Asking, AskingError, ClusterView, Logged};

/// How long the store may take to answer: etcd's own limit is shorter. Meanwhile nothing is decided.
const STORE_ANSWER_MAX: Duration = Duration::from_secs(15);

/// The loads of buckets by host.
pub(super) type Buckets = BTreeMap<String, Vec<BucketLoad>>;

/// What the runner touches.
pub(super) trait World {
    fn now(&self) -> UnixMs;
    fn view(&mut self) -> Result<ClusterView, AskingError>;
    /// Gives an order to the controller, which may be lost: it is repeated until the view shows it.
    fn order(&mut self, order: Order);
    /// Reports that a process has ended.
    fn ended(&mut self, host: &str, process: Process);
    /// What is stored, and its version; an empty record with the version 0 if nothing is.
    fn read(&mut self) -> Result<(LaunchRecord, u64), String>;
    fn write(&mut self, record: &LaunchRecord, replaces: u64, term: u64) -> Result<u64, NotStored>;
    fn launcher(&self) -> Arc<dyn Launcher>;
    /// Packets/s of each bucket since this was asked last; `None` if the steering has no buckets.
    fn buckets(&mut self) -> Option<Buckets>;
    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), MoveError>;
    fn log(&mut self, line: Logged);
}

/// The world as it is.
pub(super) struct Outside {
    pub(super) asking: Asking,
    pub(super) store: SyncSender<StoreCommand>,
    pub(super) moving: Moving,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) log: SyncSender<Logged>,
    /// When buckets were counted last.
    pub(super) counted: UnixMs,
}

impl Outside {
    fn ask_store<T>(
        &self,
        command: impl FnOnce(SyncSender<T>) -> StoreCommand,
    ) -> Result<T, String> {
        let (answer, answered) = sync_channel(1);
        if !offer(&self.store, command(answer)) {
            return Err("the truth store has much to do".to_owned());
        }
        answered
            .recv_timeout(STORE_ANSWER_MAX)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => "the truth store does not answer".to_owned(),
                RecvTimeoutError::Disconnected => "the orchestrator ends".to_owned(),
            })
    }
}

impl World for Outside {
    fn now(&self) -> UnixMs {
        UnixMs(clock::wall_ms())
    }

    fn view(&mut self) -> Result<ClusterView, AskingError> {
        self.asking.view()
    }

    fn order(&mut self, order: Order) {
        // Repeated until the view shows it.
        let _ = self.asking.order(order);
    }

    fn ended(&mut self, host: &str, process: Process) {
        // The controller notices by itself, only later.
        let _ = self.asking.ended(host, process);
    }

    fn read(&mut self) -> Result<(LaunchRecord, u64), String> {
        let (bytes, version) = self.ask_store(StoreCommand::ReadLaunching)??;
        let record = bytes.map(|bytes| LaunchRecord::from_bytes(&bytes));
        let record = record.transpose().map_err(|why| {
            format!("the record of launches is not understood: {why}; no host is started or stopped until it can be read")
        })?;
        Ok((record.unwrap_or_default(), version))
    }

    fn write(&mut self, record: &LaunchRecord, replaces: u64, term: u64) -> Result<u64, NotStored> {
        let bytes = record.to_bytes();
        let command = |answer| StoreCommand::StoreLaunching {
            bytes,
            replaces,
            term,
            answer,
        };
        self.ask_store(command).map_err(NotStored::Failed)?
    }

    fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::clone(&self.launcher)
    }

    fn buckets(&mut self) -> Option<Buckets> {
        let counts = self.moving.counts().ok()?;
        let now = self.now();
        let ms = now.since(self.counted).0;
        self.counted = now;
        let mut all = Buckets::new();
        for count in counts {
            let load = BucketLoad {
                bucket: count.bucket,
                packets_per_second: count.packets.saturating_mul(1_000) / ms.max(1),
            };
            all.entry(count.target).or_default().push(load);
        }
        Some(all)
    }

    fn move_buckets(&mut self, buckets: &[u32], to: &str) -> Result<(), MoveError> {
        self.moving.move_buckets(buckets, to)
    }

    fn log(&mut self, line: Logged) {
        offer(&self.log, line);
    }
}
