//! The configuration that the command writes if it is given none: NAT hosts over the local network. It is run as any other file, and
//! written again by the next start unless somebody changed it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use asterism_config::functions::Functions;
use asterism_config::{Purpose, files, key_file};
use asterism_local_network::{ClusterFile, loopback_addresses};
use asterism_state::hash;

use super::Arguments;
use super::error::UpError;

/// The cluster's name.
const CLUSTER: &str = "up";
/// What the file begins with; its checksum follows.
const HEAD: &str = "# Written by `asterism up`, which writes it again unless it was changed. Changed or not, `asterism up FILE` runs it.\n# checksum = ";
/// Whose the clients are: half of them one tenant's, the others another's.
const TENANTS: &str = "\n[tenants.blue]\nnetworks = [\"10.78.0.0/25\"]\n\n[tenants.green]\nnetworks = [\"10.78.0.128/25\"]\n";

/// Writes the file and the key into the folder. A key that is there stays, and so does what the cluster knows.
pub(super) fn write(folder: &Path, arguments: &Arguments) -> Result<PathBuf, UpError> {
    let hosts = usize::from(arguments.hosts.max);
    let path = ClusterFile::path_in(folder);
    check_hosts(folder, &path, hosts)?;
    let names: Vec<String> = (b'a'..)
        .take(hosts)
        .map(|letter| char::from(letter).to_string())
        .collect();
    let key = folder.join("cluster.key");
    if !key.exists() {
        key_file::write_new(&key, 1)?;
    }
    let mut addresses = loopback_addresses(2 * hosts + 1, std::process::id())?;
    let metrics = addresses.split_off(hosts + 1);
    let orchestrators = addresses.split_off(hosts);
    let file = ClusterFile {
        orchestrators,
        metrics,
        more: more(arguments),
        ..ClusterFile::new(folder, CLUSTER, names, addresses)
    };
    let text = with_checksum(&file.text()?);
    let new = folder.join("asterism.toml.new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(|error| UpError::Folder { path: new, error })?;
    Ok(path)
}

/// Whether the file is not there, or is as it was written for so many hosts: the record in the store and the saved states are of these.
fn check_hosts(folder: &Path, path: &Path, wanted: usize) -> Result<(), UpError> {
    if !path.exists() {
        return Ok(());
    }
    let foreign = || UpError::Foreign(path.to_owned());
    if !is_as_written(&files::text_of(path, "the configuration")?) {
        return Err(foreign());
    }
    let (config, _) = files::load(path, Purpose::Host, None, Functions::default())?;
    let had = config.ok_or_else(foreign)?.cluster.members.len();
    match had == wanted {
        true => Ok(()),
        false => Err(UpError::OtherHosts {
            folder: folder.to_owned(),
            had,
            wanted,
        }),
    }
}

fn with_checksum(text: &str) -> String {
    format!("{HEAD}{:016x}\n{text}", hash::bytes(text.as_bytes(), 0))
}

fn is_as_written(text: &str) -> bool {
    let after = text
        .strip_prefix(HEAD)
        .and_then(|text| text.split_once('\n'));
    after.is_some_and(|(_, rest)| with_checksum(rest) == text)
}

/// Tenants, and a policy for a demonstration, which waits seconds where a network waits minutes.
fn more(arguments: &Arguments) -> String {
    let (least, most) = (arguments.hosts.min, arguments.hosts.max);
    let is_fixed = least == most;
    // The first epoch does not wait once all hosts are there.
    let found_after = if is_fixed { "3s" } else { "500ms" };
    let mut text = format!(
        "{TENANTS}\n[orchestrator]\nfound_after = \"{found_after}\"\n\n[policy.{CLUSTER}]\n\
         hosts = {{ min = {least}, max = {most}, step = {most} }}\nout_for = \"2s\"\nin_for = \"8s\"\ncool_down = \"4s\"\n\
         drain = \"5s\"\nstale_after = \"3s\"\nback_off = {{ first = \"1s\", most = \"30s\" }}\n"
    );
    // Writing to a string cannot fail.
    if !is_fixed {
        let out = arguments.scale_above;
        let within = out / 2;
        let _ = writeln!(
            text,
            "packets_per_second = {{ out = {out}, in = {within} }}"
        );
    }
    if arguments.rebalance {
        // A host is hot with a tenth more than its share, for as long as it takes to be sure.
        text.push_str(
            "hot_spot = { factor_permille = 1100, for = \"2s\", buckets_max = 128, cool_down = \"4s\", least_packets_per_second = 100 }\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_file_is_seen() {
        let text = with_checksum("[cluster]\nname = \"up\"\n");
        assert!(is_as_written(&text));
        for changed in [
            text.replace("up\"", "other\""),
            format!("{text}\n"),
            text.replacen("# ", "", 1),
            text[HEAD.len()..].to_owned(),
            HEAD.to_owned(),
            String::new(),
        ] {
            assert!(!is_as_written(&changed), "{changed}");
        }
    }
}
