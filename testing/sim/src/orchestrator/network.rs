//! Heartbeats and epochs between hosts and orchestrators: sealed datagrams by way of a network that loses, delays, overtakes and
//! repeats them, and of an intruder who plays recordings back.

use std::net::SocketAddr;
use std::time::Duration;

use asterism_epochs::EpochFile;
use asterism_heartbeat::{
    HostEvent, HostLink, HostLinkConfig, Names, OrchestratorEvent, OrchestratorLink,
    OrchestratorLinkConfig,
};
use asterism_orchestrator::controller::{self, Input, TICK};
use asterism_secure_channel::{ClusterId, ClusterKey};

use super::plan::{FAULTS_END, FaultKind, OrchestratorPlan};
use super::world::{Message, World};
use crate::report::Failure;
use crate::scenario::Draws;
use crate::trace::Trace;

const CLUSTER: ClusterId = ClusterId(7);
const HEARTBEAT: Duration = Duration::from_millis(50);
/// The port of the first process; each has the next one.
const FIRST_PORT: u16 = 1_024;
/// A recording is played back after so many microseconds at most: most processes have ended then, and so have some orchestrators.
const PLAYED_BACK_US: u64 = 8_000_000;

/// The link of one start of a host.
pub(super) fn host_link(plan: &OrchestratorPlan, draws: &mut Draws) -> HostLink {
    HostLink::new(HostLinkConfig {
        cluster: CLUSTER,
        keys: key().into(),
        salt: random(draws),
        orchestrators: plan.orchestrators,
        interval: HEARTBEAT,
    })
}

/// The link of one start of an orchestrator.
pub(super) fn orchestrator_link(names: &[String], draws: &mut Draws) -> OrchestratorLink {
    OrchestratorLink::new(OrchestratorLinkConfig {
        cluster: CLUSTER,
        keys: key().into(),
        salt: random(draws),
        secret: random(draws),
        names: Names::Listed(names.to_vec()),
    })
}

fn key() -> ClusterKey {
    ClusterKey::from_random(1, [0x5a; 32])
}

fn random<const BYTES: usize>(draws: &mut Draws) -> [u8; BYTES] {
    core::array::from_fn(|_| draws.word() as u8)
}

/// The address of a process, by its number among all that ever were.
fn address(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], FIRST_PORT + at as u16))
}

impl World<'_> {
    /// A process says how it is, as far as anything is due.
    pub(super) fn beat(&mut self, at: usize) {
        let process = &self.processes[at];
        let differs = self.is_on(FaultKind::Differs(process.place));
        let heartbeat = process.heartbeat(&self.names, self.now, differs);
        let link = &mut self.links[at];
        link.set(self.now, heartbeat);
        link.handle_timeout(self.now);
        while let Some((number, datagram)) = self.links[at].poll_transmit() {
            self.carry(&Message::ToOrchestratorLink(number, at, datagram));
        }
    }

    /// An orchestrator's answers, and the epochs that it offers.
    pub(super) fn transmit(&mut self, number: usize) {
        while let Some((to, datagram)) = self.orchestrators[number].link.poll_transmit() {
            let at = usize::from(to.port() - FIRST_PORT);
            self.carry(&Message::ToProcess(at, number, datagram));
        }
    }

    /// A datagram on its way: it is lost, comes, comes twice, or comes again much later.
    fn carry(&mut self, message: &Message) {
        let has_faults = self.now < FAULTS_END;
        if has_faults && self.draws.percent(self.plan.loss_percent) {
            return;
        }
        let delay = self.draws.micros(300, 6_000);
        self.send(delay, message.clone());
        if has_faults && self.draws.percent(self.plan.repeat_percent) {
            let delay = self.draws.micros(300, PLAYED_BACK_US);
            self.count("played back");
            self.send(delay, message.clone());
        }
    }

    /// A datagram of a host arrives at an orchestrator. Whether its sender is cut off was decided by who sent it.
    pub(super) fn hear_host(&mut self, number: usize, at: usize, mut datagram: Vec<u8>) {
        let place = self.processes[at].place;
        if self.is_on(FaultKind::PauseOrchestrator(number)) {
            // Read when it goes on.
            let message = Message::ToOrchestratorLink(number, at, datagram);
            return self.send(TICK, message);
        }
        let is_deaf = self.is_on(FaultKind::DeafOrchestrator(number)) && place > 0;
        if is_deaf || self.is_on(FaultKind::CutFromOrchestrators(place)) {
            return;
        }
        let orchestrator = &mut self.orchestrators[number];
        orchestrator
            .link
            .handle(self.now, address(at), &mut datagram);
        while let Some(OrchestratorEvent::Heartbeat(heartbeat, leader)) =
            orchestrator.link.poll_event()
        {
            let known = controller::Heartbeat::of(&heartbeat, leader, &self.names);
            orchestrator
                .controller
                .handle(self.now, Input::Heartbeat(known));
        }
        self.transmit(number);
    }

    /// A datagram of an orchestrator arrives at a process, which takes the epochs that it completes.
    pub(super) fn hear_orchestrator(
        &mut self,
        at: usize,
        number: usize,
        mut datagram: Vec<u8>,
        trace: &mut Trace,
    ) -> Result<(), Failure> {
        let process = &self.processes[at];
        let place = process.place;
        let is_cut = process.is_given_up || self.is_on(FaultKind::CutFromOrchestrators(place));
        if !process.is_alive || is_cut {
            return Ok(());
        }
        if self.is_on(FaultKind::Pause(place)) {
            self.send(TICK, Message::ToProcess(at, number, datagram));
            return Ok(());
        }
        self.links[at].handle(self.now, number, &mut datagram);
        while let Some(HostEvent::Epoch { text, .. }) = self.links[at].poll_event() {
            let epoch = EpochFile::parse(&text, "the epoch that was handed", &self.names)
                .map_err(|error| Failure::new("an epoch arrives whole", error.to_string()))?;
            self.hand(at, &epoch, trace)?;
            if !self.processes[at].is_alive {
                break;
            }
        }
        Ok(())
    }
}
