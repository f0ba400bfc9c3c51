//! The ports of a host: which interfaces its packets come from and go to.

use core::ops::Range;
use std::path::PathBuf;

use super::diagnostic::{Diagnostic, Report};
use super::kind::{Kind, Word};
use super::section::{Default, Field, Section, Values};

/// The ports of a host, in the order of their numbers: every network function here has these two.
pub const NAMES: [&str; 2] = ["inside", "outside"];

/// The port that copies go to, if there is one: its number is the one behind those.
pub const SPAN: &str = "span";

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, one of [`NAMES`], or [`SPAN`].
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
    /// Whether TCP segments leave merged, for the interface to cut (AF_PACKET, ring).
    pub merges: bool,
    /// Whether the kernel's own network stack sees nothing of the interface (AF_PACKET).
    pub exclusive: bool,
    /// The receive queue (AF_XDP).
    pub queue: u32,
    /// How packets are moved, where there is a choice.
    pub mode: PortMode,
    /// Whether the interface's offloads are switched off while the port is open; of a TAP, never on.
    pub offloads_off: bool,
    /// The MTU of a TAP to be made.
    pub mtu: Option<u32>,
    /// Whether a TAP stays when the port closes.
    pub persistent: bool,
    /// Which end of a shared-memory link it is.
    pub listens: bool,
}

