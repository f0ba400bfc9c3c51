//! Both ends joined in memory, with a clock of their own and a network that loses, repeats and records.

mod questions;
mod registration;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use asterism_epochs::{EPOCH_BYTES_MAX, Process};
use asterism_placement::Time;
use asterism_secure_channel::{ClusterId, ClusterKey, KeyRing};
use proptest::prelude::*;

use crate::envelope;
use crate::message::{HOST_MESSAGE_BYTES_MAX, HostMessage, PART_BYTES, Part, Reply};
use crate::{
    DATAGRAM_BYTES_MAX, Heartbeat, HostEvent, HostLink, HostLinkConfig, LeaderHeard, Load,
    NAME_BYTES_MAX, Names, NoAnswer, OfferError, OrchestratorEvent, OrchestratorLink,
    OrchestratorLinkConfig, PROCESSES_MAX, RegistrationRefused, Stage, TENANT_BYTES_MAX,
    TenantUsage, USAGE_AT_ONCE,
};

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(50);

fn ring(id: u8) -> KeyRing {
    ClusterKey::from_random(id, core::array::from_fn(|i| i as u8 ^ id)).into()
}

fn host_link(salt: u8) -> HostLink {
    HostLink::new(HostLinkConfig {
        cluster: ClusterId(9),
        keys: ring(1),
        salt: [salt; 16],
        orchestrators: 1,
        interval: INTERVAL,
    })
}

fn orchestrator_link(salt: u8) -> OrchestratorLink {
    OrchestratorLink::new(OrchestratorLinkConfig {
        cluster: ClusterId(9),
        keys: ring(1),
        salt: [salt; 16],
        secret: [salt; 32],
        names: Names::Listed(["a", "b"].map(String::from).into()),
    })
}

fn process(folder: u64, start: u64) -> Process {
    Process { folder, start }
}

fn heartbeat(process: Process, stage: Stage, epoch: u32) -> Heartbeat {
    Heartbeat {
        host: "a".to_owned(),
        address: None,
        process,
        stage,
        epoch,
        silent: 0b10,
        digests_agree: true,
        launch: 4,
        load: Load {
            packets: 1,
            bytes: 2,
            dropped: 3,
            flows: 4,
            lag_us: 5,
            parked: 6,
            busy_permille: 7,
        },
        usage: [].into(),
    }
}

