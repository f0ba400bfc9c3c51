//! Packets that lie, floods of pieces, and what waits.

use asterism_blocking::blocked::{BLOCKED_QUESTION, BlockedRecord};
use asterism_function::objects::{ObjectSettings, hash};
use asterism_function::records::read_records;
use asterism_function::testkit::{Testkit, late_everywhere, measured};
use asterism_function::{Observable, PortNumber, Reason, Verdict};
use asterism_functions::signature::{
    Carrier, Fragments, Response, SIGNATURES_MAX, SignatureConfig, SignatureFault, Signatures,
    Subject,
};

use crate::signature::captures::realistic;
use crate::signature::cluster::{Cluster, PASSES};
use crate::signature::packets::{first_fragment, list, made, tcp, udp};

const IN: PortNumber = PortNumber(0);
const CLIENT: (u16, u16) = (1, 1_025);
const SERVER: (u16, u16) = (2, 80);

fn config() -> SignatureConfig {
    SignatureConfig::new(list(&[b"EVIL-stuf7+X", b"abababababab"]))
}

fn ids(found: &[Subject]) -> Vec<u32> {
    found.iter().map(|subject| subject.id).collect()
}

#[test]
fn any_bytes_at_any_place_harm_nothing() {
    let mut kit = Testkit::new(made(&SignatureConfig {
        min_piece: 1,
        ..SignatureConfig::new(realistic())
    }));
    let wanted = realistic();
    for draw in 0..20_000u64 {
        let number = |place: u64, below: u64| hash::words(draw, place, 3) % below;
        let part = &wanted[number(0, wanted.len() as u64) as usize].bytes;
        let from = number(1, part.len() as u64) as usize;
        let to = from + number(2, (part.len() - from) as u64 + 1) as usize;
        let filler = vec![number(3, 256) as u8; number(4, 3) as usize * 40];
        let payload = match number(5, 3) {
            0 => [&part[from..to], &filler[..]].concat(),
            1 => [&filler[..], &part[from..to]].concat(),
            _ => part[from..to].to_vec(),
        };
        // Close to the borders of blocks, and where sequence numbers begin again.
        let sequence = (number(6, 4) as u32)
            .wrapping_mul(16_384)
            .wrapping_add(number(7, 140) as u32)
            .wrapping_sub(70);
        let client = (1, 1_000 + number(8, 50) as u16);
        let mut frame = if number(9, 8) == 0 {
            udp(client, SERVER, &payload)
        } else {
            tcp(client, SERVER, sequence, &payload)
        };
        if number(10, 10) == 0 {
            let place = 34 + number(11, (frame.len() - 34) as u64) as usize;
            frame[place] ^= 1 << number(12, 8);
        }
        kit.packet(IN, &frame);
    }
    assert!(kit.state().alerts().len() > 50);
    assert_eq!(kit.state().unrecorded.get(), Ok(0));
}

#[test]
fn a_flood_of_pieces_of_one_stream_is_one_entry_that_says_so() {
    let mut cluster = Cluster::new(&config(), 3);
    for number in 0..300u32 {
        // Each two bytes of a signature, none next to another.
        let segment = tcp(CLIENT, SERVER, 20_000 + 40 * number, b"ab");
        assert_eq!(cluster.packet(number as usize % 3, &segment), PASSES);
        if number % 7 == 0 {
            cluster.exchange();
        }
    }
    let found = cluster.agreed();
    assert_eq!(ids(&found), [0], "one alert: cut into more than is kept");
    assert_eq!(cluster.state(0).pieces.len_now(), 1);
}

#[test]
fn strict_blocks_a_stream_cut_too_finely_and_the_default_does_not() {
    for strict in [false, true] {
        let mut kit = Testkit::new(made(&SignatureConfig {
            strict,
            response: Response::BlockConnection { block_s: 60 },
            ..config()
        }));
        let mut dropped = 0;
        for number in 0..40u32 {
            let segment = tcp(CLIENT, SERVER, 20_000 + 40 * number, b"ab");
            dropped += u32::from(kit.packet(IN, &segment).verdict != PASSES);
        }
        assert_eq!(dropped, if strict { 28 } else { 0 });
    }
}

