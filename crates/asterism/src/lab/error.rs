//! Why there is no laboratory.

use std::io;
use std::path::PathBuf;

use asterism_config::FILE_BYTES_MAX;
use asterism_config::key_file::KeyFileError;
use asterism_lab::{LabError, wire};
use asterism_output::End;

use super::plan::{INTERFACE_BYTES_MAX, NODES_MAX};

/// Why `asterism lab` has no laboratory, or lost it. Nothing of one stays behind.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaboratoryError {
    /// A part of it was not built, or failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The plan of the user's own laboratory was not read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The key of its hosts was not written.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The system does not give the path of this program, which its hosts run.
    #[error("this program's own file is unknown, so no host can be started: {0}")]
    NoProgram(io::Error),
}

impl LaboratoryError {
    /// The exit code of the command.
    pub(super) fn end(&self) -> End {
        match self {
            LaboratoryError::Lab(_) | LaboratoryError::NoProgram(_) => End::System,
            LaboratoryError::Plan(PlanError::Text { .. }) => End::Configuration,
            LaboratoryError::Plan(PlanError::Unreadable { .. }) | LaboratoryError::Key(_) => {
                End::File
            }
        }
    }
}

/// Why the plan of a laboratory was not read; nothing was built.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The system does not give the file's text.
    #[error("{} cannot be read: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The text is no plan.
    #[error("{}: {error}", file.display())]
    Text {
        /// The file.
        file: PathBuf,
        /// Why.
        error: PlanTextError,
    },
}

/// Why a text is no plan of a laboratory.
#[derive(Debug, thiserror::Error)]
pub enum PlanTextError {
    /// It has more bytes than a plan may have.
    #[error("longer than {FILE_BYTES_MAX} bytes: is this a laboratory?")]
    TooLong,
    /// It is not TOML with a plan's entries.
    #[error("{0}")]
    Syntax(toml::de::Error),
    /// Its laboratory cannot be built, for all of these reasons.
    #[error("{}", lines(.0))]
    Faults(Vec<PlanFault>),
}

fn lines(faults: &[PlanFault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A part of a plan that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// There are so many nodes.
    #[error("{0} nodes: a laboratory has 1 to {NODES_MAX}")]
    Nodes(usize),
    /// Two nodes have this name.
    #[error("the node {0:?} is there twice")]
    NodeTwice(String),
    /// A kernel setting that the whole machine shares.
    #[error(
        "{node}: sysctl {setting:?}: only settings of the network belong to a node, such as \"net/ipv4/ip_forward\""
    )]
    Setting {
        /// The node.
        node: String,
        /// The setting.
        setting: String,
    },
    /// A bridge is in a node that the plan lacks.
    #[error("bridge {bridge:?}: there is no node {node:?}")]
    NodeOfBridge {
        /// The bridge.
        bridge: String,
        /// The node.
        node: String,
    },
    /// A wire has so many ends.
    #[error("a wire of {0} ends: it has 2 to {max}", max = wire::PORTS_MAX)]
    WireEnds(usize),
    /// This end has no colon.
    #[error("the end {0:?}: write node:interface, such as \"client:eth0\"")]
    EndForm(String),
    /// An end is in a node that the plan lacks.
    #[error("the end {end:?}: there is no node {node:?}")]
    NodeOfEnd {
        /// The end.
        end: String,
        /// The node.
        node: String,
    },
    /// The kernel does not take the interface's name of this end.
    #[error(
        "the end {0:?}: an interface's name has 1 to {INTERFACE_BYTES_MAX} bytes, no space and no /"
    )]
    InterfaceName(String),
    /// This end is joined twice.
    #[error("the end {0:?} is there twice")]
    EndTwice(String),
}

/// Why a text is no share.
#[derive(Debug, thiserror::Error)]
#[error("this is not a share: a number from 0 to 1, such as 0.01")]
pub(super) struct ShareError;
