//! Questions to hosts that are under way, and who waits for their answers.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use asterism_heartbeat::{AskError, NoAnswer, OrchestratorLink, QUESTION_TIME};
use asterism_placement::Time;

use super::view::AskingError;

/// The link ends each question in its time; a little more is for the threads.
const ANSWER_MAX: Duration = QUESTION_TIME.saturating_add(Duration::from_millis(500));

/// Why a host's answer is not there. At the host nothing was changed: questions change nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswered {
    /// The host was not asked.
    #[error(transparent)]
    NotAsked(#[from] AskError),
    /// The host gave no answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The orchestrator was not asked, or has ended.
    #[error(transparent)]
    Orchestrator(#[from] AskingError),
}

type Reply = Result<Vec<u8>, NotAnswered>;

/// An answer that is awaited.
#[derive(Debug)]
pub struct Awaited(Receiver<Reply>);

impl Awaited {
    /// Waits for the answer: some milliseconds, and four seconds at most.
    ///
    /// # Errors
    /// [`NotAnswered`]
    pub fn answer(self) -> Reply {
        self.0
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|error| match error {
                RecvTimeoutError::Timeout => Err(AskingError::Late.into()),
                RecvTimeoutError::Disconnected => Err(AskingError::Ended.into()),
            })
    }
}

/// A question for the controller's thread, and the answer to await.
pub(super) fn question(host: &str, text: Vec<u8>) -> (Question, Awaited) {
    let (reply, answer) = sync_channel(1);
    let host = host.to_owned();
    (Question { host, text, reply }, Awaited(answer))
}

/// A question to a host.
#[derive(Debug)]
pub(super) struct Question {
    host: String,
    text: Vec<u8>,
    reply: SyncSender<Reply>,
}

/// See the module. The link bounds how many there are.
#[derive(Debug, Default)]
pub(super) struct Asked(BTreeMap<u64, SyncSender<Reply>>);

impl Asked {
    /// Asks a host.
    pub(super) fn ask(&mut self, link: &mut OrchestratorLink, now: Time, question: Question) {
        match link.ask(now, &question.host, &question.text) {
            Ok(number) => _ = self.0.insert(number, question.reply),
            // Who asked may have gone, here and below.
            Err(error) => _ = question.reply.try_send(Err(error.into())),
        }
    }

    /// Passes an answer on.
    pub(super) fn answered(&mut self, number: u64, answer: Result<Vec<u8>, NoAnswer>) {
        if let Some(reply) = self.0.remove(&number) {
            let _ = reply.try_send(answer.map_err(NotAnswered::from));
        }
    }
}