fn usage_of(tenants: usize, packets: u64) -> Vec<TenantUsage> {
    let of = |tenant: usize| TenantUsage {
        tenant: format!("t{tenant}"),
        packets: packets + tenant as u64,
        bytes: 2,
        flows: 3,
        instance_ms: 4,
    };
    (0..tenants).map(of).collect()
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A host and an orchestrator; datagrams arrive at once unless a test takes them away.
struct Pair {
    now: Time,
    host: HostLink,
    orchestrator: OrchestratorLink,
    facts: Heartbeat,
    /// All datagrams of the host.
    recorded: Vec<Vec<u8>>,
    /// All datagrams of the orchestrator.
    replies: Vec<Vec<u8>>,
    believed: Vec<Heartbeat>,
    /// What each of them said of the leader.
    leaders: Vec<Option<LeaderHeard>>,
    epochs: Vec<(u32, String)>,
    registration: Vec<Option<RegistrationRefused>>,
    /// What the host answers to each question; `None`: nothing yet.
    answer: Option<Vec<u8>>,
    /// The questions that the host is to work on.
    asked: Vec<(u64, Vec<u8>)>,
    answers: Vec<(u64, Result<Vec<u8>, NoAnswer>)>,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            now: Time::ZERO + MS,
            host: host_link(1),
            orchestrator: orchestrator_link(2),
            facts: heartbeat(process(7, 1), Stage::Awaiting, 0),
            recorded: Vec::new(),
            replies: Vec::new(),
            believed: Vec::new(),
            leaders: Vec::new(),
            epochs: Vec::new(),
            registration: Vec::new(),
            answer: None,
            asked: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Lets so many milliseconds pass; `lost` says which datagrams are lost, by their number.
    fn run(&mut self, ms: u32, mut lost: impl FnMut(usize) -> bool) {
        let mut number = 0;
        for _ in 0..ms {
            self.host.set(self.now, self.facts.clone());
            if self.host.poll_timeout().is_some_and(|at| at <= self.now) {
                self.host.handle_timeout(self.now);
            }
            while let Some((_, mut datagram)) = self.host.poll_transmit() {
                assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
                self.recorded.push(datagram.clone());
                number += 1;
                if !lost(number) {
                    self.orchestrator
                        .handle(self.now, address(1), &mut datagram);
                }
            }
            self.orchestrator.handle_timeout(self.now);
            self.learn();
            while let Some((to, mut datagram)) = self.orchestrator.poll_transmit() {
                assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
                self.replies.push(datagram.clone());
                number += 1;
                if to == address(1) && !lost(number) {
                    self.host.handle(self.now, 0, &mut datagram);
                }
            }
            self.take_up();
            self.now = self.now + MS;
        }
    }

    fn learn(&mut self) {
        while let Some(event) = self.orchestrator.poll_event() {
            match event {
                OrchestratorEvent::Heartbeat(heartbeat, leader) => {
                    self.believed.push(heartbeat);
                    self.leaders.push(leader);
                }
                OrchestratorEvent::Answer(number, answer) => self.answers.push((number, answer)),
            }
        }
    }

    /// What the host does with its events.
    fn take_up(&mut self) {
        while let Some(event) = self.host.poll_event() {
            match event {
                HostEvent::Epoch { epoch, text, .. } => self.epochs.push((epoch, text)),
                HostEvent::Registration { refused, .. } => self.registration.push(refused),
                HostEvent::Question { number, text, .. } => {
                    self.asked.push((number, text));
                    if let Some(answer) = self.answer.clone() {
                        self.host.answer(self.now, 0, number, answer).unwrap();
                    }
                }
            }
        }
    }

    fn offer(&mut self, epoch: u32, text: &str) -> Result<(), OfferError> {
        let process = self.facts.process;
        self.orchestrator.offer(self.now, "a", process, epoch, text)
    }
}

#[test]
fn heartbeats_arrive_as_they_were_sent_from_the_second_datagram_on() {
    let mut pair = Pair::new();
    pair.run(20, |_| false);
    assert_eq!(pair.believed, [pair.facts.clone()]);
    assert_eq!(pair.recorded.len(), 2, "one for the challenge");
    pair.run(1_000, |_| false);
    assert_eq!(pair.believed.len(), 21);
    assert!(pair.host.is_answered());
    let known = pair.host.orchestrators().next().unwrap();
    assert!(known.round_trip.unwrap() < MS && known.heard.is_some());
    // A change does not wait for its turn.
    pair.run(10, |_| false);
    pair.facts.stage = Stage::Joining(3);
    pair.run(1, |_| false);
    assert_eq!(pair.believed.last().unwrap().stage, Stage::Joining(3));
}

#[test]
fn heartbeats_stop_when_nobody_says_that_they_are_true() {
    let mut pair = Pair::new();
    pair.run(100, |_| false);
    let sent_until = pair.now + Duration::from_secs(2);
    let mut sent = 0;
    while pair.now < sent_until + INTERVAL * 9 {
        pair.host.handle_timeout(pair.now);
        while pair.host.poll_transmit().is_some() {
            assert!(pair.now < sent_until);
            sent += 1;
        }
        pair.now = pair.now + INTERVAL;
    }
    assert!(sent > 30, "{sent}");
}

#[test]
fn what_was_recorded_is_not_believed() {
    let mut pair = Pair::new();
    pair.run(500, |_| false);
    let believed = pair.believed.len();
    // The same datagrams again, to the same orchestrator and to one that has begun since, soon and later.
    let mut later = orchestrator_link(3);
    for wait in [0, 1, 3_000, 60_000] {
        let now = pair.now + MS * wait;
        for datagram in &pair.recorded {
            pair.orchestrator
                .handle(now, address(6), &mut datagram.clone());
            later.handle(now, address(6), &mut datagram.clone());
        }
    }
    pair.learn();
    assert_eq!(pair.believed.len(), believed);
    assert_eq!(later.poll_event(), None);
    let refused = pair.orchestrator.traffic().refused;
    let recorded = pair.recorded.len() as u64;
    // Once stale at the start; then repeated while the challenge is fresh, and stale afterwards.
    assert_eq!(refused.repeated + refused.stale, 4 * recorded + 1);
    assert!(refused.repeated > recorded, "{refused:?}");
    // An answer is shorter than what it answers.
    let least = pair.recorded.iter().map(Vec::len).min().unwrap();
    while let Some((_, reply)) = later.poll_transmit() {
        assert!(reply.len() < least);
    }
}

#[test]
fn replies_to_another_process_are_not_believed() {
    let mut pair = Pair::new();
    pair.run(100, |_| false);
    pair.offer(3, "epoch = 3\n").unwrap();
    let (_, mut reply) = pair.orchestrator.poll_transmit().unwrap();
    // The next start of the same host.
    let mut next = host_link(5);
    next.set(pair.now, heartbeat(process(7, 2), Stage::Awaiting, 0));
    // It has sent as many datagrams as the answer's sequence number.
    for number in 0..10 {
        next.handle_timeout(pair.now + INTERVAL * number);
    }
    next.handle(pair.now, 0, &mut reply.clone());
    assert_eq!((next.poll_event(), next.refused()), (None, 1));
    // The process that it is for takes it, but not much later.
    let mut late = reply.clone();
    pair.host.handle(pair.now, 0, &mut reply);
    assert!(pair.host.poll_event().is_some());
    pair.run(50 * 300, |_| false);
    let refused = pair.host.refused();
    pair.host.handle(pair.now, 0, &mut late);
    assert_eq!(pair.host.refused(), refused + 1);
}

/// Loses a fourth of all datagrams, in no order.
fn one_of_four(number: usize) -> bool {
    (number as u32).wrapping_mul(0x9E37_79B9) >> 30 == 0
}

#[test]
fn an_epoch_of_any_length_arrives_through_loss() {
    for length in [1, PART_BYTES, PART_BYTES + 1, 40 * PART_BYTES + 7] {
        let text: String = (0..length)
            .map(|place| char::from(b'a' + (place % 23) as u8))
            .collect();
        let mut pair = Pair::new();
        pair.run(100, |_| false);
        pair.offer(3, &text).unwrap();
        pair.run(8_000, one_of_four);
        assert_eq!(pair.epochs.first(), Some(&(3, text.clone())), "{length}");
        // Until the host has it, it is handed again: once a second.
        assert!(
            (2..=8).contains(&pair.epochs.len()),
            "{}",
            pair.epochs.len()
        );
        pair.facts.epoch = 3;
        pair.run(100, |_| false);
        let (handed, parts) = (pair.epochs.len(), pair.orchestrator.traffic().parts);
        pair.run(3_000, |_| false);
        assert_eq!(pair.epochs.len(), handed);
        assert_eq!(pair.orchestrator.traffic().parts, parts, "no more parts");
    }
}

#[test]
fn a_later_epoch_takes_the_place_of_one_under_way() {
    let mut pair = Pair::new();
    pair.run(100, |_| false);
    let long = "x".repeat(100 * PART_BYTES);
    pair.offer(3, &long).unwrap();
    pair.run(20, |_| false);
    pair.offer(4, "epoch = 4\n").unwrap();
    pair.run(200, |_| false);
    assert_eq!(pair.epochs, [(4, "epoch = 4\n".to_owned())]);
}

#[test]
fn only_a_process_that_was_heard_is_handed_an_epoch() {
    let mut pair = Pair::new();
    assert_eq!(pair.offer(3, "x"), Err(OfferError::NotHeard));
    pair.run(100, |_| false);
    let long = "x".repeat(EPOCH_BYTES_MAX + 1);
    assert_eq!(pair.offer(3, &long), Err(OfferError::TooLong(long.len())));
    let other = pair
        .orchestrator
        .offer(pair.now, "a", process(8, 1), 3, "x");
    assert_eq!(other, Err(OfferError::NotHeard));
    pair.offer(3, &"x".repeat(EPOCH_BYTES_MAX)).unwrap();
}

#[test]
fn a_process_that_has_ended_is_not_heard_again() {
    let mut pair = Pair::new();
    pair.run(200, |_| false);
    // Withheld, and delivered after the next start was heard, while the challenge is still fresh.
    pair.run(60, |_| true);
    let mut withheld = pair.recorded.last().unwrap().clone();
    pair.host = host_link(4);
    pair.facts.process = process(7, 2);
    pair.run(100, |_| false);
    let believed = pair.believed.len();
    pair.orchestrator
        .handle(pair.now, address(1), &mut withheld);
    pair.learn();
    assert_eq!(pair.believed.len(), believed);
    assert_eq!(pair.orchestrator.traffic().refused.ended, 1);
}

#[test]
fn processes_of_one_name_are_bounded() {
    let mut pair = Pair::new();
    for folder in 0..3 * PROCESSES_MAX as u64 {
        pair.host = host_link(10 + folder as u8);
        pair.facts.process = process(folder, 1);
        pair.run(20, |_| false);
    }
    pair.learn();
    assert_eq!(pair.believed.len(), 3 * PROCESSES_MAX);
    let first = pair
        .orchestrator
        .offer(pair.now, "a", process(0, 1), 3, "x");
    assert_eq!(first, Err(OfferError::NotHeard));
    pair.offer(3, "x").unwrap();
    // What a forgotten process sent is too old to be believed by then.
    pair.run(5_000, |_| false);
    let believed = pair.believed.len();
    for datagram in &pair.recorded[..3] {
        pair.orchestrator
            .handle(pair.now, address(1), &mut datagram.clone());
    }
    pair.learn();
    assert_eq!(pair.believed.len(), believed);
}

#[test]
fn keys_change_while_heartbeats_go_on() {
    let mut pair = Pair::new();
    pair.run(100, |_| false);
    let seeded = |id: u8| ClusterKey::from_random(id, [id; 32]).with_hash_seed(1);
    let both = |sending| KeyRing::new(vec![seeded(1), seeded(2)], sending).unwrap();
    for ring in [KeyRing::from(seeded(1)), both(1), both(2)] {
        pair.host.set_keys(ring.clone());
        pair.orchestrator.set_keys(ring);
        let before = pair.believed.len();
        pair.run(200, |_| false);
        assert!(pair.believed.len() >= before + 3);
    }
    // One end is ahead.
    pair.host.set_keys(seeded(2).into());
    pair.orchestrator.set_keys(seeded(1).into());
    let before = pair.believed.len();
    pair.run(200, |_| false);
    assert_eq!(pair.believed.len(), before);
    assert!(pair.orchestrator.traffic().refused.not_sealed >= 3);
}

#[test]
fn a_text_that_is_not_what_its_digest_says_is_not_taken() {
    let mut pair = Pair::new();
    pair.run(100, |_| false);
    let mut orchestrator = envelope::of_orchestrator(ClusterId(9), ring(1), [2; 16]);
    let reply = Reply {
        challenge: [0; 16],
        salt: [1; 16],
        sequence: 2,
        is_stale: false,
        leads: None,
        part: Some(Part {
            epoch: 3,
            total: 5,
            digest: [7; 16],
            offset: 0,
            bytes: b"epoch".to_vec(),
        }),
        refused: None,
    };
    let mut datagram = orchestrator.seal(|out| reply.encode(out));
    pair.host.handle(pair.now, 0, &mut datagram);
    assert_eq!((pair.host.poll_event(), pair.host.refused()), (None, 0));
}

#[test]
fn the_usage_of_all_tenants_arrives_in_turn() {
    let mut pair = Pair::new();
    for tenants in [0, 1, USAGE_AT_ONCE, 3 * USAGE_AT_ONCE + 1] {
        let all = usage_of(tenants, 5);
        pair.facts.usage = all.clone().into();
        pair.believed.clear();
        pair.run(1_000, |_| false);
        let received: BTreeMap<_, _> = pair
            .believed
            .iter()
            .flat_map(|heartbeat| heartbeat.usage.iter())
            .map(|usage| (usage.tenant.clone(), usage.clone()))
            .collect();
        let mut received: Vec<_> = received.into_values().collect();
        received.sort_by_key(|usage| usage.packets);
        assert_eq!(received, all, "{tenants}");
        let most = pair.believed.iter().map(|heartbeat| heartbeat.usage.len());
        assert_eq!(most.max(), Some(tenants.min(USAGE_AT_ONCE)));
    }
    // The last usage of a host that ends arrives within milliseconds.
    let all = usage_of(30, 1_000);
    pair.facts.usage = all.clone().into();
    pair.facts.stage = Stage::Ended(5);
    pair.believed.clear();
    pair.run(30, |_| false);
    let received = pair
        .believed
        .iter()
        .flat_map(|heartbeat| heartbeat.usage.iter());
    let received: BTreeSet<_> = received
        .filter(|usage| usage.packets >= 1_000)
        .map(|usage| &usage.tenant)
        .collect();
    assert_eq!(received.len(), 30);
    assert!(pair.host.is_answered());
}

#[test]
fn the_last_leader_is_named_with_its_silence() {
    let mut pair = Pair::new();
    pair.run(200, |_| false);
    assert_eq!(pair.leaders.last(), Some(&None));
    pair.orchestrator.set_leads(Some(5));
    pair.run(200, |_| false);
    let heard = |pair: &Pair| pair.leaders.last().copied().flatten().unwrap();
    assert_eq!(heard(&pair).term, 5);
    assert!(heard(&pair).silence <= MS * 60, "{:?}", heard(&pair));
    // It leads no more, and answers all the same.
    pair.orchestrator.set_leads(None);
    pair.run(1_000, |_| false);
    assert_eq!(heard(&pair).term, 5);
    let silence = heard(&pair).silence;
    assert!((MS * 900..=MS * 1_060).contains(&silence), "{silence:?}");
    // One that led before does not know yet that it was replaced.
    pair.orchestrator.set_leads(Some(4));
    pair.run(1_000, |_| false);
    assert_eq!(heard(&pair).term, 5);
    pair.orchestrator.set_leads(Some(6));
    pair.run(200, |_| false);
    assert_eq!(heard(&pair).term, 6);
    // A store that lost what it had counts from the beginning.
    pair.orchestrator.set_leads(Some(2));
    pair.run(9_000, |_| false);
    assert_eq!(heard(&pair).term, 6);
    pair.run(1_500, |_| false);
    assert_eq!(heard(&pair).term, 2);
}

/// The bytes on the wire: a change of them counts up the version of the envelope.
#[test]
fn messages_have_these_bytes() {
    let message = HostMessage {
        challenge: [0xc1; 16],
        heartbeat: Heartbeat {
            usage: usage_of(2, 0x0102).into(),
            address: Some(address(0x1ce8)),
            ..heartbeat(process(7, 2), Stage::Serving(9), 3)
        },
        wants: Some((4, 0x0400)),
        leader: Some(LeaderHeard {
            term: 0x0506,
            silence: MS * 258,
        }),
    };
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let expected = concat!(
        "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1",
        "0700000000000000",
        "0200000000000000",
        "02",
        "0900000000000000",
        "03000000",
        "0200000000000000",
        "01",
        "0400000000000000",
        "0100000000000000",
        "0200000000000000",
        "0300000000000000",
        "0400000000000000",
        "05000000",
        "06000000",
        "0700",
        "04000000",
        "00040000",
        "0605000000000000",
        "0201",
        "0161",
        "02",
        "027430",
        "0201000000000000",
        "0200000000000000",
        "0300000000000000",
        "0400000000000000",
        "027431",
        "0301000000000000",
        "0200000000000000",
        "0300000000000000",
        "0400000000000000",
        "00000000000000000000ffff7f000001",
        "e81c",
    );
    assert_eq!(hex(&bytes), expected);
    assert_eq!(HostMessage::decode(&bytes), Some(message));
    let sealed = envelope::of_host(ClusterId(9), ring(1), [0; 16]).seal(|_| {});
    assert_eq!(sealed[0], 3, "the version");
    // The longest message fits a datagram.
    let mut longest = heartbeat(process(7, 2), Stage::Serving(9), 3);
    longest.host = "h".repeat(NAME_BYTES_MAX);
    longest.address = Some(address(7400));
    longest.usage = (0..USAGE_AT_ONCE)
        .map(|_| TenantUsage {
            tenant: "t".repeat(TENANT_BYTES_MAX),
            ..TenantUsage::default()
        })
        .collect();
    let longest = HostMessage {
        challenge: [0; 16],
        heartbeat: longest,
        wants: None,
        leader: None,
    };
    let mut bytes = Vec::new();
    longest.encode(&mut bytes);
    assert_eq!(bytes.len(), HOST_MESSAGE_BYTES_MAX);
    assert_eq!(HostMessage::decode(&bytes), Some(longest));
}

/// Only in a build with `--cfg asterism_mutants`: `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-heartbeat`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_is_found() {
    use crate::mutant::{Mutant, select};
    type Scenario = (&'static str, fn());
    const SCENARIOS: [Scenario; 20] = [
        ("leader", the_last_leader_is_named_with_its_silence),
        ("usage", the_usage_of_all_tenants_arrives_in_turn),
        ("bounded", processes_of_one_name_are_bounded),
        ("stop", heartbeats_stop_when_nobody_says_that_they_are_true),
        ("recorded", what_was_recorded_is_not_believed),
        ("other process", replies_to_another_process_are_not_believed),
        ("any length", an_epoch_of_any_length_arrives_through_loss),
        ("later", a_later_epoch_takes_the_place_of_one_under_way),
        (
            "not heard",
            only_a_process_that_was_heard_is_handed_an_epoch,
        ),
        ("ended", a_process_that_has_ended_is_not_heard_again),
        (
            "digest",
            a_text_that_is_not_what_its_digest_says_is_not_taken,
        ),
        (
            "answers",
            questions::an_answer_of_any_length_arrives_through_loss,
        ),
        ("twice", questions::a_question_is_worked_on_once),
        (
            "stale question",
            questions::recorded_questions_are_not_answered,
        ),
        ("earlier", questions::an_earlier_question_changes_nothing),
        ("kept", questions::an_answer_is_forgotten_soon),
        ("another answer", questions::answers_to_others_are_not_taken),
        ("two answers", questions::two_answers_are_not_mixed),
        ("late", questions::a_question_ends_in_time),
        ("bounds", questions::questions_and_answers_are_bounded),
    ];
    let mut alive = Vec::new();
    for planted in Mutant::ALL {
        select(Some(planted));
        let found = SCENARIOS
            .iter()
            .find(|(_, scenario)| std::panic::catch_unwind(scenario).is_err());
        select(None);
        match found {
            Some((name, _)) => println!("{planted:?}: {name}"),
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "found by no scenario: {alive:?}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for read in [HostMessage::decode(&bytes).map(|message| {
            let mut again = Vec::new();
            message.encode(&mut again);
            again
        }), Reply::decode(&bytes).map(|reply| {
            let mut again = Vec::new();
            reply.encode(&mut again);
            again
        })].into_iter().flatten() {
            prop_assert_eq!(&read, &bytes);
        }
        let (mut host, mut orchestrator) = (host_link(1), orchestrator_link(2));
        host.handle(Time::ZERO, 0, &mut bytes.clone());
        orchestrator.handle(Time::ZERO, address(1), &mut bytes.clone());
        prop_assert_eq!(orchestrator.poll_transmit(), None);
        prop_assert_eq!(orchestrator.poll_event(), None);
    }

    /// A holder of the key may say anything: bounded, and no panic.
    #[test]
    fn any_part_is_taken_or_refused(
        parts in proptest::collection::vec(
            (1u32..4, 0u32..5_000, 0u8..2, 0u32..3_000, 1usize..PART_BYTES), 1..30)
    ) {
        let mut pair = Pair::new();
        pair.run(100, |_| false);
        let mut orchestrator =
            envelope::of_orchestrator(ClusterId(9), ring(1), [2; 16]);
        for (epoch, total, digest, offset, length) in parts {
            let part = Part { epoch, total, digest: [digest; 16], offset, bytes: vec![0; length] };
            let (challenge, salt) = ([0; 16], [1; 16]);
            let reply = Reply { challenge, salt, sequence: 2, is_stale: false, leads: None, part: Some(part), refused: None };
            let mut datagram = orchestrator.seal(|out| reply.encode(out));
            let refused = pair.host.refused();
            pair.host.handle(pair.now, 0, &mut datagram);
            prop_assert_eq!(pair.host.refused(), refused);
        }
        // No text has such a digest.
        prop_assert_eq!(pair.host.poll_event(), None);
        pair.run(100, |_| false);
        prop_assert!(pair.believed.len() > 3);
    }
}
