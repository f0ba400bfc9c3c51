//! A very small HTTP server (`asterism_serving::http`): `GET /metrics`, and nothing else. A client has a second to ask and a second to
//! take the answer.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use asterism_serving::http::{Answer, PLAIN, RequestLine, ServingMode, start_serving};
use thiserror::Error;

use super::exposition;
use asterism_host_view::View;

/// How long a client may take to ask, and then to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

const MANNER: ServingMode = ServingMode {
    patience: PATIENCE,
    pause: None,
};

/// Why metrics are not served: the address cannot be listened at, or there is no thread.
#[derive(Debug, Error)]
#[error(
    "metrics cannot be served at {address}: {error}; name another address with metrics in [host]"
)]
pub struct MetricsError {
    address: SocketAddr,
    error: std::io::Error,
}

/// Starts the thread that serves. It ends with the process.
///
/// # Errors
/// The address cannot be listened at, or there is no thread.
pub fn start(address: SocketAddr, view: Arc<View>) -> Result<SocketAddr, MetricsError> {
    let failed = |error| MetricsError { address, error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let spawned = start_serving(listener, "metrics", MANNER, move |request| {
        answer(request, &|| exposition::text(&view))
    });
    spawned.map_err(failed)?;
    Ok(address)
}

fn answer(request: Option<RequestLine<'_>>, text: &dyn Fn() -> String) -> Answer {
    let said = |status, words: &str| (status, PLAIN, words.into());
    let Some(RequestLine { method, path }) = request else {
        return said("400 Bad Request", "this is no request\n");
    };
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", exposition::CONTENT_TYPE, text().into_bytes()),
        ("GET" | "HEAD", "/") => said("200 OK", "metrics are at /metrics\n"),
        ("GET" | "HEAD", _) => said("404 Not Found", "there is only /metrics\n"),
        _ => said("405 Method Not Allowed", "only GET\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn asked(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        start_serving(listener, "test", MANNER, |request| {
            answer(request, &|| "asterism_up 1\n".to_owned())
        })
        .unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
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
        assert!(asked(b"GET /metrics\r\n\r\n").contains("400"));
        assert!(asked(b"GET /metrics HTTP/1.1\r\nno field\r\n\r\n").contains("400"));
        assert!(asked(b"").contains("400"));
        assert!(asked(&[0xFF; 20_000]).contains("400") || asked(&[0xFF; 20_000]).is_empty());
    }
}
