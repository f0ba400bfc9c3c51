//! Squid, the web cache, and what stands around it: an origin whose answers may be kept, and a client that asks by a cache. On
//! loopback, without namespaces and without root; whatever is started ends with its value.

use std::fs;
use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;
use crate::port::KeptPort;

/// How long a cache may take to start, to end, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks at something that gives no notice.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long the origin waits for a request.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// Bytes of an object.
const OBJECT_BYTES: usize = 512;
/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 8_192;

/// Whether Squid is installed, and can make and use digests.
#[must_use]
pub fn is_installed() -> bool {
    let said = Command::new("squid").arg("-v").output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("--enable-cache-digests"))
}

/// A web server that answers every GET with an object which caches may keep.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl Origin {
    /// Starts it, at a free port of loopback. Its thread ends with the process.
    ///
    /// # Errors
    /// There was no port or thread; nothing was started.
    pub fn start() -> Result<Origin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        std::thread::Builder::new()
            .name("origin".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A client that goes away takes nothing from the others.
                    let _ = answer(stream, &counted);
                }
            })?;
        Ok(Origin { address, asked })
    }

    /// The URL of an object.
    #[must_use]
    pub fn url(&self, number: u32) -> String {
        format!("http://{}/objects/{number}", self.address)
    }

    /// How many whole requests it received.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Counts a request before its answer, so that a client that has the answer finds it counted.
fn answer(mut stream: TcpStream, asked: &AtomicU64) -> Result<()> {
    stream.set_read_timeout(Some(REQUEST_MAX))?;
    let (mut head, mut room) = (Vec::new(), [0; 1_024]);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let read = stream.read(&mut room)?;
        head.extend_from_slice(&room[..read]);
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return Err(Error::other("no request"));
        }
    }
    asked.fetch_add(1, Ordering::Relaxed);
    let said = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {OBJECT_BYTES}\r\nExpires: Thu, 31 Dec 2099 23:59:59 GMT\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(said.as_bytes())?;
    stream.write_all(&[b'x'; OBJECT_BYTES])
}

/// A running Squid, which makes a new digest every second: so it needs a cache on disk. It is ended when this is dropped.
#[derive(Debug)]
pub struct Squid {
    child: Child,
    port: KeptPort,
    folder: PathBuf,
}

impl Squid {
    /// Starts it, at a free port of loopback, with its files in a folder that is made in `parent`; waits until it answers. `more`
    /// ends its configuration.
    ///
    /// # Errors
    /// It is not installed, or does not come up: with what it logged.
    pub fn start(parent: &Path, name: &str, more: &str) -> Result<Squid> {
        let folder = parent.join(name);
        fs::create_dir(&folder)?;
        if fs::metadata("/proc/self")?.uid() == 0 {
            // Started by root it goes on as another user, which must reach and write its files.
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        }
        let kept = KeptPort::new()?;
        let port = kept.address().port();
        let path = folder.join("squid.conf");
        let at = folder.display();
        fs::write(
            &path,
            format!(
                "http_port 127.0.0.1:{port}\n\
                 visible_hostname {name}\n\
                 pid_filename {at}/pid\n\
                 cache_log {at}/cache.log\n\
                 access_log stdio:{at}/access.log\n\
                 coredump_dir {at}\n\
                 netdb_filename none\n\
                 pinger_enable off\n\
                 icp_port 0\n\
                 shutdown_lifetime 0 seconds\n\
                 cache_mem 64 MB\n\
                 cache_dir ufs {at}/cache 64 4 4\n\
                 refresh_pattern . 0 20% 4320\n\
                 http_access allow all\n\
                 minimum_direct_rtt 0\n\
                 minimum_direct_hops 0\n\
                 digest_generation on\n\
                 digest_rebuild_period 1 second\n\
                 digest_rewrite_period 1 second\n\
                 {more}\n"
            ),
        )?;
        // Its segments of shared memory are named after the service: two of one name would share them.
        let service = format!("{name}{}", std::process::id());
        let squid = |arguments: &[&str]| {
            let mut command = Command::new("squid");
            command
                .args(["-N", "-n", &service])
                .args(arguments)
                .arg("-f")
                .arg(&path);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        // Makes the folders of the cache, and ends.
        if !squid(&["-z"]).status()?.success() {
            return Err(Error::other(format!("squid -z {name} failed")));
        }
        let child = squid(&[]).spawn()?;
        let mut squid = Squid {
            child,
            port: kept,
            folder,
        };
        let mut waited = Duration::ZERO;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if squid.child.try_wait()?.is_some() || waited > PATIENCE {
                let log = squid.file("cache.log");
                return Err(Error::other(format!("squid {name} did not come up: {log}")));
            }
            clock::pause(LOOK_AGAIN);
            waited += LOOK_AGAIN;
        }
        Ok(squid)
    }

    /// Its port for HTTP, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.address().port()
    }

    /// Gets an object by it; the status.
    ///
    /// # Errors
    /// It does not answer, or not whole.
    pub fn get(&self, url: &str) -> Result<u16> {
        self.ask(url, "")
    }

    /// Has it get an object from the origin again, and store it again.
    ///
    /// # Errors
    /// It does not answer, or not whole.
    pub fn reload(&self, url: &str) -> Result<u16> {
        self.ask(url, "Cache-Control: no-cache\r\nPragma: no-cache\r\n")
    }

    fn ask(&self, url: &str, headers: &str) -> Result<u16> {
        let mut stream = TcpStream::connect(self.port.address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {url} HTTP/1.0\r\n{headers}\r\n").as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let status = answer
            .get(9..12)
            .and_then(|status| core::str::from_utf8(status).ok());
        status
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| {
                Error::other(format!(
                    "squid answered {} bytes without a status",
                    answer.len()
                ))
            })
    }

    /// What is in one of its files: `access.log` has a line for each request, `cache.log` what it says of itself.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many requests a sibling answered because its digest said that it has the object.
    #[must_use]
    pub fn sibling_hits(&self) -> usize {
        let log = self.file("access.log");
        let hits = log
            .lines()
            .filter(|line| line.contains("/200 ") && line.contains(" CD_SIBLING_HIT/"));
        hits.count()
    }
}

impl Drop for Squid {
    fn drop(&mut self) {
        // Asked to end it takes its helper and its shared memory with it.
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let mut waited = Duration::ZERO;
        while matches!(self.child.try_wait(), Ok(None)) && waited < PATIENCE {
            clock::pause(LOOK_AGAIN);
            waited += LOOK_AGAIN;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
