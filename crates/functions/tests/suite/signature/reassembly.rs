//! TCP reassembly: every split of a signature, down to single bytes, in every order over several instances, and attempts to evade it.

use asterism_function::objects::{ObjectSettings, hash};
use asterism_function::testkit::{Testkit, late_everywhere, measured};
use asterism_function::{PortNumber, Reason, TcpFlags, Verdict};
use asterism_functions::signature::{RUNS_MAX, Response, SignatureConfig, Signatures, Subject};

use crate::signature::cluster::{Cluster, PASSES};
use crate::signature::packets::{End, flagged, list, made, tcp, tcp6, udp};
use crate::signature::splits::{SERVER, cuts, orders, subject};

const IN: PortNumber = PortNumber(0);
const CLIENT: End = (1, 1_025);
/// No two bytes alike, so that no part of it is another part.
const WANTED: &[u8] = b"EVIL-stuf7+X";
const FOUND: Verdict = Verdict::Drop(Reason::SignatureFound);
const BLOCKED: Verdict = Verdict::Drop(Reason::ConnectionBlocked);

/// Others that share its begin, its end, and what is in it.
fn config() -> SignatureConfig {
    SignatureConfig {
        reassembly: true,
        pieces_max: 1 << 14,
        alerts_max: 1 << 14,
        streams_max: 1 << 14,
        ..SignatureConfig::new(list(&[
            WANTED,
            b"EVIL-staff+X",
            b"evil-stuf7+X",
            b"L-stuf",
            b"tuf7-tuf7",
        ]))
    }
}

/// One alone, whose connection is blocked.
fn blocking() -> SignatureConfig {
    SignatureConfig {
        response: Response::BlockConnection { block_s: 60 },
        signatures: list(&[WANTED]),
        ..config()
    }
}

fn kit(config: &SignatureConfig) -> Testkit<Signatures> {
    Testkit::new(made(config))
}

fn count(kit: &Testkit<Signatures>, name: &str) -> u64 {
    measured(kit.function(), kit.state(), name)
}

fn ids(kit: &Testkit<Signatures>) -> Vec<u32> {
    let alerts = kit.state().alerts();
    alerts.iter().map(|(subject, _)| subject.id).collect()
}

fn send(kit: &mut Testkit<Signatures>, sequence: u32, payload: &[u8]) -> Verdict {
    kit.packet(IN, &tcp(CLIENT, SERVER, sequence, payload))
        .verdict
}

fn send_syn(kit: &mut Testkit<Signatures>, sequence: u32) {
    let syn = flagged(CLIENT, SERVER, sequence, TcpFlags::SYN, b"");
    assert_eq!(kit.packet(IN, &syn).verdict, PASSES);
}

/// Three segments through three instances in all six orders, cut anywhere, in the midst of the sequence numbers and where they begin
/// again. The last one alone is dropped, and what it completes is in no other.
#[test]
fn every_split_in_every_order_is_found_by_the_last_and_by_no_other() {
    let mut cluster = Cluster::new(&blocking(), 3);
    let (mut cases, mut expected) = (0, Vec::new());
    for first in [5_000, u32::MAX - 10] {
        for cut in cuts(WANTED, first) {
            for order in orders(cut.len()) {
                let client = (100 + first as u16 % 7, 1_024 + cases);
                cases += 1;
                for (place, &part) in order.iter().enumerate() {
                    let (sequence, payload) = &cut[part];
                    let segment = tcp(client, SERVER, *sequence, payload);
                    let verdict = cluster.packet(place, &segment);
                    cluster.exchange();
                    let is_last = place + 1 == cut.len();
                    let wanted = if is_last { FOUND } else { PASSES };
                    assert_eq!(verdict, wanted, "{cut:?} {order:?}");
                }
                let (sequence, payload) = &cut[0];
                let again = tcp(client, SERVER, *sequence, payload);
                assert_eq!(cluster.packet(cases as usize % 3, &again), BLOCKED);
                expected.push(subject(client, 1));
            }
        }
    }
    assert!(cases > 700);
    expected.sort();
    assert_eq!(cluster.agreed(), expected);
}

