//! The settings of the function that copies packets to a port.

use asterism_functions::span::{self, Span};

use crate::diagnostic::Report;
use crate::functions::described::{
    DescribedObject, Description, LOCAL, ObjectKind, delay, object, placement,
};
use crate::functions::settings::FunctionSettings;
use crate::kind::{Kind, Word};
use crate::objects::ObjectChoice;
use crate::section::{Default, Field, Section, Values};

/// The settings of port mirroring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSettings {
    /// Which packets are copied.
    pub copied: Copied,
}

/// Which packets are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// All.
    Both,
    /// Those from inside.
    Outward,
    /// Those from outside.
    Inward,
}

object!(
    COPIES,
    "function.span.state.copies",
    "The counter of copies.",
    [placement(LOCAL), delay()]
);

pub(super) const SPAN: Description<SpanSettings> = Description {
    name: "span",
    settings: &SETTINGS,
    objects: &[DescribedObject {
        name: "copies",
        kind: ObjectKind::Counter,
        section: &COPIES,
    }],
    together: &[],
    build,
};

static SETTINGS: Section = Section {
    path: "function.span",
    meaning: "Port mirroring: sends a copy of each packet to the port `span`, for an intrusion detection system or a recorder. The packet goes on unchanged, and never waits for its copy.",
    fields: &[Field {
        name: "packets",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "both",
                    meaning: "Packets of both directions are copied.",
                },
                Word {
                    word: "outward",
                    meaning: "Packets from inside are copied.",
                },
                Word {
                    word: "inward",
                    meaning: "Packets from outside are copied.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"both\""),
        meaning: "The packets that are copied.",
    }],
};

fn build(values: &Values, _: &mut Report) -> Option<SpanSettings> {
    Some(SpanSettings {
        copied: match values.choice("packets")? {
            "outward" => Copied::Outward,
            "inward" => Copied::Inward,
            _ => Copied::Both,
        },
    })
}

impl FunctionSettings for SpanSettings {
    type Function = Span;
    const CHANGEABLE: &'static [&'static str] = &["packets"];

    fn function(&self, _: &[ObjectChoice]) -> Result<Span, String> {
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

    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let changed = (self != wanted).then(|| "packets".to_owned());
        Some(changed.into_iter().collect())
    }
}
