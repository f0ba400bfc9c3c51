//! The rule file: one rule a line; the first that matches a new flow decides.
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
//! Reading never stops at the first mistake: all are reported, each with its place and the correct form. It stops at a bound:
//! sets may name sets, so a line may stand for twice as much as the line above it. `rule.rs` reads rules, `items.rs`
//! networks, ports and times; `hints.rs` translates words of other firewalls.

use core::ops::Range;
use std::collections::BTreeMap;
use std::rc::Rc;

use asterism_function::Host;

use super::rules::{Action, RANGES_MAX, RULES_MAX, Rule, Rules, TooMany};

mod hints;
mod items;
mod rule;
#[cfg(test)]
mod tests;

use items::{nearest, network, port_range, seconds};

/// Bytes of a rule file at most.
pub const RULE_FILE_BYTES_MAX: usize = 4 << 20;
/// Mistakes reported one file at most.
pub const MISTAKES_MAX: usize = 100;
/// Names of sets that are compared with an unknown one at most, to say which was meant.
const NAMES_COMPARED_MAX: usize = 256;
/// What a file may begin with that editors on Windows write; also elsewhere it says nothing.
const BYTE_ORDER_MARK: char = '\u{feff}';
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
        if reading.mistakes.len() >= MISTAKES_MAX || reading.is_full {
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
                TOO_MANY.to_owned(),
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
        if stands_alone || letter.is_whitespace() || letter == BYTE_ORDER_MARK {
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
    Networks(Rc<Vec<(Host, Host)>>),
    Ports(Rc<Vec<(u16, u16)>>),
    /// It was written wrongly, which has been reported.
    Mistaken,
}

#[derive(Default)]
struct Reading {
    sets: BTreeMap<String, (Set, u32)>,
    rules: Vec<Rule>,
    default: Option<(Action, u32)>,
    mistakes: Vec<RuleMistake>,
    /// Ranges of all rules, and of all sets, above the line that is read.
    ranges: [usize; 2],
    /// The same with what was read of the line.
    ranges_with_line: usize,
    /// More was written than is held: nothing further is read.
    is_full: bool,
}

/// Places in [`Reading::ranges`].
const OF_RULES: usize = 0;
const OF_SETS: usize = 1;

/// What a line can begin with.
const BEGINNINGS: &[&str] = &["allow", "drop", "reject", "block", "set", "default"];
/// What can follow in a rule.
const PARTS: &[&str] = &[
    "tcp", "udp", "icmp", "icmpv6", "any", "protocol", "type", "on", "from", "to", "port", "log",
];
/// What to do about too many rules or ranges.
const TOO_MANY: &str = "join rules by lists and sets, networks by shorter prefixes, and name a set in few others: its items count for each";

/// An item of a list that was written wrongly, which has been reported.
struct Reported;

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

    /// Counts ranges that an item stands for, before they are made.
    fn count(
        &mut self,
        line: u32,
        item: Word<'_>,
        ranges: usize,
        of: usize,
    ) -> Result<(), Reported> {
        self.ranges_with_line += ranges;
        if self.ranges_with_line <= RANGES_MAX {
            return Ok(());
        }
        self.is_full = true;
        let wrong = match of {
            OF_RULES => TooMany::Ranges.to_string(),
            _ => {
                format!("more than {RANGES_MAX} prefixes and port ranges in all sets together")
            }
        };
        self.mistake(line, item.span(), wrong, TOO_MANY.to_owned());
        Err(Reported)
    }

    fn line(&mut self, line: u32, words: &[Word<'_>]) {
        let (first, rest) = (words[0], &words[1..]);
        match first.text {
            "set" => self.set(line, first, rest),
            "default" => self.default_line(line, first, rest),
            "allow" => self.rule(line, words, Action::Allow, rest),
            "drop" => self.rule(line, words, Action::Drop, rest),
            "reject" => self.rule(line, words, Action::Reject, rest),
            "block" => match rest.first() {
                Some(time) => match seconds(time.text) {
                    Ok(seconds) => self.rule(line, words, Action::Block(seconds), &rest[1..]),
                    Err(error) => self.mistake(
                        line,
                        time.span(),
                        format!("`{}` is no time to block for", time.text),
                        error.to_string(),
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
                let instead = match (hints::beginning(other), nearest(other, BEGINNINGS)) {
                    (Some(hint), _) => hint.to_owned(),
                    (None, Some(word)) => format!("did you mean `{word}`?"),
                    (None, None) => {
                        "begin with `allow`, `drop`, `reject`, `block 10m`, `set` or `default`"
                            .to_owned()
                    }
                };
                let wrong = format!("`{other}` begins no rule");
                self.mistake(line, first.span(), wrong, instead);
            }
        }
    }

    fn default_line(&mut self, line: u32, first: Word<'_>, rest: &[Word<'_>]) {
        let action = match rest {
            [word] if word.text == "allow" => Action::Allow,
            [word] if word.text == "drop" => Action::Drop,
            [word] if word.text == "reject" => Action::Reject,
            _ => {
                let span = rest.first().map_or(first.span(), Word::span);
                return self.mistake(
                    line,
                    span,
                    "the default is one word".to_owned(),
                    "write `default drop`, `default reject` or `default allow`".to_owned(),
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
        self.ranges_with_line = self.ranges[OF_SETS];
        let set = self.set_items(line, items).unwrap_or(Set::Mistaken);
        self.ranges[OF_SETS] = self.ranges_with_line;
        self.sets.insert(name.text.to_owned(), (set, line));
    }

    fn set_items(&mut self, line: u32, words: &[Word<'_>]) -> Result<Set, Reported> {
        let (items, rest) = self.list(line, words)?;
        if let Some(word) = rest.first() {
            self.mistake(
                line,
                word.span(),
                "there is no comma before it".to_owned(),
                format!("write `, {}`", word.text),
            );
            return Err(Reported);
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
            Set::Ports(Rc::new(self.ports(line, &items, OF_SETS)?))
        } else {
            Set::Networks(Rc::new(self.networks(line, &items, OF_SETS)?))
        })
    }

    /// The items of a list with commas between them, and the words behind it.
    fn list<'w, 'a>(
        &mut self,
        line: u32,
        words: &'w [Word<'a>],
    ) -> Result<(Vec<Word<'a>>, &'w [Word<'a>]), Reported> {
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
                    return Err(Reported);
                }
            }
        }
    }

    /// What `@name` stands for.
    fn named(&mut self, line: u32, word: Word<'_>) -> Result<Set, Reported> {
        let name = word.text.trim_start_matches('@');
        if let Some((set, _)) = self.sets.get(name) {
            return match set {
                Set::Mistaken => Err(Reported),
                set => Ok(set.clone()),
            };
        }
        let known = self.sets.keys().map(String::as_str);
        let known: Vec<&str> = known.take(NAMES_COMPARED_MAX).collect();
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
        Err(Reported)
    }

    fn networks(
        &mut self,
        line: u32,
        items: &[Word<'_>],
        of: usize,
    ) -> Result<Vec<(Host, Host)>, Reported> {
        let mut networks = Vec::new();
        let mut good = true;
        for item in items {
            if self.mistakes.len() >= MISTAKES_MAX {
                return Err(Reported);
            }
            if item.text.starts_with('@') {
                match self.named(line, *item) {
                    Ok(Set::Networks(set)) => {
                        self.count(line, *item, set.len(), of)?;
                        networks.extend_from_slice(&set);
                    }
                    Ok(_) => {
                        good = false;
                        self.mistake(
                            line,
                            item.span(),
                            format!("`{}` is a set of ports", item.text),
                            format!("write it behind `port`: `to any port {}`", item.text),
                        );
                    }
                    Err(Reported) => good = false,
                }
                continue;
            }
            match network(item.text) {
                Ok(ranges) => {
                    let before = networks.len();
                    networks.extend(ranges);
                    self.count(line, *item, networks.len() - before, of)?;
                }
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
        if good { Ok(networks) } else { Err(Reported) }
    }

    fn ports(
        &mut self,
        line: u32,
        items: &[Word<'_>],
        of: usize,
    ) -> Result<Vec<(u16, u16)>, Reported> {
        let mut ports = Vec::new();
        let mut good = true;
        for item in items {
            if self.mistakes.len() >= MISTAKES_MAX {
                return Err(Reported);
            }
            if item.text.starts_with('@') {
                match self.named(line, *item) {
                    Ok(Set::Ports(set)) => {
                        self.count(line, *item, set.len(), of)?;
                        ports.extend_from_slice(&set);
                    }
                    Ok(_) => {
                        good = false;
                        self.mistake(
                            line,
                            item.span(),
                            format!("`{}` is a set of networks", item.text),
                            format!("write it behind `from` or `to`: `to {}`", item.text),
                        );
                    }
                    Err(Reported) => good = false,
                }
                continue;
            }
            match port_range(item.text) {
                Ok(range) => {
                    self.count(line, *item, 1, of)?;
                    ports.push(range);
                }
                Err((wrong, instead)) => {
                    good = false;
                    self.mistake(line, item.span(), wrong, instead);
                }
            }
        }
        if good { Ok(ports) } else { Err(Reported) }
    }
}
