//! A chain: several functions in a row, in one instance.
//!
//! Each stage has two sides: its port 0 faces the port 1 of the stage before it, its port 1 the port 0 of the stage behind
//! it; the outermost sides are the instance's ports 0 and 1. So outward packets pass the stages in order, inward packets in
//! reverse, and a packet that a stage turns round goes back. Packets that a stage emits enter its neighbour likewise. A stage
//! that drops or takes a packet ends it; ports from 2 on are the instance's own, whatever the stage.
//!
//! A stage's call is a transaction of its own: it asks, acts and is committed before the next stage is called, so a late call
//! is repeated alone. The packet is parked at its place in the chain ([`Place`]), which is a port number. Control frames to a
//! stage ([`Chain::control`]) end at that stage; no other stage sees them.
//!
//! This file holds the chain and the pass through it; `stage.rs` one stage, `place.rs` the places of packets, `names.rs` the
//! names of objects. A stage costs a call by address and some 110 instructions around it.

mod names;
mod place;
mod stage;

use core::cell::Cell;
use std::rc::Rc;

use asterism_packet::Packet;
use asterism_state::{
    Builder, Context, Late, OBJECTS_MAX, Object, ObjectQuery, ObjectVisitor, StageEnd, State, Step,
};

use crate::ask::Ask;
use crate::emissions::Emissions;
use crate::function::{CONTROL, NetworkFunction, PortNumber, Verdict};
use crate::observable::Observable;
use crate::own::{CHAIN_METRICS_MAX, OwnError, OwnEvent, OwnMetric, OwnReason, check_counts};
use crate::reason::Reason;
pub use crate::stages::StageTally;
use crate::stages::Stages;
pub use place::Place;
use stage::Running;
pub use stage::{OnFailure, Stage};

/// Stages of a chain at most.
pub const STAGES_MAX: usize = 8;
/// Bits of a question to a chain that are its stage's own; those above are the stage's number.
const QUESTION_BITS: u32 = u32::BITS - STAGES_MAX.ilog2();

/// Why a chain was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// It has no stage, or more than [`STAGES_MAX`].
    Stages(usize),
    /// Two stages have this name.
    NameTwice(&'static str),
    /// Its stages have more objects together than a state may have.
    Objects(usize),
    /// Its stages have too many reasons or metrics of their own together; says of what.
    Own(OwnError),
}

impl core::fmt::Display for ChainError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Stages(count) => {
                write!(
                    formatter,
                    "a chain has 1 to {STAGES_MAX} stages, not {count}"
                )
            }
            Self::NameTwice(name) => write!(formatter, "two stages are called `{name}`"),
            Self::Objects(count) => write!(
                formatter,
                "the stages have {count} state objects together, of at most {OBJECTS_MAX}"
            ),
            Self::Own(what) => write!(formatter, "the stages have together {what}"),
        }
    }
}

impl core::error::Error for ChainError {}

/// Several functions in a row. See the module.
#[derive(Debug)]
pub struct Chain {
    stages: Vec<Stage>,
    names: Vec<&'static str>,
    objects: &'static [&'static str],
    /// Its stages' own, one after the other.
    reasons: Vec<OwnReason>,
    metrics: Vec<OwnMetric>,
    /// What stages tell of, each kind once, whichever stages tell of it.
    events: Vec<OwnEvent>,
}

