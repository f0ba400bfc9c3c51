//! What a measure hands back, and the one JSON document it prints.
//!
//! A [`Document`] is made again at every call and never stored. Exit 0 means *measured*, whether or not
//! the bar is met; a [`Failure`] is a sentence and a non-zero exit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::registry::Row;
use crate::timing::{LostTime, Spread};

/// The version of [`Document`]; a field that changes its meaning changes it.
pub const MEASURE_SCHEMA: &str = "asterism.measure/1";

/// What a measure found.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    value: f64,
    runs: u32,
    variants: BTreeMap<String, f64>,
    samples: BTreeMap<String, Vec<f64>>,
    quartiles: Option<[f64; 2]>,
    lost_time: LostTime,
}

impl Outcome {
    /// `value` in the unit of the row, found over `runs` runs.
    pub fn new(value: f64, runs: u32) -> Self {
        Self {
            value,
            runs,
            ..Self::default()
        }
    }

    /// The median of `spread`, with its quartiles.
    pub fn of(spread: &Spread) -> Self {
        Self {
            quartiles: Some([spread.first_quartile, spread.third_quartile]),
            ..Self::new(spread.median, spread.runs)
        }
    }

    /// The same with another value, found over `runs` runs: for measures that learn it last.
    #[must_use]
    pub fn with_value(mut self, value: f64, runs: u32) -> Self {
        self.value = value;
        self.runs = runs;
        self
    }

    /// Adds a raw number.
    #[must_use]
    pub fn variant(mut self, name: impl Into<String>, figure: f64) -> Self {
        self.variants.insert(name.into(), figure);
        self
    }

    /// Adds the single runs behind a number.
    #[must_use]
    pub fn samples(mut self, name: impl Into<String>, runs: Vec<f64>) -> Self {
        self.samples.insert(name.into(), runs);
        self
    }

    /// States the quartiles of the value.
    #[must_use]
    pub fn quartiles(mut self, first: f64, third: f64) -> Self {
        self.quartiles = Some([first, third]);
        self
    }

    /// Adds the time during which the measured threads were not running.
    #[must_use]
    pub fn lost(mut self, lost: LostTime) -> Self {
        self.lost_time = self.lost_time.and(lost);
        self
    }
}

/// Why there is no figure. Each kind has its own exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Something was lost, corrupted or unequal that must not be, or nothing was tried: exit 1.
    Unsound(String),
    /// No such measure, or a command line that says nothing: exit 2.
    Usage(String),
    /// The measure is promised and not built: exit 3.
    NotYet(String),
    /// A peer, driver or right that the measure needs is absent: exit 4.
    Absent(String),
}

impl Failure {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unsound(_) => 1,
            Self::Usage(_) => 2,
            Self::NotYet(_) => 3,
            Self::Absent(_) => 4,
        }
    }

    /// What happened.
    pub fn sentence(&self) -> &str {
        match self {
            Self::Unsound(sentence)
            | Self::Usage(sentence)
            | Self::NotYet(sentence)
            | Self::Absent(sentence) => sentence,
        }
    }
}

/// What `measure NAME --format json` prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// [`MEASURE_SCHEMA`].
    pub schema: String,
    /// The name of the row.
    pub name: String,
    /// The one number, in `unit`.
    pub value: f64,
    /// The unit of `value`.
    pub unit: String,
    /// What the value must reach, in words.
    pub bar: String,
    /// Whether value and variants meet their bars; null where nothing is judged.
    pub met: Option<bool>,
    /// First and third quartile of the value, where it is a median.
    pub quartiles: Option<[f64; 2]>,
    /// Raw numbers.
    pub variants: BTreeMap<String, f64>,
    /// How often it was run.
    pub runs: u32,
    /// The single runs.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// What the paper or a peer reaches, and where that is from.
    pub anchor: Vec<AnchorText>,
    /// Time during which the measured threads were not running.
    pub lost_time: LostTime,
    /// Seconds of wall time that the measure took.
    pub took_s: f64,
    /// Whether this is the long form.
    pub full: bool,
    /// Where it was measured.
    pub machine: Machine,
    /// The commit measured, `-dirty` appended if the tree had changes; `unknown` outside a repository.
    pub commit: String,
}

