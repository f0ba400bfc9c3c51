//! A function's reports on its state, and the control frames sent to it.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use asterism_config::{Function, Settings};
use asterism_function::chain::Chain;
use asterism_function::records::{Record, read_records};
use asterism_function::{CONTROL, PortNumber, Tick};

use super::error::AskError;
use super::{ANSWER_MAX, View};
use crate::run::collector;
use crate::run::dates::Dates;
use crate::run::phase::Phase;
use crate::run::requests::Request;

/// Maximum parts of a report in transit.
const PARTS_MAX: usize = 16;

/// The addressee of a question: the function, or a stage of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    stage: Option<usize>,
}

impl Asked {
    /// The function, or in a chain the first stage, for which `is_it` holds.
    pub(crate) fn first(settings: &Settings, is_it: impl Fn(&Settings) -> bool) -> Option<Asked> {
        let found = collector::find(settings, |settings| is_it(settings).then_some(()));
        found.map(|(stage, ())| Asked { stage })
    }

    /// The function, or in a chain all stages, for which `is_it` holds, with the name of each.
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

    /// Each function that blocks.
    pub(crate) fn blocking(function: &Function) -> Vec<(String, Asked)> {
        Asked::each(function, |settings| {
            matches!(
                settings,
                Settings::Firewall(_) | Settings::PortScan(_) | Settings::Signature(_)
            )
        })
    }

    /// Each firewall.
    pub(crate) fn firewalls(function: &Function) -> Vec<(String, Asked)> {
        Asked::each(function, |settings| {
            matches!(settings, Settings::Firewall(_))
        })
    }

    /// The question in the form that the function gets.
    pub fn question(self, question: u32) -> u32 {
        self.stage
            .and_then(|stage| Chain::question(stage, question))
            .unwrap_or(question)
    }

    /// The port of its control frames.
    pub fn control(self) -> PortNumber {
        self.stage.and_then(Chain::control).unwrap_or(CONTROL)
    }
}

impl View {
    /// The cluster's common seconds, which [`Dates::date_s`] converts to a date.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.dates().tick(self.clock.now())
    }

    /// The present relation of the cluster's time to this machine's date.
    #[must_use]
    pub fn dates(&self) -> Dates {
        Dates::now(self.clock, &self.channel())
    }

    /// Sends a control frame to the function, or a stage of it, at the first instance.
    ///
    /// # Errors
    /// The function was not called.
    pub fn tell(&self, asked: Asked, frame: Vec<u8>) -> Result<(), AskError> {
        // A write before the host has joined would prevent loading the saved state.
        if self.phase() == Phase::Listening {
            return Err(AskError::NotRunning);
        }
        let (port, frame) = (asked.control(), frame.into());
        let reported = |called| Request::Tell {
            port,
            frame,
            called: Some(called),
        };
        match self.ask(0, Duration::ZERO, reported)? {
            true => Ok(()),
            false => Err(AskError::NotTaken),
        }
    }

    /// Calls `each` for all records of the answer to a question.
    ///
    /// # Errors
    /// The instance does not answer in time, or its answer is malformed.
    pub fn records<R: Record>(
        &self,
        asked: Asked,
        question: u32,
        mut each: impl FnMut(R),
    ) -> Result<(), AskError> {
        let mut is_right = true;
        self.report_each(asked.question(question), |part| {
            is_right &= read_records(part, &mut each);
        })?;
        match is_right {
            true => Ok(()),
            false => Err(AskError::OtherAnswer),
        }
    }

    /// The function's full answer to a question, from the first instance; `bytes_max` bytes at most.
    ///
    /// # Errors
    /// The instance does not answer in time, or its answer is longer.
    pub fn report(&self, question: u32, bytes_max: usize) -> Result<Vec<u8>, AskError> {
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
            false => Err(AskError::LongAnswer),
        }
    }

    /// Calls `each` for all parts of an answer, as they arrive.
    ///
    /// # Errors
    /// The instance does not answer in time.
    fn report_each(&self, question: u32, mut each: impl FnMut(&[u8])) -> Result<(), AskError> {
        let (parts, coming) = sync_channel(PARTS_MAX);
        let request = Request::Report { question, parts };
        let requests = self.requests.first().ok_or(AskError::NoInstance)?;
        requests
            .try_send(request)
            .map_err(|_| AskError::TooManyRequests)?;
        loop {
            match coming.recv_timeout(ANSWER_MAX) {
                Ok(part) => each(&part),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(AskError::Late);
                }
            }
        }
    }
}
