//! The orchestrator's end of questions: asks hosts, and puts their answers together.
//!
//! One question is under way for each host; a few more wait. A question goes to one process and names it; if another process of the
//! name is heard, the question has failed. It is asked again for the parts that are missing, first after a short time and then ever more
//! rarely, until its deadline.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use asterism_placement::Time;
use asterism_secure_channel::{ClusterId, Envelope, KeyRing};

use crate::envelope;
use crate::mutant::{self, Mutant};
use crate::parts::digest_of;
use crate::question::{
    ANSWER_BYTES_MAX, ANSWER_PART_BYTES, AnswerPart, QUESTION_BYTES_MAX, Question, WINDOW_PARTS,
};

/// Questions of one host at most, the one under way included.
pub const QUESTIONS_MAX: usize = 8;
/// How long a question may take, the time for which it waits for others included.
pub const QUESTION_TIME: Duration = Duration::from_secs(4);
/// A host that was silent for so long is not asked.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// A question is asked again after so long at first, and after so long at most.
const REPEAT_MIN: Duration = Duration::from_millis(50);
const REPEAT_MAX: Duration = Duration::from_millis(800);

/// Why a question is not asked. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No process of the name was heard lately.
    #[error("no heartbeat of the host was received in the last two seconds")]
    NotHeard,
    /// Others wait already.
    #[error("{QUESTIONS_MAX} questions wait for the host: ask again")]
    Busy,
    /// It is empty or too long.
    #[error("{0} bytes are no question: it has 1 to {QUESTION_BYTES_MAX}")]
    Length(usize),
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Its time is over.
    #[error("the host did not answer within {} s", QUESTION_TIME.as_secs())]
    Late,
    /// The process that was asked is not the host's any more.
    #[error(
        "another process of the host was heard meanwhile: the host was started again, or runs twice"
    )]
    Restarted,
}

/// The process that a host's questions go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<A> {
    pub(crate) salt: [u8; 16],
    pub(crate) sequence: u64,
    pub(crate) address: A,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    text: Vec<u8>,
    deadline: Time,
}

#[derive(Debug)]
struct UnderWay {
    question: Waiting,
    /// The process that was asked.
    salt: [u8; 16],
    answer: Option<Assembly>,
    /// The offset that was asked for last, and when first; when it is again, and after which time once more.
    asked: (usize, Time),
    again_at: Time,
    repeat: Duration,
    /// Where the present window ends.
    window_end: usize,
}

/// An answer that is being put together.
#[derive(Debug)]
struct Assembly {
    digest: [u8; 16],
    bytes: Vec<u8>,
    /// Which parts have come, and how many of the first have all.
    came: Vec<bool>,
    whole: usize,
}

#[derive(Debug, Default)]
struct OfHost {
    under_way: Option<UnderWay>,
    waiting: VecDeque<Waiting>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Questions {
    envelope: Envelope,
    /// The number of the last question.
    last: u64,
    hosts: BTreeMap<String, OfHost>,
}

/// What became of a question.
pub(crate) type Ended = (u64, Result<Vec<u8>, NoAnswer>);

impl Questions {
    pub(crate) fn new(cluster: ClusterId, keys: KeyRing, salt: [u8; 16]) -> Questions {
        Questions {
            envelope: envelope::of_questions(cluster, keys, salt),
            last: 0,
            hosts: BTreeMap::new(),
        }
    }

    pub(crate) fn set_keys(&mut self, keys: KeyRing) {
        self.envelope.set_keys(keys);
    }

    /// Takes a question to a host that is heard. [`Questions::handle_timeout`] sends it.
    pub(crate) fn ask(&mut self, now: Time, host: &str, text: &[u8]) -> Result<u64, AskError> {
        if text.is_empty() || text.len() > QUESTION_BYTES_MAX {
            return Err(AskError::Length(text.len()));
        }
        let of_host = self.hosts.entry(host.to_owned()).or_default();
        let count = of_host.waiting.len() + usize::from(of_host.under_way.is_some());
        if count >= QUESTIONS_MAX && !mutant::active(Mutant::QuestionsUnbounded) {
            return Err(AskError::Busy);
        }
        self.last += 1;
        of_host.waiting.push_back(Waiting {
            number: self.last,
            text: text.to_vec(),
            deadline: now + QUESTION_TIME,
        });
        Ok(self.last)
    }

