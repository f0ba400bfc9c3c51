//! The settings of the function that copies packets to a port.

use asterism_functions::span::{self, Span};

use crate::described::{Description, LOCAL, delay, objects, placement};
use crate::error::FunctionError;
use crate::objects::ObjectChoice;
use crate::settings::{FunctionSettings, changeable};
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::kind::Kind;
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{Default, Setting, Values, section};

/// The settings of port mirroring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSettings {
    /// Which packets are copied.
    pub copied: Copied,
}

choices! {
    /// Which packets are copied.
    pub enum Copied {
        Both = "both", "Packets of both directions are copied.";
        Outward = "outward", "Packets from inside are copied.";
        Inward = "inward", "Packets from outside are copied.";
    }
}

objects! {
    "span":
    copies: Counter = "The counter of copies.",
        [placement(LOCAL), delay()];
}

pub(super) const SPAN: Description<SpanSettings> = Description {
    name: "span",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.span",
        meaning: "Port mirroring: sends a copy of each packet to the port `span`, for an intrusion detection system or a recorder. The packet goes on unchanged, and never waits for its copy.",
        fields: {
            packets: Copied = Setting {
                kind: Kind::Choice {
                    allowed: Copied::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"both\""),
                meaning: "The packets that are copied.",
            },
        },
    };
}

fn build(values: &Values, _: &mut Report) -> Option<SpanSettings> {
    Some(SpanSettings {
        copied: values.get(SETTINGS.packets)?,
    })
}

impl FunctionSettings for SpanSettings {
    type Function = Span;
    changeable!(SETTINGS: packets = copied);

    fn function(&self, _: &[ObjectChoice]) -> Result<Span, FunctionError> {
        Ok(Span {
            copied: match self.copied {
                Copied::Both => span::Copied::Both,
                Copied::Outward => span::Copied::Outward,
                Copied::Inward => span::Copied::Inward,
            },
        })
    }

    fn words(&self) -> String {
        let which = match self.copied {
            Copied::Both => "each packet",
            Copied::Outward => "each packet from inside",
            Copied::Inward => "each packet from outside",
        };
        format!("a copy of {which} goes to the port span")
    }

    fn why_not_passed_by(&self) -> Option<&'static str> {
        Some("it delays nothing, and emissions of a stage that gets copies are not sent")
    }
}
