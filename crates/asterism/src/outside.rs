//! All that a program with functions of its own imports from this crate, beside [`Program`](crate::Program): how settings are
//! described, read and made into a function. A function itself imports `asterism-function` alone.

pub use asterism_config::ObjectChoice;
pub use asterism_config::functions::{
    DROP, DescribedObject, FILTER, FOLLOWED, FunctionError, FunctionSettings, GRAPH, HEAVIEST,
    KeptHere, LARGE, LEASED, LISTED, LOCAL, ObjectKind, OutsideFunction, REPLICATED, Together,
    WAIT, absent, capacity, check_whole_seconds, delay, described, kept_here, placement, seconds,
};
pub use asterism_toml_schema::diagnostic::{Diagnostic, Report};
pub use asterism_toml_schema::kind::{Kind, Value, Word};
pub use asterism_toml_schema::section::{
    ChosenWord, Declared, Default, Field, Key, List, Section, Setting, Values, section,
};
