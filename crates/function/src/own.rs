//! Names that a function defines: reasons to drop packets that the [common list](crate::Reason) lacks, metrics of its state,
//! and events. Reasons and metrics appear in `status`, in traces and among the metrics beside the engine's, events in the
//! host's log of alerts.

use core::fmt;

/// Own reasons of a function at most; of a chain, of all its stages together.
pub const OWN_REASONS_MAX: usize = 8;
/// Own metrics of a function at most.
pub const OWN_METRICS_MAX: usize = 32;
/// Own metrics of all stages of a chain together at most.
pub const CHAIN_METRICS_MAX: usize = 128;

/// Bytes of a notice's texts at most, each; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 256;

/// Bytes of the word for a notice's class at most.
pub const CATEGORY_BYTES_MAX: usize = 64;

/// A reason to drop packets that is one function's own. [`Reason::own`](crate::Reason::own) gives the one of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnReason {
    /// Its name in metrics and reports: words of a-z and 0-9, joined by hyphens. Of a chain `stage.name`.
    pub label: &'static str,
    /// What it means, in a sentence.
    pub meaning: &'static str,
}

/// A value that a function measures of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMetric {
    /// Its name: words of a-z and 0-9, joined by underscores, the unit last; that of a counter ends in `_total`. Shown as
    /// `asterism_function_NAME`. Of a chain `stage.name`, shown with the label `stage`.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// What it is, in a sentence.
    pub meaning: &'static str,
}

impl OwnMetric {
    /// A value that only grows while the instance runs.
    #[must_use]
    pub const fn counter(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            kind: MetricKind::Counter,
            meaning,
        }
    }

    /// A value that grows and falls.
    #[must_use]
    pub const fn gauge(name: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            kind: MetricKind::Gauge,
            meaning,
        }
    }
}

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows while the instance runs.
    Counter,
    /// It grows and falls.
    Gauge,
}

impl MetricKind {
    /// Its word among the metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A kind of events that a function tells of, as [notices](crate::notice).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnEvent {
    /// Who numbers it: [`GENERATOR`](Self::GENERATOR), [`OPERATOR`](Self::OPERATOR), or another list of numbers that log readers tell
    /// apart from these.
    pub generator: u32,
    /// Its number there, which never changes its meaning, and which nothing else ever gets. 0: its notices have numbers and texts
    /// of their own, as what an operator wrote has.
    pub id: u32,
    /// What was found, in words without a full stop.
    pub text: &'static str,
    /// What class it is of, by a word that other systems use too (Suricata's `classification.config`).
    pub category: &'static str,
    /// From 1, the worst, to 3.
    pub severity: u8,
}

impl OwnEvent {
    /// The generator of functions that are not of the library.
    pub const GENERATOR: u32 = 901;
    /// The generator of what the operator wrote, by numbers of the operator's own.
    pub const OPERATOR: u32 = 1;

    /// One of a function that is not of the library.
    #[must_use]
    pub const fn new(id: u32, text: &'static str, category: &'static str, severity: u8) -> Self {
        Self {
            generator: Self::GENERATOR,
            id,
            text,
            category,
            severity,
        }
    }
}

