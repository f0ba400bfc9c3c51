//! The rule file: one rule a line, the first that matches a new flow decides. Imports `asterism_function`, `note`, `rules`.
//!
//! ```text
//! set office = 10.0.0.0/8, 2001:db8::/32     # a named set of networks
//! set web = 80, 443, 8000-8099               # or of ports
//!
//! allow tcp on inside from @office to any port @web
//! allow udp, tcp on inside to 192.0.2.53 port 53
//! block 10m tcp on outside to any port 23 log
//! default drop
//! ```
//!
//! Reading never stops at the first mistake: all are told, each with its place and what to write instead.

use core::ops::Range;
use std::collections::BTreeMap;

use asterism_function::objects::hash;
use asterism_function::{Host, Protocol};

use super::note::RULES_FROM;
use super::rules::{Action, Rule, Rules};
use asterism_tracking::{Link, has_ports};

mod items;
#[cfg(test)]
mod tests;

use items::{nearest, network, port_range, seconds};

/// Bytes of a rule file at most.
pub const RULE_FILE_BYTES_MAX: usize = 4 << 20;
/// Mistakes told of one file at most.
pub const MISTAKES_MAX: usize = 100;
/// The longest block, in seconds: a week.
const BLOCK_SECONDS_MAX: u64 = asterism_blocking::blocked::SECONDS_MAX as u64;

/// A mistake in a rule file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleMistake {
    /// The line, from 1.
    pub line: u32,
    /// The bytes of the file that it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub wrong: String,
    /// What to write instead.
    pub instead: String,
}

impl core::fmt::Display for RuleMistake {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "line {}: {}; {}",
            self.line, self.wrong, self.instead
        )
    }
}

/// Reads and compiles a rule file.
///
/// # Errors
/// All mistakes, [`MISTAKES_MAX`] at most, in the order of the file; there are no rules then.
pub fn read(text: &str) -> Result<Rules, Vec<RuleMistake>> {
    let mut reading = Reading::default();
    if text.len() > RULE_FILE_BYTES_MAX {
        reading.mistake(
            1,
            0..0,
            format!("the file has {} bytes", text.len()),
            format!("write {RULE_FILE_BYTES_MAX} bytes at most"),
        );
        return Err(reading.mistakes);
    }
    let mut at = 0;
    for (number, line) in text.split('\n').enumerate() {
        let words = words(line, at);
        at += line.len() + 1;
        if !words.is_empty() {
            reading.line(number as u32 + 1, &words);
        }
        if reading.mistakes.len() >= MISTAKES_MAX {
            break;
        }
    }
    let default = reading.default.map_or(Action::Drop, |(action, _)| action);
    let last = reading.rules.last().map_or(1, |rule| rule.line);
    if reading.mistakes.is_empty() {
        match Rules::new(core::mem::take(&mut reading.rules), default) {
            Ok(rules) => return Ok(rules),
            Err(too_many) => reading.mistake(
                last,
                text.len()..text.len(),
                too_many.to_string(),
                "join rules by lists and sets, and networks by shorter prefixes".to_owned(),
            ),
        }
    }
    Err(reading.mistakes)
}

/// A word of a line, and where it is.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl Word<'_> {
    fn span(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }
}

/// The words of a line up to a comment. Commas and equals signs are words.
fn words(line: &str, at: usize) -> Vec<Word<'_>> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = Vec::new();
    let mut start = None;
    for (place, letter) in line.char_indices().chain([(line.len(), ' ')]) {
        let stands_alone = matches!(letter, ',' | '=');
        if stands_alone || letter.is_whitespace() {
            if let Some(start) = start.take() {
                words.push(Word {
                    text: &line[start..place],
                    at: at + start,
                });
            }
            if stands_alone {
                words.push(Word {
                    text: &line[place..place + 1],
                    at: at + place,
                });
            }
        } else {
            start.get_or_insert(place);
        }
    }
    words
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum Set {
    Networks(Vec<(Host, Host)>),
    Ports(Vec<(u16, u16)>),
    /// It was written wrongly, which has been told.
    Mistaken,
}

#[derive(Default)]
struct Reading {
    sets: BTreeMap<String, (Set, u32)>,
    rules: Vec<Rule>,
    default: Option<(Action, u32)>,
    mistakes: Vec<RuleMistake>,
}

