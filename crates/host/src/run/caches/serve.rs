//! Serving: caches fetch digests from any host, in Squid's own format, by HTTP. What is served is what this host's state has.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asterism_functions::cache_digests::squid::{HEADER_BYTES, Header, union};
use thiserror::Error;

use super::digest;
use asterism_host_view::{AskError, View};
use asterism_serving::http::{Answer, PLAIN, RequestLine, ServingMode, start_serving};

/// How long a cache may take to ask, and then to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Squid up to 7.1 reads a digest through a buffer of 4,096 bytes and, when it has taken the digest's header out of it, moves no more of
/// the rest than it took (its bug 5510): bits go astray, and objects are missed. They do not if the header comes alone.
const PAUSE: Duration = Duration::from_millis(250);
const MANNER: ServingMode = ServingMode {
    patience: PATIENCE,
    pause: Some((HEADER_BYTES, PAUSE)),
};
/// Where Squid looks for a digest by itself.
const ALL: &str = "/squid-internal-periodic/store_digest";
const EACH: &str = "/digests/";
const DIGEST: &str = "application/cache-digest";

/// Why digests are not served: the address cannot be listened at, or there is no thread.
#[derive(Debug, Error)]
#[error(
    "digests cannot be served at {address}: {error}; name another address with `serve` in [function.cache-digests]"
)]
pub struct ServeError {
    address: SocketAddr,
    error: std::io::Error,
}

/// Starts the thread that serves. It ends with the process.
///
/// # Errors
/// The address cannot be listened at, or there is no thread.
pub(crate) fn start(address: SocketAddr, view: Arc<View>) -> Result<(), ServeError> {
    let failed = |error| ServeError { address, error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    start_serving(listener, "serve-digests", MANNER, move |request| {
        answer(&view, request)
    })
    .map_err(failed)
}

fn answer(view: &View, request: Option<RequestLine<'_>>) -> Answer {
    let Some(request) = request else {
        return said("400 Bad Request", "this is no request\n");
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return said("405 Method Not Allowed", "only GET\n");
    }
    let path = path_of(request.path);
    let found = if path == ALL {
        all(view)
    } else {
        let names = &view.caches.names;
        let name = path.strip_prefix(EACH);
        let place = names.iter().position(|one| Some(one.as_str()) == name);
        match place {
            Some(place) => digest(view, place),
            None => {
                view.caches.not_served.fetch_add(1, Ordering::Relaxed);
                return said("404 Not Found", "there is /digests/NAME for each cache\n");
            }
        }
    };
    match found {
        Ok(Some((header, mask))) => {
            view.caches.served.fetch_add(1, Ordering::Relaxed);
            ("200 OK", DIGEST, [&header.bytes()[..], &mask].concat())
        }
        Ok(None) => {
            view.caches.not_served.fetch_add(1, Ordering::Relaxed);
            said(
                "404 Not Found",
                "this digest is not known, or of all together: they differ in size\n",
            )
        }
        Err(error) => {
            view.caches.not_served.fetch_add(1, Ordering::Relaxed);
            said("503 Service Unavailable", &format!("{error}\n"))
        }
    }
}

fn said(status: &'static str, words: &str) -> Answer {
    (status, PLAIN, words.into())
}

/// The path of a request's target, which a cache may write with the host before it (RFC 9112 section 3.2.2).
fn path_of(target: &str) -> &str {
    let Some(rest) = target.strip_prefix("http://") else {
        return target;
    };
    rest.find('/').map_or("/", |slash| &rest[slash..])
}

/// The digests of all caches together, of those that are known.
fn all(view: &View) -> Result<Option<(Header, Vec<u8>)>, AskError> {
    let mut digests = Vec::new();
    for place in 0..view.caches.names.len() {
        digests.extend(digest(view, place)?);
    }
    Ok(union(&digests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_paths_with_a_host_or_without() {
        for (target, path) in [
            ("/digests/a", "/digests/a"),
            ("http://a:80/digests/a", "/digests/a"),
            ("http://a:80", "/"),
            ("", ""),
        ] {
            assert_eq!(path_of(target), path);
        }
    }
}
