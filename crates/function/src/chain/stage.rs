//! One stage of a chain: a function with its state, of whatever type, and the handling of its failures.

use core::any::Any;
use core::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use asterism_packet::Packet;
use asterism_state::{Builder, Context, Late, Object, StageEnd, State};

use super::place::Place;
use super::{names, stage_step};
use crate::emissions::Emissions;
use crate::function::{Call, NetworkFunction, PortNumber, Verdict, call};
use crate::observable::{events_of, metrics_of, reasons_of, report_of, values_of};
use crate::own::{OWN_REASONS_MAX, OwnEvent, OwnMetric, OwnReason};
use crate::reason::Reason;
use crate::stages::{StageTally, objects_of};

/// What becomes of a packet when a stage fails: when it is late for longer than its bound, or says a reason that
/// [is a failure](Reason::is_failure).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// It is dropped under the reason.
    #[default]
    Drop,
    /// It goes on as it was, as if the stage were not there.
    Bypass,
}

/// A stage as it is configured.
#[derive(Debug)]
pub struct Stage {
    name: &'static str,
    function: Box<dyn AnyFunction>,
    on_failure: OnFailure,
    wait_us: u64,
    mirrors: bool,
}

impl Stage {
    /// A stage that drops on failure, and may be late for as long as any packet.
    pub fn new<F: NetworkFunction + Send + Sync>(name: &'static str, function: Arc<F>) -> Self {
        Self {
            name,
            function: Box::new(Kind(function)),
            on_failure: OnFailure::Drop,
            wait_us: u64::MAX,
            mirrors: false,
        }
    }

    /// What is done on failure.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How long a packet may be late at this stage, in microseconds; then the stage has failed for it.
    #[must_use]
    pub fn waits_at_most(mut self, us: u64) -> Self {
        self.wait_us = us;
        self
    }

    /// The stage gets copies: packets do not wait for it, and what it says or emits is not heard. A copy is handled at the end of
    /// the turn; one of more than 1,600 bytes, or beyond 96 in a turn, is not made and counted; one for which there is no
    /// buffer, or no room to wait, is dropped and counted.
    #[must_use]
    pub fn mirrors(mut self) -> Self {
        self.mirrors = true;
        self
    }

    /// Its name in the chain.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn wait_us(&self) -> u64 {
        self.wait_us
    }
    pub(super) fn objects(&self) -> &'static [&'static str] {
        self.function.objects()
    }
    pub(super) fn addresses(&self) -> Vec<Ipv4Addr> {
        self.function.addresses()
    }
    pub(super) fn schema(&self) -> u64 {
        self.function.schema()
    }
    /// Its function's own reasons and metrics, as the chain calls them.
    pub(super) fn own(&self) -> (Vec<OwnReason>, Vec<OwnMetric>) {
        let within = |name: &str| names::kept(format!("{}.{name}", self.name));
        let (mut reasons, mut metrics) = self.function.own();
        for reason in &mut reasons {
            reason.label = within(reason.label);
        }
        for metric in &mut metrics {
            metric.name = within(metric.name);
        }
        (reasons, metrics)
    }
    pub(super) fn events(&self) -> &[OwnEvent] {
        self.function.events()
    }
    pub(super) fn own_reasons(&self) -> usize {
        self.function.own().0.len()
    }
    /// `own_from`: the first of its function's own reasons among the chain's.
    pub(super) fn start(&self, builder: &Builder, own_from: usize) -> Running {
        Running {
            own_from,
            function: self.function.start(&builder.within(self.name)),
            on_failure: self.on_failure,
            wait_us: self.wait_us,
            mirrors: self.mirrors,
            tally: StageTally::default(),
            undecided: Vec::new(),
        }
    }
    /// Has a running stage go on with what is configured here: its function, and what is done when that fails. What it counted
    /// and its state stay. One of another type of function stays as it is.
    pub(super) fn take_up(&self, running: &mut Running) {
        if running.function.take_up(self.function.as_any()) {
            running.on_failure = self.on_failure;
            running.wait_us = self.wait_us;
            running.mirrors = self.mirrors;
        }
    }
}

