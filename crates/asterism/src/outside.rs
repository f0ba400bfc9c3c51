//! All that a program with functions of its own imports from this crate, beside [`Program`](crate::Program): how settings are
//! described, read and made into a function. A function itself imports `asterism-function` alone.

pub use crate::config::ObjectChoice;
pub use crate::config::diagnostic::{Diagnostic, Report};
pub use crate::config::functions::{
    DROP, DescribedObject, FunctionSettings, LOCAL, ObjectKind, OutsideFunction, REPLICATED,
    Together, WAIT, absent, capacity, check_whole_seconds, delay, described, placement, seconds,
};
pub use crate::config::kind::{Kind, Value, Word};
pub use crate::config::section::{Default, Field, Section, Values};
