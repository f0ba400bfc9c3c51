//! The sites in `status`: the relay of each site, and whether datagrams for all members go through it.

use asterism_host_view::sites::SitesDocument;

/// The sites as lines; empty without sites.
#[must_use]
pub(super) fn sites_text(document: &SitesDocument, host: &str) -> String {
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
    use std::collections::BTreeMap;

    use super::*;
    use asterism_host_view::sites::SiteDocument;

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
