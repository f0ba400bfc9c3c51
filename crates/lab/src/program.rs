//! Programs that run in a node: started, watched, ended.
#![allow(
    clippy::disallowed_types,
    reason = "what a program says is read by threads of their own; nothing here is on a packet's path"
)]

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock;
use crate::error::LabError;
use crate::namespace::{apart, enter_network, enter_processes, signal_group};

/// Bytes kept of what a program writes to one of its outputs; what comes after is read and thrown away.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// How long a program may take unless configured otherwise.
pub const PROGRAM_TIME_MAX: Duration = Duration::from_secs(60);
/// How long an output may stay open after its program ended, because a child of its own still has it.
const OUTPUT_LINGER: Duration = Duration::from_millis(300);
/// How long it may take to read what a program has written when it ended.
const OUTPUT_READ_WITHIN: Duration = Duration::from_secs(10);
/// Time between two looks at something that gives no notice.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) type Registry = Arc<Mutex<Vec<Weak<Running>>>>;

/// A program to be run in a node, as [`std::process::Command`] is one to be run here.
#[derive(Debug)]
pub struct ProgramCommand {
    pub(crate) node: String,
    pub(crate) network: RawFd,
    pub(crate) processes: RawFd,
    pub(crate) registry: Registry,
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    input: Vec<u8>,
    inherits: bool,
    time_max: Duration,
}

