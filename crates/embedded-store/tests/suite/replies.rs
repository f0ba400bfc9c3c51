//! Commands of a session, and their replies as values.

use std::sync::Arc;

use asterism_embedded_store::{After, Keyspace, Session};
use asterism_resp::{CommandWriter, Value};

/// A reply that owns its bytes. Numbers with a fraction are strings in either version, and nothing is nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Text(Vec<u8>),
    Null,
    Boolean(bool),
    Array(Vec<Reply>),
}

impl Reply {
    pub(crate) fn of(value: Value<'_>) -> Reply {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match value {
            Value::Status(bytes) => Reply::Status(text(bytes)),
            Value::Error(bytes) => Reply::Error(text(bytes)),
            Value::Integer(number) => Reply::Integer(number),
            Value::String(bytes) => Reply::Text(bytes.to_vec()),
            Value::Null => Reply::Null,
            Value::Boolean(is) => Reply::Boolean(is),
            Value::Array(values) | Value::Push(values) => {
                Reply::Array(values.map(Reply::of).collect())
            }
        }
    }
}

/// A command of words; `\0` stands for a space within one.
pub(crate) fn command(words: &str) -> Vec<u8> {
    let words: Vec<Vec<u8>> = words
        .split_whitespace()
        .map(|word| word.replace('\0', " ").into_bytes())
        .collect();
    let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut bytes = Vec::new();
    CommandWriter::new(&mut bytes).command(&arguments);
    bytes
}

/// What a session replies.
pub(crate) fn ask(session: &mut Session, keyspace: &mut Keyspace, words: &str) -> Reply {
    let bytes = command(words);
    let (value, _) = Value::read(&bytes).expect("a command").expect("whole");
    let mut out = Vec::new();
    let after = session.call(keyspace, value, &mut out, None);
    assert_eq!(after, After::GoesOn, "{words}");
    let (reply, length) = Value::read(&out).expect("a reply").expect("whole");
    assert_eq!(length, out.len(), "one reply for a command");
    Reply::of(reply)
}

fn status(text: &str) -> Reply {
    Reply::Status(text.into())
}
fn text(text: &str) -> Reply {
    Reply::Text(text.as_bytes().to_vec())
}

const PLENTY: usize = 1 << 20;

#[test]
fn keys_end_at_their_time() {
    let (mut session, mut keyspace) = (Session::new(), Keyspace::new(PLENTY));
    let mut ask = |keyspace: &mut Keyspace, words: &str| ask(&mut session, keyspace, words);
    keyspace.advance(1_000);
    assert_eq!(ask(&mut keyspace, "set a 1 px 500"), status("OK"));
    assert_eq!(ask(&mut keyspace, "set b 1"), status("OK"));
    assert_eq!(ask(&mut keyspace, "pexpire b 700"), Reply::Integer(1));
    assert_eq!(ask(&mut keyspace, "pttl a"), Reply::Integer(500));
    assert_eq!(keyspace.next_due_ms(), Some(1_500));
    keyspace.advance(1_499);
    assert_eq!(
        ask(&mut keyspace, "mget a b"),
        Reply::Array(vec![text("1"), text("1")])
    );
    keyspace.advance(1_500);
    assert_eq!(
        ask(&mut keyspace, "mget a b"),
        Reply::Array(vec![Reply::Null, text("1")])
    );
    // Another value has no time, one that is kept has the time that it had.
    assert_eq!(ask(&mut keyspace, "set b 2 keepttl"), status("OK"));
    assert_eq!(ask(&mut keyspace, "incrby b 3"), Reply::Integer(5));
    assert_eq!(ask(&mut keyspace, "pttl b"), Reply::Integer(200));
    assert_eq!(ask(&mut keyspace, "mset b 1 b 5"), status("OK"));
    assert_eq!(ask(&mut keyspace, "pttl b"), Reply::Integer(-1));
    assert_eq!(ask(&mut keyspace, "pexpire b 200"), Reply::Integer(1));
    assert_eq!(ask(&mut keyspace, "persist b"), Reply::Integer(1));
    keyspace.advance(9_000);
    assert_eq!(ask(&mut keyspace, "get b"), text("5"));
    assert_eq!(ask(&mut keyspace, "pexpireat b 8999"), Reply::Integer(1));
    assert_eq!(ask(&mut keyspace, "exists b"), Reply::Integer(0));
    assert_eq!(
        (keyspace.len(), keyspace.bytes(), keyspace.expired()),
        (0, 0, 2)
    );
    // Time does not go back.
    keyspace.advance(5);
    assert_eq!(ask(&mut keyspace, "set a 1 pxat 9000"), status("OK"));
    assert_eq!(ask(&mut keyspace, "get a"), Reply::Null);
}

