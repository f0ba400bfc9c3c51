//! Fetching: a thread asks each cache for its digest when the one in the state is old, and writes what it got into the state.
//!
//! The state says when a digest was fetched last, so hosts need not agree on who does it: each waits longer than the one before it in
//! the member list, and finds that it was done. Nothing of what comes is believed: size, time and every field of the header are bounded.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_config::functions::CacheDigestsSettings;
use asterism_function::CONTROL;
use asterism_functions::cache_digests::squid::{self, HEADER_BYTES, Header};
use asterism_functions::cache_digests::{Head, Known, Refusal, frames};
use asterism_io::clock::MonotonicClock;
use asterism_placement::Time;

use super::{digest, directory};
use crate::run::health::HealthReporter;
use asterism_event_log::Event;
use asterism_host_view::View;
use asterism_host_view::requests::Request;

/// How often the thread looks whether a digest is old.
const LOOK: Duration = Duration::from_millis(200);
/// How late it notices that it is to end.
const NOTICE: Duration = Duration::from_millis(50);
/// The longest time until a cache that failed is asked again.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer's head at most.
const HEAD_BYTES_MAX: usize = 8_192;
/// Header fields of an answer at most; one with more is refused.
const HEAD_FIELDS_MAX: usize = 64;
/// Times that a digest is written until the state has it.
const ROUNDS_MAX: usize = 3;
/// Times that the state is asked whether it has it.
const READS_MAX: usize = 40;

/// The fetching of a host; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Fetching {
    ends: Arc<AtomicBool>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A cache whose digest is fetched.
#[derive(Debug)]
struct Target {
    /// Its number.
    cache: u16,
    name: String,
    at: SocketAddrV4,
    /// Before that it is not asked again.
    again: Time,
    /// What came of the last fetch, where there was one: why it was refused, if it was.
    last: Option<Option<Refusal>>,
}

impl Fetching {
    /// Begins to fetch the digests of caches that do not report.
    ///
    /// # Errors
    /// There was no thread for it; nothing is fetched.
    pub(crate) fn start(
        settings: &CacheDigestsSettings,
        reporter: &HealthReporter,
        view: Arc<View>,
    ) -> io::Result<Fetching> {
        let ends = Arc::new(AtomicBool::new(false));
        let targets = (0u16..).zip(&settings.caches);
        let targets: Vec<Target> = targets
            .filter(|(_, one)| one.reports.is_none())
            .map(|(cache, one)| Target {
                cache,
                name: one.name.clone(),
                at: SocketAddrV4::new(one.address, one.http),
                again: Time::ZERO,
                last: None,
            })
            .collect();
        let fetcher = Fetcher {
            settings: settings.clone(),
            reporter: reporter.clone(),
            view,
            ends: ends.clone(),
            begun: reporter.clock.now(),
        };
        std::thread::Builder::new()
            .name("digests".into())
            .spawn(move || fetcher.run(targets))?;
        Ok(Fetching { ends })
    }
}

struct Fetcher {
    settings: CacheDigestsSettings,
    reporter: HealthReporter,
    view: Arc<View>,
    ends: Arc<AtomicBool>,
    begun: Time,
}

