//! Every split of a signature in two and three segments, dealt to three instances in every way and order.

use asterism_function::{Reason, TcpFlags, Verdict};
use asterism_functions::signature::{Response, SignatureConfig, Stream, Subject};

use crate::signature::cluster::{Cluster, PASSES};
use crate::signature::packets::{End, flagged, host, list, tcp, tcp6};

/// No two bytes alike, so that no part of it is another part.
const WANTED: &[u8] = b"EVIL-stuf7+X";
pub(crate) const SERVER: End = (2, 80);

/// Others that share its begin, its end, and what is in it.
fn config(min_piece: u8) -> SignatureConfig {
    SignatureConfig {
        min_piece,
        pieces_max: 1 << 15,
        alerts_max: 1 << 15,
        ..SignatureConfig::new(list(&[
            WANTED,
            b"EVIL-staff+X",
            b"evil-stuf7+X",
            b"L-stuf",
            b"tuf7-tuf7",
        ]))
    }
}

pub(crate) fn subject(client: End, id: u32) -> Subject {
    let stream = Stream {
        source: (host(client.0).into(), client.1),
        destination: (host(SERVER.0).into(), SERVER.1),
        is_tcp: true,
    };
    Subject { stream, id }
}

/// A text cut in two or three, with other bytes before and after, as payloads with their sequence numbers.
pub(crate) fn cuts(text: &[u8], first: u32) -> Vec<Vec<(u32, Vec<u8>)>> {
    let mut all = Vec::new();
    for one in 1..text.len() {
        for two in one..text.len() {
            let mut parts = vec![
                text[..one].to_vec(),
                text[one..two].to_vec(),
                text[two..].to_vec(),
            ];
            parts.retain(|part| !part.is_empty());
            let last = parts.len() - 1;
            parts[0].splice(0..0, *b"?????");
            parts[last].extend_from_slice(b"!!!!!");
            let mut sequence = first;
            let numbered = parts.into_iter().map(|part| {
                let begin = sequence;
                sequence = sequence.wrapping_add(part.len() as u32);
                (begin, part)
            });
            all.push(numbered.collect());
        }
    }
    all
}

/// Every order of so many things.
pub(crate) fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        2 => vec![vec![0, 1], vec![1, 0]],
        _ => [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ]
        .map(Vec::from)
        .to_vec(),
    }
}

/// Deals every cut in every order to the instances in every way; calls `each` with the client of each case, whether it is to
/// be found, the segments in their order and the instance of each.
fn every_case(
    text: &[u8],
    min_piece: usize,
    first: u32,
    mut each: impl FnMut(End, bool, &[Vec<u8>], &[usize]),
) -> u32 {
    let mut cases = 0u32;
    for cut in cuts(text, first) {
        // A part in the middle must not be too small, unless it lies with the one beside it within what an edge may lack.
        let (filler, last) = (5, cut.len() - 1);
        let (begin, middle, end) = (
            cut[0].1.len() - filler,
            cut[1].1.len(),
            cut[last].1.len() - filler,
        );
        let is_lacking = |edge: usize| edge + middle < min_piece;
        let findable =
            cut.len() == 2 || middle >= min_piece || is_lacking(begin) || is_lacking(end);
        for order in orders(cut.len()) {
            // Every way but for the names of the instances.
            let deals = [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 1, 2]];
            for deal in &deals[..if cut.len() == 2 { 2 } else { 5 }] {
                let client = (
                    100 + (cases / 10_000) as u16,
                    1_024 + (cases % 10_000) as u16,
                );
                cases += 1;
                let segment = |&place: &usize| {
                    let (sequence, payload) = &cut[place];
                    tcp(client, SERVER, *sequence, payload)
                };
                let segments: Vec<_> = order.iter().map(segment).collect();
                each(client, findable, &segments, &deal[..cut.len()]);
            }
        }
    }
    cases
}

#[test]
fn every_split_in_every_order_over_every_instance_is_found_exactly() {
    // In the middle of a block, over the border of two, and where sequence numbers begin again.
    for (min_piece, first) in [(1, 5_000), (2, 16_384 - 9), (2, u32::MAX - 10), (3, 77_777)] {
        let mut cluster = Cluster::new(&config(min_piece as u8), 3);
        let mut expected = Vec::new();
        let cases = every_case(
            WANTED,
            min_piece,
            first,
            |client, findable, segments, deal| {
                for (segment, &instance) in segments.iter().zip(deal) {
                    assert_eq!(cluster.packet(instance, segment), PASSES);
                    cluster.exchange();
                }
                if findable {
                    expected.push(subject(client, 1));
                    expected.push(subject(client, 4));
                }
            },
        );
        assert!(cases > 1_600);
        let found = cluster.agreed();
        // `L-stuf` has fewer bytes than may lack an edge, so its own splits decide; here only the whole one counts.
        let whole = |list: &[Subject]| -> Vec<Subject> {
            let ones = list.iter().filter(|subject| subject.id == 1);
            ones.copied().collect()
        };
        expected.sort();
        assert_eq!(whole(&found), whole(&expected), "min_piece {min_piece}");
        let wrong = found.iter().find(|subject| ![1, 4].contains(&subject.id));
        assert_eq!(wrong, None, "nothing else is found");
        let unreported = cluster.unreported(0);
        assert_eq!(unreported, []);
    }
}