/// How packets are moved, where a kind of port has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// AF_PACKET: by a ring; the default of all kinds.
    Ring,
    /// AF_PACKET: by messages of up to 64 KiB, with offloads.
    Bulk,
    /// AF_XDP: in the driver.
    Native,
    /// AF_XDP: behind the driver.
    Generic,
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
    meaning: "The ports by which packets enter and leave a host. Needed by `asterism run`; `replay` and `demo` have their own.",
    fields: &[
        Field {
            name: "inside",
            kind: Kind::Table(&INSIDE),
            default: Default::Unset("`asterism run` needs it"),
            meaning: "The side of the inside hosts.",
        },
        Field {
            name: "outside",
            kind: Kind::Table(&OUTSIDE),
            default: Default::Unset("`asterism run` needs it"),
            meaning: "The other side.",
        },
        Field {
            name: SPAN,
            kind: Kind::Table(&SPAN_FIELDS),
            default: Default::Unset("nothing is copied"),
            meaning: "Where [function.span] sends copies: to an intrusion detection system or a recorder. Packets received there are dropped.",
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

static SPAN_FIELDS: Section = Section {
    path: "port.span",
    meaning: "The port for copies; fields as of the inside. It only sends.",
    fields: FIELDS,
};

static FIELDS: &[Field] = &[
    Field {
        name: "kind",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "af_packet",
                    meaning: "A packet socket with a ring: any interface, no further requirements.",
                },
                Word {
                    word: "af_xdp",
                    meaning: "An express-path socket on one queue of an interface. The kernel does not see its packets.",
                },
                Word {
                    word: "tap",
                    meaning: "A new interface, made when the host starts and removed when it ends.",
                },
                Word {
                    word: "shared_memory",
                    meaning: "A link to another process of this machine, through shared memory.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"af_packet\""),
        meaning: "The kind of port.",
    },
    Field {
        name: "interface",
        kind: Kind::Device,
        default: Default::Unset("needed by all kinds but `shared_memory`"),
        meaning: "The interface: an existing one, or for a `tap` the new one.",
    },
    Field {
        name: "path",
        kind: Kind::File,
        default: Default::Unset("needed by `shared_memory`, refused with others"),
        meaning: "The Unix socket where both ends of a shared-memory link meet. Its folder must exist.",
    },
    Field {
        name: "role",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "listen",
                    meaning: "This end creates the socket and the memory.",
                },
                Word {
                    word: "connect",
                    meaning: "This end connects, and takes over the sizes of the other end.",
                },
            ],
            refused: &[],
        },
        default: Default::Unset("needed by `shared_memory`, refused with others"),
        meaning: "This end of a shared-memory link. Either end may start first.",
    },
    Field {
        name: "mode",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "ring",
                    meaning: "`af_packet`: a ring that the kernel fills, with packets as on the wire: the most packets a second.",
                },
                Word {
                    word: "bulk",
                    meaning: "`af_packet`: messages of up to 64 KiB with checksums and segmentation still to do: the most bytes a second.",
                },
                Word {
                    word: "native",
                    meaning: "`af_xdp`: in the driver, which must support XDP.",
                },
                Word {
                    word: "generic",
                    meaning: "`af_xdp`: behind the driver, on any interface.",
                },
            ],
            refused: &[],
        },
        default: Default::Unset("`ring` or `native`, by the kind"),
        meaning: "How packets are moved, with `af_packet` and `af_xdp`.",
    },
    Field {
        name: "offloads",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "keep",
                    meaning: "The offloads stay as they are.",
                },
                Word {
                    word: "off",
                    meaning: "Checksums, segmentation and coalescing are switched off while the port is open. Needs CAP_NET_ADMIN.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"keep\""),
        meaning: "The interface's offloads, with `af_packet` and `af_xdp`.",
    },
    Field {
        name: "mtu",
        kind: Kind::Count {
            least: 68,
            most: asterism_io::port::TAP_MTU_MAX as u64,
        },
        default: Default::Unset("1500 for a new interface; refused with kinds other than `tap`"),
        meaning: "The MTU of a TAP.",
    },
    Field {
        name: "persistent",
        kind: Kind::Flag,
        default: Default::Is("false"),
        meaning: "Whether a TAP and its addresses stay when the host ends.",
    },
    Field {
        name: "ring",
        kind: Kind::Count {
            least: 64,
            most: 1 << 16,
        },
        default: Default::Is("4_096"),
        meaning: "Frames in the ring, in each direction; about 2 KiB of memory each. A power of two.",
    },
    Field {
        name: "promiscuous",
        kind: Kind::Flag,
        default: Default::Is("true"),
        meaning: "Whether the interface accepts frames to other stations, as needed by a function with its own Ethernet address.",
    },
    Field {
        name: "merge",
        kind: Kind::Flag,
        default: Default::Is("false"),
        meaning: "Whether consecutive TCP segments leave merged into one packet, with `af_packet` and mode `ring`. The network card cuts it again, or the kernel where offloads are off. Faster for bulk. A veth or TAP interface with offloads on does not cut: leave `merge` off there.",
    },
    Field {
        name: "exclusive",
        kind: Kind::Flag,
        default: Default::Is("false"),
        meaning: "Whether the kernel's own network stack gets none of the arriving packets, with `af_packet`: no answers, routing or forwarding by the kernel, and less work. Needs Linux 6.6, CAP_BPF and CAP_NET_ADMIN.",
    },
    Field {
        name: "queue",
        kind: Kind::Count {
            least: 0,
            most: 1_023,
        },
        default: Default::Unset("0; refused with kinds other than `af_xdp`"),
        meaning: "The interface's receive queue. Packets of other queues go to the kernel: let the interface use one queue (`ethtool -L`).",
    },
];

