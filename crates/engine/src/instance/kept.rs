//! Calls that are answered by entries of a store that are kept here: a packet of a known flow costs what it costs where the entries are.
//!
//! While a burst is handled, tables in the store show what they keep, if the store says that it is so now. A call that finds all that it reads there
//! has read what was so at one time ([`Store::answer_at_once`](crate::Store::answer_at_once)). What it writes is recorded. If nothing of that is in the
//! store, it takes effect at once. Else, and if something is not there, it is made again with answers of the store (`stored.rs`): the packet is as it
//! came, what it emitted and recorded is forgotten, what it was granted is kept for it.

use asterism_function::{Call, Late, NetworkFunction, Packet, PortNumber, Reason, Verdict, call};
use asterism_placement::Time;
use asterism_state::{Context, State, Tick, Transaction};

use super::Instance;
use super::stored::here;
use crate::mutant::{self, Mutant};
use crate::store::Dropped;
use asterism_io::frame::Frame;

/// What an instance keeps of a store, and what it needs for calls that are answered by that.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    pub(super) may_keep: bool,
    /// The store is to hear of each call that was answered so, and not of those of a burst together.
    counts: bool,
    /// Calls that it has not heard of.
    calls: u64,
    /// Some object that is here must be said to begin to record.
    must_begin: bool,
    /// The second up to which entries that have ended are gone.
    tick: Tick,
    /// The packet of the call under way, as it came.
    original: Option<Frame>,
    transaction: Transaction,
}

impl Keeping {
    /// For an instance with these objects.
    pub(super) fn new(state: &mut impl State, context: &Context, counts: bool) -> Self {
        let (mut must_begin, here) = (false, here(context.in_store()));
        for number in 0..state.objects().len() as u8 {
            if let Some(object) = state.object_mut(number) {
                object.expect_kept();
                must_begin |= here(number) && object.must_begin_recording();
            }
        }
        if must_begin {
            context.expect_recording();
        }
        Self {
            may_keep: true,
            counts,
            must_begin,
            ..Self::default()
        }
    }
}

impl<F: NetworkFunction> Instance<F> {
    /// Tables show what they keep of a store, if it is so now. Whether they do.
    pub(super) fn show_kept(&mut self) -> bool {
        let Some(stored) = self
            .stored
            .as_mut()
            .filter(|stored| stored.keeping.may_keep)
        else {
            return false;
        };
        let is_so = stored.store.keeps(Time::from_micros(self.now_us));
        if !is_so && !mutant::active(Mutant::KeptHoweverOld) {
            return false;
        }
        let keeping = &mut stored.keeping;
        keeping.original = self.pool.allocate();
        if keeping.original.is_none() {
            return false;
        }
        if keeping.tick != self.context.tick() {
            keeping.tick = self.context.tick();
            self.state.for_each_object(|object| object.drop_ended());
        }
        self.begin_keeping();
        true
    }

    /// The burst is handled: they show it no more.
    pub(super) fn end_keeping(&mut self) {
        self.hide_kept();
        self.count_kept();
        let keeping = self.stored.as_mut().map(|stored| &mut stored.keeping);
        if let Some(original) = keeping.and_then(|keeping| keeping.original.take()) {
            self.pool.release(original);
        }
    }

    fn hide_kept(&mut self) {
        self.context.set_keeping(false);
        self.state.for_each_object(|object| object.show_kept(false));
    }

    fn begin_keeping(&mut self) {
        self.state.for_each_object(|object| object.show_kept(true));
        self.context.set_keeping(true);
    }

