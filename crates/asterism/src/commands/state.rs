//! `asterism state`: the objects of hosts' state, entries of them, and which hosts have an entry.

use asterism_api::client::Client;
use asterism_api::data::{
    StateEntries, StateEntry, StateHolder, StateObjects, StateQuery, Unanswered,
};
use asterism_host::control::Ask;
use asterism_host_view::requests::{EntryDocument, FOUND_MAX, FoundProvenance, StateDocument};
use asterism_output::{End, Output, Schema, Table};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::client::Which;
use super::cluster::{ClusterError, Where, client};
use super::remote::Remote;
use super::{WITHIN, with_answer};

/// Queries of the state.
#[derive(Subcommand, Clone, Debug)]
pub enum StateCommand {
    /// Show the entries with a key, such as an endpoint: `10.0.0.1:4000` or `10.0.0.1:4000/udp`
    Get(GetArguments),
    /// Show the state objects of all hosts, by the API of an orchestrator
    Ls {
        /// Where.
        #[command(flatten)]
        at: Where,
    },
    /// Show which hosts have the entries with a key, and whether they have them alike, by the API of an orchestrator
    ///
    /// Every host is asked for its own copy. Hosts that share an object have its entries alike once updates have arrived; of an object
    /// with the placement `local`, each host has its own.
    Where {
        /// The key, as `asterism state get` shows it, or a word of the key
        key: String,
        /// In this object only
        #[arg(long)]
        object: Option<String>,
        /// Where.
        #[command(flatten)]
        at: Where,
    },
}

/// The arguments of `asterism state get`.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct GetArguments {
    /// The key, as `asterism trace` and this command show it, or a word of the key
    #[arg(required_unless_present = "value")]
    pub key: Option<String>,
    /// A word of the value: `short` finds token buckets that are more than half empty
    #[arg(long)]
    pub value: Option<String>,
    /// In this object only
    #[arg(long)]
    pub object: Option<String>,
    /// The packet loop whose state is queried; by the API all are
    #[arg(long, default_value_t = 0, conflicts_with_all = ["api", "host"])]
    pub instance: usize,
    /// Which host.
    #[command(flatten)]
    pub which: Which,
    /// By the API: with --host of one host, without it the entries of all hosts.
    #[command(flatten)]
    pub remote: Remote,
}

/// The schema of `asterism state get`.
pub const STATE: Schema = Schema {
    name: "asterism.state",
    version: 2,
};
/// The schema of `asterism state ls`.
pub const OBJECTS: Schema = Schema {
    name: "asterism.state-objects",
    version: 1,
};
/// The schema of `asterism state where`.
pub const PLACES: Schema = Schema {
    name: "asterism.state-where",
    version: 1,
};

/// Where entries are.
#[derive(Clone, Debug, Serialize)]
pub struct PlacesDocument {
    /// The objects that have such entries.
    pub objects: Vec<StateEntries>,
    /// Hosts that did not answer.
    pub unanswered: Vec<Unanswered>,
}

/// `asterism state`.
pub fn state(command: &StateCommand, output: &mut Output<'_>) -> End {
    match command {
        StateCommand::Get(arguments) => match arguments.remote.at() {
            Some(at) => get_by_api(&at, arguments, output),
            None => get(arguments, output),
        },
        StateCommand::Ls { at } => list(at, output),
        StateCommand::Where { key, object, at } => {
            let query = StateQuery {
                key: Some(key.clone()),
                ..StateQuery::default()
            };
            places(at, object.as_deref(), &query, output)
        }
    }
}

fn get(arguments: &GetArguments, output: &mut Output<'_>) -> End {
    let request = Ask::StateGet {
        key: arguments.key.clone(),
        value: arguments.value.clone(),
        object: arguments.object.clone(),
        instance: arguments.instance,
    };
    let mut found_any = false;
    let end = with_answer(
        &arguments.which,
        &request,
        WITHIN,
        output,
        |found: StateDocument, output| {
            found_any = !found.entries.is_empty();
            show(&found, arguments, output);
        },
    );
    match end {
        End::Done if !found_any => End::DoesNotHold,
        end => end,
    }
}

