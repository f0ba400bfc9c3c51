//! What is written is read again, however it is cut; what is damaged is refused or read, and never more than came.

use asterism_resp::scan::{DEPTH_MAX, ELEMENTS_MAX, LINE_BYTES_MAX, STRING_BYTES_MAX};
use asterism_resp::{CommandWriter, ReplyWriter, RespError, Scanner, Value};
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Value<'_> {
    let (value, length) = Value::read(bytes).unwrap().expect("it is whole");
    assert_eq!(length, bytes.len());
    value
}

/// Where the values in these bytes end, which come in such pieces.
fn ends(bytes: &[u8], piece: usize) -> Result<Vec<usize>, RespError> {
    let (mut scanner, mut ends, mut from, mut here) = (Scanner::new(), Vec::new(), 0, 0);
    while here < bytes.len() {
        here = bytes.len().min(here + piece);
        while let Some(length) = scanner.scan(&bytes[from..here])? {
            from += length;
            ends.push(from);
        }
    }
    Ok(ends)
}

#[test]
fn values_of_both_versions_are_read() {
    assert_eq!(read(b"+OK\r\n"), Value::Status(b"OK"));
    assert_eq!(read(b"-ERR no such\r\n"), Value::Error(b"ERR no such"));
    assert_eq!(read(b":-42\r\n"), Value::Integer(-42));
    assert_eq!(read(b"$4\r\na\r\nb\r\n"), Value::String(b"a\r\nb"));
    assert_eq!(read(b"$0\r\n\r\n"), Value::String(b""));
    for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
        assert_eq!(read(null), Value::Null);
    }
    assert_eq!(read(b"#t\r\n"), Value::Boolean(true));
    assert_eq!(read(b",1.5\r\n"), Value::String(b"1.5"));
    assert_eq!(read(b"!5\r\nERR a\r\n"), Value::Error(b"ERR a"));
    assert_eq!(read(b"=7\r\ntxt:abc\r\n"), Value::String(b"abc"));
    let Value::Array(values) = read(b"%1\r\n+a\r\n:1\r\n") else {
        panic!("a map is an array");
    };
    assert_eq!(
        values.collect::<Vec<_>>(),
        [Value::Status(b"a"), Value::Integer(1)]
    );
    let Value::Push(values) = read(b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n") else {
        panic!("a push");
    };
    assert_eq!(values.len(), 2);
    // What is said about a value is passed over.
    assert_eq!(read(b"|1\r\n+ttl\r\n:3\r\n:7\r\n"), Value::Integer(7));
}

#[test]
fn an_array_is_read_as_far_as_one_looks() {
    let bytes = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n$-1\r\n";
    let Value::Array(mut values) = read(bytes) else {
        panic!("an array");
    };
    assert_eq!(values.next(), Some(Value::Integer(1)));
    let Some(Value::Array(mut inner)) = values.next() else {
        panic!("an array within");
    };
    assert_eq!(inner.next(), Some(Value::String(b"a")));
    assert!(matches!(inner.next(), Some(Value::Array(empty)) if empty.is_empty()));
    assert_eq!(inner.next(), None);
    assert_eq!((values.next(), values.next()), (Some(Value::Null), None));
}

#[test]
fn what_is_no_value_is_refused() {
    let mut deep = Vec::new();
    for _ in 0..=DEPTH_MAX {
        deep.extend(b"*1\r\n");
    }
    let line = [&b"+"[..], &vec![b'a'; LINE_BYTES_MAX + 3]].concat();
    for (bytes, why) in [
        (&b"?1\r\n"[..], RespError::Type(b'?')),
        (b"$x\r\n", RespError::Number),
        (b"$-2\r\n", RespError::Number),
        (b":\r\n", RespError::Number),
        (b"|-1\r\n", RespError::Number),
        (b"+OK\n", RespError::Unterminated),
        (b"$1\r\nabc", RespError::Unterminated),
        (&deep, RespError::Depth),
        (&line, RespError::Line),
        (
            format!("${}\r\n", STRING_BYTES_MAX + 1).as_bytes(),
            RespError::String,
        ),
        (
            format!("*{}\r\n", ELEMENTS_MAX + 1).as_bytes(),
            RespError::Elements,
        ),
        (
            format!("%{}\r\n", ELEMENTS_MAX / 2 + 1).as_bytes(),
            RespError::Elements,
        ),
        (b"*9223372036854775807\r\n", RespError::Elements),
    ] {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        // Nobody reads the value of a number before it is used.
        if why != RespError::Number || bytes[0] != b':' {
            assert_eq!(Scanner::new().scan(bytes), Err(why), "{shown}");
        }
        let read = Value::read(bytes);
        assert!(
            read == Err(why) || read == Ok(None) && why == RespError::Depth,
            "{shown}: {read:?}"
        );
        assert!(!why.to_string().is_empty());
    }
}

