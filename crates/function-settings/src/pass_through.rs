//! The settings of the function that changes nothing.

use asterism_functions::pass_through::{self, PassThrough};

use crate::described::{Description, REPLICATED, delay, objects, placement};
use crate::error::FunctionError;
use crate::objects::ObjectChoice;
use crate::settings::FunctionSettings;
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::kind::Kind;
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Default, Setting, Values, section};

/// The settings of the pass-through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassThroughSettings {
    /// What each packet does with the counter.
    pub access: Access,
}

choices! {
    /// What each packet does with the counter.
    pub enum Access {
        None = "none", "Packets access no state.";
        Read = "read", "Each packet reads the counter.";
        Write = "write", "Each packet adds to the counter.";
        ReadWrite = "read-write", "Each packet reads the counter and adds to it.";
    }
}

objects! {
    "pass-through":
    packets: Counter = "The counter that packets read or write.",
        [placement(REPLICATED), delay()];
}

pub(super) const PASS_THROUGH: Description<PassThroughSettings> = Description {
    name: "pass-through",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.pass-through",
        meaning: "Forwards every packet unchanged: the minimal function, for measurements.",
        fields: {
            access: Access = Setting {
                kind: Kind::Choice {
                    allowed: Access::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"write\""),
                meaning: "How each packet uses the counter.",
            },
        },
    };
}

fn build(values: &Values, _: &mut Report) -> Option<PassThroughSettings> {
    Some(PassThroughSettings {
        access: values.get(SETTINGS.access)?,
    })
}

impl FunctionSettings for PassThroughSettings {
    type Function = PassThrough;

    fn function(&self, _: &[ObjectChoice]) -> Result<PassThrough, FunctionError> {
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