/// The same where signatures are only reported: then both are, of every case, and nothing else.
#[test]
pub(crate) fn every_split_in_every_order_is_reported_exactly() {
    let mut cluster = Cluster::new(&config(), 3);
    let (mut cases, mut expected) = (0, Vec::new());
    for first in [16_384 - 9, u32::MAX - 10] {
        for cut in cuts(WANTED, first) {
            for order in orders(cut.len()) {
                let client = (200, 1_024 + cases);
                cases += 1;
                for (place, &part) in order.iter().enumerate() {
                    let (sequence, payload) = &cut[part];
                    let segment = tcp(client, SERVER, *sequence, payload);
                    assert_eq!(cluster.packet(place, &segment), PASSES);
                    cluster.exchange();
                }
                expected.extend([subject(client, 1), subject(client, 4)]);
            }
        }
    }
    expected.sort();
    assert_eq!(cluster.agreed(), expected);
    assert_eq!(cluster.unreported(2), []);
}

/// Single bytes in any order that leaves no more gaps than are kept, each at any instance; and a text that differs in one byte.
#[test]
pub(crate) fn bytes_one_by_one_are_found_and_others_are_not() {
    let mut cluster = Cluster::new(&config(), 3);
    let mut expected: Vec<Subject> = Vec::new();
    for case in 0..120u16 {
        let number = |place: u64, below: u64| hash::words(case.into(), place, 29) % below;
        let mut text = [b"..", WANTED, b".."].concat();
        let is_wanted = case % 3 > 0;
        if !is_wanted {
            text[2 + case as usize % 12] ^= 0x80;
        }
        let client = (1, 2_000 + case);
        let mut left: Vec<usize> = (0..text.len()).collect();
        let mut sent = Vec::new();
        while !left.is_empty() {
            // Within three bytes of the next one.
            let place = number(sent.len() as u64, left.len().min(3) as u64);
            let at = left.remove(place as usize);
            sent.push(at);
            let instance = number(100 + at as u64, 3) as usize;
            let begin = (u32::MAX - 7).wrapping_add(at as u32);
            let segment = tcp(client, SERVER, begin, &text[at..=at]);
            assert_eq!(cluster.packet(instance, &segment), PASSES);
            cluster.exchange();
        }
        if is_wanted {
            expected.extend([subject(client, 1), subject(client, 4)]);
        }
    }
    let found: Vec<Subject> = cluster
        .agreed()
        .into_iter()
        .filter(|one| one.id == 1)
        .collect();
    expected.retain(|one| one.id == 1);
    assert_eq!(found, expected);
}

/// What instances see within the lag of each other is found by what follows, as without reassembly, and nothing wrong is.
#[test]
fn within_the_lag_it_is_no_worse_than_pieces() {
    let mut cluster = Cluster::new(&config(), 3);
    let parts = [(0, &b"....EVIL-"[..]), (9, b"stuf"), (13, b"7+X....")];
    let mut expected = Vec::new();
    for (case, order) in orders(3).into_iter().enumerate() {
        let client = (1, 3_000 + case as u16);
        for (place, part) in order.into_iter().enumerate() {
            let (at, payload) = parts[part];
            cluster.packet(place, &tcp(client, SERVER, 9_000 + at, payload));
        }
        expected.push(subject(client, 1));
    }
    cluster.exchange();
    for client in expected.iter().map(|one| one.stream.source.1) {
        let next = tcp((1, client), SERVER, 9_020, b"nothing of note");
        assert_eq!(cluster.packet(1, &next), PASSES);
    }
    let mut found = cluster.agreed();
    found.retain(|one| one.id == 1);
    assert_eq!(found, expected);
}

#[test]
fn the_rest_waits_for_what_comes_before_it_and_not_behind_what_is_known() {
    let config = SignatureConfig {
        wait_us: 5_000,
        ..blocking()
    };
    let mut cluster = Cluster::new(&config, 3);
    assert_eq!(
        cluster.packet(0, &tcp(CLIENT, SERVER, 1_000, b"....EVIL-stuf7")),
        PASSES
    );
    let rest = tcp(CLIENT, SERVER, 1_014, b"+");
    let verdict = cluster.packet_that_waits(1, &rest, |cluster| {
        cluster.exchange();
    });
    assert_eq!(verdict, PASSES, "it is no signature yet");
    cluster.exchange();
    let last = tcp(CLIENT, SERVER, 1_015, b"X");
    assert_eq!(cluster.packet(2, &last), FOUND);
    // Known to follow what is none: it waits for nothing.
    let mut kit = kit(&config);
    send(&mut kit, 1_000, b"harmless");
    let outcome = kit.packet(IN, &tcp(CLIENT, SERVER, 1_008, b"uf7+X...."));
    assert_eq!((outcome.verdict, outcome.calls), (PASSES, 1));
}

