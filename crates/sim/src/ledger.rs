//! The ledger of what was run: ranges of seeds and portions of soak, each with the commit that ran it and the digest of what
//! happened, so that a million seeds can be run in pieces and any piece of them be run again.
//!
//! A line is a kind, a range, and named values:
//!
//! ```text
//! seeds 10000..11000 commit=56fb2400c1de digest=2227b1f8826ace98 passed=1000 failed=0 faults=1893210 operations=1937105 delivered=6589235
//! soak 0..4 commit=56fb2400c1de digest=0123456789abcdef passed=4 failed=0 operations=73924608 datagrams=201344 lost=4021 duplicated=3988 reordered=12007
//! ```
//!
//! Ranges of one kind do not overlap. What failed is in the ledger as well. Once what was wrong is mended the range is run again,
//! and a comment says that it failed, at which commit and by which seeds; a commit with a failed range in it passes no tests.

use core::fmt;
use std::collections::BTreeMap;
use std::ops::Range;

/// Seeds that are to be run once.
pub const SEEDS: u64 = 1_000_000;
/// Operations that are to be delivered by soak and simulator, none lost.
pub const OPERATIONS: u64 = 4_000_000_000;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Seeds of the simulator.
    Seeds,
    /// Portions of soak.
    Soak,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Seeds, Kind::Soak];

    /// Its word in the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Seeds => "seeds",
            Kind::Soak => "soak",
        }
    }

    /// The counts that its lines have, in order, besides `passed` and `failed`.
    const fn counts(self) -> &'static [&'static str] {
        match self {
            Kind::Seeds => &["faults", "operations", "delivered"],
            Kind::Soak => &["operations", "datagrams", "lost", "duplicated", "reordered"],
        }
    }
}

/// A range that was run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of what.
    pub kind: Kind,
    /// Which.
    pub range: Range<u64>,
    /// The commit that ran it, twelve hexadecimal digits.
    pub commit: String,
    /// Over the digests of all that passed.
    pub digest: u64,
    /// How many passed.
    pub passed: u64,
    /// How many did not.
    pub failed: u64,
    /// The counts of its kind, by name.
    pub counts: BTreeMap<String, u64>,
}

impl Line {
    /// Operations times the instances that applied them.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        let name = match self.kind {
            Kind::Seeds => "delivered",
            Kind::Soak => "operations",
        };
        self.counts.get(name).copied().unwrap_or(0)
    }

    fn parse(text: &str) -> Result<Line, String> {
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = kind.ok_or_else(|| format!("`{word}` is neither seeds nor soak"))?;
        let range = words.next().and_then(parse_range);
        let range = range.ok_or("the range FROM..TO is missing, or is none")?;
        let mut value = |name: &str| {
            let word = words.next().unwrap_or_default();
            let value = word
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='));
            value.ok_or_else(|| format!("`{name}=` is missing where `{word}` stands"))
        };
        let commit = value("commit")?.to_owned();
        if commit.len() != 12 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("a commit has twelve hexadecimal digits".into());
        }
        let digest = value("digest")?;
        let digest = u64::from_str_radix(digest, 16)
            .ok()
            .filter(|_| digest.len() == 16);
        let digest = digest.ok_or("a digest has sixteen hexadecimal digits")?;
        let mut number = |name: &str| {
            let number = value(name)?.parse::<u64>();
            number.map_err(|_| format!("`{name}` is no number"))
        };
        let (passed, failed) = (number("passed")?, number("failed")?);
        let mut counts = BTreeMap::new();
        for &name in kind.counts() {
            counts.insert(name.to_owned(), number(name)?);
        }
        if words.next().is_some() {
            return Err("there is more than the values of its kind".into());
        }
        if passed.checked_add(failed) != Some(range.end - range.start) {
            return Err("what passed and what failed are not the whole range".into());
        }
        Ok(Line {
            kind,
            range,
            commit,
            digest,
            passed,
            failed,
            counts,
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        let word = self.kind.word();
        write!(out, "{word} {start}..{end} commit={}", self.commit)?;
        write!(
            out,
            " digest={:016x} passed={} failed={}",
            self.digest, self.passed, self.failed
        )?;
        for name in self.kind.counts() {
            let count = self.counts.get(*name).copied().unwrap_or(0);
            write!(out, " {name}={count}")?;
        }
        Ok(())
    }
}

/// `FROM..TO`, not empty.
#[must_use]
pub fn parse_range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// All that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    lines: Vec<Line>,
}

