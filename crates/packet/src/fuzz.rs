//! What the fuzz target runs: every parse, accessor and edit on arbitrary bytes. Imports the whole crate.
