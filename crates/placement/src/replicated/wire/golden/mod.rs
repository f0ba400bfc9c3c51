//! The public vectors of `docs/src/vectors`, both ways: the bytes decode to the fields, and the fields encode to the bytes.

mod membership;

use crate::MemberId;
use crate::envelope::*;
use crate::vectors::{self, Vector, number, part, to_hex, to_runs};

use super::super::SnapshotKind;
use super::super::audit::{Place, Reading, StreamPosition, Turn};
use super::*;

type Fields = Vec<(String, String)>;

fn field(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// What the reader makes of a frame's bytes, as a vector says it.
fn fields_of(bytes: &[u8]) -> Fields {
    let mut whole = Reader::new(bytes);
    let (kind, length) = (whole.byte().unwrap(), whole.length().unwrap());
    let body = whole.take(length).unwrap();
    assert!(whole.is_empty());
    let mut fields = vec![field("kind", kind)];
    let mut frames = Frames::new(Reader::new(bytes));
    match frames.next().unwrap().unwrap() {
        Frame::Records(groups) => {
            fields.push(field("first", groups.first));
            assert_eq!(groups.end - groups.first, groups.count() as u64);
            fields.extend(groups.map(|group| field("group", to_hex(group))));
        }
        Frame::Acknowledge(entries) => fields.extend(entries.map(|entry| {
            let runs: Vec<_> = entry.runs().collect();
            let last = runs.last().map_or(entry.received, |run| run.1);
            assert_eq!(entry.highest, last);
            let (origin, applied) = (entry.origin.0, entry.applied);
            let (ahead, runs) = (entry.received - applied, to_runs(&runs));
            field(
                "entry",
                format!("origin={origin} applied={applied} ahead={ahead} runs={runs}"),
            )
        })),
        Frame::KeepAlive { answer, carry } => {
            fields.push(field("flags", u8::from(answer) | u8::from(carry) << 1));
        }
        Frame::StateSnapshot(snapshot) => fields.extend([
            field("scan", snapshot.scan),
            field("index", snapshot.index),
            field("chunk", to_hex(snapshot.chunk)),
        ]),
        Frame::SnapshotEnd(end) => {
            let covers = match end.kind {
                SnapshotKind::Changes => 0,
                SnapshotKind::Full => 1,
            };
            fields.extend([
                field("scan", end.scan),
                field("chunks", end.chunks),
                field("covers", covers),
            ]);
            fields.extend(end.vector().map(|(member, sequence)| {
                field("stream", format!("member={} sequence={sequence}", member.0))
            }));
        }
        Frame::SnapshotAcknowledge(acknowledge) => fields.extend([
            field("scan", acknowledge.scan),
            field("prefix", acknowledge.prefix),
            field("bits", acknowledge.bits),
            field(
                "flags",
                u8::from(acknowledge.end) | u8::from(acknowledge.joined) << 1,
            ),
        ]),
        Frame::Ask(runs) | Frame::Lacks(runs) => fields.extend(runs.map(|run| {
            let (origin, first, last) = (run.origin.0, run.first, run.last);
            field("run", format!("origin={origin} first={first} last={last}"))
        })),
        Frame::Clock(clock) => fields.extend([
            field("flags", u8::from(clock.is_settled)),
            field("cluster", clock.cluster_us),
            field("date", clock.date_us),
        ]),
        Frame::Padding => {
            assert_eq!(kind, 0x80);
            fields.push(field("length", length));
        }
        Frame::Keys(keys) => fields.extend(
            keys.iter()
                .map(|key| field("key", format!("id={} check={}", key.id, key.check))),
        ),
        Frame::Placements(placements) => fields.extend([
            field("wanted", placements.wanted),
            field("shared", placements.shared),
            field("last", placements.last),
            field("ever", placements.ever),
            field("begun", placements.begun),
            field("covered", placements.covered),
        ]),
        Frame::Skipped => fields.push(field("length", length)),
        Frame::Beside => fields.extend(audit_fields_of(kind, body)),
        _ => fields.extend(membership::fields_of(kind, body)),
    }
    assert!(frames.next().is_none());
    fields
}

/// What an auditor's reader makes of a body.
fn audit_fields_of(kind: u8, body: &[u8]) -> Fields {
    if kind == KIND_STREAM {
        let position = StreamPosition::read(body).unwrap();
        return vec![
            field("sequence", position.sequence),
            field("digest", position.digest),
        ];
    }
    let reading = Reading::parse(body).unwrap();
    let words = match &reading.turn {
        Turn::First(digests) => digests.to_vec(),
        Turn::Second(changed) => vec![*changed],
    };
    let (turn, name) = match reading.turn {
        Turn::First(_) => (0, "digest"),
        Turn::Second(_) => (1, "changed"),
    };
    let mut fields = vec![
        field("turn", turn),
        field("number", reading.number),
        field("object", reading.place.object),
        field("segment", reading.place.segment),
    ];
    fields.extend(reading.vector.iter().map(|of| field("sequence", of)));
    fields.extend(words.iter().map(|word| field(name, word)));
    fields
}

/// What the writers make of a vector's fields; `None` for kinds that this build never writes.
fn bytes_of(vector: &Vector) -> Option<Vec<u8>> {
    let (mut out, mut body) = (Vec::new(), Vec::new());
    let kind = vector.number("kind");
    match kind {
        KIND_RECORDS => {
            write_varint(&mut body, vector.number("first"));
            for group in vector.all("group").map(vectors::hex) {
                write_varint(&mut body, group.len() as u64);
                body.extend(group);
            }
        }
        KIND_ACKNOWLEDGE => {
            write_varint(&mut body, vector.all("entry").count() as u64);
            for entry in vector.all("entry") {
                let applied: u64 = number(part(entry, "applied"));
                write_entry(
                    &mut body,
                    MemberId(number(part(entry, "origin"))),
                    applied,
                    applied + number::<u64>(part(entry, "ahead")),
                    &vectors::runs(part(entry, "runs")),
                );
            }
        }
        KIND_KEEP_ALIVE => body.push(vector.number("flags")),
        KIND_SNAPSHOT => StateSnapshot {
            scan: vector.number("scan"),
            index: vector.number("index"),
            chunk: &vectors::hex(vector.text("chunk")),
        }
        .write(&mut body),
        KIND_SNAPSHOT_END => {
            let streams: Vec<_> = vector
                .all("stream")
                .map(|stream| {
                    let member = MemberId(number(part(stream, "member")));
                    (member, number(part(stream, "sequence")))
                })
                .collect();
            let covers = match vector.text("covers") {
                "0" => SnapshotKind::Changes,
                _ => SnapshotKind::Full,
            };
            let (scan, chunks) = (vector.number("scan"), vector.number("chunks"));
            SnapshotEndFrame::write(&mut body, scan, chunks, covers, &streams);
        }
        KIND_SNAPSHOT_ACKNOWLEDGE => {
            let flags: u8 = vector.number("flags");
            SnapshotAcknowledge {
                scan: vector.number("scan"),
                prefix: vector.number("prefix"),
                bits: vector.number("bits"),
                end: flags & 1 != 0,
                joined: flags & 2 != 0,
            }
            .write(&mut body);
        }
        KIND_JOIN..=KIND_CLOSE => body = membership::body_of(kind, vector),
        KIND_KEYS => {
            let keys = vector.all("key").map(|key| AcceptedKey {
                id: number(part(key, "id")),
                check: number(part(key, "check")),
            });
            AcceptedKeys::new(keys).write(&mut body);
        }
        KIND_PLACEMENTS => Placements {
            wanted: vector.number("wanted"),
            shared: vector.number("shared"),
            last: vector.number("last"),
            ever: vector.number("ever"),
            begun: vector.number("begun"),
            covered: vector.number("covered"),
        }
        .write(&mut body),
        KIND_AUDIT => {
            let words = |name| vector.all(name).map(number).collect::<Vec<u64>>();
            let turn = match vector.number::<u8>("turn") {
                0 => Turn::First(Box::new(words("digest").try_into().unwrap())),
                _ => Turn::Second(vector.number("changed")),
            };
            Reading {
                number: vector.number("number"),
                place: Place {
                    object: vector.number("object"),
                    segment: vector.number("segment"),
                },
                vector: words("sequence"),
                turn,
            }
            .write(&mut body);
        }
        KIND_STREAM => StreamPosition {
            sequence: vector.number("sequence"),
            digest: vector.number("digest"),
        }
        .write(&mut body),
        KIND_ASK | KIND_LACKS => vector.all("run").for_each(|run| {
            let origin = MemberId(number(part(run, "origin")));
            let (first, last) = (number(part(run, "first")), number(part(run, "last")));
            Asked {
                origin,
                first,
                last,
            }
            .write(&mut body);
        }),
        KIND_CLOCK => {
            ClockFrame {
                is_settled: vector.number::<u8>("flags") & 1 != 0,
                cluster_us: vector.number("cluster"),
                date_us: vector.number("date"),
            }
            .write_frame(&mut out);
            return Some(out);
        }
        0x80 => {
            write_padding(&mut out, 2 + vector.number::<usize>("length"));
            return Some(out);
        }
        _ => return None,
    }
    write_frame(&mut out, kind, &body);
    Some(out)
}

#[test]
fn frames_are_read_as_their_fields_and_written_as_their_bytes() {
    let mut kinds = Vec::new();
    for vector in vectors::read("frames.txt") {
        if vector.kind() == "refused" {
            continue;
        }
        assert_eq!(fields_of(&vector.bytes), vector.fields, "{}", vector.name);
        kinds.push(vector.number::<u8>("kind"));
        if let Some(written) = bytes_of(&vector) {
            assert_eq!(to_hex(&written), to_hex(&vector.bytes), "{}", vector.name);
        }
    }
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 128, 129, 130, 131, 132, 133, 134, 135, 254
        ]
    );
}

