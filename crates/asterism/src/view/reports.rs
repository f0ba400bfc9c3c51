//! What a function tells of its state.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use asterism_function::Tick;

use super::{ANSWER_MAX, View};
use crate::run::requests::Request;

/// Parts of a report on their way at most.
const PARTS_MAX: usize = 16;

impl View {
    /// The cluster's common seconds: since 1970.
    #[must_use]
    pub fn tick(&self) -> Tick {
        let seconds = self.uptime_us() / 1_000_000;
        let zero = self.clock.wall_at_zero();
        zero.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// What the function tells of its state to a question, as the first instance has it: all parts of it, `bytes_max` bytes at most.
    ///
    /// # Errors
    /// It does not answer in time, or tells more; in words.
    pub fn report(&self, question: u32, bytes_max: usize) -> Result<Vec<u8>, String> {
        let (parts, coming) = sync_channel(PARTS_MAX);
        let request = Request::Report { question, parts };
        let requests = self.requests.first().ok_or("there is no instance")?;
        requests
            .try_send(request)
            .map_err(|_| "the instance has too many requests already: try again".to_owned())?;
        let mut bytes = Vec::new();
        loop {
            match coming.recv_timeout(ANSWER_MAX) {
                Ok(part) if bytes.len() + part.len() <= bytes_max => bytes.extend(part),
                Ok(_) => return Err("the instance tells more than it can have".to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Ok(bytes),
                Err(RecvTimeoutError::Timeout) => {
                    return Err("the instance did not answer in time: try again".to_owned());
                }
            }
        }
    }
}