impl Chain {
    /// A chain of these stages, in the order in which packets from port 0 pass them. Its objects are called `stage.object`, its
    /// stages' own reasons and metrics likewise; their names stay in memory until the process ends, once for each thread that makes
    /// chains.
    ///
    /// # Errors
    /// See [`ChainError`]; nothing was made.
    pub fn new(stages: Vec<Stage>) -> Result<Self, ChainError> {
        if stages.is_empty() || stages.len() > STAGES_MAX {
            return Err(ChainError::Stages(stages.len()));
        }
        let names: Vec<_> = stages.iter().map(Stage::name).collect();
        for (place, name) in names.iter().enumerate() {
            if names[..place].contains(name) {
                return Err(ChainError::NameTwice(name));
            }
        }
        let objects: Vec<&'static str> = stages
            .iter()
            .flat_map(|stage| {
                let of = |object: &&str| names::kept(format!("{}.{object}", stage.name()));
                stage.objects().iter().map(of).collect::<Vec<_>>()
            })
            .collect();
        if objects.len() > OBJECTS_MAX {
            return Err(ChainError::Objects(objects.len()));
        }
        let own: Vec<_> = stages.iter().map(Stage::own).collect();
        let count = |of: fn(&(Vec<_>, Vec<_>)) -> usize| own.iter().map(of).sum();
        let metrics = (count(|own| own.1.len()), CHAIN_METRICS_MAX);
        check_counts(count(|own| own.0.len()), metrics).map_err(ChainError::Own)?;
        let (reasons, metrics): (Vec<_>, Vec<_>) = own.into_iter().unzip();
        let mut events: Vec<OwnEvent> = Vec::new();
        for event in stages.iter().flat_map(Stage::events) {
            if !events.contains(event) {
                events.push(*event);
            }
        }
        Ok(Self {
            events,
            stages,
            names,
            objects: names::kept_list(objects),
            reasons: reasons.concat(),
            metrics: metrics.concat(),
        })
    }

    /// What to ask of a chain, for its stage of this number to be asked the question: see [`Observable::report`]. `None` when
    /// there can be no such stage, or the question is 2²⁹ or more.
    #[must_use]
    pub fn question(stage: usize, question: u32) -> Option<u32> {
        let fits = stage < STAGES_MAX && question >> QUESTION_BITS == 0;
        fits.then_some((stage as u32) << QUESTION_BITS | question)
    }

    /// The port by which the host's control side speaks to the stage of this number: to it a frame comes by [`CONTROL`]. `None` when
    /// there can be no such stage. What comes by [`CONTROL`] itself is for no stage, and dropped.
    #[must_use]
    pub fn control(stage: usize) -> Option<PortNumber> {
        (stage < STAGES_MAX).then(|| Place::reported(stage).port())
    }
}

/// The states of a chain's stages, and what they counted.
#[derive(Debug)]
pub struct ChainState {
    stages: Vec<Running>,
    objects: &'static [&'static str],
    /// Each object's stage and its number there.
    found: Vec<(u8, u8)>,
    /// Where the last late call was.
    late_at: Cell<Place>,
}

impl ChainState {
    /// What the stages counted, in order.
    pub fn tallies(&self) -> impl Iterator<Item = &StageTally> {
        self.stages.iter().map(|stage| &stage.tally)
    }

    /// The state of a stage, if it is of this type.
    pub fn stage<S: State>(&self, number: usize) -> Option<&S> {
        self.stages.get(number)?.state().downcast_ref()
    }

    /// Leads a packet from stage to stage until it ends or leaves, or until a stage is late.
    fn scan(
        &mut self,
        mut packet: Packet<'_>,
        (context, emissions): (&Rc<Context>, &mut Emissions),
        mut at: Place,
    ) -> Result<Verdict, Late> {
        let last = self.stages.len() - 1;
        // Straight on there are no more; one that is turned round goes on from the packet loop, which sees to it that what is
        // written has room.
        for _ in 0..=last {
            let number = at.stage().min(last);
            let here = (number, at.side());
            let stage = &mut self.stages[number];
            let is_copy = at.is_copy();
            let straight = PortNumber(at.side().0 ^ 1);
            let to = if stage.is_mirror() && !is_copy {
                stage.send_copy(&packet, at, emissions);
                if context.is_traced() {
                    let from = context.note(stage_step(here));
                    context.note_stage_end(number as u8, StageEnd::Mirrored, from);
                }
                straight
            } else {
                let before = emissions.mark();
                let result = if context.is_traced() {
                    stage.call_traced(packet.reborrow(), here, context, emissions)
                } else {
                    stage.call(packet.reborrow(), here, context, emissions)
                };
                if emissions.mark() != before {
                    let kept = Emissions::kept(before);
                    match is_copy {
                        true => emissions.truncate(kept),
                        false => emissions.redirect(kept, |port| at.leave(port, last)),
                    }
                    stage.copied(emissions.take_made(), context);
                }
                match result {
                    Err(late) => {
                        self.late_at.set(at);
                        return Err(late);
                    }
                    Ok(verdict) if is_copy => {
                        if let Verdict::Drop(reason) = verdict {
                            stage.fails(reason, context);
                        }
                        return Ok(Verdict::Consumed);
                    }
                    Ok(Verdict::Forward(to)) => to,
                    Ok(Verdict::Drop(reason)) => match stage.fails(reason, context) {
                        true => straight,
                        false => return Ok(Verdict::Drop(reason)),
                    },
                    Ok(Verdict::Consumed) => return Ok(Verdict::Consumed),
                }
            };
            let next = at.leave(to, last);
            match Place::of(next) {
                Some(place) if !context.is_singly() => at = place,
                _ => return Ok(Verdict::Forward(next)),
            }
        }
        Ok(Verdict::Forward(at.port()))
    }

