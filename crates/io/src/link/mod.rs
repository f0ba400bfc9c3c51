//! Links for datagrams between hosts of one process: the state channel without a network, and a WAN without a lab.
//!
//! A link delays, loses, duplicates and reorders datagrams, has a rate with a bounded queue in front and an MTU, and can be
//! cut in one direction. [`Network`] joins any number of hosts for the simulator and for tests, driven by one caller;
//! [`ThreadedLink`] joins two threads; [`Link`] is one direction alone, for a caller that moves the bytes itself. Links take
//! `now` and a seed from outside, so the same calls give the same faults.

mod conditions;
mod network;
mod random;
mod threaded;

pub use conditions::{Arrivals, Link, LinkConditions, LinkStatistics};
pub use network::{DATAGRAMS_IN_FLIGHT_MAX, Network};
pub use random::SeededRandom;
pub use threaded::{LinkReceiver, LinkSender, ThreadedLink};
