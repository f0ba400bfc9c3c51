//! `asterism audit`: whether this host's tables equal those of the other hosts, and repair of the others from this host.

use std::time::Duration;

use asterism_config::functions::Functions;
use asterism_engine::Removal;
use asterism_engine::transport::ChannelSnapshot;
use asterism_output::End;
use asterism_output::{Output, Schema};
use asterism_placement::MemberId;
use asterism_placement::replicated::audit::{CYCLE, LEAVES, Place, SEGMENT_LEAVES};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Ask;
use super::client::{Which, ask};
use crate::view::{Names, StatusDocument};

/// Time limit for a host's answer; re-writing a large table takes a while.
const WITHIN: Duration = Duration::from_secs(60);
/// Turns of the auditor without an equal result after which an object counts as not compared.
const CYCLES_LATE: u32 = 10;

/// The arguments of `asterism audit`.
#[derive(Args, Clone, Debug)]
pub struct AuditArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// Make this host write its copy of an object again, so that all others take it over: `bindings`, or some of its parts:
    /// `bindings:12,77`
    #[arg(long, value_name = "OBJECT[:PARTS]")]
    pub repair: Option<String>,
    /// With --repair: make all others remove the entries of these parts that this host lacks
    #[arg(long, requires = "repair")]
    pub remove: bool,
}

/// The schema of `asterism audit`.
pub const AUDIT: Schema = Schema {
    name: "asterism.audit",
    version: 1,
};

/// The results of an auditor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditDocument {
    /// The reference host, with which the others compare; none before this host has joined.
    pub reference: Option<String>,
    /// Whether this host is the reference.
    pub leads: bool,
    /// The objects that are compared.
    pub objects: Vec<AuditedDocument>,
    /// Parts found equal, each time that they were compared.
    pub parts_equal: u64,
    /// Parts found different.
    pub parts_different: u64,
    /// Parts that changed while they were compared, and were left for the next turn.
    pub parts_changing: u64,
    /// Comparisons without a result.
    pub rounds_void: u64,
    /// Messages that were malformed, or not from the reference.
    pub refused: u64,
    /// The other hosts' streams: deliveries here compared with the messages sent.
    pub streams: Vec<StreamDocument>,
}

/// A stream of another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDocument {
    /// The host.
    pub member: String,
    /// The last group that was compared; 0 before the first comparison.
    pub through: u64,
    /// Time since the stream was last found delivered as sent; none before that.
    pub equal_us_ago: Option<u64>,
    /// Ranges of groups that were delivered otherwise than sent.
    pub ranges_different: u64,
    /// The first group of the last such range.
    pub different_first: Option<u64>,
    /// The last group of that range.
    pub different_last: Option<u64>,
}

/// An object that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedDocument {
    /// Its name.
    pub object: String,
    /// Time since the whole object was found equal; none if there is no comparison.
    pub equal_us_ago: Option<u64>,
    /// The differences.
    pub differs: Vec<DifferenceDocument>,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceDocument {
    /// The packet loop of this host.
    pub instance: usize,
    /// The parts that differ, of the object's 256.
    pub parts: Vec<u8>,
}

