//! Hands epochs to running hosts. Members and incarnations of a cluster are decided above the hosts, and each host receives
//! them.
//!
//! [`hand`] sends the text of an epoch over a host's control socket, a Unix socket of mode 0600 on the host's own machine,
//! and returns the epoch in force there afterwards. The host checks it like its own file and writes it to disk before it is
//! in force. The socket's permissions protect it as the file's do: any process that may connect may hand an epoch. Handing an
//! epoch again is always safe: after a lost answer, after a restart, or to all hosts because one did not answer.
//!
//! Request and answer are types of `asterism_epochs`, which the host uses too.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use asterism_epochs::{EPOCH_BYTES_MAX, InForce, Refusal, Request};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Deserialize;

use crate::clock;

/// Bytes of a host's answer at most.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Why it is not known that an epoch is in force at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandError {
    /// The host refused it. Nothing changed there, but as [`Refusal::Busy`] says.
    Refused {
        /// Why.
        reason: Refusal,
        /// The same in its words.
        why: String,
    },
    /// No host listens at the socket. Nothing changed.
    NoHost(String),
    /// The socket is there, and could not be connected to. Nothing changed.
    Unreachable(String),
    /// The text is longer than [`EPOCH_BYTES_MAX`]: it was not sent.
    TooLong {
        /// Its bytes.
        bytes: usize,
    },
    /// The host did not answer in time or the connection broke: whether the epoch is in force is not known. Hand it again.
    NoAnswer(String),
    /// The host answered what is not understood: whether the epoch is in force is not known.
    Unreadable(String),
}

impl fmt::Display for HandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandError::Refused { reason, why } => write!(f, "refused ({}): {why}", reason.as_str()),
            HandError::NoHost(said) => write!(f, "no host runs at {said}: nothing was changed"),
            HandError::Unreachable(said) => {
                write!(f, "{said}: nothing was changed")
            }
            HandError::TooLong { bytes } => write!(
                f,
                "{bytes} bytes are no epoch, which has {EPOCH_BYTES_MAX} at most: nothing was sent"
            ),
            HandError::NoAnswer(said) => write!(
                f,
                "{said}: whether the epoch is in force is not known; hand it again"
            ),
            HandError::Unreadable(said) => write!(
                f,
                "the answer is not understood ({said}): whether the epoch is in force is not known"
            ),
        }
    }
}

impl std::error::Error for HandError {}

/// An answer of the control socket, as far as it is of interest here.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Option<InForce>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    reason: Option<Refusal>,
}

/// Hands a host an epoch and waits until it is in force there, `within` at most. The text goes as it is; it is the host that
/// judges it.
///
/// # Errors
/// See [`HandError`].
pub fn hand(
    control: &Path,
    cluster: Option<&str>,
    text: &str,
    within: Duration,
) -> Result<InForce, HandError> {
    if text.len() > EPOCH_BYTES_MAX {
        let bytes = text.len();
        return Err(HandError::TooLong { bytes });
    }
    let deadline = clock::now() + within;
    let mut stream = reach(control, within)?;
    let request = serde_json::to_string(&Request::new(cluster, text));
    let request = request.map_err(|error| HandError::Unreachable(error.to_string()))? + "\n";
    // A host that refuses before it has read all says so and closes: its answer counts, not that it was cut short.
    let sent = send(&mut stream, request.as_bytes(), deadline);
    match (receive(&mut stream, deadline), sent) {
        (Ok(line), _) => read_answer(&line),
        (Err(said), Ok(())) | (Err(_), Err(said)) => Err(HandError::NoAnswer(format!(
            "the host at {}: {said}",
            control.display()
        ))),
    }
}

/// Connects, and waits for that no longer than `within`: a process that does not go on may have its backlog full.
fn reach(control: &Path, within: Duration) -> Result<UnixStream, HandError> {
    let name = control.display();
    let connected = || -> rustix::io::Result<UnixStream> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(at_least_some(within)))?;
        connect(&socket, &SocketAddrUnix::new(control)?)?;
        Ok(UnixStream::from(socket))
    };
    connected().map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => HandError::NoHost(name.to_string()),
        ErrorKind::PermissionDenied => {
            HandError::Unreachable(format!("{name} is for the host's own user and root"))
        }
        ErrorKind::WouldBlock => HandError::Unreachable(format!(
            "{name} has taken no connection for {within:?}: the process does not go on"
        )),
        _ => HandError::Unreachable(format!("{name} cannot be reached: {error}")),
    })
}

/// Why a request or its answer did not get through.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error("it did not answer in time")]
    Late,
    #[error("it ended before it answered")]
    Ended,
    #[error("its answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    #[error("{0}")]
    Broken(std::io::Error),
}

impl From<std::io::Error> for Interrupted {
    fn from(error: std::io::Error) -> Interrupted {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Interrupted::Late,
            _ => Interrupted::Broken(error),
        }
    }
}

fn send(stream: &mut UnixStream, mut bytes: &[u8], deadline: Instant) -> Result<(), Interrupted> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// One line, without its end.
fn receive(stream: &mut UnixStream, deadline: Instant) -> Result<Vec<u8>, Interrupted> {
    let (mut line, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Err(Interrupted::Ended),
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let end = read.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&read[..end.unwrap_or(read.len())]);
        if line.len() > ANSWER_BYTES_MAX {
            return Err(Interrupted::TooLong);
        }
        if end.is_some() {
            return Ok(line);
        }
    }
}

