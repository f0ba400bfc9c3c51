//! `asterism audit`: whether this host's tables equal those of the other hosts, and repair of the others from this host.

use std::time::Duration;

use asterism_config::functions::Functions;
use asterism_host::control::Ask;
use asterism_host_view::StatusDocument;
use asterism_host_view::audit::{AuditDocument, RemovalDocument, RepairDocument};
use asterism_output::End;
use asterism_output::{Output, Schema};
use asterism_placement::replicated::audit::{CYCLE, LEAVES};
use clap::Args;

use super::client::{ClientError, Which, ask};

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

/// Why a host was not audited, or repaired nothing.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// `--repair` names a part that is none; no host was asked.
    #[error(
        "\"{part}\" is not a part: parts are numbers from 0 to {}, as in `{object}:12,77`",
        LEAVES - 1
    )]
    NotAPart {
        /// The object.
        object: String,
        /// What is written in place of a part.
        part: String,
    },
    /// No host answered, or the host refused.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// An object and some of its parts, as `--repair` names them.
///
/// # Errors
/// The mistake, and the correct form.
pub fn parse_parts(text: &str) -> Result<(String, Option<Vec<u8>>), AuditError> {
    let Some((object, parts)) = text.split_once(':') else {
        return Ok((text.to_owned(), None));
    };
    let part = |part: &str| {
        let number = part.trim().parse::<u8>();
        number.map_err(|_| AuditError::NotAPart {
            object: object.to_owned(),
            part: part.to_owned(),
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
) -> Result<(StatusDocument, Option<RepairDocument>), AuditError> {
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
        let parsed = parse_parts("bindings:64,77");
        assert_eq!(parsed.unwrap(), ("bindings".to_owned(), Some(vec![64, 77])));
        let whole = parse_parts("bindings").unwrap();
        assert_eq!(whole, ("bindings".to_owned(), None));
        let refused = parse_parts("bindings:256").expect_err("there are 256 parts");
        assert!(refused.to_string().contains("0 to 255"), "{refused}");
    }
}