/// What was sent before counts once, however it is cut when it is sent again.
#[test]
pub(crate) fn segments_that_overlap_count_once() {
    let mut cluster = Cluster::new(&config(), 3);
    for (instance, at, payload) in [
        (0, 0, &b"????EV"[..]),
        (1, 4, b"E"),
        (2, 2, b"??EVI"),
        (0, 12, b"f7+"),
        (1, 13, b"7+"),
        (2, 8, b"-stu"),
        (0, 7, b"L-s"),
        (1, 0, b"????EVIL-"),
        (2, 14, b"+X!"),
    ] {
        cluster.packet(instance, &tcp(CLIENT, SERVER, 1_000 + at, payload));
        cluster.exchange();
    }
    let found = cluster.agreed();
    assert_eq!(found, [subject(CLIENT, 1), subject(CLIENT, 4)]);
    // Parts smaller than pieces, and one that overlaps.
    let mut kit = kit(&blocking());
    for (at, byte) in WANTED[..8].iter().enumerate() {
        assert_eq!(send(&mut kit, 1_000 + at as u32, &[*byte]), PASSES);
    }
    for (at, payload) in [(7, &b"uf"[..]), (9, b"7"), (10, b"+")] {
        assert_eq!(send(&mut kit, 1_000 + at, payload), PASSES);
    }
    assert_eq!(send(&mut kit, 1_011, b"X"), FOUND);
    // Twice the same bytes are not two of them.
    let mut kit = self::kit(&SignatureConfig {
        reassembly: true,
        ..SignatureConfig::new(list(&[b"abab"]))
    });
    for (sequence, payload) in [
        (1, &b".a"[..]),
        (2, b"ab"),
        (2, b"ab"),
        (4, b"."),
        (2, b"ab."),
    ] {
        send(&mut kit, sequence, payload);
    }
    assert_eq!(ids(&kit), []);
    // A byte is missing between them.
    send(&mut kit, 101, b".ab");
    send(&mut kit, 105, b"ab.");
    assert_eq!(ids(&kit), []);
}

/// Another copy with other bytes hides nothing: each is searched with its own neighbours, as far as pieces are recorded.
#[test]
fn a_copy_that_differs_hides_nothing() {
    for swap in [false, true] {
        let mut kit = kit(&blocking());
        assert_eq!(send(&mut kit, 1_000, b"....EVIL-"), PASSES);
        let mut copies = [&b"xxxxxxx"[..], b"stuf7+X"];
        if swap {
            copies.reverse();
        }
        let verdicts = copies.map(|copy| send(&mut kit, 1_009, copy));
        assert_eq!(ids(&kit), [1], "{swap}");
        assert!(verdicts.contains(&FOUND));
    }
}

#[test]
pub(crate) fn a_syn_begins_a_stream_again_and_an_ignored_one_hides_nothing() {
    // One byte each, so that no piece is recorded.
    let bytes = |kit: &mut Testkit<Signatures>, from: usize, to: usize| {
        for (at, byte) in WANTED.iter().enumerate().take(to).skip(from) {
            send(kit, 1_000 + at as u32, &[*byte]);
        }
    };
    let mut kit = kit(&config());
    send_syn(&mut kit, 999);
    bytes(&mut kit, 0, 9);
    send_syn(&mut kit, 1_003);
    bytes(&mut kit, 9, 12);
    assert_eq!(ids(&kit), [1, 4], "the second was ignored");
    // A second connection between the same ports, whose numbers begin among those of the first.
    let mut kit = self::kit(&config());
    send_syn(&mut kit, 899);
    send(&mut kit, 900, &[b'.'; 500]);
    send_syn(&mut kit, 999);
    send_syn(&mut kit, 999);
    bytes(&mut kit, 0, 12);
    assert_eq!(ids(&kit), [1, 4]);
    // A SYN alone is not recorded: a flood of them takes no room.
    for port in 0..2_000 {
        let syn = flagged((9, port), SERVER, 1, TcpFlags::SYN, b"");
        kit.packet(IN, &syn);
    }
    assert_eq!(kit.state().streams.len_now(), 1);
    // With payload it counts one.
    let mut kit = self::kit(&config());
    let syn = flagged(CLIENT, SERVER, 99, TcpFlags::SYN, b"EVIL-stuf7+");
    kit.packet(IN, &syn);
    send(&mut kit, 111, b"X");
    assert_eq!(ids(&kit), [1, 4]);
}

