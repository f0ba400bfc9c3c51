//! What was fetched from web caches and served to them. Nothing where the function knows none.

use asterism_functions::cache_digests::Refusal;

use super::Page;
use crate::view::View;

/// The families.
pub(super) fn counts(page: &mut Page, view: &View) {
    let Some(caches) = view.caches.document() else {
        return;
    };
    for (name, help, value) in [
        (
            "asterism_cache_digests_fetched_total",
            "Digests that this host fetched from web caches.",
            caches.fetched,
        ),
        (
            "asterism_cache_digests_served_total",
            "Digests that this host served to web caches.",
            caches.served,
        ),
        (
            "asterism_cache_digests_not_served_total",
            "Requests for digests that were not known.",
            caches.not_served,
        ),
    ] {
        page.one(name, "counter", help, value);
    }
    let name = "asterism_cache_digests_refused_total";
    let help = "Digests of web caches that were refused, by reason.";
    page.family(name, "counter", help);
    for refusal in Refusal::ALL {
        let count = caches.refused.get(refusal.label()).copied();
        page.sample(name, &[("reason", refusal.label())], count.unwrap_or(0));
    }
}
