//! The source tree itself.

use super::Bar::Exactly;
use super::Group::Beside;
use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row(
        Beside,
        "tree.words",
        "uses",
        Exactly(0.0),
        "retired words in code, pages and messages, and retired names of types, keys, events, metrics and fields of JSON (`testing/tidy/src/words.rs`)",
    ),
    row(
        Beside,
        "tree.circles",
        "circles",
        Exactly(0.0),
        "import circles of more than ten files in the crates that ship; `crates-too-long`: those of them with more than 18,000 lines",
    )
    .also(&[("crates-too-long", Exactly(0.0))]),
];