    /// What the store says is not so any more is kept no longer.
    pub(super) fn drop_kept(&mut self) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        while let Some(dropped) = stored.store.next_dropped() {
            match dropped {
                Dropped::All => self.state.for_each_object(|object| object.drop_all_kept()),
                Dropped::Read { object, lane, hash } => {
                    if let Some(object) = self.state.object_mut(object) {
                        object.drop_kept(lane, hash);
                    }
                }
            }
        }
    }

    /// As [`Instance::handle_run`], of packets that may be answered by what is kept.
    #[inline(never)]
    pub(super) fn handle_kept_run(
        &mut self,
        port: PortNumber,
        slots: &mut [Frame],
        first: usize,
        plain: &impl for<'f> Fn(usize, &'f mut [u8]) -> Option<Packet<'f>>,
    ) -> usize {
        let (function, context) = (self.function.clone(), self.context.clone());
        let function: &F = &function;
        let parked_before = self.parking.so_far();
        for (number, slot) in slots.iter_mut().enumerate() {
            let (pool, stored) = (&mut self.pool, self.stored.as_mut());
            if let Some(original) = stored.and_then(|one| one.keeping.original.as_mut()) {
                pool.copy(slot, original);
            }
            if let Some(packet) = plain(first + number, self.pool.bytes_mut(slot)) {
                context.begin_next();
                let emitted_before = self.emissions.len();
                let given = Call {
                    state: &mut self.state,
                    context: &context,
                    emissions: &mut self.emissions,
                    port,
                };
                let result = call(function, packet, given);
                let needs_attention = context.needs_attention();
                match result {
                    Ok(verdict) if !needs_attention => {
                        self.end_kept();
                        match verdict {
                            Verdict::Forward(to) => self.forward(to, slot),
                            _ => self.conclude(result, slot, port),
                        }
                    }
                    _ => self.conclude_kept(result, slot, port, emitted_before),
                }
            } else {
                self.hide_kept();
                self.handle_uncommon(slot, port);
                self.begin_keeping();
            }
            if self.parking.so_far() != parked_before {
                return number + 1;
            }
        }
        slots.len()
    }

    /// A call was answered by what is kept, and has nothing to be decided.
    #[inline(always)]
    fn end_kept(&mut self) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        stored.keeping.calls += 1;
        if stored.keeping.must_begin {
            self.state.for_each_object(|object| object.end_recording());
        }
        if stored.keeping.counts {
            self.count_kept();
        }
    }

    /// Counts the calls that were answered by what is kept.
    fn count_kept(&mut self) {
        if let Some(stored) = &mut self.stored {
            let calls = core::mem::take(&mut stored.keeping.calls);
            self.tally.answered_at_once += calls;
            self.tally.store_reads_alone += calls;
            if calls > 0 {
                stored.store.was_kept(calls);
            }
        }
    }

    /// Does as the function said of a call that may be answered by what is kept: that found not all there, that wrote, or that was granted something.
    #[cold]
    #[inline(never)]
    fn conclude_kept(
        &mut self,
        result: Result<Verdict, Late>,
        slot: &mut Frame,
        port: PortNumber,
        emitted_before: usize,
    ) {
        self.hide_kept();
        self.state.for_each_object(|object| object.end_recording());
        let result = match result {
            Ok(verdict) if self.takes_effect_here() => Ok(verdict),
            Ok(_) => self.retract_kept(slot, emitted_before),
            Err(late) => Err(late),
        };
        self.conclude(result, slot, port);
        self.begin_keeping();
    }

    /// Makes what a call wrote, unless some of it is in the store.
    fn takes_effect_here(&mut self) -> bool {
        let Some(stored) = &mut self.stored else {
            return true;
        };
        let transaction = &mut stored.keeping.transaction;
        self.context.seal(transaction);
        let here = here(stored.objects);
        let mut writes_there = false;
        let written = self.state.each_write(transaction.writes(), |object, _, _| {
            writes_there |= !here(object);
        });
        debug_assert!(written.is_ok(), "what was recorded is a write");
        if writes_there {
            return false;
        }
        let made = self.state.commit(&self.context, transaction.writes(), here);
        debug_assert!(made.is_ok(), "what was recorded is a write");
        stored.keeping.calls += 1;
        if stored.keeping.counts {
            self.count_kept();
        }
        true
    }

    /// The packet is as it came, and is to be called again with answers of the store.
    fn retract_kept(&mut self, slot: &mut Frame, emitted_before: usize) -> Result<Verdict, Late> {
        self.emissions.take_after(emitted_before, |_, _| {});
        let late = self.context.retract();
        let another = self.pool.allocate();
        let keeping = self.stored.as_mut().map(|stored| &mut stored.keeping);
        let original =
            keeping.and_then(|keeping| core::mem::replace(&mut keeping.original, another));
        let Some(mut original) = original else {
            return Ok(Verdict::Drop(Reason::NoBuffer));
        };
        if !mutant::active(Mutant::RetractedAsEdited) {
            core::mem::swap(slot, &mut original);
        }
        self.pool.release(original);
        Err(late)
    }
}
