//! The sites in `status`: who is each one's relay, and whether what is for all goes by it.

use std::collections::BTreeMap;

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

use crate::view::Names;

/// The sites, as this host sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitesDocument {
    /// Each of them, in the order of their first members.
    pub sites: Vec<SiteDocument>,
    /// Times that a relay, or a member behind one, was silent, so that this host passed it by.
    pub relay_fallbacks: u64,
    /// What was counted of relays.
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
    /// Its relay by the epoch; none if nobody of the site takes part.
    pub relay: Option<String>,
    /// Whether what is for all goes there by the relay; of the own site, whether its relay carries this host's acknowledgements to the
    /// others, or is this host.
    pub relayed: bool,
    /// Members that this host sends straight what is for all, because the relay or they are silent.
    pub direct: u64,
}

impl SitesDocument {
    /// Of a host's snapshot; none where members have no sites.
    #[must_use]
    pub fn new(channel: &ChannelSnapshot, names: &Names) -> Option<SitesDocument> {
        if channel.sites.is_empty() {
            return None;
        }
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
        Some(SitesDocument {
            sites: sites.collect(),
            relay_fallbacks: channel.replication.relay_fallbacks,
            relay,
        })
    }
}

/// The sites in lines; nothing where there are none.
#[must_use]
pub fn sites_text(sites: Option<&SitesDocument>, host: &str) -> String {
    let Some(document) = sites else {
        return String::new();
    };
    let mut text = String::new();
    for site in &document.sites {
        let way = match (&site.relay, site.own, site.relayed) {
            (None, ..) => "nobody of it takes part".to_owned(),
            (Some(relay), true, _) if relay == host => "this host is its relay".to_owned(),
            (Some(relay), true, true) => format!("{relay} is its relay"),
            (Some(relay), true, false) => {
                format!(
                    "{relay} is its relay and silent: this host's acknowledgements cross one by one"
                )
            }
            (Some(relay), false, true) if site.direct == 0 => format!("by {relay}"),
            (Some(relay), false, true) => {
                format!(
                    "by {relay}, and straight to {} that hear nothing by it",
                    site.direct
                )
            }
            (Some(relay), false, false) => {
                format!("{relay} is silent: straight to each of {}", site.direct)
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