    /// The pass that only prefetches: every stage is asked, of the packet as it came.
    fn hint(
        &mut self,
        mut packet: Packet<'_>,
        (context, emissions): (&Rc<Context>, &mut Emissions),
        at: Place,
    ) {
        let last = self.stages.len() - 1;
        let mut ask = |number: usize| {
            let stage = &mut self.stages[number];
            if !stage.is_mirror() {
                stage.hint(packet.reborrow(), (number, at.side()), context, emissions);
            }
        };
        match at.side() {
            PortNumber(1) => (0..=at.stage().min(last)).rev().for_each(&mut ask),
            _ => (at.stage()..=last).for_each(&mut ask),
        }
    }

    /// Hands a stage what the control side tells it. A stage that would send it on does not know what it says.
    #[cold]
    #[inline(never)]
    fn reported(
        &mut self,
        packet: Packet<'_>,
        (context, emissions): (&Rc<Context>, &mut Emissions),
        at: Place,
    ) -> Result<Verdict, Late> {
        let last = self.stages.len() - 1;
        let here = (at.stage(), CONTROL);
        let Some(stage) = self.stages.get_mut(here.0).filter(|_| !at.is_copy()) else {
            return Ok(Verdict::Drop(Reason::NotForUs));
        };
        if context.is_prefetching() {
            stage.hint(packet, here, context, emissions);
            return context.act().map(|()| Verdict::Consumed);
        }
        let before = emissions.mark();
        let result = if context.is_traced() {
            stage.call_traced(packet, here, context, emissions)
        } else {
            stage.call(packet, here, context, emissions)
        };
        if emissions.mark() != before {
            emissions.redirect(Emissions::kept(before), |port| at.leave(port, last));
            stage.copied(emissions.take_made(), context);
        }
        let reason = match result {
            Err(late) => {
                self.late_at.set(at);
                return Err(late);
            }
            Ok(Verdict::Consumed) => return Ok(Verdict::Consumed),
            Ok(Verdict::Forward(_)) => Reason::NotForUs,
            Ok(Verdict::Drop(reason)) => reason,
        };
        // Nothing is handed on, whatever is done with packets when the stage fails.
        stage.fails(reason, context);
        Ok(Verdict::Drop(reason))
    }

    fn find(&self, object: u8) -> Option<(usize, u8)> {
        let &(stage, number) = self.found.get(usize::from(object))?;
        Some((stage.into(), number))
    }
}

fn stage_step((number, side): (usize, PortNumber)) -> Step {
    Step::Stage {
        number: number as u8,
        port: side.0,
    }
}

impl State for ChainState {
    /// Known only when the chain is made, see [`State::objects`].
    const OBJECTS: &'static [&'static str] = &[];
    type Act<'a> = ();

    fn act(&mut self) {}

    fn with<T>(&mut self, object: u8, visit: impl ObjectVisitor<T>) -> Option<T> {
        Some(visit.visit(self.object_mut(object)?))
    }

    fn query<T>(&self, object: u8, query: impl ObjectQuery<T>) -> Option<T> {
        Some(query.query(self.object(object)?))
    }

    fn objects(&self) -> &'static [&'static str] {
        self.objects
    }

    fn object(&self, object: u8) -> Option<&dyn Object> {
        let (stage, number) = self.find(object)?;
        self.stages[stage].object(number)
    }

    fn object_mut(&mut self, object: u8) -> Option<&mut dyn Object> {
        let (stage, number) = self.find(object)?;
        self.stages[stage].object_mut(number)
    }
}

