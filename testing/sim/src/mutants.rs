//! Planted bugs of all layers, and which seed finds each. Only in a build with `--cfg asterism_mutants`.

use std::sync::atomic::{AtomicUsize, Ordering};

use asterism_balancing::mutant as balancing;
use asterism_block_assignment::mutant as block_assignment;
use asterism_detection::mutant as detection;
use asterism_engine::mutant as engine;
use asterism_functions::mutant as functions;
use asterism_orchestrator::controller::mutant as orchestrator;
use asterism_placement::mutant as placement;
use asterism_remote_store::mutant as remote_store;
use asterism_secure_channel::mutant as secure_channel;
use asterism_state::mutant as state;
use asterism_tracking::mutant as tracking;
use asterism_translation::mutant as translation;

use crate::functions::{nth_holding_seed, run_functions_seed};
use crate::inheritance;
use crate::moves;
use crate::orchestrator::run_orchestrator_seed;
use crate::remote::{nth_sharded_seed, run_remote_seed};
use crate::runs::run_seed;
use crate::stores::run_store_seed;
use crate::trace::Trace;

mod known_seeds;

pub use known_seeds::KNOWN_SEEDS;

/// A planted bug of some layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Of the secure channel.
    SecureChannel(secure_channel::Mutant),
    /// Of the placement's protocol.
    Placement(placement::Mutant),
    /// Of who holds which blocks of a pool: seeds in which members inherit find them.
    BlockAssignment(block_assignment::Mutant),
    /// Of the state objects.
    State(state::Mutant),
    /// Of the packet loop and the state channel.
    Engine(engine::Mutant),
    /// Of what firewalls are made of: seeds of functions find them.
    Tracking(tracking::Mutant),
    /// Of what translators are made of: likewise.
    Translation(translation::Mutant),
    /// Of what balancers are made of: likewise.
    Balancing(balancing::Mutant),
    /// Of what detectors are made of: likewise.
    Detection(detection::Mutant),
    /// Of the network functions: likewise.
    Functions(functions::Mutant),
    /// Of the clients of a store: seeds of [hosts with the shipped client](crate::remote) find them.
    RemoteStore(remote_store::Mutant),
    /// Of who takes part and where packets go: seeds of [orchestrators](crate::orchestrator) find them.
    Orchestrator(orchestrator::Mutant),
}

/// What became of a planted bug.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its name.
    pub name: String,
    /// Its layer.
    pub layer: &'static str,
    /// The complaint from the field that it stands for.
    pub complaint: &'static str,
    /// The first seed that was run and found it, by which check; `None`: it survived.
    pub killed: Option<(u64, String)>,
    /// How many of the sample's seeds find it.
    pub found_by: u64,
    /// Seeds that `found_by` is of.
    pub of: u64,
}

/// Planted bugs of the secure channel that need a forged handshake, a snapshot of a disk, or another configuration: its tests find them
/// (`crates/secure-channel/src/tests`, `crates/secure-channel/tests/suite/floods`).
const IN_THE_SECURE_CHANNEL: [secure_channel::Mutant; 4] = [
    secure_channel::Mutant::LaterEpochIgnored,
    secure_channel::Mutant::TermsNotCompared,
    secure_channel::Mutant::OneBudgetForAll,
    secure_channel::Mutant::CookieUnasked,
];

/// Planted bugs that need many deaths in a row, one word lost at one moment, an epoch with a longer number, or dates that differ, and two
/// that only cost time: the tests of the protocol core find them (`crates/placement/tests/suite/membership`, where members die by the
/// dozen, and `.../replicated`). Those of relays that only cost time or bytes the tests of sites find
/// (`crates/engine/tests/suite/sites/mod.rs`).
const IN_THE_CORE: [placement::Mutant; 22] = [
    placement::Mutant::TimeNotTakenOver,
    placement::Mutant::TimesApartAccepted,
    placement::Mutant::TimeNeverForward,
    placement::Mutant::JoinsOutOfOrder,
    placement::Mutant::OldHoldingsCount,
    placement::Mutant::JoinedSnapshotForgotten,
    placement::Mutant::OwedSnapshotForgotten,
    placement::Mutant::ShutWindowNotProbed,
    placement::Mutant::HiccupDelaysRepair,
    placement::Mutant::StandstillCounts,
    placement::Mutant::RepairsWholeRuns,
    placement::Mutant::ReadyInMidGroup,
    placement::Mutant::NewcomerAcknowledges,
    placement::Mutant::MarksOutliveIncarnations,
    placement::Mutant::HalfSnapshotForgotten,
    placement::Mutant::StableWithoutTheDead,
    placement::Mutant::RelayOfTheDead,
    placement::Mutant::RelayRepeats,
    placement::Mutant::RelaysWordIgnored,
    placement::Mutant::KeptForever,
    placement::Mutant::OlderAcknowledgementCrosses,
    placement::Mutant::BundlesToServing,
];