#[test]
fn a_flood_of_streams_fills_the_table_and_is_counted() {
    let mut kit = Testkit::new(made(&SignatureConfig {
        pieces_max: 1_000,
        ..config()
    }));
    for number in 0..3_000 {
        let segment = tcp((9, 1_000 + number), SERVER, 20_000, b"....EVIL-");
        assert_eq!(kit.packet(IN, &segment).verdict, PASSES, "it fails open");
    }
    assert_eq!(kit.state().pieces.len_now(), 1_000);
    let unrecorded = measured(kit.function(), kit.state(), "unrecorded_total");
    assert_eq!(unrecorded, 2_000, "and anyone who collects metrics sees it");
    kit.advance(100);
    assert_eq!(kit.state().pieces.len_now(), 0, "pieces idle out");
    kit.packet(IN, &tcp(CLIENT, SERVER, 1_000, b"....EVIL-"));
    kit.packet(IN, &tcp(CLIENT, SERVER, 1_009, b"stuf7+X..."));
    assert_eq!(kit.state().alerts().len(), 1, "it recovers");
}

#[test]
fn short_segments_and_fragments_are_counted_and_fragments_can_be_dropped() {
    for (fragments, verdict) in [
        (Fragments::Pass, PASSES),
        (Fragments::Drop, Verdict::Drop(Reason::FragmentNotInspected)),
    ] {
        let mut kit = Testkit::new(made(&SignatureConfig {
            fragments,
            ..config()
        }));
        for (place, byte) in b"EVIL-stuf7+X".iter().enumerate() {
            kit.packet(IN, &tcp(CLIENT, SERVER, 1_000 + place as u32, &[*byte]));
        }
        let fragment = first_fragment(tcp(CLIENT, SERVER, 1_000, b"EVIL-stuf7+X...."));
        assert_eq!(kit.packet(IN, &fragment).verdict, verdict);
        assert_eq!(kit.state().alerts(), [], "as the documentation says");
        assert_eq!(kit.state().short.get(), Ok(12));
        assert_eq!(kit.state().fragments.get(), Ok(1));
    }
}

#[test]
fn ports_and_carriers_are_kept_to() {
    let mut signatures = list(&[b"for-tcp-80", b"for-udp", b"for-all", b"for-tcp-80"]);
    signatures[0].carrier = Carrier::Tcp;
    signatures[0].ports = vec![80, 8_080];
    signatures[1].carrier = Carrier::Udp;
    signatures[3].ports = vec![81];
    let look = |frame: Vec<u8>| {
        let mut kit = Testkit::new(made(&SignatureConfig::new(signatures.clone())));
        kit.packet(IN, &frame);
        let alerts = kit.state().alerts();
        alerts
            .iter()
            .map(|(subject, _)| subject.id)
            .collect::<Vec<_>>()
    };
    let text = b"..for-tcp-80..for-udp..for-all..";
    assert_eq!(look(tcp(CLIENT, (2, 80), 1, text)), [1, 3]);
    assert_eq!(look(tcp(CLIENT, (2, 81), 1, text)), [3, 4]);
    assert_eq!(look(tcp(CLIENT, (2, 25), 1, text)), [3]);
    assert_eq!(look(udp(CLIENT, (2, 80), text)), [2, 3]);
    assert_eq!(look(udp(CLIENT, (2, 81), text)), [2, 3, 4]);
}

#[test]
fn more_signatures_than_a_packet_can_tell_are_counted() {
    let texts: Vec<Vec<u8>> = (b'a'..=b'l').map(|letter| vec![letter; 4]).collect();
    let all: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    let mut kit = Testkit::new(made(&SignatureConfig::new(list(&all))));
    kit.packet(IN, &tcp(CLIENT, SERVER, 1, &texts.concat()));
    assert_eq!(kit.state().alerts().len(), 7);
    assert_eq!(kit.state().unrecorded.get(), Ok(1));
}

/// A packet that goes on with a signature waits for what comes before it, and no longer than it may.
#[test]
fn the_rest_of_a_signature_waits_for_its_begin() {
    let config = SignatureConfig {
        response: Response::BlockConnection { block_s: 60 },
        wait_us: 2_000,
        ..config()
    };
    let mut kit = Testkit::new(made(&config));
    let calls = |kit: &mut Testkit<Signatures>, sequence, payload: &[u8]| {
        let outcome = kit.packet(IN, &tcp(CLIENT, SERVER, sequence, payload));
        (outcome.verdict, outcome.calls)
    };
    assert_eq!(calls(&mut kit, 1_000, b"....EVIL-s"), (PASSES, 1));
    assert_eq!(
        calls(&mut kit, 5_000, b"EVIL-s"),
        (PASSES, 1),
        "a begin waits for nothing"
    );
    assert_eq!(
        calls(&mut kit, 9_000, b"tuf7+X...."),
        (PASSES, 2),
        "nothing came in time"
    );
    assert_eq!(calls(&mut kit, 9_100, b"nothing of note"), (PASSES, 1));
    let found = Verdict::Drop(Reason::SignatureFound);
    assert_eq!(calls(&mut kit, 1_010, b"tuf7+X...."), (found, 1));
}

