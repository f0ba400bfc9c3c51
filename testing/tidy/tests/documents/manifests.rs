//! The manifests for Kubernetes: valid by its schemas, with a configuration and an epoch that hosts accept, and with names that fit
//! together.

use std::path::PathBuf;
use std::process::Command;

use asterism_config::Config;
use asterism_config::diagnostic::Report;
use asterism_tidy::{must_be_empty, read, root};

const FOLDER: &str = "packaging/kubernetes";

/// All manifests, by path from the root.
fn manifests() -> Vec<String> {
    let mut paths = Vec::new();
    for folder in [FOLDER.to_owned(), format!("{FOLDER}/key")] {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".yaml") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    paths.sort();
    paths
}

/// A block of text of a manifest, which begins behind `KEY: |`.
fn block(manifest: &str, key: &str) -> String {
    let text = read(manifest);
    let mut lines = text
        .lines()
        .skip_while(|line| line.trim() != format!("{key}: |"));
    let head = lines
        .next()
        .unwrap_or_else(|| panic!("{manifest} has no {key}"));
    let indent = head.len() - head.trim_start().len() + 2;
    let inside =
        lines.take_while(|line| line.trim().is_empty() || line.starts_with(&" ".repeat(indent)));
    inside
        .map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()))
        .collect()
}

fn configuration() -> (Option<Config>, Report) {
    let text = block("packaging/kubernetes/configuration.yaml", "asterism.toml");
    Config::read("asterism.toml", &text)
}

fn validate(paths: &[PathBuf]) -> std::process::Output {
    Command::new("python3")
        .args(["-m", "kubernetes_validate", "--strict"])
        .args(paths)
        .output()
        .unwrap()
}

#[test]
fn the_manifests_are_valid_by_the_schemas_of_kubernetes() {
    let has_validator = Command::new("python3")
        .args(["-c", "import kubernetes_validate"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_validator {
        println!(
            "SKIPPED the manifests of Kubernetes: kubernetes-validate is not installed (python3 -m pip install kubernetes-validate)"
        );
        return;
    }
    let paths: Vec<_> = manifests().iter().map(|path| root().join(path)).collect();
    assert!(paths.len() >= 8, "{paths:?}");
    let output = validate(&paths);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");

    // It finds what it is to find.
    let wrong =
        read(&format!("{FOLDER}/stateful-set.yaml")).replace("serviceName:", "servicename:");
    let file = std::env::temp_dir().join(format!("asterism-manifest-{}.yaml", std::process::id()));
    std::fs::write(&file, wrong).unwrap();
    let output = validate(std::slice::from_ref(&file));
    std::fs::remove_file(&file).unwrap();
    assert!(!output.status.success());
}

#[test]
fn their_configuration_and_epoch_are_accepted() {
    let (config, report) = configuration();
    assert_eq!(report.errors(), 0, "{}", report.render(false));
    let cluster = config.unwrap().cluster;
    let text = block("packaging/kubernetes/configuration.yaml", "epoch.toml");
    let epoch = asterism_epochs::EpochFile::parse(&text, "epoch.toml", &cluster.members).unwrap();
    assert!(epoch.is_founding());
}

/// Names, ports and paths that stand in several manifests.
#[test]
fn their_names_fit_together() {
    let mut faults = Vec::new();
    let set = read("packaging/kubernetes/stateful-set.yaml");
    let mut demand = |holds: bool, fault: &str| {
        if !holds {
            faults.push(fault.to_owned());
        }
    };
    let (config, _) = configuration();
    let config = config.unwrap();
    let members = &config.cluster.members;
    demand(
        set.contains(&format!("replicas: {}", members.len())),
        "there are as many pods as members",
    );
    let pods = (0..members.len()).map(|number| format!("asterism-{number}"));
    demand(
        pods.eq(members.iter().cloned()),
        "a member has its pod's name",
    );
    let text = block("packaging/kubernetes/configuration.yaml", "asterism.toml");
    for (path, mount) in [
        (
            "key = \"/etc/asterism-key/cluster.key\"",
            "mountPath: /etc/asterism-key",
        ),
        (
            "epochs = \"/var/lib/asterism/epoch.toml\"",
            "mountPath: /var/lib/asterism",
        ),
        (
            "state = \"/var/lib/asterism/state\"",
            "mountPath: /var/lib/asterism",
        ),
        (
            "control = \"/run/asterism/host.sock\"",
            "--socket, /run/asterism/host.sock",
        ),
    ] {
        demand(text.contains(path) && set.contains(mount), path);
    }
    for port in ["7400", "9400"] {
        for manifest in ["service", "network-policy", "stateful-set", "configuration"] {
            let manifest = read(&format!("{FOLDER}/{manifest}.yaml"));
            demand(manifest.contains(port), "ports are the same everywhere");
        }
    }
    for manifest in manifests() {
        let text = read(&manifest);
        let is_inside = text.contains("namespace: asterism") || text.contains("kind: Namespace");
        demand(is_inside, &format!("{manifest}: all is in one namespace"));
    }
    demand(
        !read("packaging/kubernetes/key/secret.yaml").contains("asterism-key-1:"),
        "no key is shipped",
    );
    must_be_empty(&faults);
}
