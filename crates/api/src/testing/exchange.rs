//! One request over a connection of its own, written as it is: with wrong hosts, two tokens, or no HTTP at all.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::clock;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// How long a stream is read that does not end.
const STREAM_WAIT: Duration = Duration::from_millis(300);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status; 0 if the server closed the connection without one.
    pub status: u16,
    /// The headers with their names in small letters, in order.
    pub headers: Vec<(String, String)>,
    /// The body as it came, with the sizes of its chunks if it came in some.
    pub body: String,
}

/// Why there is no answer. The request may have been received.
#[derive(Debug, thiserror::Error)]
#[error("the exchange failed: {0}")]
pub struct ExchangeError(#[from] io::Error);

impl Exchange {
    /// A request of a method and target, without any header.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Exchange {
        Exchange {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// With one header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Exchange {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a token.
    #[must_use]
    pub fn token(self, token: &str) -> Exchange {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// With a body of JSON.
    #[must_use]
    pub fn json(self, body: &str) -> Exchange {
        self.header("Content-Type", "application/json").body(body)
    }

    /// With a body, of which nothing is said but its length.
    #[must_use]
    pub fn body(mut self, body: &str) -> Exchange {
        self.body = Some(body.to_owned());
        self
    }

    /// Sends it with the right `Host`, and reads the answer to its end; a stream of events for 300 ms.
    ///
    /// # Errors
    /// See [`ExchangeError`].
    pub fn send(self, address: SocketAddr) -> Result<Answer, ExchangeError> {
        self.header("Host", &address.to_string()).send_bare(address)
    }

    /// Sends it as it is.
    ///
    /// # Errors
    /// See [`ExchangeError`].
    pub fn send_bare(self, address: SocketAddr) -> Result<Answer, ExchangeError> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = self.body.unwrap_or_default();
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("Connection: close\r\n\r\n");
        text.push_str(&body);
        raw(address, text.as_bytes())
    }
}

/// Sends bytes, and reads what comes.
fn raw(address: SocketAddr, bytes: &[u8]) -> Result<Answer, ExchangeError> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WAIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    // A server that refused before it read everything has closed its side: its answer counts.
    let written = stream.write_all(bytes);
    let mut read = Vec::new();
    let mut chunk = [0; 4_096];
    let mut ends = None;
    while read.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
            Err(error) if is_late(&error) && ends.is_some() => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !read.is_empty() => {
                break;
            }
            Err(error) => return Err(written.err().unwrap_or(error).into()),
        }
        let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if head.contains("content-type: text/event-stream") {
            let end = *ends.get_or_insert_with(|| clock::now() + STREAM_WAIT);
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            stream.set_read_timeout(Some(left))?;
        }
    }
    Ok(parse(&String::from_utf8_lossy(&read)))
}

fn is_late(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
}

fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.and_then(|status| status.parse().ok()).unwrap_or(0),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

impl Answer {
    /// Whether the request was answered as it was meant.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}
