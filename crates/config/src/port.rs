//! The ports of a host: which interfaces its packets come from and go to.

use core::ops::Range;
use std::path::PathBuf;

use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::choices;
use asterism_toml_schema::section::{
    ChosenWord, Default, FieldName, Key, Section, Setting, Values, section,
};

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

choices! {
    /// The kind of a port.
    pub enum PortKind {
        AfPacket = "af_packet", "A packet socket with a ring: any interface, no further requirements.";
        AfXdp = "af_xdp", "An express-path socket on one queue of an interface. The kernel does not see its packets.";
        Tap = "tap", "A new interface, made when the host starts and removed when it ends.";
        SharedMemory = "shared_memory", "A link to another process of this machine, through shared memory.";
    }
}

section! {
    /// The table `[port]`.
    pub(crate) static PORTS: PortsKeys = {
        path: "port",
        meaning: "The ports by which packets enter and leave a host. Needed by `asterism run`; `replay` and `demo` have their own.",
        fields: {
            inside: Values = Setting {
                kind: Kind::Table(PORT.section()),
                default: Default::Unset("`asterism run` needs it"),
                meaning: "The side of the inside hosts.",
            },
            outside: Values = Setting {
                kind: Kind::Table(&OUTSIDE),
                default: Default::Unset("`asterism run` needs it"),
                meaning: "The other side.",
            },
            span: Values = Setting {
                kind: Kind::Table(&SPAN_FIELDS),
                default: Default::Unset("nothing is copied"),
                meaning: "Where [function.span] sends copies: to an intrusion detection system or a recorder. Packets received there are dropped.",
            },
        },
    };
}

section! {
    pub(super) static PORT: PortKeys = {
        path: "port.inside",
        meaning: "The port of the inside.",
        fields: {
            kind: PortKind = Setting {
                kind: Kind::Choice {
                    allowed: PortKind::WORDS,
                    refused: &[],
                },
                default: Default::Is("\"af_packet\""),
                meaning: "The kind of port.",
            },
            interface: String = Setting {
                kind: Kind::Device,
                default: Default::Unset("needed by all kinds but `shared_memory`"),
                meaning: "The interface: an existing one, or for a `tap` the new one.",
            },
            path: String = Setting {
                kind: Kind::File,
                default: Default::Unset("needed by `shared_memory`, refused with others"),
                meaning: "The Unix socket where both ends of a shared-memory link meet. Its folder must exist.",
            },
            role: ChosenWord = Setting {
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
            mode: ChosenWord = Setting {
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
            offloads: ChosenWord = Setting {
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
            mtu: u64 = Setting {
                kind: Kind::Count {
                    least: 68,
                    most: asterism_io::port::TAP_MTU_MAX as u64,
                },
                default: Default::Unset("1500 for a new interface; refused with kinds other than `tap`"),
                meaning: "The MTU of a TAP.",
            },
            persistent: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether a TAP and its addresses stay when the host ends.",
            },
            ring: u64 = Setting {
                kind: Kind::Count {
                    least: 64,
                    most: 1 << 16,
                },
                default: Default::Is("4_096"),
                meaning: "Frames in the ring, in each direction; about 2 KiB of memory each. A power of two.",
            },
            promiscuous: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("true"),
                meaning: "Whether the interface accepts frames to other stations, as needed by a function with its own Ethernet address.",
            },
            merge: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether consecutive TCP segments leave merged into one packet, with `af_packet` and mode `ring`. The network card cuts it again, or the kernel where offloads are off. Faster for bulk. A veth or TAP interface with offloads on does not cut: leave `merge` off there.",
            },
            exclusive: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether the kernel's own network stack gets none of the arriving packets, with `af_packet`: no answers, routing or forwarding by the kernel, and less work. Needs Linux 6.6, CAP_BPF and CAP_NET_ADMIN.",
            },
            queue: u64 = Setting {
                kind: Kind::Count {
                    least: 0,
                    most: 1_023,
                },
                default: Default::Unset("0; refused with kinds other than `af_xdp`"),
                meaning: "The interface's receive queue. Packets of other queues go to the kernel: let the interface use one queue (`ethtool -L`).",
            },
        },
    };
}

static OUTSIDE: Section = Section {
    path: "port.outside",
    meaning: "The port of the outside; fields as of the inside.",
    fields: PORT.section().fields,
};

static SPAN_FIELDS: Section = Section {
    path: "port.span",
    meaning: "The port for copies; fields as of the inside. It only sends.",
    fields: PORT.section().fields,
};