#[test]
fn refused_frames_are_refused_for_their_reason() {
    let vectors = vectors::read("frames.txt");
    let refused = vectors.iter().filter(|vector| vector.kind() == "refused");
    let mut count = 0;
    for vector in refused {
        count += 1;
        let read: Result<Vec<_>, _> = Frames::new(Reader::new(&vector.bytes)).collect();
        let reason = read.err().map(Refused::label);
        assert_eq!(reason, Some(vector.text("reason")), "{}", vector.name);
    }
    assert!(count >= 10);
}

#[test]
fn messages_have_no_malformed_frame() {
    for vector in vectors::read("messages.txt") {
        let mut reader = Reader::new(&vector.bytes);
        if Header::read(&mut reader, WIRE_VERSION).is_ok() {
            assert!(Frames::new(reader).all(|frame| frame.is_ok()));
        }
    }
}

/// A header that is cut anywhere is refused; a message that is cut between frames has fewer of them, cut inside one it is
/// refused.
#[test]
fn messages_cut_short() {
    let frames = vectors::read("frames.txt");
    for vector in vectors::read("messages.txt") {
        if vector.kind() == "refused" {
            continue;
        }
        let lengths = vector.all("frame").map(|name| {
            let frame = vectors::named(&frames, name);
            frame.bytes.len()
        });
        let mut start = vector.bytes.len() - lengths.clone().sum::<usize>();
        let mut whole = vec![start];
        for length in lengths {
            start += length;
            whole.push(start);
        }
        for cut in 0..vector.bytes.len() {
            let mut reader = Reader::new(&vector.bytes[..cut]);
            let is_read = Header::read(&mut reader, WIRE_VERSION).is_ok()
                && Frames::new(reader).all(|frame| frame.is_ok());
            assert_eq!(is_read, whole.contains(&cut), "{} at {cut}", vector.name);
        }
    }
}
