//! Prometheus' own tools read the shipped files, and run the unit tests of the rules.

use std::path::Path;
use std::process::Command;

use super::files::{FOLDER, path, text};
use super::has;

pub(super) fn accepts(program: &str, arguments: &[&str], folder: &Path) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

#[test]
fn the_files_are_valid() {
    if !has(&["promtool", "amtool"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["alerts.yml", "prometheus.yml", "alertmanager.yml"] {
        // The example reads a token and certificates that only its machine has.
        let text = text(&format!("{FOLDER}/{name}")).replace("/etc/prometheus/", "");
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for name in ["asterism.token", "asterism-ca.pem"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    accepts("promtool", &["check", "rules", "alerts.yml"], folder.path());
    accepts(
        "promtool",
        &["check", "config", "prometheus.yml"],
        folder.path(),
    );
    accepts(
        "amtool",
        &["check-config", "alertmanager.yml"],
        folder.path(),
    );
}

#[test]
fn each_alert_fires_when_it_should_and_at_no_other_time() {
    if has(&["promtool"]) {
        accepts(
            "promtool",
            &["test", "rules", "alerts-test.yml"],
            &path(FOLDER),
        );
    }
}
