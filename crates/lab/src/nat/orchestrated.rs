//! A NAT cluster that its orchestrators run: nobody else writes an epoch or a route.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{HostOptions, NatLab, NatLabConfig, SERVER, orchestrator_address};
use crate::error::LabError;
use crate::probe::Probe;
use crate::program::{Program, wait_until};

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The port of the server that sends the probe's datagrams back.
const PROBE_PORT: u16 = 7_777;
/// The port of etcd, which runs on the first orchestrator's node.
const ETCD_PORT: u16 = 2_379;

/// A laboratory with hosts and orchestrators that run.
#[derive(Debug)]
pub struct OrchestratedLab {
    /// The nodes.
    pub lab: NatLab,
    /// The hosts' programs, by place; `None` while one does not run.
    pub hosts: Vec<Option<Program>>,
    /// The orchestrators' programs, by place.
    pub orchestrators: Vec<Option<Program>>,
    etcd: Option<Program>,
    asterism: PathBuf,
    configuration: PathBuf,
    options: HostOptions,
}

impl OrchestratedLab {
    /// Starts the orchestrators and then all hosts, and waits until all take packets. With several orchestrators, etcd is started on
    /// the first one's node.
    pub fn start(
        asterism: &Path,
        config: &NatLabConfig,
        options: HostOptions,
    ) -> Result<OrchestratedLab, LabError> {
        OrchestratedLab::start_first(asterism, config, options, config.hosts)
    }

    /// The same with the first so many hosts. The others are in no configuration but the orchestrators', whose routes lead to them; they
    /// can be added where hosts register.
    pub fn start_first(
        asterism: &Path,
        config: &NatLabConfig,
        options: HostOptions,
        first: usize,
    ) -> Result<OrchestratedLab, LabError> {
        let lab = NatLab::new(config)?;
        lab.client
            .program(asterism)
            .arg("keygen")
            .arg(lab.key_file())
            .run()?;
        let (mut options, mut etcd) = (options, None);
        if config.orchestrators > 1 {
            let address = SocketAddr::from((orchestrator_address(0), ETCD_PORT));
            etcd = Some(start_etcd(&lab, address)?);
            options.orchestrator_lines += &format!("etcd = [\"{address}\"]\nterm = \"1s\"\n");
        }
        let text = lab.configuration_of(&options, 0..first);
        let configuration = lab.lab.file("asterism.toml", text)?;
        let mut built = OrchestratedLab {
            hosts: Vec::new(),
            orchestrators: (0..config.orchestrators).map(|_| None).collect(),
            etcd,
            asterism: asterism.to_owned(),
            configuration,
            options,
            lab,
        };
        for place in 0..config.orchestrators {
            built.start_orchestrator(place)?;
        }
        let hosts = built
            .lab
            .start_first_hosts(asterism, &built.configuration, first)?;
        built.hosts = hosts.into_iter().map(Some).collect();
        built.hosts.resize_with(config.hosts, || None);
        for place in 0..first {
            built.wait_for(&format!("{} takes packets", built.name(place)), 1)?;
        }
        built.wait_until_steered()?;
        Ok(built)
    }

    /// Starts an orchestrator.
    pub fn start_orchestrator(&mut self, place: usize) -> Result<(), LabError> {
        let started = self
            .lab
            .start_orchestrator(&self.asterism, &self.configuration, place)?;
        self.orchestrators[place] = Some(started);
        Ok(())
    }

    /// Starts a host, and waits until it reads packets.
    pub fn start_host(&mut self, place: usize) -> Result<(), LabError> {
        let started = self
            .lab
            .start_host(&self.asterism, &self.configuration, place)?;
        self.hosts[place] = Some(started);
        Ok(())
    }

    /// Starts a host with a configuration of its own, which the others do not have, and waits until it reads packets.
    pub fn add_host(&mut self, place: usize) -> Result<(), LabError> {
        let text = self.lab.configuration_of(&self.options, place..place + 1);
        let name = format!("asterism-{}.toml", self.name(place));
        let configuration = self.lab.lab.file(&name, text)?;
        let started = self.lab.start_host(&self.asterism, &configuration, place)?;
        self.hosts[place] = Some(started);
        Ok(())
    }

    /// Starts a host, and does not wait for it. It is not among [`OrchestratedLab::hosts`] yet.
    pub fn begin_host(&self, place: usize) -> Result<Program, LabError> {
        let (asterism, configuration) = (&self.asterism, &self.configuration);
        let (program, _notices) = self.lab.begin_host(asterism, configuration, place)?;
        Ok(program)
    }

    /// Kills a host as `kill -9` does.
    pub fn kill_host(&mut self, place: usize) {
        if let Some(host) = self.hosts[place].take() {
            host.kill();
        }
    }

    /// Kills an orchestrator as `kill -9` does.
    pub fn kill_orchestrator(&mut self, place: usize) {
        if let Some(orchestrator) = self.orchestrators[place].take() {
            orchestrator.kill();
        }
    }

    /// Kills the truth store, where the orchestrators share one.
    pub fn kill_store(&mut self) {
        if let Some(etcd) = self.etcd.take() {
            etcd.kill();
        }
    }

    /// A host's name.
    #[must_use]
    pub fn name(&self, place: usize) -> String {
        self.lab.hosts[place].name().to_owned()
    }

    /// What the orchestrators that run have logged since they were started.
    #[must_use]
    pub fn log(&self) -> String {
        let running = self.orchestrators.iter().flatten();
        running.map(Program::stderr).collect()
    }

    /// How often a line stands in the log.
    #[must_use]
    pub fn count(&self, line: &str) -> usize {
        self.log().matches(line).count()
    }

    /// Waits until the log has a line so many times.
    pub fn wait_for(&self, line: &str, times: usize) -> Result<(), LabError> {
        wait_until(line, PATIENCE, || self.count(line) >= times)
            .map_err(|error| self.with_log(&error))
    }

    /// Waits until the last change of who takes packets is in force.
    pub fn wait_until_steered(&self) -> Result<(), LabError> {
        wait_until("the steering", PATIENCE, || {
            let log = self.log();
            let last = |event: &str| log.rfind(event).unwrap_or(0);
            last("event=steered") > last("takes packets").max(last("packets leave it"))
        })
        .map_err(|error| self.with_log(&error))
    }

    /// Starts a probe from client to server through the cluster.
    pub fn probe(&self, flows: usize, interval: Duration) -> Result<Probe, LabError> {
        let at = SocketAddr::from((SERVER, PROBE_PORT));
        Probe::start(&self.lab.client, &self.lab.server, at, flows, interval)
    }

    fn with_log(&self, error: &LabError) -> LabError {
        LabError::Failed {
            what: "the orchestrators".to_owned(),
            said: format!("{error}; they had logged: {}", self.log()),
        }
    }
}

/// Starts etcd on the first orchestrator's node.
fn start_etcd(lab: &NatLab, address: SocketAddr) -> Result<Program, LabError> {
    let node = &lab.orchestrators[0];
    let client = format!("http://{address}");
    let peer = format!("http://{}:{}", address.ip(), ETCD_PORT + 1);
    let program = node
        .program("etcd")
        .args([
            format!("--data-dir={}", lab.lab.folder().join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--logger=zap".to_owned(),
            "--log-level=error".to_owned(),
        ])
        .start()?;
    node.wait_for_tcp(address, PATIENCE)?;
    Ok(program)
}