#[test]
fn late_reads_change_nothing() {
    let mut steps = Vec::new();
    for (sequence, payload) in [
        (1_000, &b"....EVIL-s"[..]),
        (1_010, b"tuf7"),
        (16_380, b"EVIL-"),
        (16_385, b"stuf7+X"),
        (1_014, b"+X..abababababab.."),
        (1_100, b"nothing of note"),
    ] {
        steps.push((1, IN, tcp(CLIENT, SERVER, sequence, payload)));
    }
    steps.push((0, IN, udp(CLIENT, SERVER, b"EVIL-stuf7+X")));
    for response in [
        Response::Detect,
        Response::BlockConnection { block_s: 2 },
        Response::BlockSource { block_s: 2 },
    ] {
        let config = SignatureConfig {
            response,
            ..config()
        };
        late_everywhere(|| made(&config), &steps);
    }
    let kit = Testkit::with_settings(made(&config()), |_| ObjectSettings::LOCAL);
    assert_eq!(kit.state().alerts(), []);
}

/// A block is reported: a connection with both ends, or a source.
#[test]
fn which_signatures_block_is_reported() {
    for response in [
        Response::BlockConnection { block_s: 60 },
        Response::BlockSource { block_s: 60 },
    ] {
        let mut kit = Testkit::new(made(&SignatureConfig {
            response,
            ..config()
        }));
        kit.packet(IN, &tcp(CLIENT, SERVER, 1_000, b"EVIL-stuf7+X"));
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        let all = (0, u32::MAX);
        kit.function()
            .report(kit.state(), BLOCKED_QUESTION, all, &mut bytes);
        assert!(read_records(&bytes, |record: BlockedRecord| records.push(record)));
        let [record] = &records[..] else {
            panic!("{records:?}");
        };
        let ends = [record.source.port, record.destination.port];
        match response {
            Response::BlockSource { .. } => assert_eq!(ends, [None, None]),
            _ => assert!(ends.contains(&Some(CLIENT.1)) && ends.contains(&Some(SERVER.1))),
        }
        assert_eq!(record.destination.host.is_some(), ends[1].is_some());
        assert!(record.source.host.is_some());
    }
}

#[test]
fn a_configuration_that_cannot_be_is_refused_with_all_that_is_wrong() {
    let faults = |config| Signatures::new(config).err().unwrap_or_default();
    let mut signatures = list(&[b"abc", &[b'x'; 65], b"right"]);
    signatures[2].id = 1;
    let wrong = SignatureConfig {
        min_piece: 5,
        ..SignatureConfig::new(signatures)
    };
    let expected = [
        SignatureFault::Length(1, 3),
        SignatureFault::Length(2, 65),
        SignatureFault::Id(1),
        SignatureFault::MinPiece(5),
    ];
    assert_eq!(faults(wrong), expected);
    let none = SignatureConfig::new(Vec::new());
    assert_eq!(faults(none), [SignatureFault::Count(0)]);
    let texts: Vec<Vec<u8>> = (0..=SIGNATURES_MAX as u32)
        .map(|number| [&number.to_be_bytes()[..], &[b'x'; 60]].concat())
        .collect();
    let many: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
    let expected = [SignatureFault::Count(1_025), SignatureFault::Bytes(65_600)];
    assert_eq!(faults(SignatureConfig::new(list(&many))), expected);
    // The most that is allowed is still found at once and in parts.
    let most = Signatures::new(SignatureConfig::new(list(&many[..1_023]))).expect("it is allowed");
    assert!(most.finder_bytes() < 64 << 20, "{}", most.finder_bytes());
    let mut kit = Testkit::new(most);
    kit.packet(IN, &tcp(CLIENT, SERVER, 1_000, &texts[700][..30]));
    kit.packet(IN, &tcp(CLIENT, SERVER, 1_030, &texts[700][30..]));
    assert_eq!(kit.state().alerts()[0].0.id, 701);
}
