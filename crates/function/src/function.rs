//! The trait of a network function. `observable.rs` has what the control plane observes of one, `stages.rs` what only a chain has.

use std::rc::Rc;

use asterism_packet::Packet;
use asterism_state::{Builder, Context, Late, State};

use crate::ask::Ask;
use crate::emissions::Emissions;
use crate::observable::Observable;
use crate::reason::Reason;
use crate::stages::Stages;

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

    /// What the control plane can observe of it: a type that implements [`Observable`] returns `Some(self)`.
    #[inline(always)]
    fn observable(&self) -> Option<&dyn Observable<Self::State>> {
        None
    }

    /// Its stages: only a [`Chain`](crate::chain::Chain) has any.
    #[inline(always)]
    fn stages(&self) -> Option<&dyn Stages<Self::State>> {
        None
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
