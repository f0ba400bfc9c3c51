//! Metrics of sites and of this host as the relay of its own; nothing where members have none.

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::replicated::SiteState;

use asterism_host_view::Names;
use asterism_output::page::{Metric, Page, gauge};

const RELAY: [Metric<ChannelSnapshot>; 2] = [
    gauge(
        "asterism_relay_keeps_datagrams",
        "Datagrams that this host keeps, as the relay of its site, for members of it that lack them.",
        |one| one.relay_keeps.0.into(),
    ),
    gauge(
        "asterism_relay_keeps_bytes",
        "Bytes of the datagrams that this host keeps as the relay of its site.",
        |one| one.relay_keeps.1.into(),
    ),
];

const SITE: [Metric<SiteState>; 3] = [
    gauge(
        "asterism_site_members",
        "Members of the epoch in the site.",
        |one| one.members.into(),
    ),
    gauge(
        "asterism_site_relayed",
        "Whether what is for all goes to the site by its relay.",
        |one| one.relayed.into(),
    ),
    gauge(
        "asterism_site_direct",
        "Members of the site that are sent straight what is for all, because the relay or they are silent.",
        |one| one.direct.into(),
    ),
];

pub(super) fn sites(page: &mut Page, names: &Names, snapshot: &ChannelSnapshot) {
    if snapshot.sites.is_empty() {
        return;
    }
    page.table(&RELAY, snapshot);
    page.table_of(&SITE, |visit| {
        for site in &snapshot.sites {
            let name = names.sites.get(usize::from(site.site.0));
            visit(&[("site", name.map_or("", String::as_str))], site);
        }
    });
}
