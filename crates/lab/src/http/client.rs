//! Downloads, with when each connected and ended.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::LabError;
use crate::node::Node;

/// Downloads at once at most: each has a thread.
pub const AT_ONCE_MAX: usize = 1_000;
/// Bytes of an answer's head at most.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// What is to be downloaded.
#[derive(Clone, Debug)]
pub struct Downloads<'a> {
    /// The server.
    pub server: SocketAddr,
    /// The document's path.
    pub path: String,
    /// What the document must be, byte by byte.
    pub document: &'a [u8],
    /// How many downloads, each over a connection of its own.
    pub count: usize,
    /// How many at once.
    pub at_once: usize,
    /// How long one may take to connect, and how long it may be without news.
    pub patience: Duration,
}

/// How far downloads are, for anyone who looks on while they run.
#[derive(Debug, Default)]
pub struct Progress {
    under_way: AtomicUsize,
    bytes_left: AtomicUsize,
    ended: AtomicUsize,
}

impl Progress {
    /// Downloads that are connected and have not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Bytes that those still lack.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        self.bytes_left.load(Ordering::Relaxed)
    }

    /// Downloads that have ended, well or not.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

/// One download's part of it.
struct Part<'a> {
    progress: &'a Progress,
    left: usize,
}

impl<'a> Part<'a> {
    fn begin(progress: &'a Progress, bytes: usize) -> Part<'a> {
        progress.under_way.fetch_add(1, Ordering::Relaxed);
        progress.bytes_left.fetch_add(bytes, Ordering::Relaxed);
        Part {
            progress,
            left: bytes,
        }
    }

    fn received(&mut self, bytes: usize) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.progress.bytes_left.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.received(self.left);
        self.progress.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The longest time without news, from the beginning of a connection to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// When it began, from the first download's beginning.
    pub began: Duration,
    /// How long it was.
    pub lasted: Duration,
}

/// One download.
#[derive(Clone, Debug)]
pub struct Download {
    /// When it began, from the first one's beginning.
    pub began: Duration,
    /// How long it took from the first SYN until the kernel had the SYN-ACK; none if it never did.
    pub connect: Option<Duration>,
    /// When it ended, from the first one's beginning.
    pub ended: Duration,
    /// Its longest time without news: without a SYN-ACK at first, without bytes later.
    pub stall: Stall,
    /// Why it is not complete.
    pub fault: Option<String>,
}

/// What came of downloads.
#[derive(Clone, Debug, Default)]
pub struct DownloadReport {
    /// Each, in no order.
    pub downloads: Vec<Download>,
}

impl Downloads<'_> {
    /// Does it, in a node. Waits for all.
    pub fn run(&self, node: &Node) -> Result<DownloadReport, LabError> {
        self.run_watched(node, &Progress::default())
    }

    /// The same, while others look at how far it is.
    pub fn run_watched(
        &self,
        node: &Node,
        progress: &Progress,
    ) -> Result<DownloadReport, LabError> {
        if !(1..=AT_ONCE_MAX).contains(&self.at_once) {
            return Err(LabError::BadName {
                name: format!("{} at once", self.at_once),
                fault: "downloads go 1 to 1,000 at once",
            });
        }
        let next = AtomicUsize::new(0);
        let start = clock::now();
        let downloads = node.enter(|| {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..self.at_once.min(self.count))
                    .map(|_| {
                        scope.spawn(|| {
                            let mut done = Vec::new();
                            while next.fetch_add(1, Ordering::Relaxed) < self.count {
                                done.push(self.download(start, progress));
                            }
                            done
                        })
                    })
                    .collect();
                workers
                    .into_iter()
                    .flat_map(|worker| worker.join().unwrap_or_default())
                    .collect()
            })
        })?;
        Ok(DownloadReport { downloads })
    }

    fn download(&self, start: Instant, progress: &Progress) -> Download {
        let began = start.elapsed();
        let mut news = Shared {
            start,
            last: began,
            stall: Stall::default(),
        };
        let mut connect = None;
        let fault = match self.attempt(&mut connect, &mut news, progress) {
            Ok(()) => None,
            Err(error) => Some(error.to_string()),
        };
        news.came();
        progress.ended.fetch_add(1, Ordering::Relaxed);
        Download {
            began,
            connect,
            ended: start.elapsed(),
            stall: news.stall,
            fault,
        }
    }

    fn attempt(
        &self,
        connect: &mut Option<Duration>,
        news: &mut Shared,
        progress: &Progress,
    ) -> std::io::Result<()> {
        let wrong = |said: String| Err(std::io::Error::other(said));
        let before = clock::now();
        let mut stream = TcpStream::connect_timeout(&self.server, self.patience)?;
        *connect = Some(before.elapsed());
        news.came();
        let mut part = Part::begin(progress, self.document.len());
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        let (path, server) = (&self.path, self.server);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"
        )?;
        let mut buffer = vec![0; READ_BYTES];
        let mut head = Vec::new();
        let body_at = loop {
            let length = stream.read(&mut buffer)?;
            news.came();
            if length == 0 || head.len() > HEAD_BYTES_MAX {
                return wrong("the answer has no end of its head".to_owned());
            }
            head.extend_from_slice(&buffer[..length]);
            if let Some(place) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break place + 4;
            }
        };
        if !head.starts_with(b"HTTP/1.1 200") {
            let line = head.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
            return wrong(format!("the server said {}", String::from_utf8_lossy(line)));
        }
        let mut received = head.len() - body_at;
        part.received(received);
        if self.document.get(..received) != Some(&head[body_at..]) {
            return wrong("the document's first bytes are wrong".to_owned());
        }
        loop {
            let length = stream.read(&mut buffer)?;
            news.came();
            part.received(length);
            if length == 0 {
                break;
            }
            let expected = self.document.get(received..received + length);
            if expected != Some(&buffer[..length]) {
                return wrong(format!("the document is wrong after {received} bytes"));
            }
            received += length;
        }
        if received == self.document.len() {
            Ok(())
        } else {
            wrong(format!("the document ended after {received} bytes"))
        }
    }
}