/// What a line can begin with.
const BEGINNINGS: &[&str] = &["allow", "drop", "block", "set", "default"];
/// What can follow in a rule.
const PARTS: &[&str] = &[
    "tcp", "udp", "icmp", "icmpv6", "any", "protocol", "on", "from", "to", "port", "log",
];
/// An item of a list that was written wrongly, which has been told.
struct Told;

impl Reading {
    fn mistake(&mut self, line: u32, span: Range<usize>, wrong: String, instead: String) {
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(RuleMistake {
                line,
                span,
                wrong,
                instead,
            });
        }
    }

    fn line(&mut self, line: u32, words: &[Word<'_>]) {
        let (first, rest) = (words[0], &words[1..]);
        match first.text {
            "set" => self.set(line, first, rest),
            "default" => self.default_line(line, first, rest),
            "allow" => self.rule(line, words, Action::Allow, rest),
            "drop" => self.rule(line, words, Action::Drop, rest),
            "block" => match rest.first() {
                Some(time) => match seconds(time.text) {
                    Ok(seconds) => self.rule(line, words, Action::Block(seconds), &rest[1..]),
                    Err(instead) => self.mistake(
                        line,
                        time.span(),
                        format!("`{}` is no time to block for", time.text),
                        instead,
                    ),
                },
                None => self.mistake(
                    line,
                    first.span(),
                    "it is not said for how long".to_owned(),
                    "write for how long, such as `block 10m`".to_owned(),
                ),
            },
            other => {
                let instead = match nearest(other, BEGINNINGS) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => {
                        "begin with `allow`, `drop`, `block 10m`, `set` or `default`".to_owned()
                    }
                };
                self.mistake(
                    line,
                    first.span(),
                    format!("`{other}` begins no rule"),
                    instead,
                );
            }
        }
    }

    fn default_line(&mut self, line: u32, first: Word<'_>, rest: &[Word<'_>]) {
        let action = match rest {
            [word] if word.text == "allow" => Action::Allow,
            [word] if word.text == "drop" => Action::Drop,
            _ => {
                let span = rest.first().map_or(first.span(), Word::span);
                return self.mistake(
                    line,
                    span,
                    "the default is one word".to_owned(),
                    "write `default drop` or `default allow`".to_owned(),
                );
            }
        };
        if let Some((_, earlier)) = self.default {
            return self.mistake(
                line,
                first.span(),
                format!("line {earlier} says what the default is"),
                "leave one of them out".to_owned(),
            );
        }
        self.default = Some((action, line));
    }

    fn set(&mut self, line: u32, first: Word<'_>, rest: &[Word<'_>]) {
        let [name, equals, items @ ..] = rest else {
            return self.mistake(
                line,
                first.span(),
                "the set is not finished".to_owned(),
                "write it like `set office = 10.0.0.0/8, 2001:db8::/32`".to_owned(),
            );
        };
        if equals.text != "=" || items.is_empty() {
            return self.mistake(
                line,
                equals.span(),
                "there is no `=` with something behind it".to_owned(),
                format!("write it like `set {} = 10.0.0.0/8, 192.0.2.1`", name.text),
            );
        }
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if !name.text.chars().all(plain) {
            return self.mistake(
                line,
                name.span(),
                format!("`{}` is no name", name.text),
                "use letters, digits, - and _; the `@` belongs to where the set is used".to_owned(),
            );
        }
        if let Some((_, earlier)) = self.sets.get(name.text) {
            let wrong = format!("line {earlier} has a set of this name");
            return self.mistake(line, name.span(), wrong, "give it another name".to_owned());
        }
        let set = self.set_items(line, items).unwrap_or(Set::Mistaken);
        self.sets.insert(name.text.to_owned(), (set, line));
    }

    fn set_items(&mut self, line: u32, words: &[Word<'_>]) -> Result<Set, Told> {
        let (items, rest) = self.list(line, words)?;
        if let Some(word) = rest.first() {
            self.mistake(
                line,
                word.span(),
                "there is no comma before it".to_owned(),
                format!("write `, {}`", word.text),
            );
            return Err(Told);
        }
        let looks_like_port = |word: &Word<'_>| {
            let mut letters = word.text.chars();
            letters.all(|letter| letter.is_ascii_digit() || letter == '-')
        };
        let is_ports = match items[0].text.strip_prefix('@') {
            Some(_) => matches!(self.named(line, items[0])?, Set::Ports(_)),
            None => looks_like_port(&items[0]),
        };
        Ok(if is_ports {
            Set::Ports(self.ports(line, &items)?)
        } else {
            Set::Networks(self.networks(line, &items)?)
        })
    }

    /// The items of a list with commas between them, and the words behind it.
    fn list<'w, 'a>(
        &mut self,
        line: u32,
        words: &'w [Word<'a>],
    ) -> Result<(Vec<Word<'a>>, &'w [Word<'a>]), Told> {
        let mut items = Vec::new();
        let mut rest = words;
        loop {
            match rest {
                [item, behind @ ..] if !matches!(item.text, "," | "=") => {
                    items.push(*item);
                    match behind {
                        [comma, behind @ ..] if comma.text == "," => rest = behind,
                        _ => return Ok((items, behind)),
                    }
                }
                _ => {
                    let span = match (rest.first(), words.last()) {
                        (Some(word), _) | (None, Some(word)) => word.span(),
                        (None, None) => 0..0,
                    };
                    self.mistake(
                        line,
                        span,
                        "an item of the list is missing".to_owned(),
                        "write items with one comma between them, such as `80, 443`".to_owned(),
                    );
                    return Err(Told);
                }
            }
        }
    }

    /// What `@name` stands for.
    fn named(&mut self, line: u32, word: Word<'_>) -> Result<Set, Told> {
        let name = word.text.trim_start_matches('@');
        if let Some((set, _)) = self.sets.get(name) {
            return match set {
                Set::Mistaken => Err(Told),
                set => Ok(set.clone()),
            };
        }
        let known: Vec<&str> = self.sets.keys().map(String::as_str).collect();
        let instead = match nearest(name, &known) {
            Some(known) => format!("did you mean `@{known}`?"),
            None => format!("write `set {name} = ...` on a line above"),
        };
        self.mistake(
            line,
            word.span(),
            format!("there is no set `{name}` above"),
            instead,
        );
        Err(Told)
    }

    fn networks(&mut self, line: u32, items: &[Word<'_>]) -> Result<Vec<(Host, Host)>, Told> {
        let mut networks = Vec::new();
        let mut good = true;
        for item in items {
            if item.text.starts_with('@') {
                match self.named(line, *item) {
                    Ok(Set::Networks(set)) => networks.extend(set),
                    Ok(_) => {
                        good = false;
                        self.mistake(
                            line,
                            item.span(),
                            format!("`{}` is a set of ports", item.text),
                            format!("write it behind `port`: `to any port {}`", item.text),
                        );
                    }
                    Err(Told) => good = false,
                }
                continue;
            }
            match network(item.text) {
                Ok(ranges) => networks.extend(ranges),
                Err((wrong, instead)) => {
                    good = false;
                    let instead = if self.sets.contains_key(item.text) {
                        format!("write `@{}` for the set", item.text)
                    } else {
                        instead
                    };
                    self.mistake(line, item.span(), wrong, instead);
                }
            }
        }
        if good { Ok(networks) } else { Err(Told) }
    }

    fn ports(&mut self, line: u32, items: &[Word<'_>]) -> Result<Vec<(u16, u16)>, Told> {
        let mut ports = Vec::new();
        let mut good = true;
        for item in items {
            if item.text.starts_with('@') {
                match self.named(line, *item) {
                    Ok(Set::Ports(set)) => ports.extend(set),
                    Ok(_) => {
                        good = false;
                        self.mistake(
                            line,
                            item.span(),
                            format!("`{}` is a set of networks", item.text),
                            format!("write it behind `from` or `to`: `to {}`", item.text),
                        );
                    }
                    Err(Told) => good = false,
                }
                continue;
            }
            match port_range(item.text) {
                Ok(range) => ports.push(range),
                Err((wrong, instead)) => {
                    good = false;
                    self.mistake(line, item.span(), wrong, instead);
                }
            }
        }
        if good { Ok(ports) } else { Err(Told) }
    }

    fn rule(&mut self, line: u32, words: &[Word<'_>], action: Action, rest: &[Word<'_>]) {
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
            logs: false,
            number: (hash::bytes(text.as_bytes(), 0) as u32).max(RULES_FROM),
            line,
            text,
        };
        let before = self.mistakes.len();
        if self.parts(&mut rule, rest).is_ok() && self.mistakes.len() == before {
            self.contradictions(&rule, words);
            if self.mistakes.len() == before {
                self.rules.push(rule);
            }
        }
    }

    fn parts(&mut self, rule: &mut Rule, mut rest: &[Word<'_>]) -> Result<(), Told> {
        let line = rule.line;
        let mut seen: Vec<&str> = Vec::new();
        let mut end = None;
        while let Some((word, behind)) = rest.split_first() {
            let kind = match word.text {
                "tcp" | "udp" | "icmp" | "icmpv6" | "any" | "protocol" => "protocol",
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
                return Err(Told);
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
                        let networks = self.networks(line, &items)?;
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
                    let ports = self.ports(line, &items)?;
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
                            return Err(Told);
                        }
                    }
                    behind
                }
                "any" => behind,
                "tcp" | "udp" | "icmp" | "icmpv6" | "protocol" => self.protocols(rule, rest)?,
                other => {
                    let instead = match nearest(other, PARTS) {
                        Some(part) => format!("did you mean `{part}`?"),
                        None => {
                            "write what it is about: a protocol, `on`, `from`, `to`, `port` or `log`"
                                .to_owned()
                        }
                    };
                    let wrong = format!("`{other}` is no part of a rule");
                    self.mistake(line, word.span(), wrong, instead);
                    return Err(Told);
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
    ) -> Result<&'w [Word<'a>], Told> {
        if !behind.is_empty() {
            return Ok(behind);
        }
        let instead = match word.text {
            "port" => "write a port, a range or a set, such as `port 80, 8000-8099`",
            "on" => "write `on inside` or `on outside`",
            _ => "write `any`, networks or a set, such as `from 10.0.0.0/8`",
        };
        let wrong = format!("nothing stands behind `{}`", word.text);
        self.mistake(line, word.span(), wrong, instead.to_owned());
        Err(Told)
    }

    fn link<'w, 'a>(
        &mut self,
        rule: &mut Rule,
        on: Word<'a>,
        behind: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Told> {
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
                return Err(Told);
            }
        });
        Ok(&behind[1..])
    }

    fn protocols<'w, 'a>(
        &mut self,
        rule: &mut Rule,
        words: &'w [Word<'a>],
    ) -> Result<&'w [Word<'a>], Told> {
        let numbered = words[0].text == "protocol";
        let from = if numbered {
            self.behind(rule.line, words[0], &words[1..])?
        } else {
            words
        };
        let (items, behind) = self.list(rule.line, from)?;
        for item in items {
            let number = match item.text {
                "tcp" => Ok(Protocol::TCP.0),
                "udp" => Ok(Protocol::UDP.0),
                "icmp" => Ok(Protocol::ICMP.0),
                "icmpv6" => Ok(Protocol::ICMPV6.0),
                other => other.parse::<u8>(),
            };
            match number {
                Ok(number) => rule.protocols.push(number),
                Err(_) => {
                    let names = ["tcp", "udp", "icmp", "icmpv6"];
                    let instead = match nearest(item.text, &names) {
                        Some(name) => format!("did you mean `{name}`?"),
                        None => "write `tcp`, `udp`, `icmp`, `icmpv6` or a number such as \
                                 `protocol 47`"
                            .to_owned(),
                    };
                    let wrong = format!("`{}` is no protocol", item.text);
                    self.mistake(rule.line, item.span(), wrong, instead);
                    return Err(Told);
                }
            }
        }
        Ok(behind)
    }

    /// What of a rule could never match.
    fn contradictions(&mut self, rule: &Rule, words: &[Word<'_>]) {
        let span = words[0].at..words.last().map_or(words[0].at, |word| word.span().end);
        let ports = !rule.source_ports.is_empty() || !rule.destination_ports.is_empty();
        let some_have_none = rule.protocols.iter().any(|&protocol| !has_ports(protocol));
        if ports && (rule.protocols.is_empty() || some_have_none) {
            self.mistake(
                rule.line,
                span.clone(),
                "only TCP and UDP have ports".to_owned(),
                "write `tcp`, `udp` or `tcp, udp` in front, and other protocols in a rule of their \
                 own"
                .to_owned(),
            );
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