    /// When [`Questions::handle_timeout`] is to be called; `None` while nothing is asked.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let due = self.hosts.values().flat_map(|host| {
            let under_way = host.under_way.as_ref();
            let again = under_way.map(|one| one.again_at.min(one.question.deadline));
            let deadlines = host.waiting.iter().map(|waiting| waiting.deadline);
            again.into_iter().chain(deadlines)
        });
        due.min()
    }

    /// Sends what is due, and reports what is late. `target` finds the process of a host that is asked now.
    pub(crate) fn handle_timeout<A: Copy>(
        &mut self,
        now: Time,
        target: impl Fn(&str) -> Option<Target<A>>,
        mut send: impl FnMut(A, Vec<u8>),
        mut end: impl FnMut(Ended),
    ) {
        for (name, host) in &mut self.hosts {
            if let Some(one) = host.under_way.take_if(|one| one.question.is_late(now)) {
                end((one.question.number, Err(NoAnswer::Late)));
            }
            host.waiting.retain(|waiting| {
                let is_late = waiting.is_late(now);
                if is_late {
                    end((waiting.number, Err(NoAnswer::Late)));
                }
                !is_late
            });
            let target = target(name);
            let is_other = |one: &UnderWay| target.is_some_and(|target| one.is_other(target.salt));
            if let Some(one) = host.under_way.take_if(|one| is_other(one)) {
                end((one.question.number, Err(NoAnswer::Restarted)));
            }
            // While the host is silent, nothing is sent to it, and what waits becomes late.
            let Some(target) = target else {
                if let Some(one) = &mut host.under_way {
                    one.again_at = one.again_at.max(now + REPEAT_MAX);
                }
                continue;
            };
            if host.under_way.is_none()
                && let Some(question) = host.waiting.pop_front()
            {
                host.under_way = Some(UnderWay::new(question, target.salt, now));
            }
            if let Some(one) = &mut host.under_way
                && now >= one.again_at
            {
                let datagram = one.ask(now, &mut self.envelope, target.sequence);
                send(target.address, datagram);
            }
        }
        self.hosts
            .retain(|_, host| host.under_way.is_some() || !host.waiting.is_empty());
    }

    /// Takes a part of an answer that a process with this salt sent. `None`: it is of no question under way, and nothing changed.
    /// `Some(None)`: more is to come.
    pub(crate) fn take(
        &mut self,
        now: Time,
        salt: [u8; 16],
        part: &AnswerPart,
    ) -> Option<Option<Ended>> {
        let asker = self.envelope.salt();
        let is_it = |one: &UnderWay| one.is_answered_by(asker, part) && one.is_from(salt);
        let place = self
            .hosts
            .values_mut()
            .find(|host| host.under_way.as_ref().is_some_and(is_it))?;
        let one = place.under_way.as_mut()?;
        let Some(answer) = one.take(now, part) else {
            return Some(None);
        };
        let number = one.question.number;
        place.under_way = None;
        Some(Some((number, Ok(answer))))
    }
}

impl Waiting {
    fn is_late(&self, now: Time) -> bool {
        now >= self.deadline && !mutant::active(Mutant::QuestionNeverLate)
    }
}

impl UnderWay {
    /// Whether the host's process with this salt is another one than was asked.
    fn is_other(&self, salt: [u8; 16]) -> bool {
        salt != self.salt && !mutant::active(Mutant::RestartUnnoticed)
    }

    /// Whether a part is of the answer to this question, of the start of the orchestrator with this salt.
    fn is_answered_by(&self, asker: [u8; 16], part: &AnswerPart) -> bool {
        (part.asker == asker && part.number == self.question.number)
            || mutant::active(Mutant::AnswerToAnyQuestion)
    }

