//! Entries of a host's state, searched in all of its packet loops and in its store: for those who ask from another machine where an entry or a flow is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use asterism_host_view::flow_text::{FlowText, FlowWanted};
use asterism_host_view::requests::{
    FOUND_MAX, Found, FoundEntry, FoundProvenance, Request, Sought,
};
use asterism_host_view::{AskError, View};

/// Characters of a value that are carried; of a longer one its beginning.
const VALUE_CHARACTERS_MAX: usize = 512;
/// How long a store is searched at most: less than those who ask wait.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// What is searched: entries for which all holds that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntriesWanted {
    /// A word of the key as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A word of the value as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// In this object only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Flows alone, and these of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowWanted>,
}

/// The entries that a host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntriesDocument {
    /// At most [`FOUND_MAX`].
    pub entries: Vec<HeldEntry>,
    /// Whether there are more.
    pub more: bool,
    /// What of the store of remote objects was not searched, a sentence for each part: there may be entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<String>,
}

/// An entry, with the packet loops that have it alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldEntry {
    /// The object.
    pub object: String,
    /// The key as text.
    pub key: String,
    /// The value as text, at most 512 characters of it.
    pub value: String,
    /// The packet loops that have it so; none of an entry in the store of remote objects.
    pub instances: Vec<usize>,
    /// The member that wrote it last; absent of a sum, and of an entry in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_by: Option<String>,
    /// Further data of that; absent of a sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<FoundProvenance>,
    /// The flow, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowText>,
}

/// Searches the store of remote objects, if there is one, for some seconds at most. Parts of it that do not answer are named in what is found.
pub fn in_store(view: &View, sought: &Sought, object: Option<u8>, found: &mut Found) {
    let Some(listing) = view.store.listing() else {
        return;
    };
    let until_us = view.uptime_us() + SEARCH_MAX.as_micros() as u64;
    let is_over = || view.uptime_us() > until_us;
    let objects = view.names.objects;
    let listed = listing.list(object, view.tick(), &is_over, &mut |number, entry| {
        if let Some(name) = objects.get(usize::from(number)) {
            found.look_at(sought, name, entry);
        }
        !found.more
    });
    found.unsearched = view.store.unsearched(&listed, found.more);
}

/// Searches all packet loops, one after the other, and then the store.
///
/// # Errors
/// An instance does not answer.
pub fn query(
    view: &View,
    sought: &Sought,
    object: Option<u8>,
) -> Result<EntriesDocument, AskError> {
    let mut document = EntriesDocument::default();
    for instance in 0..view.instances() {
        let found = view.ask(instance, Duration::ZERO, |reply| Request::Find {
            sought: sought.clone(),
            object,
            reply,
        })?;
        document.more |= found.more;
        for entry in found.entries {
            document.take(Some(instance), entry, view);
        }
    }
    let mut there = Found::default();
    in_store(view, sought, object, &mut there);
    document.more |= there.more;
    document.unsearched = there.unsearched;
    for entry in there.entries {
        document.take(None, entry, view);
    }
    Ok(document)
}

impl EntriesDocument {
    /// Takes an entry of a packet loop; `None`: of the store.
    fn take(&mut self, instance: Option<usize>, entry: FoundEntry, view: &View) {
        let mut value = entry.value;
        if let Some((end, _)) = value.char_indices().nth(VALUE_CHARACTERS_MAX) {
            value.truncate(end);
        }
        let provenance = entry.provenance;
        let stamp = |of: &FoundProvenance| {
            let incarnation = of.incarnation.clone();
            (of.generation, of.member, incarnation, of.sequence)
        };
        let same = self.entries.iter_mut().find(|one| {
            (one.object.as_str(), &one.key, &one.value) == (entry.object, &entry.key, &value)
                && one.provenance.as_ref().map(stamp) == provenance.as_ref().map(stamp)
        });
        if let Some(same) = same {
            same.instances.extend(instance);
            return;
        }
        if self.entries.len() >= FOUND_MAX {
            self.more = true;
            return;
        }
        let writer = provenance.as_ref();
        let writer = writer.map(|writer| {
            view.names
                .member(asterism_placement::MemberId(writer.member))
        });
        self.entries.push(HeldEntry {
            flow: FlowText::of(&entry.key),
            object: entry.object.to_owned(),
            key: entry.key,
            value,
            instances: instance.into_iter().collect(),
            written_by: writer,
            provenance,
        });
    }
}
