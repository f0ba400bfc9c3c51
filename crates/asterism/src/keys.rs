//! `asterism key`: shows the cluster's keys, or takes one of the three steps from one key to the next.
//!
//! A step is safe if every host took the step before. The command asks the host that runs with the configuration, if there is
//! one, and refuses a step that this host shows to be too early. Read `key_file.rs` next.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use asterism_config::Purpose;
use asterism_config::files::{self, FileError};
use asterism_config::functions::Functions;
use asterism_config::key_file::{self, KeyFileError};
use asterism_engine::hash_seed;
use asterism_host::control::Ask;
use asterism_host::run::jobs::keys::listed;
use asterism_host_view::StatusDocument;
use asterism_output::End;
use asterism_output::{Output, Schema};
use asterism_secure_channel::{ClusterKey, KEYS_MAX, KeyRing, KeyRingError};
use clap::Args;
use serde::Serialize;

use crate::commands::WITHIN;
use crate::commands::client::{Which, ask};

/// The arguments of `asterism key`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file, whose cluster section names the key file; or the key file itself
    #[arg(value_name = "CONFIG|FILE")]
    pub file: PathBuf,
    /// Step 1: add a new key, which hosts accept and do not send with yet
    #[arg(long, conflicts_with_all = ["use_id", "drop_id"])]
    pub new: bool,
    /// The new key's number, instead of the next free number
    #[arg(long, value_name = "ID", requires = "new")]
    pub id: Option<u8>,
    /// Step 2: send with this key from now on
    #[arg(long = "use", value_name = "ID", conflicts_with = "drop_id")]
    pub use_id: Option<u8>,
    /// Step 3: stop accepting this key
    #[arg(long = "drop", value_name = "ID")]
    pub drop_id: Option<u8>,
    /// Take the step although the running host shows that it is too early, for a key that has been disclosed
    #[arg(long)]
    pub force: bool,
    /// The member whose host runs here, if the configuration does not say
    #[arg(long, value_name = "NAME")]
    pub member: Option<String>,
}

/// What `asterism key` reports. Never a key.
#[derive(Clone, Debug, Serialize)]
pub struct KeyDocument {
    /// The key file.
    pub file: String,
    /// Whether it was written.
    pub written: bool,
    /// The number of the key that hosts send with.
    pub sends_with: u8,
    /// The numbers of all keys.
    pub keys: Vec<u8>,
    /// The host that runs with the configuration, before the step; absent if no host answers.
    pub running: Option<RunningDocument>,
}

/// A host that runs with the key file.
#[derive(Clone, Debug, Serialize)]
pub struct RunningDocument {
    /// Its name.
    pub host: String,
    /// The number of the key that it sends with.
    pub sends_with: u8,
    /// The numbers of the keys that it accepts.
    pub accepts: Vec<u8>,
    /// The other members of the epoch.
    pub peers: Vec<PeerKeyDocument>,
}

/// Another member, in that host's view.
#[derive(Clone, Debug, Serialize)]
pub struct PeerKeyDocument {
    /// Its name.
    pub name: String,
    /// The number of the key of the last datagram received from it.
    pub heard_with: Option<u8>,
    /// Time since the last datagram received from it.
    pub heard_us_ago: Option<u64>,
    /// The numbers of the keys that it advertises as accepted; absent if it advertises none.
    pub accepts: Option<Vec<u8>>,
    /// The numbers under which its key differs from that host's.
    pub differing_keys: Vec<u8>,
}

/// Bytes that are read to recognise a key file.
const BEGINNING_BYTES: u64 = 16 * 1024;
/// Microseconds of silence after which a peer no longer counts.
const HEARD_US_MAX: u64 = 5_000_000;

impl PeerKeyDocument {
    fn is_heard(&self) -> bool {
        self.heard_us_ago.is_some_and(|us| us < HEARD_US_MAX)
    }
}

/// The schema of [`KeyDocument`].
pub const KEY: Schema = Schema {
    name: "asterism.key",
    version: 1,
};

/// `asterism key CONFIG|FILE`.
pub fn run(arguments: &Arguments, output: &mut Output<'_>) -> End {
    match step(arguments, output.functions()) {
        Ok(document) => {
            if output.json() {
                output.document(KEY, &document);
            } else {
                output.text(&describe(arguments, &document));
            }
            output.end(End::Done)
        }
        Err(error) => output.fail(End::File, &error),
    }
}