    /// Whether the process with this salt was asked.
    fn is_from(&self, salt: [u8; 16]) -> bool {
        salt == self.salt || mutant::active(Mutant::AnswerOfAnyProcess)
    }

    fn new(question: Waiting, salt: [u8; 16], now: Time) -> UnderWay {
        UnderWay {
            question,
            salt,
            answer: None,
            asked: (0, now),
            again_at: now,
            repeat: REPEAT_MIN,
            window_end: 0,
        }
    }

    fn offset(&self) -> usize {
        self.answer
            .as_ref()
            .map_or(0, |answer| answer.whole * ANSWER_PART_BYTES)
    }

    /// The question, for the parts that are missing.
    fn ask(&mut self, now: Time, envelope: &mut Envelope, sequence: u64) -> Vec<u8> {
        let offset = self.offset();
        if offset != self.asked.0 {
            self.asked = (offset, now);
        }
        self.window_end = offset + WINDOW_PARTS * ANSWER_PART_BYTES;
        self.again_at = self.next_repetition(now);
        self.repeat = (self.repeat * 2).min(REPEAT_MAX);
        let question = Question {
            salt: self.salt,
            sequence,
            number: self.question.number,
            offset: offset as u32,
            text: self.question.text.clone(),
        };
        envelope.seal(|out| question.encode(out))
    }

    fn next_repetition(&self, now: Time) -> Time {
        match mutant::active(Mutant::QuestionNotRepeated) {
            true => self.question.deadline,
            false => now + self.repeat,
        }
    }

    /// Takes a part; the whole answer, if this was the last part of it.
    fn take(&mut self, now: Time, part: &AnswerPart) -> Option<Vec<u8>> {
        let total = part.total as usize;
        if is_too_long(total) {
            return None;
        }
        let is_same =
            |answer: &Assembly| (answer.bytes.len(), answer.digest) == (total, part.digest);
        let mixes = mutant::active(Mutant::AnswersMixed) && self.answer.is_some();
        // A host that forgot its answer works on the question again, and its answer may be another one.
        if part.offset == 0 && !mixes && !self.answer.as_ref().is_some_and(is_same) {
            self.answer = Some(Assembly::new(total, part.digest));
        }
        let answer = self
            .answer
            .as_mut()
            .filter(|answer| mixes || is_same(answer))?;
        if !answer.take(part) {
            return None;
        }
        if answer.whole == answer.came.len() {
            let answer = self.answer.take()?;
            let is_it = digest_of(&answer.bytes) == answer.digest;
            return (is_it || mixes).then_some(answer.bytes);
        }
        let is_window_whole = self.offset() >= self.window_end;
        self.repeat = (now.since(self.asked.1) * 2).clamp(REPEAT_MIN, REPEAT_MAX);
        self.again_at = match is_window_whole {
            true => now,
            false => self.next_repetition(now),
        };
        None
    }
}

fn is_too_long(total: usize) -> bool {
    total > ANSWER_BYTES_MAX && !mutant::active(Mutant::AnswerUnbounded)
}

impl Assembly {
    fn new(total: usize, digest: [u8; 16]) -> Assembly {
        Assembly {
            digest,
            bytes: vec![0; total],
            came: vec![false; total.div_ceil(ANSWER_PART_BYTES)],
            whole: 0,
        }
    }

    /// Takes a part that is at its place; whether it was missing.
    fn take(&mut self, part: &AnswerPart) -> bool {
        let offset = part.offset as usize;
        let place = offset / ANSWER_PART_BYTES;
        let end = self.bytes.len().min(offset + ANSWER_PART_BYTES);
        let is_at_its_place =
            offset.is_multiple_of(ANSWER_PART_BYTES) && offset + part.bytes.len() == end;
        let Some(came) = self.came.get_mut(place).filter(|came| !**came) else {
            return false;
        };
        if !is_at_its_place {
            return false;
        }
        *came = true;
        self.bytes[offset..end].copy_from_slice(&part.bytes);
        while self.came.get(self.whole) == Some(&true) {
            self.whole += 1;
        }
        true
    }
}
