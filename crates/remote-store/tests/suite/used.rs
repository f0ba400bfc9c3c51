//! An instance that uses a store over the machine's sockets, as a test drives it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use asterism_engine::Instance;
use asterism_function::{PortNumber, Reason};
use asterism_placement::Time;
use asterism_remote_store::{RemoteConfig, StoreSnapshot, StoreStatistics};

use crate::over_wires::config;
use crate::real_stores::instance_with;
use crate::scripted::Scripted;
use crate::tills::{Tills, packet};

/// How long anything may take on a machine that has much else to do.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// An instance of a store at these addresses.
pub(crate) struct Used {
    pub(crate) instance: Instance<Tills>,
    pub(crate) left: Receiver<Vec<u8>>,
    pub(crate) statistics: Arc<StoreStatistics>,
    pub(crate) begun: Instant,
    pub(crate) sent: u32,
}

impl Used {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        Self::with(|remote| remote.addresses = addresses.to_vec())
    }

    pub(crate) fn with(change: impl FnOnce(&mut RemoteConfig)) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut remote = RemoteConfig::new(nowhere, config(0, 1));
        // A server that stands still for a while is none that has died.
        remote.timeout = WITHIN;
        change(&mut remote);
        let statistics = Arc::<StoreStatistics>::default();
        let (instance, left) = instance_with(remote, statistics.clone());
        Self {
            instance,
            left,
            statistics,
            begun: Instant::now(),
            sent: 0,
        }
    }

    pub(crate) fn turn(&mut self) {
        let now = Time::from_micros(1 + self.begun.elapsed().as_micros() as u64);
        self.instance.turn(now);
        std::thread::sleep(Duration::from_micros(100));
    }

    /// Turns until the statistics say so.
    pub(crate) fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&StoreSnapshot) -> bool,
    ) -> StoreSnapshot {
        let until = Instant::now() + WITHIN;
        loop {
            let seen = self.statistics.snapshot();
            if is_so(&seen) {
                return seen;
            }
            assert!(Instant::now() < until, "{what}: {seen:?}");
            self.turn();
        }
    }

    /// Turns until all connections go there.
    pub(crate) fn is_at(&mut self, server: &Scripted, what: &str) -> StoreSnapshot {
        let expected = Some(server.address);
        self.until(what, |seen| seen.is_connected && seen.address == expected)
    }

    /// No connection goes there any more.
    pub(crate) fn has_left(&mut self, server: &Scripted) {
        let until = Instant::now() + WITHIN;
        while server.open() > 0 {
            assert!(Instant::now() < until, "{} stay behind", server.open());
            self.turn();
        }
    }

    pub(crate) fn inject(&mut self) {
        self.inject_of((self.sent % 7) as u16);
    }

    /// A packet of this flow comes.
    pub(crate) fn inject_of(&mut self, flow: u16) {
        let now = Time::from_micros(1 + self.begun.elapsed().as_micros() as u64);
        let bytes = packet(flow, self.sent);
        assert!(self.instance.inject(now, PortNumber(0), &bytes));
        self.sent += 1;
    }

    /// A packet comes, is committed, and leaves.
    pub(crate) fn passes(&mut self, what: &str) {
        self.inject();
        self.leaves(what);
    }

    /// What left, of a packet that came. One that was given up, as on a machine that stands still for longer than it may wait, is
    /// followed by another.
    pub(crate) fn leaves(&mut self, what: &str) -> Vec<u8> {
        let given_up = |used: &Self| used.instance.tally().dropped(Reason::ParkedTooLong);
        let (mut before, until) = (given_up(self), Instant::now() + WITHIN);
        loop {
            if let Some(left) = self.left.try_iter().last() {
                return left;
            }
            assert!(
                Instant::now() < until,
                "{what}: {:?}",
                self.statistics.snapshot()
            );
            self.turn();
            if given_up(self) > before {
                before = given_up(self);
                self.inject();
            }
        }
    }
}