/// A stage of one instance.
#[derive(Debug)]
pub(super) struct Running {
    function: Box<dyn AnyRunning>,
    own_from: usize,
    on_failure: OnFailure,
    wait_us: u64,
    mirrors: bool,
    pub(super) tally: StageTally,
    /// What calls are to count once a store has committed them, by the numbers of their requests.
    undecided: Vec<Undecided>,
}

/// What a call counts that a store may refuse.
#[derive(Clone, Copy, Debug, Default)]
struct Undecided {
    acted: bool,
    failed: Option<Reason>,
    copied: (u64, u64),
}

impl Running {
    #[inline(always)]
    pub(super) fn is_mirror(&self) -> bool {
        self.mirrors
    }
    pub(super) fn state(&self) -> &dyn Any {
        self.function.state()
    }
    pub(super) fn report(
        &self,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        self.function.report(question, range, out)
    }
    pub(super) fn object(&self, number: u8) -> Option<&dyn Object> {
        self.function.object(number)
    }
    pub(super) fn object_mut(&mut self, number: u8) -> Option<&mut dyn Object> {
        self.function.object_mut(number)
    }

    /// Calls the function and closes its transaction.
    #[inline]
    pub(super) fn call(
        &mut self,
        packet: Packet<'_>,
        (number, side): (usize, PortNumber),
        context: &Rc<Context>,
        emissions: &mut Emissions,
    ) -> Result<Verdict, Late> {
        context.set_stage(number as u8);
        // Set by a late call, by the stage before that was not closed, never by a packet that came just now.
        if context.needs_attention() && self.is_overdue(context) {
            self.function.end(context);
            return Ok(Verdict::Drop(Reason::StageLate));
        }
        let result = self.function.call(packet, side, context, emissions);
        if result.is_err() {
            self.tally.late += 1;
            return result;
        }
        if context.needs_attention() && !self.is_undecided(context) {
            self.function.end(context);
        }
        self.tally.acted += 1;
        match result {
            Ok(Verdict::Drop(reason)) => Ok(Verdict::Drop(self.of_chain(reason))),
            result => result,
        }
    }

    /// Whether the call that just ended stays open until a store has decided on it. If that refuses it, it does not count as one that acted.
    #[cold]
    fn is_undecided(&mut self, context: &Context) -> bool {
        let Some(undecided) = self.undecided(context) else {
            return false;
        };
        *undecided = Undecided {
            acted: true,
            ..Undecided::default()
        };
        true
    }

    /// What the call under way is to count once a store has committed it; `None` of a call that no store decides on.
    fn undecided(&mut self, context: &Context) -> Option<&mut Undecided> {
        if !context.is_staged() {
            return None;
        }
        let number = usize::from(context.requests());
        if self.undecided.len() <= number {
            self.undecided.resize(number + 1, Undecided::default());
        }
        self.undecided.get_mut(number)
    }

    /// A store has committed the call with these requests, or refused it, or nobody waits for it any more.
    #[cold]
    pub(super) fn decided(&mut self, requests: u16, is_committed: bool) {
        let Some(undecided) = self.undecided.get_mut(usize::from(requests)) else {
            return;
        };
        let undecided = core::mem::take(undecided);
        if !undecided.acted {
            return;
        }
        if !is_committed {
            self.tally.acted -= 1;
            return;
        }
        self.count_copies(undecided.copied);
        if let Some(reason) = undecided.failed {
            self.count_failure(reason);
        }
    }

