//! Three instances: what one learns, all answer.

use asterism_function::Observable;
use asterism_function::testkit::ClusterKit;
use asterism_functions::cache_digests::{CONTROL, CacheDigests, read_mask};

use crate::cache_digests::frames::*;

fn three() -> ClusterKit<CacheDigests> {
    let mut three = ClusterKit::new(function(), 3, 7);
    three.advance_us(50_000);
    three
}

fn knows(
    three: &mut ClusterKit<CacheDigests>,
    member: usize,
    cache: core::net::Ipv4Addr,
    number: u32,
) -> bool {
    let outcome = three.packet(member, INSIDE, &query(cache, number));
    hit(&outcome.emitted, cache, number)
}

#[test]
fn any_instance_answers_for_a_digest_that_another_fetched_also_when_that_died() {
    let mut three = three();
    let digest = digest(0..1_000, 1_000);
    for frame in fetched_frames(FETCHED.0, &digest, 7) {
        three.packet(0, CONTROL, &frame);
    }
    three.exchange();
    three.kill(0);
    for member in 1..3 {
        for number in 0..1_000 {
            assert!(
                knows(&mut three, member, FETCHED.1, number),
                "a false negative"
            );
        }
        let (mut bytes, mut cursor) = (Vec::new(), Some(0));
        while let Some(from) = cursor {
            let state = three.state(member);
            cursor = three.function().report(state, 1, (from, 128), &mut bytes);
        }
        assert_eq!(read_mask(&bytes), Some(digest.clone()));
    }
    three.agree();
}

#[test]
fn reports_that_reach_several_instances_are_one_filter() {
    let mut three = three();
    for number in 0..600 {
        three.packet(
            number as usize % 3,
            OUTSIDE,
            &report(&line("SWAPOUT", number)),
        );
    }
    three.exchange();
    // What one saw stored, another sees go.
    for number in 0..300 {
        three.packet(
            (number as usize + 1) % 3,
            OUTSIDE,
            &report(&line("RELEASE", number)),
        );
    }
    three.exchange();
    for member in 0..3 {
        let gone = (0..300).filter(|number| !knows(&mut three, member, REPORTS.1, *number));
        assert!(gone.count() > 290);
        assert!((300..600).all(|number| knows(&mut three, member, REPORTS.1, number)));
    }
    three.agree();
}

#[test]
fn two_that_fetched_at_once_agree_on_one() {
    let mut three = three();
    let (older, newer) = (digest(0..100, 200), digest(50..150, 200));
    for (frame, other) in fetched_frames(FETCHED.0, &older, 7)
        .iter()
        .zip(fetched_frames(FETCHED.0, &newer, 8))
    {
        three.packet(0, CONTROL, frame);
        three.packet(1, CONTROL, &other);
    }
    three.exchange();
    three.agree();
    for member in 0..3 {
        // What is in both is found, whichever blocks are of which.
        assert!((50..100).all(|number| knows(&mut three, member, FETCHED.1, number)));
    }
}