#[test]
pub(crate) fn gaps_beyond_the_bound_are_given_up_and_counted_or_refused() {
    for strict in [false, true] {
        let mut kit = kit(&SignatureConfig {
            strict,
            ..blocking()
        });
        let mut dropped = 0;
        for number in 0..RUNS_MAX as u32 + 3 {
            let verdict = send(&mut kit, 1_000 + 100 * number, b"..EVIL-stuf7");
            dropped += usize::from(verdict == Verdict::Drop(Reason::NotReassembled));
        }
        let gaps = count(&kit, "gaps_given_up_total");
        assert_eq!((dropped, gaps), if strict { (3, 0) } else { (0, 3) });
        let out_of_order = count(&kit, "out_of_order_segments_total");
        let recorded = RUNS_MAX + if strict { 0 } else { 3 };
        assert_eq!(out_of_order, recorded as u64 - 1);
        assert_eq!(kit.state().streams.len_now(), 1, "one entry for all");
        // Once the gaps are filled there is room again: what was refused is sent again.
        for number in 0..RUNS_MAX as u32 {
            assert_eq!(send(&mut kit, 1_012 + 100 * number, &[b'.'; 88]), PASSES);
        }
        let at = 1_000 + 100 * (RUNS_MAX as u32 - 1);
        for number in 1..4 {
            let verdict = send(&mut kit, at + 100 * number, b"..EVIL-stuf7");
            assert_eq!(verdict, PASSES);
        }
        assert_eq!(send(&mut kit, at + 112, b"+"), PASSES);
        assert_eq!(send(&mut kit, at + 113, b"X"), FOUND, "{strict}");
    }
}

/// Of gaps that are never filled the oldest are given up, and new data is reassembled all the same.
#[test]
fn gaps_that_stay_cost_nothing_new() {
    let mut kit = kit(&blocking());
    for number in 0..20 {
        send(&mut kit, 1_000 + 100 * number, b"........");
    }
    assert_eq!(count(&kit, "gaps_given_up_total"), 12);
    for (at, payload) in [(7, &b"s"[..]), (2, b"EVIL-"), (9, b"uf7+"), (13, b"X")] {
        assert_eq!(send(&mut kit, 4_000 + at, payload), PASSES);
    }
    assert_eq!(send(&mut kit, 4_008, b"t"), FOUND);
}

/// Runs that lie far apart in the sequence numbers: the farthest one is left out, and no gap of megabytes is taken for known.
#[test]
fn runs_far_apart_are_not_taken_for_one() {
    let mut kit = kit(&config());
    for number in 0..20u32 {
        send(&mut kit, number.wrapping_mul(0x1357_9BDF), b"....");
    }
    let mut runs = Vec::new();
    kit.state()
        .streams
        .for_each(|_, known| runs.extend_from_slice(known.all()));
    assert_eq!(runs.len(), RUNS_MAX);
    assert!(runs.iter().all(|run| run.length == 4), "{runs:?}");
    assert_eq!(count(&kit, "gaps_given_up_total"), 12);
}

/// The segment that completes a signature is dropped whenever it comes: also when the block has ended, or found no room.
#[test]
pub(crate) fn what_was_dropped_is_not_known() {
    let config = |alerts_max| SignatureConfig {
        response: Response::BlockConnection { block_s: 1 },
        alerts_max,
        ..blocking()
    };
    let begin = |kit: &mut Testkit<Signatures>| {
        for (at, byte) in WANTED[..11].iter().enumerate() {
            assert_eq!(send(kit, 1_000 + at as u32, &[*byte]), PASSES);
        }
    };
    let mut kit = kit(&config(8));
    begin(&mut kit);
    for _ in 0..3 {
        assert_eq!(send(&mut kit, 1_011, b"X"), FOUND);
        assert_eq!(send(&mut kit, 1_011, b"X"), BLOCKED);
        kit.advance(3);
    }
    let mut kit = self::kit(&config(1));
    kit.packet(IN, &tcp((9, 9), SERVER, 1, WANTED));
    begin(&mut kit);
    for _ in 0..3 {
        assert_eq!(send(&mut kit, 1_011, b"X"), FOUND);
    }
    assert!(count(&kit, "unrecorded_total") >= 3);
}

