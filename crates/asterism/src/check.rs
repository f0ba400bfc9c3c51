//! `asterism check`: lists every mistake of a configuration, or describes the host and the cluster that it sets up.

use std::path::{Path, PathBuf};

use asterism_config::diagnostic::DiagnosticDocument;
use asterism_config::fields;
use asterism_config::functions::ObjectKind;
use asterism_config::value::{show_count, show_duration, show_size};
use asterism_config::{
    Config, ObjectChoice, Placement, Port, PortKind, Purpose, StoreAck, StoreCache, files,
};
use asterism_output::End;
use asterism_output::{Output, Schema};
use asterism_toml_schema::kind::Absent;
use asterism_toml_schema::reference::SectionDocument;
use serde::Serialize;

/// What `asterism check` reports.
#[derive(Clone, Debug, Serialize)]
pub struct CheckDocument {
    /// The file.
    pub file: String,
    /// Whether the configuration is valid.
    pub accepted: bool,
    /// All mistakes and warnings, in the order of the file.
    pub diagnostics: Vec<DiagnosticDocument>,
    /// The meaning of the configuration; absent if it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationDocument>,
}

/// The meaning of a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigurationDocument {
    /// The cluster's name.
    pub cluster: String,
    /// All hosts.
    pub members: Vec<String>,
    /// This host.
    pub host: String,
    /// Its packet loops.
    pub instances: usize,
    /// Its ports; none if the configuration is not for `asterism run`.
    pub ports: Vec<PortDocument>,
    /// The network function.
    pub function: &'static str,
    /// The placements of its state.
    pub objects: Vec<ObjectDocument>,
}

/// A port of the host.
#[derive(Clone, Debug, Serialize)]
pub struct PortDocument {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its interface or file.
    pub place: String,
}

/// The placement of a state object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectDocument {
    /// The object.
    pub name: &'static str,
    /// Its placement.
    pub placement: &'static str,
    /// The handling of an absent entry.
    pub absent: String,
    /// Maximum entries; 0: the function's suggestion.
    pub capacity: u32,
    /// The cost of an access.
    pub cost: String,
}

/// The schema of [`CheckDocument`].
pub const CHECK: Schema = Schema {
    name: "asterism.check",
    version: 1,
};

/// The schema of [`FieldsDocument`].
pub const FIELDS: Schema = Schema {
    name: "asterism.fields",
    version: 1,
};

/// What `asterism check --fields` reports.
#[derive(Clone, Debug, Serialize)]
pub struct FieldsDocument {
    /// All tables.
    pub tables: Vec<SectionDocument>,
}

/// `asterism check --fields`: the reference of all tables and fields.
pub fn fields(output: &mut Output<'_>) -> End {
    if output.json() {
        output.document(
            FIELDS,
            &FieldsDocument {
                tables: fields::reference(output.functions()),
            },
        );
    } else {
        output.text(&fields::reference_text(output.functions()));
    }
    output.end(End::Done)
}

/// `asterism check CONFIG`.
pub fn run(path: &Path, member: Option<&str>, output: &mut Output<'_>) -> End {
    let (config, mut report) = match files::load(path, Purpose::Host, member, output.functions()) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    let config = files::made(config, &mut report);
    output.report(&report);
    let end = if config.is_some() {
        End::Done
    } else {
        End::Configuration
    };
    if output.json() {
        output.document(
            CHECK,
            &CheckDocument {
                file: report.file.clone(),
                accepted: config.is_some(),
                diagnostics: report.documents(),
                configuration: config.as_ref().map(document),
            },
        );
    } else if let Some(config) = &config {
        output.text(&words(&report.file, config));
    }
    output.end(end)
}

fn document(config: &Config) -> ConfigurationDocument {
    ConfigurationDocument {
        cluster: config.cluster.name.clone(),
        members: config.cluster.members.clone(),
        host: config.host.name.clone(),
        instances: config.host.instances,
        ports: config.ports.iter().map(port_document).collect(),
        function: config.function.name,
        objects: config
            .function
            .objects
            .iter()
            .map(|object| ObjectDocument {
                name: object.name,
                placement: object.placement.word(),
                absent: object.absent.to_string(),
                capacity: object.capacity,
                cost: cost(object, config),
            })
            .collect(),
    }
}

fn port_document(port: &Port) -> PortDocument {
    PortDocument {
        name: port.name,
        kind: port.kind.word(),
        place: match port.kind {
            PortKind::SharedMemory => port.path.display().to_string(),
            _ => port.interface.clone(),
        },
    }
}