/// Planted bugs that one seed in a hundred thousand finds, and each run of the state's own tests: one needs a death and three writes
/// that cross (`crates/state/tests/suite/incarnations.rs`), one a port granted in the milliseconds after a return, one a thousand restarts, one what no
/// placement lets happen but where two sponsors die in a row (`.../convergence`), two a thousand incarnations that were forgotten (`.../forgotten`),
/// two token buckets and windows beside objects in a store (`crates/state/tests/suite/recorded.rs`), and two token buckets in a store
/// (`.../buckets_in_store.rs`).
const IN_THE_STATE: [state::Mutant; 11] = [
    state::Mutant::LocalEndForgotten,
    state::Mutant::NamesPileUp,
    state::Mutant::LastUserOfTheEndedUnnamed,
    state::Mutant::GrantsUnjudged,
    state::Mutant::LateTotalUnreported,
    state::Mutant::SlotReusedWhileNamed,
    state::Mutant::LookupsUnmarked,
    state::Mutant::AddedWhenCommitted,
    state::Mutant::PromisedTokensGiven,
    state::Mutant::DecidedStaysUndecided,
    state::Mutant::OwnTakenForOthers,
];

/// Planted bugs of when late packets are called again, most of which only cost time, and of what one packet writes: the tests of the
/// packet loop find them (`parked.rs` and `write_sets.rs` in `crates/engine/src/instance`, `crates/engine/src/parking/tests.rs`).
const OF_WAKING: [state::Mutant; 3] = [
    state::Mutant::WakesByFirstReadAlone,
    state::Mutant::OthersWriteWakesNobody,
    state::Mutant::WriteSetSplit,
];
const OF_PARKING: [engine::Mutant; 3] = [
    engine::Mutant::LateAgainIsLast,
    engine::Mutant::NextOfFlowForgotten,
    engine::Mutant::ParkedInBurstUnseen,
];

/// Planted bugs of chains, and of what is reported lazily, which the simulator's own function has neither of: seeds of functions find them.
const OF_FUNCTIONS: [engine::Mutant; 2] = [
    engine::Mutant::ChainCalledAgainWhole,
    engine::Mutant::LazyNeverReported,
];

/// Planted bugs of when it is informed what was spent from token buckets, and at what rates these fill: seeds of functions, whose links are
/// never cut, know how late that may be, and have tenants.
const OF_BUCKETS: [state::Mutant; 3] = [
    state::Mutant::CalmNeverReported,
    state::Mutant::ShortWaits,
    state::Mutant::OneRateForAll,
];

/// Planted bugs of packets that are held back which seeds of functions find that hold some: their hosts die when a held packet has left.
const OF_HOLDING: (placement::Mutant, state::Mutant) = (
    placement::Mutant::ConfirmedWhenSent,
    state::Mutant::FirstChangeConfirmsAll,
);

/// Those that need two deaths, a chain, the age of a packet, or the order of single packets: the tests of held packets find
/// them (`crates/engine/tests/suite/holding.rs`). The last one needs digests that are compared within a round trip
/// (`crates/engine/src/channel/sharing.rs`).
const IN_THE_ENGINE: (placement::Mutant, [state::Mutant; 2], [engine::Mutant; 6]) = (
    placement::Mutant::ConfirmedByOneOfMany,
    [
        state::Mutant::UnconfirmedReadLeaves,
        state::Mutant::StageForgetsDependency,
    ],
    [
        engine::Mutant::HeldFlowOvertaken,
        engine::Mutant::EmissionLeavesEarly,
        engine::Mutant::OverdueLeavesAnyway,
        engine::Mutant::FollowersProlongHolding,
        engine::Mutant::FollowersWaitForAll,
        engine::Mutant::ComparedBeforeAnswered,
    ],
);

