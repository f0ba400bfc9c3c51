//! Network namespaces without names, and the guard process that ends what runs in them.
//!
//! A namespace is held by a file descriptor of this process and by the programs inside; when the last of them is gone the
//! kernel removes it with every interface in it. The programs are in a process namespace whose first process, the guard,
//! waits for the end of a pipe that only this process holds: whatever ends this process, `kill -9` too, ends the guard,
//! and with it the kernel kills every program of the laboratory, however many times it forked.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::error::LabError;

/// What the guard does: waits for the end of its input, kills all, and removes the laboratory's folder. `cat` is waited for,
/// and with it every orphan of the process namespace is reaped. "All" is for the first process of a namespace alone to
/// say: anywhere else it would be the machine.
const GUARD: &str =
    r#"trap '' INT HUP TERM; cat >/dev/null; [ $$ = 1 ] && kill -KILL -1; rm -rf -- "$1""#;

/// Whether this process may build laboratories.
#[must_use]
pub fn permitted() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Runs `work` on a thread of its own, which may change its namespaces and take them into its grave.
pub(crate) fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A new network namespace.
pub(crate) fn new_network() -> io::Result<OwnedFd> {
    apart(|| {
        // SAFETY: takes no pointers; only the calling thread changes its namespace.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
    })
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter_network(namespace: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers; the kernel checks what the descriptor is.
    check(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) })
}

/// Lets the calling thread's children begin in a process namespace.
pub(crate) fn enter_processes(namespace: RawFd) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::setns(namespace, libc::CLONE_NEWPID) })
}

/// The first process of the laboratory's process namespace.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
    /// The only end of the pipe that the guard waits for.
    pipe: Option<ChildStdin>,
    processes: OwnedFd,
}

impl Guard {
    /// Starts the guard, which removes `folder` at the end.
    pub(crate) fn start(folder: &Path) -> Result<Guard, LabError> {
        let mut process = apart(|| {
            // SAFETY: takes no pointers; only the children of the calling thread are concerned.
            check(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
            use std::os::unix::process::CommandExt;
            Command::new("/bin/sh")
                .args(["-c", GUARD, "asterism-lab-guard"])
                .arg(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .current_dir("/")
                .process_group(0)
                .spawn()
        })
        .map_err(|error| LabError::kernel("starting the laboratory's guard", error))?;
        let path = PathBuf::from(format!("/proc/{}/ns/pid", process.id()));
        let processes = File::open(&path)
            .map(OwnedFd::from)
            .map_err(|error| LabError::kernel("opening the guard's process namespace", error))?;
        Ok(Guard {
            pipe: process.stdin.take(),
            process,
            processes,
        })
    }

    pub(crate) fn processes(&self) -> RawFd {
        self.processes.as_raw_fd()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The guard ends by itself, now that its input has; nobody is left to tell if it did not.
        let _ = self.process.wait();
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends a signal to a process, or to the group that it leads. It may be gone: then nothing happens.
pub(crate) fn signal_group(process_id: u32, group: bool, signal: libc::c_int) {
    let Ok(process_id @ 2..) = libc::pid_t::try_from(process_id) else {
        // The numbers 0 and 1, with a minus before them, mean many.
        return;
    };
    let target = if group { -process_id } else { process_id };
    // SAFETY: takes no pointers.
    unsafe { libc::kill(target, signal) };
}