/// Describes the host and the cluster that a configuration sets up.
#[must_use]
pub fn words(file: &str, config: &Config) -> String {
    let cluster = &config.cluster;
    let mut text = format!("{file} is good.\n\n");
    let hosts = match cluster.members.len() {
        count if cluster.is_open => format!("{count} places for hosts that register"),
        1 => format!("one host, {}", cluster.members[0]),
        count => format!(
            "{count} hosts: {}; this one is {}",
            cluster.members.join(", "),
            config.host.name
        ),
    };
    text.push_str(&format!("Cluster   {}, {hosts}\n", cluster.name));
    let instances = match config.host.instances {
        1 => "one packet loop".to_owned(),
        count => format!("{count} packet loops, each on a core of its own"),
    };
    text.push_str(&format!("Host      {instances}\n"));
    for port in config.ports.iter().map(port_document) {
        text.push_str(&format!(
            "Port      {}: {} ({})\n",
            port.name, port.place, port.kind
        ));
    }
    if !config.ports.is_empty() {
        let host = &config.host;
        let file = |file: &Option<PathBuf>| {
            file.as_ref()
                .map_or("nowhere".to_owned(), |file| file.display().to_string())
        };
        let metrics = host
            .metrics
            .map_or("not served".to_owned(), |at| format!("http://{at}/metrics"));
        let alerts = host.eve.as_ref().map_or(String::new(), |eve| {
            format!("; alerts written to {}", eve.file.display())
        });
        text.push_str(&format!(
            "Service   metrics {metrics}; state saved {}{alerts}\n",
            file(&host.state)
        ));
    }
    text.push_str(&format!(
        "Function  {}: {}\n\nState\n",
        config.function.name,
        config.function.settings.words()
    ));
    let width = config
        .function
        .objects
        .iter()
        .map(|object| object.name.len())
        .max()
        .unwrap_or(0);
    for object in &config.function.objects {
        text.push_str(&format!(
            "  {:width$}  {:10}  {}\n",
            object.name,
            object.placement.word(),
            cost(object, config)
        ));
    }
    if let Some(store) = &config.store {
        text.push_str(&format!(
            "\nStore\n  {}, keys begin with {{{}}}; {} connections of each packet loop commit and one reads; a reply may take {}{}{}\n",
            store.place(),
            store.name,
            store.connections,
            show_duration(store.timeout),
            match (&store.user, &store.password) {
                (Some(user), _) => format!("; logs in as {user}"),
                (None, Some(_)) => "; logs in with a password".to_owned(),
                (None, None) => String::new(),
            },
            store.cache.map_or_else(String::new, cache_text)
        ));
        if store.ack == StoreAck::Replica {
            text.push_str(
                "  a packet leaves when a replica has its writes: that takes a round trip from the primary to the replica more, and without a replica \
                 no packet leaves that wrote something; nothing is promised when the two die together, or when a replica that lacks the writes is promoted\n",
            );
        }
    }
    if cluster.members.len() > 1 {
        let channel = &cluster.channel;
        text.push_str(&format!(
            "\nState channel\n  sealed with {}; packets of at most {}; silence of at most {}; {} of updates kept until all members acknowledged them\n",
            cluster.key.as_ref().map_or("a key drawn for the run".to_owned(), |key| key.display().to_string()),
            show_size(channel.mtu as u64),
            show_duration(channel.keep_alive),
            show_size(channel.log_bytes_max as u64),
        ));
    }
    text
}

/// What instances keep of the store's answers.
fn cache_text(cache: StoreCache) -> String {
    let known = match cache.known_for.is_zero() {
        true => String::new(),
        false => format!(
            "; while it is away, known flows go on for {}",
            show_duration(cache.known_for)
        ),
    };
    let filter = match cache.filter {
        true => " and knows which keys there are not",
        false => "",
    };
    format!(
        "\n  each instance keeps {} answers{filter}; packets that only read may act on what was there {} before{known}",
        show_count(cache.entries as u64),
        show_duration(cache.staleness)
    )
}

/// Describes the cost of an access to an object.
fn cost(object: &ObjectChoice, config: &Config) -> String {
    let shared = config.cluster.members.len() * config.host.instances > 1;
    let mut words = match object.placement {
        Placement::Local if shared => {
            "a memory access; each instance has its own copy, which no other instance sees"
                .to_owned()
        }
        Placement::Local => "a memory access".to_owned(),
        Placement::Replicated if shared => {
            "a memory access; updates reach the other instances asynchronously".to_owned()
        }
        Placement::Replicated => "a memory access; no other instance needs updates".to_owned(),
        Placement::Remote => match &config.store {
            Some(store) => format!(
                "a round trip to the store{}, in which many packets share; packets leave when it has what they wrote",
                match (store.addresses.as_slice(), &store.shards, &store.embedded) {
                    ([_], _, Some(embedded)) => format!(" of {}", embedded.members.join(", ")),
                    ([one], _, _) => format!(" {one}"),
                    ([], Some(shards), _) => format!(
                        " of {} shards, one of which has each conversation",
                        shards.each.len()
                    ),
                    (several, ..) => format!(" {} or another one of its servers", several[0]),
                }
            ),
            // A single instance keeps it.
            None => "a memory access".to_owned(),
        },
        Placement::Late(delay) => format!(
            "for tests: the packet waits {} for each read",
            show_duration(delay)
        ),
    };
    if let Absent::Wait(longest) = object.absent
        && shared
    {
        words.push_str(&format!(
            "; a read of an absent entry waits for updates in transit, {} at most",
            show_duration(longest)
        ));
    }
    if object.kind == ObjectKind::Pool && object.placement == Placement::Replicated && shared {
        words.push_str("; leased in blocks of 64, so no two instances grant the same item");
    }
    if object.capacity > 0 {
        words.push_str(&format!(
            "; at most {} entries",
            show_count(object.capacity.into())
        ));
    }
    words
}