/// Planted bugs of stores: seeds of [stores](crate::stores) find them, whose hosts alone have any.
const OF_STORES: ([state::Mutant; 6], [engine::Mutant; 5]) = (
    [
        state::Mutant::AnswerOfAnother,
        state::Mutant::ReadsUnchecked,
        state::Mutant::RefusedCallCounted,
        state::Mutant::RefusedGrantSpent,
        state::Mutant::UndecidedWriteUnseen,
        state::Mutant::PromisedRoomGiven,
    ],
    [
        engine::Mutant::RefusedEmissionLeaves,
        engine::Mutant::HeaderNotRestored,
        engine::Mutant::RetriedUnderNewName,
        engine::Mutant::DecisionOfAnother,
        engine::Mutant::ReadsTakenForOne,
    ],
);

/// A planted bug of homes on the state channel's thread, which these hosts have none of: the tests of the engine find it
/// (`crates/engine/tests/suite/homes.rs`).
const OF_CHANNEL_HOMES: engine::Mutant = engine::Mutant::AnswerToFirstInstance;

/// A planted bug of translators whose sessions are in a store: the tests of the remote store find it
/// (`crates/remote-store/tests/suite/addresses.rs`).
const OF_REMOTE_SESSIONS: translation::Mutant = translation::Mutant::GrantUnconfirmed;

/// Planted bugs of clients that need an entry that is used or read just as it ends, sums that packets read again and again, buckets of time that end, an entry that stays while its shard alone is not heard, a cluster of stores, two clusters of one name, or a primary
/// that acknowledges without its replica: the tests of the remote store find them (`crates/remote-store/tests/suite/`).
const IN_THE_REMOTE_STORE: [remote_store::Mutant; 16] = [
    remote_store::Mutant::BucketsStay,
    remote_store::Mutant::EndedGivenOut,
    remote_store::Mutant::FirstShardKeeps,
    remote_store::Mutant::FullIsLeft,
    remote_store::Mutant::GivenNotDropped,
    remote_store::Mutant::LateAdditionMade,
    remote_store::Mutant::MemberUnchecked,
    remote_store::Mutant::MovedAlone,
    remote_store::Mutant::OneBucketRead,
    remote_store::Mutant::RefusalUnseen,
    remote_store::Mutant::RefusingStays,
    remote_store::Mutant::ReplicaNotAwaited,
    remote_store::Mutant::SeedUnmarked,
    remote_store::Mutant::SumsGivenOutForEver,
    remote_store::Mutant::UsedSinceEnded,
    remote_store::Mutant::WaitWithoutWrite,
];

/// Planted bugs of a store of several shards: only seeds that have one are run.
const OF_SHARDS: [remote_store::Mutant; 6] = [
    remote_store::Mutant::EventOfAnotherShard,
    remote_store::Mutant::FirstShardDrops,
    remote_store::Mutant::ShardHoldsUpAll,
    remote_store::Mutant::ShardOfAnother,
    remote_store::Mutant::ShardUnchecked,
    remote_store::Mutant::WholeRoomInEachShard,
];

/// Planted bugs of entries of a store that stay at an instance: tests of the remote store find them.
const OF_KEPT: (state::Mutant, [engine::Mutant; 2]) = (
    state::Mutant::KeptOutlivesItsEnd,
    [
        engine::Mutant::KeptHoweverOld,
        engine::Mutant::RetractedAsEdited,
    ],
);

/// Planted bugs of leases: only [inheritances](crate::inheritance) have any, so only seeds that have one are run.
const OF_INHERITANCES: [state::Mutant; 10] = [
    state::Mutant::ReassignedUnfenced,
    state::Mutant::ReassignedBeforeIdle,
    state::Mutant::ReassignedUnreleased,
    state::Mutant::LeaseWithoutEnd,
    state::Mutant::ReleasedByOneInstance,
    state::Mutant::HalfIsFew,
    state::Mutant::LeaseByLastAnswer,
    state::Mutant::FewForEver,
    state::Mutant::ServesWithoutLease,
    state::Mutant::QuarantineSkipped,
];

