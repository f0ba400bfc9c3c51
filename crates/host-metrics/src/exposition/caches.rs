//! What was fetched from web caches and served to them. Nothing where the function knows none.

use asterism_functions::cache_digests::Refusal;

use asterism_host_view::View;
use asterism_host_view::caches::CachesDocument;
use asterism_output::page::{Kind, Metric, Page, counter};

const COUNTS: [Metric<CachesDocument>; 3] = [
    counter(
        "asterism_cache_digests_fetched_total",
        "Digests that this host fetched from web caches.",
        |one| one.fetched.into(),
    ),
    counter(
        "asterism_cache_digests_served_total",
        "Digests that this host served to web caches.",
        |one| one.served.into(),
    ),
    counter(
        "asterism_cache_digests_not_served_total",
        "Requests for digests that were not known.",
        |one| one.not_served.into(),
    ),
];

/// The families.
pub(super) fn caches(page: &mut Page, view: &View) {
    let Some(caches) = view.caches.document() else {
        return;
    };
    page.table(&COUNTS, &caches);
    let name = "asterism_cache_digests_refused_total";
    let help = "Digests of web caches that were refused, by reason.";
    page.family(name, Kind::Counter, help);
    for refusal in Refusal::ALL {
        let count = caches.refused.get(refusal.label()).copied();
        page.sample(name, &[("reason", refusal.label())], count.unwrap_or(0));
    }
}
