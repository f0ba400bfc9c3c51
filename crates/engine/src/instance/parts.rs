//! How an instance is made: parts that can be sent to the thread that will run it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use asterism_function::{Emissions, NetworkFunction, stage_names};
use asterism_state::layout::Shape;
use asterism_state::{Builder, Context, Identity, ObjectSettings, Sequencer, State, Tick, hash};

use super::Instance;
use super::announcing::Announcer;
use super::chained::WITHIN_MAX;
use super::homes::{HomeEnd, OnChannel};
use super::kept::Keeping;
use super::recency::Recency;
use super::reports::{Report, Reports};
use super::sharing::{BURST_LOG_BYTES, CACHE_BYTES, SNAPSHOT_PART_BYTES};
use super::stored::Stored;
use crate::exchange::Round;
use crate::holding::{HoldSettings, Holding};
use crate::parking::{PLACES, Parking};
use crate::store::{MakeStore, Store};
use crate::tally::Tally;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::Port;
use asterism_io::ring::{RingReader, RingWriter};

/// How an instance is made; everything in it can be sent to the thread that will run it.
#[derive(Debug)]
pub struct InstanceParts {
    pub(crate) identity: Identity,
    pub(crate) sequencer: Sequencer,
    pub(crate) seed: u64,
    pub(crate) tick_at_zero: Tick,
    pub(crate) flush_us: u64,
    pub(crate) exchange: Option<Exchange>,
    /// The host joins others: until it has what they have, nothing is read and nothing written.
    pub(crate) joins: bool,
    /// Microseconds for which the host grants from pools though nobody answers; zero: as long as it likes.
    pub(crate) port_lease_us: u64,
    /// How packets are held back, if they are.
    pub(crate) hold: Option<HoldSettings>,
    /// Where objects live that live in a store.
    pub(crate) store: Option<MakeStore>,
}

/// An instance's ends of the rings to and from its state channel.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) up: RingWriter,
    pub(crate) down: RingReader,
    /// The last number drawn for a group of this host.
    pub(crate) committed: Arc<AtomicU64>,
    /// The number of the last group that this instance wrote.
    pub(crate) written: u64,
    /// The round in which accumulators may log what changed; zero: at any time.
    pub(crate) round: Arc<Round>,
    /// Words that found no room in the ring.
    pub(crate) reports: Reports,
}

impl Exchange {
    /// Over these rings, of a host of this instance alone.
    #[cfg(test)]
    pub(crate) fn of_rings(up: RingWriter, down: RingReader) -> Self {
        Self {
            up,
            down,
            committed: Arc::new(AtomicU64::new(0)),
            written: 0,
            round: Arc::new(Round::default()),
            reports: Reports::new(),
        }
    }

    /// Says a word to the state channel, now or when there is room.
    #[inline]
    pub(super) fn say(&mut self, report: Report) {
        self.reports.say(report, &mut self.up);
    }

    /// Says those that waited, as far as there is room.
    #[inline]
    pub(super) fn say_waiting(&mut self) {
        self.reports.say_waiting(&mut self.up);
    }
}

/// What hosts must have alike of a function and its state: the function's own number, its addresses and its objects. Builds a
/// state and drops it: some milliseconds, and the memory of one instance meanwhile.
pub fn shape_of<F: NetworkFunction>(
    function: &F,
    settings: impl Fn(&str) -> ObjectSettings + 'static,
) -> Shape {
    let sequencer = Sequencer::Own(core::cell::Cell::new(0));
    let context = Context::new(Identity::alone(), sequencer, 0, Vec::new());
    let builder = Builder::new(Rc::new(context), settings);
    drop(builder.built(function.state(&builder)));
    let addresses = function.addresses();
    let addresses = addresses
        .iter()
        .fold(addresses.len() as u64, |sum, address| {
            hash::word(address.to_bits().into(), sum)
        });
    let mut shape = builder.shape().and(function.schema());
    // A saved state says by itself with which it was written.
    shape.whole = hash::word(addresses, shape.whole);
    shape
}

