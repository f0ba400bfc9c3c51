//! `asterism digests`: the known digests of web caches, and which caches hold an object.

use asterism_host::control::Ask;
use asterism_host::run::caches::{CacheDocument, DigestsDocument};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;

use super::WITHIN;
use super::client::{Which, ask};

/// The arguments of `asterism digests`.
#[derive(Args, Clone, Debug)]
pub struct DigestsArguments {
    /// Show which caches hold this URL's object according to their digests; the exit code is 0 only if a cache holds it
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism digests`.
pub const DIGESTS: Schema = Schema {
    name: "asterism.digests",
    version: 1,
};

/// `asterism digests`.
pub fn digests(arguments: &DigestsArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Digests {
        url: arguments.url.clone(),
    };
    let answer = arguments
        .which
        .socket(output.functions())
        .and_then(|socket| ask::<DigestsDocument>(&socket, &request, WITHIN));
    match answer {
        Ok(document) => {
            if output.json() {
                output.document(DIGESTS, &document);
            } else {
                let lines = document.caches.iter().map(cache_text);
                lines.for_each(|line| output.text(&line));
            }
            let mut caches = document.caches.iter();
            let holds = caches.any(|cache| cache.holds == Some(true));
            output.end(match arguments.url.is_some() && !holds {
                true => End::DoesNotHold,
                false => End::Done,
            })
        }
        Err(error) => output.fail(End::File, &error),
    }
}

fn cache_text(cache: &CacheDocument) -> String {
    let holds = match cache.holds {
        Some(true) => "HOLDS IT, ",
        Some(false) => "does not hold it, ",
        None => "",
    };
    let digest = match (cache.digest.as_str(), cache.age_s) {
        ("unknown", _) => "its digest is not known".to_owned(),
        ("fetched", Some(age)) => format!(
            "digest of {} objects in {} bytes, fetched {age} s ago",
            cache.objects, cache.bytes
        ),
        _ => format!(
            "reported {} objects of {} at most, {} bytes",
            cache.objects, cache.capacity, cache.bytes
        ),
    };
    let count = |name: &str| cache.counts.get(name).copied().unwrap_or(0);
    format!(
        "{}: {holds}{digest}; queries: {} hits, {} misses, {} passed on\n",
        cache.name,
        count("hits"),
        count("misses"),
        count("unknown")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_line_says_what_is_known() {
        let cache = |digest: &str, age_s, holds| CacheDocument {
            name: "a".to_owned(),
            digest: digest.to_owned(),
            age_s,
            objects: 7,
            capacity: 100,
            bytes: 63,
            holds,
            counts: BTreeMap::from([("hits".to_owned(), 3)]),
        };
        let queries = "; queries: 3 hits, 0 misses, 0 passed on\n";
        for (cache, expected) in [
            (cache("unknown", None, None), "a: its digest is not known"),
            (
                cache("fetched", Some(9), Some(true)),
                "a: HOLDS IT, digest of 7 objects in 63 bytes, fetched 9 s ago",
            ),
            (
                cache("reports", None, Some(false)),
                "a: does not hold it, reported 7 objects of 100 at most, 63 bytes",
            ),
        ] {
            assert_eq!(cache_text(&cache), format!("{expected}{queries}"));
        }
    }
}
