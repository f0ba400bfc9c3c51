//! `asterism epoch CONFIG --hand`: hands an epoch to the hosts on this machine simultaneously, and shows each host's answer.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use asterism_config::files;
use asterism_config::functions::Functions;
use asterism_config::{Config, Purpose};
use asterism_epochs::EpochFile;
use asterism_epochs::{InForce, Standing};
use asterism_host::run;
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::epochs::HandError;
use asterism_output::End;
use serde::Serialize;

use super::{Arguments, EpochError};

/// Time limit for a host to write an epoch to disk and put it in force.
const WITHIN: Duration = Duration::from_secs(15);

/// The result of handing an epoch to a host.
#[derive(Clone, Debug, Serialize)]
pub struct HostDocument {
    /// The member.
    pub member: String,
    /// Its control socket, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// `in-force`, `begins`, `waits`, `ends`, `refused`, `absent` or `unknown`.
    pub outcome: &'static str,
    /// The epoch of the host afterwards, if reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Whether the epoch was new to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// Microseconds from the request to the host's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// The reason of a refusal, as a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// A sentence with details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The members whose hosts receive the epoch, if they run here.
///
/// # Errors
/// A name that is not a member.
pub(super) fn members(arguments: &Arguments, config: &Config) -> Result<Vec<String>, EpochError> {
    let cluster = &config.cluster;
    Ok(match &arguments.member {
        Some(name) if cluster.member(name).is_none() => {
            return Err(EpochError::NotAMember {
                name: name.clone(),
                members: cluster.members.clone(),
            });
        }
        Some(name) => vec![name.clone()],
        None => cluster.members.clone(),
    })
}

/// Hands an epoch to these members' hosts.
pub(super) fn hand(
    arguments: &Arguments,
    members: &[String],
    cluster: &str,
    epoch: &EpochFile,
    functions: Functions,
) -> Vec<HostDocument> {
    let text = epoch.text();
    let clock = MonotonicClock::new();
    let one = |member: &String| {
        let found = files::load(&arguments.config, Purpose::Host, Some(member), functions);
        let config = match found {
            Ok((Some(config), _)) => config,
            Ok((None, report)) => {
                let mistakes = report.errors();
                let why = format!(
                    "the member's configuration is refused: {mistakes} mistakes; see `asterism check --member {member}`"
                );
                return HostDocument::unknown(member, None, why);
            }
            Err(error) => return HostDocument::unknown(member, None, error.to_string()),
        };
        let socket = run::control_path(&arguments.config, &config);
        let start = clock.now();
        let said = asterism_orchestrator::epochs::hand(&socket, Some(cluster), &text, WITHIN);
        let took = clock.now().since(start);
        HostDocument::of(member, socket, said, took)
    };
    // Simultaneously: members of different epochs refuse each other until the last member has the new epoch.
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .map(|member| (member, scope.spawn(|| one(member))))
            .collect();
        let hosts = threads.into_iter().map(|(member, thread)| {
            let failed =
                |_| HostDocument::unknown(member, None, "the epoch could not be handed".to_owned());
            thread.join().unwrap_or_else(failed)
        });
        hosts.collect()
    })
}

/// The exit code of a command that handed an epoch to these hosts.
pub(super) fn end(hosts: &[HostDocument]) -> End {
    if hosts.iter().all(|host| host.outcome == "absent") {
        return End::File;
    }
    let is_well = |host: &HostDocument| !matches!(host.outcome, "refused" | "unknown");
    match hosts.iter().all(is_well) {
        true => End::Done,
        false => End::DoesNotHold,
    }
}

impl HostDocument {
    fn of(
        member: &str,
        socket: PathBuf,
        said: Result<InForce, HandError>,
        took: Duration,
    ) -> HostDocument {
        let socket = Some(socket.display().to_string());
        let error = match said {
            Ok(in_force) => {
                return HostDocument {
                    member: member.to_owned(),
                    socket,
                    outcome: match in_force.standing {
                        Standing::TakesPart => "in-force",
                        Standing::Begins => "begins",
                        Standing::Waits => "waits",
                        Standing::Ends => "ends",
                    },
                    epoch: Some(in_force.epoch),
                    changed: Some(in_force.changed),
                    took_us: Some(took.as_micros() as u64),
                    reason: None,
                    why: None,
                };
            }
            Err(error) => error,
        };
        let (outcome, reason, why) = match error {
            HandError::Refused { reason, why } => ("refused", Some(reason.as_str()), Some(why)),
            HandError::NoHost(_) => ("absent", None, None),
            error => ("unknown", None, Some(error.to_string())),
        };
        HostDocument {
            outcome,
            reason,
            ..HostDocument::unknown(member, socket, why.unwrap_or_default())
        }
    }

    fn unknown(member: &str, socket: Option<String>, why: String) -> HostDocument {
        HostDocument {
            member: member.to_owned(),
            socket,
            outcome: "unknown",
            epoch: None,
            changed: None,
            took_us: None,
            reason: None,
            why: Some(why).filter(|why| !why.is_empty()),
        }
    }
}

impl fmt::Display for HostDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.epoch.unwrap_or_default();
        let why = self.why.as_deref().unwrap_or_default();
        write!(f, "Host {}: ", self.member)?;
        match self.outcome {
            "in-force" if self.changed == Some(true) => write!(
                f,
                "epoch {epoch} is in force, {:.1} ms after it was handed",
                self.took_us.unwrap_or_default() as f64 / 1e3
            )?,
            "in-force" => write!(f, "epoch {epoch} was in force already")?,
            "begins" => write!(f, "it begins with epoch {epoch}, which names it")?,
            "waits" => write!(
                f,
                "it has epoch {epoch}, and still waits for an epoch that names it"
            )?,
            "ends" => write!(f, "epoch {epoch} is on its disk, and it has stopped")?,
            "absent" => write!(f, "none runs here")?,
            "refused" => write!(f, "refused ({}): {why}", self.reason.unwrap_or_default())?,
            _ => write!(f, "{why}")?,
        }
        writeln!(f)
    }
}
