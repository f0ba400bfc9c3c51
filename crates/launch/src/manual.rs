//! Hosts that an operator starts and stops, such as units of systemd on machines of their own: the launcher that launches
//! nothing, and says which command does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{
    Abilities, Counters, EndedBy, Exit, FencingEvidence, Found, HostSpec, LaunchCounts,
    LaunchError, LaunchNameError, Launched, Launcher, StopMode, check_name,
};

/// The unit of a host, as `packaging/asterism.service` is installed.
pub const MANUAL_UNIT: &str = "asterism.service";

/// The launcher of nothing. Which hosts run is known from their heartbeats alone.
#[derive(Debug)]
pub struct ManualLauncher {
    cluster: String,
    unit: String,
    counters: Counters,
}

impl ManualLauncher {
    /// For a cluster whose hosts are this unit of systemd, each on its machine; sane: [`MANUAL_UNIT`].
    ///
    /// # Errors
    /// The cluster's name is none.
    pub fn new(cluster: &str, unit: &str) -> Result<ManualLauncher, LaunchNameError> {
        check_name(cluster)?;
        Ok(ManualLauncher {
            cluster: cluster.to_owned(),
            unit: unit.to_owned(),
            counters: Counters::default(),
        })
    }

    /// Evidence that an operator gives (`--fenced`): they vouch that the process of this incarnation has ended, since they
    /// stopped its unit and saw it end, or its machine is off. It cannot be checked here; a false promise gives one port to two
    /// flows.
    ///
    /// # Errors
    /// The host's name is none.
    pub fn vouch(
        &self,
        name: &str,
        incarnation: u64,
        operator: &str,
    ) -> Result<FencingEvidence, LaunchNameError> {
        check_name(name)?;
        self.counters.fenced.fetch_add(1, Ordering::Relaxed);
        let ended_by = EndedBy::Operator(operator.to_owned());
        Ok(FencingEvidence::new(
            name,
            incarnation,
            ended_by,
            Exit::Unknown,
        ))
    }
}

impl Launcher for ManualLauncher {
    fn abilities(&self) -> Abilities {
        Abilities {
            launches: false,
            keeps_exits: false,
            waits_max: Duration::ZERO,
        }
    }

    fn launch(&self, host: &HostSpec) -> Result<Launched, LaunchError> {
        let result = Err(LaunchError::Manual {
            name: host.name.clone(),
            cure: format!("on its machine run: systemctl start {}", self.unit),
        });
        self.counters.launch(&result);
        result
    }

    fn find(&self) -> Result<Vec<Found>, LaunchError> {
        Ok(Vec::new())
    }

    fn stop(
        &self,
        name: &str,
        _incarnation: u64,
        mode: StopMode,
    ) -> Result<FencingEvidence, LaunchError> {
        let unit = &self.unit;
        let command = match mode {
            StopMode::Drain { .. } => format!("systemctl stop {unit}"),
            StopMode::Kill => {
                format!("systemctl kill --signal=KILL {unit} && systemctl stop {unit}")
            }
        };
        Err(LaunchError::Manual {
            name: name.to_owned(),
            cure: format!("on its machine run: {command}; once it has ended, say so with --fenced"),
        })
    }

    fn describe(&self) -> String {
        format!(
            "nothing: operators start the hosts of {} ({})",
            self.cluster, self.unit
        )
    }

    fn counts(&self) -> LaunchCounts {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_get_the_command_and_give_the_evidence() {
        let launcher = ManualLauncher::new("lab", MANUAL_UNIT).unwrap();
        assert!(!launcher.abilities().launches);
        let spec = HostSpec::new("a", 1, "/etc/asterism/asterism.toml");
        let error = launcher.launch(&spec).unwrap_err().to_string();
        assert!(
            error.contains("systemctl start asterism.service"),
            "{error}"
        );
        assert!(error.contains("nothing was done"), "{error}");
        assert_eq!(launcher.find().unwrap(), []);
        for (mode, command) in [
            (
                StopMode::Kill,
                "systemctl kill --signal=KILL asterism.service",
            ),
            (
                StopMode::Drain {
                    within: Duration::from_secs(1),
                },
                "systemctl stop asterism.service",
            ),
        ] {
            let error = launcher.stop("a", 1, mode).unwrap_err().to_string();
            assert!(
                error.contains(command) && error.contains("--fenced"),
                "{error}"
            );
        }
        let evidence = launcher.vouch("a", 3, "the operator on call").unwrap();
        assert_eq!((evidence.name(), evidence.incarnation()), ("a", 3));
        assert_eq!(
            evidence.to_string(),
            "incarnation 3 of a has ended: the operator on call vouches for it"
        );
        assert!(launcher.vouch("../a", 3, "nobody").is_err());
        assert!(ManualLauncher::new("", MANUAL_UNIT).is_err());
        let counts = launcher.counts();
        assert_eq!((counts.refused, counts.fenced), (1, 1));
    }

    #[test]
    fn the_unit_is_the_one_that_is_shipped() {
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/");
        assert!(std::path::Path::new(shipped).join(MANUAL_UNIT).exists());
    }
}
