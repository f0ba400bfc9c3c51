//! The launcher of processes in network namespaces. Needs root and `ip`; prints `SKIPPED` without.

use std::process::Command;

use asterism_launch::laws::{self, Behaviour, LawWorld};
use asterism_launch::{HostSpec, LaunchError, Launcher, NamespaceLauncher, StopMode};

use crate::process::{Processes, kill_all};

/// One namespace, removed at the end, in which all hosts of the test start.
struct Namespace {
    name: String,
    processes: Processes,
}

impl Namespace {
    fn new(test: &str) -> Option<Namespace> {
        if let Err(why) = asterism_lab::needs(&["ip"]) {
            println!("SKIPPED launching in network namespaces: {why}");
            return None;
        }
        let name = format!("launch-{test}-{}", std::process::id());
        assert!(ip(&["netns", "add", &name]));
        let processes = Processes::new();
        Some(Namespace { name, processes })
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .status()
        .unwrap()
        .success()
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Ok(launcher) = self.launcher() {
            kill_all(launcher.as_ref());
        }
        ip(&["netns", "delete", &self.name]);
    }
}

impl LawWorld for Namespace {
    fn launcher(&self) -> Result<Box<dyn Launcher>, LaunchError> {
        let launcher = NamespaceLauncher::new(self.processes.config(), &*self.name)?;
        Ok(Box::new(launcher))
    }

    fn spec(&self, name: &str, incarnation: u64, behaviour: Behaviour) -> HostSpec {
        self.processes.spec(name, incarnation, behaviour)
    }

    fn starts(&self, name: &str) -> usize {
        self.processes.starts(name)
    }

    fn is_running(&self, name: &str) -> bool {
        self.processes.is_running(name)
    }
}

#[test]
fn processes_in_namespaces_keep_the_laws() {
    if let Some(world) = Namespace::new("laws") {
        laws::check(&world).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_host_is_in_its_namespace_and_a_namespace_must_be_there() {
    let Some(world) = Namespace::new("there") else {
        return;
    };
    let launcher = world.launcher().unwrap();
    let launched = launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap();
    let network = |path: String| std::fs::read_link(path).unwrap();
    let of_host = network(format!("/proc/{}/ns/net", launched.process.unwrap().pid));
    assert_ne!(of_host, network("/proc/self/ns/net".to_owned()));
    let described = launcher.describe();
    assert!(described.contains(&world.name), "{described}");

    let config = world.processes.config();
    let none = NamespaceLauncher::new(config, "launch-nowhere-{host}").unwrap();
    let error = none
        .launch(&world.spec("b", 1, Behaviour::Ready))
        .unwrap_err();
    let says = error.to_string();
    assert!(says.contains("launch-nowhere-b"), "{says}");
    assert_eq!(world.starts("b"), 0);
    launcher.stop("a", 1, StopMode::Kill).unwrap();
}
