//! The host program of these tests: this test program itself, started by a script, which behaves as its configuration says.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use asterism_lab::pause;
use asterism_launch::laws::{Behaviour, FAILS_BECAUSE, FAILS_WITH, WAITS_FOR};
use asterism_launch::{HostSpec, Readiness};
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

/// The variable by which the script hands over the configuration.
const CONFIGURATION: &str = "ASTERISM_STUB_CONFIGURATION";

/// The hosts of a test: a folder with a configuration of each, and what each leaves there.
pub(crate) struct Stubs {
    folder: PathBuf,
}

impl Stubs {
    pub(crate) fn new(folder: &Path) -> Stubs {
        let stubs = Stubs {
            folder: folder.to_owned(),
        };
        let test = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\n# run CONFIGURATION --member NAME\n{CONFIGURATION}=\"$2\" exec {} --exact stub::behaves --nocapture\n",
            test.display()
        );
        std::fs::write(stubs.program(), script).unwrap();
        std::fs::set_permissions(stubs.program(), PermissionsExt::from_mode(0o755)).unwrap();
        stubs
    }

    /// The script.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("host")
    }

    pub(crate) fn spec(&self, name: &str, incarnation: u64, behaviour: Behaviour) -> HostSpec {
        let configuration = self.folder.join(format!("{name}.toml"));
        std::fs::write(&configuration, format!("{behaviour:?}")).unwrap();
        let mut spec = HostSpec::new(name, incarnation, configuration);
        spec.readiness = Readiness::Within(Duration::from_secs(120));
        spec
    }

    pub(crate) fn starts(&self, name: &str) -> usize {
        let starts = self.folder.join(format!("{name}.toml.starts"));
        std::fs::read_to_string(starts).map_or(0, |text| text.lines().count())
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        let Ok(file) = File::open(self.folder.join(format!("{name}.toml.lock"))) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

/// Not a test of its own: with its variable set, this is a host.
#[test]
fn behaves() {
    let Some(configuration) = std::env::var_os(CONFIGURATION).map(PathBuf::from) else {
        return;
    };
    let behaviour = std::fs::read_to_string(&configuration).unwrap();
    let beside = |ending: &str| PathBuf::from(format!("{}.{ending}", configuration.display()));
    // A lock, so that two processes of one host are seen; its children have it as their input.
    let options = || OpenOptions::new().create(true).append(true).clone();
    let lock = options().read(true).open(beside("lock")).unwrap();
    let is_alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let mut starts = options().open(beside("starts")).unwrap();
    writeln!(starts, "{}", std::process::id()).unwrap();
    if !is_alone {
        writeln!(starts, "a second process of one host").unwrap();
        std::process::exit(70);
    }
    let mut signals = Signals::new([SIGTERM]).unwrap();
    let report = |text: &str| {
        let socket = UnixDatagram::unbound().unwrap();
        // An orchestrator that has died receives nothing.
        let _ = socket.send_to(text.as_bytes(), std::env::var_os("NOTIFY_SOCKET").unwrap());
    };
    match behaviour.as_str() {
        "Fails" => {
            eprintln!("{FAILS_BECAUSE}");
            std::process::exit(FAILS_WITH);
        }
        "Waits" => report(&format!("STATUS={WAITS_FOR}")),
        "Parent" => {
            let mut child = Command::new("sleep");
            let input = Stdio::from(lock.try_clone().unwrap());
            child.arg("1000").stdin(input);
            // The launcher's lock is this process's input: the child has it as its output.
            let held = std::os::fd::AsFd::as_fd(&std::io::stdin())
                .try_clone_to_owned()
                .unwrap();
            #[expect(clippy::zombie_processes, reason = "it outlives this process")]
            child.stdout(Stdio::from(held)).spawn().unwrap();
            report("READY=1");
        }
        _ => report("STATUS=takes packets\nREADY=1"),
    }
    let mut received = 0;
    for _ in signals.forever() {
        received += 1;
        match behaviour.as_str() {
            "Deaf" | "Parent" => {}
            "Drains" if received == 1 => drop(std::thread::spawn(|| {
                pause(Duration::from_secs(1));
                std::process::exit(0);
            })),
            "Drains" => std::process::exit(1),
            _ => std::process::exit(0),
        }
    }
}