#[test]
fn streams_beyond_the_table_pass_counted_or_are_refused() {
    for strict in [false, true] {
        let mut kit = kit(&SignatureConfig {
            strict,
            streams_max: 100,
            ..blocking()
        });
        let mut dropped = 0;
        for port in 0..150 {
            let verdict = kit.packet(IN, &tcp((9, port), SERVER, 1, b"harmless"));
            dropped += u32::from(verdict.verdict == Verdict::Drop(Reason::NotReassembled));
        }
        assert_eq!(kit.state().streams.len_now(), 100);
        let unrecorded = count(&kit, "unrecorded_total");
        assert_eq!(
            (dropped, unrecorded),
            if strict { (50, 0) } else { (0, 50) }
        );
        // A signature is found all the same.
        let whole = tcp((10, 1), SERVER, 1, WANTED);
        assert_eq!(kit.packet(IN, &whole).verdict, FOUND);
        for _ in 0..3 {
            kit.advance(100);
        }
        assert_eq!(kit.state().streams.len_now(), 0, "streams idle out");
    }
}

#[test]
fn what_needs_no_stream_has_none() {
    let mut kit = kit(&config());
    for port in 0..50 {
        kit.packet(IN, &tcp((3, port), SERVER, 1, b""));
        kit.packet(IN, &udp((3, port), SERVER, b"harmless"));
    }
    assert_eq!(kit.state().streams.len_now(), 0, "no data");
    let mut kit = self::kit(&SignatureConfig {
        reassembly: false,
        ..config()
    });
    send(&mut kit, 1, b"harmless");
    assert_eq!(kit.state().streams.len_now(), 0, "no reassembly");
    // What is sent again changes nothing, so writes nothing.
    let mut kit = Testkit::with_settings(made(&config()), |_| ObjectSettings::REPLICATED);
    let written = |kit: &Testkit<Signatures>| {
        let mut groups = 0;
        kit.context().take_groups(|_, _| groups += 1);
        groups
    };
    send(&mut kit, 1, b"harmless");
    assert_eq!(written(&kit), 1);
    send(&mut kit, 1, b"harmless");
    send(&mut kit, 3, b"rmle");
    assert_eq!(written(&kit), 0);
    // Nothing may be missing: what pieces alone would take for the signature is none.
    send(&mut kit, 500, b"VIL-stuf7+X....");
    send(&mut kit, 499, b"e");
    assert_eq!(ids(&kit), [4]);
}

#[test]
fn ipv6_and_the_way_back_are_streams_of_their_own() {
    let mut kit = kit(&config());
    for (at, byte) in WANTED.iter().enumerate() {
        kit.packet(IN, &tcp6(CLIENT, SERVER, at as u32, &[*byte]));
        // The same numbers and bytes, each in the other direction.
        let (from, to) = if at % 2 == 0 {
            (CLIENT, SERVER)
        } else {
            (SERVER, CLIENT)
        };
        kit.packet(IN, &tcp(from, to, at as u32, &[*byte]));
    }
    let alerts = kit.state().alerts();
    assert_eq!(alerts.len(), 2, "of IPv6 alone");
    assert!(alerts.iter().all(|(one, _)| one.stream.source.0 != crate::signature::packets::host(CLIENT.0).into()));
}

/// Pieces, alerts, a block and the stream of one packet fit a group; further signatures are counted.
#[test]
fn a_packet_reports_two_signatures_less() {
    let texts: Vec<Vec<u8>> = (b'a'..=b'l').map(|letter| vec![letter; 4]).collect();
    let all: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    let mut kit = kit(&SignatureConfig {
        reassembly: true,
        ..SignatureConfig::new(list(&all))
    });
    kit.packet(IN, &tcp6(CLIENT, SERVER, 16_383, &texts.concat()));
    assert_eq!(kit.state().alerts().len(), 5);
    assert_eq!(count(&kit, "unrecorded_total"), 1);
}

#[test]
fn late_reads_change_nothing_in_reassembled_streams() {
    let mut steps = Vec::new();
    for (sequence, payload) in [
        (1_000, &b"....EVIL-s"[..]),
        (1_012, b"f7"),
        (1_010, b"t"),
        (1_011, b"u"),
        (16_380, b"EVIL-"),
        (16_385, b"stuf7+X"),
        (1_014, b"+X..evil-stuf7"),
        (1_100, b"nothing of note"),
    ] {
        steps.push((1, IN, tcp(CLIENT, SERVER, sequence, payload)));
    }
    for config in [config(), blocking()] {
        late_everywhere(|| made(&config), &steps);
    }
}

/// Whether hosts put streams together is part of what they must have alike.
#[test]
fn hosts_must_agree_on_it() {
    use asterism_function::NetworkFunction;
    let with = made(&config()).schema();
    let without = made(&SignatureConfig {
        reassembly: false,
        ..config()
    });
    assert_ne!(with, without.schema());
}
