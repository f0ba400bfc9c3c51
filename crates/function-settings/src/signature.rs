//! The settings of the signature function.

use core::time::Duration;
use std::collections::BTreeMap;

use asterism_function::Tick;
use asterism_functions::signature::{
    Carrier, Fragments, Response, SIGNATURE_BYTES_MAX, SIGNATURE_BYTES_MIN, SIGNATURES_MAX,
    Signature, SignatureConfig, Signatures,
};

use crate::described::{
    DROP, Description, REPLICATED, absent, capacity, check_whole_seconds, delay, objects,
    placement, release,
};
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice};
use crate::settings::{FunctionSettings, changeable};
use asterism_notation::value::show_duration;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Setting, Values, section};

/// The settings of the signature function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureSettings {
    /// What to find.
    pub signatures: Vec<Wanted>,
    /// The target that a found signature blocks, and for how long; `None`: signatures are only reported.
    pub block: Option<(Blocked, Duration)>,
    /// Bytes of the shortest piece that is recorded.
    pub min_piece: u8,
    /// How long a segment waits for what comes before it.
    pub wait: Duration,
    /// Whether IP fragments are dropped.
    pub drops_fragments: bool,
    /// Whether a stream that is cut into too many pieces is blocked.
    pub strict: bool,
    /// Whether TCP streams are reassembled.
    pub reassembly: bool,
}

/// What a signature that was found blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The connection.
    Connection,
    /// All that the source sends.
    Source,
}

/// A signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What alerts call it.
    pub id: u32,
    /// The name of its table.
    pub message: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether it is looked for in TCP, and in UDP.
    pub carriers: (bool, bool),
    /// Destination ports; none: all.
    pub ports: Vec<u16>,
}

objects! {
    "signature":
    pieces: Conversations = "Pieces of signatures at segment edges; an entry for each 16 KiB of a stream with pieces.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("65_536")];
    blocked: Table = "Connections or sources blocked for a signature.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    manual: Table = "Sources blocked manually.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    alerts: Conversations = "Signatures found: one for each stream and signature.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("8_192")];
    short: Counter = "TCP segments that are not inspected, with fewer bytes than the shortest piece.",
        [placement(REPLICATED), delay()];
    fragments: Counter = "IP fragments, which are not inspected.",
        [placement(REPLICATED), delay()];
    unrecorded: Counter = "How often an entry found no room.",
        [placement(REPLICATED), delay()];
    streams: Conversations = "With `reassembly`: reassembled TCP streams, an entry for each direction with data.",
        [placement(REPLICATED), delay(), absent(DROP), release(), capacity("65_536")];
    out_of_order: Counter = "With `reassembly`: segments that left a gap in their stream before them.",
        [placement(REPLICATED), delay()];
    gaps: Counter = "With `reassembly`: gaps that were given up, as a stream had too many.",
        [placement(REPLICATED), delay()];
}

pub(super) const SIGNATURE: Description<SignatureSettings> = Description {
    name: "signature",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.signature",
        meaning: "Finds byte signatures in packets, even if a stream's segments pass through different hosts; can block the sender.",
        fields: {
            signatures: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: WANTED.section(),
                    most: SIGNATURES_MAX,
                },
                default: Default::Unset("refused: there is nothing to find"),
                meaning: "The signatures: a table for each, whose name alerts show. `asterism reload` takes up changed ones: reload all hosts.",
            },
            response: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "detect",
                            meaning: "An alert is raised; every packet passes.",
                        },
                        Word {
                            word: "block",
                            meaning: "The packet that completes a signature is dropped. Every host drops both directions of its connection for the time `block`.",
                        },
                        Word {
                            word: "block-source",
                            meaning: "The packet is dropped. Every host drops all packets of its source for the time `block`.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"detect\""),
                meaning: "The response to a signature that was found.",
            },
            block: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_secs(1),
                    most: Duration::from_secs(7 * 24 * 3600),
                },
                default: Default::Is("\"10m\""),
                meaning: "How long a connection or a source is blocked, in whole seconds.",
            },
            min_piece: u64 = Setting {
                kind: Kind::Count { least: 1, most: 4 },
                default: Default::Is("2"),
                meaning: "Bytes of the shortest signature piece that is recorded at a segment's edge. With 1 every split is found, and many more segments write to the state.",
            },
            wait: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::from_millis(100),
                },
                default: Default::Is("\"0ms\""),
                meaning: "With a response that blocks: how long a segment that may continue a signature waits for preceding segments.",
            },
            fragments: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "pass",
                            meaning: "Fragments pass, counted.",
                        },
                        Word {
                            word: "drop",
                            meaning: "Fragments are dropped, counted.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"pass\""),
                meaning: "What happens to IP fragments, in which no signature is looked for.",
            },
            strict: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether a blocking response also applies to a stream that is cut into more pieces than are kept. With `reassembly`: whether it drops a segment that leaves too many gaps, or finds the table of streams full.",
            },
            reassembly: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether TCP streams are reassembled, so that no split hides a signature. Every segment with new data then writes an entry of `streams`.",
            },
        },
    };
}

