//! Measures in the laboratory: real programs through `asterism run`, on interfaces of network namespaces.
//!
//! `lab_tcp.rs` downloads over asymmetric paths, `lab_kill.rs` kills a host meanwhile, `lab_throughput.rs` sends one stream. Here is what both need: the
//! program, which is the one beside this one, and laboratories with hosts that run.

use std::path::{Path, PathBuf};
use std::process::Command;

use asterism_lab::nat::{HostOptions, NatLab};
use asterism_lab::{LabError, Program};

use crate::contract::Failure;

/// The release of the product that stands beside this program.
pub(super) fn product() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        Failure::Absent(format!("this program's own file is unknown ({error})"))
    })?;
    let product = own.with_file_name("asterism");
    if product.exists() {
        Ok(product)
    } else {
        Err(Failure::Absent(format!(
            "{} is not there: build the product with the same profile first (cargo build --profile dist -p asterism)",
            product.display()
        )))
    }
}

/// Refuses where laboratories cannot be built, or a program is not installed.
pub(super) fn needs(programs: &[&str]) -> Result<(), Failure> {
    asterism_lab::needs(programs).map_err(absent)
}

/// A failure of the laboratory itself.
pub(super) fn absent(error: LabError) -> Failure {
    Failure::Absent(error.to_string())
}

/// A run that went wrong, or whose link was late.
pub(super) fn unsound(error: LabError) -> Failure {
    Failure::Unsound(error.to_string())
}

/// Writes a cluster's key, if there is none.
pub(super) fn write_key(lab: &NatLab, product: &Path) -> Result<(), Failure> {
    if lab.key_file().exists() {
        return Ok(());
    }
    let written = Command::new(product)
        .arg("keygen")
        .arg(lab.key_file())
        .output();
    match written.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(Failure::Absent(format!(
            "{} wrote no key",
            product.display()
        ))),
    }
}

/// Writes a new key, the configuration and, if they are by a file, the first epoch, and starts all hosts.
pub(super) fn start(
    lab: &NatLab,
    product: &Path,
    options: &HostOptions,
) -> Result<Vec<Program>, Failure> {
    write_key(lab, product)?;
    let configuration = lab.write_configuration(options).map_err(absent)?;
    if options.epochs {
        write_epoch(product, &configuration, &["--first"])?;
    }
    lab.start_hosts(product, &configuration).map_err(absent)
}

/// Writes an epoch by `asterism epoch`.
pub(super) fn write_epoch(
    product: &Path,
    configuration: &Path,
    changes: &[&str],
) -> Result<(), Failure> {
    let written = Command::new(product)
        .arg("epoch")
        .arg(configuration)
        .args(changes)
        .output();
    match written {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Failure::Unsound(format!(
            "no epoch {changes:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Err(error) => Err(Failure::Absent(format!("{}: {error}", product.display()))),
    }
}
