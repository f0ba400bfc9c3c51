//! What seeds meet too rarely, step by step.

use asterism_placement::replicated::{
    Config, Deliver, Destination, Event, Replicator, Roster, Standing,
};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId, Time};

struct Nowhere;

impl Deliver for Nowhere {
    fn group(&mut self, _: MemberId, _: Incarnation, _: u64, _: &[u8]) {}
}

const MEMBERS: [MemberId; 3] = [MemberId(1), MemberId(2), MemberId(3)];
const LIFE: Incarnation = Incarnation(1);

fn replicator(member: MemberId) -> Replicator {
    let mut config = Config::new(ClusterId(1), Epoch(1), member, LIFE, MEMBERS.to_vec());
    config.log_groups_max = 8;
    Replicator::new(config, Time::ZERO).expect("a good configuration")
}

/// What a member sends now, to whom.
fn sends(from: &mut Replicator, now: Time) -> Vec<(Destination, Vec<u8>)> {
    from.handle_timeout(now);
    let mut message = Vec::new();
    let mut sent = Vec::new();
    while let Some(destination) = from.poll_transmit(now, &mut message) {
        sent.push((destination, message.clone()));
    }
    sent
}

/// Everything that one member sends arrives at another.
fn all_arrives(from: &mut Replicator, to: &mut Replicator, now: Time) {
    let (name, to_name) = (from.config().member, to.config().member);
    for (destination, bytes) in sends(from, now) {
        if destination == Destination::All || destination == Destination::One(to_name) {
            to.handle(now, name, LIFE, &bytes, &mut Nowhere)
                .expect("an honest message");
        }
    }
}

/// One member fell off the log of another, got the first part of its image, and that one died: what is in the part may be
/// known to nobody else, so whoever got it walks for the third.
pub(crate) fn half_an_image_is_passed_on() {
    let [mut dying, mut served, mut third] = MEMBERS.map(replicator);
    let mut now = Time(1_000);
    all_arrives(&mut served, &mut dying, now);
    all_arrives(&mut third, &mut dying, now);
    for sequence in 1..=8 {
        now = Time(now.0 + 1_000);
        // Lost on the way to both.
        let _ = dying.submit(now, sequence, b"group");
        sends(&mut dying, now);
        all_arrives(&mut third, &mut dying, now);
        all_arrives(&mut served, &mut dying, now);
    }
    let walk = std::iter::from_fn(|| dying.poll_event()).find_map(|event| match event {
        Event::Laggard { member, walk, .. } if member == MEMBERS[1] => Some(walk),
        _ => None,
    });
    let walk = walk.expect("the second member fell off the log");
    dying
        .submit_image(now, MEMBERS[1], walk, b"entries")
        .expect("room for a part");
    all_arrives(&mut dying, &mut served, now);
    assert_eq!(served.counters().image_chunks_delivered, 1);
    third.poll_event();

    let roster = Roster {
        epoch: Epoch(2),
        members: vec![(MEMBERS[1], Some(LIFE)), (MEMBERS[2], Some(LIFE))],
    };
    for survivor in [&mut served, &mut third] {
        survivor
            .install(now, &roster, &mut Nowhere)
            .expect("a good roster");
        survivor.ended_applied(now, MEMBERS[0], LIFE);
        let out = survivor
            .progress()
            .member(MEMBERS[0])
            .map(|out| out.standing);
        assert_eq!(out, Some(Standing::Out));
    }
    let mut walked = false;
    for _ in 0..20 {
        now = Time(now.0 + 25_000);
        all_arrives(&mut served, &mut third, now);
        all_arrives(&mut third, &mut served, now);
        while let Some(event) = served.poll_event() {
            walked |= matches!(event, Event::Laggard { member, .. } if member == MEMBERS[2]);
        }
    }
    assert!(walked, "part of an image stayed where it was");
}

#[test]
fn a_part_of_an_image_is_passed_on() {
    half_an_image_is_passed_on();
}
