//! An etcd of a test's own, with files in a temporary folder: it ends with the test that started it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;
use crate::port::KeptPort;
use crate::program::wait_until;

/// How long it may take to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// See the module.
#[derive(Debug)]
pub struct EtcdServer {
    process: Child,
    arguments: Vec<String>,
    address: SocketAddr,
    /// For clients and for members, also while it does not run.
    _ports: [KeptPort; 2],
    folder: PathBuf,
}

fn spawn(arguments: &[String]) -> Option<Child> {
    let mut command = Command::new("etcd");
    command.args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

impl EtcdServer {
    /// Starts a cluster of one member at free ports of this machine. `None` where there is no `etcd`: a test says so loudly.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn start() -> Option<EtcdServer> {
        EtcdServer::start_with(&[])
    }

    /// The same with more arguments.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn start_with(more: &[&str]) -> Option<EtcdServer> {
        let ports = [KeptPort::new().ok()?, KeptPort::new().ok()?];
        let [address, peers] = [ports[0].address(), ports[1].address()];
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("asterism-etcd-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A process that had this number before may have left it.
        let _ = std::fs::remove_dir_all(&folder);
        let is_sealed = more.contains(&"--cert-file");
        let scheme = if is_sealed { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{address}"), format!("http://{peers}"));
        let mut arguments = vec![
            format!("--data-dir={}", folder.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--logger=zap".to_owned(),
            "--log-level=error".to_owned(),
        ];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let server = EtcdServer {
            process: spawn(&arguments)?,
            arguments,
            address,
            _ports: ports,
            folder,
        };
        server.wait();
        Some(server)
    }

    fn wait(&self) {
        let answers = || TcpStream::connect(self.address).is_ok();
        wait_until("etcd to answer", STARTS_WITHIN, answers).expect("it answers");
    }

    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it as `kill -9` does. Its files stay.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it on its files again, after [`EtcdServer::kill`].
    ///
    /// # Panics
    /// It does not answer.
    pub fn restart(&mut self) {
        self.process = spawn(&self.arguments).expect("it started before");
        self.wait();
    }

    /// Kills it and starts it without its files: another cluster of the same address, or the same one without its history.
    ///
    /// # Panics
    /// It does not answer.
    pub fn forget(&mut self, token: &str) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
        let same = |argument: &String| !argument.starts_with("--initial-cluster-token");
        self.arguments.retain(same);
        let token = format!("--initial-cluster-token={token}");
        self.arguments.push(token);
        self.restart();
    }

    /// Stops it in the middle of what it does, until [`EtcdServer::go_on`].
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// See [`EtcdServer::pause`].
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes an authority of its own into a folder (`ca.pem`), and by it certificates and keys of a server and a client on loopback:
/// `server.pem`, `server.key`, `client.pem`, `client.key`. Needs `openssl`. Some 100 ms.
pub fn write_certificates(folder: &Path) -> Result<(), LabError> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        folder,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca -days 2"),
    )?;
    let names = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(folder.join("san"), names)
        .map_err(|error| LabError::kernel(format!("writing {}/san", folder.display()), error))?;
    for name in ["server", "client"] {
        openssl(
            folder,
            &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"),
        )?;
        openssl(
            folder,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile san"
            ),
        )?;
    }
    Ok(())
}

fn openssl(folder: &Path, line: &str) -> Result<(), LabError> {
    let done = Command::new("openssl")
        .args(line.split(' '))
        .current_dir(folder)
        .output()
        .map_err(|error| LabError::kernel("starting openssl", error))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(LabError::Failed {
            what: format!("openssl {line}"),
            said: String::from_utf8_lossy(&done.stderr).into_owned(),
        }),
    }
}
