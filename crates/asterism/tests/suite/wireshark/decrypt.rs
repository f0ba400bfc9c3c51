//! `asterism decrypt`: what opens, what stays as it was and is counted, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use asterism_output::End;
use asterism_packet::Packet;
use asterism_secure_channel::{HEADER_BYTES, OPENED_MARK, OVERHEAD_BYTES};
use serde_json::Value;

use crate::validator::validate;
use crate::wireshark::frames::{Folder, Golden, PORT, frames_of, run, seal, time_of, udp4, udp6};

const HELLO: &str = "handshake hello";

/// What UDP carries in a frame, if its checksum holds.
fn payload(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let packet = Packet::parse(&mut frame).unwrap();
    assert_eq!(packet.verify_transport_checksum(), Some(true));
    packet.payload().to_vec()
}

/// A datagram as it is once it was opened.
fn opened(sealed: &[u8], clear_bytes: usize, text: &[u8]) -> Vec<u8> {
    [&sealed[..clear_bytes], text, &OPENED_MARK[..]].concat()
}

#[test]
fn a_capture_opens_where_it_can_and_stays_where_it_cannot() {
    let (golden, mut sealer) = (Golden::read(), Golden::read().sealer());
    let folder = Folder::new(&golden);
    let early = seal(&mut sealer, b"before the handshake");
    let mut damaged = seal(&mut sealer, b"damaged");
    damaged[40] ^= 1;
    let joined: Vec<Vec<u8>> = [90, 90, 12]
        .map(|length| seal(&mut sealer, &vec![7; length]))
        .into();
    let foreign = b"something else on the same port, of the same length as others".to_vec();
    let mut unknown = seal(&mut sealer, b"of a session without a handshake");
    unknown[12] ^= 1;
    let mut fragment = udp4(&early, PORT);
    fragment[20] = 0x20;
    let mut no_checksum = udp4(&early, PORT);
    no_checksum[40..42].fill(0);
    let frames = [
        udp4(&early, PORT),
        udp6(&golden.datagram(HELLO), PORT),
        udp6(&golden.datagram("sealed with-records"), 999),
        udp4(&damaged, PORT),
        udp4(&joined.concat(), PORT),
        udp4(&foreign, PORT),
        udp4(&unknown, PORT),
        udp4(&unknown, PORT),
        fragment,
        vec![0xff; 60],
        no_checksum,
    ];
    let input = folder.capture("in.pcap", &frames);
    let output = folder.text("out.pcap");
    let (end, stdout, stderr) = folder.decrypt(&["--format", "json", &input, &output]);
    assert_eq!((end, stderr.as_str()), (End::Done, ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["schema"]["name"], "asterism.decrypt");
    validate(&report);
    for (name, count) in [
        ("packets_read", 11),
        ("packets_written", 11),
        ("packets_cut", 0),
        ("fragments", 1),
        ("packets_other", 1),
        ("sessions", 1),
        ("datagrams_opened", 7),
        ("handshakes_opened", 1),
    ] {
        assert_eq!(report[name], count, "{name}: {stdout}");
    }
    assert_eq!(
        report["unopened"],
        serde_json::json!({ "foreign": 1, "forged": 1, "no_salt": 2 })
    );
    assert_eq!(report["sessions_without_handshake"][0]["datagrams"], 2);
    assert_eq!(report["sessions_without_handshake"][0]["member"], 1);

    let written = frames_of(&folder.path("out.pcap"));
    for (place, ((time, after), before)) in written.iter().zip(&frames).enumerate() {
        assert_eq!(*time, time_of(place));
        assert_eq!(after.len(), before.len());
        let changed = [0, 1, 2, 4, 10].contains(&place);
        assert_eq!(after != before, changed, "packet {place}");
    }
    let header = HEADER_BYTES;
    assert_eq!(
        payload(&written[0].1),
        opened(&early, header, b"before the handshake")
    );
    let hello = payload(&written[1].1);
    assert_eq!(hello[..48], golden.datagram(HELLO)[..48]);
    assert_eq!(hello[48..52], [1, 0, 2, 0]);
    let records = golden.message("with-records");
    assert_eq!(
        payload(&written[2].1),
        opened(&golden.datagram("sealed with-records"), header, &records)
    );
    let texts: Vec<u8> = joined
        .iter()
        .flat_map(|sealed| opened(sealed, header, &vec![7; sealed.len() - OVERHEAD_BYTES]))
        .collect();
    assert_eq!(payload(&written[4].1), texts);
    assert_eq!(written[10].1[40..42], [0, 0], "none stays none");

    let mode = fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, text, _) = folder.decrypt(&[&input, &output]);
    for word in [
        "Opened 7 datagrams",
        "2 datagrams of sessions",
        "member 1",
        "--handshakes",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let opened_twice = folder.decrypt(&[&output, &folder.text("again.pcap")]);
    assert_eq!(opened_twice.0, End::DoesNotHold, "{opened_twice:?}");
}

#[test]
fn handshakes_may_be_in_another_capture() {
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let sealed = udp4(&golden.datagram("sealed with-records"), PORT);
    let input = folder.capture("in.pcap", &[sealed]);
    let handshakes = folder.capture("start.pcap", &[udp4(&golden.datagram(HELLO), PORT)]);
    let output = folder.text("out.pcap");
    let (end, stdout, _) = folder.decrypt(&[&input, &output]);
    assert_eq!(end, End::DoesNotHold, "{stdout}");
    assert!(stdout.contains("--handshakes"));
    let (end, stdout, _) = folder.decrypt(&["--handshakes", &handshakes, &input, &output]);
    assert_eq!(end, End::Done, "{stdout}");
}

#[test]
fn mistakes_are_reported_and_nothing_is_overwritten() {
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let input = folder.capture("in.pcap", &[udp4(&golden.datagram(HELLO), PORT)]);
    let (key, output) = (folder.text("cluster.key"), folder.text("out.pcap"));
    let second_key = folder.text("second.key");
    run(&["keygen", &second_key, "--id", "7"]);
    let text = folder.text("notes.txt");
    fs::write(&text, "no capture").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&[&input, &input], "is read"),
        (&[&input, &key], "is read"),
        (&["--handshakes", &text, &input, &output], "not a capture"),
        (&["--handshakes", &input, &input, &input], "is read"),
        (&[&text, &output], "not a capture"),
        (&[&folder.text("absent.pcap"), &output], "absent.pcap"),
        (&["/dev/null", &output], "is not a file"),
        (&["--key", &second_key, &input, &output], "number 7"),
    ];
    let before = (fs::read(&input).unwrap(), fs::read(&key).unwrap());
    for (arguments, word) in cases {
        let (end, _, stderr) = folder.decrypt(arguments);
        assert_eq!(end, End::File, "{arguments:?}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
        assert!(!folder.path("out.pcap").exists(), "{arguments:?}");
    }
    assert_eq!(before, (fs::read(&input).unwrap(), fs::read(&key).unwrap()));
    let (end, ..) = run(&["decrypt", &input, &output]);
    assert_eq!(end, End::CommandLine, "a key is needed");
}

