//! Where lines go: a file, a pipe, a socket or standard output, written by a thread of its own.
//!
//! Lines are handed over without waiting; what finds no room, no disk or no reader is lost and counted. Each line is written by
//! one call, and is no longer than what pipes and sockets take whole; what a full disk took a part of is cut off again. So a
//! reader never sees a half line followed by another. A file that was moved away is made again by the next line.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Lines that wait for the thread at most; further ones are lost.
pub const QUEUE_LINES_MAX: usize = 4_096;
/// How long a reader may take to make room for a line.
const PATIENCE_MS: i64 = 1_000;
/// How often what cannot be opened is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long the end waits for lines that are left.
const LAST_LINES_MS: u32 = 1_000;

/// What was written, as `status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinesDocument {
    /// Lines that were written.
    pub lines: u64,
    /// Lines that could not be written, and are lost.
    pub lines_lost: u64,
}

/// What was written and lost; shared with anyone who tells it.
#[derive(Debug, Default)]
pub struct Counts {
    is_on: AtomicBool,
    lines: AtomicU64,
    lost: AtomicU64,
    /// Why a line was lost last: an error of the operating system's, or one of those below.
    why: AtomicI32,
    /// Lines that wait for the thread.
    waiting: AtomicUsize,
}

/// Why no lines are written.
#[derive(Debug, Error)]
pub enum LinesError {
    /// The place cannot be opened, and will not be by waiting.
    #[error("{} cannot be written: {error}", .path.display())]
    NotOpened {
        /// The place.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no thread to be had. The place is closed again.
    #[error("no thread to write lines: {0}")]
    NoThread(io::Error),
}

const QUEUE_FULL: i32 = -1;
const FILE_FULL: i32 = -2;
const NO_READER: i32 = -3;
const NOT_OPEN: i32 = -4;
const ENDED: i32 = -5;

impl Counts {
    /// The counts now; `None` where nothing is written.
    #[must_use]
    pub fn document(&self) -> Option<LinesDocument> {
        self.is_on
            .load(Ordering::Relaxed)
            .then(|| self.document_always())
    }