/// What is wrong with the reasons, metrics and events of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnError {
    /// There are so many reasons.
    TooManyReasons(usize),
    /// There are more metrics than there may be.
    TooManyMetrics {
        /// How many.
        count: usize,
        /// The most.
        most: usize,
    },
    /// A reason's label is no words.
    ReasonName(&'static str),
    /// A reason is one of all functions.
    SharedReason(&'static str),
    /// Two reasons have one label.
    SameReason(&'static str),
    /// A metric's name is no words.
    MetricName(&'static str),
    /// A counter does not end as counters do, or something else does.
    MetricEnd(&'static str),
    /// Two metrics have one name.
    SameMetric(&'static str),
    /// The meaning of this reason or metric is no sentence.
    Meaning(&'static str),
    /// A text or a category of an event is no title.
    EventTitle {
        /// The event's number.
        id: u32,
        /// The text.
        text: &'static str,
        /// Bytes that it has at most.
        bytes_max: usize,
    },
    /// An event has a severity that is none.
    Severity {
        /// The event's text.
        text: &'static str,
        /// The severity.
        severity: u8,
    },
    /// Two events have one number.
    SameEvent {
        /// The generator.
        generator: u32,
        /// The number.
        id: u32,
    },
}

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnError::TooManyReasons(count) => {
                write!(
                    f,
                    "{count} reasons of its own, of at most {OWN_REASONS_MAX}"
                )
            }
            OwnError::TooManyMetrics { count, most } => {
                write!(f, "{count} metrics of its own, of at most {most}")
            }
            OwnError::ReasonName(label) => write!(
                f,
                "the reason {label:?} is no name: use words of a-z and 0-9 joined by hyphens, such as share-used-up"
            ),
            OwnError::SharedReason(label) => {
                write!(
                    f,
                    "the reason {label:?} is in the list of all: use that one"
                )
            }
            OwnError::SameReason(label) => write!(f, "two reasons are called {label:?}"),
            OwnError::MetricName(name) => write!(
                f,
                "the metric {name:?} is no name: use words of a-z and 0-9 joined by underscores, such as sources_full"
            ),
            OwnError::MetricEnd(name) => write!(
                f,
                "the metric {name:?}: counters end in _total, and nothing else does"
            ),
            OwnError::SameMetric(name) => write!(f, "two metrics are called {name:?}"),
            OwnError::Meaning(name) => write!(
                f,
                "the meaning of {name:?} is no sentence: begin it with a capital letter, end it with a full stop, on one line"
            ),
            OwnError::EventTitle {
                id,
                text,
                bytes_max,
            } => write!(
                f,
                "the event {id} is called {text:?}: begin with a capital letter, end without a full stop, on one line of at most {bytes_max} bytes"
            ),
            OwnError::Severity { text, severity } => write!(
                f,
                "the event {text:?} has the severity {severity}: 1 is the worst, 3 the least"
            ),
            OwnError::SameEvent { generator, id } => write!(
                f,
                "two events have the number {id} of the generator {generator}"
            ),
        }
    }
}

impl core::error::Error for OwnError {}

/// Whether reasons, metrics and events are named as they must be. Anyone who takes a function from elsewhere asks before it is run.
///
/// # Errors
/// The first that is not, and how it should be.
pub fn check_own(
    reasons: &[OwnReason],
    metrics: &[OwnMetric],
    events: &[OwnEvent],
) -> Result<(), OwnError> {
    check_counts(reasons.len(), (metrics.len(), OWN_METRICS_MAX))?;
    for (place, reason) in reasons.iter().enumerate() {
        let label = reason.label;
        if !is_words(label, b'-') {
            return Err(OwnError::ReasonName(label));
        }
        if crate::Reason::ALL.iter().any(|one| one.label() == label) {
            return Err(OwnError::SharedReason(label));
        }
        if reasons[..place].iter().any(|other| other.label == label) {
            return Err(OwnError::SameReason(label));
        }
        check_meaning(label, reason.meaning)?;
    }
    for (place, metric) in metrics.iter().enumerate() {
        let name = metric.name;
        if !is_words(name, b'_') {
            return Err(OwnError::MetricName(name));
        }
        if name.ends_with("_total") != (metric.kind == MetricKind::Counter) {
            return Err(OwnError::MetricEnd(name));
        }
        if metrics[..place].iter().any(|other| other.name == name) {
            return Err(OwnError::SameMetric(name));
        }
        check_meaning(name, metric.meaning)?;
    }
    for (place, event) in events.iter().enumerate() {
        check_event(event)?;
        let number = (event.generator, event.id);
        let mut others = events[..place].iter();
        if others.any(|other| (other.generator, other.id) == number) {
            return Err(OwnError::SameEvent {
                generator: event.generator,
                id: event.id,
            });
        }
    }
    Ok(())
}

fn check_event(event: &OwnEvent) -> Result<(), OwnError> {
    for (text, bytes_max) in [
        (event.text, TEXT_BYTES_MAX),
        (event.category, CATEGORY_BYTES_MAX),
    ] {
        let is_title = text.chars().next().is_some_and(char::is_uppercase)
            && !text.ends_with('.')
            && !text.chars().any(char::is_control)
            && text.len() <= bytes_max;
        if !is_title {
            return Err(OwnError::EventTitle {
                id: event.id,
                text,
                bytes_max,
            });
        }
    }
    match event.severity {
        1..=3 => Ok(()),
        severity => Err(OwnError::Severity {
            text: event.text,
            severity,
        }),
    }
}

/// Whether there are not too many, of one function or of all stages of a chain: reasons, and metrics with how many there may be.
pub(crate) fn check_counts(
    reasons: usize,
    (metrics, metrics_max): (usize, usize),
) -> Result<(), OwnError> {
    if reasons > OWN_REASONS_MAX {
        return Err(OwnError::TooManyReasons(reasons));
    }
    if metrics > metrics_max {
        return Err(OwnError::TooManyMetrics {
            count: metrics,
            most: metrics_max,
        });
    }
    Ok(())
}

fn check_meaning(name: &'static str, meaning: &str) -> Result<(), OwnError> {
    let is_sentence = meaning.ends_with('.')
        && meaning.chars().next().is_some_and(char::is_uppercase)
        && !meaning.contains('\n');
    match is_sentence {
        true => Ok(()),
        false => Err(OwnError::Meaning(name)),
    }
}

/// Whether a name is made of words of small letters and digits, the first one beginning with a letter.
pub(crate) fn is_words(name: &str, joined_by: u8) -> bool {
    let mut words = name.split(char::from(joined_by));
    name.bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase())
        && name.len() <= 63
        && words.all(|word| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn reason(label: &'static str) -> OwnReason {
        OwnReason {
            label,
            meaning: "A reason.",
        }
    }

    const fn metric(name: &'static str, kind: MetricKind) -> OwnMetric {
        OwnMetric {
            name,
            kind,
            meaning: "A value.",
        }
    }

    #[test]
    fn names_follow_the_convention() {
        let good = [metric("sources_full", MetricKind::Gauge)];
        assert_eq!(check_own(&[reason("share-used-up")], &good, &[]), Ok(()));
        for label in [
            "",
            "Share",
            "share_used",
            "-share",
            "a--b",
            "table-full",
            "ä",
        ] {
            assert!(check_own(&[reason(label)], &[], &[]).is_err(), "{label}");
        }
        assert!(check_own(&[reason("twice"), reason("twice")], &[], &[]).is_err());
        let counter = MetricKind::Counter;
        assert_eq!(
            check_own(&[], &[metric("seen_total", counter)], &[]),
            Ok(())
        );
        for name in ["seen", "seen-total", "2_total", ""] {
            assert!(
                check_own(&[], &[metric(name, counter)], &[]).is_err(),
                "{name}"
            );
        }
        assert!(check_own(&[], &[metric("seen_total", MetricKind::Gauge)], &[]).is_err());
        let silent = OwnReason {
            label: "silent",
            meaning: "no sentence",
        };
        assert!(
            check_own(&[silent], &[], &[])
                .unwrap_err()
                .to_string()
                .contains("sentence")
        );
        let many = [reason("x"); OWN_REASONS_MAX + 1];
        assert!(
            check_own(&many, &[], &[])
                .unwrap_err()
                .to_string()
                .contains("at most")
        );
        let most = (OWN_METRICS_MAX, OWN_METRICS_MAX);
        assert_eq!(check_counts(OWN_REASONS_MAX, most), Ok(()));
        let beyond = (CHAIN_METRICS_MAX + 1, CHAIN_METRICS_MAX);
        assert!(
            check_counts(0, beyond)
                .unwrap_err()
                .to_string()
                .contains("at most 128")
        );
    }

    #[test]
    fn events_have_numbers_words_and_a_severity() {
        const SEEN: OwnEvent = OwnEvent::new(1, "Something was seen", "Misc activity", 3);
        let check = |events: &[OwnEvent]| check_own(&[], &[], events);
        assert_eq!(check(&[SEEN, OwnEvent { id: 2, ..SEEN }]), Ok(()));
        let twice = [SEEN, SEEN];
        assert!(
            check(&twice)
                .unwrap_err()
                .to_string()
                .contains("two events")
        );
        let by_others = [
            SEEN,
            OwnEvent {
                generator: 900,
                ..SEEN
            },
        ];
        assert_eq!(check(&by_others), Ok(()));
        for severity in [0, 4] {
            assert!(check(&[OwnEvent { severity, ..SEEN }]).is_err());
        }
        for text in ["", "seen", "Seen.", "Seen\nby"] {
            assert!(check(&[OwnEvent { text, ..SEEN }]).is_err(), "{text:?}");
            let category = text;
            assert!(check(&[OwnEvent { category, ..SEEN }]).is_err(), "{text:?}");
        }
    }
}