/// An anchor as printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AnchorText {
    /// Whose figure.
    pub whose: String,
    /// The figure with its unit.
    pub figure: String,
    /// Where it is from.
    pub from: String,
}

impl Document {
    /// Joins what was found with what was promised. Refuses a figure that is no number, an outcome of
    /// no runs, and one that leaves out a variant that the row's bar judges.
    pub fn new(row: &Row, outcome: Outcome, took_s: f64, full: bool) -> Result<Self, Failure> {
        if outcome.runs == 0 {
            return Err(Failure::Unsound(format!("{}: nothing was tried", row.name)));
        }
        let numbers = outcome
            .variants
            .values()
            .chain(outcome.samples.values().flatten())
            .chain([&outcome.value]);
        if numbers.into_iter().any(|number| !number.is_finite()) {
            return Err(Failure::Unsound(format!(
                "{}: a figure is no number, so nothing was measured",
                row.name
            )));
        }
        let mut met = row.bar.met_by(outcome.value);
        for (variant, bar) in row.also {
            let Some(figure) = outcome.variants.get(*variant) else {
                return Err(Failure::Unsound(format!(
                    "{}: the variant {variant}, which has a bar, was not measured",
                    row.name
                )));
            };
            if let Some(this) = bar.met_by(*figure) {
                met = Some(met.unwrap_or(true) && this);
            }
        }
        Ok(Self {
            schema: MEASURE_SCHEMA.to_owned(),
            name: row.name.to_owned(),
            value: outcome.value,
            unit: row.unit.to_owned(),
            bar: row.bar_in_words(),
            met,
            quartiles: outcome.quartiles,
            variants: outcome.variants,
            runs: outcome.runs,
            samples: outcome.samples,
            anchor: row
                .anchors
                .iter()
                .map(|anchor| AnchorText {
                    whose: anchor.whose.into(),
                    figure: anchor.figure.into(),
                    from: anchor.from.into(),
                })
                .collect(),
            lost_time: outcome.lost_time,
            took_s,
            full,
            machine: Machine::describe(),
            commit: crate::machine::commit(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn row(name: &str) -> &'static Row {
        registry::find(name).expect("a row of this name")
    }

    #[test]
    fn the_document_has_every_field_of_the_contract() {
        let outcome = Outcome::new(40.0, 9)
            .variant("10k-raw", 40.0)
            .quartiles(39.0, 41.5);
        let document = Document::new(row("nat.10k"), outcome, 1.5, false).expect("sound");
        let json = serde_json::to_value(&document).expect("serialises");
        for field in [
            "schema",
            "name",
            "value",
            "unit",
            "variants",
            "runs",
            "anchor",
            "machine",
            "commit",
            "quartiles",
            "lost_time",
            "bar",
            "met",
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
        assert_eq!(json["schema"], MEASURE_SCHEMA);
        assert_eq!(json["met"], true);
        assert_eq!(json["quartiles"][1], 41.5);
        assert!(
            json["anchor"][0]["figure"]
                .as_str()
                .expect("a string")
                .contains("82 / 134 / 256")
        );
        let again: Document = serde_json::from_value(json).expect("reads back");
        assert_eq!(again.value, 40.0);
    }

    #[test]
    fn a_variant_with_a_bar_must_be_there_and_is_judged() {
        let missing = Document::new(
            row("pass-through.read-write"),
            Outcome::new(1.0, 9),
            0.0,
            false,
        );
        assert!(
            matches!(missing, Err(Failure::Unsound(sentence)) if sentence.contains("instructions"))
        );
        let over = Outcome::new(1.0, 9).variant("instructions", 13.0);
        assert_eq!(
            Document::new(row("pass-through.read-write"), over, 0.0, false)
                .expect("sound")
                .met,
            Some(false)
        );
    }

    #[test]
    fn no_figure_is_no_measure() {
        assert!(Document::new(row("nat.10k"), Outcome::new(f64::NAN, 9), 0.0, false).is_err());
        assert!(Document::new(row("nat.10k"), Outcome::new(1.0, 0), 0.0, false).is_err());
    }
}
