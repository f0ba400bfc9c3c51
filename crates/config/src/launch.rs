//! How the orchestrator launches hosts: the table `[orchestrator.launch]`.

use core::time::Duration;
use std::path::PathBuf;

use super::cluster::Cluster;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, List, Place, Setting, Values, section};

/// Arguments of a program at most, as launchers have it.
const ARGUMENTS_MAX: usize = 64;
/// The place of a host's name in the name of its namespace.
const HOST: &str = "{host}";

/// How hosts are launched; paths as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// As what.
    pub with: LaunchWith,
    /// The folder of records and logs; `None`: `launch` in the orchestrator's folder.
    pub folder: Option<PathBuf>,
    /// The hosts' program.
    pub program: PathBuf,
    /// The configuration, as the hosts find it; `None`: the orchestrator's own file.
    pub configuration: Option<PathBuf>,
    /// Further arguments of `asterism run`.
    pub arguments: Vec<String>,
    /// How often it is asked which hosts run.
    pub interval: Duration,
}

/// What hosts are launched as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchWith {
    /// Processes of this machine.
    Processes,
    /// Processes in network namespaces of these names, with `{host}` for the host's.
    Namespaces(String),
    /// Containers of podman.
    Containers {
        /// The image, or a folder with a root file system.
        from: ContainerFrom,
        /// The program podman.
        podman: PathBuf,
        /// Options of podman before each command.
        podman_options: Vec<String>,
        /// Options of `podman create`.
        create_options: Vec<String>,
    },
}

/// What containers are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerFrom {
    /// An image that the machine has.
    Image(String),
    /// A folder, as written.
    Folder(PathBuf),
}

const fn text_list(default: &'static str, meaning: &'static str) -> Setting {
    Setting {
        kind: Kind::List {
            of: &Kind::File,
            most: ARGUMENTS_MAX,
        },
        default: Default::Is(default),
        meaning,
    }
}

section! {
    /// How hosts are launched.
    pub(crate) static LAUNCH: LaunchKeys = {
        path: "orchestrator.launch",
        meaning: "How the orchestrator launches hosts, on its own machine. Without this table it launches none: a service manager starts and stops them.",
        fields: {
            with: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "process",
                            meaning: "Hosts are processes of this machine.",
                        },
                        Word {
                            word: "namespace",
                            meaning: "Hosts are processes in network namespaces (`ip netns`); needs root.",
                        },
                        Word {
                            word: "container",
                            meaning: "Hosts are containers of podman.",
                        },
                    ],
                    refused: &[Word {
                        word: "systemd",
                        meaning: "leave this table out: systemd starts and stops the hosts",
                    }],
                },
                default: Default::Unset("hosts are not launched"),
                meaning: "What a host is launched as.",
            },
            folder: String = Setting {
                kind: Kind::File,
                default: Default::Unset("`launch` in the orchestrator's folder"),
                meaning: "The folder of records, locks and logs of launched hosts. It must be on a local disk that survives a restart.",
            },
            program: String = Setting {
                kind: Kind::File,
                default: Default::Is("\"asterism\""),
                meaning: "The hosts' program: a path, or a name that is looked for in PATH.",
            },
            configuration: String = Setting {
                kind: Kind::File,
                default: Default::Unset("this file"),
                meaning: "The absolute path of the configuration, as hosts find it: another one in a container.",
            },
            arguments: List<String> = text_list("[]", "Further arguments of `asterism run`, such as [\"--log\", \"json\"]."),
            namespace: String = Setting {
                kind: Kind::File,
                default: Default::Unset("needed with `namespace`"),
                meaning: "The name of a host's network namespace, with {host} for the host's name, such as \"lab-{host}\".",
            },
            source: String = Setting {
                kind: Kind::File,
                default: Default::Unset("with `container`, this or `root` is needed"),
                meaning: "The image of containers, which the machine must have: none is fetched.",
            },
            root: String = Setting {
                kind: Kind::File,
                default: Default::Unset("with `container`, this or `source` is needed"),
                meaning: "A folder with a root file system, which all containers share.",
            },
            podman: String = Setting {
                kind: Kind::File,
                default: Default::Is("\"podman\""),
                meaning: "The program podman: a path, or a name that is looked for in PATH.",
            },
            podman_options: List<String> = text_list("[]", "Options of podman before each command."),
            create_options: List<String> = text_list("[]", "Options of `podman create`, such as volumes with the configuration, the key and the state."),
        },
    };
}