impl Fetcher {
    fn run(self, mut targets: Vec<Target>) {
        while !self.ends.load(Ordering::Relaxed) {
            let next = self.reporter.clock.now() + LOOK;
            if let Ok(directory) = directory(&self.view) {
                for target in &mut targets {
                    let known = directory.get(usize::from(target.cache));
                    if known.is_some_and(|(known, _)| self.is_due(target, known)) {
                        self.fetch(target);
                    }
                    if self.ends.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
            while self.reporter.clock.now() < next && !self.ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(next.since(self.reporter.clock.now()).min(NOTICE));
            }
        }
    }

    /// Whether it is for this host to fetch a digest now.
    fn is_due(&self, target: &Target, known: &Known) -> bool {
        let now = self.reporter.clock.now();
        // A host before this one may take so long to find that a cache does not answer.
        let before = u32::from(self.reporter.member.saturating_sub(1));
        let patience = (self.settings.timeout + Duration::from_secs(1)) * before;
        let is_old = match known {
            Known::Nothing => now >= self.begun + patience,
            Known::Fetched(head) => {
                let old_s = (self.settings.interval + patience).as_secs();
                u64::from(self.view.tick()) >= u64::from(head.fetched) + old_s
            }
            Known::Reported(_) => false,
        };
        is_old && now >= target.again
    }

    fn fetch(&self, target: &mut Target) {
        let settings = &self.settings;
        let clock = &self.reporter.clock;
        let fetched = fetch(target.at, settings.timeout, settings.digest_max, clock)
            .and_then(|digest| self.keep(target.cache, &digest).map(|()| digest.0));
        let event = match &fetched {
            Ok(header) => {
                self.view.caches.fetched.fetch_add(1, Ordering::Relaxed);
                target.again = Time::ZERO;
                Event::info("digest-fetched")
                    .with("objects", header.count)
                    .with("bytes", header.mask_bytes)
            }
            Err(refusal) => {
                self.view.caches.add_refused(*refusal);
                target.again = clock.now() + settings.interval.min(RETRY_MAX);
                Event::warning("digest-refused")
                    .with("why", refusal.label())
                    .effect(refusal.meaning())
                    .cure("see that the cache makes digests and lets this host have them; meanwhile the one before is used, as long as it is kept")
            }
        };
        // Each time that it goes otherwise than before, and the first one.
        let last = Some(fetched.err());
        if last != target.last {
            let event = event.with("cache", &target.name).with("at", target.at);
            let _ = self.reporter.events.try_send(event);
        }
        target.last = last;
    }

    /// Writes a digest into the state, until it is there.
    fn keep(&self, cache: u16, (header, mask): &(Header, Vec<u8>)) -> Result<(), Refusal> {
        let head = Head {
            header: *header,
            fetched: self.view.tick(),
        };
        for _ in 0..ROUNDS_MAX {
            for frame in frames(cache, &head, mask) {
                let reported = Request::Tell {
                    port: CONTROL,
                    frame: frame.into(),
                    called: None,
                };
                // It waits while the instance has many requests; it takes them between bursts.
                if self.reporter.requests.send(reported).is_err() {
                    return Err(Refusal::NotKept);
                }
            }
            if self.kept(cache).as_ref() == Some(mask) {
                return Ok(());
            }
        }
        Err(Refusal::NotKept)
    }

    /// The bits of a cache's digest as the state has them.
    fn kept(&self, cache: u16) -> Option<Vec<u8>> {
        for _ in 0..READS_MAX {
            match digest(&self.view, cache.into()) {
                Ok(kept) => return kept.map(|(_, mask)| mask),
                // What was written is still waiting to be taken: it goes first.
                Err(_) => std::thread::park_timeout(NOTICE),
            }
        }
        None
    }
}

/// Fetches a cache's digest by HTTP.
fn fetch(
    at: SocketAddrV4,
    timeout: Duration,
    mask_bytes_max: u32,
    clock: &MonotonicClock,
) -> Result<(Header, Vec<u8>), Refusal> {
    let until = clock.now() + timeout;
    let left = || {
        let left = until.since(clock.now());
        // No time left is no timeout for the operating system: that must not wait for ever.
        (!left.is_zero())
            .then_some(left)
            .ok_or(Refusal::Unreachable)
    };
    let gone = |_: std::io::Error| Refusal::Unreachable;
    let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(at), timeout).map_err(gone)?;
    let request = format!(
        "GET /squid-internal-periodic/store_digest HTTP/1.0\r\nHost: {at}\r\nAccept: application/cache-digest\r\nConnection: close\r\n\r\n"
    );
    stream.set_write_timeout(Some(left()?)).map_err(gone)?;
    stream.write_all(request.as_bytes()).map_err(gone)?;
    let body_max = HEADER_BYTES + mask_bytes_max as usize;
    let mut answer = Vec::new();
    let mut room = [0; 4_096];
    let mut length = None;
    loop {
        stream.set_read_timeout(Some(left()?)).map_err(gone)?;
        let read = match stream.read(&mut room) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Err(Refusal::Unreachable),
        };
        answer.extend_from_slice(&room[..read]);
        if length.is_none() {
            length = head_of(&answer)?;
        }
        let is_over = read == 0;
        let Some((head, body)) = length else {
            if is_over {
                return Err(Refusal::NotHttp);
            }
            continue;
        };
        if body.is_some_and(|body| body > body_max) || answer.len() > head + body_max {
            return Err(Refusal::TooLarge);
        }
        let is_whole = body.is_some_and(|body| answer.len() >= head + body);
        if is_over || is_whole {
            let body = body.map_or(answer.len(), |body| answer.len().min(head + body));
            let (header, mask) = squid::read(&answer[head..body], mask_bytes_max)?;
            return Ok((header, mask.to_vec()));
        }
    }
}