/// When there was news last, and the longest time without.
struct Shared {
    start: Instant,
    last: Duration,
    stall: Stall,
}

impl Shared {
    fn came(&mut self) {
        let now = self.start.elapsed();
        let lasted = now.saturating_sub(self.last);
        if lasted > self.stall.lasted {
            self.stall = Stall {
                began: self.last,
                lasted,
            };
        }
        self.last = now;
    }
}

impl DownloadReport {
    /// How many are complete, with every byte as it must be.
    #[must_use]
    pub fn complete(&self) -> usize {
        let whole = self.downloads.iter().filter(|one| one.fault.is_none());
        whole.count()
    }

    /// The first few faults, in words.
    #[must_use]
    pub fn faults(&self) -> String {
        let mut faults: Vec<_> = self
            .downloads
            .iter()
            .filter_map(|one| one.fault.clone())
            .collect();
        let count = faults.len();
        faults.sort();
        faults.dedup();
        faults.truncate(5);
        format!("{count} failed: {}", faults.join("; "))
    }

    /// The most that were connected and not yet ended at one moment.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        let mut changes: Vec<(Duration, i32)> = self
            .downloads
            .iter()
            .filter_map(|one| Some((one.began + one.connect?, one.ended)))
            .flat_map(|(connected, ended)| [(connected, 1), (ended, -1)])
            .collect();
        // What ended at the moment at which another connected was not there together with it.
        changes.sort();
        let mut now = 0;
        let mut most = 0;
        for (_, change) in changes {
            now += change;
            most = most.max(now);
        }
        usize::try_from(most).unwrap_or(0)
    }

    /// The time to connect that a share (0 to 1) of those that connected did not exceed, in milliseconds.
    #[must_use]
    pub fn connect_ms(&self, share: f64) -> f64 {
        let mut times: Vec<f64> = self
            .downloads
            .iter()
            .filter_map(|one| one.connect)
            .map(|time| time.as_secs_f64() * 1e3)
            .collect();
        times.sort_by(f64::total_cmp);
        let place = (share * times.len().saturating_sub(1) as f64).round() as usize;
        times.get(place).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_and_times_are_read_off_the_intervals() {
        let ms = Duration::from_millis;
        let one = |began, connect, ended| Download {
            began: ms(began),
            connect: Some(ms(connect)),
            ended: ms(ended),
            stall: Stall::default(),
            fault: None,
        };
        let mut report = DownloadReport {
            downloads: vec![one(0, 1, 10), one(0, 2, 5), one(4, 1, 20), one(10, 0, 12)],
        };
        assert_eq!(report.most_at_once(), 2);
        assert_eq!(report.complete(), 4);
        assert_eq!(report.connect_ms(0.5), 1.0);
        assert_eq!(report.connect_ms(1.0), 2.0);
        report.downloads.push(Download {
            began: ms(0),
            connect: None,
            ended: ms(99),
            stall: Stall::default(),
            fault: Some("refused".to_owned()),
        });
        assert_eq!((report.most_at_once(), report.complete()), (2, 4));
        assert_eq!(report.faults(), "1 failed: refused");
        assert!(DownloadReport::default().connect_ms(0.5).is_nan());
    }

    #[test]
    fn progress_counts_what_is_under_way_and_what_it_lacks() {
        let progress = Progress::default();
        let mut first = Part::begin(&progress, 100);
        let second = Part::begin(&progress, 100);
        first.received(30);
        assert_eq!((progress.under_way(), progress.bytes_left()), (2, 170));
        // An answer that is longer than it should be takes nothing from the others.
        first.received(90);
        drop(first);
        assert_eq!((progress.under_way(), progress.bytes_left()), (1, 100));
        drop(second);
        assert_eq!((progress.under_way(), progress.bytes_left()), (0, 0));
    }
}