#[test]
fn a_byte_that_differs_is_found_by_nobody() {
    let mut text = WANTED.to_vec();
    text[5] = b'$';
    let mut cluster = Cluster::new(&config(1), 3);
    every_case(&text, 1, 9_000, |_, _, segments, deal| {
        for (segment, &instance) in segments.iter().zip(deal) {
            cluster.packet(instance, segment);
            cluster.exchange();
        }
    });
    assert_eq!(cluster.agreed(), []);
    assert_eq!(cluster.unreported(1), []);
}

#[test]
fn within_the_lag_no_packet_sees_it_and_the_next_one_and_the_walk_do() {
    // In the midst of 16 KiB, where any later segment of them does; and around their border, where what follows does.
    next_ones_see_it(9_000, 9_100);
    for first in [(1 << 14) - 1, (1 << 14) - 8, 0_u32.wrapping_sub(5)] {
        next_ones_see_it(first, first.wrapping_add(5 + WANTED.len() as u32 + 5));
    }
}

/// Streams of which every instance sees a part within the lag, from `first` on, and then what follows at `next`.
fn next_ones_see_it(first: u32, next: u32) {
    let mut cluster = Cluster::new(&config(2), 3);
    let mut clients = Vec::new();
    every_case(WANTED, 2, first, |client, findable, segments, deal| {
        let apart = deal.iter().any(|instance| *instance != deal[0]);
        for (segment, &instance) in segments.iter().zip(deal) {
            cluster.packet(instance, segment);
        }
        if findable && apart {
            clients.push(client);
        }
    });
    cluster.exchange();
    let reported: Vec<_> = cluster.unreported(0);
    assert_eq!(
        reported,
        cluster.unreported(2),
        "all that live tell the same"
    );
    let before = cluster.found(0);
    for client in &clients {
        let wanted = subject(*client, 1);
        assert!(reported.contains(&wanted) || before.contains(&wanted));
    }
    assert!(reported.len() > clients.len() / 2);
    for (place, client) in clients.iter().enumerate() {
        let next = tcp(*client, SERVER, next, b"nothing of note, just more of it");
        assert_eq!(cluster.packet(place % 3, &next), PASSES);
    }
    let found = cluster.agreed();
    for client in clients {
        assert!(found.contains(&subject(client, 1)));
    }
}

#[test]
fn what_was_reported_outlives_its_teller_and_what_was_not_is_lost() {
    for reported in [true, false] {
        let mut cluster = Cluster::new(&config(2), 3);
        let client = (1, 1_025);
        cluster.packet(0, &tcp(client, SERVER, 1_000, b"?????EVIL-"));
        if reported {
            cluster.exchange();
        }
        cluster.kill(0);
        cluster.packet(1, &tcp(client, SERVER, 1_014, b"7+X!!!!!"));
        cluster.exchange();
        cluster.packet(2, &tcp(client, SERVER, 1_010, b"stuf"));
        let expected: &[u32] = if reported { &[1, 4] } else { &[] };
        let found: Vec<u32> = cluster.agreed().iter().map(|one| one.id).collect();
        assert_eq!(found, expected);
        if !reported {
            // Anyone who lost the segment sends it again.
            cluster.packet(2, &tcp(client, SERVER, 1_000, b"?????EVIL-"));
            assert_eq!(cluster.agreed(), [subject(client, 1), subject(client, 4)]);
        }
    }
}

#[test]
fn segments_that_are_sent_again_cut_otherwise_count_once() {
    let mut cluster = Cluster::new(&config(2), 3);
    let client = (1, 1_025);
    for (instance, sequence, payload) in [
        (0, 1_000, &b"????EVIL-s"[..]),
        (1, 1_004, b"EVIL-s"),
        (2, 1_000, b"????EVIL-stu"),
        (0, 1_008, b"-st"),
        (1, 1_009, b"stuf7"),
        (2, 1_006, b"IL-stuf"),
        (0, 1_013, b"7+X!"),
        (0, 1_013, b"7+X!"),
    ] {
        cluster.packet(instance, &tcp(client, SERVER, sequence, payload));
        cluster.exchange();
    }
    assert_eq!(cluster.agreed(), [subject(client, 1), subject(client, 4)]);
}