    fn document_always(&self) -> LinesDocument {
        LinesDocument {
            lines: self.lines.load(Ordering::Relaxed),
            lines_lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Why a line was lost last, in words.
    #[must_use]
    pub fn why(&self) -> String {
        match self.why.load(Ordering::Relaxed) {
            QUEUE_FULL => format!("{QUEUE_LINES_MAX} lines wait already"),
            FILE_FULL => "the file has size_max bytes".to_owned(),
            NO_READER => "the reader does not read".to_owned(),
            NOT_OPEN => "it cannot be opened, or nobody reads it".to_owned(),
            ENDED => format!("they were not written within {LAST_LINES_MS} ms of the end"),
            error => io::Error::from_raw_os_error(error).to_string(),
        }
    }

    fn lose(&self, lines: u64, why: i32) {
        self.why.store(why, Ordering::Relaxed);
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file on a disk: its size is bounded, and what was written in part is cut off.
    File,
    /// A pipe, a terminal, a device.
    Stream,
    /// A socket.
    Socket,
}

/// A place for lines.
#[derive(Debug)]
pub struct Sink {
    path: PathBuf,
    size_max: u64,
    kind: Kind,
    /// `None`: nobody listens there now.
    open: Option<OwnedFd>,
    /// The last line found no room: the next ones do not wait.
    is_stalled: bool,
}

impl Sink {
    /// Opens a place: `-` for standard output, a file that is appended to, a named pipe, or a Unix socket that somebody listens at. A
    /// pipe without a reader and a socket without a listener are opened later.
    ///
    /// # Errors
    /// [`LinesError::NotOpened`].
    pub fn open(path: &Path, size_max: u64) -> Result<Sink, LinesError> {
        let mut sink = Sink {
            path: path.to_owned(),
            size_max,
            kind: Kind::Stream,
            open: None,
            is_stalled: false,
        };
        match sink.open_again() {
            Ok(()) => Ok(sink),
            Err(_) if sink.may_come() => Ok(sink),
            Err(error) => Err(LinesError::NotOpened {
                path: sink.path,
                error,
            }),
        }
    }

    /// Whether it is a pipe or a socket, whose other end may come later.
    fn may_come(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|metadata| {
            metadata.file_type().is_fifo() || metadata.file_type().is_socket()
        })
    }

    fn open_again(&mut self) -> io::Result<()> {
        self.open = None;
        if self.path == Path::new("-") {
            let copy = io::stdout().as_fd().try_clone_to_owned()?;
            let is_file = std::fs::File::from(copy.try_clone()?).metadata()?.is_file();
            self.kind = if is_file { Kind::File } else { Kind::Stream };
            self.open = Some(copy);
            return Ok(());
        }
        let found = std::fs::metadata(&self.path)
            .ok()
            .map(|metadata| metadata.file_type());
        if found.is_some_and(|found| found.is_socket()) {
            self.kind = Kind::Socket;
            self.open = Some(connect(&self.path)?);
            return Ok(());
        }
        let is_file = found.is_none_or(|found| found.is_file());
        self.kind = if is_file { Kind::File } else { Kind::Stream };
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = std::fs::OpenOptions::new()
            .append(true)
            .read(is_file)
            .create(is_file)
            .mode(0o640)
            .custom_flags(flags)
            .open(&self.path)?;
        if is_file {
            end_last_line(&file)?;
        }
        self.open = Some(file.into());
        Ok(())
    }

    /// Whether a file is still the one that its path names.
    fn is_there(&self, open: &OwnedFd) -> bool {
        let identity = |found: rustix::fs::Stat| (found.st_dev, found.st_ino);
        let (Ok(written), Ok(named)) = (rustix::fs::fstat(open), rustix::fs::stat(&self.path))
        else {
            return self.path == Path::new("-");
        };
        self.path == Path::new("-") || identity(written) == identity(named)
    }

    /// Writes a line with its end, or says why it is lost.
    ///
    /// # Errors
    /// A number for [`Counts::why`].
    fn write(&mut self, line: &[u8]) -> Result<(), i32> {
        if self.open.is_none() {
            self.open_again().map_err(|_| NOT_OPEN)?;
        }
        let Some(open) = &self.open else {
            return Err(NOT_OPEN);
        };
        if self.kind == Kind::File {
            if !self.is_there(open) {
                // What cannot be made again is written where it is now.
                let moved = self.open.take();
                if self.open_again().is_err() {
                    self.open = moved;
                }
            }
            let open = self.open.as_ref().ok_or(NOT_OPEN)?;
            return write_file(open, line, self.size_max);
        }
        let patience = if self.is_stalled { 0 } else { PATIENCE_MS };
        let result = write_stream(open, line, patience);
        self.is_stalled = result == Err(NO_READER);
        if result.is_err() && !self.is_stalled {
            // It ended: the next line tries again.
            self.open = None;
        }
        result
    }
}

/// Connects to a listener, whatever kind of socket it has. Does not wait for one that has no time.
fn connect(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let mut last = Errno::PROTOTYPE;
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
        if last != Errno::PROTOTYPE {
            break;
        }
    }
    Err(last.into())
}

/// Ends a line that a machine which lost its power left without its end.
fn end_last_line(mut file: &std::fs::File) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom, Write};
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn write_file(file: &OwnedFd, line: &[u8], size_max: u64) -> Result<(), i32> {
    let code = |error: Errno| error.raw_os_error();
    let before = rustix::fs::fstat(file).map_err(code)?.st_size;
    let before = u64::try_from(before).unwrap_or(0);
    if before.saturating_add(line.len() as u64) > size_max {
        return Err(FILE_FULL);
    }
    let written = match rustix::io::write(file, line) {
        Ok(written) if written == line.len() => return Ok(()),
        Ok(written) => written,
        Err(error) => return Err(code(error)),
    };
    if written > 0 {
        rustix::fs::ftruncate(file, before).map_err(code)?;
    }
    Err(Errno::NOSPC.raw_os_error())
}

fn write_stream(stream: &OwnedFd, line: &[u8], patience_ms: i64) -> Result<(), i32> {
    let mut ready = [PollFd::new(stream, PollFlags::OUT)];
    let wait = Timespec {
        tv_sec: patience_ms / 1_000,
        tv_nsec: (patience_ms % 1_000) * 1_000_000,
    };
    match poll(&mut ready, Some(&wait)) {
        Ok(0) | Err(Errno::INTR) => return Err(NO_READER),
        Ok(_) => {}
        Err(error) => return Err(error.raw_os_error()),
    }
    match rustix::io::write(stream, line) {
        Ok(written) if written == line.len() => Ok(()),
        Ok(_) => Err(Errno::PIPE.raw_os_error()),
        Err(Errno::AGAIN | Errno::INTR) => Err(NO_READER),
        Err(error) => Err(error.raw_os_error()),
    }
}

enum Message {
    Line(String),
    Use(Sink),
}

/// Hands lines to the thread that writes them.
#[derive(Debug)]
pub struct Writer {
    messages: SyncSender<Message>,
    thread: JoinHandle<()>,
    counts: Arc<Counts>,
}

impl Writer {
    /// Starts the thread, under a name of 15 bytes at most.
    ///
    /// # Errors
    /// [`LinesError::NoThread`].
    pub fn start(name: &str, sink: Sink, counts: Arc<Counts>) -> Result<Writer, LinesError> {
        let (messages, received) = sync_channel(QUEUE_LINES_MAX);
        let counts_of = counts.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || write_all(sink, &received, &counts_of))
            .map_err(LinesError::NoThread)?;
        counts.is_on.store(true, Ordering::Relaxed);
        Ok(Writer {
            messages,
            thread,
            counts,
        })
    }

