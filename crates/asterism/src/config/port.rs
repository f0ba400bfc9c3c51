//! The ports of a host: which interfaces its packets come from and go to.

use core::ops::Range;
use std::path::PathBuf;

use super::diagnostic::{Diagnostic, Report};
use super::kind::{Kind, Word};
use super::section::{Default, Field, Section, Values};

/// The ports of a host, in the order of their numbers: every network function here has these two.
pub const NAMES: [&str; 2] = ["inside", "outside"];

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, one of [`NAMES`].
    pub name: &'static str,
    /// What it is.
    pub kind: PortKind,
    /// The interface, or for a shared-memory link what names its place.
    pub interface: String,
    /// The file of a shared-memory link, as written.
    pub path: PathBuf,
    /// Frames of its ring in each direction.
    pub ring_frames: usize,
    /// Whether frames for other stations are taken too.
    pub promiscuous: bool,
    /// The first receive queue (AF_XDP); instance number `n` has the queue `queue + n`.
    pub queue: u32,
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A packet socket with a ring, on any interface.
    AfPacket,
    /// An express-path socket, on one queue of an interface.
    AfXdp,
    /// An interface of its own, made when the host starts.
    Tap,
    /// A link to another process of this machine.
    SharedMemory,
}

impl PortKind {
    /// Its word in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PortKind::AfPacket => "af_packet",
            PortKind::AfXdp => "af_xdp",
            PortKind::Tap => "tap",
            PortKind::SharedMemory => "shared_memory",
        }
    }
}

/// The table `[port]`.
pub static PORTS: Section = Section {
    path: "port",
    meaning: "The ports of a host: where its packets come from and go to. Needed by `asterism run`; `replay` and `demo` have their own.",
    fields: &[
        Field {
            name: "inside",
            kind: Kind::Table(&INSIDE),
            default: Default::Unset("`asterism run` needs it"),
            meaning: "The side of the inside hosts, or of whoever speaks first.",
        },
        Field {
            name: "outside",
            kind: Kind::Table(&OUTSIDE),
            default: Default::Unset("`asterism run` needs it"),
            meaning: "The other side.",
        },
    ],
};

static INSIDE: Section = Section {
    path: "port.inside",
    meaning: "The port of the inside.",
    fields: FIELDS,
};
static OUTSIDE: Section = Section {
    path: "port.outside",
    meaning: "The port of the outside; fields as of the inside.",
    fields: FIELDS,
};

static FIELDS: &[Field] = &[
    Field {
        name: "kind",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "af_packet",
                    meaning: "A packet socket with a ring: any interface, no further demands.",
                },
                Word {
                    word: "af_xdp",
                    meaning: "An express-path socket on one queue of an interface, whose packets it takes away from the kernel.",
                },
                Word {
                    word: "tap",
                    meaning: "An interface of its own that is made when the host starts and goes with it.",
                },
                Word {
                    word: "shared_memory",
                    meaning: "A link to another process of this machine, through a file in memory.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"af_packet\""),
        meaning: "What the port is.",
    },
    Field {
        name: "interface",
        kind: Kind::Device,
        default: Default::Unset("needed by all kinds but `shared_memory`"),
        meaning: "The interface: one that exists, or of a `tap` the one to be made.",
    },
    Field {
        name: "path",
        kind: Kind::File,
        default: Default::Unset("needed by `shared_memory`, refused with others"),
        meaning: "The file that both ends of a shared-memory link name.",
    },
    Field {
        name: "ring",
        kind: Kind::Count {
            least: 64,
            most: 1 << 16,
        },
        default: Default::Is("4_096"),
        meaning: "Frames that fit its ring, in each direction; about 2 KiB of memory each. A power of two.",
    },
    Field {
        name: "promiscuous",
        kind: Kind::Flag,
        default: Default::Is("true"),
        meaning: "Whether the interface takes frames for stations other than its own, as a function with an Ethernet address of its own needs.",
    },
    Field {
        name: "queue",
        kind: Kind::Count {
            least: 0,
            most: 1_023,
        },
        default: Default::Unset("0; refused with kinds other than `af_xdp`"),
        meaning: "The interface's receive queue of the first packet loop; the next has the next.",
    },
];