impl AuditDocument {
    /// The state channel's last report, with names.
    #[must_use]
    pub fn new(channel: &ChannelSnapshot, names: &Names) -> AuditDocument {
        let audit = &channel.audit;
        let name = |member: MemberId| {
            let place = usize::from(member.0).wrapping_sub(1);
            names.members.get(place).cloned()
        };
        let reference = audit.reference.and_then(name);
        let streams = audit.streams.iter().map(|stream| StreamDocument {
            member: name(stream.origin).unwrap_or_else(|| "?".to_owned()),
            through: stream.through,
            equal_us_ago: stream
                .equal_at
                .map(|at| channel.at.since(at).as_micros() as u64),
            ranges_different: stream.faults,
            different_first: stream.last_fault.map(|fault| fault.first),
            different_last: stream.last_fault.map(|fault| fault.last),
        });
        let objects = audit.objects.iter().map(|&(object, since)| {
            let of = audit
                .differing
                .iter()
                .filter(|(at, ..)| at.object == object);
            let mut differs: Vec<DifferenceDocument> = Vec::new();
            for &(place, instance, leaves) in of {
                let parts = parts_of(place, leaves);
                match differs.iter_mut().find(|known| known.instance == instance) {
                    Some(known) => known.parts.extend(parts),
                    None => differs.push(DifferenceDocument { instance, parts }),
                }
            }
            let name = names.objects.get(usize::from(object));
            AuditedDocument {
                object: name.copied().unwrap_or("?").to_owned(),
                equal_us_ago: since.map(|since| channel.at.since(since).as_micros() as u64),
                differs,
            }
        });
        AuditDocument {
            leads: audit.reference == Some(channel.member),
            objects: objects.collect(),
            reference,
            parts_equal: audit.tally.equal,
            parts_different: audit.tally.different,
            parts_changing: audit.tally.changing,
            rounds_void: audit.tally.rounds_void,
            refused: audit.tally.refused,
            streams: streams.collect(),
        }
    }

    /// Whether something differs, or was delivered otherwise than sent since the host was started.
    #[must_use]
    pub fn differs(&self) -> bool {
        let mut streams = self.streams.iter();
        self.objects.iter().any(|object| !object.differs.is_empty())
            || streams.any(|stream| stream.ranges_different > 0)
    }
}

/// The numbers of the parts whose bits are set in a segment.
#[must_use]
pub fn parts_of(place: Place, leaves: u64) -> Vec<u8> {
    (0..SEGMENT_LEAVES)
        .filter(|leaf| leaves >> leaf & 1 != 0)
        .map(|leaf| (place.first_leaf() + leaf) as u8)
        .collect()
}

/// An object and some of its parts, as `--repair` names them.
///
/// # Errors
/// The mistake, and the correct form.
pub fn parse_parts(text: &str) -> Result<(String, Option<Vec<u8>>), String> {
    let Some((object, parts)) = text.split_once(':') else {
        return Ok((text.to_owned(), None));
    };
    let part = |part: &str| {
        let number = part.trim().parse::<u8>();
        number.map_err(|_| {
            format!(
                "\"{part}\" is not a part: parts are numbers from 0 to {}, as in `{object}:12,77`",
                LEAVES - 1
            )
        })
    };
    let parts = parts.split(',').map(part).collect::<Result<_, _>>()?;
    Ok((object.to_owned(), Some(parts)))
}

/// `asterism audit`.
pub fn audit(arguments: &AuditArguments, output: &mut Output<'_>) -> End {
    match ask_audit(arguments, output.functions()) {
        Ok((status, repaired)) => {
            if let Some(RepairDocument { entries, removal }) = repaired {
                output.say(&format!("{entries} entries were written again\n"));
                match removal {
                    Some(RemovalDocument::Reported) => output.say(
                        "The other hosts remove the entries of these parts that this host lacked, within seconds\n",
                    ),
                    Some(RemovalDocument::NotOfThisObject) => output.say(
                        "Nothing was removed: in an object of this kind, one host cannot tell that an entry of the others is surplus\n",
                    ),
                    Some(RemovalDocument::NothingWritten) => output.say(
                        "Nothing was removed: this host knows of no writes\n",
                    ),
                    None => {}
                }
            }
            if output.json() {
                output.document(AUDIT, &status.audit);
            } else {
                output.text(&audit_text(&status.audit));
            }
            output.end(match status.audit.differs() {
                true => End::DoesNotHold,
                false => End::Done,
            })
        }
        Err(error) => output.fail(End::File, &error),
    }
}

