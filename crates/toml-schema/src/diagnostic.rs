//! Mistakes in a file, with their places and suggestions; shown as text or as data.

use core::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::schema::Schema;
use asterism_notation::value::Mistake;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted; the operator should know this.
    Warning,
}

/// One thing that is wrong, with the place in the file that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub title: String,
    /// The bytes of the file that it is about.
    pub span: Range<usize>,
    /// What to say at the caret; may be empty.
    pub label: String,
    /// Another place that has to do with it, and what to say there.
    pub also: Option<(Range<usize>, String)>,
    /// What to write instead.
    pub help: Vec<String>,
}

impl Diagnostic {
    /// An error at a place of the file.
    pub fn error(title: impl Into<String>, span: Range<usize>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            title: title.into(),
            span,
            label: String::new(),
            also: None,
            help: Vec::new(),
        }
    }

    /// A warning at a place of the file.
    pub fn warning(title: impl Into<String>, span: Range<usize>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(title, span)
        }
    }

    /// A value that could not be read.
    pub fn mistake(field: &str, mistake: Mistake, span: Range<usize>) -> Diagnostic {
        Diagnostic::error(format!("bad value for `{field}`"), span)
            .label(mistake.wrong)
            .help(mistake.instead)
    }

    /// With words at the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// With another place.
    #[must_use]
    pub fn also(mut self, span: Range<usize>, label: impl Into<String>) -> Diagnostic {
        self.also = Some((span, label.into()));
        self
    }

    /// With what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help.push(help.into());
        self
    }
}

/// A file with all that is wrong with it, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The file, as the operator named it.
    pub file: String,
    /// What it holds.
    pub text: String,
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// What is wrong with files that this one names.
    pub others: Vec<Report>,
    /// What it may have: a field that stands in the wrong table is reported with the right one.
    pub schema: Arc<Schema>,
    /// What was found beyond [`HELD_MAX`].
    pub hidden: usize,
}

/// Diagnostics of one file that are held at most; a few more than are shown are enough to sort them.
pub const HELD_MAX: usize = 1_000;
/// Bytes of quoted lines at most: of longer ones only the place is shown.
const QUOTED_BYTES_MAX: usize = 4_096;
/// Bytes between two places that are shown together at most: of those farther apart only the first is shown.
const APART_BYTES_MAX: usize = 1 << 16;

/// A diagnostic as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagnosticDocument {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What the caret says.
    pub label: String,
    /// The file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The last line that it is about.
    pub end_line: usize,
    /// The column behind its last character.
    pub end_column: usize,
    /// What to write instead.
    pub help: Vec<String>,
}

