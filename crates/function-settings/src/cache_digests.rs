//! The settings of web-cache digests.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

use asterism_function::Tick;
use asterism_functions::cache_digests::{
    Cache, CacheDigests, CacheDigestsConfig, REPORTED_BITS_PER_ENTRY, Source,
};

use crate::described::{
    Description, LARGE, REPLICATED, Together, capacity, check_whole_seconds, count, delay,
    kept_here, objects, placement, seconds,
};
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice};
use crate::settings::FunctionSettings;
use asterism_notation::value::show_duration;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::section::{Default, Setting, Values, section};

/// Objects of all caches that report together at most: some 90 MB in each instance.
const REPORTED_OBJECTS_MAX: u64 = (1 << 21) / REPORTED_BITS_PER_ENTRY as u64;

/// The settings of web-cache digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDigestsSettings {
    /// The caches, by name.
    pub caches: Vec<CacheSettings>,
    /// How old a digest is that is fetched again.
    pub interval: Duration,
    /// How long a cache may take to tell its digest.
    pub timeout: Duration,
    /// How long a digest is kept that is not fetched again.
    pub keep: Duration,
    /// Bytes of a digest's bits at most.
    pub digest_max: u32,
    /// Where caches send their reports to.
    pub reports: Option<SocketAddrV4>,
    /// Where digests are served.
    pub serve: Option<SocketAddr>,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its TCP port for HTTP.
    pub http: u16,
    /// Its UDP port for queries; 0: none.
    pub icp: u16,
    /// The objects that it reports at most; `None`: its digest is fetched.
    pub reports: Option<u32>,
}

objects! {
    "cache-digests":
    heads: Table = "Size and fetch time of each fetched digest.",
        [placement(REPLICATED), delay()];
    masks: Table = "The bits of fetched digests, in blocks of 1,024.",
        [placement(REPLICATED), delay(), capacity("65_536")];
    stored: Counter = "The counting filters of reporting caches.",
        [kept_here(REPLICATED, LARGE), delay()];
    counts: Counter = "Queries and reports of each cache.",
        [placement(REPLICATED), delay()];
}

pub(super) const CACHE_DIGESTS: Description<CacheDigestsSettings> = Description {
    name: "cache-digests",
    settings: SETTINGS.section(),
    objects: OBJECTS,
    together: &[Together {
        objects: &[OBJECT.heads, OBJECT.masks],
        otherwise: "a host would know of a digest without having its bits",
    }],
    build,
};

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.cache-digests",
        meaning: "Tracks which web cache holds which object: answers queries (ICP, RFC 2186) in the caches' name and serves their digests to Squid. Other packets pass.",
        fields: {
            caches: Vec<NamedValues> = Setting {
                kind: Kind::Named {
                    section: CACHE.section(),
                    most: 64,
                },
                default: Default::Required("{ a = { address = \"10.0.0.1\" } }"),
                meaning: "The caches, by name.",
            },
            interval: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_secs(1),
                    most: Duration::from_secs(24 * 3600),
                },
                default: Default::Is("\"5m\""),
                meaning: "The age at which a digest is fetched again, by one host for all; in whole seconds.",
            },
            timeout: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(100),
                    most: Duration::from_secs(60),
                },
                default: Default::Is("\"5s\""),
                meaning: "How long a cache may take to deliver its digest.",
            },
            keep: Duration = seconds(
                10,
                "\"2h\"",
                "How long a digest is kept without being fetched again; afterwards queries go to the cache itself.",
            ),
            digest_max: u64 = Setting {
                kind: Kind::Size {
                    least: 128,
                    most: 16 << 20,
                },
                default: Default::Is("\"1MiB\""),
                meaning: "The largest size of a digest's bits; larger digests are refused. Squid uses five bits for each object.",
            },
            reports: SocketAddrV4 = Setting {
                kind: Kind::Endpoint,
                default: Default::Unset("reports are ignored"),
                meaning: "The UDP address to which caches with `reports` send stored and released objects (Squid's cache_store_log). Datagrams to it are read as they pass.",
            },
            serve: SocketAddr = Setting {
                kind: Kind::Socket,
                default: Default::Unset("digests are not served"),
                meaning: "Where `asterism run` serves digests to caches, by HTTP: /digests/NAME, and one of all caches together at /squid-internal-periodic/store_digest.",
            },
        },
    };
}

