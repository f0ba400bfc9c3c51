//! Usage on a small model: hosts that count, restart, leave and come, reports that are late, lost, doubled and out of order, and
//! leaders that continue with an old state. Every unit is metered once (`properties.rs`); single cases are in `cases.rs`.

mod cases;
#[cfg(asterism_mutants)]
mod planted;
mod properties;
