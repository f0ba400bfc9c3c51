//! How ports are numbered between a configuration and the network function that it names.

use asterism_function::PortNumber;

/// The port of the inside, or of anyone who speaks first.
pub const INSIDE: PortNumber = PortNumber(0);
/// The port of the outside, or of anyone who answers.
pub const OUTSIDE: PortNumber = PortNumber(1);