fn ask_audit(
    arguments: &AuditArguments,
    functions: Functions,
) -> Result<(StatusDocument, Option<RepairDocument>), String> {
    let socket = arguments.which.socket(functions)?;
    let mut repaired = None;
    if let Some(repair) = &arguments.repair {
        let (object, parts) = parse_parts(repair)?;
        let remove = arguments.remove;
        let repair = Ask::Repair {
            object,
            parts,
            remove,
        };
        repaired = Some(ask(&socket, &repair, WITHIN)?);
    }
    let status = ask(&socket, &Ask::Status { digests: false }, WITHIN)?;
    Ok((status, repaired))
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairDocument {
    /// Entries that were written again.
    pub entries: u64,
    /// Whether the others were asked to remove surplus entries; none without `--remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalDocument>,
}

/// Whether the others were asked to remove the entries that this host lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemovalDocument {
    /// In an object of this kind, one host cannot tell that an entry of the others is surplus.
    NotOfThisObject,
    /// No member has written anything yet that others could hold.
    NothingWritten,
    /// The others were asked.
    Reported,
}

impl RemovalDocument {
    /// The result over all instances of a host.
    #[must_use]
    pub fn of(removal: Removal) -> Option<RemovalDocument> {
        match removal {
            Removal::NotAsked => None,
            Removal::NotOfThisObject => Some(RemovalDocument::NotOfThisObject),
            Removal::NothingWritten => Some(RemovalDocument::NothingWritten),
            Removal::Reported => Some(RemovalDocument::Reported),
        }
    }
}

/// The audit as text.
#[must_use]
pub fn audit_text(audit: &AuditDocument) -> String {
    let mut text = match &audit.reference {
        None => "This host has not joined: it is not compared with any other host.\n".to_owned(),
        Some(_) if audit.leads => {
            "This host is the reference: run `asterism audit` on the other hosts to see differences.\n".to_owned()
        }
        Some(reference) => format!("Compared with {reference}:\n"),
    };
    for object in &audit.objects {
        let late = CYCLE.as_micros() as u64 * u64::from(CYCLES_LATE);
        let equal = match object.equal_us_ago {
            None => "nothing to compare".to_owned(),
            Some(ago) if ago > late && object.differs.is_empty() => format!(
                "not compared as a whole for {:.1} s: the object changes too fast, or comparisons are lost",
                ago as f64 / 1e6
            ),
            Some(ago) => format!("equal {:.1} s ago", ago as f64 / 1e6),
        };
        if object.differs.is_empty() {
            text.push_str(&format!("  {:12} {equal}\n", object.object));
        }
        for difference in &object.differs {
            let parts: Vec<String> = difference.parts.iter().map(u8::to_string).collect();
            text.push_str(&format!(
                "  {:12} DIFFERS at instance {} in parts {}\n",
                object.object,
                difference.instance,
                parts.join(",")
            ));
        }
    }
    for stream in &audit.streams {
        let equal = match stream.equal_us_ago {
            None => "not compared yet".to_owned(),
            Some(ago) => format!("delivered as sent, {:.1} s ago", ago as f64 / 1e6),
        };
        text.push_str(&format!("  stream of {:2} {equal}\n", stream.member));
        if let (Some(first), Some(last)) = (stream.different_first, stream.different_last) {
            text.push_str(&format!(
                "  stream of {:2} DELIVERED OTHERWISE THAN SENT: {} range{}, the last of groups {first} to {last}\n",
                stream.member,
                stream.ranges_different,
                if stream.ranges_different == 1 { "" } else { "s" },
            ));
        }
    }
    if audit
        .objects
        .iter()
        .any(|object| !object.differs.is_empty())
    {
        text.push_str(
            "If only this host differs, repair from another host: asterism audit THAT-HOST --repair OBJECT:PARTS. Of counters and \
             sketches, each host re-sends only its own additions: repair from every other host.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_as_they_are_shown() {
        let place = Place {
            object: 0,
            segment: 1,
        };
        assert_eq!(parts_of(place, 1 | 1 << 13), [64, 77]);
        let parsed = parse_parts("bindings:64,77");
        assert_eq!(parsed, Ok(("bindings".to_owned(), Some(vec![64, 77]))));
        assert_eq!(parse_parts("bindings"), Ok(("bindings".to_owned(), None)));
        let refused = parse_parts("bindings:256").expect_err("there are 256 parts");
        assert!(refused.contains("0 to 255"), "{refused}");
    }
}
