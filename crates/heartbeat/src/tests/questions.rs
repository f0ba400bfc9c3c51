//! Questions of an orchestrator to a host, through loss, doubles, recordings and restarts.

use proptest::prelude::*;

use super::*;
use crate::question::{ANSWER_PART_BYTES, AnswerPart, Question};
use crate::{
    ANSWER_BYTES_MAX, AnswerError, AskError, QUESTION_BYTES_MAX, QUESTION_TIME, QUESTIONS_MAX,
};

const SECOND: u32 = 1_000;

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

impl Pair {
    /// A pair whose host has been heard.
    fn heard() -> Pair {
        let mut pair = Pair::new();
        pair.run(100, |_| false);
        pair.replies.clear();
        pair
    }

    fn ask(&mut self, question: &[u8]) -> Result<u64, AskError> {
        self.orchestrator.ask(self.now, "a", question)
    }

    /// An answer's part, sealed as by the process with this salt.
    fn forged(&self, salt: u8, asker: u8, number: u64, bytes: &[u8]) -> Vec<u8> {
        let part = AnswerPart {
            asker: [asker; 16],
            number,
            total: bytes.len() as u32,
            digest: crate::parts::digest_of(bytes),
            offset: 0,
            bytes: bytes.to_vec(),
        };
        envelope::of_answers(ClusterId(9), ring(1), [salt; 16]).seal(|out| part.encode(out))
    }
}

#[test]
pub(super) fn an_answer_of_any_length_arrives_through_loss() {
    for length in [
        1,
        ANSWER_PART_BYTES,
        ANSWER_PART_BYTES + 1,
        16 * ANSWER_PART_BYTES,
        60_000,
    ] {
        for loss in [(|_| false) as fn(usize) -> bool, one_of_four] {
            let mut pair = Pair::heard();
            pair.answer = Some(text(length));
            for round in 0..3 {
                let number = pair.ask(b"how are you?").unwrap();
                pair.run(3 * SECOND, loss);
                assert_eq!(
                    pair.answers,
                    [(number, Ok(text(length)))],
                    "{length}, round {round}"
                );
                pair.answers.clear();
                // It is over: nobody asks on.
                let questions = pair.orchestrator.traffic().questions;
                assert_eq!(pair.orchestrator.poll_timeout(), None);
                pair.run(SECOND, |_| false);
                assert_eq!(pair.orchestrator.traffic().questions, questions);
            }
            assert!(
                pair.asked
                    .iter()
                    .all(|(_, question)| question == b"how are you?")
            );
        }
    }
    // Without loss nothing is sent twice: the longest answer in some round trips.
    let mut pair = Pair::heard();
    pair.answer = Some(text(ANSWER_BYTES_MAX));
    pair.ask(b"?").unwrap();
    pair.run(100, |_| false);
    assert_eq!(pair.answers.len(), 1);
    let traffic = pair.orchestrator.traffic();
    let parts = (ANSWER_BYTES_MAX / ANSWER_PART_BYTES) as u64;
    assert_eq!(
        (traffic.answer_parts, traffic.refused.not_asked),
        (parts, 0)
    );
    assert_eq!(traffic.questions, parts / 16);
    // Heartbeats go on as if nothing had been asked.
    assert!(pair.host.is_answered());
    assert_eq!(pair.host.refused(), 0);
}

#[test]
pub(super) fn a_question_is_worked_on_once() {
    let mut pair = Pair::heard();
    let number = pair.ask(b"slow").unwrap();
    pair.run(SECOND, |_| false);
    assert_eq!(pair.asked, [(number, b"slow".to_vec())]);
    assert!(
        pair.orchestrator.traffic().questions >= 4,
        "it is asked again"
    );
    // The answer is due at last; what nobody works on is not sent.
    pair.host.answer(pair.now, 0, number + 1, text(5)).unwrap();
    assert_eq!(pair.host.poll_transmit(), None);
    pair.host.answer(pair.now, 0, number, text(5)).unwrap();
    pair.run(2, |_| false);
    assert_eq!(pair.answers, [(number, Ok(text(5)))]);
    // One that the host has no room for is taken up when it is asked again.
    pair.asked.clear();
    let number = pair.ask(b"again").unwrap();
    pair.run(2, |_| false);
    pair.host.give_up(0, number);
    pair.answer = Some(text(6));
    pair.run(SECOND, |_| false);
    assert_eq!(pair.asked, [(2, b"again".to_vec()), (3, b"again".to_vec())]);
    assert_eq!(pair.answers[1], (number, Ok(text(6))));
}

