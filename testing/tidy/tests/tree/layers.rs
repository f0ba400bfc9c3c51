//! Each crate imports only those below it.

use std::collections::BTreeMap;

use asterism_tidy::{must_be_empty, read, root};

/// Crates of the tree that each may import in what it ships (tests may import more). From below to above.
const LAYERS: &[(&str, &[&str])] = &[
    ("packet", &[]),
    ("mutant", &[]),
    ("state-macro", &[]),
    ("state-mutants", &["mutant"]),
    ("memory", &[]),
    ("rendezvous", &["memory"]),
    ("resp", &[]),
    ("embedded-store", &["resp"]),
    ("wire", &["packet", "memory"]),
    ("sketches", &["memory", "wire"]),
    ("node-degrees", &["memory", "wire"]),
    ("stamps", &["wire"]),
    ("requests", &["memory"]),
    ("windows", &["state-mutants", "memory", "wire", "stamps"]),
    (
        "token-buckets",
        &["state-mutants", "memory", "wire", "windows"],
    ),
    ("object-counts", &["windows"]),
    ("block-assignment", &["mutant"]),
    // What calls share: objects are numbers to it.
    (
        "call-context",
        &[
            "block-assignment",
            "memory",
            "wire",
            "stamps",
            "requests",
            "state-mutants",
        ],
    ),
    (
        "state",
        &[
            "packet",
            "block-assignment",
            "call-context",
            "memory",
            "wire",
            "sketches",
            "token-buckets",
            "object-counts",
            "windows",
            "node-degrees",
            "stamps",
            "state-macro",
            "state-mutants",
        ],
    ),
    ("secure-channel", &["mutant"]),
    ("placement", &["mutant", "secure-channel"]),
    ("watched-files", &["placement"]),
    ("service-manager", &[]),
    ("function", &["packet", "state", "state-macro"]),
    ("io", &["packet", "state", "placement"]),
    (
        "engine",
        &[
            "packet",
            "mutant",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
        ],
    ),
    // A placement whose objects live in a store of the network.
    (
        "remote-store",
        &[
            "mutant",
            "memory",
            "rendezvous",
            "resp",
            "sketches",
            "state",
            "placement",
            "function",
            "engine",
        ],
    ),
    // What functions are made of: below them, and beside nothing that is not theirs to know.
    ("forwarding", &["function"]),
    ("blocking", &["function"]),
    ("tracking", &["mutant", "function"]),
    ("translation", &["mutant", "function", "forwarding"]),
    ("balancing", &["mutant", "function", "forwarding"]),
    ("detection", &["mutant", "function"]),
    (
        "functions",
        &[
            "mutant",
            "function",
            "forwarding",
            "blocking",
            "tracking",
            "translation",
            "balancing",
            "detection",
        ],
    ),
    // How values are written, whatever they are for.
    ("notation", &["function"]),
    // How tables are declared and read, whatever is in them.
    ("toml-schema", &["notation", "function"]),
    (
        "function-settings",
        &[
            "notation",
            "toml-schema",
            "state",
            "function",
            "engine",
            "functions",
        ],
    ),
    ("key-file", &["notation", "secure-channel"]),
    (
        "config",
        &[
            "notation",
            "toml-schema",
            "function-settings",
            "key-file",
            "elasticity",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "epochs",
        ],
    ),
    ("output", &["config"]),
    // Keys and values: it knows nothing of what they mean.
    ("truth-store", &["mutant"]),
    // Plain data and a trait, with a server and a client of them: the orchestrator implements it.
    ("api", &[]),
    // Processes and containers: it knows nothing of members and epochs.
    ("launch", &[]),
    // Where lines go, whatever they say.
    ("lines", &[]),
    // How events are written, whatever they say.
    ("event-log", &["placement"]),
    // Where connections come, whatever they ask for.
    ("serving", &["io"]),
    // Decisions by samples alone.
    ("elasticity", &["mutant"]),
    // An ingress stage of its own: beside the engine, and unaware of functions and their state.
    (
        "director",
        &["packet", "memory", "rendezvous", "placement", "io"],
    ),
    // What orchestrators command directors by.
    ("director-control", &["secure-channel"]),
    // Segments, director and traffic of a cluster on one machine: from outside of the hosts.
    (
        "local-network",
        &["packet", "memory", "placement", "io", "director"],
    ),
    // Who takes part, and who holds the ports of members that left.
    ("epochs", &["state", "placement"]),
    // What hosts and orchestrators say to each other.
    (
        "heartbeat",
        &["mutant", "secure-channel", "placement", "epochs"],
    ),
    // Packets and what handles them are not its business, but for the commands of the director.
    (
        "steering",
        &[
            "mutant",
            "secure-channel",
            "placement",
            "director",
            "director-control",
        ],
    ),
    // Rosters and epochs may be its business; packets are not.
    (
        "orchestrator",
        &[
            "mutant",
            "secure-channel",
            "placement",
            "epochs",
            "heartbeat",
            "truth-store",
            "elasticity",
            "launch",
            "steering",
        ],
    ),
    // What is known of a running host: its threads, and how they are started, are not its business.
    (
        "host-view",
        &[
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "config",
            "remote-store",
            "embedded-store",
            "event-log",
            "lines",
            "epochs",
        ],
    ),
    (
        "host-metrics",
        &[
            "state",
            "placement",
            "function",
            "io",
            "engine",
            "functions",
            "lines",
            "serving",
            "output",
            "host-view",
        ],
    ),
    (
        "host",
        &[
            "host-view",
            "host-metrics",
            "packet",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "config",
            "remote-store",
            "embedded-store",
            "watched-files",
            "service-manager",
            "event-log",
            "lines",
            "serving",
            "output",
            "epochs",
            "heartbeat",
        ],
    ),
    (
        "rehearsal",
        &[
            "packet",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "config",
            "output",
            "epochs",
            "host-view",
            "host",
        ],
    ),
    // Of the engine only the link's conditions, of placement only `Time`, and the steering of its routers: the laboratory tests the
    // product from outside.
    (
        "lab",
        &["packet", "resp", "placement", "io", "engine", "steering"],
    ),
    (
        "asterism",
        &[
            "packet",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "toml-schema",
            "config",
            "output",
            "host-view",
            "host",
            "rehearsal",
            "epochs",
            "truth-store",
            "director",
            "director-control",
            "elasticity",
            "orchestrator",
            "local-network",
            "embedded-store",
            "elasticity",
            "api",
            "lab",
        ],
    ),
    (
        "sim",
        &[
            "epochs",
            "heartbeat",
            "orchestrator",
            "packet",
            "block-assignment",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "tracking",
            "translation",
            "balancing",
            "detection",
            "functions",
            "resp",
            "embedded-store",
            "remote-store",
        ],
    ),
    (
        "maelstrom",
        &[
            "packet",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
        ],
    ),
    (
        "oracle",
        &[
            "packet",
            "state",
            "placement",
            "io",
            "function",
            "engine",
            "functions",
            "lab",
        ],
    ),
    (
        "bench",
        &[
            "packet",
            "state",
            "placement",
            "io",
            "secure-channel",
            "function",
            "engine",
            "functions",
            "orchestrator",
            "director",
            "director-control",
            "oracle",
            "sim",
            "lab",
            "remote-store",
            "tidy",
            "api",
        ],
    ),
    ("tidy", &["config"]),
];