/// Why a step was not taken; the key file is as it was.
#[derive(Debug, thiserror::Error)]
enum KeyStepError {
    #[error(transparent)]
    Configuration(#[from] FileError),
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The configuration has mistakes.
    #[error(
        "{} is refused: {mistakes} mistakes, the first: {first}; see `asterism check`, or name the key file",
        file.display()
    )]
    Refused {
        file: PathBuf,
        mistakes: usize,
        first: String,
    },
    #[error("{} names no key file: add key = \"cluster.key\" in [cluster]", .0.display())]
    NamesNoKeyFile(PathBuf),
    #[error(
        "the keys are unchanged: {0}. If the key has been disclosed, force the step with --force"
    )]
    TooEarly(TooEarly),
    #[error(
        "there are {KEYS_MAX} keys already: first drop a key that no host sends with (`asterism key --drop`)"
    )]
    TooMany,
    #[error("there is a key {0} already: name another number")]
    Taken(u8),
    #[error("there is no key {id}; there are {}", listed(known))]
    Unknown { id: u8, known: Vec<u8> },
    #[error(
        "hosts send with key {0}, so it was kept: add a new key (--new), make all hosts send with it (--use), then drop this key"
    )]
    InUse(u8),
    #[error("no key was written: {0}")]
    NoRing(#[from] KeyRingError),
}

/// Why a step is too early for the hosts that run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TooEarly {
    #[error(
        "{host} itself does not accept key {id} yet; it loads the file within a second, or logs why not"
    )]
    NotAccepted { host: String, id: u8 },
    #[error(
        "{} would no longer accept {host}'s datagrams: key {id} of this file is not acknowledged there; copy the file there, and wait a second",
        peers.join(", ")
    )]
    NotAcknowledged {
        host: String,
        id: u8,
        peers: Vec<String>,
    },
    #[error(
        "{host} itself still sends with key {id}; it loads the file within a second, or logs why not"
    )]
    SendsWith { host: String, id: u8 },
    #[error(
        "{} still sends with key {id}, and {host} would no longer accept those datagrams; copy the file of the step before there",
        peers.join(", ")
    )]
    PeersSendWith {
        host: String,
        id: u8,
        peers: Vec<String>,
    },
}

fn step(arguments: &Arguments, functions: Functions) -> Result<KeyDocument, KeyStepError> {
    let (path, running) = if is_key_file(&arguments.file) {
        (arguments.file.clone(), None)
    } else {
        of_configuration(arguments, functions)?
    };
    let before = key_file::read(&path)?;
    let after = match (arguments.new, arguments.use_id, arguments.drop_id) {
        (true, ..) => Some(with_new(&before, arguments.id)?),
        (_, Some(id), _) => with_used(&before, id)?,
        (.., Some(id)) => Some(without(&before, id)?),
        _ => None,
    };
    if let Some(running) = running
        .as_ref()
        .filter(|_| after.is_some() && !arguments.force)
    {
        check_time(arguments, running).map_err(KeyStepError::TooEarly)?;
    }
    if let Some(after) = &after {
        key_file::replace(&path, after)?;
    }
    let written = after.is_some();
    let now = after.unwrap_or(before);
    Ok(KeyDocument {
        file: path.display().to_string(),
        written,
        sends_with: now.sending().id(),
        keys: now.ids().collect(),
        running,
    })
}

/// Whether the file begins like a key file.
fn is_key_file(path: &Path) -> bool {
    let mut text = Vec::with_capacity(BEGINNING_BYTES as usize);
    if let Ok(file) = File::open(path) {
        // If the file is unreadable, the full read reports why.
        let _ = file.take(BEGINNING_BYTES).read_to_end(&mut text);
    }
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    let is_one = first.is_some_and(|line| line.starts_with(b"asterism-key"));
    // The buffer may hold secrets, which the allocator would keep.
    text.fill(0);
    core::hint::black_box(&text);
    is_one
}

