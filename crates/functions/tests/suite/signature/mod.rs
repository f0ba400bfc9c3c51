//! The signature function: every split of a signature over several instances, real captures against a slow and sure way to
//! find the same, and hostile packets.

mod captures;
mod cluster;
mod hostile;
mod lists;
mod manual;
mod metrics;
pub(crate) mod packets;
#[cfg(asterism_mutants)]
mod planted;
mod reassembly;
mod splits;
