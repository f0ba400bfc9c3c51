//! An Open vSwitch of a test's own: in a node, with the userspace datapath, its database and sockets in a folder of the
//! laboratory. It ends with what started it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::LabError;
use crate::lab::Lab;
use crate::node::Node;
use crate::program::{Program, wait_until};

/// How long one of its programs may take to start or to answer.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// The schema of its database, as the Debian package has it.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Programs of an Open vSwitch, for [`crate::needs`].
pub const PROGRAMS: [&str; 6] = [
    "ip",
    "ovs-vswitchd",
    "ovsdb-server",
    "ovsdb-tool",
    "ovs-vsctl",
    "ovs-ofctl",
];

/// See the module. It may be killed and started again, as a crash does: rules are lost then, settings stay.
#[derive(Debug)]
pub struct OpenVSwitch<'lab> {
    node: &'lab Node,
    folder: PathBuf,
    _database: Program,
    switch: Option<Program>,
}

impl<'lab> OpenVSwitch<'lab> {
    /// Starts one in a node. Some 300 ms.
    pub fn start(lab: &Lab, node: &'lab Node) -> Result<OpenVSwitch<'lab>, LabError> {
        let folder = lab.folder().join(format!("ovs-{}", node.name()));
        let doing = || format!("making {}", folder.display());
        std::fs::create_dir(&folder).map_err(|error| LabError::kernel(doing(), error))?;
        let file = folder.join("conf.db");
        node.program("ovsdb-tool")
            .arg("create")
            .arg(&file)
            .arg(SCHEMA)
            .run()?;
        let socket = folder.join("db.sock");
        let database = with_folder(node.program("ovsdb-server"), &folder)
            .arg(&file)
            .args([format!("--remote=punix:{}", socket.display())])
            .start()?;
        // Its file is there before anybody listens.
        let listens = || UnixStream::connect(&socket).is_ok();
        wait_until("ovsdb-server to answer", STARTS_WITHIN, listens)?;
        let mut switch = OpenVSwitch {
            node,
            folder,
            _database: database,
            switch: None,
        };
        switch.vsctl("--no-wait", &["init"])?;
        switch.start_again()?;
        Ok(switch)
    }

    /// Kills `ovs-vswitchd`, as a crash does.
    pub fn kill(&mut self) {
        if let Some(switch) = self.switch.take() {
            switch.kill();
        }
    }

    /// Has `ovs-vswitchd` stand still: its sockets stay, nobody answers.
    pub fn suspend(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Has it go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        if let Some(switch) = &self.switch {
            switch.signal(signal);
        }
    }

    /// Starts `ovs-vswitchd` after it was killed; its bridges are there again when this returns, without rules.
    pub fn start_again(&mut self) -> Result<(), LabError> {
        let switch = with_folder(self.node.program("ovs-vswitchd"), &self.folder)
            .args([format!("unix:{}", self.database().display())])
            .start()?;
        self.switch = Some(switch);
        // It has taken over the settings once a call that waits for it returns.
        self.vsctl("--", &["show"]).map(|_| ())
    }

    /// Adds a bridge with the userspace datapath and `fail_mode=secure`, and these interfaces of the node as its ports.
    pub fn bridge(&self, name: &str, ports: &[&str]) -> Result<(), LabError> {
        let mut words = vec!["add-br", name, "--", "set", "bridge", name];
        words.extend(["datapath_type=netdev", "fail_mode=secure"]);
        for port in ports {
            words.extend(["--", "add-port", name, port]);
        }
        self.vsctl("--", &words).map(|_| ())
    }

    /// Changes or shows settings, and waits until they are in force.
    pub fn vsctl(&self, option: &str, words: &[&str]) -> Result<String, LabError> {
        let database = format!("--db=unix:{}", self.database().display());
        let timeout = format!("--timeout={}", STARTS_WITHIN.as_secs());
        let command = self.node.program("ovs-vsctl");
        let command = command.args([timeout.as_str(), database.as_str(), option]);
        command.args(words).run().map(|finished| finished.text())
    }

    /// Asks or changes a bridge's rules: `ovs-ofctl VERSION COMMAND BRIDGE …`.
    pub fn ofctl(&self, version: &str, words: &[&str]) -> Result<String, LabError> {
        let command = with_folder(self.node.program("ovs-ofctl"), &self.folder);
        let version = format!("--protocols={version}");
        command
            .args([version.as_str()])
            .args(words)
            .run()
            .map(|finished| finished.text())
    }

    /// The socket of its database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.folder.join("db.sock")
    }

    /// The socket by which a bridge takes controllers without being configured to.
    #[must_use]
    pub fn management(&self, bridge: &str) -> PathBuf {
        self.folder.join(format!("{bridge}.mgmt"))
    }
}

/// Has a program keep its sockets and files in this folder.
fn with_folder(
    command: crate::program::ProgramCommand,
    folder: &Path,
) -> crate::program::ProgramCommand {
    ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"]
        .into_iter()
        .fold(command, |command, name| command.env(name, folder))
}