#[test]
pub(super) fn recorded_questions_are_not_answered() {
    let mut pair = Pair::heard();
    pair.answer = Some(text(9));
    pair.ask(b"?").unwrap();
    pair.run(2, |_| false);
    // A double that comes at once gets the parts that it asks for.
    let asked = pair.replies.iter().position(|reply| reply[1] == 4).unwrap();
    let recorded = pair.replies[asked].clone();
    pair.host.handle(pair.now, 0, &mut recorded.clone());
    assert!(pair.host.poll_transmit().is_some());
    // Later it gets nothing; nor does it from the next start of the host, which has sent as many datagrams.
    pair.run(200, |_| false);
    let refused = pair.host.refused();
    for now in [pair.now, pair.now + MS * 60_000] {
        pair.host.handle(now, 0, &mut recorded.clone());
        assert_eq!(pair.host.poll_transmit(), None);
        assert_eq!(pair.host.poll_event(), None);
    }
    assert_eq!(pair.host.refused(), refused + 2);
    let mut next = host_link(5);
    next.set(pair.now, heartbeat(process(7, 2), Stage::Awaiting, 0));
    for number in 0..3 {
        next.handle_timeout(pair.now + INTERVAL * number);
    }
    while next.poll_transmit().is_some() {}
    next.handle(pair.now, 0, &mut recorded.clone());
    assert_eq!((next.poll_event(), next.refused()), (None, 1));
    // Before the first heartbeat nothing is answered.
    let mut fresh = host_link(1);
    fresh.handle(pair.now, 0, &mut recorded.clone());
    assert_eq!((fresh.poll_event(), fresh.refused()), (None, 1));
}

#[test]
pub(super) fn an_earlier_question_changes_nothing() {
    let mut pair = Pair::heard();
    pair.answer = Some(text(9));
    let first = pair.ask(b"first").unwrap();
    pair.run(2, |_| false);
    let overtaken = pair
        .replies
        .iter()
        .find(|reply| reply[1] == 4)
        .unwrap()
        .clone();
    pair.answer = None;
    let second = pair.ask(b"second").unwrap();
    pair.run(2, |_| false);
    pair.host.handle(pair.now, 0, &mut overtaken.clone());
    pair.take_up();
    assert_eq!(pair.asked.len(), 2, "{:?}", pair.asked);
    pair.host.answer(pair.now, 0, second, text(7)).unwrap();
    pair.run(2, |_| false);
    assert_eq!(pair.answers, [(first, Ok(text(9))), (second, Ok(text(7)))]);
    // The next start of an orchestrator counts from one again, and gets no answer to a question of the start before it.
    for salt in [8, 10] {
        pair.orchestrator = orchestrator_link(salt);
        pair.run(200, |_| false);
        assert_eq!(pair.ask(b"third"), Ok(1));
        pair.run(2, |_| false);
    }
    let [.., (former, _), (last, _)] = pair.asked[..] else {
        panic!("{:?}", pair.asked)
    };
    pair.host.answer(pair.now, 0, former, text(2)).unwrap();
    pair.run(2, |_| false);
    pair.host.answer(pair.now, 0, last, text(3)).unwrap();
    pair.run(2, |_| false);
    assert_eq!(pair.answers[2..], [(1, Ok(text(3)))]);
}

#[test]
pub(super) fn an_answer_is_forgotten_soon() {
    let mut pair = Pair::heard();
    pair.answer = Some(text(100_000));
    pair.ask(b"?").unwrap();
    pair.run(SECOND, |_| false);
    assert_eq!(pair.host.answers_kept(), 100_000);
    pair.run(5 * SECOND, |_| false);
    assert_eq!(pair.host.answers_kept(), 0);
}

#[test]
pub(super) fn answers_to_others_are_not_taken() {
    let mut pair = Pair::heard();
    let number = pair.ask(b"?").unwrap();
    pair.run(10, |_| false);
    // Of another process, to another start of the orchestrator, to another question.
    for (salt, asker, number) in [
        (5, 2, number),
        (1, 5, number),
        (1, 2, number + 1),
        (1, 2, 0),
    ] {
        let mut datagram = pair.forged(salt, asker, number, b"no");
        pair.orchestrator
            .handle(pair.now, address(1), &mut datagram);
    }
    pair.learn();
    assert_eq!(pair.answers, []);
    assert_eq!(pair.orchestrator.traffic().refused.not_asked, 4);
    let mut datagram = pair.forged(1, 2, number, b"yes");
    pair.orchestrator
        .handle(pair.now, address(1), &mut datagram.clone());
    // It comes twice.
    pair.orchestrator
        .handle(pair.now, address(1), &mut datagram);
    pair.learn();
    assert_eq!(pair.answers, [(number, Ok(b"yes".to_vec()))]);
    // An answer that was withheld is none to the question after it.
    let withheld = pair.forged(1, 2, number, b"old");
    let later = pair.ask(b"and now?").unwrap();
    pair.orchestrator
        .handle(pair.now, address(1), &mut withheld.clone());
    pair.run(10, |_| false);
    pair.host
        .answer(pair.now, 0, later, b"new".to_vec())
        .unwrap();
    pair.run(2, |_| false);
    assert_eq!(pair.answers[1..], [(later, Ok(b"new".to_vec()))]);
}