#[test]
fn a_transaction_is_not_made_when_a_watched_key_has_changed() {
    let (mut one, mut other) = (Session::new(), Session::new());
    let mut keyspace = Keyspace::new(PLENTY);
    for (change, is_made) in [
        ("get a", true),
        ("set b 1", true),
        ("set a 2", false),
        ("set a 1", false),
        ("del a", false),
        ("pexpire a 9000", false),
        ("flushall", false),
    ] {
        ask(&mut one, &mut keyspace, "set a 1");
        ask(&mut one, &mut keyspace, "watch a");
        ask(&mut other, &mut keyspace, change);
        ask(&mut one, &mut keyspace, "multi");
        ask(&mut one, &mut keyspace, "incrby n 1");
        let reply = ask(&mut one, &mut keyspace, "exec");
        assert_eq!(reply != Reply::Null, is_made, "{change}");
        // Nothing is watched any more.
        ask(&mut other, &mut keyspace, "set a 9");
        ask(&mut one, &mut keyspace, "multi");
        assert_eq!(ask(&mut one, &mut keyspace, "exec"), Reply::Array(vec![]));
    }
    keyspace.advance(10);
    ask(&mut one, &mut keyspace, "set a 1 px 5");
    ask(&mut one, &mut keyspace, "watch a");
    keyspace.advance(15);
    ask(&mut one, &mut keyspace, "multi");
    assert_eq!(
        ask(&mut one, &mut keyspace, "exec"),
        Reply::Null,
        "its time ended"
    );
}

#[test]
fn a_full_store_refuses_what_adds_and_goes_on() {
    let (mut session, mut keyspace) = (Session::new(), Keyspace::new(10_000));
    let mut added = 0;
    let refused = loop {
        let reply = ask(
            &mut session,
            &mut keyspace,
            &format!("set key{added} {}", "v".repeat(100)),
        );
        match reply {
            Reply::Error(text) => break text,
            _ => added += 1,
        }
        assert!(added < 1_000);
    };
    assert!(refused.starts_with("OOM "), "{refused}");
    assert!((30..100).contains(&added), "{added}");
    ask(&mut session, &mut keyspace, "multi");
    assert!(matches!(
        ask(&mut session, &mut keyspace, "set more 1"),
        Reply::Error(_)
    ));
    let reply = ask(&mut session, &mut keyspace, "exec");
    assert!(matches!(reply, Reply::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(
        ask(&mut session, &mut keyspace, "get key0"),
        text(&"v".repeat(100))
    );
    for key in 0..10 {
        ask(&mut session, &mut keyspace, &format!("del key{key}"));
    }
    assert_eq!(ask(&mut session, &mut keyspace, "set more 1"), status("OK"));
    ask(&mut session, &mut keyspace, "flushall");
    assert_eq!(keyspace.bytes(), 0);
}

#[test]
fn a_scan_finds_once_what_is_there_all_the_while() {
    let (mut session, mut keyspace) = (Session::new(), Keyspace::new(PLENTY));
    for number in 0..200 {
        ask(
            &mut session,
            &mut keyspace,
            &format!("set stays:{number} 1"),
        );
        ask(&mut session, &mut keyspace, &format!("set goes:{number} 1"));
    }
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let words = format!("scan {cursor} match st?ys:* count 7");
        let Reply::Array(parts) = ask(&mut session, &mut keyspace, &words) else {
            panic!("a cursor and keys");
        };
        let [Reply::Text(next), Reply::Array(keys)] = parts.as_slice() else {
            panic!("a cursor and keys");
        };
        found.extend(keys.clone());
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
        ask(&mut session, &mut keyspace, &format!("del goes:{steps}"));
        ask(
            &mut session,
            &mut keyspace,
            &format!("set stays:{steps} again"),
        );
        ask(&mut session, &mut keyspace, &format!("set new:{steps} 1"));
        steps += 1;
    }
    assert!(steps > 40);
    assert_eq!(found.len(), 200);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 200);
}

