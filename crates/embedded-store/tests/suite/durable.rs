//! What a store with an append file holds after its process ended, and when the file is damaged.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use asterism_embedded_store::{AppendFile, AppendFileError, Keyspace, Session, Sync};
use asterism_resp::Value;

use crate::connections::{Running, expect};
use crate::replies::{Reply, ask, command};

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("asterism-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("store.commands")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Does these commands in a store with an append file, as a server does.
fn write(path: &Path, commands: &str, from_ms: u64) -> u64 {
    let (mut keyspace, mut session) = (Keyspace::new(1 << 20), Session::new());
    let (mut append_file, cut) =
        AppendFile::open(path, Sync::Always, &mut keyspace).expect("an append file");
    for (words, now_ms) in commands
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .zip(from_ms..)
    {
        let (mut changes, mut out) = (Vec::new(), Vec::new());
        keyspace.advance(now_ms);
        let bytes = command(words);
        let (value, _) = Value::read(&bytes).unwrap().unwrap();
        session.call(&mut keyspace, value, &mut out, Some(&mut changes));
        assert_ne!(out[0], b'-', "{words}");
        append_file.append(&changes, now_ms).expect("it is written");
    }
    cut
}

fn opened(path: &Path) -> (Keyspace, u64) {
    let mut keyspace = Keyspace::new(1 << 20);
    let (_, cut) = AppendFile::open(path, Sync::Never, &mut keyspace).expect("an append file");
    (keyspace, cut)
}

fn says(keyspace: &mut Keyspace, words: &str) -> Reply {
    ask(&mut Session::new(), keyspace, words)
}

const COMMANDS: &str = "
    set a 1
    incrby a 5
    mset c 1 c 2
    set b 2 nx get
    set b 3 nx get
    hset h f 1 g 2
    hdel h f
    hincrby h n 5
    hincrby h n -2
    zadd z 1.5 m 2 n
    zrem z n
    multi
    set t 1
    incr t
    exec
    set kept 1 px 100000
    set gone 1 px 2
    del nothing
    incr gone
    set over 1 pxat 1
    incr over
    del b
";

#[test]
fn all_is_there_again() {
    let folder = Folder::new("again");
    assert_eq!(write(&folder.file(), COMMANDS, 1_000), 0);
    let (mut keyspace, cut) = opened(&folder.file());
    assert_eq!(cut, 0);
    keyspace.advance(1_500);
    let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
    for (words, reply) in [
        ("get a", text("6")),
        ("get b", Reply::Null),
        ("get c", text("2")),
        (
            "hgetall h",
            Reply::Array(["g", "2", "n", "3"].map(text).to_vec()),
        ),
        (
            "zrangebyscore z -inf inf withscores",
            Reply::Array(vec![text("m"), text("1.5")]),
        ),
        ("get t", text("2")),
        ("pttl kept", Reply::Integer(100_000 + 1_015 - 1_500)),
        // Their times had ended, or were over, before they were counted again.
        ("get gone", text("1")),
        ("get over", text("1")),
        ("dbsize", Reply::Integer(8)),
    ] {
        assert_eq!(says(&mut keyspace, words), reply, "{words}");
    }
}

#[test]
fn a_file_that_was_cut_anywhere_has_whole_commands_and_whole_transactions() {
    let folder = Folder::new("cut");
    let path = folder.file();
    write(&path, "set a 1\nmulti\nset a 2\nset b 2\nexec\nset c 3", 1);
    let whole = std::fs::read(&path).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for length in 0..=whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (mut keyspace, cut) = opened(&path);
        let all = says(&mut keyspace, "mget a b c");
        let kept = std::fs::metadata(&path).unwrap().len();
        assert_eq!(kept + cut, length as u64);
        // It goes on where it was cut.
        write(&path, "set d 4", 1);
        let (mut keyspace, cut) = opened(&path);
        assert_eq!((cut, says(&mut keyspace, "mget a b c")), (0, all.clone()));
        assert_eq!(says(&mut keyspace, "exists d"), Reply::Integer(1));
        seen.insert(all);
    }
    let text = |text: &str| Reply::Text(text.into());
    let states = [
        [Reply::Null, Reply::Null, Reply::Null],
        [text("1"), Reply::Null, Reply::Null],
        [text("2"), text("2"), Reply::Null],
        [text("2"), text("2"), text("3")],
    ];
    let states = states.map(|state| Reply::Array(state.to_vec()));
    assert_eq!(seen, states.into_iter().collect());
}