section! {
    static CACHE: CacheKeys = {
        path: "function.cache-digests.caches.NAME",
        meaning: "A cache.",
        fields: {
            address: Ipv4Addr = Setting {
                kind: Kind::Address,
                default: Default::Required("\"10.0.0.1\""),
                meaning: "The cache's address, for queries, its digest and its reports.",
            },
            http: u64 = count((1, 65_535), Default::Is("3_128"), "The cache's TCP port for HTTP."),
            icp: u64 = count(
                (0, 65_535),
                Default::Is("3_130"),
                "The cache's UDP port for queries, which are answered in its name; 0: not answered.",
            ),
            reports: u64 = count(
                (16, REPORTED_OBJECTS_MAX),
                Default::Unset("its digest is fetched"),
                "The cache reports stored and released objects, at most this many, instead of having its digest fetched. All such caches together may have 262,144.",
            ),
        },
    };
}

fn build(values: &Values, report: &mut Report) -> Option<CacheDigestsSettings> {
    for field in [SETTINGS.interval, SETTINGS.keep] {
        check_whole_seconds(values, field, report);
    }
    let tables = values.get(SETTINGS.caches)?;
    if tables.is_empty() {
        report.add(
            Diagnostic::error("`caches` is empty", values.span_of(SETTINGS.caches)).help(
                "write a cache, such as [function.cache-digests.caches.a] with address = \"10.0.0.1\"",
            ),
        );
    }
    let read: Vec<_> = tables.iter().map(cache).collect();
    for (number, (one, table)) in read.iter().zip(&tables).enumerate() {
        let Some(one) = one else { continue };
        let place = || table.values.span_of(CACHE.address);
        if !is_unicast(one.address) {
            let title = format!("{} cannot be a cache's address", one.address);
            report.add(
                Diagnostic::error(title, place())
                    .help("write a unicast address, such as \"10.0.0.1\""),
            );
        }
        let mut others = read.iter().take(number).flatten();
        if let Some(other) = others.find(|other| other.address == one.address) {
            let title = format!("{} is the cache \"{}\" already", one.address, other.name);
            report.add(
                Diagnostic::error(title, place())
                    .help("write each cache once: it is known by its address"),
            );
        }
    }
    let reporting = || read.iter().flatten().filter_map(|one| one.reports);
    if reporting().map(u64::from).sum::<u64>() > REPORTED_OBJECTS_MAX {
        report.add(
            Diagnostic::error(
                format!("caches report more than {REPORTED_OBJECTS_MAX} objects together"),
                values.span_of(SETTINGS.caches),
            )
            .help("have the digests of some of them fetched: leave their `reports` out"),
        );
    }
    let (keep, interval) = (values.get(SETTINGS.keep)?, values.get(SETTINGS.interval)?);
    if keep < interval * 2 {
        report.add(
            Diagnostic::error(
                "a digest would be forgotten before it is fetched again",
                values.span_of(SETTINGS.keep),
            )
            .help("keep digests for twice the interval at least, better four times"),
        );
    }
    let reports = values.get(SETTINGS.reports);
    if reports.is_none() && reporting().next().is_some() {
        report.add(
            Diagnostic::error(
                "caches report, but no address for reports is set",
                values.span_of(SETTINGS.caches),
            )
            .help("write the address of reports, such as reports = \"192.0.2.9:5140\""),
        );
    }
    Some(CacheDigestsSettings {
        caches: read.into_iter().collect::<Option<_>>()?,
        interval,
        timeout: values.get(SETTINGS.timeout)?,
        keep,
        digest_max: u32::try_from(values.get(SETTINGS.digest_max)?).ok()?,
        reports,
        serve: values.get(SETTINGS.serve),
    })
}

/// Whether a cache can have the address; it may run on this machine.
fn is_unicast(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first < 240 && !address.is_multicast()
}

fn cache(table: &NamedValues) -> Option<CacheSettings> {
    let values = &table.values;
    let port = |field| u16::try_from(values.get(field)?).ok();
    Some(CacheSettings {
        name: table.name.clone(),
        address: values.get(CACHE.address)?,
        http: port(CACHE.http)?,
        icp: port(CACHE.icp)?,
        reports: values
            .get(CACHE.reports)
            .and_then(|objects| u32::try_from(objects).ok()),
    })
}

