//! Hosts of the product as processes of their own. The program is this test's own file, which then runs one host and no test: so it is
//! of the same build, whatever else was built.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asterism::command_line;
use asterism_io::clock::MonotonicClock;
use asterism_local_network::{ClusterFile, loopback_addresses};
use asterism_output::End;
use asterism_placement::Time;

/// How long anything may take that should take a moment: other tests run beside this one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Lines of the command line that this process is to run in the tests' place.
const AS_PROGRAM: &str = "ASTERISM_LOCAL_NETWORK_PROGRAM";

/// Asks again until there is an answer.
pub(crate) fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let clock = MonotonicClock::new();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(
            clock.now() < Time::ZERO + PATIENCE,
            "waited for {what} in vain"
        );
        pause(Duration::from_millis(2));
    }
}

pub(crate) fn pause(time: Duration) {
    let clock = MonotonicClock::new();
    let until = clock.now().saturating_add(time);
    while clock.now() < until {
        std::thread::park_timeout(until.since(clock.now()));
    }
}

/// Runs a command of the product in this process.
fn program(arguments: &[OsString]) -> (End, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let end = command_line::run(arguments.iter().cloned(), &mut stdout, &mut stderr, false);
    let text = [stdout, stderr].concat();
    (end, String::from_utf8_lossy(&text).into_owned())
}

/// In a process that [`Cluster::start`] made, the host; among the tests, that the program is there.
#[test]
fn the_program_runs_in_this_file() {
    let Some(lines) = std::env::var_os(AS_PROGRAM) else {
        let (end, text) = program(&["asterism".into(), "--help".into()]);
        assert!(end == End::Done && text.contains("run"), "{text}");
        return;
    };
    let lines = lines.into_string().unwrap();
    let arguments = lines.lines().map(OsString::from);
    let (mut stdout, mut stderr) = (std::io::sink(), std::io::stderr());
    let end = command_line::run(arguments, &mut stdout, &mut stderr, false);
    std::process::exit(if end == End::Done { 0 } else { 1 });
}

/// A cluster's files, in a folder of its own.
pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) file: ClusterFile,
}

impl Cluster {
    /// So many hosts, called `a`, `b` and so on, in their first epoch.
    pub(crate) fn new(hosts: usize) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = ('a'..).take(hosts).map(String::from).collect();
        let channel = loopback_addresses(hosts, std::process::id()).unwrap();
        let file = ClusterFile::new(folder.path(), "local", names, channel);
        file.write().unwrap();
        let cluster = Cluster { folder, file };
        let key = cluster.path("cluster.key");
        cluster.command(&["keygen", key.to_str().unwrap()]);
        cluster.epoch(&["--first"]);
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.file.hosts.clone()
    }

    fn command(&self, arguments: &[&str]) -> String {
        let all = ["asterism"].iter().chain(arguments).map(OsString::from);
        let (end, text) = program(&all.collect::<Vec<_>>());
        assert_eq!(end, End::Done, "{arguments:?}: {text}");
        text
    }

    /// Writes the next epoch.
    pub(crate) fn epoch(&self, changes: &[&str]) {
        let config = self.file.path();
        let all = [&["epoch", config.to_str().unwrap()], changes].concat();
        self.command(&all);
    }

    /// Starts a host's process.
    pub(crate) fn start(&self, name: &str) -> HostProcess {
        let notify = self.path(&format!("{name}.notify"));
        let _ = std::fs::remove_file(&notify);
        let notices = UnixDatagram::bind(&notify).unwrap();
        notices.set_nonblocking(true).unwrap();
        let log = self.path(&format!("{name}.log"));
        let config = self.file.path();
        let lines = [
            "asterism",
            "run",
            config.to_str().unwrap(),
            "--member",
            name,
        ];
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "hosts::the_program_runs_in_this_file",
                "--nocapture",
            ])
            .env(AS_PROGRAM, lines.join("\n"))
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        HostProcess {
            name: name.to_owned(),
            child,
            log,
            notices,
        }
    }

    /// What a host reports of itself.
    pub(crate) fn status(&self, name: &str) -> serde_json::Value {
        let socket = self.file.control_socket(name);
        let arguments = ["status", "--format", "json", "--socket"];
        let text = self.command(&[&arguments[..], &[socket.to_str().unwrap()]].concat());
        serde_json::from_str(&text).unwrap()
    }
}

/// A host's process. It is killed when this is dropped.
pub(crate) struct HostProcess {
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
    notices: UnixDatagram,
}

impl HostProcess {
    /// Waits until it takes packets.
    pub(crate) fn wait_until_ready(&mut self) {
        let mut buffer = [0; 1_024];
        wait(&format!("host {}", self.name), || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("host {} ended, {status}: {}", self.name, self.log());
            }
            let mut is_ready = false;
            while let Ok(length) = self.notices.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                is_ready |= text.lines().any(|line| line == "READY=1");
            }
            is_ready.then_some(())
        });
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
