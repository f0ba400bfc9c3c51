//! A server of generated documents: `GET /N` gives [`document`]`(N)`. For demonstrations; where nginx is installed, it is the
//! better test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock;
use crate::error::LabError;
use crate::node::Node;

/// Connections served at once at most; further ones are closed.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The longest document that is given out, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 30;
/// Bytes of a request at most.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;
/// How long a client may keep silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks for new connections.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// A limited connection gets so many pieces a second.
const PIECES_PER_SECOND: u64 = 50;

/// The document of so many bytes: the same everywhere, and no part of it like another.
#[must_use]
pub fn document(bytes: usize) -> Vec<u8> {
    let words = (0u64..).flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    words.take(bytes).collect()
}

/// A server in a node, until it is dropped.
#[derive(Debug)]
pub struct DocumentServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DocumentServer {
    /// Starts it; it gives out at most so many bytes a second to each connection (0: no limit).
    pub fn start(
        node: &Node,
        address: SocketAddr,
        bytes_per_second: u64,
    ) -> Result<DocumentServer, LabError> {
        let listener = node
            .enter(|| {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })?
            .map_err(|error| LabError::kernel(format!("listening on {address}"), error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&listener, &stopped, bytes_per_second));
        Ok(DocumentServer {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for DocumentServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stopped: &AtomicBool, bytes_per_second: u64) {
    let connections = Arc::new(AtomicUsize::new(0));
    while !stopped.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            clock::sleep(LOOK_AGAIN);
            continue;
        };
        if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let connections = Arc::clone(&connections);
        std::thread::spawn(move || {
            // The client sees a connection that broke; there is nobody else to tell.
            let _ = answer(&stream, bytes_per_second);
            connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Answers one request, then closes.
fn answer(stream: &TcpStream, bytes_per_second: u64) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let bytes = request
        .strip_prefix("GET /")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse().ok())
        .filter(|bytes| *bytes <= DOCUMENT_BYTES_MAX);
    let mut stream = stream;
    let Some(bytes) = bytes else {
        return stream.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
    )?;
    let document = document(bytes);
    if bytes_per_second == 0 {
        return stream.write_all(&document);
    }
    let piece = usize::try_from(bytes_per_second / PIECES_PER_SECOND).unwrap_or(usize::MAX);
    let start = clock::now();
    for (number, piece) in (0u32..).zip(document.chunks(piece.max(1))) {
        let due = Duration::from_secs(1) / PIECES_PER_SECOND as u32 * number;
        clock::sleep(due.saturating_sub(start.elapsed()));
        stream.write_all(piece)?;
    }
    Ok(())
}
