//! The launcher of processes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use asterism_launch::laws::{self, Behaviour, LawWorld};
use asterism_launch::{
    EndedBy, Exit, FoundState, HostSpec, LOG_BYTES_MAX, LaunchError, Launcher, ProcessConfig,
    ProcessLauncher, StopMode,
};
use tempfile::TempDir;

use crate::stub::Stubs;

/// Hosts as processes of a folder. What still runs at its end is killed.
pub(crate) struct Processes {
    pub(crate) folder: TempDir,
    pub(crate) stubs: Stubs,
}

impl Processes {
    pub(crate) fn new() -> Processes {
        let folder = tempfile::tempdir().unwrap();
        let stubs = Stubs::new(folder.path());
        Processes { folder, stubs }
    }

    pub(crate) fn config(&self) -> ProcessConfig {
        ProcessConfig {
            program: self.stubs.program(),
            ..ProcessConfig::new("lab", self.folder.path().join("launch"))
        }
    }

    pub(crate) fn new_launcher(&self) -> ProcessLauncher {
        ProcessLauncher::new(self.config()).unwrap()
    }

    /// A file of the launcher's.
    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("launch/lab").join(name)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        kill_all(&self.new_launcher());
    }
}

/// Ends all hosts of a launcher, as far as it can.
pub(crate) fn kill_all(launcher: &dyn Launcher) {
    for found in launcher.find().unwrap_or_default() {
        let _ = launcher.stop(&found.name, found.incarnation, StopMode::Kill);
    }
}

