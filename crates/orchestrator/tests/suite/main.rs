//! Tests of the orchestrator as its users see it, without a network.

mod elasticity;
mod usage;
