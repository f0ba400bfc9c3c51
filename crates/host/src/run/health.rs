//! Checks of a balancer's backends: by threads of the host's control side, through the operating system's own network, never
//! on the packets' path. What is found goes to the first instance, whose state carries it to all others.
//!
//! Each host checks all backends and has one vote for each (`votes.rs` in `balancing` counts them). A check is a
//! TCP connection, or an HTTP request on one; nothing of what comes is kept but its first line.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use asterism_config::functions::{BalancerSettings, Check, Checks};
use asterism_function::{CONTROL, Endpoint, Protocol};
use asterism_functions::balancer::CheckResult;
use asterism_io::clock::MonotonicClock;

use asterism_event_log::Event;
use asterism_host_view::requests::Request;

/// Threads that check at most: so many silent backends keep no other from being checked in time.
const THREADS_MAX: usize = 32;
/// How late a thread notices that it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of an answer that are read at most.
const ANSWER_BYTES_MAX: usize = 64;

/// A backend to check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    service: String,
    /// How the state knows it.
    backend: Endpoint,
    /// Where it is checked.
    at: SocketAddrV4,
    /// The page that is asked for, and its server.
    page: Option<(String, SocketAddrV4)>,
    /// The last finding, and how many checks in a row said otherwise.
    is_down: Option<bool>,
    otherwise: u32,
}

/// The checks of a host; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Checking {
    ends: Arc<AtomicBool>,
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// The checking host, and the threads that its results go to.
#[derive(Clone, Debug)]
pub(super) struct HealthReporter {
    pub(super) member: u16,
    pub(super) clock: MonotonicClock,
    pub(super) requests: SyncSender<Request>,
    pub(super) events: SyncSender<Event>,
}

impl Checking {
    /// Begins to check all that is to be checked.
    ///
    /// # Errors
    /// There was no thread for it; nothing is checked.
    pub(super) fn start(
        settings: &BalancerSettings,
        reporter: &HealthReporter,
    ) -> io::Result<Checking> {
        let checking = Checking {
            ends: Arc::new(AtomicBool::new(false)),
        };
        let targets = targets(settings);
        let threads = targets.len().min(THREADS_MAX);
        for thread in 0..threads {
            let own: Vec<Target> = targets
                .iter()
                .skip(thread)
                .step_by(threads)
                .cloned()
                .collect();
            let (ends, reporter, checks) =
                (checking.ends.clone(), reporter.clone(), settings.checks);
            std::thread::Builder::new()
                .name(format!("checks-{thread}"))
                .spawn(move || check_all(own, &checks, &reporter, &ends))?;
        }
        Ok(checking)
    }
}

fn targets(settings: &BalancerSettings) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for service in &settings.services {
        let page = match &service.check {
            Check::None => continue,
            Check::Tcp => None,
            Check::Http(path) => Some((path.clone(), service.address)),
        };
        let protocol = if service.tcp {
            Protocol::TCP
        } else {
            Protocol::UDP
        };
        for backend in &service.backends {
            let port = backend.port.unwrap_or(service.address.port());
            let target = Target {
                service: service.name.clone(),
                backend: Endpoint::new(backend.address, port, protocol),
                at: SocketAddrV4::new(backend.address, service.check_port.unwrap_or(port)),
                page: page.clone(),
                is_down: None,
                otherwise: 0,
            };
            // One that several services have is checked once, as the first of them says.
            if targets.iter().all(|other| other.backend != target.backend) {
                targets.push(target);
            }
        }
    }
    targets
}

fn check_all(
    mut targets: Vec<Target>,
    checks: &Checks,
    reporter: &HealthReporter,
    ends: &AtomicBool,
) {
    loop {
        let next = reporter.clock.now() + checks.interval;
        for target in &mut targets {
            let answers = answers(target, checks.timeout, &reporter.clock);
            if ends.load(Ordering::Relaxed) {
                return;
            }
            if let Some(is_down) = target.after(answers, checks)
                && let Some(event) = target.found(is_down)
            {
                let _ = reporter.events.try_send(event);
            }
            // Reported after every check, so that none that was lost is missed; the state takes what is new.
            if let Some(is_down) = target.is_down {
                let finding = CheckResult {
                    member: reporter.member,
                    backend: target.backend,
                    is_down,
                };
                let _ = reporter.requests.try_send(Request::Tell {
                    port: CONTROL,
                    frame: finding.frame().into(),
                    called: None,
                });
            }
        }
        while reporter.clock.now() < next {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            std::thread::park_timeout(next.since(reporter.clock.now()).min(LOOK));
        }
    }
}

impl Target {
    /// After one more check: the finding, if it is another now. At first one success is enough.
    fn after(&mut self, answers: bool, checks: &Checks) -> Option<bool> {
        let is_down = !answers;
        if self.is_down == Some(is_down) {
            self.otherwise = 0;
            return None;
        }
        self.otherwise += 1;
        let needed = match (is_down, self.is_down) {
            (false, None) => 1,
            (false, Some(_)) => checks.rise,
            (true, _) => checks.fall,
        };
        if self.otherwise < needed {
            return None;
        }
        self.otherwise = 0;
        self.is_down = Some(is_down);
        Some(is_down)
    }