/// Planted bugs of changes between local and replicated: only seeds that [have some](crate::moves) are run.
const OF_MOVES: ([state::Mutant; 4], [engine::Mutant; 4]) = (
    [
        state::Mutant::HeldNotAnnounced,
        state::Mutant::AnnouncedUnderOwnStamp,
        state::Mutant::OthersEntriesStay,
        state::Mutant::LocalTotalCountedTwice,
    ],
    [
        engine::Mutant::GroupsDroppedWhileLocal,
        engine::Mutant::LocalByOwnWordAlone,
        engine::Mutant::BeginningUnanswered,
        engine::Mutant::NewcomerBeginsTooEarly,
    ],
);

/// The planted bugs that tests of `crates/orchestrator` find. The simulated cluster lists its hosts, and its links, as all do, repeat an
/// epoch until the host has it.
pub const IN_THE_ORCHESTRATOR: [orchestrator::Mutant; 4] = [
    orchestrator::Mutant::HandedOnce,
    orchestrator::Mutant::PlaceGivenTwice,
    orchestrator::Mutant::AddressOfAnother,
    orchestrator::Mutant::PlaceReusedUnfenced,
];

impl Planted {
    /// All that there are, but for those that tests of one crate find: [`IN_THE_SECURE_CHANNEL`], [`IN_THE_CORE`], [`IN_THE_STATE`],
    /// [`OF_WAKING`], [`OF_PARKING`], [`IN_THE_ENGINE`], [`OF_CHANNEL_HOMES`], [`OF_REMOTE_SESSIONS`], [`IN_THE_REMOTE_STORE`], [`OF_KEPT`] and
    /// [`IN_THE_ORCHESTRATOR`].
    pub fn all() -> Vec<Planted> {
        let placement = placement::Mutant::ALL.into_iter();
        let placement = placement.filter(|planted| !IN_THE_CORE.contains(planted));
        let placement = placement.filter(|planted| *planted != IN_THE_ENGINE.0);
        let placement = placement.map(Planted::Placement);
        let blocks = block_assignment::Mutant::ALL.into_iter();
        let blocks = blocks.map(Planted::BlockAssignment);
        let state = state::Mutant::ALL.into_iter();
        let state = state.filter(|planted| !IN_THE_STATE.contains(planted));
        let state = state.filter(|planted| !OF_WAKING.contains(planted));
        let state = state.filter(|planted| !IN_THE_ENGINE.1.contains(planted));
        let state = state.filter(|planted| *planted != OF_KEPT.0);
        let state = state.map(Planted::State);
        let engine = engine::Mutant::ALL.into_iter();
        let engine = engine.filter(|planted| !OF_PARKING.contains(planted));
        let engine = engine.filter(|planted| !IN_THE_ENGINE.2.contains(planted));
        let engine = engine.filter(|planted| *planted != OF_CHANNEL_HOMES);
        let engine = engine.filter(|planted| !OF_KEPT.1.contains(planted));
        let engine = engine.map(Planted::Engine);
        let tracking = tracking::Mutant::ALL.into_iter().map(Planted::Tracking);
        let translation = translation::Mutant::ALL.into_iter();
        let translation = translation.filter(|planted| *planted != OF_REMOTE_SESSIONS);
        let translation = translation.map(Planted::Translation);
        let balancing = balancing::Mutant::ALL.into_iter().map(Planted::Balancing);
        let detection = detection::Mutant::ALL.into_iter().map(Planted::Detection);
        let functions = functions::Mutant::ALL.into_iter().map(Planted::Functions);
        let orchestrator = orchestrator::Mutant::ALL.into_iter();
        let orchestrator = orchestrator.filter(|planted| !IN_THE_ORCHESTRATOR.contains(planted));
        let orchestrator = orchestrator.map(Planted::Orchestrator);
        let secure_channel = secure_channel::Mutant::ALL.into_iter();
        let secure_channel =
            secure_channel.filter(|planted| !IN_THE_SECURE_CHANNEL.contains(planted));
        let secure_channel = secure_channel.map(Planted::SecureChannel);
        let remote_store = remote_store::Mutant::ALL.into_iter();
        let remote_store = remote_store.filter(|planted| !IN_THE_REMOTE_STORE.contains(planted));
        let remote_store = remote_store.map(Planted::RemoteStore);
        let below = secure_channel.chain(placement).chain(blocks);
        let below = below.chain(state).chain(engine).chain(remote_store);
        let libraries = tracking
            .chain(translation)
            .chain(balancing)
            .chain(detection);
        let above = functions.chain(orchestrator);
        below.chain(libraries).chain(above).collect()
    }

