//! The host's end of questions: which one each orchestrator asked last, and the answer to it.
//!
//! A host works on one question of an orchestrator at a time. The orchestrator asks again and again, each time for the parts of the
//! answer that it lacks; a host that has no answer yet does nothing then.

use std::time::Duration;

use asterism_placement::Time;
use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::envelope;
use crate::mutant::{self, Mutant};
use crate::parts::digest_of;
use crate::question::{ANSWER_BYTES_MAX, ANSWER_PART_BYTES, AnswerPart, Question, WINDOW_PARTS};

/// An answer is kept for so long after it was asked for last.
const ANSWER_KEPT: Duration = Duration::from_secs(5);

/// Why an answer is not sent. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is empty or too long.
    #[error("{0} bytes are no answer: it has 1 to {ANSWER_BYTES_MAX}")]
    Length(usize),
}

/// A question of an orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// The salt of the orchestrator's start.
    asker: [u8; 16],
    number: u64,
}

impl Asked {
    /// Whether this is a later question of the same start of an orchestrator.
    fn is_after(self, asked: Asked) -> bool {
        self.asker == asked.asker
            && asked.number < self.number
            && !mutant::active(Mutant::EarlierQuestionTaken)
    }
}

#[derive(Debug, Default)]
enum Work {
    /// There is none, or it was given up.
    #[default]
    None,
    /// The host works on the question under this number of its own.
    UnderWay(u64),
    /// The answer, its digest, and when it was asked for last.
    Done(Vec<u8>, [u8; 16], Time),
}

impl Work {
    /// Whether the host works under this number.
    fn is_of(&self, number: u64) -> bool {
        match self {
            Work::UnderWay(own) => *own == number || mutant::active(Mutant::FormerAnswerSent),
            Work::None | Work::Done(..) => false,
        }
    }
}

/// The questions of one orchestrator.
#[derive(Debug, Default)]
struct Peer {
    last: Option<Asked>,
    work: Work,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Answers {
    envelope: Envelope,
    peers: Vec<Peer>,
    /// The number under which the host works on the last question. Numbers of orchestrators begin again with each start of one.
    last: u64,
}

impl Answers {
    pub(crate) fn new(
        cluster: ClusterId,
        keys: KeyRing,
        salt: [u8; 16],
        orchestrators: usize,
    ) -> Answers {
        Answers {
            envelope: envelope::of_answers(cluster, keys, salt),
            peers: (0..orchestrators).map(|_| Peer::default()).collect(),
            last: 0,
        }
    }

    pub(crate) fn set_keys(&mut self, keys: KeyRing) {
        self.envelope.set_keys(keys);
    }

    /// Takes a question that is known to be fresh and for this process, of this start of an orchestrator. Returns the number under
    /// which the host is to work on it, if it is; datagrams with parts of the answer are added to `out`.
    pub(crate) fn take(
        &mut self,
        now: Time,
        orchestrator: usize,
        asker: [u8; 16],
        question: &Question,
        mut out: impl FnMut(Vec<u8>),
    ) -> Option<u64> {
        let peer = self.peers.get_mut(orchestrator)?;
        let asked = Asked {
            asker,
            number: question.number,
        };
        if peer.last.is_some_and(|last| last.is_after(asked)) {
            return None;
        }
        if peer.last != Some(asked) {
            (peer.last, peer.work) = (Some(asked), Work::None);
        }
        match &mut peer.work {
            Work::UnderWay(_) if !mutant::active(Mutant::QuestionWorkedOnTwice) => None,
            Work::UnderWay(_) | Work::None => {
                self.last += 1;
                peer.work = Work::UnderWay(self.last);
                Some(self.last)
            }
            Work::Done(answer, digest, at) => {
                *at = now;
                let part = |offset| part(asked, answer, *digest, offset);
                send(&mut self.envelope, part, question.offset, &mut out);
                None
            }
        }
    }

    /// Answers the question that the host works on under this number, if it is still the last one of this orchestrator. The first parts
    /// go out at once.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        orchestrator: usize,
        number: u64,
        answer: Vec<u8>,
        mut out: impl FnMut(Vec<u8>),
    ) -> Result<(), AnswerError> {
        if answer.is_empty() || answer.len() > ANSWER_BYTES_MAX {
            return Err(AnswerError::Length(answer.len()));
        }
        let Some(peer) = self.peers.get_mut(orchestrator) else {
            return Ok(());
        };
        let Some(asked) = peer.last.filter(|_| peer.work.is_of(number)) else {
            return Ok(());
        };
        let digest = digest_of(&answer);
        let part = |offset| part(asked, &answer, digest, offset);
        send(&mut self.envelope, part, 0, &mut out);
        peer.work = Work::Done(answer, digest, now);
        Ok(())
    }

    /// Gives up a question: it is worked on when it is asked again.
    pub(crate) fn give_up(&mut self, orchestrator: usize, number: u64) {
        if let Some(peer) = self.peers.get_mut(orchestrator)
            && peer.work.is_of(number)
        {
            peer.work = Work::None;
        }
    }

    /// Forgets answers that are not asked for any more.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        for peer in &mut self.peers {
            if let Work::Done(_, _, at) = &peer.work
                && now.since(*at) >= ANSWER_KEPT
                && !mutant::active(Mutant::AnswerNeverForgotten)
            {
                peer.work = Work::None;
            }
        }
    }

    /// Forgets all answers.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        for peer in &mut self.peers {
            peer.work = Work::None;
        }
    }

    /// Bytes of answers that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        let kept = self.peers.iter().map(|peer| match &peer.work {
            Work::Done(answer, ..) => answer.len(),
            Work::None | Work::UnderWay(_) => 0,
        });
        kept.sum()
    }
}

fn part(asked: Asked, answer: &[u8], digest: [u8; 16], offset: u32) -> Option<AnswerPart> {
    let bytes = answer.get(offset as usize..)?;
    let bytes = &bytes[..bytes.len().min(ANSWER_PART_BYTES)];
    (!bytes.is_empty()).then(|| AnswerPart {
        asker: asked.asker,
        number: asked.number,
        total: answer.len() as u32,
        digest,
        offset,
        bytes: bytes.to_vec(),
    })
}

/// Sends a window of parts from an offset on.
fn send(
    envelope: &mut Envelope,
    part: impl Fn(u32) -> Option<AnswerPart>,
    offset: u32,
    out: &mut impl FnMut(Vec<u8>),
) {
    let offsets = (0..WINDOW_PARTS as u32).map_while(|number| {
        number
            .checked_mul(ANSWER_PART_BYTES as u32)
            .and_then(|more| offset.checked_add(more))
    });
    for part in offsets.map_while(part) {
        out(envelope.seal(|bytes| part.encode(bytes)));
    }
}