#[test]
fn a_syn_with_payload_counts_one_and_ipv6_is_looked_at() {
    let mut cluster = Cluster::new(&config(2), 2);
    let client = (1, 1_025);
    cluster.packet(0, &flagged(client, SERVER, 99, TcpFlags::SYN, b"EVIL-"));
    cluster.exchange();
    cluster.packet(1, &tcp(client, SERVER, 105, b"stuf7+X"));
    assert_eq!(cluster.agreed()[0], subject(client, 1));
    cluster.packet(0, &tcp6(client, SERVER, 100, b"EVIL-"));
    cluster.exchange();
    cluster.packet(1, &tcp6(client, SERVER, 105, b"stuf7+X"));
    let found = cluster.agreed();
    let text: Vec<_> = found.iter().map(|one| one.stream.to_string()).collect();
    assert!(text.contains(&"tcp [2001:db8::1]:1025 > [2001:db8::2]:80".to_owned()));
}

#[test]
fn a_connection_or_a_source_that_is_blocked_is_blocked_by_all() {
    let client = (1, 1_025);
    let other = tcp((1, 1_026), SERVER, 1, b"harmless");
    let back = tcp(SERVER, client, 1, b"answer");
    for by_source in [false, true] {
        let response = if by_source {
            Response::BlockSource { block_s: 60 }
        } else {
            Response::BlockConnection { block_s: 60 }
        };
        let config = SignatureConfig {
            response,
            ..config(2)
        };
        let mut cluster = Cluster::new(&config, 3);
        assert_eq!(
            cluster.packet(0, &tcp(client, SERVER, 1_000, b"EVIL-st")),
            PASSES
        );
        cluster.exchange();
        let rest = tcp(client, SERVER, 1_007, b"uf7+X");
        let found = Verdict::Drop(Reason::SignatureFound);
        assert_eq!(cluster.packet(1, &rest), found);
        cluster.exchange();
        for instance in 0..3 {
            let verdicts = [&rest, &other, &back].map(|frame| cluster.packet(instance, frame));
            let expected = if by_source {
                [
                    Verdict::Drop(Reason::Blocked),
                    Verdict::Drop(Reason::Blocked),
                    PASSES,
                ]
            } else {
                let blocked = Verdict::Drop(Reason::ConnectionBlocked);
                [blocked, PASSES, blocked]
            };
            assert_eq!(verdicts, expected);
        }
        cluster.tick += 61;
        assert_eq!(cluster.packet(2, &back), PASSES, "the block has ended");
        let alerts = cluster.state(0).alerts();
        assert!(alerts.iter().all(|(_, alert)| alert.blocked));
    }
}

#[test]
fn with_a_wait_the_rest_meets_its_begin_though_the_news_is_late() {
    let config = SignatureConfig {
        response: Response::BlockConnection { block_s: 60 },
        wait_us: 5_000,
        ..config(2)
    };
    let found = Verdict::Drop(Reason::SignatureFound);
    // Both orders, and in three parts, of which each waits for the one before.
    let begin = |client| tcp(client, SERVER, 1_000, b"?????EVIL");
    let middle = |client| tcp(client, SERVER, 1_009, b"-stu");
    let rest = |client| tcp(client, SERVER, 1_013, b"f7+X!!!!!");
    let mut cluster = Cluster::new(&config, 3);
    let client = (1, 1_025);
    assert_eq!(cluster.packet(0, &begin(client)), PASSES);
    let verdict =
        cluster.packet_that_waits(1, &tcp(client, SERVER, 1_009, b"-stuf7+X!"), |cluster| {
            cluster.exchange();
        });
    assert_eq!(verdict, found);
    let client = (1, 1_026);
    let verdict = cluster.packet_that_waits(2, &rest(client), |cluster| {
        let verdict = cluster.packet_that_waits(1, &middle(client), |cluster| {
            assert_eq!(cluster.packet(0, &begin(client)), PASSES);
            cluster.exchange();
        });
        assert_eq!(verdict, PASSES, "what is known is no signature yet");
        cluster.exchange();
    });
    assert_eq!(verdict, found);
    // Without a wait the same passes.
    let config = SignatureConfig {
        wait_us: 0,
        ..config
    };
    let mut cluster = Cluster::new(&config, 3);
    assert_eq!(cluster.packet(0, &begin(client)), PASSES);
    assert_eq!(cluster.packet(1, &middle(client)), PASSES);
    assert_eq!(cluster.packet(2, &rest(client)), PASSES);
    cluster.exchange();
    assert_eq!(
        cluster.packet(0, &rest(client)),
        found,
        "sent again it does not"
    );
}
