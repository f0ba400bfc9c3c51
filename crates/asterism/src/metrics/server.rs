//! A very small HTTP server: `GET /metrics`, and nothing else, one connection after the other. Requests and times are bounded:
//! a client has a second to ask and a second to take the answer, however small its steps.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use asterism_engine::clock::MonotonicClock;

use super::exposition;
use crate::view::View;

/// Bytes of a request's head at most.
const REQUEST_BYTES_MAX: usize = 8_192;
/// How long a client may take to ask, and then to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts the thread that serves. It ends with the process.
///
/// # Errors
/// The address cannot be listened at; in words.
pub fn start(address: SocketAddr, view: Arc<View>) -> Result<SocketAddr, String> {
    let failed = |error| {
        format!(
            "metrics cannot be served at {address}: {error}; name another address with metrics in [host]"
        )
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let thread = std::thread::Builder::new().name("metrics".into());
    let spawned = thread.spawn(move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    // A client that goes away is none of the host's troubles.
                    let _ = serve(&stream, &|| exposition::text(&view));
                }
                Err(_) => std::thread::park_timeout(Duration::from_millis(100)),
            }
        }
    });
    spawned.map_err(failed)?;
    Ok(address)
}

fn serve(mut stream: &TcpStream, text: &dyn Fn() -> String) -> std::io::Result<()> {
    let clock = MonotonicClock::new();
    let mut request = Vec::new();
    let mut buffer = [0; 1_024];
    let mut whole = false;
    while !whole && request.len() <= REQUEST_BYTES_MAX {
        stream.set_read_timeout(Some(left_of(PATIENCE, &clock)?))?;
        let length = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        request.extend_from_slice(&buffer[..length]);
        whole = request.windows(4).any(|window| window == b"\r\n\r\n");
    }
    let (status, kind, body) = answer(&request, whole, text);
    let is_head = request.starts_with(b"HEAD ");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut answer = head.into_bytes();
    if !is_head {
        answer.extend_from_slice(body.as_bytes());
    }
    let clock = MonotonicClock::new();
    let mut rest = &answer[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left_of(PATIENCE, &clock)?))?;
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

fn answer(
    request: &[u8],
    whole: bool,
    text: &dyn Fn() -> String,
) -> (&'static str, &'static str, String) {
    const PLAIN: &str = "text/plain; charset=utf-8";
    if !whole {
        return ("400 Bad Request", PLAIN, "this is no request\n".to_owned());
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let path = target
        .split(|byte| *byte == b'?')
        .next()
        .unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", exposition::CONTENT_TYPE, text()),
        (b"GET" | b"HEAD", b"/") => ("200 OK", PLAIN, "metrics are at /metrics\n".to_owned()),
        (b"GET" | b"HEAD", _) => (
            "404 Not Found",
            PLAIN,
            "there is only /metrics\n".to_owned(),
        ),
        _ => ("405 Method Not Allowed", PLAIN, "only GET\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn({
            let request = request.to_vec();
            move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(&request);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                String::from_utf8_lossy(&answer).into_owned()
            }
        });
        let (stream, _) = listener.accept().unwrap();
        let _ = serve(&stream, &|| "asterism_up 1\n".to_owned());
        drop(stream);
        client.join().unwrap()
    }

    #[test]
    fn only_metrics_and_only_whole_requests() {
        let good = asked(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\nasterism_up 1\n")
        );
        assert!(good.contains("Content-Length: 14\r\n"));
        assert!(asked(b"HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(asked(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").contains("200"));
        assert!(asked(b"GET /secret HTTP/1.1\r\n\r\n").contains("404"));
        assert!(asked(b"POST /metrics HTTP/1.1\r\n\r\n").contains("405"));
        assert!(asked(b"GET /metrics").contains("400"));
        assert!(asked(b"").contains("400"));
        assert!(asked(&[0xFF; 20_000]).contains("400") || asked(&[0xFF; 20_000]).is_empty());
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
            assert!(serve(&stream, &String::new).is_err());
            drop(stream);
        });
        let spent = Duration::from_micros(clock.now().as_micros());
        assert!(spent >= PATIENCE && spent < 10 * PATIENCE, "{spent:?}");
    }
}
