//! The launcher of containers, by the real podman. Needs root, `podman` and `runc`; prints `SKIPPED` without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use asterism_lab::wait_until;
use asterism_launch::laws::{self, Behaviour, LawWorld};
use asterism_launch::{
    ContainerConfig, ContainerLauncher, ContainerSource, EndedBy, FoundState, HostSpec,
    LaunchError, Launcher, StopMode,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::kill_all;
use crate::stub::Stubs;

const LONG: Duration = Duration::from_secs(60);

/// Podman with a store of its own, removed at the end with all that runs in it.
struct Containers {
    folder: TempDir,
    stubs: Stubs,
    source: ContainerSource,
}

impl Containers {
    fn new() -> Option<Containers> {
        if let Err(why) = asterism_lab::needs(&["podman", "runc"]) {
            println!("SKIPPED launching containers: {why}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let stubs = Stubs::new(folder.path());
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        Some(Containers {
            stubs,
            source: ContainerSource::Rootfs(root),
            folder,
        })
    }

    fn podman_options(&self) -> Vec<String> {
        let within = |name: &str| self.folder.path().join(name).display().to_string();
        let store = [
            format!("--root={}", within("store")),
            format!("--runroot={}", within("run")),
            format!("--tmpdir={}", within("tmp")),
        ];
        let fixed = [
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--runtime=runc",
            "--events-backend=none",
        ];
        store.into_iter().chain(fixed.map(str::to_owned)).collect()
    }

    fn podman(&self, arguments: &[&str]) -> String {
        let output = Command::new("podman")
            .args(self.podman_options())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text + &String::from_utf8_lossy(&output.stderr)
    }

    fn config(&self) -> ContainerConfig {
        // The test program and all that it needs are those of the machine.
        let test = std::env::current_exe().unwrap();
        let test = test.parent().unwrap();
        let mut volumes: Vec<String> = ["/bin", "/lib", "/lib64", "/usr"]
            .into_iter()
            .chain(test.to_str())
            .filter(|path| Path::new(path).exists())
            .map(|path| format!("--volume={path}:{path}:ro"))
            .collect();
        let own = self.folder.path().display();
        volumes.push(format!("--volume={own}:{own}"));
        // A machine may permit no more than this.
        let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"];
        volumes.extend(limits.map(str::to_owned));
        ContainerConfig {
            cluster: "lab".to_owned(),
            folder: self.folder.path().join("launch"),
            podman: PathBuf::from("podman"),
            podman_options: self.podman_options(),
            create_options: volumes,
            source: self.source.clone(),
            program: vec![self.stubs.program().display().to_string()],
        }
    }

    fn new_launcher(&self) -> ContainerLauncher {
        ContainerLauncher::new(self.config()).unwrap()
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        kill_all(&self.new_launcher());
        self.podman(&["rm", "--force", "--all", "--time=0"]);
        self.podman(&["rmi", "--force", "--all"]);
    }
}

impl LawWorld for Containers {
    fn launcher(&self) -> Result<Box<dyn Launcher>, LaunchError> {
        Ok(Box::new(ContainerLauncher::new(self.config())?))
    }

    fn spec(&self, name: &str, incarnation: u64, behaviour: Behaviour) -> HostSpec {
        self.stubs.spec(name, incarnation, behaviour)
    }

    fn starts(&self, name: &str) -> usize {
        self.stubs.starts(name)
    }

    fn is_running(&self, name: &str) -> bool {
        self.stubs.is_running(name)
    }
}

#[test]
fn containers_keep_the_laws() {
    if let Some(world) = Containers::new() {
        laws::check(&world).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_container_is_made_of_an_image_and_carries_its_host_in_labels() {
    let Some(mut world) = Containers::new() else {
        return;
    };
    let archive = world.folder.path().join("image.tar");
    let made = Command::new("tar")
        .args(["--create", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(world.folder.path())
        .arg("root")
        .status();
    assert!(made.unwrap().success());
    world.podman(&[
        "import",
        archive.to_str().unwrap(),
        "localhost/asterism:test",
    ]);
    world.source = ContainerSource::Image("localhost/asterism:test".to_owned());
    let launcher = world.new_launcher();
    launcher
        .launch(&world.spec("a", 7, Behaviour::Ready))
        .unwrap();
    let labels = world.podman(&[
        "inspect",
        "--format",
        "{{json .Config.Labels}}",
        "asterism.lab.a",
    ]);
    for label in [
        "\"asterism.cluster\":\"lab\"",
        "\"asterism.host\":\"a\"",
        "\"asterism.incarnation\":\"7\"",
    ] {
        assert!(labels.contains(label), "{labels}");
    }
    // With the folder of records lost, the labels say what runs.
    std::fs::remove_dir_all(world.folder.path().join("launch")).unwrap();
    let launcher = world.new_launcher();
    let found = launcher.find().unwrap();
    assert_eq!(
        (found[0].incarnation, &found[0].state),
        (7, &FoundState::Runs)
    );
    assert!(
        launcher
            .launch(&world.spec("a", 7, Behaviour::Ready))
            .unwrap()
            .already
    );
    let evidence = launcher.stop("a", 7, StopMode::Kill).unwrap();
    assert_eq!(evidence.ended_by(), &EndedBy::Container);
    assert_eq!(world.starts("a"), 1);

    world.source = ContainerSource::Image("localhost/none:test".to_owned());
    let error = world
        .new_launcher()
        .launch(&world.spec("b", 1, Behaviour::Ready));
    let says = error.unwrap_err().to_string();
    assert!(
        says.contains("localhost/none:test") && says.contains("nothing was started"),
        "{says}"
    );
}

#[test]
fn a_container_whose_watcher_was_killed_is_still_ended_for_certain() {
    let Some(world) = Containers::new() else {
        return;
    };
    let launcher = world.new_launcher();
    launcher
        .launch(&world.spec("a", 1, Behaviour::Deaf))
        .unwrap();
    let watcher = world.podman(&[
        "inspect",
        "--format",
        "{{.State.ConmonPid}}",
        "asterism.lab.a",
    ]);
    let watcher = Pid::from_raw(watcher.trim().parse().unwrap()).unwrap();
    kill_process(watcher, Signal::KILL).unwrap();
    assert_eq!(launcher.find().unwrap()[0].state, FoundState::Runs);
    assert!(world.is_running("a"));
    launcher.stop("a", 1, StopMode::Kill).unwrap();
    assert!(!world.is_running("a"));
    launcher
        .launch(&world.spec("a", 2, Behaviour::Ready))
        .unwrap();
}

#[test]
fn a_container_that_was_removed_and_a_podman_that_fails_are_reported() {
    let Some(world) = Containers::new() else {
        return;
    };
    let launcher = world.new_launcher();
    launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap();
    world.podman(&["rm", "--force", "--time=0", "asterism.lab.a"]);
    wait_until("the end of the container", LONG, || !world.is_running("a")).unwrap();
    let found = launcher.find().unwrap();
    assert!(matches!(found[0].state, FoundState::Ended(_)), "{found:?}");
    let error = launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap_err();
    assert!(matches!(error, LaunchError::Ended { .. }), "{error}");
    launcher
        .launch(&world.spec("a", 2, Behaviour::Ready))
        .unwrap();

    let with = |podman: &str| {
        let config = ContainerConfig {
            podman: PathBuf::from(podman),
            ..world.config()
        };
        let launcher = ContainerLauncher::new(config).unwrap();
        let launched = launcher.launch(&world.spec("b", 1, Behaviour::Ready));
        format!("{} {}", launched.unwrap_err(), launcher.find().unwrap_err())
    };
    let absent = with("no-such-podman");
    assert!(
        absent.contains("there is no program no-such-podman"),
        "{absent}"
    );
    let fails = with("/bin/false");
    assert!(fails.contains("podman ps"), "{fails}");
    let nonsense = with("/bin/echo");
    assert!(nonsense.contains("is understood"), "{nonsense}");
    assert_eq!(world.starts("b"), 0);
}