    /// The seeds that may find it, in the order in which they are tried.
    fn seed(self, number: u64) -> u64 {
        match self {
            Planted::State(mutant) if OF_INHERITANCES.contains(&mutant) => {
                inheritance::nth_seed(number)
            }
            Planted::BlockAssignment(_) | Planted::Placement(placement::Mutant::SameEpochAgain) => {
                inheritance::nth_seed(number)
            }
            Planted::State(mutant) if OF_MOVES.0.contains(&mutant) => moves::nth_seed(number),
            Planted::Engine(mutant) if OF_MOVES.1.contains(&mutant) => moves::nth_seed(number),
            Planted::RemoteStore(mutant) if OF_SHARDS.contains(&mutant) => nth_sharded_seed(number),
            _ if self.is_of_holding() => nth_holding_seed(number),
            _ => number,
        }
    }

    /// Whether only seeds that hold packets back may find it.
    fn is_of_holding(self) -> bool {
        match self {
            Planted::Placement(mutant) => mutant == OF_HOLDING.0,
            Planted::State(mutant) => mutant == OF_HOLDING.1,
            _ => false,
        }
    }

    fn name(self) -> String {
        match self {
            Planted::SecureChannel(mutant) => format!("{mutant:?}"),
            Planted::Placement(mutant) => format!("{mutant:?}"),
            Planted::BlockAssignment(mutant) => format!("{mutant:?}"),
            Planted::State(mutant) => format!("{mutant:?}"),
            Planted::Engine(mutant) => format!("{mutant:?}"),
            Planted::Tracking(mutant) => format!("{mutant:?}"),
            Planted::Translation(mutant) => format!("{mutant:?}"),
            Planted::Balancing(mutant) => format!("{mutant:?}"),
            Planted::Detection(mutant) => format!("{mutant:?}"),
            Planted::Functions(mutant) => format!("{mutant:?}"),
            Planted::RemoteStore(mutant) => format!("{mutant:?}"),
            Planted::Orchestrator(mutant) => format!("{mutant:?}"),
        }
    }

    fn layer(self) -> &'static str {
        match self {
            Planted::SecureChannel(_) => "secure-channel",
            Planted::Placement(_) => "placement",
            Planted::BlockAssignment(_) => "block-assignment",
            Planted::State(_) => "state",
            Planted::Engine(_) => "engine",
            Planted::Tracking(_) => "tracking",
            Planted::Translation(_) => "translation",
            Planted::Balancing(_) => "balancing",
            Planted::Detection(_) => "detection",
            Planted::Functions(_) => "functions",
            Planted::RemoteStore(_) => "remote-store",
            Planted::Orchestrator(_) => "orchestrator",
        }
    }

    /// Runs one seed with it; returns the check that failed. A seed that fails without it as well has not found it.
    fn found_by(self, seed: u64) -> Option<String> {
        self.select();
        let found = self.failed_check(seed);
        clear();
        found.filter(|_| self.failed_check(seed).is_none())
    }

    /// Runs one seed of those that are to find it, with what is selected.
    fn failed_check(self, seed: u64) -> Option<String> {
        let trace = &mut Trace::new();
        let result = match (self.is_of_stores(), self.is_of_functions()) {
            (true, _) => run_store_seed(seed, trace),
            (_, true) => run_functions_seed(seed, trace),
            _ if matches!(self, Planted::RemoteStore(_)) => run_remote_seed(seed, trace),
            _ if matches!(self, Planted::Orchestrator(_)) => run_orchestrator_seed(seed, trace),
            _ => run_seed(seed, trace),
        };
        result.err().map(|failure| failure.check.to_owned())
    }

    /// Whether seeds of stores are to find it.
    fn is_of_stores(self) -> bool {
        match self {
            Planted::State(mutant) => OF_STORES.0.contains(&mutant),
            Planted::Engine(mutant) => OF_STORES.1.contains(&mutant),
            _ => false,
        }
    }

    /// Whether seeds of network functions are to find it, and not those of clusters.
    fn is_of_functions(self) -> bool {
        match self {
            _ if self.is_of_holding() => true,
            Planted::SecureChannel(_)
            | Planted::Placement(_)
            | Planted::BlockAssignment(_)
            | Planted::RemoteStore(_)
            | Planted::Orchestrator(_) => false,
            Planted::State(mutant) => OF_BUCKETS.contains(&mutant),
            Planted::Engine(mutant) => OF_FUNCTIONS.contains(&mutant),
            Planted::Tracking(_)
            | Planted::Translation(_)
            | Planted::Balancing(_)
            | Planted::Detection(_)
            | Planted::Functions(_) => true,
        }
    }

    fn select(self) {
        clear();
        match self {
            Planted::SecureChannel(mutant) => secure_channel::select(Some(mutant)),
            Planted::Placement(mutant) => placement::select(Some(mutant)),
            Planted::BlockAssignment(mutant) => block_assignment::select(Some(mutant)),
            Planted::State(mutant) => state::select(Some(mutant)),
            Planted::Engine(mutant) => engine::select(Some(mutant)),
            Planted::Tracking(mutant) => tracking::select(Some(mutant)),
            Planted::Translation(mutant) => translation::select(Some(mutant)),
            Planted::Balancing(mutant) => balancing::select(Some(mutant)),
            Planted::Detection(mutant) => detection::select(Some(mutant)),
            Planted::Functions(mutant) => functions::select(Some(mutant)),
            Planted::RemoteStore(mutant) => remote_store::select(Some(mutant)),
            Planted::Orchestrator(mutant) => orchestrator::select(Some(mutant)),
        }
    }
}