/// Reads `[orchestrator.launch]`, which needs the list of members. The outer `None` if anything in it is wrong, the inner one if hosts
/// are not launched.
pub(super) fn launch(
    values: &Values,
    cluster: &Cluster,
    report: &mut Report,
) -> Option<Option<Launch>> {
    let text = |key| values.get(key);
    let list = |key| -> Option<Vec<String>> {
        let items: List<String> = values.get(key)?;
        Some(items.into_iter().map(|(item, _)| item).collect())
    };
    let path = |key| text(key).map(PathBuf::from);
    let mut is_right = true;
    let mut wrong = |diagnostic: Diagnostic| {
        report.add(diagnostic);
        is_right = false;
    };
    let key_of = |place: Option<&Place>| place.map(|place| place.key.clone());
    let given = [
        ("folder", key_of(values.place(LAUNCH.folder))),
        ("namespace", key_of(values.place(LAUNCH.namespace))),
        ("source", key_of(values.place(LAUNCH.source))),
        ("root", key_of(values.place(LAUNCH.root))),
    ];
    let Some(with) = values.get(LAUNCH.with) else {
        let first = given.into_iter().find_map(|(_, place)| place);
        if let (Some(place), None) = (first, values.place(LAUNCH.with)) {
            wrong(
                Diagnostic::error("it is not said what hosts are launched as", place)
                    .help("add with = \"process\", \"namespace\" or \"container\""),
            );
            return None;
        }
        return values.place(LAUNCH.with).is_none().then_some(None);
    };
    if cluster.is_open {
        wrong(
            Diagnostic::error("hosts that register are not launched", values.span_of(LAUNCH.with))
                .label("the orchestrator launches those that [cluster] lists")
                .help("list the hosts in `members` instead of `places`, or leave this table out and start hosts by a service manager"),
        );
    }
    for (name, needs) in [
        ("namespace", "namespace"),
        ("source", "container"),
        ("root", "container"),
    ] {
        let place = given.iter().find(|(field, _)| *field == name);
        let place = place.and_then(|(_, place)| place.clone());
        if let Some(place) = place.filter(|_| with != needs) {
            wrong(
                Diagnostic::error(format!("`{name}` means nothing with \"{with}\""), place)
                    .help(format!("leave it out, or write with = \"{needs}\"")),
            );
        }
    }
    if let Some(configuration) = text(LAUNCH.configuration).filter(|path| !path.starts_with('/')) {
        wrong(
            Diagnostic::error(
                format!("hosts would look for {configuration} in another folder"),
                values.span_of(LAUNCH.configuration),
            )
            .help("write its absolute path"),
        );
    }
    let with = match with {
        "namespace" => match text(LAUNCH.namespace) {
            Some(pattern) if pattern.contains(HOST) => LaunchWith::Namespaces(pattern),
            Some(_) => {
                wrong(
                    Diagnostic::error(
                        "all hosts would share one namespace",
                        values.span_of(LAUNCH.namespace),
                    )
                    .help("write {host} where the host's name belongs: namespace = \"lab-{host}\""),
                );
                return None;
            }
            None => {
                wrong(
                    Diagnostic::error(
                        "it is not said in which namespaces hosts run",
                        values.span_of(LAUNCH.with),
                    )
                    .help("add namespace = \"lab-{host}\""),
                );
                return None;
            }
        },
        "container" => {
            let from = match (text(LAUNCH.source), path(LAUNCH.root)) {
                (Some(image), None) => ContainerFrom::Image(image),
                (None, Some(folder)) => ContainerFrom::Folder(folder),
                (image, _) => {
                    let title = match image {
                        Some(_) => "a container has an image or a root file system, not both",
                        None => "it is not said what containers are made of",
                    };
                    wrong(Diagnostic::error(title, values.span_of(LAUNCH.with)).help(
                        "write source = \"localhost/asterism:latest\", or root = \"/srv/asterism\"",
                    ));
                    return None;
                }
            };
            LaunchWith::Containers {
                from,
                podman: path(LAUNCH.podman)?,
                podman_options: list(LAUNCH.podman_options)?,
                create_options: list(LAUNCH.create_options)?,
            }
        }
        _ => LaunchWith::Processes,
    };
    let interval = match with {
        LaunchWith::Containers { .. } => Duration::from_secs(1),
        _ => Duration::from_millis(100),
    };
    let launch = Launch {
        folder: path(LAUNCH.folder),
        program: path(LAUNCH.program)?,
        configuration: path(LAUNCH.configuration),
        arguments: list(LAUNCH.arguments)?,
        interval,
        with,
    };
    is_right.then_some(Some(launch))
}