section! {
    static WANTED: WantedKeys = {
        path: "function.signature.signatures.NAME",
        meaning: "A signature. Alerts show its name, which is quoted if it has characters other than a-z, 0-9 and hyphens.",
        fields: {
            id: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: u32::MAX as u64,
                },
                default: Default::Required("1_000_001"),
                meaning: "The signature's number in alerts, different for each.",
            },
            bytes: Vec<u8> = Setting {
                kind: Kind::Bytes {
                    least: SIGNATURE_BYTES_MIN,
                    most: SIGNATURE_BYTES_MAX,
                },
                default: Default::Required("\"GET /evil|0d 0a|\""),
                meaning: "The bytes as text, and between bars as hexadecimal numbers. Case matters.",
            },
            protocol: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "any",
                            meaning: "TCP and UDP.",
                        },
                        Word {
                            word: "tcp",
                            meaning: "TCP, also across segments.",
                        },
                        Word {
                            word: "udp",
                            meaning: "UDP, within one datagram.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"any\""),
                meaning: "The protocol.",
            },
            ports: List<u64> = Setting {
                kind: Kind::List {
                    of: &Kind::Count {
                        least: 0,
                        most: 65_535,
                    },
                    most: 1_024,
                },
                default: Default::Is("[]"),
                meaning: "The destination ports that are inspected; none: all.",
            },
        },
    };
}

fn build(values: &Values, report: &mut Report) -> Option<SignatureSettings> {
    let response = values.get(SETTINGS.response)?;
    if response == "detect" {
        for field in [SETTINGS.block, SETTINGS.wait] {
            if let Some(place) = values.place(field) {
                report.add(
                    Diagnostic::error(
                        format!("`{field}` has no meaning with the response \"detect\""),
                        place.key.clone(),
                    )
                    .help(format!(
                        "leave `{field}` out, or choose response = \"block\""
                    )),
                );
            }
        }
    }
    check_whole_seconds(values, SETTINGS.block, report);
    let tables = values.get(SETTINGS.signatures).unwrap_or_default();
    if tables.is_empty() {
        report.add(
            Diagnostic::error("there is no signature to find", values.span_of(SETTINGS.signatures)).help(
                "write a table for each, such as [function.signature.signatures.example] with id = 1 and bytes = \"GET /evil\"",
            ),
        );
    }
    let mut ids = BTreeMap::new();
    let mut signatures = Vec::with_capacity(tables.len());
    for table in &tables {
        let Some(signature) = wanted(table) else {
            continue;
        };
        if let Some(other) = ids.insert(signature.id, table.name.clone()) {
            report.add(
                Diagnostic::error(
                    format!("`{}` has the id of `{other}`", table.name),
                    table.values.span_of(WANTED.id),
                )
                .help("give each signature an id of its own"),
            );
        }
        signatures.push(signature);
    }
    Some(SignatureSettings {
        signatures,
        block: match response {
            "block" => Some((Blocked::Connection, values.get(SETTINGS.block)?)),
            "block-source" => Some((Blocked::Source, values.get(SETTINGS.block)?)),
            _ => None,
        },
        min_piece: u8::try_from(values.get(SETTINGS.min_piece)?).ok()?,
        wait: values.get(SETTINGS.wait)?,
        drops_fragments: values.get(SETTINGS.fragments)? == "drop",
        strict: values.get(SETTINGS.strict)?,
        reassembly: values.get(SETTINGS.reassembly)?,
    })
}

/// A signature; `None` if anything in its table is wrong, which was said.
fn wanted(table: &NamedValues) -> Option<Wanted> {
    let values = &table.values;
    let ports = values.get(WANTED.ports)?.into_iter();
    let protocol = values.get(WANTED.protocol)?;
    Some(Wanted {
        id: u32::try_from(values.get(WANTED.id)?).ok()?,
        message: table.name.clone(),
        bytes: values.get(WANTED.bytes)?,
        carriers: (protocol != "udp", protocol != "tcp"),
        ports: ports
            .filter_map(|(port, _)| u16::try_from(port).ok())
            .collect(),
    })
}