/// Where an answer's head ends, and how long it says that its body is; `None`: more of it is needed (RFC 9112).
fn head_of(answer: &[u8]) -> Result<Option<(usize, Option<usize>)>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let searched = &answer[..answer.len().min(HEAD_BYTES_MAX)];
    let end = match response.parse(searched) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if answer.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Refusal::NotHttp),
    };
    if response.code != Some(200) {
        return Err(Refusal::Status);
    }
    let mut length = None;
    for field in response.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let value = core::str::from_utf8(field.value).map_err(|_| Refusal::NotHttp)?;
            length = Some(value.trim().parse().map_err(|_| Refusal::NotHttp)?);
        }
        if is("transfer-encoding") || is("content-encoding") {
            return Err(Refusal::NotHttp);
        }
    }
    Ok(Some((end, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// Of an answer that does not come.
    const SHORT: Duration = Duration::from_millis(500);
    /// Of one that comes, from a server that may stand still for a while.
    const LONG: Duration = Duration::from_secs(30);

    fn good() -> Vec<u8> {
        let header = Header {
            count: 1,
            ..Header::sized(100, 5)
        };
        let mut digest = [&header.bytes()[..], &[0; 63]].concat();
        digest[HEADER_BYTES] = 7;
        digest
    }

    /// What comes of an answer of these parts. Behind an empty one nothing comes until who asks has hung up.
    fn fetched(timeout: Duration, parts: Vec<Vec<u8>>) -> Result<(Header, Vec<u8>), Refusal> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(at) = listener.local_addr().unwrap() else {
            panic!()
        };
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 300];
            let length = stream.read(&mut request).unwrap();
            assert!(
                request[..length]
                    .starts_with(b"GET /squid-internal-periodic/store_digest HTTP/1.0\r\n")
            );
            for part in parts {
                // Who asks may have hung up by now.
                if part.is_empty() {
                    let _ = is_done.recv();
                } else {
                    let _ = stream.write_all(&part);
                }
            }
        });
        let result = fetch(at, timeout, 1_000, &MonotonicClock::new());
        drop(done);
        server.join().unwrap();
        result
    }

    fn answer(head: &str, body: &[u8]) -> Vec<u8> {
        [format!("{head}\r\n\r\n").as_bytes(), body].concat()
    }

    #[test]
    fn digests_come_whole_with_or_without_a_length() {
        let good = good();
        let expected = (
            Header::read(&good, 1_000).unwrap(),
            good[HEADER_BYTES..].to_vec(),
        );
        let sized = format!(
            "HTTP/1.1 200 Cache Digest OK\r\nContent-Length: {}",
            good.len()
        );
        assert_eq!(
            fetched(LONG, vec![answer(&sized, &good)]),
            Ok(expected.clone())
        );
        assert_eq!(
            fetched(LONG, vec![answer("HTTP/1.0 200 OK", &good)]),
            Ok(expected.clone())
        );
        let whole = answer(&sized, &good);
        let parts = whole.chunks(50).map(<[u8]>::to_vec).collect();
        assert_eq!(fetched(LONG, parts), Ok(expected.clone()));
        // With a length it need not end.
        assert_eq!(fetched(LONG, vec![whole, Vec::new()]), Ok(expected));
    }

    #[test]
    fn answers_that_lie_or_dally_are_refused() {
        let good = good();
        let ok = "HTTP/1.1 200 OK";
        let huge = answer(ok, &vec![0; 10_000]);
        let announced = answer("HTTP/1.1 200 OK\r\nContent-Length: 999999999", &good);
        let longer = answer(ok, &[&good[..], &[0]].concat());
        for (parts, refusal) in [
            (vec![], Refusal::NotHttp),
            (vec![b"SSH-2.0-x\r\n".to_vec()], Refusal::NotHttp),
            (vec![b"HTTP/1.1 200 OK\r\n".to_vec()], Refusal::NotHttp),
            (vec![answer("HTTP/1.1", &good)], Refusal::NotHttp),
            (
                vec![answer("HTTP/1.1 200 OK\r\nx", &good)],
                Refusal::NotHttp,
            ),
            (
                vec![answer("HTTP/1.1 200 OK\r\nContent-Length: -1", &good)],
                Refusal::NotHttp,
            ),
            (
                vec![answer(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
                    &good,
                )],
                Refusal::NotHttp,
            ),
            (
                vec![[b"HTTP/1.1 200 OK\r\nx: ", &[b'x'; 9_000][..]].concat()],
                Refusal::NotHttp,
            ),
            (vec![answer("HTTP/1.1 403 Forbidden", b"")], Refusal::Status),
            (
                vec![answer("HTTP/1.1 304 Not Modified", b"")],
                Refusal::Status,
            ),
            (vec![answer(ok, &good[..150])], Refusal::Truncated),
            (vec![answer(ok, b"")], Refusal::Truncated),
            (vec![longer], Refusal::Trailing),
            (vec![huge], Refusal::TooLarge),
            (vec![announced], Refusal::TooLarge),
            (
                vec![answer(ok, &good)[..100].to_vec(), Vec::new()],
                Refusal::Unreachable,
            ),
        ] {
            let timeout = match refusal {
                Refusal::Unreachable => SHORT,
                _ => LONG,
            };
            assert_eq!(fetched(timeout, parts), Err(refusal));
        }
    }
}
