//! Programs that launchers run: found, refused in words that help, and, for engines, run with a deadline and a bounded answer.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::LaunchError;
use crate::clock;

/// Bytes of an answer that are read at most: of 1,024 containers podman shows some 2 MiB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// How long an answer may stay open after its program has ended, because a process that it left has it.
const ANSWER_LINGER: Duration = Duration::from_millis(500);
/// Time between two looks at a program that runs.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The file of a program: a path as it is, a name as `PATH` has it.
pub(super) fn find(program: &Path) -> Result<PathBuf, LaunchError> {
    let absent = |cure: String| LaunchError::Absent {
        program: program.display().to_string(),
        cure,
    };
    if program.components().count() > 1 {
        if !program.is_absolute() {
            return Err(absent("name it by an absolute path".to_owned()));
        }
        let file = std::fs::metadata(program)
            .map_err(|error| absent(format!("{error}: install it there, or name another")))?;
        if !is_executable(&file) {
            return Err(LaunchError::NotPermitted {
                doing: format!("running {}", program.display()),
                said: "it is no executable file".to_owned(),
                cure: format!("chmod +x {}", program.display()),
            });
        }
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .filter(|file| file.is_absolute())
        .find(|file| std::fs::metadata(file).is_ok_and(|file| is_executable(&file)));
    found.ok_or_else(|| absent("install it, or name its path".to_owned()))
}

fn is_executable(file: &std::fs::Metadata) -> bool {
    file.is_file() && file.permissions().mode() & 0o111 != 0
}

/// The failure of starting a program.
pub(super) fn not_started(program: &str, error: &std::io::Error) -> LaunchError {
    let doing = format!("starting {program}");
    match error.kind() {
        ErrorKind::NotFound => LaunchError::Absent {
            program: program.to_owned(),
            cure: "install it, or the interpreter that its first line names".to_owned(),
        },
        ErrorKind::PermissionDenied => LaunchError::NotPermitted {
            doing,
            said: error.to_string(),
            cure: "the orchestrator's user must be allowed to run it".to_owned(),
        },
        _ => LaunchError::Refused {
            doing,
            said: error.to_string(),
        },
    }
}

/// An answer of a program that has ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) success: bool,
    pub(super) text: Vec<u8>,
    pub(super) errors: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It was not started.
    #[error(transparent)]
    NotStarted(#[from] LaunchError),
    /// It took longer, and was killed.
    #[error("it took longer than {0:?} and was killed")]
    TooSlow(Duration),
    /// Its answer was longer.
    #[error("its answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

/// Runs a program to its end, with no input, for this time at most; then it is killed, but not what it started.
pub(super) fn run(
    program: &Path,
    arguments: &[String],
    time: Duration,
) -> Result<Answer, NoAnswer> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The terminal's signals are not for it: half done it would leave half of a container.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .spawn()
        .map_err(|error| not_started(&program.display().to_string(), &error))?;
    let text = read_to_end(child.stdout.take());
    let errors = read_to_end(child.stderr.take());
    let Some(success) = wait(&mut child, time) else {
        // It may have ended by itself: then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
        return Err(NoAnswer::TooSlow(time));
    };
    let text = text.recv_timeout(ANSWER_LINGER).unwrap_or_default();
    let errors = errors.recv_timeout(ANSWER_LINGER).unwrap_or_default();
    if text.len() as u64 > ANSWER_BYTES_MAX {
        return Err(NoAnswer::TooLong);
    }
    let errors = String::from_utf8_lossy(&errors);
    Ok(Answer {
        success,
        text,
        errors: errors.trim().replace('\n', "; "),
    })
}

/// Whether it ended well; none if it did not end in time.
fn wait(child: &mut Child, time: Duration) -> Option<bool> {
    let began = clock::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        if began.elapsed() > time {
            return None;
        }
        clock::pause(LOOK_AGAIN);
    }
}

fn read_to_end(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (done, answer) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What was read until an error is all that there is; the exit code says the rest.
            let _ = stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes);
        }
        // Nobody may be waiting any more.
        let _ = done.send(bytes);
    });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, time: Duration) -> Result<Answer, NoAnswer> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        run(Path::new("/bin/sh"), &arguments, time)
    }

    #[test]
    fn programs_are_run_to_their_end_or_killed() {
        let long = Duration::from_secs(60);
        let answer = shell("echo yes; echo no >&2; echo more >&2; exit 3", long).unwrap();
        assert!(!answer.success);
        assert_eq!(answer.text, b"yes\n");
        assert_eq!(answer.errors, "no; more");
        // What it leaves behind is not waited for.
        let began = clock::now();
        assert!(shell("sleep 50 & exit 0", long).unwrap().success);
        assert!(began.elapsed() < Duration::from_secs(40));
        let slow = shell("exec sleep 50", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(slow, NoAnswer::TooSlow(_)), "{slow}");
    }

    #[test]
    fn programs_that_are_not_there_are_reported_with_a_cure() {
        assert!(find(Path::new("sh")).unwrap().is_absolute());
        assert!(find(Path::new("/bin/sh")).is_ok());
        for program in [
            "no-such-program-at-all",
            "/nowhere/asterism",
            "bin/asterism",
        ] {
            let error = find(Path::new(program)).unwrap_err();
            assert!(matches!(error, LaunchError::Absent { .. }), "{error}");
            assert!(error.to_string().contains("nothing was started"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("asterism");
        std::fs::write(&file, "").unwrap();
        let error = find(&file).unwrap_err();
        assert!(error.to_string().contains("chmod +x"), "{error}");
    }
}
