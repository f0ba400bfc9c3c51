//! The steps of a scenario: one line each, read with every mistake at once. What steps do is in `world.rs` and `hosts.rs`.

use core::net::SocketAddrV4;
use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeSet;
use std::path::PathBuf;

use asterism_config::diagnostic::{Diagnostic, Report};
use asterism_config::suggestion;
use asterism_config::value::show_duration;
use asterism_config::wiring::{INSIDE, OUTSIDE};
use asterism_function::{Endpoint, PortNumber};

use super::pattern::Pattern;
use super::words::{self, Word};
use super::{PACKETS_MAX, SPAN_MAX, STEPS_MAX};

/// All kinds of steps: how each is written, and what it does. Errors and the page of scenarios are made of this.
pub const STEPS: &[(&str, &str)] = &[
    (
        "at TIME",
        "The clock advances to this time since the beginning; another step may follow on the line. All packets that left until then must have been expected.",
    ),
    (
        "wait TIME",
        "The clock advances by this time, as with `at`.",
    ),
    (
        "send HOST SIDE PACKET [times N]",
        "A packet arrives at a host by `inside` or `outside`. Several hosts (`a,b,c`) receive several packets in turn.",
    ),
    (
        "expect [SIDE] PACKET [times N] [on HOST]",
        "A matching packet leaves, and no longer counts as expected.",
    ),
    ("expect nothing", "Only expected packets leave."),
    (
        "pass [times N] [on HOST]",
        "Packets sent since the clock last advanced leave by the other side unchanged, except for Ethernet addresses and time to live; without `times` all packets of the last `send`.",
    ),
    (
        "drop REASON [times N] [on HOST]",
        "Packets are dropped for this reason.",
    ),
    (
        "ignore",
        "All packets that left or were dropped until now are ignored.",
    ),
    (
        "table OBJECT COUNT [on HOST]",
        "The number of entries of a state object at every living host: `3`, `>=3` or `<=3`.",
    ),
    (
        "state OBJECT KEY [VALUE | absent] [on HOST]",
        "An entry is found by a word of its key, as by `asterism state get`, and its value has that text; or the entry is found nowhere.",
    ),
    (
        "metric NAME COUNT [on HOST]",
        "The value of a metric of the function, as in `asterism status`.",
    ),
    (
        "alert TEXT... [on HOST]",
        "Every living host has an alert whose JSON line contains all these texts.",
    ),
    (
        "kill HOST",
        "The host's process ends at once, without notice to others.",
    ),
    (
        "without HOST",
        "The next epoch leaves out the host, which has ended, as by `asterism epoch --without HOST --fenced`.",
    ),
    (
        "return HOST",
        "The killed host begins its next incarnation, which an epoch names, as by `asterism epoch --again HOST`. The host accepts packets once it has the others' state.",
    ),
    (
        "link [HOST HOST] TIME",
        "The delay of messages between two hosts; without hosts, between all.",
    ),
    (
        "cut HOST HOST",
        "Two hosts no longer receive messages of each other.",
    ),
    (
        "heal [HOST HOST]",
        "The two hosts receive messages of each other again; without hosts, all do.",
    ),
    (
        "check HOST BACKEND up|down",
        "The check result of a host for a balancer's backend. `BACKEND` is its address and port, for services of TCP and UDP alike. Results have whole seconds: of two in the same second `down` counts.",
    ),
    (
        "reload FILE",
        "All living hosts take up another configuration, as by `asterism reload`.",
    ),
];

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Where it stands in the file.
    pub(super) span: Range<usize>,
    pub(super) what: What,
}

/// What a step does. Hosts are named by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Since the begin.
    At(Duration),
    Send {
        hosts: Vec<usize>,
        side: PortNumber,
        pattern: Box<Pattern>,
        times: u64,
    },
    Expect {
        side: Option<PortNumber>,
        pattern: Box<Pattern>,
        more: More,
    },
    Nothing,
    Pass(More),
    Drop {
        reason: String,
        more: More,
    },
    Ignore,
    Table {
        object: String,
        count: Count,
        host: Option<usize>,
    },
    State {
        object: String,
        key: String,
        value: Option<String>,
        absent: bool,
        host: Option<usize>,
    },
    Metric {
        name: String,
        count: Count,
        host: Option<usize>,
    },
    Alert {
        texts: Vec<String>,
        host: Option<usize>,
    },
    Kill(usize),
    Without(usize),
    Return(usize),
    Link(Option<(usize, usize)>, Duration),
    Cut(usize, usize),
    Heal(Option<(usize, usize)>),
    Check {
        host: usize,
        /// Of services of whatever protocols.
        backend: SocketAddrV4,
        is_down: bool,
    },
    Reload(PathBuf),
}

