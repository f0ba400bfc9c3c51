//! Errors of the TOML parser in a report.

use super::diagnostic::{Diagnostic, HELD_MAX, Report};

impl Report {
    /// Adds the parser's errors, and takes out what only follows from them: anything on the same lines, and fields that are
    /// missing. Of the errors beyond [`HELD_MAX`] only the number is kept.
    pub fn add_syntax(&mut self, mistakes: &[toml::de::Error]) {
        if mistakes.is_empty() {
            return;
        }
        self.hidden += mistakes.len().saturating_sub(HELD_MAX);
        let mistakes = &mistakes[..mistakes.len().min(HELD_MAX)];
        let ends: Vec<usize> = self.text.match_indices('\n').map(|(at, _)| at).collect();
        let line_of = |byte: usize| ends.partition_point(|end| *end < byte);
        let broken: Vec<(usize, usize)> = mistakes
            .iter()
            .filter_map(toml::de::Error::span)
            .map(|span| (line_of(span.start), line_of(span.end)))
            .collect();
        let kept: Vec<Diagnostic> = core::mem::take(&mut self.diagnostics)
            .into_iter()
            .filter(|one| {
                let line = line_of(one.span.start);
                !one.title.contains("missing")
                    && !broken
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&line))
            })
            .collect();
        self.diagnostics = kept;
        for mistake in mistakes {
            let span = mistake.span().unwrap_or(0..0);
            let message = mistake.message();
            let help = if message.contains("duplicate key") {
                "write each field once in a table"
            } else if message.contains("quote") || message.contains("string") {
                "put text in double quotes, on one line: name = \"value\""
            } else {
                "a line is a comment (# ...), a table ([name]) or a field (name = value)"
            };
            self.add(Diagnostic::error(format!("this is not TOML: {message}"), span).help(help));
        }
    }

    /// Puts the diagnostics in the order of the file and keeps the first `most` of them; a last error says how many are not shown.
    pub fn shorten(&mut self, most: usize) {
        self.sort();
        if self.diagnostics.len() <= most {
            return;
        }
        let hidden = self.diagnostics.len() - most + self.hidden;
        self.diagnostics.truncate(most);
        let end = self.text.len();
        self.add(
            Diagnostic::error(format!("{hidden} further mistakes are not shown"), end..end)
                .help("correct those above first"),
        );
    }
}