fn read_answer(line: &[u8]) -> Result<InForce, HandError> {
    let answer: Answer =
        serde_json::from_slice(line).map_err(|error| HandError::Unreadable(error.to_string()))?;
    match (answer.result, answer.error) {
        (_, Some(why)) => Err(HandError::Refused {
            reason: answer.reason.unwrap_or(Refusal::Other),
            why,
        }),
        (Some(in_force), None) => Ok(in_force),
        (None, None) => Err(HandError::Unreadable("it says nothing".to_owned())),
    }
}

/// The time until then; kernels take no time for no bound.
fn left(deadline: Instant) -> Result<Duration, Interrupted> {
    let left = deadline.saturating_duration_since(clock::now());
    if left.is_zero() {
        return Err(Interrupted::Late);
    }
    Ok(at_least_some(left))
}

fn at_least_some(time: Duration) -> Duration {
    time.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use asterism_epochs::Standing;

    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    const LATER: Duration = Duration::from_secs(20);

    /// A host that reads so many bytes of a request at most, and says this.
    fn host_that(reads: usize, says: &str) -> (tempfile::TempDir, thread::JoinHandle<Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("a.sock")).unwrap();
        let says = says.to_owned();
        let host = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut read, mut byte) = (Vec::new(), [0]);
            while read.len() < reads && read.last() != Some(&b'\n') {
                stream.read_exact(&mut byte).unwrap();
                read.extend(byte);
            }
            stream.write_all(says.as_bytes()).unwrap();
            read
        });
        (folder, host)
    }

    fn handed(reads: usize, says: &str, text: &str) -> Result<InForce, HandError> {
        let (folder, host) = host_that(reads, says);
        let answer = hand(&folder.path().join("a.sock"), Some("lab"), text, LATER);
        host.join().unwrap();
        answer
    }

    #[test]
    fn an_epoch_is_handed_in_one_line() {
        let in_force = InForce {
            host: "a".to_owned(),
            epoch: 3,
            changed: true,
            standing: Standing::TakesPart,
            members: [("a".to_owned(), 1)].into(),
        };
        let says = serde_json::to_string(&in_force).unwrap();
        let says = format!("{{\"result\":{says},\"new\":1}}\nmore");
        let (folder, host) = host_that(usize::MAX, &says);
        let socket = folder.path().join("a.sock");
        assert_eq!(
            hand(&socket, Some("lab"), "epoch = 3\n", LATER),
            Ok(in_force)
        );
        assert_eq!(
            host.join().unwrap(),
            b"{\"do\":\"epoch\",\"cluster\":\"lab\",\"text\":\"epoch = 3\\n\"}\n"
        );
    }

    #[test]
    fn what_goes_wrong_says_whether_anything_changed() {
        let refused = |reason, why: &str| {
            let why = why.to_owned();
            Err(HandError::Refused { reason, why })
        };
        let older = "{\"error\":\"it is old\",\"reason\":\"older\"}\n";
        assert_eq!(
            handed(usize::MAX, older, "x"),
            refused(Refusal::Older, "it is old")
        );
        let unknown = "{\"error\":\"no\",\"reason\":\"of-tomorrow\"}\n";
        let unknown = handed(usize::MAX, unknown, "x");
        assert_eq!(unknown, refused(Refusal::Other, "no"));
        // Who refuses what it has not read to its end is heard, however much was to come.
        let long = "x".repeat(EPOCH_BYTES_MAX);
        assert_eq!(
            handed(9, older, &long),
            refused(Refusal::Older, "it is old")
        );
        for (says, said) in [("no\n", "not understood"), ("{}\n", "says nothing")] {
            let error = handed(usize::MAX, says, "x").unwrap_err();
            assert!(matches!(error, HandError::Unreadable(_)), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        let endless = "x".repeat(ANSWER_BYTES_MAX + 5_000);
        for says in ["", "{\"result\"", &endless] {
            let error = handed(usize::MAX, says, "x").unwrap_err();
            assert!(matches!(error, HandError::NoAnswer(_)), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("a.sock");
        let nobody = hand(&socket, None, "x", SOON).unwrap_err();
        assert!(matches!(nobody, HandError::NoHost(_)), "{nobody}");
        let long = "x".repeat(EPOCH_BYTES_MAX + 1);
        let long = hand(&socket, None, &long, SOON).unwrap_err();
        assert!(matches!(long, HandError::TooLong { .. }), "{long}");
    }

    #[test]
    fn a_process_that_does_not_go_on_is_waited_for_so_long_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let silent = hand(&socket, None, "x", SOON).unwrap_err();
        assert!(matches!(silent, HandError::NoAnswer(_)), "{silent}");
        // Until its backlog is full.
        let mut held = Vec::new();
        let full = loop {
            match reach(&socket, SOON) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 10_000, "a backlog without end");
        };
        assert!(full.to_string().contains("does not go on"), "{full}");
        drop(listener);
    }
}