    fn found(&self, is_down: bool) -> Option<Event> {
        let event = if is_down {
            Event::warning("backend-down")
                .effect("where most hosts find so, it gets no new flows until it answers again")
                .cure("see whether it runs, and whether this host reaches it")
        } else {
            Event::info("backend-up")
        };
        Some(
            event
                .with("service", &self.service)
                .with("backend", self.backend)
                .with("checked", self.at),
        )
    }
}

/// Whether a backend answers a check in time.
fn answers(target: &Target, timeout: Duration, clock: &MonotonicClock) -> bool {
    let until = clock.now() + timeout;
    let Ok(mut stream) = TcpStream::connect_timeout(&SocketAddr::V4(target.at), timeout) else {
        return false;
    };
    let Some((path, host)) = &target.page else {
        return true;
    };
    // No time left is no timeout for the operating system: that must not wait for ever.
    let left = || Some(until.since(clock.now())).filter(|left| !left.is_zero());
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let Some(time) = left() else { return false };
    if stream.set_write_timeout(Some(time)).is_err()
        || stream.write_all(request.as_bytes()).is_err()
    {
        return false;
    }
    let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
    let mut room = [0; ANSWER_BYTES_MAX];
    loop {
        if let Some(is_good) = is_good(&answer) {
            return is_good;
        }
        let Some(left) = left() else { return false };
        if stream.set_read_timeout(Some(left)).is_err() {
            return false;
        }
        match stream.read(&mut room[answer.len()..]) {
            Ok(0) | Err(_) => return false,
            Ok(read) => {
                let start = answer.len();
                answer.extend_from_slice(&room[start..start + read]);
            }
        }
    }
}

/// Whether an HTTP answer that begins so has a good status (RFC 9112 section 4); `None`: more of it is needed.
fn is_good(answer: &[u8]) -> Option<bool> {
    // Of its fields none is read: the status is known before them.
    let mut response = httparse::Response::new(&mut []);
    let parsed = response.parse(answer);
    match response.code {
        Some(status) => Some(matches!(status, 200..400)),
        None => parsed.is_err().then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const CHECKS: Checks = Checks {
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(500),
        fall: 3,
        rise: 2,
    };

    /// For an answer that comes, from a server that may stand still for a while.
    const LONG: Duration = Duration::from_secs(30);

    fn target(at: SocketAddr, page: bool) -> Target {
        let SocketAddr::V4(at) = at else { panic!() };
        Target {
            service: "web".to_owned(),
            backend: Endpoint::new(*at.ip(), at.port(), Protocol::TCP),
            at,
            page: page.then(|| ("/health".to_owned(), at)),
            is_down: None,
            otherwise: 0,
        }
    }

    #[test]
    fn it_takes_several_checks_to_change_the_mind() {
        let mut target = target(([127, 0, 0, 1], 1).into(), false);
        let mut after = |answers| target.after(answers, &CHECKS);
        assert_eq!(after(true), Some(false), "the first success tells");
        assert_eq!([after(false), after(false)], [None, None]);
        assert_eq!(after(true), None, "not in a row");
        assert_eq!(
            [after(false), after(false), after(false)],
            [None, None, Some(true)]
        );
        assert_eq!([after(false), after(true)], [None, None]);
        assert_eq!(after(true), Some(false));
    }

    #[test]
    fn only_good_answers_are_good() {
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK"[..], Some(true)),
            (b"HTTP/1.0 302 Found", Some(true)),
            (b"HTTP/1.1 503 Busy", Some(false)),
            (b"HTTP/1.1 2", None),
            (b"HTT", None),
            (b"", None),
            (b"SSH-2.0-x", Some(false)),
            (b"HTTP/1.1x200", Some(false)),
            (b"HTTP/1.1 2x0", Some(false)),
            (b"HTTP/1.1 200 OK\r\nServer: a\r\n", Some(true)),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", Some(false)),
        ] {
            assert_eq!(is_good(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn backends_answer_or_not() {
        let clock = MonotonicClock::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        assert!(answers(&target(at, false), LONG, &clock));
        let _ = listener.accept();
        // It takes the connection and says nothing.
        let begun = clock.now();
        assert!(!answers(&target(at, true), CHECKS.timeout, &clock));
        assert!(clock.now().since(begun) >= CHECKS.timeout);
        let _ = listener.accept();
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.0 204 No Content\r\n\r\n", "HTTP/1.0 500 No\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 200];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /health HTTP/1.0\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(answers(&target(at, true), LONG, &clock));
        assert!(!answers(&target(at, true), LONG, &clock));
        server.join().unwrap();
        assert!(
            !answers(&target(at, false), CHECKS.timeout, &clock),
            "it is gone"
        );
    }
}
