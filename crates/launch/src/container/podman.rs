//! Podman by its command line: each call with a deadline, each answer read as if it might be anything.
#![expect(
    clippy::disallowed_types,
    reason = "calls wait for podman anyway, and for their turn"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use crate::clock;
use crate::log;
use crate::program::{self, Answer, NoAnswer};
use crate::{Exit, LAST_LINES_MAX, LaunchError};

/// How long one call of podman may take. A launch makes eight at most.
pub const CONTAINER_CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Calls of podman that run at a time: they wait for one another's locks, and many at once take longer each than a call may.
const CALLS_AT_ONCE: usize = 4;
/// How often a list is asked for that fails, as it does when a container is removed meanwhile.
const LIST_ATTEMPTS_MAX: u32 = 5;
/// Time between two of these.
const LIST_AGAIN: Duration = Duration::from_millis(50);

/// The label that has the cluster's name.
pub(super) const CLUSTER_LABEL: &str = "asterism.cluster";
/// The label that has the host's name.
pub(super) const HOST_LABEL: &str = "asterism.host";
/// The label that has the incarnation.
pub(super) const INCARNATION_LABEL: &str = "asterism.incarnation";

/// The program.
#[derive(Debug)]
pub(super) struct Podman {
    pub(super) program: PathBuf,
    /// Options before each command.
    pub(super) options: Vec<String>,
    pub(super) turns: Turns,
}

/// How many calls run, of those that may.
#[derive(Debug, Default)]
pub(super) struct Turns {
    running: Mutex<usize>,
    ended: Condvar,
}

impl Turns {
    /// Runs a call when it is its turn.
    fn take<T>(&self, call: impl FnOnce() -> T) -> T {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |running: &mut usize| *running >= CALLS_AT_ONCE;
        let running = self.ended.wait_while(running, is_full);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        let result = call();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_one();
        result
    }
}

/// A container as podman shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) id: String,
    /// The host, by its label.
    pub(super) host: String,
    /// The incarnation, by its label; none if the label is none.
    pub(super) incarnation: Option<u64>,
    pub(super) state: ShownState,
    /// The number of its process; none if it has none.
    pub(super) pid: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownState {
    /// Its process was never started.
    Created,
    Runs,
    Ended(Exit),
    /// A state that has no meaning here.
    Other(String),
}

impl Podman {
    /// Runs a command.
    pub(super) fn call<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Answer, NoAnswer> {
        let file = program::find(&self.program)?;
        let mut arguments = self.options.clone();
        arguments.extend(words.into_iter().map(str::to_owned));
        self.turns
            .take(|| program::run(&file, &arguments, CONTAINER_CALL_TIME_MAX))
    }

    /// The containers of a cluster: all, or the one with this name. Changes nothing.
    pub(super) fn list(
        &self,
        cluster: &str,
        name: Option<&str>,
    ) -> Result<Vec<Shown>, LaunchError> {
        let label = format!("label={CLUSTER_LABEL}={cluster}");
        let mut words = vec![
            "ps",
            "--all",
            "--no-trunc",
            "--format",
            "json",
            "--filter",
            &label,
        ];
        let filter = name.map(|name| format!("name=^{}$", name.replace('.', "\\.")));
        if let Some(filter) = &filter {
            words.extend(["--filter", filter]);
        }
        let unclear = |said: String| LaunchError::Engine {
            doing: "podman ps".to_owned(),
            said,
        };
        let mut attempt = 1;
        loop {
            let answer = match self.call(words.iter().copied()) {
                Ok(answer) => answer,
                Err(NoAnswer::NotStarted(error)) => return Err(error),
                Err(error) => return Err(unclear(error.to_string())),
            };
            if answer.success {
                return parse(&answer.text).map_err(|error| unclear(error.to_string()));
            }
            if attempt == LIST_ATTEMPTS_MAX {
                return Err(unclear(answer.errors));
            }
            attempt += 1;
            clock::pause(LIST_AGAIN);
        }
    }

