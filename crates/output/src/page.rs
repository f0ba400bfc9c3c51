//! A page of metrics under construction, and the tables that it is written from: a row is a family with its name, type, help and
//! the value that it takes from a subject. Hosts and orchestrators write theirs by it.

use std::fmt::{self, Display, Formatter, Write};

/// Metrics under construction.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// Whether a family only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Number(u64),
    /// Microseconds, written as seconds.
    Seconds(u64),
    /// The same with a sign.
    SignedSeconds(i64),
    /// Thousandths, written as a ratio to 1.
    Thousandths(u64),
    /// Not known now: `NaN`.
    Unknown,
}

impl Value {
    /// A value that may be unknown.
    #[must_use]
    pub fn known<T>(value: Option<T>, of: impl FnOnce(T) -> Value) -> Value {
        value.map_or(Value::Unknown, of)
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Seconds(us) => write!(f, "{}.{:06}", us / 1_000_000, us % 1_000_000),
            Value::SignedSeconds(us) => {
                let sign = if us < 0 { "-" } else { "" };
                write!(f, "{sign}{}", Value::Seconds(us.unsigned_abs()))
            }
            Value::Thousandths(parts) => write!(f, "{}.{:03}", parts / 1_000, parts % 1_000),
            Value::Unknown => f.write_str("NaN"),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<u8> for Value {
    fn from(number: u8) -> Value {
        Value::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number as u64)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Value {
        Value::Number(holds.into())
    }
}

/// A family, and how its value is read from a subject.
#[derive(Debug)]
pub struct Metric<S> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&S) -> Value,
}

/// A row of a table: a counter.
#[must_use]
pub const fn counter<S>(
    name: &'static str,
    help: &'static str,
    read: fn(&S) -> Value,
) -> Metric<S> {
    Metric {
        name,
        kind: Kind::Counter,
        help,
        read,
    }
}

/// A row of a table: a gauge.
#[must_use]
pub const fn gauge<S>(name: &'static str, help: &'static str, read: fn(&S) -> Value) -> Metric<S> {
    Metric {
        name,
        kind: Kind::Gauge,
        help,
        read,
    }
}

/// Labels of a sample, in order.
pub type Labels<'a> = [(&'a str, &'a str)];

impl Page {
    /// Each family of a table with one sample and no labels.
    pub fn table<S>(&mut self, table: &[Metric<S>], subject: &S) {
        for metric in table {
            self.one(
                metric.name,
                metric.kind,
                metric.help,
                (metric.read)(subject),
            );
        }
    }

    /// Each family of a table with a sample of each subject. `subjects` visits all of them, with their labels.
    pub fn table_of<S>(
        &mut self,
        table: &[Metric<S>],
        subjects: impl Fn(&mut dyn FnMut(&Labels<'_>, &S)),
    ) {
        for metric in table {
            self.family(metric.name, metric.kind, metric.help);
            subjects(&mut |labels, subject| {
                self.sample(metric.name, labels, (metric.read)(subject));
            });
        }
    }

    /// The head of a family; its samples follow at once.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let (kind, help) = (kind.word(), help.replace('\\', "\\\\").replace('\n', "\\n"));
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: &Labels<'_>, value: impl Into<Value>) {
        self.text.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let mark = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{mark}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let value: Value = value.into();
        let _ = writeln!(self.text, " {value}");
    }

    /// A family with one sample and no labels.
    pub fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl Into<Value>) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// All that was written.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}
