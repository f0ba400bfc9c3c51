//! What a function names itself: reasons to drop packets that the [one list](crate::Reason) does not have, and values that it
//! measures of its state. Both stand in `status`, in traces and among the metrics beside the engine's.

/// Own reasons of a function at most; of a chain, of all its stages together.
pub const OWN_REASONS_MAX: usize = 8;
/// Own metrics of a function at most.
pub const OWN_METRICS_MAX: usize = 32;
/// Own metrics of all stages of a chain together at most.
pub const CHAIN_METRICS_MAX: usize = 128;

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

/// Whether reasons and metrics are named as they must be. Whoever takes a function from elsewhere asks before it is run.
///
/// # Errors
/// The first that is not, and how it should be.
pub fn check_own(reasons: &[OwnReason], metrics: &[OwnMetric]) -> Result<(), String> {
    check_counts(reasons.len(), (metrics.len(), OWN_METRICS_MAX))?;
    for (place, reason) in reasons.iter().enumerate() {
        let label = reason.label;
        if !is_words(label, b'-') {
            return Err(format!(
                "the reason {label:?} is no name: use words of a-z and 0-9 joined by hyphens, such as share-used-up"
            ));
        }
        if crate::Reason::ALL.iter().any(|one| one.label() == label) {
            return Err(format!(
                "the reason {label:?} is in the list of all: use that one"
            ));
        }
        if reasons[..place].iter().any(|other| other.label == label) {
            return Err(format!("two reasons are called {label:?}"));
        }
        check_meaning(label, reason.meaning)?;
    }
    for (place, metric) in metrics.iter().enumerate() {
        let name = metric.name;
        if !is_words(name, b'_') {
            return Err(format!(
                "the metric {name:?} is no name: use words of a-z and 0-9 joined by underscores, such as sources_full"
            ));
        }
        if name.ends_with("_total") != (metric.kind == MetricKind::Counter) {
            return Err(format!(
                "the metric {name:?}: counters end in _total, and nothing else does"
            ));
        }
        if metrics[..place].iter().any(|other| other.name == name) {
            return Err(format!("two metrics are called {name:?}"));
        }
        check_meaning(name, metric.meaning)?;
    }
    Ok(())
}

/// Whether there are not too many, of one function or of all stages of a chain: reasons, and metrics with how many there may be.
pub(crate) fn check_counts(
    reasons: usize,
    (metrics, metrics_max): (usize, usize),
) -> Result<(), String> {
    if reasons > OWN_REASONS_MAX {
        return Err(format!(
            "{reasons} reasons of its own, of at most {OWN_REASONS_MAX}"
        ));
    }
    if metrics > metrics_max {
        return Err(format!(
            "{metrics} metrics of its own, of at most {metrics_max}"
        ));
    }
    Ok(())
}

fn check_meaning(name: &str, meaning: &str) -> Result<(), String> {
    let is_sentence = meaning.ends_with('.')
        && meaning.chars().next().is_some_and(char::is_uppercase)
        && !meaning.contains('\n');
    match is_sentence {
        true => Ok(()),
        false => Err(format!(
            "the meaning of {name:?} is no sentence: begin it with a capital letter, end it with a full stop, on one line"
        )),
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
        assert_eq!(check_own(&[reason("share-used-up")], &good), Ok(()));
        for label in [
            "",
            "Share",
            "share_used",
            "-share",
            "a--b",
            "table-full",
            "ä",
        ] {
            assert!(check_own(&[reason(label)], &[]).is_err(), "{label}");
        }
        assert!(check_own(&[reason("twice"), reason("twice")], &[]).is_err());
        let counter = MetricKind::Counter;
        assert_eq!(check_own(&[], &[metric("seen_total", counter)]), Ok(()));
        for name in ["seen", "seen-total", "2_total", ""] {
            assert!(check_own(&[], &[metric(name, counter)]).is_err(), "{name}");
        }
        assert!(check_own(&[], &[metric("seen_total", MetricKind::Gauge)]).is_err());
        let silent = OwnReason {
            label: "silent",
            meaning: "no sentence",
        };
        assert!(check_own(&[silent], &[]).unwrap_err().contains("sentence"));
        let many = [reason("x"); OWN_REASONS_MAX + 1];
        assert!(check_own(&many, &[]).unwrap_err().contains("at most"));
        let most = (OWN_METRICS_MAX, OWN_METRICS_MAX);
        assert_eq!(check_counts(OWN_REASONS_MAX, most), Ok(()));
        let beyond = (CHAIN_METRICS_MAX + 1, CHAIN_METRICS_MAX);
        assert!(check_counts(0, beyond).unwrap_err().contains("at most 128"));
    }
}