/// What may stand at the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    pub(super) times: Option<u64>,
    pub(super) host: Option<usize>,
}

/// How many there must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Is(u64),
    Least(u64),
    Most(u64),
}

impl Count {
    pub(super) fn holds(self, found: u64) -> bool {
        match self {
            Count::Is(count) => found == count,
            Count::Least(count) => found >= count,
            Count::Most(count) => found <= count,
        }
    }
}

impl core::fmt::Display for Count {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Count::Is(count) => write!(f, "{count}"),
            Count::Least(count) => write!(f, "at least {count}"),
            Count::Most(count) => write!(f, "at most {count}"),
        }
    }
}

/// What the configuration has that steps can name.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) hosts: Vec<String>,
    pub(super) objects: Vec<&'static str>,
    pub(super) reasons: Vec<&'static str>,
    pub(super) metrics: Vec<&'static str>,
    /// Backends that hosts check.
    pub(super) backends: Vec<Endpoint>,
}

/// Reads all steps of a text that begins at this byte of the report's. Mistakes go to the report.
pub(super) fn read(start: usize, known: &Vocabulary, report: &mut Report) -> Vec<Step> {
    let text = report.text.clone();
    let mut reading = Reading {
        known,
        names: BTreeSet::new(),
        clock: Duration::ZERO,
        packets: 0,
        steps: Vec::new(),
    };
    let mut at = start;
    for line in text[start..].split_inclusive('\n') {
        if let Err(mistake) = reading.line(line, at) {
            report.add(mistake);
        }
        at += line.len();
        if reading.steps.len() > STEPS_MAX || reading.packets > PACKETS_MAX {
            let (count, what) = match reading.steps.len() > STEPS_MAX {
                true => (STEPS_MAX as u64, "steps"),
                false => (PACKETS_MAX, "packets"),
            };
            report.add(
                Diagnostic::error(
                    format!("a scenario has at most {count} {what}"),
                    at - line.len()..at,
                )
                .help("make two files of it"),
            );
            break;
        }
    }
    reading.steps
}

struct Reading<'a> {
    known: &'a Vocabulary,
    /// Names that an `expect` gave.
    names: BTreeSet<String>,
    clock: Duration,
    packets: u64,
    steps: Vec<Step>,
}