/// The configuration's key file, and its host if it runs here.
fn of_configuration(
    arguments: &Arguments,
    functions: Functions,
) -> Result<(PathBuf, Option<RunningDocument>), KeyStepError> {
    let file = &arguments.file;
    let (config, report) =
        files::load(file, Purpose::Host, arguments.member.as_deref(), functions)?;
    let Some(config) = config else {
        let first = report.diagnostics.first();
        let first = first.map_or_else(String::new, |one| {
            let help = one.help.first().map_or("", String::as_str);
            format!("{} {help}", one.title)
        });
        return Err(KeyStepError::Refused {
            file: file.clone(),
            mistakes: report.errors(),
            first: first.trim().to_owned(),
        });
    };
    let key = config.cluster.key.as_ref();
    let key = key.ok_or_else(|| KeyStepError::NamesNoKeyFile(file.clone()))?;
    let which = Which {
        config: Some(file.clone()),
        member: arguments.member.clone(),
        socket: None,
    };
    let status = which
        .socket(functions)
        .and_then(|socket| ask::<StatusDocument>(&socket, &Ask::Status { digests: false }, WITHIN));
    let running = status.ok().map(|status| RunningDocument {
        host: status.host,
        sends_with: status.channel.sends_with,
        accepts: status.channel.accepts,
        peers: status
            .peers
            .into_iter()
            .filter(|peer| peer.takes_part)
            .map(|peer| PeerKeyDocument {
                name: peer.name,
                heard_with: peer.heard_with,
                heard_us_ago: peer.heard_us_ago,
                accepts: peer.accepts,
                differing_keys: peer.differing_keys,
            })
            .collect(),
    });
    Ok((files::key_path(file, key), running))
}

/// Whether the running hosts have taken the step before.
fn check_time(arguments: &Arguments, running: &RunningDocument) -> Result<(), TooEarly> {
    let host = || running.host.clone();
    let of = |peers: Vec<&PeerKeyDocument>| -> Vec<String> {
        peers.into_iter().map(|peer| peer.name.clone()).collect()
    };
    let heard = running.peers.iter().filter(|peer| peer.is_heard());
    if let Some(id) = arguments.use_id {
        if !running.accepts.contains(&id) {
            return Err(TooEarly::NotAccepted { host: host(), id });
        }
        let lacks = |peer: &&PeerKeyDocument| {
            let accepts = peer.accepts.as_ref();
            accepts.is_none_or(|ids| !ids.contains(&id)) || peer.differing_keys.contains(&id)
        };
        let peers = of(heard.filter(lacks).collect());
        return match peers.is_empty() {
            true => Ok(()),
            false => Err(TooEarly::NotAcknowledged {
                host: host(),
                id,
                peers,
            }),
        };
    }
    let Some(id) = arguments.drop_id else {
        return Ok(());
    };
    if running.sends_with == id {
        return Err(TooEarly::SendsWith { host: host(), id });
    }
    let peers = of(heard.filter(|peer| peer.heard_with == Some(id)).collect());
    match peers.is_empty() {
        true => Ok(()),
        false => Err(TooEarly::PeersSendWith {
            host: host(),
            id,
            peers,
        }),
    }
}

/// The first step: another key, which names the cluster's hash seed, as all later keys do.
fn with_new(before: &KeyRing, wanted: Option<u8>) -> Result<KeyRing, KeyStepError> {
    if before.keys().len() == KEYS_MAX {
        return Err(KeyStepError::TooMany);
    }
    let id = match wanted {
        Some(id) if before.has(id) => return Err(KeyStepError::Taken(id)),
        Some(id) => id,
        // There are fewer keys than numbers.
        None => next_id(before),
    };
    let seed = hash_seed(before.sending());
    let keys = before.keys().iter().cloned().chain([key_file::draw(id)?]);
    let keys: Vec<ClusterKey> = keys.map(|key| key.with_hash_seed(seed)).collect();
    Ok(KeyRing::new(keys, before.sending().id())?)
}

/// The number after the greatest; if that does not exist, the least free number.
fn next_id(ring: &KeyRing) -> u8 {
    let greatest = ring.ids().max().unwrap_or(0);
    let after = greatest.checked_add(1);
    after.unwrap_or_else(|| (1..=u8::MAX).find(|id| !ring.has(*id)).unwrap_or(0))
}

/// The second step; `None` if there is nothing to do.
fn with_used(before: &KeyRing, id: u8) -> Result<Option<KeyRing>, KeyStepError> {
    known(before, id)?;
    if before.sending().id() == id {
        return Ok(None);
    }
    Ok(Some(KeyRing::new(before.keys().to_vec(), id)?))
}

/// The third step.
fn without(before: &KeyRing, id: u8) -> Result<KeyRing, KeyStepError> {
    known(before, id)?;
    let sending = before.sending().id();
    if sending == id {
        return Err(KeyStepError::InUse(id));
    }
    let keys = before.keys().iter().filter(|key| key.id() != id);
    Ok(KeyRing::new(keys.cloned().collect(), sending)?)
}

fn known(ring: &KeyRing, id: u8) -> Result<(), KeyStepError> {
    if ring.has(id) {
        return Ok(());
    }
    let known = ring.ids().collect();
    Err(KeyStepError::Unknown { id, known })
}