#[test]
pub(super) fn two_answers_are_not_mixed() {
    // The host forgets its answer when half of it is there, and works on the question again.
    let mut pair = Pair::heard();
    let number = pair.ask(b"?").unwrap();
    pair.run(2, |_| false);
    let (old, new) = (vec![b'o'; 40_000], vec![b'n'; 40_000]);
    pair.host.answer(pair.now, 0, 1, old).unwrap();
    // The first window arrives, and the question for the second is lost.
    let mut first = 0;
    while let Some((_, mut datagram)) = pair.host.poll_transmit() {
        if datagram[1] == 3 {
            pair.orchestrator
                .handle(pair.now, address(1), &mut datagram);
            first += 1;
        }
    }
    assert_eq!(first, 16);
    while pair.orchestrator.poll_transmit().is_some() {}
    pair.host.forget_answers();
    pair.answer = Some(new.clone());
    pair.run(2 * SECOND, |_| false);
    assert_eq!(pair.answers, [(number, Ok(new))]);
    // A whole that is not what its digest says begins again.
    let number = pair.ask(b"?").unwrap();
    pair.run(1, |_| true);
    let damaged = AnswerPart {
        asker: [2; 16],
        number,
        total: 4,
        digest: [9; 16],
        offset: 0,
        bytes: b"fake".to_vec(),
    };
    let mut datagram =
        envelope::of_answers(ClusterId(9), ring(1), [1; 16]).seal(|out| damaged.encode(out));
    pair.orchestrator
        .handle(pair.now, address(1), &mut datagram);
    pair.learn();
    assert_eq!(pair.answers.len(), 1);
    pair.run(SECOND, |_| false);
    assert_eq!(pair.answers.len(), 2);
}

#[test]
pub(super) fn a_question_ends_in_time() {
    // The host never answers.
    let mut pair = Pair::heard();
    let asked_at = pair.now;
    let numbers = [b"one", b"two"].map(|question| pair.ask(question).unwrap());
    while pair.answers.len() < 2 && pair.now.since(asked_at) < QUESTION_TIME * 2 {
        pair.run(10, |_| false);
    }
    let late = numbers.map(|number| (number, Err(NoAnswer::Late)));
    assert_eq!(pair.answers, late);
    assert_eq!(pair.now.since(asked_at).as_secs(), QUESTION_TIME.as_secs());
    assert!(pair.orchestrator.traffic().questions < 20);
    // The network is cut off: at its end the question is late, and before it nobody asks a host that is silent.
    pair.answers.clear();
    pair.ask(b"cut").unwrap();
    pair.run(QUESTION_TIME.as_millis() as u32 + 10, |_| true);
    assert_eq!(pair.answers.len(), 1);
    assert_eq!(pair.ask(b"?"), Err(AskError::NotHeard));
    let other = pair.orchestrator.ask(pair.now, "b", b"?");
    assert_eq!(other, Err(AskError::NotHeard));
    // The host is started again: the question ends at once.
    let mut pair = Pair::heard();
    let number = pair.ask(b"?").unwrap();
    pair.run(10, |_| false);
    pair.host = host_link(4);
    pair.facts.process = process(7, 2);
    pair.run(20, |_| false);
    assert_eq!(pair.answers, [(number, Err(NoAnswer::Restarted))]);
    pair.answer = Some(text(1));
    let number = pair.ask(b"?").unwrap();
    pair.run(10, |_| false);
    assert_eq!(pair.answers[1], (number, Ok(text(1))));
}

