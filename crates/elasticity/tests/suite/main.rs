//! Tests of elasticity and usage as their users see them.

mod elasticity;
mod usage;