impl Reading<'_> {
    fn line(&mut self, line: &str, start: usize) -> Result<(), Diagnostic> {
        let words = words::split(line.trim_end(), start)?;
        let mut rest = words.as_slice();
        if let [at, time, after @ ..] = rest
            && at.text == "at"
        {
            let time_is = time.duration()?;
            self.move_clock(time_is, at.span.start..time.span.end, time)?;
            rest = after;
        }
        let Some((verb, mut rest)) = rest.split_first() else {
            return Ok(());
        };
        let what = self.step(verb, &mut rest)?;
        if let Some(word) = rest.first() {
            return Err(word
                .wrong(format!("`{}` does not belong here", word.text))
                .help(form(verb.text)));
        }
        if let Some(what) = what {
            let end = words.last().map_or(verb.span.end, |last| last.span.end);
            self.steps.push(Step {
                span: verb.span.start..end,
                what,
            });
        }
        Ok(())
    }

    fn move_clock(
        &mut self,
        to: Duration,
        span: Range<usize>,
        time: &Word<'_>,
    ) -> Result<(), Diagnostic> {
        if to < self.clock {
            return Err(time
                .wrong(format!("it is {} already", show_duration(self.clock)))
                .help("times count from the begin of the scenario, and do not go back"));
        }
        if to > SPAN_MAX {
            return Err(time
                .wrong(format!(
                    "a scenario lasts at most {}",
                    show_duration(SPAN_MAX)
                ))
                .help("set shorter idle times in the configuration"));
        }
        self.clock = to;
        self.steps.push(Step {
            span,
            what: What::At(to),
        });
        Ok(())
    }

    fn step(
        &mut self,
        verb: &Word<'_>,
        rest: &mut &[Word<'_>],
    ) -> Result<Option<What>, Diagnostic> {
        Ok(Some(match verb.text {
            "wait" => {
                let time = next(verb, rest)?;
                let to = self.clock.saturating_add(time.duration()?);
                self.move_clock(to, verb.span.start..time.span.end, time)?;
                return Ok(None);
            }
            "send" => self.send(verb, rest)?,
            "expect" => self.expect(verb, rest)?,
            "pass" => What::Pass(self.more(rest)?),
            "drop" => {
                let reason = next(verb, rest)?;
                let reason = one_of(reason, "reason", &self.known.reasons)?;
                let more = self.more(rest)?;
                What::Drop { reason, more }
            }
            "ignore" => What::Ignore,
            "table" => {
                let object = one_of(next(verb, rest)?, "state object", &self.known.objects)?;
                let count = count(next(verb, rest)?)?;
                let host = self.more(rest)?.host;
                What::Table {
                    object,
                    count,
                    host,
                }
            }
            "metric" => {
                let name = one_of(next(verb, rest)?, "metric", &self.known.metrics)?;
                let count = count(next(verb, rest)?)?;
                let host = self.more(rest)?.host;
                What::Metric { name, count, host }
            }
            "state" => self.state(verb, rest)?,
            "alert" => self.alert(verb, rest)?,
            "kill" => What::Kill(self.host(next(verb, rest)?)?),
            "without" => What::Without(self.host(next(verb, rest)?)?),
            "return" => What::Return(self.host(next(verb, rest)?)?),
            "link" => {
                let between = match rest.len() {
                    0 | 1 => None,
                    _ => Some(self.pair(verb, rest)?),
                };
                What::Link(between, next(verb, rest)?.duration()?)
            }
            "cut" => {
                let (one, other) = self.pair(verb, rest)?;
                What::Cut(one, other)
            }
            "heal" if rest.is_empty() => What::Heal(None),
            "heal" => What::Heal(Some(self.pair(verb, rest)?)),
            "check" => self.check(verb, rest)?,
            "reload" => What::Reload(PathBuf::from(next(verb, rest)?.plain())),
            other => {
                let verbs = || STEPS.iter().filter_map(|(form, _)| form.split(' ').next());
                let wrong = verb.wrong(format!("there is no step `{other}`"));
                return Err(match suggestion::nearest(other, verbs()) {
                    Some(near) => wrong.help(form(near)),
                    None => {
                        let mut verbs: Vec<_> = verbs().collect();
                        verbs.dedup();
                        wrong.help(format!("steps are {}", verbs.join(", ")))
                    }
                });
            }
        }))
    }

    fn send(&mut self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<What, Diagnostic> {
        let hosts = next(verb, rest)?;
        let one = |name| {
            let word = Word {
                text: name,
                ..hosts.clone()
            };
            self.host(&word)
        };
        let places = hosts.text.split(',').map(one).collect::<Result<_, _>>()?;
        let side_word = next(verb, rest)?;
        let side = side(side_word).ok_or_else(|| {
            side_word
                .wrong(format!("`{}` is no side", side_word.text))
                .help("write inside or outside: the port of the host that the packet arrives by")
        })?;
        let pattern = Pattern::read(rest, side_word, true)?;
        if let Some(name) = pattern
            .names()
            .into_iter()
            .find(|name| !self.names.contains(*name))
        {
            return Err(verb
                .wrong(format!("${name} stands for nothing yet"))
                .help(format!(
                    "have an `expect` before with ${name} in the place of what is to be remembered"
                )));
        }
        let more = self.more(rest)?;
        if more.host.is_some() {
            return Err(verb
                .wrong("the host of a `send` is its first word")
                .help(form("send")));
        }
        let times = more.times.unwrap_or(1);
        self.packets = self
            .packets
            .saturating_add(times.saturating_mul(pattern.count()));
        Ok(What::Send {
            hosts: places,
            side,
            pattern: Box::new(pattern),
            times,
        })
    }

    fn expect(&mut self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<What, Diagnostic> {
        if let [only] = *rest
            && only.text == "nothing"
        {
            *rest = &[];
            return Ok(What::Nothing);
        }
        let side = rest.first().and_then(side);
        if side.is_some() {
            *rest = &rest[1..];
        }
        let pattern = Pattern::read(rest, verb, false)?;
        self.names
            .extend(pattern.names().into_iter().map(str::to_owned));
        let more = self.more(rest)?;
        Ok(What::Expect {
            side,
            pattern: Box::new(pattern),
            more,
        })
    }

    fn state(&mut self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<What, Diagnostic> {
        let object = one_of(next(verb, rest)?, "state object", &self.known.objects)?;
        let key = next(verb, rest)?.plain();
        let (mut value, mut absent) = (None, false);
        match rest.split_first() {
            Some((word, after)) if word.text == "absent" => (absent, *rest) = (true, after),
            Some((word, after)) if word.text != "on" => {
                (value, *rest) = (Some(word.plain()), after)
            }
            _ => {}
        }
        Ok(What::State {
            object,
            key,
            value,
            absent,
            host: self.more(rest)?.host,
        })
    }

    fn alert(&mut self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<What, Diagnostic> {
        let mut texts = vec![next(verb, rest)?.plain()];
        while let Some((word, after)) = rest.split_first()
            && word.text != "on"
        {
            texts.push(word.plain());
            *rest = after;
        }
        let host = self.more(rest)?.host;
        Ok(What::Alert { texts, host })
    }

    fn check(&mut self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<What, Diagnostic> {
        let host = self.host(next(verb, rest)?)?;
        let word = next(verb, rest)?;
        let at = |one: &Endpoint| SocketAddrV4::new(one.address, one.port);
        let mut known = self.known.backends.iter().map(at);
        let Some(backend) = known.find(|one| one.to_string() == word.text) else {
            let mut known: Vec<_> = self
                .known
                .backends
                .iter()
                .map(ToString::to_string)
                .collect();
            known.truncate(8);
            return Err(word
                .wrong(format!("no host checks a backend {}", word.text))
                .help(match known.is_empty() {
                    true => "give a service of the balancer check = \"tcp\"".to_owned(),
                    false => format!("write one of {}, without its protocol", known.join(", ")),
                }));
        };
        let found = next(verb, rest)?;
        let is_down = match found.text {
            "down" => true,
            "up" => false,
            other => {
                return Err(found
                    .wrong(format!("`{other}` is not found"))
                    .help("write up or down"));
            }
        };
        Ok(What::Check {
            host,
            backend,
            is_down,
        })
    }

    fn host(&self, word: &Word<'_>) -> Result<usize, Diagnostic> {
        let hosts = || self.known.hosts.iter().map(String::as_str);
        hosts().position(|name| name == word.text).ok_or_else(|| {
            word.wrong(format!("there is no host `{}`", word.text))
                .help(format!(
                    "`members` in [cluster] of this file are {}",
                    suggestion::quoted(hosts()).replace(" or ", " and ")
                ))
        })
    }

    fn pair(&self, verb: &Word<'_>, rest: &mut &[Word<'_>]) -> Result<(usize, usize), Diagnostic> {
        let one = self.host(next(verb, rest)?)?;
        let second = next(verb, rest)?;
        let other = self.host(second)?;
        if one == other {
            return Err(second
                .wrong("a host has no link to itself")
                .help(form(verb.text)));
        }
        Ok((one, other))
    }

    /// `times N` and `on HOST`.
    fn more(&self, rest: &mut &[Word<'_>]) -> Result<More, Diagnostic> {
        let mut more = More::default();
        while let [word, value, after @ ..] = *rest {
            match word.text {
                "times" => {
                    let times = value.number()?;
                    if times == 0 {
                        return Err(value.wrong("nothing happens no times").help(
                            "write 1 or more; `expect nothing` demands that nothing leaves",
                        ));
                    }
                    more.times = Some(times);
                }
                "on" => more.host = Some(self.host(value)?),
                _ => break,
            }
            *rest = after;
        }
        Ok(more)
    }
}

/// The next word, which must be there.
fn next<'w, 't>(verb: &Word<'_>, rest: &mut &'w [Word<'t>]) -> Result<&'w Word<'t>, Diagnostic> {
    let Some((word, after)) = rest.split_first() else {
        return Err(verb
            .wrong(format!("`{}` wants more words", verb.text))
            .help(form(verb.text)));
    };
    *rest = after;
    Ok(word)
}

/// How a step is written.
fn form(verb: &str) -> String {
    let forms = STEPS.iter().map(|(form, _)| *form);
    let of_verb = forms.filter(|form| form.split(' ').next() == Some(verb));
    let forms: Vec<_> = of_verb.map(|form| format!("`{form}`")).collect();
    format!("write {}", forms.join(" or "))
}

fn one_of(word: &Word<'_>, what: &str, known: &[&'static str]) -> Result<String, Diagnostic> {
    if known.contains(&word.text) {
        return Ok(word.text.to_owned());
    }
    let wrong = word.wrong(format!("there is no {what} `{}` here", word.text));
    if let Some(near) = suggestion::nearest(word.text, known.iter().copied()) {
        return Err(wrong.help(format!("did you mean `{near}`?")));
    }
    Err(match known {
        [] => wrong.help(format!("this function has no {what}")),
        _ if known.len() > 24 => wrong.help("all are in the page of reasons, docs/src/reasons.md"),
        _ => wrong.help(format!(
            "write {}",
            suggestion::ticked(known.iter().copied())
        )),
    })
}

fn side(word: &Word<'_>) -> Option<PortNumber> {
    match word.text {
        "inside" => Some(INSIDE),
        "outside" => Some(OUTSIDE),
        _ => None,
    }
}

fn count(word: &Word<'_>) -> Result<Count, Diagnostic> {
    let (kind, digits): (fn(u64) -> Count, &str) = match word.text {
        text if text.starts_with(">=") => (Count::Least, &text[2..]),
        text if text.starts_with("<=") => (Count::Most, &text[2..]),
        text => (Count::Is, text),
    };
    let number = Word {
        text: digits,
        ..word.clone()
    };
    number.number().map(kind)
}
