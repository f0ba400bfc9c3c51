//! A network namespace by name, removed when dropped. Imports `libc`.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

/// A namespace, made with `ip netns add`.
#[derive(Debug)]
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn new(name: String) -> Result<Self, String> {
        run("ip", &["netns", "add", &name], None)?;
        Ok(Self(name))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// Runs a program inside.
    pub(super) fn run(&self, program: &[&str], input: Option<&str>) -> Result<(), String> {
        let mut arguments = vec!["netns", "exec", &self.0];
        arguments.extend(program);
        run("ip", &arguments, input)
    }

    /// Runs lines of `ip` inside.
    pub(super) fn ip(&self, lines: &str) -> Result<(), String> {
        run("ip", &["-n", &self.0, "-batch", "-"], Some(lines))
    }

    /// Calls a function on a thread that is inside.
    pub(super) fn enter<T: Send>(
        &self,
        call: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let path = format!("/run/netns/{}", self.0);
        let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // SAFETY: the descriptor is open while `file` lives; only this thread changes its namespace, and ends.
                if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                    return Err(format!("setns: {}", std::io::Error::last_os_error()));
                }
                call()
            });
            thread
                .join()
                .unwrap_or_else(|_| Err("the thread inside the namespace ended".to_owned()))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing can be done about a namespace that will not go.
        let _ = run("ip", &["netns", "del", &self.0], None);
    }
}

/// Runs a program to its end; its own words are the error.
pub(super) fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<(), String> {
    let failed =
        |error: &dyn core::fmt::Display| format!("{program} {}: {error}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin
            .write_all(input.as_bytes())
            .map_err(|error| failed(&error))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
    }
}
