//! What the author of a network function imports.
