//! Alerts that a capture raises, as lines of JSON: see `asterism_host::eve`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use asterism_function::notice::{Notice, questions};
use asterism_function::{NetworkFunction, report_of};
use asterism_host::eve::ledger::Ledger;
use asterism_host::eve::line::Author;
use asterism_placement::Time;

use super::StartError;
use crate::fleet::Fleet;

/// How often tables are looked at whose number of entries stays the same: one alert may take another's place.
const LOOK: Duration = Duration::from_secs(1);
/// Entries of a table that are looked at by one call.
const PART: u32 = 1_024;

/// Where the alerts of a replay go.
#[derive(Debug)]
pub(super) struct Lines {
    out: BufWriter<File>,
    author: Author,
    ledger: Ledger,
    questions: Vec<u32>,
    entries: usize,
    looked: Time,
    pub(super) written: u64,
    /// Why the first line that could not be written was not.
    pub(super) failure: Option<io::Error>,
}

impl Lines {
    pub(super) fn create(path: &Path, author: Author) -> Result<Lines, StartError> {
        let file = File::create(path).map_err(|error| StartError::AlertsFile {
            path: path.to_owned(),
            error,
        })?;
        Ok(Lines {
            out: BufWriter::new(file),
            questions: questions(author.stages.len()),
            author,
            ledger: Ledger::default(),
            entries: 0,
            looked: Time::ZERO,
            written: 0,
            failure: None,
        })
    }

    /// Writes what any host found by now; `at_us` is the capture's time in microseconds since 1970.
    pub(super) fn query<F: NetworkFunction>(&mut self, fleet: &Fleet<F>, at_us: u64) {
        let members = fleet.cluster().members().iter();
        let instances = members.flat_map(|member| &member.instances);
        let tables = instances.clone().flat_map(|instance| instance.entries());
        let entries = tables.map(|(_, live, _)| live).sum();
        if entries == self.entries && fleet.now() < self.looked + LOOK {
            return;
        }
        (self.entries, self.looked) = (entries, fleet.now());
        let now = (fleet.now().as_micros() / 1_000_000) as u32;
        let mut part = Vec::new();
        for instance in instances {
            for (stage, &question) in self.questions.iter().enumerate() {
                let mut cursor = Some(0);
                while let Some(from) = cursor {
                    part.clear();
                    let (function, state) = (instance.function(), instance.state());
                    cursor = report_of(function, state, question, (from, PART), &mut part);
                    let (ledger, author) = (&mut self.ledger, &self.author);
                    let (out, written) = (&mut self.out, &mut self.written);
                    let failure = &mut self.failure;
                    let _ = Notice::read_all(&part, |notice| {
                        if !ledger.take(stage, &notice, now, true, false) {
                            return;
                        }
                        if let Some(line) = author.alert(&notice, stage, at_us) {
                            match out.write_all(line.as_bytes()) {
                                Ok(()) => *written += 1,
                                Err(error) => {
                                    failure.get_or_insert(error);
                                }
                            }
                        }
                    });
                }
            }
        }
        self.ledger.end_walk();
    }

    /// Lets the next look be at all tables, however many entries they have.
    pub(super) fn forget_look(&mut self) {
        self.entries = usize::MAX;
    }

    /// Writes what is left to the file.
    pub(super) fn finish(&mut self) {
        if let Err(error) = self.out.flush() {
            self.failure.get_or_insert(error);
        }
    }
}