/// What functions are made of.
const PARTS: [&str; 6] = [
    "forwarding",
    "blocking",
    "tracking",
    "translation",
    "balancing",
    "detection",
];

/// Crates that do not ship.
const TESTING: [&str; 5] = ["sim", "oracle", "bench", "tidy", "maelstrom"];

/// The folder of a crate.
fn folder(name: &str) -> String {
    match TESTING.contains(&name) {
        true => format!("testing/{name}"),
        false => format!("crates/{name}"),
    }
}

fn manifest(path: &str) -> toml::Table {
    toml::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn names(manifest: &toml::Table, table: &str) -> Vec<String> {
    let table = manifest.get(table).and_then(toml::Value::as_table);
    table
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn crates_import_only_layers_below() {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let mut faults = Vec::new();
    let folders =
        ["crates", "testing"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    for entry in folders.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // A workspace of its own.
        if name == "fuzz" {
            continue;
        }
        let Some(allowed) = layers.get(name.as_str()) else {
            faults.push(format!(
                "{name}: in no layer; add it to the table in this test"
            ));
            continue;
        };
        let manifest = manifest(&format!("{}/Cargo.toml", folder(&name)));
        for table in ["dependencies", "build-dependencies"] {
            for dependency in names(&manifest, table) {
                if let Some(other) = dependency.strip_prefix("asterism-")
                    && !allowed.contains(&other)
                {
                    faults.push(format!(
                        "{name}: {table} must not have {dependency}: its layer is not below"
                    ));
                }
            }
        }
    }
    must_be_empty(&faults);
}

/// What a network function may import: nothing that could show it a port, a clock or a placement. `aho-corasick` finds
/// bytes in bytes, `md-5` is what web caches know objects by; the libraries that functions are made of import no more than a function may,
/// and `asterism-mutant` is nothing but in builds with planted bugs.
#[test]
fn functions_import_function_alone() {
    let functions = manifest("crates/functions/Cargo.toml");
    assert_eq!(
        names(&functions, "dependencies"),
        [
            "aho-corasick",
            "asterism-balancing",
            "asterism-blocking",
            "asterism-detection",
            "asterism-forwarding",
            "asterism-function",
            "asterism-mutant",
            "asterism-tracking",
            "asterism-translation",
            "md-5"
        ]
    );
    for part in PARTS {
        let manifest = manifest(&format!("crates/{part}/Cargo.toml"));
        for name in names(&manifest, "dependencies") {
            let own = name.strip_prefix("asterism-");
            let is_allowed = own
                .is_some_and(|own| ["function", "mutant"].contains(&own) || PARTS.contains(&own));
            assert!(is_allowed, "crates/{part} imports {name}");
        }
    }
}

#[test]
fn packet_imports_nothing() {
    let manifest = manifest("crates/packet/Cargo.toml");
    assert_eq!(names(&manifest, "dependencies"), Vec::<String>::new());
    assert!(read("crates/packet/src/lib.rs").contains("#![no_std]"));
    assert!(read("crates/packet/src/lib.rs").contains("#![forbid(unsafe_code)]"));
}

/// The workspace's lints hold in every crate, and the crates of the cores cannot opt out of the bans.
#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let mut faults = Vec::new();
    for (name, _) in LAYERS {
        let path = format!("{}/Cargo.toml", folder(name));
        let inherits = manifest(&path)
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool);
        if inherits != Some(true) {
            faults.push(format!("{path}: needs `[lints] workspace = true`"));
        }
    }
    must_be_empty(&faults);
    let workspace = manifest("Cargo.toml");
    let clippy = &workspace["workspace"]["lints"]["clippy"];
    for lint in [
        "disallowed_methods",
        "disallowed_types",
        "todo",
        "unimplemented",
        "dbg_macro",
    ] {
        assert_eq!(clippy[lint].as_str(), Some("deny"), "{lint}");
    }
}

#[test]
fn the_bans_on_ambience_stand() {
    let bans = manifest("clippy.toml");
    let paths = |list: &str| -> Vec<String> {
        let list = bans[list].as_array().unwrap();
        list.iter()
            .map(|ban| ban["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let (methods, types) = (paths("disallowed-methods"), paths("disallowed-types"));
    for method in [
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "std::thread::sleep",
    ] {
        assert!(
            methods.iter().any(|banned| banned == method),
            "{method} must be banned"
        );
    }
    for kind in [
        "std::sync::Mutex",
        "std::sync::RwLock",
        "std::collections::hash_map::RandomState",
    ] {
        assert!(
            types.iter().any(|banned| banned == kind),
            "{kind} must be banned"
        );
    }
}
