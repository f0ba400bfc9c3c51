//! Hosts as processes of the product on loopback: their files, their start, what they say of themselves, their end.

use std::cell::Cell;
use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::contract::Failure;
use crate::timing::{process_cpu_ns, wall_ns};

/// How long anything may take that should take a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again until there is an answer.
pub(super) fn wait<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let until = wall_ns() + PATIENCE.as_nanos() as u64;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if wall_ns() > until {
            return Err(Failure::Unsound(format!("waited for {what} in vain")));
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Two addresses on loopback that nobody uses.
pub(super) fn two_addresses() -> Result<[String; 2], Failure> {
    // Held both at once, so that they differ.
    let absent = |error: std::io::Error| Failure::Absent(format!("no socket: {error}"));
    let socket = || UdpSocket::bind("127.0.0.1:0").map_err(absent);
    let [one, two] = [socket()?, socket()?];
    let address = |socket: &UdpSocket| Ok(socket.local_addr().map_err(absent)?.to_string());
    Ok([address(&one)?, address(&two)?])
}

/// A folder of its own, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let name = format!("asterism-bench-{}-{}", std::process::id(), wall_ns());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)
            .map_err(|error| Failure::Absent(format!("no folder {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(|error| {
            Failure::Absent(format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster's files, and the program that its hosts run.
pub(super) struct Products {
    folder: Folder,
    product: PathBuf,
    started: Cell<u32>,
}

impl Products {
    /// Writes the configuration, and a new key as `cluster.key`.
    pub(super) fn new(product: &Path, configuration: &str) -> Result<Self, Failure> {
        let folder = Folder::new()?;
        folder.write("asterism.toml", configuration)?;
        let products = Self {
            folder,
            product: product.to_owned(),
            started: Cell::new(0),
        };
        let key = products.path("cluster.key");
        products.command(&["keygen", &key.to_string_lossy()])?;
        Ok(products)
    }

    /// A file of the cluster.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Runs the program to its end; what it wrote.
    fn command(&self, arguments: &[&str]) -> Result<String, Failure> {
        let output = Command::new(&self.product)
            .args(arguments)
            .output()
            .map_err(|error| Failure::Absent(format!("{}: {error}", self.product.display())))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(Failure::Unsound(format!(
                "asterism {}: {}",
                arguments.join(" "),
                text(&output.stderr)
            )))
        }
    }

    /// Writes the next epoch.
    pub(super) fn epoch(&self, changes: &[&str]) -> Result<(), Failure> {
        let config = self.path("asterism.toml");
        let config = config.to_string_lossy();
        self.command(&[&["epoch", &config], changes].concat())?;
        Ok(())
    }

    /// Starts a host.
    pub(super) fn start(&self, name: &'static str) -> Result<HostProcess<'_>, Failure> {
        self.started.set(self.started.get() + 1);
        let notify = self.path(&format!("notify.{}", self.started.get()));
        let absent = |error: std::io::Error| {
            Failure::Absent(format!("a host could not be started: {error}"))
        };
        let notices = UnixDatagram::bind(&notify).map_err(absent)?;
        notices
            .set_read_timeout(Some(Duration::from_millis(200)))
            .map_err(absent)?;
        let log = self.path(&format!("{name}.log"));
        let child = Command::new(&self.product)
            .arg("run")
            .arg(self.path("asterism.toml"))
            .args(["--member", name])
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(absent)?)
            .spawn()
            .map_err(absent)?;
        Ok(HostProcess {
            products: self,
            name,
            child,
            log,
            notices,
        })
    }
}

/// A running host. It is killed when this is dropped.
pub(super) struct HostProcess<'a> {
    products: &'a Products,
    name: &'static str,
    child: Child,
    log: PathBuf,
    notices: UnixDatagram,
}

impl HostProcess<'_> {
    /// Waits until it says that it takes packets; the moment, as [`wall_ns`] counts.
    pub(super) fn wait_for_ready(&mut self) -> Result<u64, Failure> {
        let until = wall_ns() + PATIENCE.as_nanos() as u64;
        let mut buffer = [0; 1_024];
        loop {
            let received = self.notices.recv(&mut buffer);
            let now = wall_ns();
            if let Ok(length) = received {
                let text = String::from_utf8_lossy(&buffer[..length]);
                if text.lines().any(|line| line == "READY=1") {
                    return Ok(now);
                }
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || now > until {
                return Err(Failure::Unsound(format!(
                    "host {} did not come to be ready: {}",
                    self.name,
                    std::fs::read_to_string(&self.log).unwrap_or_default()
                )));
            }
        }
    }

    /// On-CPU milliseconds so far.
    pub(super) fn cpu_ms(&self) -> Result<f64, Failure> {
        process_cpu_ns(self.child.id())
            .map(|ns| ns as f64 / 1e6)
            .ok_or_else(|| Failure::Unsound(format!("host {} ended by itself", self.name)))
    }

    /// What it says of itself, with these further arguments.
    pub(super) fn status(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let socket = self.products.path(&format!("{}.sock", self.name));
        let socket = socket.to_string_lossy();
        let all = ["status", "--format", "json", "--socket", &socket];
        let text = self.products.command(&[&all, arguments].concat())?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::Unsound(format!("the status is no document: {error}")))
    }
}

impl Drop for HostProcess<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
