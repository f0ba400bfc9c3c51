//! What a rule says behind its action: protocols, links, ends, ports.

use asterism_function::objects::hash;
use asterism_function::{Host, Protocol};
use asterism_tracking::{Link, has_ports};

use super::items::{icmp_type, nearest};
use super::{
    Action, OF_RULES, PARTS, RULES_MAX, Reading, Reported, Rule, TOO_MANY, TooMany, Word, hints,
};
use crate::firewall::note::RULES_FROM;

/// Protocols that have a name in rules.
const PROTOCOLS: &[(&str, u8)] = &[
    ("tcp", Protocol::TCP.0),
    ("udp", Protocol::UDP.0),
    ("icmp", Protocol::ICMP.0),
    ("icmpv6", Protocol::ICMPV6.0),
    ("igmp", 2),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", SCTP),
];

const SCTP: u8 = 132;

fn protocol(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word);
    named.map(|(_, number)| *number)
}

impl Reading {
    pub(super) fn rule(
        &mut self,
        line: u32,
        words: &[Word<'_>],
        action: Action,
        rest: &[Word<'_>],
    ) {
        if self.rules.len() >= RULES_MAX {
            self.is_full = true;
            let wrong = TooMany::Rules.to_string();
            return self.mistake(line, words[0].span(), wrong, TOO_MANY.to_owned());
        }
        self.ranges_with_line = self.ranges[OF_RULES];
        let said: Vec<&str> = words.iter().map(|word| word.text).collect();
        let text = said.join(" ");
        let mut rule = Rule {
            action,
            link: None,
            protocols: Vec::new(),
            sources: Vec::new(),
            source_ports: Vec::new(),
            destinations: Vec::new(),
            destination_ports: Vec::new(),
            icmp_types: Vec::new(),
            logs: false,
            number: (hash::bytes(text.as_bytes(), 0) as u32).max(RULES_FROM),
            line,
            text,
        };
        let before = self.mistakes.len();
        if self.parts(&mut rule, rest).is_ok() && self.mistakes.len() == before {
            self.contradictions(&rule, words);
            if self.mistakes.len() == before {
                self.ranges[OF_RULES] = self.ranges_with_line;
                self.rules.push(rule);
            }
        }
    }

    fn parts(&mut self, rule: &mut Rule, mut rest: &[Word<'_>]) -> Result<(), Reported> {
        let line = rule.line;
        let mut seen: Vec<&str> = Vec::new();
        let mut end = None;
        while let Some((word, behind)) = rest.split_first() {
            let kind = match word.text {
                "any" | "protocol" => "protocol",
                name if protocol(name).is_some() => "protocol",
                "port" => end.map_or("port", |end| match end {
                    "from" => "port of the source",
                    _ => "port of the destination",
                }),
                other => other,
            };
            if seen.contains(&kind) {
                self.mistake(
                    line,
                    word.span(),
                    format!("`{}` says the {kind} a second time", word.text),
                    "write one list with commas, or two rules".to_owned(),
                );
                return Err(Reported);
            }
            seen.push(kind);
            rest = match word.text {
                "log" => {
                    rule.logs = true;
                    behind
                }
                "on" => self.link(rule, *word, behind)?,
                "from" | "to" => {
                    end = Some(word.text);
                    let behind = self.behind(line, *word, behind)?;
                    let (items, behind) = self.list(line, behind)?;
                    if !matches!(&items[..], [one] if one.text == "any") {
                        let networks = self.networks(line, &items, OF_RULES)?;
                        match word.text {
                            "from" => rule.sources = networks,
                            _ => rule.destinations = networks,
                        }
                    }
                    behind
                }
                "port" => {
                    let behind = self.behind(line, *word, behind)?;
                    let (items, behind) = self.list(line, behind)?;
                    let ports = self.ports(line, &items, OF_RULES)?;
                    match end {
                        Some("from") => rule.source_ports = ports,
                        Some(_) => rule.destination_ports = ports,
                        None => {
                            self.mistake(
                                line,
                                word.span(),
                                "it is not said whose port".to_owned(),
                                format!("write `to any port {}`", items[0].text),
                            );
                            return Err(Reported);
                        }
                    }
                    behind
                }
                "any" => behind,
                "protocol" => self.protocols(rule, rest)?,
                name if protocol(name).is_some() => self.protocols(rule, rest)?,
                "type" => self.icmp_types(rule, *word, behind)?,
                other => {
                    let instead = match (hints::part(other), nearest(other, PARTS)) {
                        (Some(hint), _) => hint.to_owned(),
                        (None, Some(part)) => format!("did you mean `{part}`?"),
                        (None, None) => {
                            "write what it is about: a protocol, `on`, `from`, `to`, `port`, `type` or `log`"
                                .to_owned()
                        }
                    };
                    let wrong = format!("`{other}` is no part of a rule");
                    self.mistake(line, word.span(), wrong, instead);
                    return Err(Reported);
                }
            };
        }
        Ok(())
    }

    /// The words behind one that needs some.
    fn behind<'w, 'a>(
        &mut self,
        line: u32,
        word: Word<'a>,
        behind: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Reported> {
        if !behind.is_empty() {
            return Ok(behind);
        }
        let instead = match word.text {
            "port" => "write a port, a range or a set, such as `port 80, 8000-8099`",
            "type" => "write types of queries, such as `icmp type 8`",
            "protocol" => "write a protocol's number, such as `protocol 47`",
            "on" => "write `on inside` or `on outside`",
            _ => "write `any`, networks or a set, such as `from 10.0.0.0/8`",
        };
        let wrong = format!("nothing stands behind `{}`", word.text);
        self.mistake(line, word.span(), wrong, instead.to_owned());
        Err(Reported)
    }

    fn link<'w, 'a>(
        &mut self,
        rule: &mut Rule,
        on: Word<'a>,
        behind: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Reported> {
        let behind = self.behind(rule.line, on, behind)?;
        let word = behind[0];
        rule.link = Some(match word.text {
            "inside" => Link::Inside,
            "outside" => Link::Outside,
            other => {
                let instead = match nearest(other, &["inside", "outside"]) {
                    Some(link) => format!("did you mean `on {link}`?"),
                    None => "write `on inside` or `on outside`: where the first packet comes in"
                        .to_owned(),
                };
                let wrong = format!("`{other}` is no link");
                self.mistake(rule.line, word.span(), wrong, instead);
                return Err(Reported);
            }
        });
        Ok(&behind[1..])
    }

    fn protocols<'w, 'a>(
        &mut self,
        rule: &mut Rule,
        words: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Reported> {
        let numbered = words[0].text == "protocol";
        let from = if numbered {
            self.behind(rule.line, words[0], &words[1..])?
        } else {
            words
        };
        let (items, behind) = self.list(rule.line, from)?;
        for item in items {
            match protocol(item.text).or_else(|| item.text.parse::<u8>().ok()) {
                Some(number) if rule.protocols.contains(&number) => {}
                Some(number) => rule.protocols.push(number),
                None => {
                    let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
                    let instead = match (hints::protocol(item.text), nearest(item.text, &names)) {
                        (Some(hint), _) => hint.to_owned(),
                        (None, Some(name)) => format!("did you mean `{name}`?"),
                        (None, None) => {
                            "write `tcp`, `udp`, `icmp`, `icmpv6` or a number such as `protocol 47`"
                                .to_owned()
                        }
                    };
                    let wrong = format!("`{}` is no protocol", item.text);
                    self.mistake(rule.line, item.span(), wrong, instead);
                    return Err(Reported);
                }
            }
        }
        Ok(behind)
    }

    /// The types of ICMP queries behind `type`.
    fn icmp_types<'w, 'a>(
        &mut self,
        rule: &mut Rule,
        word: Word<'a>,
        behind: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Reported> {
        let (icmp, icmpv6) = ([Protocol::ICMP.0], [Protocol::ICMPV6.0]);
        let is_icmpv6 = rule.protocols == icmpv6;
        if !is_icmpv6 && rule.protocols != icmp {
            let instead = "write `icmp` or `icmpv6` alone in front, such as `icmp type 8`";
            let wrong = "it is not said whose type".to_owned();
            self.mistake(rule.line, word.span(), wrong, instead.to_owned());
            return Err(Reported);
        }
        let behind = self.behind(rule.line, word, behind)?;
        let (items, behind) = self.list(rule.line, behind)?;
        let mut good = true;
        for item in items {
            match icmp_type(item.text, is_icmpv6) {
                Ok(number) if rule.icmp_types.contains(&number) => {}
                Ok(number) => rule.icmp_types.push(number),
                Err((wrong, instead)) => {
                    good = false;
                    self.mistake(rule.line, item.span(), wrong, instead);
                }
            }
        }
        if good { Ok(behind) } else { Err(Reported) }
    }

    /// What of a rule could never match.
    fn contradictions(&mut self, rule: &Rule, words: &[Word<'_>]) {
        let span = words[0].at..words.last().map_or(words[0].at, |word| word.span().end);
        let ports = !rule.source_ports.is_empty() || !rule.destination_ports.is_empty();
        let some_have_none = rule.protocols.iter().any(|&protocol| !has_ports(protocol));
        if ports && (rule.protocols.is_empty() || some_have_none) {
            let instead = match rule.protocols.contains(&SCTP) {
                true => {
                    "ports of SCTP are not looked at: leave them out, or write `tcp` or `udp` in front"
                }
                false => {
                    "write `tcp`, `udp` or `tcp, udp` in front, and other protocols in a rule of their own"
                }
            };
            let wrong = "only TCP and UDP have ports".to_owned();
            self.mistake(rule.line, span.clone(), wrong, instead.to_owned());
        }
        let version = |ranges: &[(Host, Host)]| {
            let mut versions = ranges.iter().map(|(first, _)| first.address().is_ipv4());
            let first = versions.next()?;
            versions.all(|version| version == first).then_some(first)
        };
        let (sources, destinations) = (version(&rule.sources), version(&rule.destinations));
        if let (Some(a), Some(b)) = (sources, destinations)
            && a != b
        {
            self.mistake(
                rule.line,
                span.clone(),
                "no packet goes from one IP version to the other".to_owned(),
                "write one rule for IPv4 and one for IPv6".to_owned(),
            );
        }
        for (protocol, needs_ipv4) in [(Protocol::ICMP, true), (Protocol::ICMPV6, false)] {
            if rule.protocols == [protocol.0]
                && sources
                    .or(destinations)
                    .is_some_and(|ipv4| ipv4 != needs_ipv4)
            {
                let other = if needs_ipv4 { "icmpv6" } else { "icmp" };
                self.mistake(
                    rule.line,
                    span.clone(),
                    format!("`{protocol}` is of the other IP version"),
                    format!("write `{other}`"),
                );
            }
        }
    }
}