fn clear() {
    secure_channel::select(None);
    placement::select(None);
    block_assignment::select(None);
    state::select(None);
    engine::select(None);
    tracking::select(None);
    translation::select(None);
    balancing::select(None);
    detection::select(None);
    functions::select(None);
    remote_store::select(None);
    orchestrator::select(None);
}

/// How planted bugs are searched for.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Seeds that are run before a planted bug counts as one that survived.
    pub seeds_max: u64,
    /// The first seeds that are run in any case, to count how many of them find it.
    pub sample: u64,
    /// Whether the seed of [`KNOWN_SEEDS`] is run first. If it does not find the bug any more, all others are run.
    pub known_first: bool,
}

/// Runs seeds against one planted bug until one fails, and the sample to its end.
pub fn judge(planted: Planted, search: Search) -> Verdict {
    let name = planted.name();
    let mut verdict = Verdict {
        complaint: complaint(&name),
        layer: planted.layer(),
        name,
        killed: None,
        found_by: 0,
        of: search.sample,
    };
    let known = KNOWN_SEEDS.iter().find(|(name, _)| *name == verdict.name);
    if let (Some((_, seed)), true) = (known, search.known_first) {
        verdict.killed = planted.found_by(*seed).map(|check| (*seed, check));
    }
    for number in 0..search.seeds_max {
        if verdict.killed.is_some() && number >= search.sample {
            break;
        }
        let seed = planted.seed(number);
        if let Some(check) = planted.found_by(seed) {
            verdict.found_by += u64::from(number < search.sample);
            verdict.killed.get_or_insert((seed, check));
        }
    }
    verdict
}

/// Judges all, on several threads.
pub fn judge_all(names: &[String], search: Search, threads: usize) -> Vec<Verdict> {
    let all: Vec<Planted> = Planted::all()
        .into_iter()
        .filter(|planted| names.is_empty() || names.contains(&planted.name()))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut verdicts = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&planted) = all.get(number) else {
                return verdicts;
            };
            verdicts.push((number, judge(planted, search)));
        }
    };
    let mut verdicts: Vec<(usize, Verdict)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_default())
            .collect()
    });
    verdicts.sort_by_key(|verdict| verdict.0);
    verdicts.into_iter().map(|verdict| verdict.1).collect()
}

