//! A function's reports on its state, and the control frames sent to it.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use asterism_function::Tick;
use asterism_function::records::{Record, read_records};

use super::{ANSWER_MAX, View};
use crate::asked::Asked;
use crate::dates::Dates;
use crate::error::AskError;
use crate::phase::Phase;
use crate::requests::Request;

/// Maximum parts of a report in transit.
const PARTS_MAX: usize = 16;

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