    /// The chain's number of what may be a function's own reason; one that the function does not have says nothing anywhere.
    #[cold]
    fn of_chain(&self, reason: Reason) -> Reason {
        match reason.own_number() {
            Some(number) => Reason::own((self.own_from + number).min(OWN_REASONS_MAX - 1)),
            None => reason,
        }
    }

    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        self.function.measure(values);
    }

    #[cold]
    fn is_overdue(&self, context: &Context) -> bool {
        let since = context.late_since_us();
        since.is_some_and(|since| context.now_us().saturating_sub(since) >= self.wait_us)
    }

    /// The same, noted step by step.
    #[cold]
    pub(super) fn call_traced(
        &mut self,
        packet: Packet<'_>,
        here: (usize, PortNumber),
        context: &Rc<Context>,
        emissions: &mut Emissions,
    ) -> Result<Verdict, Late> {
        let from = context.note(stage_step(here));
        let result = self.call(packet, here, context, emissions);
        let end = match result {
            Err(_) => StageEnd::Late,
            Ok(Verdict::Forward(port)) => StageEnd::Forward(port.0),
            Ok(Verdict::Consumed) => StageEnd::Consumed,
            Ok(Verdict::Drop(reason)) if self.bypasses(reason) => StageEnd::Bypassed(reason as u16),
            Ok(Verdict::Drop(reason)) => StageEnd::Drop(reason as u16),
        };
        context.note_stage_end(here.0 as u8, end, from);
        result
    }

    /// As [`Running::call`] in the pass that only prefetches.
    pub(super) fn hint(
        &mut self,
        packet: Packet<'_>,
        (_, side): (usize, PortNumber),
        context: &Rc<Context>,
        emissions: &mut Emissions,
    ) {
        let _ = self.function.call(packet, side, context, emissions);
    }

    fn bypasses(&self, reason: Reason) -> bool {
        self.on_failure == OnFailure::Bypass && reason.is_failure()
    }

    /// Counts a packet that the stage dropped. Tells whether it goes on all the same.
    #[cold]
    pub(super) fn fails(&mut self, reason: Reason, context: &Context) -> bool {
        match self.undecided(context) {
            Some(undecided) => undecided.failed = Some(reason),
            None => self.count_failure(reason),
        }
        self.bypasses(reason)
    }

    fn count_failure(&mut self, reason: Reason) {
        self.tally.dropped[reason as usize] += 1;
        self.tally.bypassed += u64::from(self.bypasses(reason));
    }

    /// Counts copies that the stage itself sent, and those for which there was no room.
    #[cold]
    pub(super) fn copied(&mut self, copies: (u64, u64), context: &Context) {
        match self.undecided(context) {
            Some(undecided) => undecided.copied = copies,
            None => self.count_copies(copies),
        }
    }

    fn count_copies(&mut self, (made, lost): (u64, u64)) {
        self.tally.mirrored += made;
        self.tally.mirror_lost += lost;
    }

    /// Sends a copy of the packet to this stage, if there is room for it.
    pub(super) fn send_copy(&mut self, packet: &Packet<'_>, at: Place, emissions: &mut Emissions) {
        let mut fits = true;
        if !emissions.has_room_for_copies() {
            self.tally.mirror_lost += 1;
            return;
        }
        let sent = emissions.emit(at.copy().port(), |room| {
            let bytes = packet.bytes();
            let place = room.get_mut(..bytes.len());
            fits = place.is_some();
            place?.copy_from_slice(bytes);
            Some(bytes.len())
        });
        if sent && fits {
            self.tally.mirrored += 1;
        } else {
            self.tally.mirror_lost += 1;
        }
    }
}

/// A function of whatever type, from which each instance's is started.
trait AnyFunction: Send + Sync + core::fmt::Debug {
    fn start(&self, builder: &Builder) -> Box<dyn AnyRunning>;
    /// The shared function, an `Arc` of its type.
    fn as_any(&self) -> &dyn Any;
    fn objects(&self) -> &'static [&'static str];
    fn addresses(&self) -> Vec<Ipv4Addr>;
    fn schema(&self) -> u64;
    fn own(&self) -> (Vec<OwnReason>, Vec<OwnMetric>);
    fn events(&self) -> &[OwnEvent];
}

struct Kind<F>(Arc<F>);