/// Builds the ports; none at all is fine. `None` if anything is wrong.
pub(super) fn ports(values: &Values, written: bool, report: &mut Report) -> Option<Vec<Port>> {
    if !written {
        return Some(Vec::new());
    }
    let before = report.errors();
    let mut ports: Vec<(Port, Range<usize>)> = Vec::new();
    for name in NAMES {
        match (values.table(name), values.place(name)) {
            (Some(table), place) => {
                // A table in a table's head has no place of its own.
                let span = place.map_or(table.span.clone(), |place| place.key.clone());
                if let Some(port) = port(name, &table, &span, report) {
                    ports.push((port, span));
                }
            }
            (None, None) => report.add(
                Diagnostic::error(format!("the port `{name}` is missing"), values.span.clone())
                    .label("a host has the ports `inside` and `outside`")
                    .help(format!(
                        "add [port.{name}] with kind = \"af_packet\" and its interface"
                    )),
            ),
            (None, Some(_)) => {}
        }
    }
    if let [(first, place), (second, again)] = ports.as_slice()
        && (&first.interface, &first.path) == (&second.interface, &second.path)
    {
        report.add(
            Diagnostic::error("both ports are the same interface", again.clone())
                .also(place.clone(), "the other port")
                .help("write the interface of the other side in one of them"),
        );
    }
    (report.errors() == before).then(|| ports.into_iter().map(|(port, _)| port).collect())
}

fn port(
    name: &'static str,
    values: &Values,
    span: &Range<usize>,
    report: &mut Report,
) -> Option<Port> {
    let kind = match values.choice("kind")? {
        "af_xdp" => PortKind::AfXdp,
        "tap" => PortKind::Tap,
        "shared_memory" => PortKind::SharedMemory,
        _ => PortKind::AfPacket,
    };
    let word = kind.word();
    let (needed, refused) = match kind {
        PortKind::SharedMemory => ("path", "interface"),
        _ => ("interface", "path"),
    };
    if values.place(needed).is_none() {
        report.add(
            Diagnostic::error(
                format!("`{needed}` is missing in [port.{name}]"),
                span.clone(),
            )
            .label(format!("of kind \"{word}\""))
            .help(match needed {
                "path" => "write path = \"/dev/shm/asterism-link\"",
                _ => "write interface = \"eth1\"",
            }),
        );
    }
    let mut unused = vec![refused];
    if kind != PortKind::AfXdp {
        unused.push("queue");
    }
    if matches!(kind, PortKind::SharedMemory | PortKind::Tap)
        && values.place("promiscuous").is_some()
    {
        unused.push("promiscuous");
    }
    for field in unused {
        if values.place(field).is_some() {
            report.add(
                Diagnostic::error(
                    format!("`{field}` means nothing for a port of kind \"{word}\""),
                    values.span_of(field),
                )
                .help("leave it out"),
            );
        }
    }
    let ring_frames = usize::try_from(values.count("ring")?).ok()?;
    if !ring_frames.is_power_of_two() {
        let (below, above) = (
            ring_frames.next_power_of_two() / 2,
            ring_frames.next_power_of_two(),
        );
        report.add(
            Diagnostic::error("`ring` is no power of two", values.span_of("ring"))
                .help(format!("write {below} or {above}")),
        );
    }
    Some(Port {
        name,
        kind,
        interface: values.text("interface").unwrap_or_default(),
        path: values.text("path").map(PathBuf::from).unwrap_or_default(),
        ring_frames,
        promiscuous: values.flag("promiscuous")?,
        queue: values
            .count("queue")
            .and_then(|queue| u32::try_from(queue).ok())
            .unwrap_or(0),
    })
}
