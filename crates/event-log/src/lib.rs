//! The log of a host, an orchestrator, a director or a store on standard error: one line for each event, each with its effect and, where something is wrong, a cure.
//!
//! Lines are `key=value` or JSON. A kind of event is written at most a few times a second; what is left out is counted and
//! said.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io::Write;
use std::time::Duration;

use asterism_placement::Time;
use serde_json::{Map, Value};

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    /// `key=value` words, with quotes where there is white space
    #[default]
    Text,
    /// A JSON object in each line
    Json,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// It goes on, and somebody should look.
    Warning,
    /// Something does not work.
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    level: Level,
    kind: &'static str,
    fields: Vec<(&'static str, String)>,
}

impl Event {
    /// Something as it should be. `kind` names it in every log alike.
    #[must_use]
    pub fn info(kind: &'static str) -> Event {
        Event::new(Level::Info, kind)
    }
    /// Something that somebody should look at.
    #[must_use]
    pub fn warning(kind: &'static str) -> Event {
        Event::new(Level::Warning, kind)
    }
    /// Something that does not work.
    #[must_use]
    pub fn error(kind: &'static str) -> Event {
        Event::new(Level::Error, kind)
    }
    fn new(level: Level, kind: &'static str) -> Event {
        Event {
            level,
            kind,
            fields: Vec::new(),
        }
    }
    /// With a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Event {
        self.fields.push((name, value.to_string()));
        self
    }
    /// With what it means for the host.
    #[must_use]
    pub fn effect(self, effect: impl ToString) -> Event {
        self.with("effect", effect)
    }
    /// With what to do about it.
    #[must_use]
    pub fn cure(self, cure: impl ToString) -> Event {
        self.with("cure", cure)
    }
}

/// Lines of one kind that may come at once.
const BURST: u32 = 8;
/// How long it takes until one more may.
const REFILL: Duration = Duration::from_millis(500);
/// Kinds that are distinguished; beyond them all share one bound.
const KINDS_MAX: usize = 256;

#[derive(Debug)]
struct Bucket {
    left: u32,
    since: Time,
    suppressed: u64,
}

/// Writes events.
pub struct EventLog<'a> {
    out: &'a mut dyn Write,
    style: Style,
    host: String,
    buckets: HashMap<&'static str, Bucket, BuildHasherDefault<DefaultHasher>>,
    suppressed_total: u64,
}

impl core::fmt::Debug for EventLog<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "EventLog({})", self.host)
    }
}

impl<'a> EventLog<'a> {
    /// A event_log of a host.
    pub fn new(out: &'a mut dyn Write, style: Style, host: &str) -> EventLog<'a> {
        EventLog {
            out,
            style,
            host: host.to_owned(),
            buckets: HashMap::default(),
            suppressed_total: 0,
        }
    }

    /// Lines that were left out so far.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.suppressed_total
    }

    /// Writes an event that happened at `now`; `wall_s` is the date in seconds since 1970. Leaves it out if there were too
    /// many of its kind.
    pub fn write(&mut self, now: Time, wall_s: u64, event: &Event) {
        let kind = if self.buckets.len() < KINDS_MAX || self.buckets.contains_key(event.kind) {
            event.kind
        } else {
            "other"
        };
        let bucket = self.buckets.entry(kind).or_insert(Bucket {
            left: BURST,
            since: now,
            suppressed: 0,
        });
        let refill =
            (now.as_micros().saturating_sub(bucket.since.as_micros())) / REFILL.as_micros() as u64;
        if refill > 0 {
            bucket.left = bucket
                .left
                .saturating_add(refill.min(BURST.into()) as u32)
                .min(BURST);
            bucket.since = now;
        }
        if bucket.left == 0 {
            bucket.suppressed += 1;
            self.suppressed_total += 1;
            return;
        }
        bucket.left -= 1;
        let suppressed = core::mem::take(&mut bucket.suppressed);
        let mut fields = vec![
            ("time", date(wall_s)),
            ("level", event.level.word().to_owned()),
            ("event", event.kind.to_owned()),
            ("host", self.host.clone()),
        ];
        fields.extend(event.fields.iter().cloned());
        if suppressed > 0 {
            fields.push(("suppressed", suppressed.to_string()));
        }
        let line = match self.style {
            Style::Json => {
                let object: Map<String, Value> = fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), Value::String(value)))
                    .collect();
                Value::Object(object).to_string()
            }
            Style::Text => {
                let words: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", quoted(value)))
                    .collect();
                words.join(" ")
            }
        };
        // Nobody is left to tell when standard error cannot be written.
        let _ = writeln!(self.out, "{line}");
        let _ = self.out.flush();
    }
}

/// A value as one word: in quotes if it has white space, quotes, equal signs or control letters.
fn quoted(value: &str) -> String {
    let plain =
        |letter: char| !letter.is_whitespace() && !letter.is_control() && !"\"=\\".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("{value:?}")
}

/// A date and time in UTC as RFC 3339 writes it. Days to date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
#[must_use]
pub fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 {
        month_shifted + 3
    } else {
        month_shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(style: Style, events: &[(u64, Event)]) -> Vec<String> {
        let mut out = Vec::new();
        let mut event_log = EventLog::new(&mut out, style, "a");
        for (ms, event) in events {
            event_log.write(Time::from_micros(ms * 1_000), 0, event);
        }
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_line_is_words_or_json() {
        let event = Event::warning("link-down")
            .with("port", "inside")
            .effect("packets to it are \"dropped\"\nall of them")
            .cure("");
        let text = &lines(Style::Text, &[(0, event.clone())])[0];
        assert_eq!(
            text,
            r#"time=1970-01-01T00:00:00Z level=warning event=link-down host=a port=inside effect="packets to it are \"dropped\"\nall of them" cure="""#
        );
        let json: Value = serde_json::from_str(&lines(Style::Json, &[(0, event)])[0]).unwrap();
        assert_eq!(json["port"], "inside");
        assert_eq!(json["level"], "warning");
    }

    #[test]
    fn many_of_a_kind_are_left_out_and_counted() {
        let mut events: Vec<_> = (0..100).map(|_| (0, Event::info("same"))).collect();
        events.push((0, Event::info("other")));
        events.push((5_000, Event::info("same")));
        let lines = lines(Style::Text, &events);
        assert_eq!(lines.len(), BURST as usize + 2);
        assert!(lines[BURST as usize].contains("event=other"));
        assert!(lines[BURST as usize + 1].ends_with("suppressed=92"));
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(date(4_102_444_800), "2100-01-01T00:00:00Z");
    }
}