impl<F> core::fmt::Debug for Kind<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(core::any::type_name::<F>())
    }
}

/// A stage's state, of which one packet writes no more than is applied whole.
fn started<S>(state: S, builder: &Builder) -> S {
    if let Err(why) = builder.check_write_set() {
        panic!("{why}");
    }
    state
}

impl<F: NetworkFunction + Send + Sync> AnyFunction for Kind<F> {
    fn start(&self, builder: &Builder) -> Box<dyn AnyRunning> {
        Box::new(Called {
            function: self.0.clone(),
            first_object: builder.next_object(),
            state: started(self.0.state(builder), builder),
        })
    }
    fn as_any(&self) -> &dyn Any {
        &self.0
    }
    fn objects(&self) -> &'static [&'static str] {
        objects_of(&*self.0)
    }
    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.0.addresses()
    }
    fn schema(&self) -> u64 {
        self.0.schema()
    }
    fn own(&self) -> (Vec<OwnReason>, Vec<OwnMetric>) {
        (reasons_of(&*self.0).to_vec(), metrics_of(&*self.0).to_vec())
    }
    fn events(&self) -> &[OwnEvent] {
        events_of(&*self.0)
    }
}

/// A function of whatever type with an instance's state.
trait AnyRunning {
    fn call(
        &mut self,
        packet: Packet<'_>,
        side: PortNumber,
        context: &Rc<Context>,
        emissions: &mut Emissions,
    ) -> Result<Verdict, Late>;
    /// Closes the transaction: unspent grants return, its group takes no more operations.
    fn end(&self, context: &Context);
    /// Goes on with another function, an `Arc` of its own type; false, and nothing changes, if it is of another.
    fn take_up(&mut self, function: &dyn Any) -> bool;
    fn state(&self) -> &dyn Any;
    fn report(&self, question: u32, range: (u32, u32), out: &mut Vec<u8>) -> Option<u32>;
    /// Appends a value for each of the function's metrics, no more and no fewer.
    fn measure(&self, values: &mut Vec<u64>);
    fn object(&self, number: u8) -> Option<&dyn Object>;
    fn object_mut(&mut self, number: u8) -> Option<&mut dyn Object>;
}

impl core::fmt::Debug for dyn AnyRunning {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("stage")
    }
}

struct Called<F: NetworkFunction> {
    function: Arc<F>,
    state: F::State,
    first_object: u8,
}

impl<F: NetworkFunction> AnyRunning for Called<F> {
    fn call(
        &mut self,
        packet: Packet<'_>,
        port: PortNumber,
        context: &Rc<Context>,
        emissions: &mut Emissions,
    ) -> Result<Verdict, Late> {
        let given = Call {
            state: &mut self.state,
            context,
            emissions,
            port,
        };
        call(&*self.function, packet, given)
    }

    fn end(&self, context: &Context) {
        let state = &self.state;
        context.end(|object, number| {
            state.give_back(object.wrapping_sub(self.first_object), number);
        });
        state.settle();
    }

    fn take_up(&mut self, function: &dyn Any) -> bool {
        let Some(function) = function.downcast_ref::<Arc<F>>() else {
            return false;
        };
        self.function = function.clone();
        self.function.take_up(&mut self.state);
        true
    }

    fn state(&self) -> &dyn Any {
        &self.state
    }
    fn report(&self, question: u32, range: (u32, u32), out: &mut Vec<u8>) -> Option<u32> {
        report_of(&*self.function, &self.state, question, range, out)
    }
    fn measure(&self, values: &mut Vec<u64>) {
        let mut own = values_of(&*self.function, &self.state);
        own.resize(metrics_of(&*self.function).len(), 0);
        values.append(&mut own);
    }
    fn object(&self, number: u8) -> Option<&dyn Object> {
        self.state.object(number)
    }
    fn object_mut(&mut self, number: u8) -> Option<&mut dyn Object> {
        self.state.object_mut(number)
    }
}