fn get_by_api(at: &Where, arguments: &GetArguments, output: &mut Output<'_>) -> End {
    let query = StateQuery {
        key: arguments.key.clone(),
        value: arguments.value.clone(),
        host: arguments.remote.host.clone(),
    };
    let found = match find(at, arguments.object.as_deref(), &query) {
        Ok(found) => found,
        Err(error) => return output.fail(End::File, &error),
    };
    note_unanswered(&found.unanswered, output);
    let mut document = StateDocument {
        entries: Vec::new(),
        more: found.objects.iter().any(|object| object.is_cut),
        // Hosts name it among what they do not answer.
        unsearched: Vec::new(),
    };
    for object in found.objects {
        for entry in object.entries {
            // What hosts have alike is shown once, and what differs as each has it.
            let shown = match entry.agree {
                true => 1,
                false => entry.holders.len(),
            };
            for holder in entry.holders.into_iter().take(shown) {
                let entry = of_holder(&object.object, &entry.key, holder);
                document.entries.push(entry);
            }
        }
    }
    document.more |= document.entries.len() > FOUND_MAX;
    document.entries.truncate(FOUND_MAX);
    show(&document, arguments, output);
    output.end(match document.entries.is_empty() {
        true => End::DoesNotHold,
        false => End::Done,
    })
}

fn of_holder(object: &str, key: &str, holder: StateHolder) -> EntryDocument {
    EntryDocument {
        object: object.to_owned(),
        key: key.to_owned(),
        value: holder.value,
        provenance: holder.written.map(|written| FoundProvenance {
            idle_class: written.idle_class,
            idle_s: written.idle_s,
            unused_s: written.unused_s,
            generation: written.generation,
            member: written.member,
            incarnation: written.incarnation,
            sequence: written.sequence,
            alias: written.is_alias,
            ends_here: written.ends_here,
        }),
    }
}

fn show(found: &StateDocument, arguments: &GetArguments, output: &mut Output<'_>) {
    if output.json() {
        return output.document(STATE, found);
    }
    if found.entries.is_empty() {
        let said = [("key", &arguments.key), ("value", &arguments.value)];
        let said = said.map(|(what, word)| {
            let word = word.as_ref()?;
            Some(format!("the {what} {word}"))
        });
        let said: Vec<_> = said.into_iter().flatten().collect();
        let none = match found.unsearched.is_empty() {
            true => "there is no entry",
            false => "no entry was found",
        };
        output.say(&format!("{none} with {}\n", said.join(" and ")));
    }
    for entry in &found.entries {
        output.text(&entry_text(entry));
    }
    if found.more {
        output.say("more entries match than are shown\n");
    }
    for why in &found.unsearched {
        output.say(&format!("{why}\n"));
    }
}

/// Searches one object, or one after the other.
fn find(
    at: &Where,
    object: Option<&str>,
    query: &StateQuery,
) -> Result<PlacesDocument, ClusterError> {
    let client = client(at)?;
    let objects = match object {
        Some(object) => vec![object.to_owned()],
        None => names(&client, query.host.as_deref())?,
    };
    let mut found = PlacesDocument {
        objects: Vec::new(),
        unanswered: Vec::new(),
    };
    for object in objects {
        let mut entries = client.entries(&object, query)?;
        for one in core::mem::take(&mut entries.unanswered) {
            if !found.unanswered.iter().any(|other| other.host == one.host) {
                found.unanswered.push(one);
            }
        }
        if !entries.entries.is_empty() {
            found.objects.push(entries);
        }
    }
    Ok(found)
}

/// The objects of all hosts, or of one.
fn names(client: &Client, host: Option<&str>) -> Result<Vec<String>, ClusterError> {
    let all = client.state()?.objects;
    let has = |held: &asterism_api::data::ObjectHeld| host.is_none_or(|host| held.host == host);
    let of_host = all.into_iter().filter(|object| object.held.iter().any(has));
    Ok(of_host.map(|object| object.name).collect())
}

fn list(at: &Where, output: &mut Output<'_>) -> End {
    let listed = || -> Result<StateObjects, ClusterError> { Ok(client(at)?.state()?) };
    match listed() {
        Ok(objects) if output.json() => output.document(OBJECTS, &objects),
        Ok(objects) => {
            output.text(&objects_text(&objects));
            note_unanswered(&objects.unanswered, output);
        }
        Err(error) => return output.fail(End::File, &error),
    }
    output.end(End::Done)
}

fn objects_text(objects: &StateObjects) -> String {
    let mut table = Table::new(&["object", "host", "loop", "live", "held", "capacity"]);
    for object in &objects.objects {
        if let Some(in_store) = object.in_store {
            let none = || "-".to_owned();
            let live = in_store.to_string();
            table.row(&[
                object.name.clone(),
                "store".into(),
                none(),
                live,
                none(),
                none(),
            ]);
        }
        for held in &object.held {
            let capacity = match held.capacity {
                0 => "none".to_owned(),
                capacity => capacity.to_string(),
            };
            table.row(&[
                object.name.clone(),
                held.host.clone(),
                held.instance.to_string(),
                held.live.to_string(),
                held.held.to_string(),
                capacity,
            ]);
        }
    }
    table.text()
}