#[test]
fn a_connection_hears_of_all_keys_that_begin_as_it_says() {
    let (mut one, mut other) = (Session::new(), Session::new());
    let mut keyspace = Keyspace::new(PLENTY << 4);
    ask(&mut one, &mut keyspace, "hello 3");
    let begin = "client tracking on bcast prefix {a} prefix {b}";
    assert_eq!(ask(&mut one, &mut keyspace, begin), status("OK"));
    for words in ["set {a}1 1", "set {b}2 1", "set {c}3 1", "set {a}1 2"] {
        ask(&mut other, &mut keyspace, words);
    }
    // What it reads it need not hear of.
    ask(&mut one, &mut keyspace, "get {c}3");
    ask(&mut other, &mut keyspace, "set {c}3 2");
    let invalidate = |keys: &[&str]| {
        let keys = keys.iter().copied().map(text).collect();
        Reply::Array(vec![text("invalidate"), Reply::Array(keys)])
    };
    // Each once, and behind the reply to what was asked after the change.
    let sent = command("get {a}1");
    let (value, _) = Value::read(&sent).expect("a command").expect("whole");
    let mut out = Vec::new();
    one.call(&mut keyspace, value, &mut out, None);
    assert_eq!(out, b"$1\r\n2\r\n");
    assert_eq!(
        heard(&mut one, &mut keyspace),
        [invalidate(&["{a}1", "{b}2"])]
    );
    assert_eq!(heard(&mut one, &mut keyspace), []);
    // It hears of its own changes, and when a key ends.
    ask(&mut one, &mut keyspace, "set {a}4 1 px 5");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["{a}4"])]);
    keyspace.advance(5);
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["{a}4"])]);
    // What it is to hear is bounded: with more all has changed.
    let long = "k".repeat(3 << 19);
    for number in 0..4 {
        ask(
            &mut other,
            &mut keyspace,
            &format!("set {{a}}{number}{long} 1"),
        );
    }
    let announced = heard(&mut one, &mut keyspace);
    let all = Reply::Array(vec![text("invalidate"), Reply::Null]);
    assert_eq!(announced.first(), Some(&all));
    // So are the prefixes of a connection.
    ask(&mut one, &mut keyspace, "client tracking off");
    for number in 10..74 {
        let words = format!("client tracking on bcast prefix {number}");
        assert_eq!(ask(&mut one, &mut keyspace, &words), status("OK"));
    }
    let reply = ask(
        &mut one,
        &mut keyspace,
        "client tracking on bcast prefix 74",
    );
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    ask(&mut one, &mut keyspace, "client tracking off");
    ask(&mut other, &mut keyspace, "set 10 1");
    ask(&mut other, &mut keyspace, "set {a}1 1");
    assert_eq!(heard(&mut one, &mut keyspace), []);
}

#[test]
fn a_stranger_is_asked_for_a_password_first() {
    let passwords: Arc<[String]> = ["sesame".to_owned(), "other".to_owned()].into();
    let mut keyspace = Keyspace::new(PLENTY);
    let mut session = Session::with_passwords(Some(passwords.clone()));
    let mut say = |session: &mut Session, words: &[&str]| {
        let sent = command(&words.join(" "));
        let (value, _) = Value::read(&sent).expect("it is whole").expect("it is one");
        let mut out = Vec::new();
        session.call(&mut keyspace, value, &mut out, None);
        String::from_utf8(out).expect("text")
    };
    for words in [
        &["GET", "a"][..],
        &["SET", "a", "1"],
        &["MULTI"],
        &["PING"],
        &["FLUSHALL"],
        &["no such command"],
        &["HELLO", "3"],
    ] {
        let said = say(&mut session, words);
        assert!(said.starts_with("-NOAUTH"), "{words:?}: {said}");
    }
    for words in [
        &["AUTH", "sesam"][..],
        &["AUTH", "sesamee"],
        &["AUTH", "eve", "sesame"],
        &["HELLO", "3", "AUTH", "default", "x"],
    ] {
        let said = say(&mut session, words);
        assert!(said.starts_with("-WRONGPASS"), "{words:?}: {said}");
    }
    assert!(say(&mut session, &["AUTH", "a", "b", "c"]).starts_with("-ERR wrong number"));
    assert!(say(&mut session, &["GET", "a"]).starts_with("-NOAUTH"));
    assert_eq!(say(&mut session, &["AUTH", "sesame"]), "+OK\r\n");
    assert_eq!(say(&mut session, &["SET", "a", "1"]), "+OK\r\n");
    // Another password changes nothing.
    assert!(say(&mut session, &["AUTH", "x"]).starts_with("-WRONGPASS"));
    assert_eq!(say(&mut session, &["GET", "a"]), "$1\r\n1\r\n");
    let mut other = Session::with_passwords(Some(passwords.clone()));
    let hello = ["HELLO", "2", "AUTH", "default", "sesame"];
    assert!(say(&mut other, &hello).starts_with("*10\r\n"));
    assert_eq!(say(&mut other, &["GET", "a"]), "$1\r\n1\r\n");
    // While others come into force, who has shown one of them goes on.
    assert!(session.set_passwords(passwords[..1].into()));
    assert!(session.set_passwords(["another".to_owned(), "sesame".to_owned()].into()));
    assert!(!session.set_passwords(passwords[1..].into()));
    let mut late = Session::with_passwords(Some(passwords));
    assert!(late.set_passwords(["another".to_owned()].into()));
    assert!(say(&mut late, &["AUTH", "sesame"]).starts_with("-WRONGPASS"));
    assert_eq!(say(&mut late, &["AUTH", "another"]), "+OK\r\n");
    // Nobody can log in by none.
    let mut closed = Session::with_passwords(Some([].into()));
    assert!(say(&mut closed, &["AUTH", "sesame"]).starts_with("-WRONGPASS"));
    assert!(say(&mut closed, &["GET", "a"]).starts_with("-NOAUTH"));
    let mut open = Session::new();
    assert!(say(&mut open, &["AUTH", "x"]).starts_with("-ERR AUTH"));
    assert!(say(&mut open, &["HELLO", "3", "AUTH", "default", "x"]).starts_with("-ERR AUTH"));
}

