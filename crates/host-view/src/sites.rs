//! The sites in `status`: the relay of each site, and whether datagrams for all members go through it.

use std::collections::BTreeMap;

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

use crate::names::Names;

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
        let name = |member: MemberId| names.member(member);
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