    /// Hands a line over; one that finds no room is lost and counted. Never waits.
    pub fn line(&self, line: String) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if self.messages.try_send(Message::Line(line)).is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lose(1, QUEUE_FULL);
        }
    }

    /// So many lines find room now.
    #[must_use]
    pub fn room(&self) -> usize {
        QUEUE_LINES_MAX.saturating_sub(self.counts.waiting.load(Ordering::Relaxed))
    }

    /// Goes on at another place, or at the same opened again, behind all lines handed over so far. Gives it back if there is no room to
    /// say so now. Never waits.
    ///
    /// # Errors
    /// The place, to be handed over later.
    pub fn go_on_at(&self, sink: Sink) -> Result<(), Box<Sink>> {
        match self.messages.try_send(Message::Use(sink)) {
            Err(TrySendError::Full(Message::Use(sink))) => Err(Box::new(sink)),
            // A thread that ended takes no lines either, which are counted.
            _ => Ok(()),
        }
    }

    /// What was written and lost by now.
    #[must_use]
    pub fn counts(&self) -> LinesDocument {
        self.counts.document_always()
    }

    /// Ends once all lines are written, or after a second: what was not written by then is lost. What was written and lost in all.
    pub fn end(self) -> LinesDocument {
        let Writer {
            messages,
            thread,
            counts,
        } = self;
        drop(messages);
        for _ in 0..LAST_LINES_MS {
            if thread.is_finished() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let waiting = counts.waiting.load(Ordering::Relaxed);
        if waiting > 0 {
            counts.lose(waiting as u64, ENDED);
        }
        counts.is_on.store(false, Ordering::Relaxed);
        counts.document_always()
    }
}

fn write_all(mut sink: Sink, messages: &Receiver<Message>, counts: &Counts) {
    loop {
        // A pipe that got a reader is opened before there is a line for it.
        match messages.recv_timeout(AGAIN) {
            Ok(Message::Line(line)) => {
                match sink.write(line.as_bytes()) {
                    Ok(()) => {
                        counts.lines.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(why) => counts.lose(1, why),
                }
                counts.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(Message::Use(other)) => sink = other,
            Err(RecvTimeoutError::Timeout) => {
                if sink.open.is_none() {
                    let _ = sink.open_again();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
