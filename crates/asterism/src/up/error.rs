//! Why `asterism up` does not run a cluster, or no longer.

use std::io;
use std::path::PathBuf;

use asterism_config::diagnostic::Report;
use asterism_config::key_file::KeyFileError;
use asterism_elasticity::PoliciesError;
use asterism_host::run::error::RunError;
use asterism_local_network::LocalNetworkError;
use asterism_orchestrator::launch::LaunchError;
use asterism_orchestrator::steering::director::DirectorError;
use asterism_output::End;

use crate::orchestrate::OrchestrateError;

/// Why a cluster does not run. Processes that were started are ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpError {
    #[error("signals cannot be heard: {0}")]
    Signals(io::Error),
    #[error("{}: {error}{}", .path.display(), folder_cure(.error))]
    Folder { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Keys(#[from] RunError),
    #[error(transparent)]
    Network(#[from] LocalNetworkError),
    /// The report says what is wrong.
    #[error("the configuration is refused")]
    Refused(Box<Report>),
    #[error(transparent)]
    File(#[from] asterism_config::files::FileError),
    #[error("{} has no ports, so there is nothing to run: add [port.inside] and [port.outside]", .0.display())]
    NoPorts(PathBuf),
    #[error("hosts register with this cluster, and {} describes none: let the orchestrator start them by [orchestrator.launch], or list them in [cluster] members", .0.display())]
    NoHosts(PathBuf),
    #[error("{} cannot run over the local network, which its ports lead to; nothing was started:\n  {}", .file.display(), .faults.join("\n  "))]
    NotLocal { file: PathBuf, faults: Vec<String> },
    #[error("{option} is for a cluster over the local network, and the hosts of {} have ports of their own: leave it out", .file.display())]
    OnlyLocal { option: &'static str, file: PathBuf },
    #[error("{} cannot run on one machine as it is; nothing was started:\n  {}", .file.display(), .faults.join("\n  "))]
    NotOneMachine { file: PathBuf, faults: Vec<String> },
    #[error("something is missing on this machine; nothing was started:\n  {}", .0.join("\n  "))]
    Missing(Vec<String>),
    #[error("{what} refuses its configuration, and everything was ended:\n  {}", .last_lines.join("\n  "))]
    ProcessRefused {
        what: String,
        last_lines: Vec<String>,
    },
    #[error("the director: {0}")]
    Director(#[from] DirectorError),
    #[error(transparent)]
    Orchestrator(#[from] OrchestrateError),
    #[error(transparent)]
    Api(#[from] asterism_api::server::StartError),
    #[error("{0}")]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Policy(#[from] PoliciesError),
    #[error("{} has a cluster of up to {had} hosts, which cannot be begun with up to {wanted}: begin it with --hosts {had} or MIN..{had}, or choose another folder", .folder.display())]
    OtherHosts {
        folder: PathBuf,
        had: usize,
        wanted: usize,
    },
    #[error("{path} is of another version, or was changed, and is not written over: run it as it is by `asterism up {path}`, choose another folder, or remove this folder and all that its cluster knows", path = .0.display())]
    Foreign(PathBuf),
    #[error("`asterism up` runs in {} already: end it with `asterism down --folder {}`", .0.display(), .0.display())]
    Runs(PathBuf),
    #[error("{0} buckets are no power of two: write 256, 512 or another one")]
    Buckets(u32),
    #[error("{0} failed; please report what it said")]
    Failed(&'static str),
}

fn folder_cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; name a folder that you may write to by --folder"
        }
        _ => "",
    }
}

impl UpError {
    /// The end of the command.
    pub(super) fn end(&self) -> End {
        match self {
            UpError::Refused(_)
            | UpError::NoPorts(_)
            | UpError::NoHosts(_)
            | UpError::NotLocal { .. }
            | UpError::NotOneMachine { .. }
            | UpError::ProcessRefused { .. } => End::Configuration,
            UpError::OnlyLocal { .. } => End::CommandLine,
            UpError::Missing(_) => End::System,
            _ => End::File,
        }
    }
}
