//! Destinations that are not translated (RFC 6888, REQ-6).

use core::net::Ipv4Addr;
use core::ops::Range;

use asterism_function::Protocol;
use asterism_functions::nat::{self, NatExemption};

use super::fields::SETTINGS;
use super::networks;
use crate::described::{TCP, UDP};
use asterism_notation::network::{Ports, Prefix};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, Setting, Values, section};

/// A destination that is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExemptionSettings {
    /// Its addresses.
    pub to: Prefix,
    /// Its protocol; `None`: of every one.
    pub protocol: Option<Protocol>,
    /// Its ports; `None`: all.
    pub ports: Option<Ports>,
}

impl ExemptionSettings {
    /// In the NAT's own words.
    #[must_use]
    pub fn made(&self) -> NatExemption {
        NatExemption {
            to: nat::Prefix::new(self.to.address, self.to.length),
            protocol: self.protocol,
            ports: self.ports.map(|ports| (ports.first, ports.last)),
        }
    }

    /// Whether this has every packet that `other` has.
    fn covers(&self, other: &Self) -> bool {
        let has_ports = |one: &Self| matches!(one.protocol, Some(Protocol::TCP | Protocol::UDP));
        let protocol = match (self.protocol, other.protocol) {
            (None, _) => self.ports.is_none() || other.ports.is_some() || has_ports(other),
            (own, theirs) => own == theirs,
        };
        let ports = match (self.ports, other.ports) {
            (None, _) => true,
            (Some(own), Some(theirs)) => own.first <= theirs.first && theirs.last <= own.last,
            (Some(_), None) => false,
        };
        let network = self.to.length <= other.to.length && self.to.contains(other.to.address);
        protocol && ports && network
    }
}

section! {
    pub(super) static DESTINATION: DestinationKeys = {
        path: "function.nat.exempt",
        meaning: "An outside destination without translation. Its packets to inside addresses are admitted, whichever side begins.",
        fields: {
            to: Prefix = Setting {
                kind: Kind::Prefix,
                default: Default::Required("\"198.51.100.0/24\""),
                meaning: "Its addresses.",
            },
            protocol: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        TCP,
                        UDP,
                        Word {
                            word: "icmp",
                            meaning: "ICMP queries and their replies. Errors follow the packet that they report.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Unset("every protocol; with `ports` TCP and UDP"),
                meaning: "The protocol.",
            },
            ports: Ports = Setting {
                kind: Kind::Ports,
                default: Default::Unset("all packets, also those without ports"),
                meaning: "The destination's ports: first and last, or one.",
            },
        },
    };
}

/// The destinations as they are written; those that were not read are left out.
fn all(values: &Values) -> Vec<(ExemptionSettings, Values, Range<usize>)> {
    let list = values.get(SETTINGS.exempt).unwrap_or_default().into_iter();
    list.filter_map(|(table, span)| {
        let destination = ExemptionSettings {
            to: table.get(DESTINATION.to)?,
            protocol: table.get(DESTINATION.protocol).map(|word| match word {
                "tcp" => Protocol::TCP,
                "udp" => Protocol::UDP,
                _ => Protocol::ICMP,
            }),
            ports: table.get(DESTINATION.ports),
        };
        Some((destination, table, span))
    })
    .collect()
}

/// Reads them, and says what contradicts.
pub(super) fn read(
    values: &Values,
    outside: &[Ipv4Addr],
    report: &mut Report,
) -> Vec<ExemptionSettings> {
    let inside = networks(values).unwrap_or_default();
    let mut all = all(values);
    all.retain(|(_, _, span)| !report.has_error_within(span));
    for (place, (one, table, span)) in all.iter().enumerate() {
        let to = one.to;
        let first = to.address.octets()[0];
        if first >= 224 || to.length >= 8 && (first == 0 || first == 127) {
            report.add(
                Diagnostic::error(
                    format!("no host outside is in {to}"),
                    table.span_of(DESTINATION.to),
                )
                .help("write the network of hosts outside, such as \"198.51.100.0/24\""),
            );
        }
        let surrounds =
            |network: &&Prefix| network.length <= to.length && network.contains(to.address);
        if let Some(network) = inside.iter().find(surrounds) {
            report.add(
                Diagnostic::error(
                    format!("{to} is inside, in {network}: nothing to it is translated"),
                    table.span_of(DESTINATION.to),
                )
                .also(
                    values.span_of(SETTINGS.inside),
                    "the networks that are translated",
                )
                .help("leave it out, or write a network that is outside"),
            );
        }
        if to.length == 32 && outside.contains(&to.address) {
            report.add(
                Diagnostic::error(
                    format!("{} is an outside address of the NAT itself", to.address),
                    table.span_of(DESTINATION.to),
                )
                .help("leave it out: inside hosts reach each other there; see `hairpinning`"),
            );
        }
        if one.protocol == Some(Protocol::ICMP) && one.ports.is_some() {
            report.add(
                Diagnostic::error("ICMP has no ports", table.span_of(DESTINATION.ports))
                    .help("leave `ports` out, or write protocol = \"tcp\" or \"udp\""),
            );
        }
        if to.length == 0 && one.protocol.is_none() && one.ports.is_none() {
            report.add(
                Diagnostic::error("nothing would be translated", table.span_of(DESTINATION.to))
                    .label("and everybody outside could write to every inside address")
                    .help("write the networks that have a route to inside addresses"),
            );
        }
        let mut earlier = all[..place].iter();
        if let Some((_, _, known)) = earlier.find(|(other, _, _)| other.covers(one)) {
            report.add(
                Diagnostic::error("this is not translated already", span.clone())
                    .also(known.clone(), "because of this")
                    .help("leave the narrower one out"),
            );
        }
    }
    all.into_iter().map(|(one, _, _)| one).collect()
}