/// Why objects cannot live in a store as they are to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MisplacedError {
    /// There is no store for it.
    NoStore(&'static str),
    /// The object is kept by instances.
    Stays {
        /// Which one.
        object: &'static str,
        /// Why.
        why: &'static str,
    },
    /// Its entries are not each of one conversation, and the store has several shards.
    Whole(&'static str),
}

impl core::fmt::Display for MisplacedError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoStore(object) => {
                write!(formatter, "`{object}` lives in a store, and there is none")
            }
            Self::Stays { object, why } => {
                write!(formatter, "`{object}` cannot live in a store, since {why}")
            }
            Self::Whole(object) => {
                let why = "its entries are not each of one conversation";
                write!(
                    formatter,
                    "`{object}` cannot live in a store of several shards, since {why}"
                )
            }
        }
    }
}

impl core::error::Error for MisplacedError {}

/// Whether a function's objects can live where these settings say. Builds a state and drops it, as [`shape_of`] does.
///
/// # Errors
/// The first object that cannot.
pub fn check_placed<F: NetworkFunction>(
    function: &F,
    settings: impl Fn(&str) -> ObjectSettings + 'static,
) -> Result<(), MisplacedError> {
    let (state, in_store) = built(function, settings);
    check_placed_in(&state, in_store, true)
}

/// The same for a store of several shards, each of which has whole conversations.
///
/// # Errors
/// The first object that cannot.
pub fn check_in_shards<F: NetworkFunction>(
    function: &F,
    settings: impl Fn(&str) -> ObjectSettings + 'static,
) -> Result<(), MisplacedError> {
    let (state, in_store) = built(function, settings);
    check_placed_in(&state, in_store, true)?;
    let mut there = (0..).zip(state.objects().iter().copied());
    let whole = there.find(|(number, _)| {
        let object = state.object(*number);
        in_store & 1 << number != 0 && !object.is_some_and(|object| object.is_by_conversation())
    });
    match whole {
        Some((_, object)) => Err(MisplacedError::Whole(object)),
        None => Ok(()),
    }
}

/// A function's state with these settings, and which of its objects are to live in a store.
fn built<F: NetworkFunction>(
    function: &F,
    settings: impl Fn(&str) -> ObjectSettings + 'static,
) -> (F::State, u64) {
    let sequencer = Sequencer::Own(core::cell::Cell::new(0));
    let context = Rc::new(Context::new(Identity::alone(), sequencer, 0, Vec::new()));
    let builder = Builder::new(context.clone(), settings);
    let state = builder.built(function.state(&builder));
    (state, context.in_store())
}

/// Whether these objects can live in a store, and there is one.
fn check_placed_in<S: State>(
    state: &S,
    in_store: u64,
    has_store: bool,
) -> Result<(), MisplacedError> {
    let first = state.objects().get(in_store.trailing_zeros() as usize);
    let Some(first) = first.copied() else {
        return Ok(());
    };
    if !has_store {
        return Err(MisplacedError::NoStore(first));
    }
    for (&object, number) in state.objects().iter().zip(0..) {
        let Some(at) = state.object(number) else {
            continue;
        };
        let is_there = in_store & 1 << number != 0;
        if let Some(why) = at.stays_because().filter(|_| is_there) {
            return Err(MisplacedError::Stays { object, why });
        }
    }
    Ok(())
}

impl InstanceParts {
    /// An instance alone: no other instance hears of its state.
    pub fn alone(seed: u64) -> Self {
        Self {
            identity: Identity::alone(),
            sequencer: Sequencer::Own(core::cell::Cell::new(0)),
            seed,
            tick_at_zero: 1_000,
            flush_us: 200,
            exchange: None,
            joins: false,
            port_lease_us: 0,
            hold: None,
            store: None,
        }
    }