/// Builds the ports; none at all is fine. `None` if anything is wrong.
pub(super) fn ports(
    values: &Values,
    written: bool,
    instances: u64,
    report: &mut Report,
) -> Option<Vec<Port>> {
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
                if let Some(port) = port(name, &table, &span, instances, report) {
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
    if let Some(table) = values.table(SPAN) {
        let place = values.place(SPAN);
        let span = place.map_or(table.span.clone(), |place| place.key.clone());
        if let Some(port) = port(SPAN, &table, &span, instances, report) {
            ports.push((port, span));
        }
    }
    for (number, (second, again)) in ports.iter().enumerate() {
        let same = |(first, _): &&(Port, _)| {
            (&first.interface, &first.path) == (&second.interface, &second.path)
        };
        if let Some((_, place)) = ports[..number].iter().find(same) {
            report.add(
                Diagnostic::error("both ports are the same interface", again.clone())
                    .also(place.clone(), "the other port")
                    .help("write the interface of the other side in one of them"),
            );
        }
    }
    (report.errors() == before).then(|| ports.into_iter().map(|(port, _)| port).collect())
}

fn port(
    name: &'static str,
    values: &Values,
    span: &Range<usize>,
    instances: u64,
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
    if kind == PortKind::SharedMemory && values.place("role").is_none() {
        report.add(
            Diagnostic::error(format!("`role` is missing in [port.{name}]"), span.clone())
                .label(format!("of kind \"{word}\""))
                .help("write role = \"listen\" at one end and role = \"connect\" at the other"),
        );
    }
    if instances > 1 && matches!(kind, PortKind::SharedMemory | PortKind::AfXdp) {
        let place = values
            .place("kind")
            .map_or(span.clone(), |place| place.value.clone());
        report.add(
            Diagnostic::error(
                format!("a port of kind \"{word}\" serves one packet loop"),
                place,
            )
            .label(format!("the host has {instances}"))
            .help("write instances = 1 in [host], or take kind = \"af_packet\" or \"tap\""),
        );
    }
    let mut unused = vec![refused];
    let of = |kinds: &[PortKind], field: &'static str| (!kinds.contains(&kind)).then_some(field);
    let (packet, xdp, tap) = (PortKind::AfPacket, PortKind::AfXdp, PortKind::Tap);
    unused.extend(of(&[xdp], "queue"));
    unused.extend(of(&[packet], "promiscuous"));
    unused.extend(of(&[packet], "merge"));
    unused.extend(of(&[packet], "exclusive"));
    unused.extend(of(&[packet, xdp], "mode"));
    unused.extend(of(&[packet, xdp], "offloads"));
    unused.extend(of(&[tap], "mtu"));
    unused.extend(of(&[tap], "persistent"));
    unused.extend(of(&[PortKind::SharedMemory], "role"));
    unused.extend(of(&[packet, xdp, PortKind::SharedMemory], "ring"));
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
    let mode = mode(kind, values, report);
    if mode == Some(PortMode::Bulk) && values.flag("merge") == Some(true) {
        report.add(
            Diagnostic::error(
                "`merge` means nothing in mode \"bulk\"",
                values.span_of("merge"),
            )
            .help("leave it out: in this mode packets leave at the length at which they arrived"),
        );
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
        merges: values.flag("merge")?,
        exclusive: values.flag("exclusive")?,
        queue: values
            .count("queue")
            .and_then(|queue| u32::try_from(queue).ok())
            .unwrap_or(0),
        mode: mode?,
        offloads_off: values.choice("offloads")? == "off",
        mtu: values.count("mtu").and_then(|mtu| u32::try_from(mtu).ok()),
        persistent: values.flag("persistent")?,
        listens: values.choice("role") == Some("listen"),
    })
}

fn mode(kind: PortKind, values: &Values, report: &mut Report) -> Option<PortMode> {
    let (mode, of) = match (values.choice("mode"), kind) {
        (None, PortKind::AfXdp) => (PortMode::Native, kind),
        (None, _) => (PortMode::Ring, kind),
        (Some("bulk"), _) => (PortMode::Bulk, PortKind::AfPacket),
        (Some("native"), _) => (PortMode::Native, PortKind::AfXdp),
        (Some("generic"), _) => (PortMode::Generic, PortKind::AfXdp),
        (Some(_), _) => (PortMode::Ring, PortKind::AfPacket),
    };
    // Kinds without a choice are refused elsewhere.
    if of != kind && matches!(kind, PortKind::AfPacket | PortKind::AfXdp) {
        let words = match kind {
            PortKind::AfXdp => "\"native\" or \"generic\"",
            _ => "\"ring\" or \"bulk\"",
        };
        report.add(
            Diagnostic::error(
                format!("this is no mode of a port of kind \"{}\"", kind.word()),
                values.span_of("mode"),
            )
            .help(format!("write {words}")),
        );
        return None;
    }
    Some(mode)
}