impl NetworkFunction for Chain {
    type State = ChainState;

    fn state(&self, builder: &Builder) -> ChainState {
        let mut own_from = 0;
        let start = |stage: &Stage| {
            let running = stage.start(builder, own_from);
            own_from += stage.own_reasons();
            running
        };
        let stages: Vec<_> = self.stages.iter().map(start).collect();
        let found = (0u8..).zip(&self.stages).flat_map(|(number, stage)| {
            let objects = 0..stage.objects().len() as u8;
            objects.map(move |object| (number, object))
        });
        ChainState {
            found: found.collect(),
            stages,
            objects: self.objects,
            late_at: Cell::default(),
        }
    }

    fn take_up(&self, state: &mut ChainState) {
        for (stage, running) in self.stages.iter().zip(&mut state.stages) {
            stage.take_up(running);
        }
    }

    #[inline]
    fn packet(&self, ask: Ask<'_, ChainState>) -> Result<Verdict, Late> {
        let Ask {
            packet,
            state,
            context,
            emissions,
            port,
        } = ask;
        let at = match Place::of(port) {
            Some(place) if place.is_reported() => {
                return state.reported(packet, (context, emissions), place);
            }
            Some(place) => place,
            None => Place::entered(port, self.stages.len() - 1),
        };
        if context.is_prefetching() {
            state.hint(packet, (context, emissions), at);
            // What is found out in this pass is no verdict: it ends late, as every function's does.
            return context.act().map(|()| Verdict::Consumed);
        }
        state.scan(packet, (context, emissions), at)
    }

    fn addresses(&self) -> Vec<core::net::Ipv4Addr> {
        let mut all = Vec::new();
        for address in self.stages.iter().flat_map(Stage::addresses) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    fn observable(&self) -> Option<&dyn Observable<ChainState>> {
        Some(self)
    }

    #[inline(always)]
    fn stages(&self) -> Option<&dyn Stages<ChainState>> {
        Some(self)
    }

    /// Of the stages' names, order and own numbers: stages that stand elsewhere would disagree on what packets they see.
    fn schema(&self) -> u64 {
        self.stages.iter().fold(0x5EED_C4A1, |sum, stage| {
            let name = stage.name().bytes();
            let sum = name.fold(sum, |sum, byte| {
                asterism_state::hash::word(sum ^ u64::from(byte), 0xC4A1)
            });
            asterism_state::hash::word(sum ^ stage.schema(), 0xC4A2)
        })
    }
}

impl Observable<ChainState> for Chain {
    /// Of the stage that [`Chain::question`] names, what it reports itself.
    fn report(
        &self,
        state: &ChainState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let stage = state.stages.get((question >> QUESTION_BITS) as usize)?;
        stage.report(question & ((1 << QUESTION_BITS) - 1), range, out)
    }

    fn reasons(&self) -> &[OwnReason] {
        &self.reasons
    }

    fn metrics(&self) -> &[OwnMetric] {
        &self.metrics
    }

    fn measure(&self, state: &ChainState, values: &mut Vec<u64>) {
        for stage in &state.stages {
            stage.measure(values);
        }
    }

    fn events(&self) -> &[OwnEvent] {
        &self.events
    }
}

impl Stages<ChainState> for Chain {
    fn names(&self) -> &[&'static str] {
        &self.names
    }

    fn tally<'s>(&self, state: &'s ChainState, stage: usize) -> Option<&'s StageTally> {
        Some(&state.stages.get(stage)?.tally)
    }

    fn waits_at(&self, state: &ChainState) -> (PortNumber, u64) {
        let at = state.late_at.get();
        (at.port(), self.stages[at.stage()].wait_us())
    }

    fn objects(&self) -> &'static [&'static str] {
        self.objects
    }

    fn decided(&self, state: &mut ChainState, requests: u16, is_committed: bool) {
        for stage in &mut state.stages {
            stage.decided(requests, is_committed);
        }
    }
}
