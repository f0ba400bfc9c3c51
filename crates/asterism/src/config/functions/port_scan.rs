//! The settings of the port-scan detector.

use core::time::Duration;

use super::{
    DROP, Described, DescribedObject, ObjectKind, REPLICATED, Settings, absent, capacity, delay,
    object, placement,
};
use crate::config::diagnostic::Report;
use crate::config::kind::Kind;
use crate::config::section::{Default, Field, Section, Values};

/// What the port-scan detector is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortScanSettings {
    /// Distinct ports are counted over so long.
    pub window: Duration,
    /// A source that tries so many is a scanner.
    pub threshold: u32,
    /// How long it stays blocked.
    pub block: Duration,
}

object!(
    SOURCES,
    "function.port-scan.state.sources",
    "The ports that each source tried.",
    [
        placement(REPLICATED),
        delay(),
        absent(DROP),
        capacity("16_384")
    ]
);

pub(super) const PORT_SCAN: Described = Described {
    name: "port-scan",
    settings: &SETTINGS,
    objects: &[DescribedObject {
        name: "sources",
        kind: ObjectKind::Table,
        section: &SOURCES,
    }],
    together: &[],
    build,
};

static SETTINGS: Section = Section {
    path: "function.port-scan",
    meaning: "Detects and blocks sources that try many ports.",
    fields: &[
        Field {
            name: "window",
            kind: Kind::Duration {
                least: Duration::from_secs(1),
                most: Duration::from_secs(3600),
            },
            default: Default::Is("\"60s\""),
            meaning: "Distinct ports are counted over so long.",
        },
        Field {
            name: "threshold",
            kind: Kind::Count {
                least: 2,
                most: 65_535,
            },
            default: Default::Is("20"),
            meaning: "A source that tries so many distinct ports within the window is a scanner.",
        },
        Field {
            name: "block",
            kind: Kind::Duration {
                least: Duration::from_secs(1),
                most: Duration::from_secs(24 * 3600),
            },
            default: Default::Is("\"10m\""),
            meaning: "How long a scanner stays blocked.",
        },
    ],
};

fn build(values: &Values, _: &mut Report) -> Option<Settings> {
    Some(Settings::PortScan(PortScanSettings {
        window: values.duration("window")?,
        threshold: u32::try_from(values.count("threshold")?).ok()?,
        block: values.duration("block")?,
    }))
}