impl ProgramCommand {
    pub(crate) fn new(
        node: &str,
        network: RawFd,
        processes: RawFd,
        registry: Registry,
        program: &OsStr,
    ) -> ProgramCommand {
        ProgramCommand {
            node: node.to_owned(),
            network,
            processes,
            registry,
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            input: Vec::new(),
            inherits: false,
            time_max: PROGRAM_TIME_MAX,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> ProgramCommand {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(
        mut self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> ProgramCommand {
        for argument in arguments {
            self.arguments.push(argument.as_ref().to_owned());
        }
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> ProgramCommand {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs it in this folder.
    #[must_use]
    pub fn current_folder(mut self, folder: &Path) -> ProgramCommand {
        self.folder = Some(folder.to_owned());
        self
    }

    /// What it reads as its input; nothing, unless said.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> ProgramCommand {
        self.input = bytes.into();
        self
    }

    /// Gives it this process's terminal: nothing is captured, and it stays in this process's group.
    #[must_use]
    pub fn inherit(mut self) -> ProgramCommand {
        self.inherits = true;
        self
    }

    /// How long it may take.
    #[must_use]
    pub fn time_max(mut self, time: Duration) -> ProgramCommand {
        self.time_max = time;
        self
    }

    /// The command as people write it, with its node.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut words = format!("{}: {}", self.node, self.program.to_string_lossy());
        for argument in &self.arguments {
            words.push(' ');
            words.push_str(&argument.to_string_lossy());
        }
        words
    }

    /// Starts it; it is killed when the [`Program`] or the laboratory is dropped, and when this process dies.
    pub fn start(self) -> Result<Program, LabError> {
        let words = self.in_words();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        if !self.inherits {
            command
                .process_group(0)
                .stdin(if self.input.is_empty() {
                    Stdio::null()
                } else {
                    Stdio::piped()
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        }
        let (network, processes) = (self.network, self.processes);
        let mut child = apart(move || {
            enter_network(network)?;
            enter_processes(processes)?;
            command.spawn()
        })
        .map_err(|error| LabError::starting(&self.program.to_string_lossy(), error))?;
        if let Some(mut stdin) = child.stdin.take() {
            let input = self.input;
            std::thread::spawn(move || {
                // A program that does not read to the end says so by its exit.
                let _ = stdin.write_all(&input);
            });
        }
        let running = Arc::new(Running {
            words,
            group: !self.inherits,
            stdout: Captured::follow(child.stdout.take().map(OwnedFd::from)),
            stderr: Captured::follow(child.stderr.take().map(OwnedFd::from)),
            process_id: child.id(),
            child: Mutex::new(child),
        });
        let mut registry = lock(&self.registry);
        registry.retain(|other| other.strong_count() > 0);
        registry.push(Arc::downgrade(&running));
        Ok(Program { running })
    }

    /// Runs it to its end, whatever its exit code is. Waits.
    pub fn finish(self) -> Result<Finished, LabError> {
        let time_max = self.time_max;
        self.start()?.wait(time_max)
    }

    /// Runs it to its end; a failure is an error with what it said. Waits.
    pub fn run(self) -> Result<Finished, LabError> {
        self.finish()?.successful()
    }
}

/// A program that runs in a node. Dropped, it is killed with its process group.
#[derive(Debug)]
pub struct Program {
    running: Arc<Running>,
}

impl Program {
    /// Its node and its command, as people write them.
    #[must_use]
    pub fn in_words(&self) -> &str {
        &self.running.words
    }

    /// Its number, as this process sees it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.running.process_id
    }

    /// What it has written to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.running.stdout.text()
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.running.stderr.text()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.running.ended().is_none()
    }

    /// Sends it a signal, as `libc::SIGTERM`; nothing happens if it has ended.
    pub fn signal(&self, signal: i32) {
        if self.runs() {
            signal_group(self.running.process_id, false, signal);
        }
    }

    /// Waits until it has written `needle` to one of its outputs.
    pub fn wait_for_output(&self, needle: &str, time_max: Duration) -> Result<(), LabError> {
        let said = |program: &Program| program.stdout() + &program.stderr();
        let words = &self.running.words;
        wait_until(&format!("`{words}` saying {needle:?}"), time_max, || {
            said(self).contains(needle) || !self.runs()
        })
        .map_err(|error| with_said(error, said(self)))?;
        if said(self).contains(needle) {
            return Ok(());
        }
        self.running.await_outputs();
        if said(self).contains(needle) {
            return Ok(());
        }
        Err(LabError::Failed {
            what: words.clone(),
            said: said(self),
        })
    }

    /// Waits for its end, and kills it if that does not come in time.
    pub fn wait(self, time_max: Duration) -> Result<Finished, LabError> {
        let started = clock::now();
        let words = self.running.words.clone();
        let waited = wait_until(&format!("`{words}`"), time_max, || {
            self.running.ended().is_some()
        });
        if let Err(error) = waited {
            self.running.kill();
            return Err(with_said(
                error,
                self.running.stdout.text() + &self.running.stderr.text(),
            ));
        }
        let took = started.elapsed();
        let running = &self.running;
        running.await_outputs();
        let status = running.ended().unwrap_or_default();
        Ok(Finished {
            words,
            status,
            stdout: running.stdout.bytes(),
            stderr: running.stderr.bytes(),
            took,
        })
    }

    /// Asks it to end (`SIGTERM`) and waits; kills it if it does not in time, which is an error.
    pub fn terminate(self, time_max: Duration) -> Result<Finished, LabError> {
        self.signal(libc::SIGTERM);
        self.wait(time_max)
    }

    /// Kills it as `kill -9` does, and waits for its end.
    pub fn kill(self) {
        self.running.kill();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.running.kill();
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    words: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output, up to [`OUTPUT_BYTES_MAX`].
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, up to [`OUTPUT_BYTES_MAX`].
    pub stderr: Vec<u8>,
    /// From when its end was waited for until it came.
    pub took: Duration,
}

impl Finished {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Both outputs as text.
    #[must_use]
    pub fn all_text(&self) -> String {
        self.text() + &String::from_utf8_lossy(&self.stderr)
    }

    /// Itself if the exit code was 0, else an error with what it said.
    pub fn successful(self) -> Result<Finished, LabError> {
        if self.status.success() {
            return Ok(self);
        }
        Err(LabError::Failed {
            said: format!("{}; {}", self.status, self.all_text()),
            what: self.words,
        })
    }
}

/// Looks at `condition` every millisecond until it holds.
pub fn wait_until(
    what: &str,
    time_max: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<(), LabError> {
    let started = clock::now();
    while !condition() {
        if started.elapsed() > time_max {
            return Err(LabError::TooSlow {
                what: what.to_owned(),
                waited: time_max,
                said: String::new(),
            });
        }
        clock::sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn with_said(error: LabError, now: String) -> LabError {
    match error {
        LabError::TooSlow { what, waited, .. } => LabError::TooSlow {
            what,
            waited,
            said: now,
        },
        other => other,
    }
}

/// A program with what it wrote, shared by its handle and the laboratory.
#[derive(Debug)]
pub(crate) struct Running {
    words: String,
    process_id: u32,
    /// Whether it leads a process group of its own.
    group: bool,
    child: Mutex<Child>,
    stdout: Captured,
    stderr: Captured,
}

impl Running {
    fn ended(&self) -> Option<ExitStatus> {
        // An error means that there is no such child any more.
        lock(&self.child).try_wait().ok().flatten()
    }

    /// Once it has ended: waits until all that it wrote is here, and a little for what a child of its own may write.
    fn await_outputs(&self) {
        let outputs = [&self.stdout, &self.stderr];
        // A child of its own may never stop writing, or keep it open for ever.
        let _ = wait_until("the reading of its outputs", OUTPUT_READ_WITHIN, || {
            outputs.iter().all(|output| output.is_drained())
        });
        let _ = wait_until("the end of its outputs", OUTPUT_LINGER, || {
            outputs.iter().all(|output| output.ended())
        });
    }

    /// Kills it and its group, and waits for its own end.
    pub(crate) fn kill(&self) {
        if self.group {
            // The group may outlive its leader; its number cannot be anybody else's while a member lives.
            signal_group(self.process_id, true, libc::SIGKILL);
        }
        let mut child = lock(&self.child);
        // Both fail only when it has been waited for already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// What a program writes to one output.
#[derive(Debug)]
struct Captured {
    stream: Option<Arc<OwnedFd>>,
    output: Arc<Mutex<Output>>,
}

#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    ended: bool,
}

impl Captured {
    /// Reads it to its end, on a thread.
    fn follow(stream: Option<OwnedFd>) -> Captured {
        let captured = Captured {
            stream: stream.map(Arc::new),
            output: Arc::default(),
        };
        let Some(stream) = captured.stream.clone() else {
            lock(&captured.output).ended = true;
            return captured;
        };
        let output = Arc::clone(&captured.output);
        std::thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            loop {
                if comes(&stream, None).is_empty() {
                    continue;
                }
                // Under the lock nothing is on its way: what was written is in the pipe or here.
                let mut output = lock(&output);
                let Ok(length @ 1..) = rustix::io::read(&*stream, &mut piece) else {
                    output.ended = true;
                    return;
                };
                let room = OUTPUT_BYTES_MAX.saturating_sub(output.bytes.len());
                output.bytes.extend_from_slice(&piece[..length.min(room)]);
            }
        });
        captured
    }

    /// Whether all that was written to it is here.
    fn is_drained(&self) -> bool {
        let output = lock(&self.output);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let is_empty = |stream: &OwnedFd| !comes(stream, Some(at_once)).contains(PollFlags::IN);
        output.ended || self.stream.as_deref().is_none_or(is_empty)
    }

    fn bytes(&self) -> Vec<u8> {
        lock(&self.output).bytes.clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.output).bytes).into_owned()
    }

    fn ended(&self) -> bool {
        lock(&self.output).ended
    }
}

/// Waits, at most so long, until there is something to read or the end of it.
fn comes(stream: &OwnedFd, time: Option<Timespec>) -> PollFlags {
    let mut look = [PollFd::new(stream, PollFlags::IN)];
    match poll(&mut look, time.as_ref()) {
        Ok(_) => look[0].revents(),
        // Interrupted.
        Err(_) => PollFlags::empty(),
    }
}

/// A thread that panicked while it held the lock left whole bytes behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
