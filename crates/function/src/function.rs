//! The trait of a network function.

use std::rc::Rc;

use asterism_packet::Packet;
use asterism_state::{Builder, Context, Late, State};

use crate::ask::Ask;
use crate::chain::StageTally;
use crate::emissions::Emissions;
use crate::own::{OwnEvent, OwnMetric, OwnReason};
use crate::reason::Reason;

/// One of the ports that an instance reads from and writes to, by its place in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortNumber(pub u16);

/// The port by which a host's control side speaks to the function, with frames that it writes itself, so that what it has to say takes the
/// packets' path into the state. No configuration can have so many ports. To a stage of a chain it speaks by
/// [`Chain::control`](crate::chain::Chain::control).
pub const CONTROL: PortNumber = PortNumber(u16::MAX);

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It leaves by this port.
    Forward(PortNumber),
    /// It ends here, counted under the reason.
    Drop(Reason),
    /// It was for the function itself (an ARP request that was answered).
    Consumed,
}

/// A network function: one source for every placement of its state.
///
/// `packet` must depend on nothing but what it is given, so that a call can be repeated: no clock, no
/// randomness of its own, no interior mutability. Counters are state.
pub trait NetworkFunction: 'static {
    /// What its instances share: a struct with `#[state]`.
    type State: State;

    /// Builds the state's objects, in the order of the struct's fields.
    fn state(&self, builder: &Builder) -> Self::State;

    /// Handles one packet.
    ///
    /// `Err` comes from a read that was late, passed on with `?`: the packet is parked and the function
    /// called again with the same packet, `now` and `random`. After [`Ask::act`] nothing returns `Err`.
    fn packet(&self, ask: Ask<'_, Self::State>) -> Result<Verdict, Late>;

    /// Asks for the memory that a packet will touch whose first read is likely to find nothing: the first one of a flow. Called some
    /// packets ahead, in bursts whose reads are asked for ahead; nothing that it finds out is kept. Reads answer nothing there, but
    /// what they would look at first comes, as with `prefetch` of the objects. Functions whose first packets read no more than
    /// others leave it out.
    fn prefetch(&self, ask: &Ask<'_, Self::State>) {
        let _ = ask;
    }

    /// Takes up a state that another function of this type worked on, whose shape is the same: renews what of the function
    /// stands in it. Between two bursts, when a host reloads its configuration; may allocate. Functions keep nothing of
    /// themselves in their state; a [`Chain`](crate::chain::Chain) keeps its stages' functions there.
    fn take_up(&self, state: &mut Self::State) {
        let _ = state;
    }

    /// Addresses that occur in most operations (a NAT's outside ones): one byte each on the wire instead
    /// of four. Must be the same list on every member.
    fn addresses(&self) -> Vec<core::net::Ipv4Addr> {
        Vec::new()
    }

    /// What the control plane asks of the state, in the function's own words: looks at up to `count` entries from `cursor` on,
    /// appends to `out`, and gives where to go on, `None` at the end. `question` is the function's too. Called between bursts on
    /// the instance's thread, a part at a time, never for a packet; may allocate. Functions that tell nothing leave it out.
    fn report(
        &self,
        state: &Self::State,
        question: u32,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let _ = (state, question, cursor, count, out);
        None
    }

    /// Reasons to drop packets that the [one list](Reason) does not have, in the order of their numbers; at most
    /// [`OWN_REASONS_MAX`](crate::OWN_REASONS_MAX). Always the same list: numbers stand for names while the host runs.
    fn reasons(&self) -> &[OwnReason] {
        &[]
    }

    /// What it measures of its state, beside the entries that are counted of every object; at most
    /// [`OWN_METRICS_MAX`](crate::OWN_METRICS_MAX), and in a chain
    /// [`CHAIN_METRICS_MAX`](crate::CHAIN_METRICS_MAX) of all stages. Always the same list.
    fn metrics(&self) -> &[OwnMetric] {
        &[]
    }

    /// Appends a value for each of [`NetworkFunction::metrics`], in order. Called between bursts, some times a second, never for a
    /// packet: it may allocate, and must not walk a table, nor read what may be late: objects have a way to ask for the control plane.
    fn measure(&self, state: &Self::State, values: &mut Vec<u64>) {
        let _ = (state, values);
    }

    /// Kinds of events that it tells of: each [notice](crate::notice) that its report has is of one of them. Of a chain those of all stages.
    fn events(&self) -> &[OwnEvent] {
        &[]
    }

    /// Names of the state's objects, in order: known before a state is built.
    #[inline(always)]
    fn objects(&self) -> &'static [&'static str] {
        Self::State::OBJECTS
    }

    /// Names of its stages, if it is a [`Chain`](crate::chain::Chain); empty for every other function.
    fn stages(&self) -> &[&'static str] {
        &[]
    }

    /// What its stages counted, in order; empty unless it is a chain.
    fn stage_tallies(_state: &Self::State) -> impl Iterator<Item = &StageTally> {
        core::iter::empty()
    }

    /// Where a packet is to be taken up again whose call was late just now, and how long it may be late there in
    /// microseconds: of a chain, the stage that was late.
    #[inline(always)]
    fn waits_at(&self, _state: &Self::State, port: PortNumber) -> (PortNumber, u64) {
        (port, u64::MAX)
    }

    /// A number that differs when two hosts' settings would make their states disagree. Hosts with
    /// different numbers refuse to form a cluster. Objects' names, kinds, layouts, sizes and placements, and the addresses, are
    /// compared besides, whatever this says.
    fn schema(&self) -> u64 {
        0
    }
}

/// What one call of a function is given besides the packet.
#[derive(Debug)]
pub struct Call<'a, S: State> {
    /// The instance's state.
    pub state: &'a mut S,
    /// What its objects share. The engine has begun or resumed the packet in it.
    pub context: &'a Rc<Context>,
    /// Where emitted packets go.
    pub emissions: &'a mut Emissions,
    /// The port that the packet came in by.
    pub port: PortNumber,
}

/// Calls a function for one packet. Of a late answer the caller must ask [`refuse_late_after_act`].
#[inline(always)]
pub fn call<'a, F: NetworkFunction>(
    function: &F,
    packet: Packet<'a>,
    call: Call<'a, F::State>,
) -> Result<Verdict, Late> {
    let context = call.context;
    context.begin_writes();
    let result = function.packet(Ask::new(packet, call));
    context.end_writes();
    result
}

/// Has a function ask for what a first packet will touch. The context is in the pass that only prefetches.
#[inline(always)]
pub fn prefetch<'a, F: NetworkFunction>(
    function: &F,
    packet: Packet<'a>,
    call: Call<'a, F::State>,
) {
    function.prefetch(&Ask::new(packet, call));
}

/// Refuses the `Err` of a function that acted.
///
/// # Panics
/// When the function returned `Err` after it acted: its writes are made and cannot be taken back, and to
/// call it again would make them twice. The host must stop (fail-stop).
pub fn refuse_late_after_act(context: &Context) {
    assert!(
        !context.acted(),
        "a network function returned `Err` after `act()`: reads belong before it; the host stops"
    );
}
