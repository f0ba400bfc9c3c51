//! The thread that answers questions of orchestrators, from the same handler as the control socket.
//!
//! Questions wait in a queue with a place for each orchestrator. One for which there is no place is given up, and comes again.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use asterism_heartbeat::{ANSWER_BYTES_MAX, HostLink, ORCHESTRATORS_MAX};
use asterism_placement::Time;

use crate::control::carried;
use crate::control::request_handler::RequestHandler;

struct Question {
    orchestrator: usize,
    number: u64,
    text: Vec<u8>,
}

struct Answer {
    orchestrator: usize,
    number: u64,
    bytes: Vec<u8>,
}

/// The queues to the thread and back.
pub(super) struct Questions {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
}

impl Questions {
    /// Starts the thread, which ends with the queues.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(handler: Arc<RequestHandler>) -> io::Result<Questions> {
        let (questions, asked) = sync_channel::<Question>(ORCHESTRATORS_MAX);
        let (answered, answers) = sync_channel::<Answer>(ORCHESTRATORS_MAX);
        Builder::new().name("questions".to_owned()).spawn(move || {
            while let Ok(question) = asked.recv() {
                let Question {
                    orchestrator,
                    number,
                    text,
                } = question;
                let bytes = carried::answer(&handler, &text, ANSWER_BYTES_MAX);
                let answer = Answer {
                    orchestrator,
                    number,
                    bytes,
                };
                if answered.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Questions { questions, answers })
    }

    /// Passes a question on.
    pub(super) fn ask(&self, link: &mut HostLink, orchestrator: usize, number: u64, text: Vec<u8>) {
        let question = Question {
            orchestrator,
            number,
            text,
        };
        if self.questions.try_send(question).is_err() {
            link.give_up(orchestrator, number);
        }
    }

    /// Hands the answers that are there to the link.
    pub(super) fn answer(&self, link: &mut HostLink, now: Time) {
        for answer in self.answers.try_iter() {
            let Answer {
                orchestrator,
                number,
                bytes,
            } = answer;
            // Its length was checked when it was made.
            if link.answer(now, orchestrator, number, bytes).is_err() {
                link.give_up(orchestrator, number);
            }
        }
    }
}
