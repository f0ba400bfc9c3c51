//! What an orchestrator asks hosts for its API: their status, where flows and entries are.
//!
//! All hosts are asked at once, and each answers in some milliseconds or is late after four seconds. Hosts that do not answer are named
//! in the answer; only if none answers is there an error.

use std::collections::BTreeMap;
use std::time::Duration;

use asterism_api::OrderError;
use asterism_api::data::{
    FlowFound, FlowQuery, ObjectHeld, StateEntries, StateEntry, StateHolder, StateObject,
    StateObjects, StateQuery, StateWritten, Unanswered,
};
use asterism_host::control::{Answer, Ask};
use asterism_host::run::entries::{EntriesDocument, EntriesWanted, HeldEntry};
use asterism_host_view::StatusDocument;
use asterism_host_view::flow_text::FlowWanted;
use asterism_host_view::requests::FoundProvenance;
use asterism_orchestrator::run::{Asking, Awaited, NotAnswered};
use serde::de::DeserializeOwned;

/// After how long a question that was not answered is sensibly repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Entries that differ are compared once more after this time: an update may have been on its way.
const COMPARE_AGAIN: Duration = Duration::from_millis(100);

/// Why a host did not answer, or refused.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error(transparent)]
    NotAnswered(#[from] NotAnswered),
    #[error("its answer is of another version: {0}")]
    OtherVersion(#[from] serde_json::Error),
    #[error("it sent an empty answer")]
    Empty,
    #[error("{0}")]
    Refused(String),
}

/// The hosts' answers, in the order of the hosts.
struct Answers<T> {
    answered: Vec<(String, T)>,
    unanswered: Vec<Unanswered>,
    /// Whether a host that is heard was waited for in vain.
    is_late: bool,
}

fn begin(asking: &Asking, host: &str, ask: &Ask) -> Result<Awaited, HostError> {
    let question = serde_json::to_vec(ask)?;
    let awaited = asking.ask_host(host, question).map_err(NotAnswered::from)?;
    Ok(awaited)
}

fn end<T: DeserializeOwned>(awaited: Awaited) -> Result<T, HostError> {
    let answer: Answer = serde_json::from_slice(&awaited.answer()?)?;
    match (answer.result, answer.error) {
        (_, Some(why)) => Err(HostError::Refused(why)),
        (Some(result), None) => Ok(serde_json::from_value(result)?),
        (None, None) => Err(HostError::Empty),
    }
}

fn unavailable(why: String) -> OrderError {
    OrderError::Unavailable {
        why,
        retry_after: RETRY_AFTER,
    }
}

fn ask_all<T: DeserializeOwned>(
    asking: &Asking,
    hosts: &[String],
    ask: &Ask,
) -> Result<Answers<T>, OrderError> {
    let begun: Vec<_> = hosts.iter().map(|host| begin(asking, host, ask)).collect();
    let mut answers = Answers {
        answered: Vec::new(),
        unanswered: Vec::new(),
        is_late: false,
    };
    let mut refusal = None;
    for (host, begun) in hosts.iter().zip(begun) {
        match begun.and_then(end) {
            Ok(answer) => answers.answered.push((host.clone(), answer)),
            Err(error) => {
                let (host, why) = (host.clone(), error.to_string());
                match error {
                    HostError::Refused(_) => {
                        refusal.get_or_insert_with(|| format!("{host}: {why}"));
                    }
                    HostError::NotAnswered(NotAnswered::NotAsked(_)) => {}
                    _ => answers.is_late = true,
                }
                answers.unanswered.push(Unanswered { host, why });
            }
        }
    }
    match (answers.answered.is_empty(), refusal) {
        (true, Some(why)) => Err(OrderError::Refused { why }),
        (true, None) => Err(unavailable(nobody(&answers.unanswered))),
        (false, _) => Ok(answers),
    }
}

fn nobody(unanswered: &[Unanswered]) -> String {
    match unanswered.first() {
        Some(first) => format!("no host answered; {}: {}", first.host, first.why),
        None => "no host is known: see the orchestrator's log".to_owned(),
    }
}

/// The hosts to ask: the named one, which must be known, or all.
fn chosen(hosts: &[String], named: Option<&str>) -> Result<Vec<String>, OrderError> {
    let Some(named) = named else {
        return Ok(hosts.to_vec());
    };
    match hosts.iter().find(|host| *host == named) {
        Some(host) => Ok(vec![host.clone()]),
        None => Err(OrderError::UnknownHost {
            host: named.to_owned(),
        }),
    }
}

/// The status of one host.
pub(super) fn status(
    asking: &Asking,
    hosts: &[String],
    host: &str,
) -> Result<serde_json::Value, OrderError> {
    chosen(hosts, Some(host))?;
    let ask = Ask::Status { digests: false };
    let answer = begin(asking, host, &ask).and_then(end);
    answer.map_err(|error| unavailable(format!("{host}: {error}")))
}

/// The objects of all hosts.
pub(super) fn state(asking: &Asking, hosts: &[String]) -> Result<StateObjects, OrderError> {
    let answers = ask_all::<StatusDocument>(asking, hosts, &Ask::Status { digests: false })?;
    let mut objects: Vec<StateObject> = Vec::new();
    for (host, status) in answers.answered {
        // All hosts have one store, and count its entries at different moments.
        let in_store = status.store.map(|store| store.entries).unwrap_or_default();
        for instance in status.instances {
            for object in instance.objects {
                let held = ObjectHeld {
                    host: host.clone(),
                    instance: number(instance.instance),
                    live: object.live,
                    held: object.held,
                    capacity: object.capacity.into(),
                };
                let counted = in_store.get(&object.name).copied();
                match objects.iter_mut().find(|one| one.name == object.name) {
                    Some(one) => {
                        one.held.push(held);
                        one.in_store = one.in_store.max(counted);
                    }
                    None => objects.push(StateObject {
                        name: object.name,
                        held: vec![held],
                        in_store: counted,
                    }),
                }
            }
        }
    }
    Ok(StateObjects {
        objects,
        unanswered: answers.unanswered,
    })
}

fn number(instance: usize) -> u32 {
    instance.try_into().unwrap_or(u32::MAX)
}

/// Entries of an object, and which hosts have each.
pub(super) fn entries(
    asking: &Asking,
    hosts: &[String],
    object: &str,
    query: &StateQuery,
    max: usize,
) -> Result<StateEntries, OrderError> {
    let hosts = chosen(hosts, query.host.as_deref())?;
    let ask = Ask::Entries(EntriesWanted {
        key: query.key.clone(),
        value: query.value.clone(),
        object: Some(object.to_owned()),
        flow: None,
    });
    let answers = ask_all(asking, &hosts, &ask)?;
    let is_late = answers.is_late;
    let found = merged(answers, object, max);
    if is_late || found.entries.iter().all(|entry| entry.agree) {
        return Ok(found);
    }
    std::thread::park_timeout(COMPARE_AGAIN);
    Ok(merged(ask_all(asking, &hosts, &ask)?, object, max))
}

/// The answers of all hosts about an object, by key.
fn merged(answers: Answers<EntriesDocument>, object: &str, max: usize) -> StateEntries {
    let mut by_key: BTreeMap<String, Vec<StateHolder>> = BTreeMap::new();
    let mut is_cut = false;
    // Of a host that has more than it shows, or did not reach all of its store, it is not known what it lacks.
    let mut whole = Vec::new();
    let mut unanswered = answers.unanswered;
    for (host, document) in answers.answered {
        is_cut |= document.more;
        if !document.more && document.unsearched.is_empty() {
            whole.push(host.clone());
        }
        if !document.unsearched.is_empty() {
            let (host, why) = (host.clone(), document.unsearched.join("; "));
            unanswered.push(Unanswered { host, why });
        }
        for entry in document.entries {
            let (key, holder) = holder(&host, entry);
            by_key.entry(key).or_default().push(holder);
        }
    }
    is_cut |= by_key.len() > max;
    let entry = |(key, holders): (String, Vec<StateHolder>)| {
        let has = |host: &String| holders.iter().any(|holder| holder.host == *host);
        let lacking: Vec<String> = whole.iter().filter(|host| !has(host)).cloned().collect();
        let all_alike = holders.windows(2).all(|two| is_alike(&two[0], &two[1]));
        StateEntry {
            key,
            agree: all_alike && lacking.is_empty(),
            holders,
            lacking,
        }
    };
    StateEntries {
        object: object.to_owned(),
        entries: by_key.into_iter().take(max).map(entry).collect(),
        is_cut,
        unanswered,
    }
}

fn holder(host: &str, entry: HeldEntry) -> (String, StateHolder) {
    let by = entry.written_by.unwrap_or_default();
    let written = |written: FoundProvenance| StateWritten {
        by,
        member: written.member,
        incarnation: written.incarnation,
        sequence: written.sequence,
        generation: written.generation,
        idle_class: written.idle_class,
        idle_s: written.idle_s,
        unused_s: written.unused_s,
        is_alias: written.alias,
        ends_here: written.ends_here,
    };
    let holder = StateHolder {
        host: host.to_owned(),
        instances: entry.instances.into_iter().map(number).collect(),
        value: entry.value,
        written: entry.provenance.map(written),
    };
    (entry.key, holder)
}

/// Whether two holders have the same entry. How long it was unused, and who ends it, may differ.
fn is_alike(one: &StateHolder, other: &StateHolder) -> bool {
    let stamp = |holder: &StateHolder| {
        holder.written.as_ref().map(|written| {
            let incarnation = written.incarnation.clone();
            (
                written.generation,
                written.member,
                incarnation,
                written.sequence,
            )
        })
    };
    one.value == other.value && stamp(one) == stamp(other)
}

/// Flows that match.
pub(super) fn flows(
    asking: &Asking,
    hosts: &[String],
    query: &FlowQuery,
    max: usize,
) -> Result<Vec<FlowFound>, OrderError> {
    let hosts = chosen(hosts, query.host.as_deref())?;
    let ask = Ask::Entries(EntriesWanted {
        flow: Some(FlowWanted {
            // The server has checked that it is one.
            address: query.address.as_ref().and_then(|text| text.parse().ok()),
            port: query.port,
            protocol: query.protocol.map(|protocol| protocol.name().to_owned()),
        }),
        ..EntriesWanted::default()
    });
    let answers = ask_all(asking, &hosts, &ask)?;
    Ok(found_flows(answers, query.host.as_deref(), max))
}

/// The flows of all answers, each once; of one host: those that it wrote last.
fn found_flows(
    answers: Answers<EntriesDocument>,
    of_host: Option<&str>,
    max: usize,
) -> Vec<FlowFound> {
    type Held = (FlowFound, Option<u64>);
    let mut flows: BTreeMap<(String, Option<String>), Held> = BTreeMap::new();
    for (host, document) in answers.answered {
        for entry in document.entries {
            let Some(flow) = entry.flow else {
                continue;
            };
            let generation = entry.provenance.map(|written| written.generation);
            let writer = entry.written_by.unwrap_or_else(|| host.clone());
            let known = flows
                .entry((flow.flow.clone(), flow.translated.clone()))
                .or_insert_with(|| {
                    let found = FlowFound {
                        flow: flow.flow,
                        translated: flow.translated,
                        host: writer.clone(),
                        ..FlowFound::default()
                    };
                    (found, generation)
                });
            // Where two hosts name two writers, the update of the later one has not arrived everywhere.
            if generation > known.1 {
                (known.0.host, known.1) = (writer, generation);
            }
            if known.0.held_by.last() != Some(&host) {
                known.0.held_by.push(host.clone());
            }
        }
    }
    let flows = flows.into_values().map(|(flow, _)| flow);
    let of_host = flows.filter(|flow| of_host.is_none_or(|host| flow.host == host));
    of_host.take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host_view::flow_text::FlowText;

    const KEY: &str =
        "inside 10.0.0.1:4000/udp outside 203.0.113.1:1024/udp remote 198.51.100.1:53/udp";

    fn entry(key: &str, value: &str, member: u16, generation: u64) -> HeldEntry {
        HeldEntry {
            object: "sessions".to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            instances: vec![0],
            written_by: Some(char::from(b'a' - 1 + member as u8).to_string()),
            provenance: Some(FoundProvenance {
                idle_class: 0,
                idle_s: 30,
                unused_s: member.into(),
                generation,
                member,
                incarnation: "1".to_owned(),
                sequence: 7,
                alias: false,
                ends_here: member == 1,
            }),
            flow: FlowText::of(key),
        }
    }

    fn answers(of: &[(&str, Vec<HeldEntry>, bool)]) -> Answers<EntriesDocument> {
        let answer = |(host, entries, more): &(&str, Vec<HeldEntry>, bool)| {
            let document = EntriesDocument {
                entries: entries.clone(),
                more: *more,
                unsearched: Vec::new(),
            };
            ((*host).to_owned(), document)
        };
        Answers {
            answered: of.iter().map(answer).collect(),
            unanswered: Vec::new(),
            is_late: false,
        }
    }

    #[test]
    fn hosts_agree_if_all_have_an_entry_alike() {
        let of = |hosts: &[(&str, Vec<HeldEntry>, bool)]| {
            let found = merged(answers(hosts), "sessions", 9);
            assert_eq!(found.entries.len(), 1);
            let entry = found.entries[0].clone();
            (entry.agree, entry.lacking.join(","), entry.holders.len())
        };
        let one = || vec![entry(KEY, "open", 1, 4)];
        let nothing = String::new;
        let alike = [("a", one(), false), ("b", one(), false)];
        assert_eq!(of(&alike), (true, nothing(), 2));
        for other in [
            entry(KEY, "closed", 1, 4),
            entry(KEY, "open", 2, 4),
            entry(KEY, "open", 1, 5),
        ] {
            let differ = [("a", one(), false), ("b", vec![other], false)];
            assert_eq!(of(&differ), (false, nothing(), 2));
        }
        let lacks = [("a", one(), false), ("b", vec![], false)];
        assert_eq!(of(&lacks), (false, "b".to_owned(), 1));
        // One that has more than it shows may have it.
        let cut = [("a", one(), false), ("b", vec![], true)];
        assert_eq!(of(&cut), (true, nothing(), 1));
    }

    #[test]
    fn of_a_host_that_does_not_reach_its_store_it_is_not_known_what_it_lacks() {
        let one = vec![entry(KEY, "open", 1, 4)];
        let mut answers = answers(&[("a", one, false), ("b", vec![], false)]);
        let why = "the store is away".to_owned();
        answers.answered[1].1.unsearched.push(why.clone());
        let found = merged(answers, "sessions", 9);
        assert!(found.entries[0].agree && found.entries[0].lacking.is_empty());
        let host = "b".to_owned();
        assert_eq!(found.unanswered, [Unanswered { host, why }]);
    }

    #[test]
    fn entries_are_bounded() {
        let many = (0..20).map(|port| entry(&format!("10.0.0.1:{port}"), "", 1, 1));
        let found = merged(answers(&[("a", many.collect(), false)]), "sessions", 9);
        assert_eq!((found.entries.len(), found.is_cut), (9, true));
    }

    #[test]
    fn a_flow_is_the_last_writers_and_is_held_by_all_who_have_it() {
        let hosts = [
            ("a", vec![entry(KEY, "open", 1, 4)], false),
            ("b", vec![entry(KEY, "open", 2, 5)], false),
            (
                "c",
                vec![entry(KEY, "open", 1, 4), entry("10.0.0.1", "", 1, 1)],
                false,
            ),
        ];
        let found = found_flows(answers(&hosts), None, 9);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].flow, "udp 10.0.0.1:4000 198.51.100.1:53");
        let translated = Some("udp 203.0.113.1:1024 198.51.100.1:53");
        assert_eq!(found[0].translated.as_deref(), translated);
        assert_eq!(
            (found[0].host.as_str(), found[0].held_by.join("")),
            ("b", "abc".to_owned())
        );
        // A host's own flows are those that it wrote last, as it knows.
        assert_eq!(found_flows(answers(&hosts[2..]), Some("c"), 9), []);
        assert_eq!(found_flows(answers(&hosts[..1]), Some("a"), 9).len(), 1);
        assert_eq!(found_flows(answers(&hosts), None, 0), []);
    }
}