#[test]
fn what_is_no_append_file_is_refused_and_left_alone() {
    let folder = Folder::new("damaged");
    let path = folder.file();
    for damage in [
        &b"*1\r\n$4\r\nping\r\n"[..],
        b"*2\r\n$3\r\nset\r\n$1\r\na\r\n",
        b"*1\r\n$4\r\nexec\r\n",
        b"hello",
        b"hello\n",
        b"[storage]\r\n",
    ] {
        write(&path, "set a 1", 1);
        let good = std::fs::read(&path).unwrap();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(damage).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = AppendFile::open(&path, Sync::Never, &mut Keyspace::new(1 << 20));
        let error = error.expect_err("it is refused");
        assert!(
            matches!(&error, AppendFileError::NotRead { at, .. } if *at == good.len() as u64),
            "{damage:?}: {error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before, "it is as it was");
        std::fs::remove_file(&path).unwrap();
    }
    let error =
        AppendFile::open(&folder.0, Sync::Never, &mut Keyspace::new(1)).expect_err("a folder");
    assert!(error.to_string().contains(&*folder.0.to_string_lossy()));
}

#[test]
fn an_append_file_that_has_grown_is_rewritten_and_holds_the_same() {
    let folder = Folder::new("grown");
    let path = folder.file();
    let (mut keyspace, mut session) = (Keyspace::new(1 << 20), Session::new());
    let (mut append_file, _) = AppendFile::open(&path, Sync::EverySecond, &mut keyspace).unwrap();
    let mut rewritten = 0;
    for round in 0_u64..40_000 {
        let words = match round % 4 {
            0 => format!("set k{} {round} px 100000", round % 64),
            1 => format!("hset h f{} {round}", round % 64),
            2 => format!("zadd z {round} m{}", round % 64),
            _ => "incr n".into(),
        };
        let bytes = command(&words);
        let (value, _) = Value::read(&bytes).unwrap().unwrap();
        let mut changes = Vec::new();
        keyspace.advance(round);
        session.call(&mut keyspace, value, &mut Vec::new(), Some(&mut changes));
        append_file.append(&changes, round).unwrap();
        if append_file.has_grown() {
            append_file.rewrite(&keyspace).unwrap();
            rewritten += 1;
        }
    }
    assert!(rewritten > 0);
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length < 1_100_000, "{length} bytes");
    drop(append_file);
    let (mut again, cut) = opened(&path);
    assert_eq!(cut, 0);
    again.advance(40_000);
    keyspace.advance(40_000);
    for words in [
        "dbsize",
        "get n",
        "hgetall h",
        "zrangebyscore z -inf inf withscores",
        "pttl k60",
        "get k4",
    ] {
        assert_eq!(
            says(&mut again, words),
            says(&mut keyspace, words),
            "{words}"
        );
    }
}

#[test]
fn a_file_that_another_store_has_open_is_refused() {
    let folder = Folder::new("locked");
    let path = folder.file();
    let mut keyspace = Keyspace::new(1 << 20);
    let (mut first, _) = AppendFile::open(&path, Sync::Always, &mut keyspace).unwrap();
    let again = || AppendFile::open(&path, Sync::Always, &mut Keyspace::new(1));
    assert!(matches!(again(), Err(AppendFileError::InUse { .. })));
    // The one that takes its place is locked too.
    first.rewrite(&keyspace).unwrap();
    assert!(matches!(again(), Err(AppendFileError::InUse { .. })));
    drop(first);
    assert!(again().is_ok());
}

#[test]
fn a_server_that_is_started_again_has_what_it_acknowledged() {
    let folder = Folder::new("server");
    let path = folder.file();
    for round in 1..4 {
        let store =
            Running::start(|config| config.append_file = Some((path.clone(), Sync::Always)));
        let mut stream = store.connect();
        stream.write_all(&command("incr n")).unwrap();
        expect(&mut stream, format!(":{round}\r\n").as_bytes());
        store.stop();
    }
}

#[test]
fn a_file_that_cannot_be_rewritten_goes_on() {
    let folder = Folder::new("not-rewritten");
    let path = folder.file();
    let beside = path.with_extension("rewritten");
    let store = Running::start(|config| config.append_file = Some((path.clone(), Sync::Always)));
    let mut stream = store.connect();
    // Where the new file would be there is something else: as on a disk that is full, it cannot be written.
    std::fs::create_dir(&beside).unwrap();
    let large = |key: &str, mib: usize| command(&format!("set {key} {}", "x".repeat(mib << 20)));
    stream.write_all(&large("a", 2)).unwrap();
    expect(&mut stream, b"+OK\r\n");
    let statistics = store.0.statistics();
    let not_rewritten = || statistics.not_rewritten.load(Ordering::Relaxed);
    assert_eq!(not_rewritten(), 1);
    stream.write_all(&command("set b 1")).unwrap();
    expect(&mut stream, b"+OK\r\n");
    assert_eq!(not_rewritten(), 1, "not at once again");
    assert!(statistics.bytes.load(Ordering::Relaxed) > 2 << 20);
    // It is tried again when the file has grown to twice as much.
    std::fs::remove_dir(&beside).unwrap();
    stream.write_all(&large("a", 3)).unwrap();
    expect(&mut stream, b"+OK\r\n");
    assert_eq!(not_rewritten(), 1);
    store.stop();
    let mut keyspace = Keyspace::new(1 << 24);
    let opened = AppendFile::open(&path, Sync::Never, &mut keyspace);
    assert_eq!(opened.expect("an append file").1, 0, "all of it is whole");
    assert_eq!(
        says(&mut keyspace, "get a"),
        Reply::Text(vec![b'x'; 3 << 20])
    );
    assert_eq!(says(&mut keyspace, "get b"), Reply::Text(b"1".to_vec()));
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 4 << 20, "{bytes}: it was rewritten");
}
