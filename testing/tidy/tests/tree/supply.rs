//! What is depended on: licences, bans and sources, by `deny.toml`, without the tool that it is written for.

use std::process::Command;

use asterism_tidy::{must_be_empty, read, root};

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list(table: &toml::Value, name: &str) -> Vec<String> {
    let list = table[name].as_array().unwrap();
    list.iter()
        .map(|value| value.as_str().unwrap().to_owned())
        .collect()
}

/// Whether one of the alternatives of an SPDX expression without parentheses nested in `AND` is allowed.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let flat = expression.replace('/', " OR ");
    // `(A OR B) AND C`: every part of the conjunction needs an alternative that is allowed.
    flat.split(" AND ").all(|part| {
        part.trim_matches(['(', ')', ' '])
            .split(" OR ")
            .any(|licence| {
                allowed
                    .iter()
                    .any(|one| one == licence.trim_matches(['(', ')', ' ']))
            })
    })
}

#[test]
fn licences_bans_and_sources() {
    let deny: toml::Value = toml::from_str(&read("deny.toml")).unwrap();
    let allowed = list(&deny["licenses"], "allow");
    let registries = list(&deny["sources"], "allow-registry");
    let banned: Vec<String> = deny["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| ban["name"].as_str().unwrap().to_owned())
        .collect();

    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 11, "the workspace alone has that many");
    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let version = package["version"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !permitted(licence, &allowed) {
            faults.push(format!("{name} {version}: licence {licence}"));
        }
        if banned.iter().any(|one| one == name) {
            faults.push(format!("{name} {version}: banned in deny.toml"));
        }
        if let Some(source) = package["source"].as_str()
            && !registries
                .iter()
                .any(|registry| source == format!("registry+{registry}"))
        {
            faults.push(format!("{name} {version}: from {source}"));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = [
        "MIT".to_owned(),
        "Zlib".to_owned(),
        "Unicode-3.0".to_owned(),
    ];
    for good in [
        "MIT",
        "Apache-2.0 OR MIT",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
    ] {
        assert!(permitted(good, &allowed), "{good}");
    }
    for bad in [
        "none",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR Apache-2.0) AND GPL-3.0",
    ] {
        assert!(!permitted(bad, &allowed), "{bad}");
    }
}