impl Ledger {
    /// Reads a ledger. Empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// The first line that is none or overlaps another of its kind, by its number, and why.
    pub fn parse(text: &str) -> Result<Ledger, String> {
        let mut ledger = Ledger::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = Line::parse(line).and_then(|line| ledger.add(line));
            line.map_err(|why| format!("line {number}: {why}"))?;
        }
        Ok(ledger)
    }

    /// Adds a range.
    ///
    /// # Errors
    /// It overlaps another of its kind; nothing changed.
    pub fn add(&mut self, line: Line) -> Result<(), String> {
        let overlaps = |known: &&Line| {
            known.kind == line.kind
                && known.range.start < line.range.end
                && line.range.start < known.range.end
        };
        if let Some(known) = self.lines.iter().find(overlaps) {
            return Err(format!(
                "{:?} overlaps {:?}, which is there already",
                line.range, known.range
            ));
        }
        self.lines.push(line);
        Ok(())
    }

    /// All lines, as they stand.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// What of a range was not run, in pieces of at most `each`, in order. Pieces end at multiples of `each`.
    #[must_use]
    pub fn missing(&self, kind: Kind, range: Range<u64>, each: u64) -> Vec<Range<u64>> {
        let each = each.max(1);
        let of_kind = self.lines.iter().filter(|line| line.kind == kind);
        let mut known: Vec<_> = of_kind.map(|line| line.range.clone()).collect();
        known.sort_by_key(|known| known.start);
        let mut pieces = Vec::new();
        let mut from = range.start;
        while from < range.end {
            if let Some(known) = known.iter().find(|known| known.contains(&from)) {
                from = known.end;
                continue;
            }
            let next = known.iter().map(|known| known.start);
            let next = next.filter(|&start| start > from).min();
            let multiple = (from / each + 1).saturating_mul(each);
            let end = multiple.min(range.end).min(next.unwrap_or(u64::MAX));
            pieces.push(from..end);
            from = end;
        }
        pieces
    }

    /// The sum over the lines of a kind.
    fn sum(&self, kind: Kind, figure: impl Fn(&Line) -> u64) -> u64 {
        let lines = self.lines.iter().filter(|line| line.kind == kind);
        lines.map(figure).sum()
    }

    /// Seeds that passed.
    #[must_use]
    pub fn seeds(&self) -> u64 {
        self.sum(Kind::Seeds, |line| line.passed)
    }

    /// Operations delivered, by the simulator and by the soak.
    #[must_use]
    pub fn delivered(&self) -> (u64, u64) {
        let delivered = |kind| self.sum(kind, Line::delivered);
        (delivered(Kind::Seeds), delivered(Kind::Soak))
    }

    /// Seeds and portions that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        Kind::ALL
            .into_iter()
            .map(|kind| self.sum(kind, |line| line.failed))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# comment\n\nseeds 10..20 commit=0123456789ab digest=00000000000000ff passed=9 failed=1 faults=7 operations=8 delivered=30\nsoak 10..12 commit=0123456789ab digest=0000000000000001 passed=2 failed=0 operations=500 datagrams=50 lost=5 duplicated=1 reordered=2\n";

    #[test]
    fn lines_are_read_as_they_are_written() {
        let ledger = Ledger::parse(TEXT).unwrap();
        let written: Vec<String> = ledger.lines().iter().map(Line::to_string).collect();
        assert_eq!(written, TEXT.lines().skip(2).collect::<Vec<_>>());
        assert_eq!((ledger.seeds(), ledger.failed()), (9, 1));
        assert_eq!(ledger.delivered(), (30, 500));
    }

    #[test]
    fn what_is_no_line_is_said_with_its_number() {
        let line = TEXT.lines().nth(2).unwrap();
        for (bad, why) in [
            (line.replace("seeds", "seed"), "neither"),
            (line.replace("10..20", "20..20"), "range"),
            (line.replace("10..20", "10..21"), "whole range"),
            (line.replace("6789ab", "6789a"), "twelve"),
            (line.replace("0000ff", "0000f"), "sixteen"),
            (line.replace("faults", "fault"), "faults="),
            (line.replace("=7", "=-7"), "no number"),
            (format!("{line} more=1"), "more"),
            (format!("{line}\n{line}"), "line 2: 10..20 overlaps"),
        ] {
            let said = Ledger::parse(&bad).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn what_is_missing_is_run_in_pieces_and_nothing_twice() {
        let ledger = Ledger::parse(TEXT).unwrap();
        let missing = |range, each| ledger.missing(Kind::Seeds, range, each);
        assert_eq!(missing(0..30, 8), [0..8, 8..10, 20..24, 24..30]);
        assert_eq!(missing(12..18, 8), []);
        assert_eq!(missing(15..30, 25), [20..25, 25..30]);
        assert_eq!(ledger.missing(Kind::Soak, 0..3, 2), [0..2, 2..3]);
    }

    /// The ledger of this repository is well formed, and nothing in it failed without being mended.
    #[test]
    fn the_repositorys_ledger_is_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/ledger.txt");
        let text = std::fs::read_to_string(path).expect("the ledger is beside the crate");
        let ledger = Ledger::parse(&text).unwrap_or_else(|why| panic!("{path}: {why}"));
        assert_eq!(ledger.failed(), 0);
    }
}