/// What a session hears besides replies.
fn heard(session: &mut Session, keyspace: &mut Keyspace) -> Vec<Reply> {
    let mut out = Vec::new();
    session.tell(keyspace, &mut out);
    let mut heard = Vec::new();
    let mut rest = out.as_slice();
    while let Some((value, length)) = Value::read(rest).expect("what it hears is whole") {
        assert!(matches!(value, Value::Push(_)), "{value:?}");
        heard.push(Reply::of(value));
        rest = &rest[length..];
    }
    heard
}

#[test]
fn a_connection_that_tracks_hears_once_of_what_it_read() {
    let (mut one, mut other) = (Session::new(), Session::new());
    let mut keyspace = Keyspace::new(PLENTY);
    let invalidate = |keys: &[&str]| {
        let keys = match keys {
            [] => Reply::Null,
            keys => Reply::Array(keys.iter().copied().map(text).collect()),
        };
        Reply::Array(vec![text("invalidate"), keys])
    };
    for (version, words) in [
        ("2", "client tracking on"),
        ("3", "client tracking on optin"),
        ("3", "client tracking"),
    ] {
        ask(&mut one, &mut keyspace, &format!("hello {version}"));
        let reply = ask(&mut one, &mut keyspace, words);
        assert!(matches!(reply, Reply::Error(_)), "{words}: {reply:?}");
    }
    assert_eq!(
        ask(&mut one, &mut keyspace, "client tracking on"),
        status("OK")
    );
    ask(&mut one, &mut keyspace, "mget a b");
    ask(&mut one, &mut keyspace, "set c 1");
    for words in ["get a", "set c 2", "set d 1"] {
        ask(&mut other, &mut keyspace, words);
        assert_eq!(heard(&mut one, &mut keyspace), [], "{words}");
    }
    ask(&mut other, &mut keyspace, "set a 1");
    ask(&mut other, &mut keyspace, "set a 2");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["a"])]);
    // What comes and goes again has changed, also by its time, by a transaction, and by the connection itself.
    ask(&mut other, &mut keyspace, "set b 1 px 5");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["b"])]);
    ask(&mut one, &mut keyspace, "multi");
    ask(&mut one, &mut keyspace, "zcount e 0 1");
    ask(&mut one, &mut keyspace, "get b");
    ask(&mut one, &mut keyspace, "exec");
    keyspace.advance(5);
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["b"])]);
    ask(&mut one, &mut keyspace, "zadd e 1 x");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&["e"])]);
    // It stands before the reply to what was asked after the change.
    ask(&mut one, &mut keyspace, "get a");
    ask(&mut other, &mut keyspace, "set a 3");
    let sent = command("get a");
    let (value, _) = Value::read(&sent).expect("a command").expect("whole");
    let mut out = Vec::new();
    one.call(&mut keyspace, value, &mut out, None);
    assert_eq!(
        out,
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n$1\r\n3\r\n"
    );
    ask(&mut other, &mut keyspace, "flushall");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&[])]);
    // What is tracked is bounded: the first of too many bytes of keys counts as changed.
    let long = "k".repeat(15 << 20);
    for number in 0..5 {
        assert_eq!(heard(&mut one, &mut keyspace), [], "{number}");
        ask(&mut one, &mut keyspace, &format!("exists {number}{long}"));
    }
    let first = format!("0{long}");
    assert_eq!(heard(&mut one, &mut keyspace), [invalidate(&[&first])]);
    ask(&mut one, &mut keyspace, "get a");
    ask(&mut one, &mut keyspace, "hello 2");
    ask(&mut other, &mut keyspace, "set a 4");
    assert_eq!(heard(&mut one, &mut keyspace), []);
}