#[test]
pub(super) fn questions_and_answers_are_bounded() {
    let mut pair = Pair::heard();
    for length in [0, QUESTION_BYTES_MAX + 1] {
        assert_eq!(pair.ask(&text(length)), Err(AskError::Length(length)));
    }
    for length in [0, ANSWER_BYTES_MAX + 1] {
        let refused = pair.host.answer(pair.now, 0, 1, text(length));
        assert_eq!(refused, Err(AnswerError::Length(length)));
    }
    for _ in 0..QUESTIONS_MAX {
        pair.ask(&text(QUESTION_BYTES_MAX)).unwrap();
    }
    assert_eq!(pair.ask(b"?"), Err(AskError::Busy));
    pair.run(10, |_| false);
    assert_eq!(pair.asked.len(), 1, "one at a time");
    // A part of an answer that would be too long.
    let number = pair.asked[0].0;
    let part = AnswerPart {
        asker: [2; 16],
        number,
        total: ANSWER_BYTES_MAX as u32 + 1,
        digest: [9; 16],
        offset: 0,
        bytes: text(ANSWER_PART_BYTES),
    };
    let mut seal = envelope::of_answers(ClusterId(9), ring(1), [1; 16]);
    let mut datagram = seal.seal(|out| part.encode(out));
    let asked = |pair: &Pair| pair.orchestrator.poll_timeout().unwrap();
    let before = asked(&pair);
    pair.orchestrator
        .handle(pair.now, address(1), &mut datagram);
    assert_eq!(asked(&pair), before, "no progress");
    // All are answered, one after the other.
    pair.answer = Some(text(70_000));
    pair.host.answer(pair.now, 0, number, text(70_000)).unwrap();
    pair.run(SECOND, |_| false);
    assert_eq!(pair.answers.len(), QUESTIONS_MAX);
    assert!(pair.answers.iter().all(|(_, answer)| answer.is_ok()));
    // Doubles of a question cost so many parts and no more.
    pair.ask(b"?").unwrap();
    let (_, datagram) = pair.orchestrator.poll_transmit().unwrap();
    pair.host.handle(pair.now, 0, &mut datagram.clone());
    pair.take_up();
    for _ in 0..1_000 {
        pair.host.handle(pair.now, 0, &mut datagram.clone());
    }
    let mut parts = 0;
    while pair.host.poll_transmit().is_some() {
        parts += 1;
    }
    assert_eq!(parts, 256);
}

#[test]
fn questions_go_on_while_keys_change() {
    let mut pair = Pair::heard();
    pair.answer = Some(text(200_000));
    let seeded = |id: u8| ClusterKey::from_random(id, [id; 32]).with_hash_seed(1);
    let both = |sending| KeyRing::new(vec![seeded(1), seeded(2)], sending).unwrap();
    for ring in [both(1), both(2), KeyRing::from(seeded(2))] {
        let number = pair.ask(b"?").unwrap();
        pair.run(2, one_of_four);
        pair.host.set_keys(ring.clone());
        pair.orchestrator.set_keys(ring);
        pair.run(4 * SECOND, |_| false);
        assert_eq!(pair.answers.last(), Some(&(number, Ok(text(200_000)))));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_question_a_part_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..1_200)) {
        if let Some(question) = Question::decode(&bytes) {
            let mut again = Vec::new();
            question.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        if let Some(part) = AnswerPart::decode(&bytes) {
            let mut again = Vec::new();
            part.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }

    /// A holder of the key may send any parts and questions: bounded, and no panic; the true answer arrives all the same.
    #[test]
    fn any_part_of_an_answer_is_taken_or_not(
        parts in proptest::collection::vec(
            (0u64..3, 0u32..40_000, 0u8..2, 0u32..30_000, 1usize..ANSWER_PART_BYTES), 1..40)
    ) {
        let mut pair = Pair::heard();
        let number = pair.ask(b"?").unwrap();
        pair.run(2, |_| false);
        let mut seal = envelope::of_answers(ClusterId(9), ring(1), [1; 16]);
        let mut asks = envelope::of_questions(ClusterId(9), ring(1), [2; 16]);
        for (number, total, digest, offset, length) in parts {
            let part = AnswerPart {
                asker: [2; 16], number, total, digest: [digest; 16], offset, bytes: vec![0; length],
            };
            let mut datagram = seal.seal(|out| part.encode(out));
            pair.orchestrator.handle(pair.now, address(1), &mut datagram);
            let question = Question { salt: [1; 16], sequence: 2, number, offset, text: vec![1; length] };
            let mut datagram = asks.seal(|out| question.encode(out));
            pair.host.handle(pair.now, 0, &mut datagram);
        }
        pair.take_up();
        pair.learn();
        prop_assert!(pair.answers.is_empty());
        pair.answer = Some(text(50_000));
        pair.host.give_up(0, number);
        pair.run(QUESTION_TIME.as_millis() as u32, |_| false);
        // Unless a forged question with a later number took its place.
        let expected = match pair.asked.iter().any(|(_, question)| question != b"?") {
            true => Err(NoAnswer::Late),
            false => Ok(text(50_000)),
        };
        let is_done = pair.answers.is_empty() || pair.answers == [(number, expected)];
        prop_assert!(is_done, "{:?}", pair.answers.len());
    }
}