/// Hosts of which nothing is known are said beside the result.
pub(super) fn note_unanswered(unanswered: &[Unanswered], output: &mut Output<'_>) {
    for one in unanswered {
        output.say(&format!("{}: {}\n", one.host, one.why));
    }
}

fn places(at: &Where, object: Option<&str>, query: &StateQuery, output: &mut Output<'_>) -> End {
    let found = match find(at, object, query) {
        Ok(found) => found,
        Err(error) => return output.fail(End::File, &error),
    };
    if output.json() {
        output.document(PLACES, &found);
    } else {
        for object in &found.objects {
            for entry in &object.entries {
                output.text(&place_text(&object.object, entry));
            }
            if object.is_cut {
                output.say(&format!("{} has more than is shown\n", object.object));
            }
        }
        if found.objects.is_empty() {
            let key = query.key.as_deref().unwrap_or_default();
            output.say(&format!("no host has an entry with the key {key}\n"));
        }
        note_unanswered(&found.unanswered, output);
    }
    output.end(match found.objects.is_empty() {
        true => End::DoesNotHold,
        false => End::Done,
    })
}

fn place_text(object: &str, entry: &StateEntry) -> String {
    let agree = match entry.agree {
        true => "alike on all hosts that answered",
        false => "NOT alike on all hosts",
    };
    let mut text = format!("{object} {}: {agree}\n", entry.key);
    for holder in &entry.holders {
        let loops: Vec<String> = holder.instances.iter().map(u32::to_string).collect();
        let at = match loops.is_empty() {
            true => "in its store".to_owned(),
            false => format!("loop {}", loops.join(", ")),
        };
        text += &format!("  {} ({at}) has {}", holder.host, holder.value);
        if let Some(written) = &holder.written {
            text += &format!(
                "\n    written by {} ({}) as number {}, generation {}; unused for {} s{}{}",
                written.by,
                written.incarnation,
                written.sequence,
                written.generation,
                written.unused_s,
                if written.is_alias { "; an alias" } else { "" },
                match written.ends_here {
                    true => "; this host says when it idles out",
                    false => "",
                }
            );
        }
        text.push('\n');
    }
    for host in &entry.lacking {
        text += &format!("  {host} does not have it\n");
    }
    text
}

fn entry_text(entry: &EntryDocument) -> String {
    let text = format!("{} {}\n  value {}\n", entry.object, entry.key, entry.value);
    let Some(provenance) = &entry.provenance else {
        return text;
    };
    let idle = match provenance.idle_s {
        0 => "never idles out".to_owned(),
        idle => format!("idles out after {idle} s (class {})", provenance.idle_class),
    };
    let alias = if provenance.alias {
        "; an alias, another entry is preferred"
    } else {
        ""
    };
    format!(
        "{text}  unused for {} s at most, {idle}{alias}\n  generation {}, written by member {} ({}) as number {}\n",
        provenance.unused_s,
        provenance.generation,
        provenance.member,
        provenance.incarnation,
        provenance.sequence
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_api::data::StateWritten;

    #[test]
    fn it_is_said_who_has_an_entry_and_whether_all_have_it_alike() {
        let holder = StateHolder {
            host: "a".to_owned(),
            instances: vec![0, 1],
            value: "open".to_owned(),
            written: Some(StateWritten {
                by: "b".to_owned(),
                incarnation: "7".to_owned(),
                sequence: 17,
                generation: 3,
                ends_here: true,
                ..StateWritten::default()
            }),
        };
        let mut entry = StateEntry {
            key: "k".to_owned(),
            agree: false,
            holders: vec![holder],
            lacking: vec!["c".to_owned()],
        };
        assert_eq!(
            place_text("sessions", &entry),
            "sessions k: NOT alike on all hosts\n  a (loop 0, 1) has open\n    written by b (7) as number 17, generation 3; \
             unused for 0 s; this host says when it idles out\n  c does not have it\n"
        );
        entry.agree = true;
        entry.lacking.clear();
        entry.holders[0].written = None;
        assert_eq!(
            place_text("sums", &entry),
            "sums k: alike on all hosts that answered\n  a (loop 0, 1) has open\n"
        );
        let shown = of_holder("sums", "k", entry.holders.remove(0));
        assert_eq!(entry_text(&shown), "sums k\n  value open\n");
    }
}
