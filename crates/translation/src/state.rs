//! The state objects that a function needs to translate.

use asterism_forwarding::{Forwards, Fragmented, Progress};
use asterism_function::objects::{PoolAct, TableAct};
use asterism_function::{Endpoint, Map, Pool, Single, Table};

use crate::pcp::Asked;
use crate::ports::OutsidePorts;
use crate::session::Session;

/// State of a function that translates: it [forwards](Forwards), and has tables of sessions and mappings and a pool of outside
/// endpoints. Write it with [`translates!`](crate::translates).
pub trait Translates: Forwards<FragmentContext = Fragmented> {
    /// The three, to read.
    fn translations(&self) -> Translations<'_>;
    /// The three, to write.
    fn writes_translations<'b, 'a>(act: &'b mut Self::Act<'a>) -> TranslationWrites<'b, 'a>;
}

/// What a translator has in the state, to read.
#[derive(Clone, Copy, Debug)]
pub struct Translations<'s> {
    /// Which hosts talk to which others through which outside endpoint.
    pub sessions: &'s Table<Session, Progress>,
    /// The outside endpoints.
    pub ports: &'s Pool<OutsidePorts>,
    /// What it takes to change a mapping that an inside host asked for, and since when hosts ask.
    pub mappings: &'s Map<Endpoint, Asked>,
}

/// The same, to write.
#[allow(
    missing_debug_implementations,
    reason = "the structs of writes have none"
)]
pub struct TranslationWrites<'b, 'a> {
    /// Which hosts talk to which others through which outside endpoint.
    pub sessions: &'b mut TableAct<'a, Session, Progress>,
    /// The outside endpoints.
    pub ports: &'b mut PoolAct<'a, OutsidePorts>,
    /// What it takes to change a mapping, and since when hosts ask.
    pub mappings: &'b mut TableAct<'a, Single<Endpoint>, Asked>,
}

/// Says that a state has the fields `sessions`, `ports` and `mappings`, and those of [`forwards!`](asterism_forwarding::forwards):
/// `translates!(NatState);`.
#[macro_export]
macro_rules! translates {
    ($state:ty) => {
        impl $crate::Translates for $state {
            #[inline(always)]
            fn translations(&self) -> $crate::Translations<'_> {
                $crate::Translations {
                    sessions: &self.sessions,
                    ports: &self.ports,
                    mappings: &self.mappings,
                }
            }
            #[inline(always)]
            fn writes_translations<'b, 'a>(
                act: &'b mut Self::Act<'a>,
            ) -> $crate::TranslationWrites<'b, 'a> {
                $crate::TranslationWrites {
                    sessions: &mut act.sessions,
                    ports: &mut act.ports,
                    mappings: &mut act.mappings,
                }
            }
        }
    };
}