impl Report {
    /// An empty report on a file.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Report {
        Report {
            file: file.to_owned(),
            text: text.to_owned(),
            diagnostics: Vec::new(),
            others: Vec::new(),
            schema: Arc::default(),
            hidden: 0,
        }
    }

    /// Adds one. Beyond [`HELD_MAX`] it is counted only, but for a first error.
    pub fn add(&mut self, diagnostic: Diagnostic) {
        let is_first_error = || diagnostic.severity == Severity::Error && self.errors() == 0;
        if self.is_full() && !is_first_error() {
            self.hidden += 1;
            return;
        }
        self.diagnostics.push(diagnostic);
    }

    /// Whether as many are held as are.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.diagnostics.len() >= HELD_MAX
    }

    /// Puts them in the order of the file.
    pub fn sort(&mut self) {
        self.diagnostics
            .sort_by_key(|one| (one.span.start, one.severity, one.span.end));
    }

    /// How many errors there are.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// Whether an error is about a part of this place.
    #[must_use]
    pub fn has_error_within(&self, span: &Range<usize>) -> bool {
        let within = |one: &&Diagnostic| span.start <= one.span.start && one.span.end <= span.end;
        self.diagnostics
            .iter()
            .filter(within)
            .any(|one| one.severity == Severity::Error)
    }

    /// How many warnings there are.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        self.diagnostics
            .iter()
            .filter(|one| one.severity == severity)
            .count()
            + self
                .others
                .iter()
                .map(|other| other.count(severity))
                .sum::<usize>()
    }

    /// All of them as text, with the offending lines quoted; with colours if asked for.
    #[must_use]
    pub fn render(&self, coloured: bool) -> String {
        let renderer = if coloured {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let mut text = String::new();
        for diagnostic in &self.diagnostics {
            text.push_str(&renderer.render(&[self.group(diagnostic)]));
            text.push_str("\n\n");
        }
        for other in &self.others {
            text.push_str(&other.render(coloured));
        }
        text
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let help = diagnostic
            .help
            .iter()
            .map(|help| Level::HELP.message(help.as_str()));
        let own = self.lines_around(&self.clamp(&diagnostic.span));
        if own.len() > QUOTED_BYTES_MAX {
            let (line, column) = self.place(diagnostic.span.start);
            let place = Origin::path(self.file.as_str())
                .line(line)
                .char_column(column);
            return level
                .primary_title(diagnostic.title.as_str())
                .element(place)
                .elements(help);
        }
        let with_lines = |(span, label)| (self.lines_around(&self.clamp(span)), span, label);
        let joined = |other: &Range<usize>| own.start.min(other.start)..own.end.max(other.end);
        let also = diagnostic
            .also
            .as_ref()
            .map(|(span, label)| with_lines((span, label)));
        let also = also.filter(|(other, ..)| {
            other.len() <= QUOTED_BYTES_MAX && joined(other).len() <= APART_BYTES_MAX
        });
        let lines = also
            .as_ref()
            .map_or(own.clone(), |(other, ..)| joined(other));
        // Only these lines are handed on: each diagnostic would cost a walk through the whole file otherwise.
        let within = |span: &Range<usize>| {
            let span = self.clamp(span);
            span.start - lines.start..span.end - lines.start
        };
        let primary = AnnotationKind::Primary.span(within(&diagnostic.span));
        let mut snippet = Snippet::source(&self.text[lines.clone()])
            .line_start(self.place(lines.start).0)
            .path(self.file.as_str())
            .annotation(if diagnostic.label.is_empty() {
                primary
            } else {
                primary.label(diagnostic.label.as_str())
            });
        if let Some((_, span, label)) = also {
            snippet = snippet.annotation(
                AnnotationKind::Context
                    .span(within(span))
                    .label(label.as_str()),
            );
        }
        level
            .primary_title(diagnostic.title.as_str())
            .element(snippet)
            .elements(help)
    }

    /// The whole lines of a span; of one behind the last line that line.
    fn lines_around(&self, span: &Range<usize>) -> Range<usize> {
        let is_behind = span.start == self.text.len() && self.text.ends_with('\n');
        let start = span.start - usize::from(is_behind);
        let first = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let last = self.text[span.end..].find('\n');
        first..last.map_or(self.text.len(), |at| span.end + at + 1)
    }

    /// All of them as data.
    #[must_use]
    pub fn documents(&self) -> Vec<DiagnosticDocument> {
        self.diagnostics
            .iter()
            .map(|one| {
                let span = self.clamp(&one.span);
                let ((line, column), (end_line, end_column)) =
                    (self.place(span.start), self.place(span.end));
                DiagnosticDocument {
                    severity: one.severity,
                    message: one.title.clone(),
                    label: one.label.clone(),
                    file: self.file.clone(),
                    line,
                    column,
                    end_line,
                    end_column,
                    help: one.help.clone(),
                }
            })
            .chain(self.others.iter().flat_map(Report::documents))
            .collect()
    }

    /// The line and the column of a byte, both from 1.
    #[must_use]
    pub fn place(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..self.clamp(&(byte..byte)).start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }

    /// A span inside the text and on whole characters, whatever a parser said.
    fn clamp(&self, span: &Range<usize>) -> Range<usize> {
        let whole = |mut byte: usize| {
            byte = byte.min(self.text.len());
            while !self.text.is_char_boundary(byte) {
                byte -= 1;
            }
            byte
        };
        let start = whole(span.start);
        start..whole(span.end).max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_and_spans_stay_inside() {
        let report = Report::new("a.toml", "x = 1\nnäme = 2\n");
        assert_eq!(report.place(0), (1, 1));
        assert_eq!(report.place(6), (2, 1));
        assert_eq!(report.place(9), (2, 3));
        assert_eq!(
            report.place(8),
            (2, 2),
            "inside a character counts as at it"
        );
        assert_eq!(report.place(10_000), (3, 1));
    }
}
