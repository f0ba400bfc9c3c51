//! Frames of relays: `asterism decrypt` opens what is in them, and the dissector shows them and what they hold.

use std::collections::BTreeSet;

use asterism_output::End;
use asterism_placement::replicated::{Frame, FrameKind};
use asterism_placement::{ClusterId, MemberId};
use serde_json::Value;

use crate::wireshark::dissector::{is_installed, shown};
use crate::wireshark::frames::{Folder, Golden, PORT, frames_of, seal, udp4, udp6};

fn wrap(kind: FrameKind, member: u16, datagrams: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = Frame {
        kind,
        member: MemberId(member),
        cluster: ClusterId(300),
    };
    frame.begin(&mut out);
    datagrams
        .iter()
        .for_each(|datagram| Frame::push(&mut out, datagram));
    out
}

#[test]
fn what_passed_a_relay_opens_and_is_shown() {
    let (golden, mut sealer) = (Golden::read(), Golden::read().sealer());
    let folder = Folder::new(&golden);
    let message = golden.message("with-records");
    let mut more = message.clone();
    more.extend([128, 2, 0, 0]);
    let datagrams = [&message, &more, &message, &message].map(|text| seal(&mut sealer, text));
    let joined = [
        wrap(FrameKind::HandOn, 1, &[&datagrams[2]]),
        wrap(FrameKind::HandOn, 1, &[&datagrams[3]]),
    ];
    let frames = [
        udp4(&golden.datagram("handshake hello"), PORT),
        udp4(
            &wrap(FrameKind::HandOn, 9, &[&datagrams[0], &datagrams[1]]),
            PORT,
        ),
        udp6(&wrap(FrameKind::HandedOn, 4, &[&datagrams[0]]), PORT),
        udp4(&joined.concat(), PORT),
        udp4(&[0; 80], PORT),
    ];
    let input = folder.capture("in.pcap", &frames);
    let output = folder.text("out.pcap");
    let (end, stdout, stderr) = folder.decrypt(&["--format", "json", &input, &output]);
    assert_eq!((end, stderr.as_str()), (End::Done, ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["datagrams_opened"], 6, "{stdout}");
    let opened = frames_of(&folder.path("out.pcap"));
    // The frame around it stays as it was, and so does its length.
    assert_eq!(opened[1].1[42..50], frames[1][42..50]);
    assert_eq!(opened[1].1.len(), frames[1].len());
    if !is_installed() {
        return;
    }
    let fields: BTreeSet<String> = [
        "asterism.relay.kind",
        "asterism.relay.member",
        "asterism.relay.cluster",
        "asterism.relay.length",
        "asterism.records.first",
        "asterism.member",
        "asterism.malformed",
        "_ws.col.Info",
    ]
    .map(str::to_owned)
    .into();
    let shown = shown(&folder, &output, &fields, &[]);
    let value = |place: usize, field: &str| shown[place].get(field).cloned().unwrap_or_default();
    assert_eq!(value(0, "asterism.relay.kind"), [""; 0]);
    assert_eq!(value(1, "asterism.relay.kind"), ["1"]);
    assert_eq!(value(1, "asterism.relay.member"), ["9"]);
    assert_eq!(value(1, "asterism.relay.cluster"), ["300"]);
    let lengths = [&datagrams[0], &datagrams[1]].map(|datagram| datagram.len().to_string());
    assert_eq!(value(1, "asterism.relay.length"), lengths);
    assert_eq!(value(1, "asterism.records.first"), ["300", "300"]);
    assert_eq!(value(1, "asterism.member"), ["1", "1"]);
    let info = value(1, "_ws.col.Info")[0].clone();
    assert!(
        info.starts_with("to be handed on by member 9: member 1 #1: records 300-301")
            && info.contains(" + member 1 #2: records 300-301"),
        "{info}"
    );
    assert_eq!(value(2, "asterism.relay.kind"), ["2"]);
    assert!(value(2, "_ws.col.Info")[0].starts_with("handed on by member 4: member 1 #1"));
    assert_eq!(value(3, "asterism.relay.kind"), ["1", "1"]);
    assert_eq!(value(3, "asterism.records.first"), ["300", "300"]);
    for place in 0..4 {
        assert_eq!(value(place, "asterism.malformed"), [""; 0], "{place}");
    }
    assert!(shown[4].contains_key("asterism.malformed"));
}
