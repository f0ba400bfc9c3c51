//! What is depended on: licences, bans and sources, by `deny.toml`, without the tool that it is written for.

use std::collections::{BTreeMap, BTreeSet};
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

/// Names of crates, and of those that they depend on in any build of the workspace.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn graph(metadata: &serde_json::Value) -> Graph {
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeMap<&str, &str> = packages
        .iter()
        .map(|package| {
            (
                package["id"].as_str().unwrap(),
                package["name"].as_str().unwrap(),
            )
        })
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let mut graph = Graph::new();
    for node in nodes {
        let needs = node["deps"].as_array().unwrap().iter();
        let needs = needs.map(|need| names[need["pkg"].as_str().unwrap()].to_owned());
        let name = names[node["id"].as_str().unwrap()].to_owned();
        graph.entry(name).or_default().extend(needs);
    }
    graph
}

/// Banned crates, and the crates that may depend on each all the same.
fn bans(deny: &toml::Value) -> Vec<(String, Vec<String>)> {
    let bans = deny["bans"]["deny"].as_array().unwrap();
    bans.iter()
        .map(|ban| {
            let name = ban["name"].as_str().unwrap().to_owned();
            let wrappers = ban.get("wrappers").map(|_| list(ban, "wrappers"));
            (name, wrappers.unwrap_or_default())
        })
        .collect()
}

/// What depends on a banned crate and may not.
fn banned(bans: &[(String, Vec<String>)], graph: &Graph) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, wrappers) in bans {
        if wrappers.is_empty() && graph.contains_key(name) {
            faults.push(format!("{name}: banned in deny.toml"));
        }
        for (dependent, needs) in graph {
            if !wrappers.is_empty() && needs.contains(name) && !wrappers.contains(dependent) {
                faults.push(format!(
                    "{name}: deny.toml does not let {dependent} depend on it"
                ));
            }
        }
    }
    faults
}

/// Whether a crate depends on another by a way that does not lead over a third.
fn reaches(graph: &Graph, from: &str, to: &str, without: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        if name == to {
            return true;
        }
        if name != without && seen.insert(name) {
            next.extend(graph[name].iter().map(String::as_str));
        }
    }
    false
}

#[test]
fn licences_bans_and_sources() {
    let deny: toml::Value = toml::from_str(&read("deny.toml")).unwrap();
    let allowed = list(&deny["licenses"], "allow");
    let registries = list(&deny["sources"], "allow-registry");
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
        if let Some(source) = package["source"].as_str()
            && !registries
                .iter()
                .any(|registry| source == format!("registry+{registry}"))
        {
            faults.push(format!("{name} {version}: from {source}"));
        }
    }
    faults.extend(banned(&bans(&deny), &graph(&metadata)));
    must_be_empty(&faults);
}

/// The crate that may wait for futures.
const ONLY_WITH_FUTURES: &str = "asterism-api";

/// `wrappers` in `deny.toml` names the crates beside tokio; this is about ours: without [`ONLY_WITH_FUTURES`] none reaches it.
#[test]
fn futures_are_in_one_crate() {
    let graph = graph(&metadata());
    let direct: Vec<&String> = graph
        .iter()
        .filter(|(name, needs)| name.starts_with("asterism") && needs.contains("tokio"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(direct, [ONLY_WITH_FUTURES]);
    let ours = graph.keys().filter(|name| name.starts_with("asterism"));
    let faults: Vec<String> = ours
        .filter(|name| *name != ONLY_WITH_FUTURES)
        .filter(|name| reaches(&graph, name, "tokio", ONLY_WITH_FUTURES))
        .map(|name| format!("{name}: tokio, and not by way of {ONLY_WITH_FUTURES}"))
        .collect();
    must_be_empty(&faults);
}

#[test]
fn bans_are_understood() {
    let deny = "[bans]\ndeny = [{ name = \"no\" }, { name = \"few\", wrappers = [\"one\"] }]";
    let bans = bans(&toml::from_str(deny).unwrap());
    let graph = |edges: &[(&str, &str)]| -> Graph {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*to).to_owned()).or_default();
            let needs = graph.entry((*from).to_owned()).or_default();
            needs.insert((*to).to_owned());
        }
        graph
    };
    let good = graph(&[("ours", "one"), ("one", "few"), ("other", "one")]);
    assert_eq!(banned(&bans, &good), Vec::<String>::new());
    assert!(reaches(&good, "ours", "few", "none"));
    assert!(!reaches(&good, "ours", "few", "one"));
    let bad = graph(&[
        ("ours", "one"),
        ("one", "few"),
        ("ours", "few"),
        ("one", "no"),
    ]);
    assert_eq!(
        banned(&bans, &bad),
        [
            "no: banned in deny.toml",
            "few: deny.toml does not let ours depend on it"
        ]
    );
    assert!(reaches(&bad, "ours", "few", "one"));
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
