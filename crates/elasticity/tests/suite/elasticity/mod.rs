//! Elasticity on a small model of a cluster (`world.rs`): what must hold whatever the load does (`properties.rs`), single
//! decisions (`decisions.rs`), policies and their errors (`policies.rs`), and the example of the page (`page.rs`).

mod decisions;
mod laws;
mod page;
#[cfg(asterism_mutants)]
mod planted;
mod policies;
mod properties;
pub(crate) mod world;