#[test]
fn attributes_without_end_are_refused() {
    let many = b"|0\r\n".repeat(100_000);
    assert_eq!(Value::read(&many), Err(RespError::Depth));
    assert_eq!(Scanner::new().scan(&many), Err(RespError::Depth));
    let some = [b"|0\r\n".repeat(3), b":1\r\n".to_vec()].concat();
    assert_eq!(read(&some), Value::Integer(1));
}

#[test]
fn a_line_end_in_a_status_does_not_begin_another_reply() {
    let mut out = Vec::new();
    ReplyWriter::new(&mut out, false).error("ERR a\r\n+OK");
    assert_eq!(ends(&out, 1), Ok(vec![out.len()]));
}

#[test]
fn replies_are_of_the_version_that_was_asked_for() {
    for (is_version_3, expected) in [
        (false, &b"$-1\r\n*-1\r\n*2\r\n:1\r\n:2\r\n"[..]),
        (true, b"_\r\n_\r\n%1\r\n:1\r\n:2\r\n"),
    ] {
        let mut out = Vec::new();
        let mut reply = ReplyWriter::new(&mut out, is_version_3);
        reply.null();
        reply.null_array();
        reply.map(1);
        reply.integer(1);
        reply.integer(2);
        assert_eq!(out, expected);
    }
}

fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let argument = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec(argument, 1..6)
}

proptest! {
    #[test]
    fn commands_are_read_as_they_were_written(
        commands in proptest::collection::vec(arguments(), 1..6),
        piece in 1_usize..30,
        number in any::<i64>(),
    ) {
        let mut bytes = Vec::new();
        for command in &commands {
            let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            CommandWriter::new(&mut bytes).command(&arguments);
        }
        let mut writer = CommandWriter::new(&mut bytes);
        writer.begin(1);
        writer.number(number);
        let ends = ends(&bytes, piece).unwrap();
        prop_assert_eq!(ends.len(), commands.len() + 1);
        let mut from = 0;
        for (command, end) in commands.iter().zip(&ends) {
            let Value::Array(values) = read(&bytes[from..*end]) else {
                panic!("a command is an array");
            };
            let values: Vec<_> = values.filter_map(|value| value.bytes()).collect();
            prop_assert_eq!(&values, command);
            from = *end;
        }
        let Value::Array(mut values) = read(&bytes[from..]) else {
            panic!("a command is an array");
        };
        let digits = number.to_string();
        prop_assert_eq!(values.next().unwrap().bytes().unwrap(), digits.as_bytes());
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1_usize..50) {
        let _ = ends(&bytes, piece);
        if let Ok(Some((value, length))) = Value::read(&bytes) {
            prop_assert!(length <= bytes.len());
            walk(value);
        }
    }

    #[test]
    fn damaged_values_are_cut_the_same_however_they_come(
        commands in proptest::collection::vec(arguments(), 1..4),
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..4),
        piece in 1_usize..30,
    ) {
        let mut bytes = Vec::new();
        for command in &commands {
            let arguments: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            CommandWriter::new(&mut bytes).command(&arguments);
        }
        for (at, byte) in damage {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        let whole = ends(&bytes, bytes.len());
        prop_assert_eq!(ends(&bytes, piece), whole);
    }
}

/// Looks at all of a value.
fn walk(value: Value<'_>) {
    if let Value::Array(values) | Value::Push(values) = value {
        values.for_each(walk);
    }
}
