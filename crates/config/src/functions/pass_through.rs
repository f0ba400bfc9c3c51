//! The settings of the function that changes nothing.

use asterism_functions::pass_through::{self, PassThrough};

use crate::diagnostic::Report;
use crate::functions::described::{
    DescribedObject, Description, ObjectKind, REPLICATED, delay, object, placement,
};
use crate::functions::settings::FunctionSettings;
use crate::kind::{Kind, Word};
use crate::objects::ObjectChoice;
use crate::section::{Default, Field, Section, Values};

/// The settings of the pass-through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassThroughSettings {
    /// What each packet does with the counter.
    pub access: Access,
}

/// What each packet does with the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Reads it.
    Read,
    /// Adds to it.
    Write,
    /// Both.
    ReadWrite,
}

object!(
    PACKETS,
    "function.pass-through.state.packets",
    "The counter that packets read or write.",
    [placement(REPLICATED), delay()]
);

pub(super) const PASS_THROUGH: Description<PassThroughSettings> = Description {
    name: "pass-through",
    settings: &SETTINGS,
    objects: &[DescribedObject {
        name: "packets",
        kind: ObjectKind::Counter,
        section: &PACKETS,
    }],
    together: &[],
    build,
};

static SETTINGS: Section = Section {
    path: "function.pass-through",
    meaning: "Forwards every packet unchanged: the minimal function, for measurements.",
    fields: &[Field {
        name: "access",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "none",
                    meaning: "Packets access no state.",
                },
                Word {
                    word: "read",
                    meaning: "Each packet reads the counter.",
                },
                Word {
                    word: "write",
                    meaning: "Each packet adds to the counter.",
                },
                Word {
                    word: "read-write",
                    meaning: "Each packet reads the counter and adds to it.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"write\""),
        meaning: "How each packet uses the counter.",
    }],
};

fn build(values: &Values, _: &mut Report) -> Option<PassThroughSettings> {
    Some(PassThroughSettings {
        access: match values.choice("access")? {
            "none" => Access::None,
            "read" => Access::Read,
            "read-write" => Access::ReadWrite,
            _ => Access::Write,
        },
    })
}

impl FunctionSettings for PassThroughSettings {
    type Function = PassThrough;

    fn function(&self, _: &[ObjectChoice]) -> Result<PassThrough, String> {
        Ok(PassThrough {
            access: match self.access {
                Access::None => pass_through::Access::None,
                Access::Read => pass_through::Access::Read,
                Access::Write => pass_through::Access::Write,
                Access::ReadWrite => pass_through::Access::ReadWrite,
            },
        })
    }

    fn words(&self) -> String {
        "every packet leaves as it came".to_owned()
    }
}
