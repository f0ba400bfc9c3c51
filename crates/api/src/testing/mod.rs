//! For tests of the server and of programs that use it: a cluster that is not there, and an intruder.

mod exchange;
mod fake;
mod intruder;

pub use exchange::{Answer, Exchange, ExchangeError};
pub use fake::FakeCluster;
pub use intruder::{IntruderReport, UnsoundIntruder, intruder};
