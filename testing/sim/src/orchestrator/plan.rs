//! What a seed decides: hosts, orchestrators, links, and faults.

use std::time::Duration;

use asterism_orchestrator::controller::Times;
use asterism_placement::Time;

use crate::scenario::Draws;

/// Faults begin after so long, when the cluster has formed.
const FORMED: Duration = Duration::from_secs(4);
/// Faults have ended after so long.
pub(super) const FAULTS_END: Time = Time::from_micros(20_000_000);

/// What goes wrong. Hosts are named by their place, orchestrators by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A host's process is killed, and begins again after the fault, in the same folder.
    Kill(usize),
    /// A host's process is killed and begins at once, in the same folder, again and again.
    Flap(usize),
    /// A host's process goes on unseen, cut off from everything, while another is started on another machine under its name.
    Move(usize),
    /// A host's process stands still.
    Pause(usize),
    /// A host is cut off from the other hosts.
    CutFromHosts(usize),
    /// A host is cut off from all orchestrators.
    CutFromOrchestrators(usize),
    /// A host's auditor finds a difference.
    Differs(usize),
    /// The steering sees the link to a host down.
    LinkDown(usize),
    /// An orchestrator stands still; what it asked is carried out meanwhile.
    PauseOrchestrator(usize),
    /// An orchestrator begins again with nothing but what the store has.
    RestartOrchestrator(usize),
    /// An orchestrator receives nothing from most hosts.
    DeafOrchestrator(usize),
    /// An orchestrator cannot reach the store.
    CutFromStore(usize),
    /// The store is away.
    StoreAway,
    /// The store answers readers with what it had.
    StoreStale,
    /// The store's answers are lost after it has done what was asked.
    StoreUnknown,
    /// The steering fails, half of the time after it has done what was asked.
    SteeringFails,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// From when.
    pub from: Time,
    /// Until when.
    pub until: Time,
}

/// A seed's decisions.
#[derive(Clone, Debug)]
pub struct OrchestratorPlan {
    /// The seed.
    pub seed: u64,
    /// Places of the cluster.
    pub hosts: usize,
    /// Orchestrators.
    pub orchestrators: usize,
    /// Datagrams of a hundred that are lost between hosts and orchestrators, while there are faults.
    pub loss_percent: u64,
    /// Datagrams of a hundred that come a second time, up to eight seconds later, while there are faults.
    pub repeat_percent: u64,
    /// Whether a launcher sees the ends of processes.
    pub has_launcher: bool,
    /// All faults, in order.
    pub faults: Vec<Fault>,
    /// The times of the controllers.
    pub times: Times,
}

impl OrchestratorPlan {
    /// The decisions of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> OrchestratorPlan {
        let mut draws = Draws::new(seed, 71);
        let hosts = draws.within(2, 5) as usize;
        let orchestrators = draws.within(1, 3) as usize;
        let times = Times {
            evict_after: Duration::from_millis(2_000),
            admit_pause_max: Duration::from_millis(8_000),
            ..Times::default()
        };
        let mut faults: Vec<Fault> = (0..draws.within(2, 9))
            .map(|_| one_fault(&mut draws, hosts, orchestrators))
            .collect();
        faults.sort_by_key(|fault| fault.from);
        OrchestratorPlan {
            seed,
            hosts,
            orchestrators,
            loss_percent: draws.one_of(&[0, 0, 2, 5, 20]),
            has_launcher: draws.percent(60),
            repeat_percent: draws.one_of(&[0, 1, 5]),
            faults,
            times,
        }
    }
}

fn one_fault(draws: &mut Draws, hosts: usize, orchestrators: usize) -> Fault {
    let host = draws.within(0, hosts as u64 - 1) as usize;
    let orchestrator = draws.within(0, orchestrators as u64 - 1) as usize;
    let kinds = [
        FaultKind::Kill(host),
        FaultKind::Kill(host),
        FaultKind::Flap(host),
        FaultKind::Move(host),
        FaultKind::Pause(host),
        FaultKind::Pause(host),
        FaultKind::CutFromHosts(host),
        FaultKind::CutFromOrchestrators(host),
        FaultKind::Differs(host),
        FaultKind::LinkDown(host),
        FaultKind::PauseOrchestrator(orchestrator),
        FaultKind::PauseOrchestrator(orchestrator),
        FaultKind::RestartOrchestrator(orchestrator),
        FaultKind::DeafOrchestrator(orchestrator),
        FaultKind::CutFromStore(orchestrator),
        FaultKind::StoreAway,
        FaultKind::StoreStale,
        FaultKind::StoreUnknown,
        FaultKind::SteeringFails,
    ];
    let kind = draws.one_of(&kinds);
    let last = FAULTS_END.since(Time::ZERO).as_micros() as u64;
    let from = Time::from_micros(draws.within(FORMED.as_micros() as u64, last - 400_000));
    let lasts = draws.one_of(&[
        Duration::from_millis(120),
        Duration::from_millis(300),
        Duration::from_millis(900),
        Duration::from_millis(3_000),
        Duration::from_millis(7_000),
    ]);
    let until = (from + lasts).min(FAULTS_END);
    Fault { kind, from, until }
}