    /// Has objects that live in a store in the one that `make` makes, on the thread that will run the instance.
    #[must_use]
    pub fn with_store(mut self, make: impl FnOnce() -> Box<dyn Store> + Send + 'static) -> Self {
        self.store = Some(MakeStore::Here(Box::new(make)));
        self
    }

    /// Has objects that live in a store in the home on the state channel's thread, which answers by this ring.
    pub(crate) fn live_on_channel(&mut self, answers: RingReader) {
        self.store = Some(MakeStore::OnChannel(answers));
    }

    /// The time of the cluster's base at time zero of the clock that turns are given, in seconds.
    #[must_use]
    pub fn with_tick_at_zero(mut self, tick: Tick) -> Self {
        self.tick_at_zero = tick;
        self
    }

    /// Makes the instance, on the thread that will run it.
    ///
    /// # Panics
    /// When objects live in a store, and one of them cannot: see [`check_placed`].
    pub fn start<F: NetworkFunction>(
        self,
        function: Arc<F>,
        settings: impl Fn(&str) -> ObjectSettings + 'static,
        pool: FramePool,
        ports: Vec<Box<dyn Port>>,
    ) -> Instance<F> {
        let addresses = function
            .addresses()
            .iter()
            .map(|address| address.to_bits())
            .collect();
        let context = Rc::new(Context::new(
            self.identity,
            self.sequencer,
            self.seed,
            addresses,
        ));
        let builder = Builder::new(context.clone(), settings);
        let mut state = builder.built(function.state(&builder));
        let stages = stage_names(&*function).len();
        if let Err(error) = check_placed_in(&state, context.in_store(), self.store.is_some()) {
            panic!("{error}");
        }
        let stored = self.store.map(|make| {
            context.expect_requests(PLACES as u16);
            let home = match make {
                MakeStore::Here(make) => HomeEnd::Store(make()),
                MakeStore::OnChannel(answers) => HomeEnd::OnChannel(OnChannel::new(answers)),
            };
            let keeping = match stages == 0 && home.may_keep() && context.may_keep() {
                true => Keeping::new(&mut state, &context, home.counts_kept()),
                false => Keeping::default(),
            };
            Box::new(Stored::new(home, context.in_store(), keeping))
        });
        context.set_now(0, self.tick_at_zero);
        let within = if stages > 0 { WITHIN_MAX } else { 0 };
        context.set_port_lease(self.port_lease_us);
        let parking = Parking::new(&context, stages > 0);
        let holding = self.hold.map(|hold| {
            context.hold_output(hold.copies);
            Box::new(Holding::new(hold, context.seed(), ports.len()))
        });
        Instance {
            function: Rc::new(function),
            state,
            context,
            emissions: Emissions::default(),
            outgoing: ports.iter().map(|_| Burst::default()).collect(),
            ports,
            pool,
            burst: Some(Box::default()),
            parked_since_us: None,
            probed_us: None,
            parking,
            holding,
            stored,
            exchange: self.exchange,
            stopped: None,
            serving: !self.joins,
            time_at_zero_us: i64::from(self.tick_at_zero) * 1_000_000,
            second_since_us: u64::MAX / 2,
            serial: 0,
            now_us: 0,
            burst_log_bytes: BURST_LOG_BYTES * stages.max(1),
            within: VecDeque::with_capacity(within),
            handed_on: 0,
            hinted_left: 0,
            recency: Recency::default(),
            prefetch_above_bytes: CACHE_BYTES,
            flush_us: self.flush_us,
            flushed_us: 0,
            reported_all_us: 0,
            reported_lazily_us: 0,
            tells_all: false,
            flush_left: 0,
            drained_round: 0,
            begun_round: 0,
            round_bytes: 0,
            swept_us: 0,
            sweep_object: 0,
            sweep_left: None,
            sweep_begun_us: 0,
            sweep_outgrew: false,
            scans: Vec::new(),
            snapshot_records: 0,
            announcer: Announcer::default(),
            part: Vec::with_capacity(SNAPSHOT_PART_BYTES),
            tally: Tally::default(),
        }
    }
}