/// The complaint behind each name, as the enums' documentation has it.
fn complaint(name: &str) -> &'static str {
    match name {
        "RetryGivesUp" => "VPP NAT HA: three tries, then the session is dropped",
        "FalseFullyUpdated" => {
            "HAProxy peers: a timeout makes a process consider itself fully updated"
        }
        "AcknowledgesUnapplied" => "conntrackd: acknowledged, never committed",
        "PrunesAtGreatest" => "Aeron: flow control follows the fastest, the slow lose",
        "StampIgnored" | "StableWhenReceived" => "Akka ORMap: removed entries return",
        "SentRecordChanges" => "RULES 12: a delta that grew after it was sent",
        "DuplicatesDelivered" | "TotalAdded" => "haproxy#1497: counters significantly increase",
        "ReorderDropsSilently" | "RecordDroppedWhenFull" => {
            "Jool joold: the queue's cap drops sessions"
        }
        "GapOffByOne" => "a gap list one off: the same hole for ever",
        "KeepAliveWithoutVector" => "an idle pair never learns that the tail was lost",
        "SkippedFrameDesynchronizes" | "SnapshotFieldSkipped" => {
            "haproxy#1497: a skipped variable-length field"
        }
        "AnyIncarnation" => "Jool#385: sessions of several instances taken for one's own",
        "SnapshotVectorAtEnd" | "LogNotKeptDuringScan" | "SnapshotPartDropped" => {
            "opnsense/core#3932: after a reload long flows never resync"
        }
        "FullLogDropsOldest" => "HAProxy, VPP, joold: a full queue drops",
        "AnyEpoch" => "chitchat#161: the dead gossiped for ever",
        "CoveredWhenHeard" => "a reply overtakes its binding and is dropped",
        "TimerRestarts" => "what is heard of earlier messages puts off the repair of the last",
        "TailForgotten" => "only gaps are repaired, never the tail",
        "AppliedByFirstInstance" => "one core's progress taken for the host's",
        "ScanNotRestarted" => "DPVS: a resync begins in the middle",
        "RemovalForgetsGeneration" | "TombstoneForgottenEarly" => {
            "Akka ORMap, Cassandra: the removed return"
        }
        "ExpiryRestartsOnReceipt" => "haproxy@8f06c8fda: expiry restarts at every resync",
        "FallIgnored" => "a balancer's peer sees loads that only rise, and sends a server nobody",
        "ValuesOverwritten" => "HAProxy: conn_cur is overwritten, not merged",
        "RemoteEntryNotLogged" => "haproxy#3161: instances see no entries other than their own",
        "BlocksAssignedByRange" | "LeasesCountInstances" | "CapacityNotLeased" => {
            "dpservice, Jool pool4: two hosts own the same ports"
        }
        "ReturnedBeforeStability" | "GrantReturnedAtPark" => "a NAT port given to two flows",
        "TouchNotAnnounced" => "OVS, conntrackd: long flows idle out on the peer",
        "SidesSeparate" => "RULES 19: one endpoint sends from another's port",
        "FloorForgotten" => "a new binding loses to an old tombstone",
        "GrantPerRetry" => "a NAT port leaked for every late read",
        "ProgressOvertakes" => "conntrackd: acknowledged while it waits in a cache",
        "LazyNeverReported" => "counts that each host has for itself",
        "ChainCalledAgainWhole" => "a packet that waits at the NAT is counted twice before it",
        "SiblingSkipped" => "entries of another process of the same host never seen",
        "SiblingsNotAwaited" => "a NAT port given to two flows, by two cores of one host",
        "HeldGroupsNotNamed" => "a reply overtakes its binding and is dropped",
        "GivenUpFrameKept" => "buffers leak until the port starves",
        "FlowFillsParking" => {
            "RULES 7: one flow that waits fills the room of all, and no port is read"
        }
        "HintTrusted" => "a stale cache answers for another flow",
        "RelayVouches" => "a proxy that acknowledges what the end never got",
        "AskedCountsAsReceived" => "a repair that was asked for is taken for one that came",
        "ClosesAlone" => "what one of two had of the dead is lost to the other for good",
        "CutBeforeConfirmed" | "NewcomerAcknowledges" => {
            "a standby that joins under load misses what was written meanwhile"
        }
        "ReadsTooEarly" | "SecondReadingTooEarly" | "ChangesIgnored" | "ReadsHalfASnapshot" => {
            "an alarm that may mean nothing is heeded by nobody"
        }
        "WindowIgnoresAcknowledgement" => "a window of coalescing lasts though all have everything",
        "WindowWithoutEnd" => "one slow member stops the replication of all",
        "SpeaksTooEarly" => "a rolling upgrade splits the cluster",
        "WindowHoldsGroups" => "a reply overtakes its binding and is dropped",
        "RepairsStayPaused" => "what was lost is never sent again",
        "CalmNeverReported" => "replicas of a limit differ",
        "ShortWaits" => "a cluster lets a multiple of the rate through",
        "OthersNotOwed" => "gubernator#208: who does not own a limit never finds it reached",
        "OneRateForAll" => "who pays for little sends as much as who pays for most",
        "WindowRestarts" => "gubernator#225: each peer begins the window again",
        "TotalsBeginAgain" => "a counter falls with each failover",
        "EarlierIncarnationWins" => "totals fall back after a restart",
        "RemovedForAll" => "an object that two caches hold is found in none after one dropped it",
        "HeldChangesForgotten" => "a counter's last additions are never reported",
        "CellNotAudited" | "EarlyGroupNotSummed" | "UnreportedInSnapshots" => {
            "an alarm that means nothing is heeded by nobody"
        }
        "RepairRemovesNews" | "RepairMarkedLate" => {
            "conntrackd: a resynchronisation flushes what came meanwhile"
        }
        "TotalReportedShort" => "haproxy#1497: counters that peers add up differently",
        "LastWaitingTwice" => "haproxy#1497: what arrives twice counts twice",
        "OrphansLiveOn" => "conntrackd: entries of a dead node stay for ever",
        "ReassignedUnfenced" | "ReassignedBeforeIdle" | "LeaseWithoutEnd" => {
            "a NAT port given to two flows, by a host that was only cut off"
        }
        "ReassignedUnreleased" | "ReturnNotDated" | "HeirNotNoted" => {
            "two hosts own the same ports while one has the last epoch"
        }
        "ReleasedByOneInstance" => "two cores of one host, of which one has the last epoch",
        "HalfIsFew" | "LeaseByLastAnswer" | "FewForEver" => {
            "a NAT port given to two flows, by two hosts that were cut off together"
        }
        "ServesWithoutLease" => "a NAT port used by two flows, by a host that was cut off",
        "QuarantineSkipped" => "a NAT port given to a second flow while the first still talks",
        "EqualUseTakesOver" => "an idle entry that each of two leaves to the other",
        "RemovedStaysInDigest" => "an alarm that means nothing is heeded by nobody",
        "RewriteKeepsGeneration" => "a repair that repairs nothing",
        "RestartTakenForOld" => "Jool#385: sessions of several instances taken for one's own",
        "SameEpochAgain" => "an operator's file that is written twice",
        "LooseNotServed" => "what one of three had of the dead is lost to the others for good",
        "PortNotTaken" => "a NAT port given to two flows",
        "BindingNotReused" => "RFC 4787 REQ-1: another outside endpoint for each remote one",
        "AnybodyEndsMappings" => "a host on the link closes the ports of others",
        "MappingFiltered" => "RFC 6887: a port that was asked for, and nobody gets in",
        "QuotaPerInstance" => "a subscriber has the quota of each host",
        "SidesMistaken" => "anybody gets in",
        "AnswerNotWritten" => "a connection stops after its handshake",
        "DealtAgain" | "FlowNotKept" => "two servers have halves of one connection",
        "SilenceCountsAtOnce" => "anyone who sends SYNs twice takes living backends away",
        "RecoveryNotWritten" => "a backend that came back stays away",
        "BlindResetBelieved" => "RFC 5961: a stranger's reset ends a connection",
        "SecondBucketFree" => "a limit that limits nothing",
        "FirstCountedTwice" | "FirstNotCounted" => {
            "haproxy#1497: counters that differ from what passed"
        }
        "ProbeJudgedAlone" => "a scan that is spread over hosts is none",
        "AcceptedIgnored" => "who uses many services is taken for a scanner",
        "ListsMistaken" => "an update of the rules raises alarms for nothing",
        "ReleasedUnasked" => "an object that a cache lets go twice is found in it never again",
        "FirstBlockOnly" => "siblings are asked for what their digests would have answered",
        "BeginningForgotten" => "a signature that is split over two segments passes",
        "BadGroupAcknowledged" => "conntrackd: three malformed messages, and nothing follows",
        "BudgetSkipsGroup" => "HAProxy: at most so many per task, the rest late or never",
        _ => "",
    }
}