impl LawWorld for Processes {
    fn launcher(&self) -> Result<Box<dyn Launcher>, LaunchError> {
        Ok(Box::new(ProcessLauncher::new(self.config())?))
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
fn processes_keep_the_laws() {
    let world = Processes::new();
    laws::check(&world).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_launch_that_cannot_be_says_why() {
    let world = Processes::new();
    let spec = world.spec("a", 1, Behaviour::Ready);
    let with = |program: &Path| {
        let config = ProcessConfig {
            program: program.to_owned(),
            ..world.config()
        };
        let launcher = ProcessLauncher::new(config).unwrap();
        launcher.launch(&spec).unwrap_err().to_string()
    };
    let says = with(Path::new("/nowhere/asterism"));
    assert!(
        says.contains("there is no program /nowhere/asterism"),
        "{says}"
    );
    let text = world.folder.path().join("text");
    std::fs::write(&text, "#!/no/such/interpreter\n").unwrap();
    let says = with(&text);
    assert!(says.contains("chmod +x"), "{says}");
    std::fs::set_permissions(&text, PermissionsExt::from_mode(0o755)).unwrap();
    let says = with(&text);
    assert!(says.contains("interpreter"), "{says}");
    std::fs::write(&text, "neither script nor program").unwrap();
    let says = with(&text);
    assert!(says.contains("nothing was started"), "{says}");
    // None of these uses up the incarnation.
    world.new_launcher().launch(&spec).unwrap();
    assert_eq!(world.starts("a"), 1);

    let long = ProcessConfig {
        folder: world.folder.path().join("x".repeat(100)),
        ..world.config()
    };
    let long = ProcessLauncher::new(long).unwrap();
    let says = long.launch(&spec).unwrap_err().to_string();
    assert!(says.contains("path too long"), "{says}");
    let bad = ProcessConfig::new("Not A Name", world.folder.path());
    assert!(ProcessLauncher::new(bad).is_err());
}

/// A record that names a process which is another one now, as after its number was given out again.
#[test]
fn a_process_with_the_number_of_a_host_is_never_taken_for_it() {
    let world = Processes::new();
    let launcher = world.new_launcher();
    let launched = launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap();
    let other = launcher
        .launch(&world.spec("b", 1, Behaviour::Ready))
        .unwrap();
    let (a, b) = (launched.process.unwrap(), other.process.unwrap());
    let record = std::fs::read_to_string(world.file("a.json")).unwrap();
    launcher.stop("a", 1, StopMode::Kill).unwrap();
    // As it was before, with the number of the other host and the own start.
    let reused = record.replace(&format!("\"pid\":{}", a.pid), &format!("\"pid\":{}", b.pid));
    assert_ne!(record, reused);
    if a.start_ticks == b.start_ticks {
        println!("both started within 10 ms");
        return;
    }
    std::fs::write(world.file("a.json"), reused).unwrap();
    let found = launcher.find().unwrap();
    assert_eq!(found[0].state, FoundState::Ended(Exit::Unknown));
    assert_eq!(found[1].state, FoundState::Runs);
    let evidence = launcher.stop("a", 1, StopMode::Kill).unwrap();
    assert_eq!(evidence.ended_by(), &EndedBy::Process);
    assert!(world.is_running("b"), "the other process was killed");
}

#[test]
fn a_start_of_the_machine_has_ended_all() {
    let world = Processes::new();
    let launcher = world.new_launcher();
    launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap();
    let record = std::fs::read_to_string(world.file("a.json")).unwrap();
    launcher.stop("a", 1, StopMode::Kill).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let earlier = record.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
    assert_ne!(record, earlier);
    std::fs::write(world.file("a.json"), earlier).unwrap();
    let found = launcher.find().unwrap();
    assert_eq!(found[0].state, FoundState::Ended(Exit::Unknown));
    let evidence = launcher.stop("a", 1, StopMode::Kill).unwrap();
    assert_eq!(evidence.ended_by(), &EndedBy::MachineStart);
}

#[test]
fn a_damaged_record_starts_and_ends_nothing() {
    let world = Processes::new();
    let launcher = world.new_launcher();
    let spec = world.spec("a", 1, Behaviour::Ready);
    launcher.launch(&spec).unwrap();
    let sound = std::fs::read(world.file("a.json")).unwrap();
    std::fs::write(world.file("a.json"), &sound[..sound.len() / 2]).unwrap();
    for error in [
        launcher.launch(&spec).unwrap_err(),
        launcher.stop("a", 1, StopMode::Kill).unwrap_err(),
    ] {
        let says = error.to_string();
        assert!(
            says.contains("a.json") && says.contains("nothing was done"),
            "{says}"
        );
    }
    let found = launcher.find().unwrap();
    assert!(matches!(&found[0].state, FoundState::Unknown(why) if why.contains("a.json")));
    // Nor does one that was removed, while the process is there.
    std::fs::remove_file(world.file("a.json")).unwrap();
    let error = launcher.launch(&spec).unwrap_err().to_string();
    assert!(error.contains("its record is gone"), "{error}");
    assert_eq!(world.starts("a"), 1);
    // Nor does a folder that was emptied.
    let lock = world.file("a.run");
    std::fs::rename(&lock, world.file("a.away")).unwrap();
    let error = launcher.launch(&spec).unwrap_err().to_string();
    assert!(error.contains("its record is gone"), "{error}");
    assert_eq!(world.starts("a"), 1);
    std::fs::rename(world.file("a.away"), &lock).unwrap();
    std::fs::write(world.file("a.json"), sound).unwrap();
    assert!(launcher.launch(&spec).unwrap().already);
}

#[test]
fn a_log_is_bounded_and_its_end_is_shown() {
    let world = Processes::new();
    let launcher = world.new_launcher();
    launcher
        .launch(&world.spec("a", 1, Behaviour::Ready))
        .unwrap();
    let log = world.file("a.log");
    let mut writer = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    writer
        .write_all(&vec![b'x'; LOG_BYTES_MAX as usize])
        .unwrap();
    writer.write_all(b"\nthe last line\n").unwrap();
    let found = launcher.find().unwrap();
    assert!(found[0].last_lines.is_empty() || found[0].last_lines[0] == "the last line");
    assert!(std::fs::metadata(&log).unwrap().len() < 1_000);
    assert_eq!(
        std::fs::metadata(world.file("a.log.1")).unwrap().len(),
        LOG_BYTES_MAX
    );
    writer.write_all(b"one more\n").unwrap();
    let found = launcher.find().unwrap();
    assert_eq!(found[0].last_lines.last().unwrap(), "one more");
}

#[test]
fn two_orchestrators_of_one_folder_take_turns() {
    let world = Processes::new();
    let (first, second) = (world.new_launcher(), world.new_launcher());
    let mut spec = world.spec("a", 1, Behaviour::Waits);
    spec.readiness = asterism_launch::Readiness::Within(Duration::from_secs(6));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| first.launch(&spec));
        asterism_lab::wait_until("the first launch", Duration::from_secs(60), || {
            world.starts("a") == 1
        })
        .unwrap();
        let busy = second.launch(&spec);
        assert!(
            matches!(
                busy,
                Err(LaunchError::Busy { .. } | LaunchError::Exited { .. })
            ) || busy.is_ok(),
            "{busy:?}"
        );
        assert!(waits.join().unwrap().is_err());
    });
    assert!(second.describe().contains("launch/lab"));
}
