//! The server of the control socket: a thread that accepts, and a thread for each of a few connections.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use asterism_epochs::Request as Handed;

use super::place::Place;
use super::request_handler::{Refused, RequestHandler};
use super::{Answer, Ask, EPOCH_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX};
use asterism_serving::connections::{Open, serve_all};

/// Connections at a time. A new one takes the place of the oldest that waits for a request; if all are being answered it is closed.
const CONNECTIONS_MAX: usize = 8;
/// Maximum time that a connection may be silent, or leave its answer unread.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Starts the server's thread, which ends with the process.
///
/// # Errors
/// No thread or descriptor is available.
pub fn start(place: &Place, request_handler: Arc<RequestHandler>) -> std::io::Result<()> {
    let listener = place.listener()?;
    let thread = std::thread::Builder::new().name("control".into());
    let body = move || {
        let refuse = |stream: &UnixStream| {
            let _ = refuse(stream, "there are too many connections already: try again");
        };
        let bounds = ("control", CONNECTIONS_MAX);
        serve_all(listener.incoming(), bounds, refuse, move |stream, open| {
            let _ = serve(stream, open, &request_handler);
        });
    };
    thread.spawn(body).map(drop)
}

fn refuse(mut stream: &UnixStream, error: &str) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let answer = Answer::from(Err(error.into()));
    stream.write_all((serde_json::to_string(&answer)? + "\n").as_bytes())
}

/// Answers the requests of a connection until it ends, is silent too long, or sends a malformed request.
fn serve(
    stream: &UnixStream,
    open: &Open,
    request_handler: &RequestHandler,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut input = BufReader::new(stream);
    loop {
        open.waits();
        // An epoch may be long, so its memory is freed with it.
        let mut line = Vec::new();
        let mut bounded = (&mut input).take(EPOCH_REQUEST_BYTES_MAX as u64);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && !line.is_empty() => {
                return refuse(
                    stream,
                    &format!("the request was cut short: nothing was received for {SILENCE_MAX:?}"),
                );
            }
            Err(error) => return Err(error),
        }
        let is_whole = line.last() == Some(&b'\n');
        if !is_whole && line.len() < EPOCH_REQUEST_BYTES_MAX {
            return refuse(
                stream,
                "the request was cut short: a request is one line, with its end of line",
            );
        }
        if !is_whole {
            return refuse(
                stream,
                &format!(
                    "a request is one line of at most {REQUEST_BYTES_MAX} bytes, or {EPOCH_REQUEST_BYTES_MAX} if it hands an epoch"
                ),
            );
        }
        open.answers();
        let result = read_request(&line).and_then(|ask| request_handler.answer(ask));
        let mut output = stream;
        output.write_all((serde_json::to_string(&Answer::from(result))? + "\n").as_bytes())?;
    }
}

/// Reads a line. A long line can only be an epoch: of any other request only a bounded beginning is parsed.
fn read_request(line: &[u8]) -> Result<Ask, Refused> {
    if line.len() > REQUEST_BYTES_MAX {
        let handed: Handed = serde_json::from_slice(line).map_err(|error| {
            format!("a request of more than {REQUEST_BYTES_MAX} bytes hands an epoch, and this request does not: {error}")
        })?;
        return Ok(Ask::Epoch {
            cluster: handed.cluster,
            text: handed.text,
        });
    }
    serde_json::from_slice(line).map_err(|error| format!("malformed request: {error}").into())
}

#[cfg(test)]
mod tests {
    use asterism_epochs::EPOCH_BYTES_MAX;

    use super::*;

    fn line(text: &str) -> Vec<u8> {
        let handed = Handed::new(Some("lab"), text);
        serde_json::to_vec(&handed).expect("it is plain")
    }

    #[test]
    fn an_epoch_is_read_however_long_it_may_be_and_nothing_else_is() {
        // A character that JSON escapes, and one that it does not.
        for text in [
            String::new(),
            "\"".repeat(EPOCH_BYTES_MAX),
            "x".repeat(EPOCH_BYTES_MAX),
        ] {
            let line = line(&text);
            assert!(line.len() < EPOCH_REQUEST_BYTES_MAX);
            let cluster = Some("lab".to_owned());
            assert_eq!(read_request(&line), Ok(Ask::Epoch { cluster, text }));
        }
        let status = br#"{"do":"status"}"#;
        let status = |spaces: usize| [&vec![b' '; spaces][..], status].concat();
        assert_eq!(read_request(&status(9)), Ok(Ask::Status { digests: false }));
        assert!(read_request(&status(REQUEST_BYTES_MAX)).is_err());
        assert!(read_request(br#"{"do":"epoch","text":"x","force":true}"#).is_err());
    }

    /// Requests that are cut, changed and repeated: each is parsed or refused, and a parsed epoch survives being written again.
    #[test]
    fn damaged_requests_are_read_or_refused() {
        let text = "epoch = 3\n[members]\na = 1\n# \u{e9}\\\"\n";
        for whole in [line(text), line(&text.repeat(200))] {
            let (mut state, mut read, mut refused) = (1_u64, 0, 0);
            let mut draw = |most: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as usize % most
            };
            for _ in 0..4_000 {
                let mut bytes = whole.clone();
                for _ in 0..1 + draw(3) {
                    let place = draw(bytes.len());
                    match draw(4) {
                        0 => bytes.truncate(place + 1),
                        1 => bytes[place] ^= 1 << draw(8),
                        2 => bytes.extend_from_within(place..),
                        _ => _ = bytes.remove(place).min(1),
                    }
                    if bytes.is_empty() {
                        bytes.push(b'{');
                    }
                }
                match read_request(&bytes) {
                    Ok(Ask::Epoch { cluster, text }) => {
                        read += 1;
                        let again = Handed::new(cluster.as_deref(), &text);
                        let again = serde_json::to_vec(&again).expect("it is plain");
                        assert_eq!(read_request(&again), Ok(Ask::Epoch { cluster, text }));
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => refused += 1,
                }
            }
            assert!(read > 100 && refused > 1_000, "{read} {refused}");
        }
    }
}