fn describe(arguments: &Arguments, document: &KeyDocument) -> String {
    let mut text = format!(
        "{}: keys {}; hosts send with key {}\n",
        document.file,
        listed(&document.keys),
        document.sends_with
    );
    // Writing to a string cannot fail.
    if let Some(running) = &document.running {
        let before = if document.written {
            "before that, "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{before}{} runs: sends with key {}, accepts {}",
            running.host,
            running.sends_with,
            listed(&running.accepts)
        );
        for peer in &running.peers {
            let heard = match (peer.heard_with, peer.heard_us_ago) {
                (Some(id), Some(us)) => {
                    let accepts = peer.accepts.as_ref();
                    let accepts = accepts.map_or_else(
                        || "accepted keys unknown".to_owned(),
                        |ids| format!("accepts {}", listed(ids)),
                    );
                    format!(
                        "last received with key {id}, {} ms ago; {accepts}",
                        us / 1_000
                    )
                }
                _ => "nothing received yet: check its key file before it joins".to_owned(),
            };
            let _ = writeln!(text, "  {:12} {heard}", peer.name);
        }
    }
    if !document.written {
        return text;
    }
    if document.running.is_none() {
        text.push_str("No running host was asked: only the file itself was checked.\n");
    }
    text.push_str("Written. Copy the file to every host of the cluster, with mode 0600: each host loads it within a second.\n");
    let file = arguments.file.display();
    if arguments.new {
        let new = document.keys.last().copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "Next, when `asterism status` says that the host and all its peers accept key {new}: asterism key {file} --use {new}"
        );
    } else if arguments.use_id.is_some() {
        let old = document
            .keys
            .iter()
            .filter(|id| **id != document.sends_with);
        for old in old {
            let _ = writeln!(
                text,
                "Next, when `asterism status` says that the host and all its peers send with key {}: asterism key {file} --drop {old}",
                document.sends_with
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;

    fn key(arguments: &[&str]) -> (End, String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let all = ["asterism", "key"].iter().chain(arguments);
        let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
        (end, String::from_utf8([stdout, stderr].concat()).unwrap())
    }

    #[test]
    fn three_steps_change_the_key_and_keep_the_hash_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let file = path.to_str().unwrap();
        key_file::write_new(&path, 255).unwrap();
        let first = key_file::read(&path).unwrap();
        let seed = hash_seed(first.sending());
        let (end, text) = key(&[file]);
        assert!(
            end == End::Done && text.contains("keys 255; hosts send with key 255"),
            "{text}"
        );
        assert!(!text.contains("Written"), "{text}");

        let (end, text) = key(&[file, "--new"]);
        assert!(
            end == End::Done && text.contains("accept key 1: asterism key"),
            "{text}"
        );
        let second = key_file::read(&path).unwrap();
        assert_eq!(second.ids().collect::<Vec<_>>(), [255, 1]);
        assert_eq!(second.sending().id(), 255);
        assert!(
            second
                .sending()
                .opens_what_was_sealed_under(first.sending())
        );
        assert!(second.keys().iter().all(|key| hash_seed(key) == seed));
        assert!(!second.keys()[1].opens_what_was_sealed_under(first.sending()));

        for (arguments, said) in [
            (
                &["--drop", "255"][..],
                "hosts send with key 255, so it was kept",
            ),
            (&["--drop", "9"], "there is no key 9; there are 255, 1"),
            (&["--use", "9"], "there is no key 9; there are 255, 1"),
            (&["--new", "--id", "1"], "a key 1 already"),
        ] {
            let (end, text) = key(&[&[file], arguments].concat());
            assert!(end == End::File && text.contains(said), "{text}");
        }
        assert_eq!(
            key_file::read(&path).unwrap(),
            second,
            "refusals change nothing"
        );

        let (end, text) = key(&[file, "--use", "1"]);
        assert!(end == End::Done && text.contains("--drop 255"), "{text}");
        assert!(
            !key(&[file, "--use", "1"]).1.contains("Written"),
            "once is enough"
        );
        let (end, text) = key(&[file, "--drop", "255"]);
        assert!(
            end == End::Done && text.contains("keys 1; hosts send with key 1"),
            "{text}"
        );
        let last = key_file::read(&path).unwrap();
        assert_eq!(last.sending(), &second.keys()[1]);
        assert_eq!(hash_seed(last.sending()), seed);

        for id in 2..=4 {
            assert_eq!(key(&[file, "--new"]).0, End::Done, "key {id}");
        }
        let (end, text) = key(&[file, "--new"]);
        assert!(
            end == End::File && text.contains("first drop a key"),
            "{text}"
        );
        assert!(key(&[file, "--drop", "3"]).0 == End::Done);
        assert!(key(&[file, "--new", "--id", "0"]).0 == End::Done);
        let ids: Vec<u8> = key_file::read(&path).unwrap().ids().collect();
        assert_eq!(ids, [1, 2, 4, 0]);
    }

    #[test]
    fn a_configuration_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("asterism.toml");
        let path = config.to_str().unwrap();
        std::fs::write(&config, "[function.pass-through]\n").unwrap();
        let (end, text) = key(&[path, "--new"]);
        assert!(
            end == End::File && text.contains("names no key file"),
            "{text}"
        );
        std::fs::write(
            &config,
            "[cluster]\nkey = \"c.key\"\n[function.pass-through]\n",
        )
        .unwrap();
        let (end, text) = key(&[path, "--new"]);
        assert!(end == End::File && text.contains("keygen"), "{text}");
        key_file::write_new(&folder.path().join("c.key"), 1).unwrap();
        let (end, text) = key(&[path, "--new"]);
        assert!(
            end == End::Done && text.contains("keys 1, 2") && text.contains("No running host"),
            "{text}"
        );
        // A key file with a mistake is still recognised.
        let damaged = folder.path().join("c.key");
        let text = std::fs::read_to_string(&damaged).unwrap();
        std::fs::write(
            &damaged,
            text.replace("asterism-keys-1:1:2", "asterism-keys-1:1:3"),
        )
        .unwrap();
        let (end, text) = key(&[damaged.to_str().unwrap()]);
        assert!(
            end == End::File && text.contains("c.key:1: the heading announces 3 keys"),
            "{text}"
        );
    }

    #[test]
    fn a_step_that_is_too_early_for_what_runs_is_refused() {
        let running = |sends_with, accepts: &[u8], heard: &[Option<u8>]| RunningDocument {
            host: "a".to_owned(),
            sends_with,
            accepts: accepts.to_vec(),
            peers: heard
                .iter()
                .zip(["b", "c"])
                .map(|(heard_with, name)| PeerKeyDocument {
                    name: name.to_owned(),
                    heard_with: *heard_with,
                    heard_us_ago: heard_with.map(|_| 5),
                    accepts: heard_with.map(|_| accepts.to_vec()),
                    differing_keys: Vec::new(),
                })
                .collect(),
        };
        let arguments = |use_id, drop_id| Arguments {
            file: PathBuf::new(),
            new: false,
            id: None,
            use_id,
            drop_id,
            force: false,
            member: None,
        };
        let too_early = |arguments: &Arguments, running: &RunningDocument| {
            let early = check_time(arguments, running).err();
            early.map(|early| early.to_string())
        };
        let (to_use, to_drop) = (arguments(Some(2), None), arguments(None, Some(1)));
        let old = running(1, &[1], &[Some(1), None]);
        assert!(
            too_early(&to_use, &old)
                .unwrap()
                .contains("does not accept key 2")
        );
        let added = running(1, &[1, 2], &[Some(1), None]);
        assert_eq!(too_early(&to_use, &added), None, "of c nothing is known");
        let mut said = running(1, &[1, 2], &[Some(1), Some(1)]);
        said.peers[0].accepts = None;
        assert!(
            too_early(&to_use, &said)
                .unwrap()
                .starts_with("b would no longer accept a's")
        );
        said.peers[0].accepts = Some(vec![1]);
        assert!(
            too_early(&to_use, &said)
                .unwrap()
                .starts_with("b would no longer accept a's")
        );
        said.peers[0].accepts = Some(vec![2, 1]);
        assert_eq!(too_early(&to_use, &said), None);
        said.peers[1].differing_keys = vec![2];
        assert!(
            too_early(&to_use, &said)
                .unwrap()
                .starts_with("c would no longer accept a's")
        );
        assert!(
            too_early(&to_drop, &added)
                .unwrap()
                .contains("a itself still sends with key 1")
        );
        let used = running(2, &[1, 2], &[Some(2), Some(1)]);
        assert!(
            too_early(&to_drop, &used)
                .unwrap()
                .starts_with("c still sends with key 1")
        );
        // A peer that was never received, or not for long, does not count.
        let mut silent = running(2, &[1, 2], &[Some(2), Some(1)]);
        assert!(too_early(&to_drop, &silent).is_some());
        silent.peers[1].heard_us_ago = Some(HEARD_US_MAX);
        assert_eq!(too_early(&to_drop, &silent), None);
        assert_eq!(
            too_early(&to_drop, &running(2, &[1, 2], &[Some(2), None])),
            None
        );
    }
}
