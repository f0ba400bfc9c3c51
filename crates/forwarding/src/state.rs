//! The state objects that a function needs to forward.

use core::net::Ipv4Addr;

use asterism_function::{Builder, Single, State, objects::TableAct};

use crate::fragment::{self, FragmentContext, FragmentKey, Fragments};
use crate::neighbour::{self, Neighbour, Neighbours};
use crate::report::{self, Errors, ErrorsSent};

/// State of a function that forwards: has a table of fragments, one of neighbours and one of errors sent. Write it with
/// [`forwards!`](crate::forwards).
pub trait Forwards: State {
    /// What is remembered of fragmented datagrams.
    type FragmentContext: FragmentContext;
    /// The tables, to read.
    fn tables(&self) -> Tables<'_, Self::FragmentContext>;
    /// The tables, to write.
    fn writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> Writes<'b, 'a, Self::FragmentContext>;
}

/// The tables of a function that forwards, to read.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'s, L: FragmentContext> {
    /// Fragmented datagrams whose first fragment was seen.
    pub fragments: &'s Fragments<L>,
    /// Ethernet addresses learnt by ARP.
    pub neighbours: &'s Neighbours,
    /// ICMP errors sent in the current second.
    pub errors: &'s Errors,
}

/// The same, to write.
#[allow(
    missing_debug_implementations,
    reason = "the structs of writes have none"
)]
pub struct Writes<'b, 'a, L: FragmentContext> {
    /// Fragmented datagrams whose first fragment was seen.
    pub fragments: &'b mut TableAct<'a, Single<FragmentKey>, L>,
    /// Ethernet addresses learnt by ARP.
    pub neighbours: &'b mut TableAct<'a, Single<Ipv4Addr>, Neighbour>,
    /// ICMP errors sent in the current second.
    pub errors: &'b mut TableAct<'a, Single<u8>, ErrorsSent>,
}

/// Builds the three tables, which must be the last objects of the state, in this order: `fragments`, `neighbours`,
/// `errors`. The counts are of entries at most, over the whole cluster.
#[must_use]
pub fn tables<L: FragmentContext>(
    builder: &Builder,
    fragments_max: u32,
    neighbours_max: u32,
) -> (Fragments<L>, Neighbours, Errors) {
    (
        builder.table("fragments", fragments_max, &fragment::IDLE),
        builder.table("neighbours", neighbours_max, &neighbour::IDLE),
        builder.table("errors", report::ERRORS_MAX, &report::ERRORS_IDLE),
    )
}

/// Says that a state has the fields `fragments`, `neighbours` and `errors`, and what is remembered of fragments:
/// `forwards!(NatState, Fragmented);`.
#[macro_export]
macro_rules! forwards {
    ($state:ty, $lead:ty) => {
        impl $crate::Forwards for $state {
            type FragmentContext = $lead;
            #[inline(always)]
            fn tables(&self) -> $crate::Tables<'_, $lead> {
                $crate::Tables {
                    fragments: &self.fragments,
                    neighbours: &self.neighbours,
                    errors: &self.errors,
                }
            }
            #[inline(always)]
            fn writes<'b, 'a>(act: &'b mut Self::Act<'a>) -> $crate::Writes<'b, 'a, $lead> {
                $crate::Writes {
                    fragments: &mut act.fragments,
                    neighbours: &mut act.neighbours,
                    errors: &mut act.errors,
                }
            }
        }
    };
}
