//! What a function tells of its state, and what it is reported.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use asterism_function::chain::Chain;
use asterism_function::records::{Record, read_records};
use asterism_function::{CONTROL, PortNumber, Tick};

use super::{ANSWER_MAX, View};
use crate::config::{Function, Settings};
use crate::run::collector;
use crate::run::dates::Dates;
use crate::run::requests::Request;
use crate::run::worker::Phase;

/// Parts of a report on their way at most.
const PARTS_MAX: usize = 16;

/// Whose report is asked for: the function's, or that of a stage of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    stage: Option<usize>,
}

impl Asked {
    /// The first that `is_it`, where the function is a chain one of its stages; `None`: there is none.
    pub(crate) fn first(settings: &Settings, is_it: impl Fn(&Settings) -> bool) -> Option<Asked> {
        let found = collector::find(settings, |settings| is_it(settings).then_some(()));
        found.map(|(stage, ())| Asked { stage })
    }

    /// Each that `is_it`, with its name: of a chain those of its stages.
    pub(crate) fn each(
        function: &Function,
        is_it: impl Fn(&Settings) -> bool,
    ) -> Vec<(String, Asked)> {
        match &function.settings {
            Settings::Chain(chain) => {
                let stages = chain.stages.iter().enumerate();
                let found = stages.filter(|(_, stage)| is_it(&stage.settings));
                let asked = |number| Asked {
                    stage: Some(number),
                };
                found
                    .map(|(number, stage)| (stage.name.to_owned(), asked(number)))
                    .collect()
            }
            settings if is_it(settings) => vec![(function.name.to_owned(), Asked { stage: None })],
            _ => Vec::new(),
        }
    }

    /// The question as it is put to the function.
    pub(crate) fn question(self, question: u32) -> u32 {
        self.stage
            .and_then(|stage| Chain::question(stage, question))
            .unwrap_or(question)
    }

    /// By which port it is reported something.
    pub(crate) fn control(self) -> PortNumber {
        self.stage.and_then(Chain::control).unwrap_or(CONTROL)
    }
}

impl View {
    /// The cluster's common seconds. No date: [`Dates::date_s`] makes one of it.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.dates().tick(self.clock.now())
    }

    /// What the cluster's time and this machine's date have to do with each other now.
    #[must_use]
    pub fn dates(&self) -> Dates {
        Dates::now(self.clock, &self.channel())
    }

    /// Tells the function, or a stage of it, something by a frame, as the first instance has it.
    ///
    /// # Errors
    /// It was not called; in words.
    pub fn tell(&self, asked: Asked, frame: Vec<u8>) -> Result<(), String> {
        // What it wrote before it knows what others have would keep a saved state from being taken up.
        if self.phase() == Phase::Listening {
            return Err(
                "the host takes nothing up before it runs; see `asterism status`, and try again"
                    .to_owned(),
            );
        }
        let (port, frame) = (asked.control(), frame.into());
        let reported = |called| Request::Tell {
            port,
            frame,
            called: Some(called),
        };
        match self.ask(0, Duration::ZERO, reported)? {
            true => Ok(()),
            false => Err(
                "the host takes nothing up now: its log is full of what others have not heard, or it stops; see `asterism status`, and try again"
                    .to_owned(),
            ),
        }
    }

    /// Calls `each` for all records of the answer to a question.
    ///
    /// # Errors
    /// It does not answer in time, or with something else; in words.
    pub fn records<R: Record>(
        &self,
        asked: Asked,
        question: u32,
        mut each: impl FnMut(R),
    ) -> Result<(), String> {
        let mut is_right = true;
        self.report_each(asked.question(question), |part| {
            is_right &= read_records(part, &mut each);
        })?;
        match is_right {
            true => Ok(()),
            false => Err("the instance tells something else than was asked".to_owned()),
        }
    }

    /// What the function tells of its state to a question, as the first instance has it: all parts of it, `bytes_max` bytes at most.
    ///
    /// # Errors
    /// It does not answer in time, or tells more; in words.
    pub fn report(&self, question: u32, bytes_max: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut fits = true;
        self.report_each(question, |part| {
            fits &= bytes.len() + part.len() <= bytes_max;
            if fits {
                bytes.extend(part);
            }
        })?;
        match fits {
            true => Ok(bytes),
            false => Err("the instance tells more than it can have".to_owned()),
        }
    }

    /// Calls `each` for all parts of it, as they come.
    ///
    /// # Errors
    /// It does not answer in time; in words.
    fn report_each(&self, question: u32, mut each: impl FnMut(&[u8])) -> Result<(), String> {
        let (parts, coming) = sync_channel(PARTS_MAX);
        let request = Request::Report { question, parts };
        let requests = self.requests.first().ok_or("there is no instance")?;
        requests
            .try_send(request)
            .map_err(|_| "the instance has too many requests already: try again".to_owned())?;
        loop {
            match coming.recv_timeout(ANSWER_MAX) {
                Ok(part) => each(&part),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    return Err("the instance did not answer in time: try again".to_owned());
                }
            }
        }
    }
}
