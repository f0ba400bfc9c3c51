//! The files by which Prometheus watches a cluster on one machine: where its hosts and its orchestrator are, and the alert rules
//! that are shipped.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The alert rules as they are shipped.
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yml");

/// Writes `prometheus.yml` and `alerts.yml` into the folder; returns the path of the first.
pub(super) fn write(
    folder: &Path,
    cluster: &str,
    hosts: &[(String, SocketAddr)],
    orchestrator: SocketAddr,
) -> std::io::Result<PathBuf> {
    std::fs::write(folder.join("alerts.yml"), ALERTS)?;
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, text(cluster, hosts, orchestrator))?;
    Ok(path)
}

fn text(cluster: &str, hosts: &[(String, SocketAddr)], orchestrator: SocketAddr) -> String {
    let mut text = "global:\n  scrape_interval: 5s\n  evaluation_interval: 5s\n\
        rule_files:\n  - alerts.yml\nscrape_configs:\n  - job_name: asterism-hosts\n    static_configs:\n"
        .to_owned();
    // Writing to a string cannot fail.
    for (host, address) in hosts {
        let _ = writeln!(
            text,
            "      - targets: ['{address}']\n        labels: {{cluster: '{cluster}', host: '{host}'}}"
        );
    }
    let _ = writeln!(
        text,
        "  - job_name: asterism-orchestrators\n    static_configs:\n      - targets: ['{orchestrator}']\n        \
         labels: {{cluster: '{cluster}'}}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_name() {
        let hosts = [("a".to_owned(), "127.65.0.1:9000".parse().unwrap())];
        let text = text("up", &hosts, "127.0.0.1:7580".parse().unwrap());
        for line in [
            "      - targets: ['127.65.0.1:9000']",
            "        labels: {cluster: 'up', host: 'a'}",
            "      - targets: ['127.0.0.1:7580']",
            "        labels: {cluster: 'up'}",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