impl PortsKeys {
    /// The table of the port of this name.
    pub(super) fn of(&self, name: &str) -> Key<Values> {
        match name {
            SPAN => self.span,
            "outside" => self.outside,
            _ => self.inside,
        }
    }
}

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
        match (values.get(PORTS.of(name)), values.place(PORTS.of(name))) {
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
    if let Some(table) = values.get(PORTS.span) {
        let place = values.place(PORTS.span);
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

/// Reads the table of the port of this name, which is at `span`. `None` if anything is wrong.
fn port(
    name: &'static str,
    values: &Values,
    span: &Range<usize>,
    instances: u64,
    report: &mut Report,
) -> Option<Port> {
    let kind = values.get(PORT.kind)?;
    check_needed(name, kind, values, span, report);
    check_instances(kind, values, span, instances, report);
    check_unused(kind, values, report);
    let mode = mode(kind, values, report);
    check_merge(mode, values, report);
    let ring_frames = ring_frames(values, report)?;
    let number = |field| u32::try_from(values.get(field)?).ok();
    Some(Port {
        name,
        kind,
        interface: values.get(PORT.interface).unwrap_or_default(),
        path: values.get(PORT.path).map(PathBuf::from).unwrap_or_default(),
        ring_frames,
        promiscuous: values.get(PORT.promiscuous)?,
        merges: values.get(PORT.merge)?,
        exclusive: values.get(PORT.exclusive)?,
        queue: number(PORT.queue).unwrap_or(0),
        mode: mode?,
        offloads_off: values.get(PORT.offloads)? == "off",
        mtu: number(PORT.mtu),
        persistent: values.get(PORT.persistent)?,
        listens: values.get(PORT.role) == Some("listen"),
    })
}

/// Refuses a port without what its kind needs.
fn check_needed(
    name: &str,
    kind: PortKind,
    values: &Values,
    span: &Range<usize>,
    report: &mut Report,
) {
    const ROLES: &str = "write role = \"listen\" at one end and role = \"connect\" at the other";
    let needed = match kind {
        PortKind::SharedMemory => &[
            (
                PORT.path.field_name(),
                "write path = \"/dev/shm/asterism-link\"",
            ),
            (PORT.role.field_name(), ROLES),
        ][..],
        _ => &[(PORT.interface.field_name(), "write interface = \"eth1\"")],
    };
    for (field, help) in needed {
        if values.place(*field).is_none() {
            report.add(
                Diagnostic::error(
                    format!("`{field}` is missing in [port.{name}]"),
                    span.clone(),
                )
                .label(format!("of kind \"{}\"", kind.word()))
                .help(*help),
            );
        }
    }
}

/// Refuses a port that several packet loops would have to share.
fn check_instances(
    kind: PortKind,
    values: &Values,
    span: &Range<usize>,
    instances: u64,
    report: &mut Report,
) {
    if instances > 1 && matches!(kind, PortKind::SharedMemory | PortKind::AfXdp) {
        let place = values
            .place(PORT.kind)
            .map_or(span.clone(), |place| place.value.clone());
        report.add(
            Diagnostic::error(
                format!("a port of kind \"{}\" serves one packet loop", kind.word()),
                place,
            )
            .label(format!("the host has {instances}"))
            .help("write instances = 1 in [host], or take kind = \"af_packet\" or \"tap\""),
        );
    }
}

/// The fields that mean something for some kinds of port alone, and those kinds.
fn fields_of_kinds() -> [(FieldName, &'static [PortKind]); 12] {
    use PortKind::{AfPacket, AfXdp, SharedMemory, Tap};
    [
        (PORT.interface.field_name(), &[AfPacket, AfXdp, Tap]),
        (PORT.path.field_name(), &[SharedMemory]),
        (PORT.queue.field_name(), &[AfXdp]),
        (PORT.promiscuous.field_name(), &[AfPacket]),
        (PORT.merge.field_name(), &[AfPacket]),
        (PORT.exclusive.field_name(), &[AfPacket]),
        (PORT.mode.field_name(), &[AfPacket, AfXdp]),
        (PORT.offloads.field_name(), &[AfPacket, AfXdp]),
        (PORT.mtu.field_name(), &[Tap]),
        (PORT.persistent.field_name(), &[Tap]),
        (PORT.role.field_name(), &[SharedMemory]),
        (PORT.ring.field_name(), &[AfPacket, AfXdp, SharedMemory]),
    ]
}

fn check_unused(kind: PortKind, values: &Values, report: &mut Report) {
    for (field, kinds) in fields_of_kinds() {
        if !kinds.contains(&kind) && values.place(field).is_some() {
            report.add(
                Diagnostic::error(
                    format!(
                        "`{field}` means nothing for a port of kind \"{}\"",
                        kind.word()
                    ),
                    values.span_of(field),
                )
                .help("leave it out"),
            );
        }
    }
}

fn check_merge(mode: Option<PortMode>, values: &Values, report: &mut Report) {
    if mode == Some(PortMode::Bulk) && values.get(PORT.merge) == Some(true) {
        report.add(
            Diagnostic::error(
                "`merge` means nothing in mode \"bulk\"",
                values.span_of(PORT.merge),
            )
            .help("leave it out: in this mode packets leave at the length at which they arrived"),
        );
    }
}

fn ring_frames(values: &Values, report: &mut Report) -> Option<usize> {
    let frames = usize::try_from(values.get(PORT.ring)?).ok()?;
    if !frames.is_power_of_two() {
        let above = frames.next_power_of_two();
        report.add(
            Diagnostic::error("`ring` is no power of two", values.span_of(PORT.ring))
                .help(format!("write {} or {above}", above / 2)),
        );
    }
    Some(frames)
}

fn mode(kind: PortKind, values: &Values, report: &mut Report) -> Option<PortMode> {
    let (mode, of) = match (values.get(PORT.mode), kind) {
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
                values.span_of(PORT.mode),
            )
            .help(format!("write {words}")),
        );
        return None;
    }
    Some(mode)
}
