//! The sites in `status`: the relay of each site, and whether datagrams for all members go through it.

use std::collections::BTreeMap;

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

use crate::view::Names;

/// The sites, in this host's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitesDocument {
    /// The sites in the order of their first members; none where members have no sites.
    pub sites: Vec<SiteDocument>,
    /// Number of times that this host bypassed a relay because the relay, or a member behind it, was silent.
    pub relay_fallbacks: u64,
    /// Number of datagrams that this host keeps as a relay, for members of its site that lack them.
    #[serde(default)]
    pub relay_keeps: u64,
    /// Their bytes.
    #[serde(default)]
    pub relay_keeps_bytes: u64,
    /// Counters of relays.
    pub relay: BTreeMap<String, u64>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteDocument {
    /// Its name.
    pub name: String,
    /// Whether this host is in it.
    pub own: bool,
    /// Its members that take part in the epoch.
    pub members: u64,
    /// Its relay by the epoch; none if no member of the site takes part.
    pub relay: Option<String>,
    /// Whether datagrams for all members go to the site through the relay; of the own site, whether the relay is this host, or
    /// carries this host's acknowledgements to the other sites.
    pub relayed: bool,
    /// Members to which this host sends directly the datagrams for all, because they or the relay are silent.
    pub direct: u64,
}

impl SitesDocument {
    /// The document of a host's snapshot.
    #[must_use]
    pub fn new(channel: &ChannelSnapshot, names: &Names) -> SitesDocument {
        let name = |member: MemberId| {
            let place = usize::from(member.0).wrapping_sub(1);
            names.members.get(place).cloned().unwrap_or_default()
        };
        let own = channel.own_site;
        let sites = channel.sites.iter().map(|site| {
            let names = names.sites.get(usize::from(site.site.0));
            SiteDocument {
                name: names.cloned().unwrap_or_default(),
                own: own == Some(site.site),
                members: site.members as u64,
                relay: site.relay.map(name),
                relayed: site.relayed,
                direct: site.direct as u64,
            }
        });
        let mut relay = BTreeMap::new();
        channel.relay.each(|name, value| {
            relay.insert(name.to_owned(), value);
        });
        SitesDocument {
            sites: sites.collect(),
            relay_fallbacks: channel.replication.relay_fallbacks,
            relay_keeps: channel.relay_keeps.0 as u64,
            relay_keeps_bytes: channel.relay_keeps.1 as u64,
            relay,
        }
    }
}

/// The sites as lines; empty without sites.
#[must_use]
pub fn sites_text(document: &SitesDocument, host: &str) -> String {
    let mut text = String::new();
    for site in &document.sites {
        let way = match (&site.relay, site.own, site.relayed) {
            (None, ..) => "no member takes part".to_owned(),
            (Some(relay), true, _) if relay == host => format!(
                "this host is its relay and keeps {} datagrams ({} bytes)",
                document.relay_keeps, document.relay_keeps_bytes
            ),
            (Some(relay), true, true) => format!("{relay} is its relay"),
            (Some(relay), true, false) => {
                format!(
                    "{relay} is its relay and silent: this host's acknowledgements cross one by one"
                )
            }
            (Some(relay), false, true) if site.direct == 0 => format!("through {relay}"),
            (Some(relay), false, true) => {
                format!(
                    "through {relay}, and directly to {} that receive nothing through it",
                    site.direct
                )
            }
            (Some(relay), false, false) => {
                format!("{relay} is silent: directly to each of {}", site.direct)
            }
        };
        let own = if site.own { ", this host's" } else { "" };
        text.push_str(&format!(
            "site {}{own}, {} member{}: {way}\n",
            site.name,
            site.members,
            if site.members == 1 { "" } else { "s" },
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_by_which_and_to_which() {
        let site = |name: &str, own, relay: Option<&str>, relayed, direct| SiteDocument {
            name: name.to_owned(),
            own,
            members: 3,
            relay: relay.map(str::to_owned),
            relayed,
            direct,
        };
        let document = SitesDocument {
            sites: vec![
                site("west", true, Some("a"), true, 0),
                site("east", false, Some("d"), true, 0),
                site("north", false, Some("g"), true, 1),
                site("south", false, Some("j"), false, 3),
                site("moon", false, None, false, 0),
            ],
            relay_fallbacks: 1,
            relay_keeps: 12,
            relay_keeps_bytes: 3_400,
            relay: BTreeMap::new(),
        };
        let expected = "site west, this host's, 3 members: this host is its relay and keeps 12 datagrams (3400 bytes)\n\
            site east, 3 members: through d\n\
            site north, 3 members: through g, and directly to 1 that receive nothing through it\n\
            site south, 3 members: j is silent: directly to each of 3\n\
            site moon, 3 members: no member takes part\n";
        assert_eq!(sites_text(&document, "a"), expected);
        let other = sites_text(&document, "b");
        assert!(other.starts_with("site west, this host's, 3 members: a is its relay\n"));
        let none = SitesDocument {
            sites: Vec::new(),
            ..document
        };
        assert_eq!(sites_text(&none, "a"), "");
    }
}
