//! Processes as the kernel knows them: identified by number and start, signalled and awaited by descriptors, so that a number
//! that was given to another process never stands for the host.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::{Exit, ProcessId};
use crate::clock;

/// Bytes of a process's environment that are read at most.
const ENVIRONMENT_BYTES_MAX: u64 = 4 << 20;
/// How long a process may show no environment that begins another program.
const EMPTY_FOR: Duration = Duration::from_millis(2);

/// A process that was there when it was opened. The descriptor stands for it alone, also after its end.
#[derive(Debug)]
pub(super) struct Process {
    id: ProcessId,
    descriptor: OwnedFd,
}

impl Process {
    /// The process with this number that was started then; none if it has ended and its parent has taken its exit.
    ///
    /// # Errors
    /// The kernel refuses to say (before Linux 5.3 it has no such descriptors).
    pub(super) fn open(id: ProcessId) -> std::io::Result<Option<Process>> {
        let Some(process) = Process::open_number(id.pid)? else {
            return Ok(None);
        };
        Ok(Some(process).filter(|process| process.id == id))
    }

    /// The process that has this number now.
    pub(super) fn open_number(pid: u32) -> std::io::Result<Option<Process>> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let descriptor = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Read after the descriptor was opened: a process with this start had the number then, too.
        let Some(stat) = Stat::read(pid) else {
            return Ok(None);
        };
        let start_ticks = stat.start_ticks;
        let id = ProcessId { pid, start_ticks };
        Ok(Some(Process { id, descriptor }))
    }

    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Whether it ends within this time, with all its threads.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let timeout = Timespec::try_from(time).ok();
        let ready = poll(&mut descriptors, timeout.as_ref());
        ready.is_ok_and(|ready| ready > 0)
    }

    /// Its exit, if it has ended and is a child of this process whose exit was not taken yet. It stays to be taken.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.wait(WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
    }

    /// Takes its exit, so that the kernel forgets it.
    pub(super) fn reap(&self) {
        let _ = self.wait(WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }

    fn wait(&self, options: WaitIdOptions) -> Option<Exit> {
        use std::os::fd::AsFd;
        let status = waitid(WaitId::PidFd(self.descriptor.as_fd()), options).ok()??;
        let code = status.exit_status().map(Exit::Code);
        code.or_else(|| status.terminating_signal().map(Exit::Signal))
    }

    /// Sends it a signal. That it has ended meanwhile is no error.
    pub(super) fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// All processes of this machine that have a variable of this name with such a value in their environment, the leader of a
/// process group first. Processes whose environment may not be read are passed over. Some 10 µs a process.
///
/// A process that has just begun another program shows no environment for a moment: those without one are looked at twice.
pub(super) fn with_variable(name: &str, is_such: impl Fn(&[u8]) -> bool) -> Vec<Process> {
    let start = format!("{name}=").into_bytes();
    let is_it = |entry: &[u8]| entry.strip_prefix(&*start).is_some_and(&is_such);
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |entry: std::io::Result<std::fs::DirEntry>| -> Option<u32> {
        entry.ok()?.file_name().to_str()?.parse().ok()
    };
    let mut found = Vec::new();
    // Whether it is to be looked at again.
    let mut look = |pid: u32| -> bool {
        // Opened before its environment is read, so that both are of one process.
        let Ok(Some(process)) = Process::open_number(pid) else {
            return false;
        };
        let environment = environment(pid);
        let is_same = |stat: &Stat| stat.start_ticks == process.id.start_ticks;
        if environment.split(|byte| *byte == 0).any(is_it)
            && let Some(stat) = Stat::read(pid).filter(is_same)
        {
            found.push((stat.group != pid, process.id.start_ticks, process));
        }
        // Threads of the kernel have no program.
        environment.is_empty() && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
    };
    let mut again: Vec<u32> = entries.filter_map(number).collect();
    again.retain(|pid| look(*pid));
    if !again.is_empty() {
        clock::pause(EMPTY_FOR);
        for pid in again {
            look(pid);
        }
    }
    found.sort_by_key(|(is_member, start, _)| (*is_member, *start));
    found.into_iter().map(|(_, _, process)| process).collect()
}

fn environment(pid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{pid}/environ")) {
        // A process that ends meanwhile has none any more.
        let _ = file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

/// What `/proc/PID/stat` shows of a process.
struct Stat {
    group: u32,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in brackets, may have spaces and brackets in it.
    fn parse(text: &str) -> Option<Stat> {
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        // Fields count from 1, and the state behind the name is the third.
        let group = fields.nth(5 - 3)?.parse().ok()?;
        let start_ticks = fields.nth(22 - 6)?.parse().ok()?;
        Some(Stat { group, start_ticks })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_is_read_behind_any_name() {
        let text = "12 (a) b (c) S 1 77 78 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9999 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.group, stat.start_ticks), (77, 9_999));
        for text in ["", "12 (a", "12 (a) S 1 2", "1 (a) S 1 x 3"] {
            assert!(Stat::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_number_with_another_start_is_another_process() {
        let own = Process::open_number(std::process::id()).unwrap().unwrap();
        let mut id = own.id();
        assert!(Process::open(id).unwrap().is_some());
        id.start_ticks -= 1;
        assert!(Process::open(id).unwrap().is_none());
        assert!(Process::open_number(0).unwrap().is_none());
        assert!(Process::open_number(u32::MAX).unwrap().is_none());
    }

    #[test]
    #[expect(
        clippy::zombie_processes,
        reason = "the test waits for it, by its descriptor"
    )]
    fn a_child_is_found_by_its_environment_signalled_and_its_exit_read() {
        let value = format!("{}-{}", std::process::id(), "identity");
        let child = Command::new("sleep")
            .arg("100")
            .env("ASTERISM_TEST_MARK", &value)
            .spawn()
            .unwrap();
        let found = with_variable("ASTERISM_TEST_MARK", |it| it == value.as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id().pid, child.id());
        assert!(!found[0].ends_within(Duration::from_millis(1)));
        assert_eq!(found[0].exit(), None);
        found[0].signal(Signal::KILL).unwrap();
        assert!(found[0].ends_within(Duration::from_secs(20)));
        assert_eq!(found[0].exit(), Some(Exit::Signal(9)));
        assert_eq!(found[0].exit(), Some(Exit::Signal(9)));
        found[0].reap();
        assert_eq!(found[0].exit(), None);
        found[0].signal(Signal::KILL).unwrap();
        assert!(with_variable("ASTERISM_TEST_MARK", |it| it == value.as_bytes()).is_empty());
    }
}