    /// The last lines of a container's log; none if there are none, or no answer.
    pub(super) fn last_lines(&self, name: &str) -> Vec<String> {
        let count = LAST_LINES_MAX.to_string();
        let answer = self.call(["logs", "--tail", &count, name]);
        let Ok(answer) = answer else {
            return Vec::new();
        };
        // What the container wrote to its standard error comes on podman's.
        let mut lines = log::lines_of(&answer.text);
        lines.extend(answer.errors.split("; ").map(str::to_owned));
        lines.retain(|line| !line.is_empty());
        let excess = lines.len().saturating_sub(LAST_LINES_MAX);
        lines.split_off(excess)
    }
}

/// A container as `podman ps --format json` has it. Versions differ in what is absent and what is null.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    state: String,
    #[serde(default)]
    exit_code: i64,
    #[serde(default)]
    pid: i64,
}

fn parse(text: &[u8]) -> Result<Vec<Shown>, serde_json::Error> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let listed: Option<Vec<Listed>> = serde_json::from_slice(text)?;
    let shown = |one: Listed| {
        let labels = one.labels.unwrap_or_default();
        let incarnation = labels.get(INCARNATION_LABEL);
        let incarnation = incarnation.and_then(|text| text.parse().ok());
        let state = match one.state.as_str() {
            "created" | "configured" => ShownState::Created,
            "running" | "paused" | "stopping" => ShownState::Runs,
            // Podman has -1 where it could not receive the exit.
            "exited" | "stopped" => {
                let code = i32::try_from(one.exit_code).ok();
                let code = code.filter(|code| *code >= 0);
                ShownState::Ended(code.map_or(Exit::Unknown, Exit::Code))
            }
            _ => ShownState::Other(one.state),
        };
        Shown {
            id: one.id,
            host: labels.get(HOST_LABEL).cloned().unwrap_or_default(),
            incarnation,
            state,
            pid: u32::try_from(one.pid).ok().filter(|pid| *pid > 0),
        }
    };
    Ok(listed.unwrap_or_default().into_iter().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_podman_shows_is_read() {
        let text = br#"[{"AutoRemove":false,"Exited":true,"ExitCode":7,"Id":"23","Labels":{"asterism.host":"a","asterism.incarnation":"3"},"Pid":0,"State":"exited","Networks":[]},
            {"Id":"24","Labels":null,"Pid":872,"State":"running"},
            {"Id":"25","Labels":{"asterism.incarnation":"x"},"State":"removing","ExitCode":-1},
            {"Id":"26","State":"stopped","ExitCode":-1},{"Id":"27","State":"created"}]"#;
        let shown = parse(text).unwrap();
        let first = Shown {
            id: "23".to_owned(),
            host: "a".to_owned(),
            incarnation: Some(3),
            state: ShownState::Ended(Exit::Code(7)),
            pid: None,
        };
        assert_eq!(shown[0], first);
        let states: Vec<_> = shown[1..].iter().map(|one| one.state.clone()).collect();
        let other = ShownState::Other("removing".to_owned());
        assert_eq!(
            states,
            [
                ShownState::Runs,
                other,
                ShownState::Ended(Exit::Unknown),
                ShownState::Created
            ]
        );
        assert_eq!((shown[1].pid, shown[1].incarnation), (Some(872), None));
        assert_eq!(shown[2].incarnation, None);
    }

    #[test]
    fn answers_that_are_none_are_refused_and_empty_ones_are_empty() {
        for text in ["", "\n", "[]", "null"] {
            assert_eq!(parse(text.as_bytes()).unwrap(), []);
        }
        for text in [
            "{}",
            "[{}]",
            "[{\"Id\":3}]",
            "nonsense",
            "[{\"Id\":\"3\",\"Pid\":\"x\"}]",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
