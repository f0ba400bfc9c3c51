//! What becomes of queries and reports at one instance.

use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_function::{Reason, Verdict};
use asterism_functions::cache_digests::squid::Header;
use asterism_functions::cache_digests::{
    CONTROL, CacheDigests, CacheDigestsConfig, Head, Known, read_directory, read_mask,
};

use crate::cache_digests::frames::*;

#[test]
fn queries_are_answered_from_a_digest_in_the_caches_name() {
    let mut kit = Testkit::new(function());
    // Nothing is known: the cache itself is to say.
    let outcome = kit.packet(INSIDE, &query(FETCHED.1, 1));
    assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
    assert!(outcome.emitted.is_empty());
    assert_eq!(outcome.packet, query(FETCHED.1, 1));
    let digest = digest(0..1_000, 1_000);
    for frame in fetched_frames(FETCHED.0, &digest, 7) {
        assert_eq!(kit.packet(CONTROL, &frame).verdict, Verdict::Consumed);
    }
    let mut strangers = 0;
    for number in 0..2_000 {
        let outcome = kit.packet(INSIDE, &query(FETCHED.1, number));
        assert_eq!(outcome.verdict, Verdict::Consumed);
        let hit = hit(&outcome.emitted, FETCHED.1, number);
        assert!(hit || number >= 1_000, "{number}: a false negative");
        strangers += u32::from(hit && number >= 1_000);
    }
    // (1 - e^-0.8)^4: 9.2 % at Squid's five bits for each object.
    assert!((60..130).contains(&strangers), "{strangers}");
    // And the digest comes out as it went in.
    assert_eq!(read_mask(&reported(&kit, 1)), Some(digest.clone()));
    let directory = read_directory(&reported(&kit, 0)).unwrap();
    let head = Head {
        header: digest.0,
        fetched: 7,
    };
    assert_eq!(directory[0].0, Known::Fetched(head));
    assert_eq!(
        directory[0].1[..3],
        [
            u64::from(1_000 + strangers),
            u64::from(1_000 - strangers),
            1
        ]
    );
}

#[test]
fn another_digest_takes_the_place_of_the_former_one_also_of_another_size() {
    let mut kit = Testkit::new(function());
    let tell = |kit: &mut Testkit<_>, digest: &(Header, Vec<u8>), fetched| {
        for frame in fetched_frames(FETCHED.0, digest, fetched) {
            kit.packet(CONTROL, &frame);
        }
    };
    for (fetched, capacity) in [(1, 100), (2, 100), (3, 3_000), (4, 100)] {
        let first = fetched * 100;
        let digest = digest(first..first + 100, capacity);
        tell(&mut kit, &digest, fetched);
        assert_eq!(read_mask(&reported(&kit, 1)), Some(digest));
        let mut stale = 0;
        for number in first - 100..first + 100 {
            let outcome = kit.packet(INSIDE, &query(FETCHED.1, number));
            let hit = hit(&outcome.emitted, FETCHED.1, number);
            assert!(hit || number < first);
            stale += u32::from(hit && number < first);
        }
        assert!(stale < 30, "{stale} of the former digest");
    }
}

#[test]
fn a_digest_that_is_not_fetched_again_is_forgotten() {
    let mut kit = Testkit::new(function());
    let digest = digest(0..10, 100);
    for frame in fetched_frames(FETCHED.0, &digest, 7) {
        kit.packet(CONTROL, &frame);
    }
    kit.advance(config().keep_s * 2);
    assert_eq!(read_mask(&reported(&kit, 1)), None);
    let outcome = kit.packet(INSIDE, &query(FETCHED.1, 1));
    assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
}

#[test]
fn reports_are_counted_and_go_on() {
    let mut kit = Testkit::new(function());
    let tell = |kit: &mut Testkit<_>, text: &str| {
        let frame = report(text);
        let outcome = kit.packet(OUTSIDE, &frame);
        assert_eq!(outcome.verdict, Verdict::Forward(INSIDE));
        assert_eq!(outcome.packet, frame);
    };
    for number in 0..500 {
        tell(&mut kit, &line("SWAPOUT", number));
    }
    // Stored once more, as when it is fetched again, and then the old copy goes.
    for number in 0..500 {
        tell(
            &mut kit,
            &(line("SWAPOUT", number) + &line("RELEASE", number)),
        );
    }
    // These were never stored, so that nothing else goes with them, but for those that look as if they were.
    for number in 1_000..1_500 {
        tell(&mut kit, &line("RELEASE", number));
    }
    let known = |kit: &mut Testkit<_>, number| {
        let outcome = kit.packet(INSIDE, &query(REPORTS.1, number));
        hit(&outcome.emitted, REPORTS.1, number)
    };
    let counts = read_directory(&reported(&kit, 0)).unwrap()[1].1;
    let mistaken = counts[5] - 500;
    assert_eq!((counts[4], counts[6]), (1_000, 500 - mistaken));
    assert!(
        mistaken < 15,
        "{mistaken}: 0.24 % of strangers are expected"
    );
    let lost = (0..500).filter(|number| !known(&mut kit, *number)).count() as u64;
    assert!(lost <= 8 * mistaken, "{lost} lost with {mistaken} mistaken");
    let (header, mask) = read_mask(&reported(&kit, 2)).unwrap();
    assert_eq!((header.capacity, mask.len()), (1_000, 1_000));
    assert_eq!(u64::from(header.count), 500 - mistaken);
    // What the caches let go is not there any more.
    for number in 0..500 {
        tell(&mut kit, &line("RELEASE", number));
    }
    assert!((0..500).filter(|number| known(&mut kit, *number)).count() <= 8 * mistaken as usize);
}

