//! What two hosts must have alike for one to read what the other writes, as numbers. `asterism-wire` has the layouts of types;
//! `shape.rs` adds up what a whole state is made of.

pub use asterism_wire::layout::{
    bytes_of_cases, bytes_of_parts, bytes_of_size, manual, of_parts, of_size,
};

pub use crate::shape::Shape;
