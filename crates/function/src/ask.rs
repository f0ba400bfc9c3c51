//! The two halves of handling a packet: asking and acting.

use core::ops::{Deref, DerefMut};
use std::rc::Rc;

use asterism_packet::Packet;
use asterism_state::{Context, Late, Nearby, State, Tick};

use crate::emissions::Emissions;
use crate::function::{Call, PortNumber};

/// The first half: the packet to look at, and the state's reads and reservations as fields of it
/// (`ask.sessions.by_left(&key)?`).
///
/// A write does not compile here, and a read does not compile on what [`Ask::act`] returns.
#[derive(Debug)]
pub struct Ask<'a, S: State> {
    pub(crate) packet: Packet<'a>,
    pub(crate) state: &'a mut S,
    pub(crate) context: &'a Rc<Context>,
    pub(crate) emissions: &'a mut Emissions,
    pub(crate) port: PortNumber,
}

impl<S: State> Deref for Ask<'_, S> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        self.state
    }
}

impl<'a, S: State> Ask<'a, S> {
    #[inline(always)]
    pub(crate) fn new(packet: Packet<'a>, call: Call<'a, S>) -> Self {
        let Call {
            state,
            context,
            emissions,
            port,
        } = call;
        Self {
            packet,
            state,
            context,
            emissions,
            port,
        }
    }

    /// The packet.
    #[inline(always)]
    pub fn packet(&self) -> &Packet<'a> {
        &self.packet
    }

    /// The port that it came in by.
    #[inline(always)]
    pub fn port(&self) -> PortNumber {
        self.port
    }

    /// Seconds since the cluster's time base, the same over all calls for one packet. Clocks of members
    /// differ by up to the stated skew: use it for windows and idleness, never to order writes.
    #[inline(always)]
    pub fn now(&self) -> Tick {
        self.context.arrived_tick()
    }

    /// Microseconds of this instance's own clock at the packet's arrival.
    #[inline(always)]
    pub fn arrived_us(&self) -> u64 {
        self.context.arrived_us()
    }

    /// 64 bits that nobody outside can predict, the same over all calls for one packet. `draw` tells
    /// several draws apart.
    pub fn random(&self, draw: u64) -> u64 {
        self.context.random(draw)
    }

    /// A number below `choices` that depends on `key` and the cluster's secret alone: two instances that
    /// choose for one flow choose alike.
    pub fn choose(&self, key: u64, choices: u32) -> u32 {
        let hash = asterism_state::hash::word(key, self.context.seed());
        ((u128::from(hash) * u128::from(choices)) >> 64) as u32
    }

    /// Several reads at once: all that are late are fetched together, in one round.
    ///
    /// `let (session, block) = ask.all((ask.sessions.get(&a), ask.blocks.get(&b)))?;`
    pub fn all<T: AllAnswers>(&self, answers: T) -> Result<T::Answers, Late> {
        answers.all()
    }

    /// Waits for another packet: late until `wait_us` microseconds after this packet's arrival. Meanwhile the function is
    /// called again whenever an entry that this call read is written, here or by another instance: one that was found, or that was
    /// not. What else came calls it no sooner, nor does what it read by other ways than keys (`is_empty`, the sum of a single
    /// [`Counter`](asterism_state::Counter)). Late packets are bounded, see the engine's parking.
    pub fn expect(&self, wait_us: u64) -> Result<(), Late> {
        self.context.expect(wait_us)
    }

    /// Ends the asking. Nothing after it waits or fails.
    ///
    /// The `Err` belongs to the engine's prefetch pass, in which every call ends here at the latest;
    /// pass it on with `?`.
    #[inline(always)]
    pub fn act(self) -> Result<Act<'a, S>, Late> {
        if !self.context.acts_plainly() {
            act_uncommonly(self.state, self.context)?;
        }
        Ok(Act {
            packet: self.packet,
            state: self.state.act(),
            emissions: self.emissions,
        })
    }

    /// [`Ask::act`] of a call that a [`Nearby`] read answered.
    #[inline(always)]
    pub fn act_nearby(self, nearby: Nearby) -> Act<'a, S> {
        self.context.act_nearby(nearby);
        Act {
            packet: self.packet,
            state: self.state.act(),
            emissions: self.emissions,
        }
    }
}

/// Acting in the prefetch pass, or with answers of stores: then what is written is recorded.
#[cold]
fn act_uncommonly<S: State>(state: &mut S, context: &Context) -> Result<(), Late> {
    context.act_uncommonly()?;
    if context.is_staged() {
        state.for_each_object(|object| object.begin_recording());
    }
    Ok(())
}

/// The second half: the packet to edit, and the state's writes as fields of it
/// (`act.sessions.touch(&session)`).
#[allow(
    missing_debug_implementations,
    reason = "the generated structs of writes have none"
)]
pub struct Act<'a, S: State> {
    /// The packet.
    pub packet: Packet<'a>,
    state: S::Act<'a>,
    emissions: &'a mut Emissions,
}

impl<'a, S: State> Deref for Act<'a, S> {
    type Target = S::Act<'a>;
    #[inline(always)]
    fn deref(&self) -> &S::Act<'a> {
        &self.state
    }
}

impl<S: State> DerefMut for Act<'_, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.state
    }
}

impl<S: State> Act<'_, S> {
    /// Sends a further packet by `port`. `write` is given the packet being handled and room for a frame,
    /// and tells the new frame's length; `None` sends nothing. False if there was no room.
    pub fn emit(
        &mut self,
        port: PortNumber,
        write: impl FnOnce(&Packet<'_>, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let packet = &self.packet;
        self.emissions.emit(port, |room| write(packet, room))
    }

    /// Sends a copy of the packet by `port`, as it is now; the packet itself goes where the verdict says. False, and nothing is
    /// sent, if it is longer than 1,600 bytes or 96 packets wait to be sent already: copies never take the room of what a function
    /// has to say. Counted either way. Costs two copies of the packet's bytes.
    pub fn copy(&mut self, port: PortNumber) -> bool {
        self.emissions.copy(port, self.packet.bytes())
    }
}

/// A tuple of answers, each of which may be late.
pub trait AllAnswers {
    /// The answers.
    type Answers;
    /// All answers, or `Late` if one is late. All reads were made by then.
    fn all(self) -> Result<Self::Answers, Late>;
}

impl<A, B> AllAnswers for (Result<A, Late>, Result<B, Late>) {
    type Answers = (A, B);
    fn all(self) -> Result<(A, B), Late> {
        Ok((self.0?, self.1?))
    }
}

impl<A, B, C> AllAnswers for (Result<A, Late>, Result<B, Late>, Result<C, Late>) {
    type Answers = (A, B, C);
    fn all(self) -> Result<(A, B, C), Late> {
        Ok((self.0?, self.1?, self.2?))
    }
}