/// What is stored and let go in one datagram, and what is let go twice in one.
#[test]
fn lines_of_one_report_are_judged_in_their_order() {
    let mut kit = Testkit::new(function());
    let tell = |kit: &mut Testkit<_>, lines: &[(&str, u32)]| {
        let text: String = lines.iter().map(|(what, of)| line(what, *of)).collect();
        kit.packet(OUTSIDE, &report(&text));
    };
    let known = |kit: &mut Testkit<_>, number| {
        let outcome = kit.packet(INSIDE, &query(REPORTS.1, number));
        hit(&outcome.emitted, REPORTS.1, number)
    };
    tell(&mut kit, &[("SWAPOUT", 1), ("RELEASE", 1)]);
    assert!(!known(&mut kit, 1), "it is gone");
    tell(&mut kit, &[("RELEASE", 2), ("SWAPOUT", 2)]);
    assert!(known(&mut kit, 2), "it came after nothing went");
    // One of each is enough to take it away, and no more goes with it.
    tell(&mut kit, &[("RELEASE", 2), ("RELEASE", 2), ("RELEASE", 2)]);
    assert!(!known(&mut kit, 2));
    tell(&mut kit, &[("SWAPOUT", 2)]);
    assert!(known(&mut kit, 2), "no place is below zero");
    let counts = read_directory(&reported(&kit, 0)).unwrap()[1].1;
    assert_eq!((counts[4], counts[5], counts[6]), (3, 2, 3));
    let (header, mask) = read_mask(&reported(&kit, 2)).unwrap();
    let bits: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    assert!(header.count == 1 && bits <= 4);
}

#[test]
fn reports_of_strangers_and_other_packets_only_pass() {
    let mut kit = Testkit::new(function());
    let text = line("SWAPOUT", 1);
    let frames = [
        datagram((ASKER, 1), COLLECTOR, text.as_bytes()),
        datagram((REPORTS.1, 1), (COLLECTOR.0, 5_141), text.as_bytes()),
        datagram((FETCHED.1, 1), COLLECTOR, text.as_bytes()),
        datagram((ASKER, 3_130), (FETCHED.1, 3_131), text.as_bytes()),
        datagram((ASKER, 3_130), (ASKER, 3_130), text.as_bytes()),
    ];
    for frame in frames {
        let outcome = kit.packet(INSIDE, &frame);
        assert_eq!(outcome.verdict, Verdict::Forward(OUTSIDE));
        assert_eq!(outcome.packet, frame);
    }
    let directory = read_directory(&reported(&kit, 0)).unwrap();
    assert!(directory.iter().all(|(_, counts)| *counts == [0; 8]));
    // Only the control side's port is believed: from others this is a frame like others.
    let digest = digest(0..10, 100);
    for frame in fetched_frames(FETCHED.0, &digest, 7) {
        assert_eq!(
            kit.packet(INSIDE, &frame).verdict,
            Verdict::Forward(OUTSIDE)
        );
    }
    assert_eq!(read_mask(&reported(&kit, 1)), None);
}

#[test]
fn tags_of_vlans_come_back() {
    let mut kit = Testkit::new(function());
    kit.packet(OUTSIDE, &report(&line("SWAPOUT", 3)));
    let mut tagged = query(REPORTS.1, 3);
    tagged.splice(12..12, [0x81, 0, 0, 42]);
    let outcome = kit.packet(INSIDE, &tagged);
    assert!(hit(&outcome.emitted, REPORTS.1, 3));
    let (_, frame) = &outcome.emitted[0];
    assert_eq!(frame[..6], tagged[6..12]);
    assert_eq!(frame[6..12], tagged[..6]);
    assert_eq!(frame[12..18], [0x81, 0, 0, 42, 8, 0]);
}

#[test]
fn a_full_table_takes_no_part_of_a_frame() {
    let function = CacheDigests::new(CacheDigestsConfig {
        blocks_max: 6,
        ..config()
    });
    let mut kit = Testkit::new(function);
    let digest = digest(0..1_000, 2_000);
    let verdicts = fetched_frames(FETCHED.0, &digest, 7).into_iter();
    let mut verdicts = verdicts.map(|frame| kit.packet(CONTROL, &frame).verdict);
    assert_eq!(verdicts.next(), Some(Verdict::Consumed));
    assert_eq!(verdicts.next(), Some(Verdict::Drop(Reason::TableFull)));
    assert_eq!(verdicts.last(), Some(Verdict::Consumed), "the head");
    assert_eq!(read_mask(&reported(&kit, 1)), None, "it is not whole");
    // Where a bit is that is not there, nothing is said; a bit that is there and not set is a miss all the same.
    let mut said = [0; 2];
    for number in 0..500 {
        let outcome = kit.packet(INSIDE, &query(FETCHED.1, number));
        match outcome.verdict {
            Verdict::Forward(_) => said[0] += 1,
            _ => {
                said[1] += 1;
                assert!(hit(&outcome.emitted, FETCHED.1, number), "a false negative");
            }
        }
    }
    assert!(said[0] > 400 && said[1] > 0, "{said:?}");
}

#[test]
fn late_reads_change_nothing() {
    let digest = digest(0..50, 100);
    let mut packets: Vec<_> = fetched_frames(FETCHED.0, &digest, 7)
        .into_iter()
        .map(|frame| (0, CONTROL, frame))
        .collect();
    for number in 0..60 {
        packets.push((0, INSIDE, query(FETCHED.1, number)));
        packets.push((0, OUTSIDE, report(&line("SWAPOUT", number))));
        packets.push((0, INSIDE, query(REPORTS.1, number)));
        packets.push((0, OUTSIDE, report(&line("RELEASE", number / 2))));
    }
    late_everywhere(function, &packets);
}
