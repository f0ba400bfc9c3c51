//! A very small HTTP server. Requests, times and connections are bounded: a client has its time to ask and to take the answer, however
//! small its steps, and one that says nothing makes room for others.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use asterism_io::clock::MonotonicClock;

use crate::connections::{Open, serve_all};

/// Bytes of a request's head at most.
const REQUEST_BYTES_MAX: usize = 8_192;
/// Header fields of a request at most; one with more is refused. What scrapers and caches send has ten or fewer.
const FIELDS_MAX: usize = 64;
/// Connections at a time, of metrics and of digests each. A new one takes the place of the oldest that has not asked yet.
pub const CONNECTIONS_MAX: usize = 32;
/// Starts a thread that accepts connections and gives each one a thread; all end with the process. A client that goes away is none
/// of the host's troubles.
///
/// # Errors
/// There is no thread.
pub fn start_serving(
    listener: TcpListener,
    name: &'static str,
    mode: ServingMode,
    answer: impl Fn(Option<RequestLine<'_>>) -> Answer + Send + Sync + 'static,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    let body = move || {
        let bounds = (name, CONNECTIONS_MAX);
        let refuse = |_: &TcpStream| {};
        serve_all(listener.incoming(), bounds, refuse, move |stream, open| {
            let _ = serve(stream, open, mode, &answer);
        });
    };
    thread.spawn(body).map(drop)
}

/// An answer: its status, the type of what it holds, and that.
pub type Answer = (&'static str, &'static str, Vec<u8>);

/// How answers go out.
#[derive(Clone, Copy, Debug)]
pub struct ServingMode {
    /// How long a client may take to ask, and then to take the answer.
    pub patience: Duration,
    /// Bytes of what an answer holds that go with its head, and how long the rest waits then.
    pub pause: Option<(usize, Duration)>,
}

/// What a request's head begins with (RFC 9112 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// The method, such as `GET`.
    pub method: &'a str,
    /// The target without its query.
    pub path: &'a str,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parsed<'a> {
    /// The whole head.
    Whole(RequestLine<'a>),
    /// A part of it.
    Partial,
    /// It is none.
    Malformed,
}

impl Parsed<'_> {
    fn of(bytes: &[u8]) -> Parsed<'_> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Ok(httparse::Status::Partial) => Parsed::Partial,
            Ok(httparse::Status::Complete(_)) => {
                let target = request.path.unwrap_or_default();
                Parsed::Whole(RequestLine {
                    method: request.method.unwrap_or_default(),
                    path: target.split('?').next().unwrap_or_default(),
                })
            }
            Err(_) => Parsed::Malformed,
        }
    }
}

/// Answers one request of a connection: `answer` is given its first line, or nothing if there is no whole request.
///
/// # Errors
/// The client went away, or was too slow.
fn serve(
    mut stream: &TcpStream,
    open: &Open,
    mode: ServingMode,
    answer: &dyn Fn(Option<RequestLine<'_>>) -> Answer,
) -> std::io::Result<()> {
    let clock = MonotonicClock::new();
    let mut request = Vec::new();
    let mut buffer = [0; 1_024];
    while Parsed::of(&request) == Parsed::Partial && request.len() <= REQUEST_BYTES_MAX {
        stream.set_read_timeout(Some(left_of(mode.patience, &clock)?))?;
        let length = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        request.extend_from_slice(&buffer[..length]);
    }
    open.answers();
    let request = match Parsed::of(&request) {
        Parsed::Whole(request) => Some(request),
        Parsed::Partial | Parsed::Malformed => None,
    };
    let is_head = request.is_some_and(|request| request.method == "HEAD");
    let (status, kind, body) = answer(request);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let first = mode
        .pause
        .map_or(body.len(), |(first, _)| first.min(body.len()));
    let mut answer = head.into_bytes();
    if !is_head {
        answer.extend_from_slice(&body[..first]);
    }
    write(stream, &answer, mode.patience)?;
    if let (Some((_, pause)), false) = (mode.pause, is_head || first == body.len()) {
        stream.set_nodelay(true)?;
        std::thread::park_timeout(pause);
        write(stream, &body[first..], mode.patience)?;
    }
    Ok(())
}

/// Writes all of it, in this time.
fn write(mut stream: &TcpStream, mut rest: &[u8], patience: Duration) -> std::io::Result<()> {
    let clock = MonotonicClock::new();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left_of(patience, &clock)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is left of a time since the clock began; an error if nothing is.
fn left_of(time: Duration, clock: &MonotonicClock) -> std::io::Result<Duration> {
    let spent = Duration::from_micros(clock.now().as_micros());
    time.checked_sub(spent)
        .filter(|left| !left.is_zero())
        .ok_or_else(|| ErrorKind::TimedOut.into())
}

/// What plain words are sent as.
pub const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::connections::Connections;

    const PATIENCE: Duration = Duration::from_secs(1);
    const MODE: ServingMode = ServingMode {
        patience: PATIENCE,
        pause: None,
    };

    #[test]
    fn the_rest_of_an_answer_may_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let (stream, _) = listener.accept().unwrap();
        let pause = Duration::from_millis(300);
        let mode = ServingMode {
            pause: Some((3, pause)),
            ..MODE
        };
        let clock = MonotonicClock::new();
        let server = std::thread::spawn(move || {
            let stream = Arc::new(stream);
            let open = Connections::new(1).admit(&stream).unwrap();
            serve(&stream, &open, mode, &|_| {
                ("200 OK", PLAIN, b"abcdef".to_vec())
            })
        });
        let mut answer = Vec::new();
        while !answer.windows(7).any(|seven| seven == b"\r\n\r\nabc") {
            let mut part = [0; 1_000];
            let length = client.read(&mut part).unwrap();
            assert!(length > 0);
            answer.extend(&part[..length]);
        }
        // Unless the machine stood still until the rest was there too.
        if clock.now().as_micros() < pause.as_micros() as u64 {
            assert!(answer.ends_with(b"\r\n\r\nabc"));
        }
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"\r\n\r\nabcdef"));
        assert!(clock.now().as_micros() >= pause.as_micros() as u64);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn a_client_that_sends_byte_by_byte_is_left_after_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let clock = MonotonicClock::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Ends when the other side has hung up.
                while client.write_all(b"x").is_ok() {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            });
            let nothing = |_: Option<RequestLine<'_>>| ("200 OK", PLAIN, Vec::new());
            let stream = Arc::new(stream);
            let open = Connections::new(1).admit(&stream).unwrap();
            assert!(serve(&stream, &open, MODE, &nothing).is_err());
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let spent = Duration::from_micros(clock.now().as_micros());
        assert!(spent >= PATIENCE && spent < 10 * PATIENCE, "{spent:?}");
    }

    /// Connections that say nothing, more than there may be, while each scrape is answered at once.
    #[test]
    fn silent_connections_stop_no_scrape() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = |_: Option<RequestLine<'_>>| ("200 OK", PLAIN, b"asterism_up 1\n".to_vec());
        // Who had to wait for a silent one would wait longer than any machine stands still.
        let patience = Duration::from_secs(60);
        let mode = ServingMode { patience, ..MODE };
        start_serving(listener, "test", mode, text).unwrap();
        let mut silent = Vec::new();
        for number in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).unwrap());
            if number % 8 != 0 {
                continue;
            }
            let clock = MonotonicClock::new();
            let mut scrape = TcpStream::connect(address).unwrap();
            scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            scrape.read_to_end(&mut answer).unwrap();
            assert!(answer.ends_with(b"asterism_up 1\n"));
            assert!(clock.now().as_micros() < patience.as_micros() as u64 / 2);
        }
    }
}
