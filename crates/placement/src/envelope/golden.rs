//! The public vectors of `docs/src/vectors` for numbers and headers, both ways: the bytes decode to the fields, and the fields encode
//! to the bytes. Those of frames are in `replicated::wire`.

use core::time::Duration;

use crate::vectors::{self, number, part, to_hex};
use crate::{ClusterId, Epoch, MemberId, Time};

use super::*;

#[test]
fn numbers() {
    for vector in vectors::read("numbers.txt") {
        let mut reader = Reader::new(&vector.bytes);
        let read = reader.varint();
        let mut written = Vec::new();
        match vector.kind() {
            "number" => {
                let value = vector.number("value");
                write_varint(&mut written, value);
                assert_eq!(written, vector.bytes, "{}", vector.name);
                assert_eq!(read, Some(value), "{}", vector.name);
                assert!(reader.is_empty(), "{}", vector.name);
            }
            "lenient" => assert_eq!(read, Some(vector.number("value")), "{}", vector.name),
            "refused" => assert_eq!(read, None, "{}", vector.name),
            other => panic!("{other} is not known here"),
        }
    }
}

#[test]
fn messages() {
    let frames = vectors::read("frames.txt");
    for vector in vectors::read("messages.txt") {
        let mut reader = Reader::new(&vector.bytes);
        let read = Header::read(&mut reader, WIRE_VERSION);
        if vector.kind() == "refused" {
            let reason = read.err().map(Refused::label);
            assert_eq!(reason, Some(vector.text("reason")), "{}", vector.name);
            continue;
        }
        let header = read.unwrap();
        assert_eq!(vector.number::<u8>("version"), WIRE_VERSION);
        assert_eq!(header.cluster, ClusterId(vector.number("cluster")));
        assert_eq!(header.epoch, Epoch(vector.number("epoch")));
        assert_eq!(header.timestamp, Time(vector.number("timestamp")));
        assert_eq!(header.head, vector.number::<u64>("head"));
        let mut written = Vec::new();
        let count = Header::write(
            &mut written,
            WIRE_VERSION,
            header.cluster,
            header.epoch,
            header.timestamp,
            header.head,
        );
        for echo in vector.all("echo") {
            let echo = Echo {
                member: MemberId(number(part(echo, "member"))),
                timestamp: Time(number(part(echo, "timestamp"))),
                held: Duration::from_micros(number(part(echo, "held"))),
            };
            assert_eq!(header.echo_of(echo.member), Some(echo), "{}", vector.name);
            echo.write(&mut written);
        }
        count.set(&mut written, vector.all("echo").count() as u8);
        assert_eq!(reader.rest().len(), vector.bytes.len() - written.len());
        for name in vector.all("frame") {
            written.extend(&vectors::named(&frames, name).bytes);
        }
        assert_eq!(to_hex(&written), to_hex(&vector.bytes), "{}", vector.name);
        assert!(RawFrames::new(reader).all(|frame| frame.is_ok()));
    }
}
