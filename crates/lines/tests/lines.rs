//! Lines to files, pipes and sockets that are full, go away or come back: what is written, and what is counted as lost.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asterism_lines::{Counts, LinesDocument, QUEUE_LINES_MAX, Sink, Writer};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixDatagram, UnixListener};

const NO_BOUND: u64 = u64::MAX;

fn writer(path: &Path, size_max: u64) -> (Writer, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let sink = Sink::open(path, size_max).unwrap();
    (
        Writer::start("lines", sink, counts.clone()).unwrap(),
        counts,
    )
}

fn wait(what: &str, there: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if there() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("waited for {what} in vain");
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_file_is_appended_to_opened_again_and_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.json");
    std::fs::write(&path, "half").unwrap();
    let (writer, counts) = writer(&path, 20);
    let both = |lines, lines_lost| {
        wait("the counts", || {
            counts.document() == Some(LinesDocument { lines, lines_lost })
        });
    };
    writer.line("first\n".to_owned());
    writer.line("second\n".to_owned());
    both(2, 0);
    assert_eq!(lines(&path), ["half", "first", "second"]);
    writer.line("third\n".to_owned());
    both(2, 1);
    assert_eq!(counts.why(), "the file has size_max bytes");
    // As logrotate does it, whether it tells or not.
    let moved = folder.path().join("eve.json.1");
    std::fs::rename(&path, &moved).unwrap();
    writer.line("moved\n".to_owned());
    both(3, 1);
    assert_eq!(lines(&path), ["moved"]);
    assert_eq!(lines(&moved), ["half", "first", "second"]);
    std::fs::remove_file(&path).unwrap();
    writer.go_on_at(Sink::open(&path, 20).unwrap()).unwrap();
    writer.line("fourth\n".to_owned());
    both(4, 1);
    assert_eq!(lines(&path), ["fourth"]);
    // As its `copytruncate` does.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    writer.line("fifth\n".to_owned());
    both(5, 1);
    assert_eq!(lines(&path), ["fifth"]);
    writer.end();
    assert_eq!(counts.document(), None);
}

#[test]
fn a_full_disk_loses_lines_and_nothing_else() {
    let (writer, counts) = writer(Path::new("/dev/full"), NO_BOUND);
    for _ in 0..10 {
        writer.line("line\n".to_owned());
    }
    wait("losses", || counts.document().unwrap().lines_lost == 10);
    assert_eq!(counts.document().unwrap().lines, 0);
    assert!(counts.why().contains("space"), "{}", counts.why());
    writer.end();
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent/eve.json");
    assert!(
        Sink::open(&absent, NO_BOUND)
            .unwrap_err()
            .to_string()
            .contains("eve.json cannot be written")
    );
    assert!(Sink::open(folder.path(), NO_BOUND).is_err());
}

#[test]
fn a_pipe_without_a_reader_and_with_one_that_does_not_read_loses_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let (writer, counts) = writer(&path, NO_BOUND);
    assert_eq!(writer.room(), QUEUE_LINES_MAX);
    writer.line("nobody reads\n".to_owned());
    wait("the loss", || counts.document().unwrap().lines_lost == 1);
    let mut reader = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(&path)
        .unwrap();
    // Far more than a pipe holds, and more than may wait.
    let line = format!("{:01000}\n", 7);
    let sent = 2 * QUEUE_LINES_MAX as u64;
    for _ in 0..sent {
        writer.line(line.clone());
    }
    wait("all lines", || {
        let now = counts.document().unwrap();
        now.lines + now.lines_lost == sent + 1
    });
    wait("room", || writer.room() == QUEUE_LINES_MAX);
    let now = counts.document().unwrap();
    assert!(now.lines >= 16 && now.lines_lost > 1_000, "{now:?}");
    let mut read = Vec::new();
    let mut part = [0; 65_536];
    while let Ok(length @ 1..) = reader.read(&mut part) {
        read.extend_from_slice(&part[..length]);
    }
    assert_eq!(read.len() as u64, now.lines * line.len() as u64);
    assert!(read.chunks(line.len()).all(|each| each == line.as_bytes()));
    writer.line("there is room again\n".to_owned());
    wait("a line", || {
        counts.document().unwrap().lines == now.lines + 1
    });
    writer.end();
}

#[test]
fn sockets_of_both_kinds_are_written_and_connected_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("eve.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (writer, counts) = writer(&path, NO_BOUND);
    writer.line("one\n".to_owned());
    let (first, _) = listener.accept().unwrap();
    let mut text = String::new();
    BufReader::new(first).read_line(&mut text).unwrap();
    assert_eq!(text, "one\n");
    // The first reader is gone: a line or two are lost before that is known.
    wait("another connection", || {
        writer.line("two\n".to_owned());
        listener.set_nonblocking(true).unwrap();
        listener.accept().is_ok()
    });
    assert!(counts.document().unwrap().lines_lost >= 1);
    writer.end();
    std::fs::remove_file(&path).unwrap();
    let datagrams = UnixDatagram::bind(&path).unwrap();
    let (writer, _) = crate::writer(&path, NO_BOUND);
    writer.line("whole\n".to_owned());
    let mut buffer = [0; 64];
    let length = datagrams.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"whole\n");
    writer.end();
}