impl FunctionSettings for CacheDigestsSettings {
    type Function = CacheDigests;

    fn function(&self, objects: &[ObjectChoice]) -> Result<CacheDigests, FunctionError> {
        let caches = self.caches.iter().map(|one| Cache {
            address: one.address,
            icp_port: one.icp,
            source: one.reports.map_or(Source::Digest, Source::Reports),
        });
        Ok(CacheDigests::new(CacheDigestsConfig {
            caches: caches.collect(),
            reports: self.reports.map(|at| (*at.ip(), at.port())),
            keep_s: Tick::try_from(self.keep.as_secs()).unwrap_or(Tick::MAX),
            blocks_max: objects::capacity(objects, OBJECT.masks),
        }))
    }

    fn words(&self) -> String {
        let served = self
            .serve
            .map_or_else(|| "not served".to_owned(), |at| format!("served at {at}"));
        let reporting = self
            .caches
            .iter()
            .filter(|one| one.reports.is_some())
            .count();
        format!(
            "queries to {} web caches are answered in their name; {reporting} of them report what they hold, digests of the others are fetched every {}, and {served}",
            self.caches.len(),
            show_duration(self.interval)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    const CACHES: &str = "caches.a = { address = \"10.0.0.1\" }\ncaches.b = { address = \"10.0.0.2\", icp = 0, reports = 1_000 }\nreports = \"192.0.2.9:5140\"\n";

    fn read(fields: &str) -> Result<(CacheDigestsSettings, Function), String> {
        let text = format!("[function.cache-digests]\n{fields}");
        let (function, report) = Function::alone(&text);
        let function = function.ok_or_else(|| report.render(false))?;
        let Settings::CacheDigests(settings) = function.settings.clone() else {
            panic!("web-cache digests")
        };
        Ok((settings, function))
    }

    #[test]
    fn what_is_written_is_made_and_defaults_are_the_functions_own() {
        let (settings, function) = read(CACHES).unwrap();
        let made = settings.function(&function.objects).unwrap();
        let expected = CacheDigestsConfig {
            caches: vec![
                Cache {
                    address: Ipv4Addr::new(10, 0, 0, 1),
                    icp_port: 3_130,
                    source: Source::Digest,
                },
                Cache {
                    address: Ipv4Addr::new(10, 0, 0, 2),
                    icp_port: 0,
                    source: Source::Reports(1_000),
                },
            ],
            reports: Some((Ipv4Addr::new(192, 0, 2, 9), 5_140)),
            ..CacheDigestsConfig::default()
        };
        assert_eq!(*made.config(), expected);
        assert!(settings.words().contains("2 web caches"));
        assert_eq!(settings.change_to(&settings), Some(Vec::new()));
        let (other, _) = read(&format!("{CACHES}timeout = \"1s\"")).unwrap();
        assert_eq!(settings.change_to(&other), None);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (fields, why) in [
            ("", "caches"),
            ("caches = {}", "`caches` is empty"),
            (
                "caches.a = { address = \"224.0.0.1\" }",
                "cannot be a cache's address",
            ),
            (
                "caches.a = { address = \"10.0.0.1\" }\ncaches.b = { address = \"10.0.0.1\" }",
                "is the cache \"a\" already",
            ),
            (
                "caches.a = { address = \"10.0.0.1\", reports = 100 }",
                "no address for reports is set",
            ),
            (
                "caches.a = { address = \"10.0.0.1\", reports = 200_000 }\ncaches.b = { address = \"10.0.0.2\", reports = 200_000 }\nreports = \"192.0.2.9:5140\"",
                "more than 262144 objects",
            ),
            (
                "caches.a = { address = \"10.0.0.1\" }\ninterval = \"1h\"\nkeep = \"1h\"",
                "forgotten before",
            ),
            (
                "caches.a = { address = \"10.0.0.1\" }\ninterval = \"1500ms\"",
                "whole seconds",
            ),
        ] {
            let report = read(fields).expect_err(fields);
            assert!(report.contains(why), "{fields}: {report}");
        }
    }
}