/// What is there before a capture's fault is opened and written, and the fault is reported.
#[test]
fn a_damaged_capture_opens_until_its_fault() {
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let frame = udp4(&golden.datagram(HELLO), PORT);
    let input = folder.capture("in.pcap", &[frame.clone(), frame.clone()]);
    let whole = fs::read(&input).unwrap();
    fs::write(&input, &whole[..whole.len() - 5]).unwrap();
    let output = folder.text("out.pcap");
    let (end, stdout, stderr) = folder.decrypt(&[&input, &output]);
    assert_eq!(end, End::File);
    assert!(stderr.contains("ends inside the record"), "{stderr}");
    assert!(stdout.contains("Opened 1 datagrams"), "{stdout}");
    assert_eq!(frames_of(&folder.path("out.pcap")).len(), 1);
}

/// Packets that the capture cut are counted and stay.
#[test]
fn cut_packets_are_counted() {
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let frame = udp4(&golden.datagram(HELLO), PORT);
    let input = folder.capture("in.pcap", core::slice::from_ref(&frame));
    let mut bytes = fs::read(&input).unwrap();
    // The record says that the packet was longer.
    bytes[24 + 12] += 1;
    fs::write(&input, bytes).unwrap();
    let output = folder.text("out.pcap");
    let (end, stdout, _) = folder.decrypt(&[&input, &output]);
    assert_eq!(end, End::DoesNotHold);
    assert!(
        stdout.contains("1 packets that the capture cut"),
        "{stdout}"
    );
    assert_eq!(frames_of(&folder.path("out.pcap"))[0].1, frame);
}

/// Any bytes of a capture end in a report or a clear error.
#[test]
fn any_bytes_of_a_capture_are_survived() {
    let golden = Golden::read();
    let folder = Folder::new(&golden);
    let frames: Vec<Vec<u8>> = [HELLO, "handshake echo", "sealed with-records"]
        .map(|name| udp4(&golden.datagram(name), PORT))
        .into_iter()
        .chain([udp6(&golden.datagram("handshake welcome"), PORT)])
        .collect();
    let input = folder.capture("in.pcap", &frames);
    let (whole, output) = (fs::read(&input).unwrap(), folder.text("out.pcap"));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut ends = [0; 3];
    for _ in 0..1_500 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % bytes.len();
            bytes[at] = (state >> 32) as u8;
        }
        fs::write(&input, &bytes).unwrap();
        let (end, ..) = folder.decrypt(&[&input, &output]);
        ends[match end {
            End::Done => 0,
            End::DoesNotHold => 1,
            End::File => 2,
            other => panic!("{other:?}"),
        }] += 1;
    }
    assert!(ends[0] > 0 && ends[2] > 0, "{ends:?}");
}