impl FunctionSettings for SignatureSettings {
    type Function = Signatures;
    // What to find: all else is what the state was made of, or how it is written.
    changeable!(SETTINGS: signatures = signatures);

    fn function(&self, objects: &[ObjectChoice]) -> Result<Signatures, FunctionError> {
        let of = |name| objects::capacity(objects, name);
        Signatures::new(SignatureConfig {
            pieces_max: of(OBJECT.pieces),
            streams_max: of(OBJECT.streams),
            alerts_max: of(OBJECT.alerts)
                .max(of(OBJECT.blocked))
                .max(of(OBJECT.manual)),
            ..config(self)
        })
        .map_err(FunctionError::Signatures)
    }

    fn words(&self) -> String {
        let response = match self.block {
            Some((Blocked::Connection, time)) => {
                format!("its connection is blocked for {}", show_duration(time))
            }
            Some((Blocked::Source, time)) => {
                format!("its source is blocked for {}", show_duration(time))
            }
            None => "it is reported".to_owned(),
        };
        let signatures = match self.signatures.len() {
            1 => "1 signature is".to_owned(),
            count => format!("{count} signatures are"),
        };
        format!(
            "{signatures} looked for, in TCP also over several segments; where one is found {response}"
        )
    }
}

/// The settings in the function's own words, with its own capacities.
fn config(settings: &SignatureSettings) -> SignatureConfig {
    let seconds = |time: Duration| Tick::try_from(time.as_secs()).unwrap_or(Tick::MAX);
    let signatures = settings.signatures.iter().map(|wanted| Signature {
        id: wanted.id,
        message: wanted.message.clone(),
        bytes: wanted.bytes.clone(),
        carrier: match wanted.carriers {
            (true, false) => Carrier::Tcp,
            (false, true) => Carrier::Udp,
            _ => Carrier::Any,
        },
        ports: wanted.ports.clone(),
    });
    SignatureConfig {
        response: match settings.block {
            None => Response::Detect,
            Some((Blocked::Connection, time)) => Response::BlockConnection {
                block_s: seconds(time),
            },
            Some((Blocked::Source, time)) => Response::BlockSource {
                block_s: seconds(time),
            },
        },
        min_piece: settings.min_piece,
        wait_us: u32::try_from(settings.wait.as_micros()).unwrap_or(u32::MAX),
        fragments: if settings.drops_fragments {
            Fragments::Drop
        } else {
            Fragments::Pass
        },
        strict: settings.strict,
        reassembly: settings.reassembly,
        ..SignatureConfig::new(signatures.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    #[test]
    fn what_is_written_is_what_is_looked_for() {
        let text = "[function.signature.signatures.example]\nid = 7\nbytes = \"GET /|7C 0d0a|\"\nports = [80]";
        let (function, report) = Function::alone(text);
        let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
        let Settings::Signature(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        let example = Signature {
            id: 7,
            message: "example".into(),
            bytes: b"GET /|\r\n".to_vec(),
            carrier: Carrier::Any,
            ports: vec![80],
        };
        assert_eq!(*made.config(), SignatureConfig::new(vec![example]));
    }

    #[test]
    fn signatures_may_change_while_it_runs_and_nothing_else() {
        const LIST: &str = "signatures.one = { id = 1, bytes = \"GET /one\" }\n";
        let read = |text: &str| {
            let text = format!("[function.signature]\n{text}");
            let (function, report) = Function::alone(&text);
            let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
            let Settings::Signature(settings) = function.settings else {
                panic!()
            };
            settings
        };
        let now = read(LIST);
        assert_eq!(
            now.change_to(&read(&format!("# a comment\n{LIST}"))),
            Some(Vec::new())
        );
        for other in [
            "signatures.one = { id = 1, bytes = \"GET /two\" }".to_owned(),
            "signatures.two = { id = 1, bytes = \"GET /one\" }".to_owned(),
            format!("{LIST}signatures.two = {{ id = 2, bytes = \"GET /one\", ports = [80] }}"),
        ] {
            let changed = now.change_to(&read(&other)).expect("they can change");
            assert_eq!(changed, SignatureSettings::CHANGEABLE, "{other}");
        }
        for other in [
            "response = \"block\"",
            "min_piece = 3",
            "fragments = \"drop\"",
            "reassembly = true",
        ] {
            assert_eq!(
                now.change_to(&read(&format!("{other}\n{LIST}"))),
                None,
                "{other}"
            );
        }
    }
}
