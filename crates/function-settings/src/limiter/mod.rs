//! The settings of the rate limiter. `fields.rs` has the fields.

mod fields;

use core::ops::Range;
use std::collections::BTreeMap;

use asterism_function::{IpPrefix, Spending, TokenRate};
use asterism_functions::limiter::{
    From, Limit, Limiter, LimiterConfig, Tenants, TooManyTenants, Unit,
};

use crate::described::ObjectKind;
use crate::error::FunctionError;
use crate::objects::{self, ObjectChoice, Placement, Sharing};
use crate::settings::{FunctionSettings, differing};
use asterism_notation::value::show_count;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::NamedValues;
use asterism_toml_schema::section::{Key, Values};
pub(super) use fields::LIMITER;
use fields::{BURST, LIMIT, OBJECT, RATE, SETTINGS, TENANT};

/// The settings of the limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSettings {
    /// Which packets are limited: `inside`, `outside` or `both`.
    pub from: &'static str,
    /// Never overshot, whatever is delayed or lost.
    pub exact: bool,
    /// For each source.
    pub sources: Option<LimitSettings>,
    /// For each destination.
    pub destinations: Option<LimitSettings>,
    /// For each destination, protocol and port.
    pub services: Option<LimitSettings>,
    /// The tenants, in the order of their numbers.
    pub tenants: Vec<TenantSettings>,
}

/// The source or destination of a limit, and how much it may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its name.
    pub name: String,
    /// Its networks.
    pub networks: Vec<IpPrefix>,
    /// What it may send: its own, or what tenants have that say nothing.
    pub limit: LimitSettings,
    /// Its burst is its own.
    pub own_burst: bool,
}

/// How much each key may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Packets are counted instead of bytes.
    pub packets: bool,
    /// So many a second.
    pub rate: u64,
    /// So many at once.
    pub burst: u64,
    /// Where the burst is written.
    pub burst_at: Range<usize>,
}

impl LimiterSettings {
    /// All limits but those of tenants, by name.
    fn of_keys(&self) -> impl Iterator<Item = (&'static str, &LimitSettings)> {
        [
            ("sources", &self.sources),
            ("destinations", &self.destinations),
            ("services", &self.services),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit.as_ref()?)))
    }

    /// All limits whose bursts are written somewhere, each place once: with the object, and the table that it is written in.
    fn bursts(&self) -> Vec<(&'static str, String, &LimitSettings)> {
        let keys = self.of_keys();
        let mut bursts: Vec<_> = keys
            .map(|(name, limit)| (name, name.to_owned(), limit))
            .collect();
        let shared = self.tenants.iter().find(|tenant| !tenant.own_burst);
        bursts.extend(shared.map(|tenant| ("tenants", "tenant".to_owned(), &tenant.limit)));
        for tenant in self.tenants.iter().filter(|tenant| tenant.own_burst) {
            bursts.push(("tenants", format!("tenants.{}", tenant.name), &tenant.limit));
        }
        bursts
    }
}

/// The longest IPv4 packet of an Ethernet.
const LONG_PACKET: u64 = 1_500;

fn limit(values: &Values, name: Key<Values>) -> Option<LimitSettings> {
    let table = values.get(name)?;
    Some(LimitSettings {
        packets: table.get(LIMIT.unit)? == "packets",
        rate: table.get(LIMIT.rate)?,
        burst: table.get(LIMIT.burst)?,
        burst_at: table.span_of(LIMIT.burst),
    })
}

/// Whether a tenant says anything of how much it may send.
fn says_its_own(tenant: &NamedValues) -> bool {
    let mut fields = [TENANT.rate, TENANT.burst].into_iter();
    fields.any(|field| tenant.values.place(field).is_some())
}

/// What is wrong with which limits there are at all.
fn check_limits(values: &Values, tenants: &[NamedValues], report: &mut Report) {
    let limits = [
        SETTINGS.sources,
        SETTINGS.destinations,
        SETTINGS.services,
        SETTINGS.tenant,
    ];
    let own = tenants.iter().any(says_its_own);
    if limits.iter().all(|table| values.place(*table).is_none()) && !own {
        report.add(
            Diagnostic::error("nothing is limited", values.span.clone()).help(format!(
                "write a limit, such as sources = {{ rate = {RATE}, burst = {BURST} }}"
            )),
        );
    }
    if let Some(place) = values.place(SETTINGS.tenant)
        && tenants.is_empty()
    {
        report.add(
            Diagnostic::error("there are no tenants to limit", place.key.clone())
                .help("add a table [function.limiter.tenants.NAME] with networks = [\"10.1.0.0/16\"] for each"),
        );
    }
    if let Some(place) = values.place(SETTINGS.tenants)
        && !tenants.is_empty()
    {
        if values.place(SETTINGS.tenant).is_none() && !own {
            report.add(
                Diagnostic::error("the tenants are not limited", place.key.clone())
                    .help(format!(
                        "write tenant = {{ rate = {RATE}, burst = {BURST} }} in [function.limiter]"
                    ))
                    .help("or a rate and a burst of its own in the table of each"),
            );
        } else {
            check_tenants(values.get(SETTINGS.tenant).as_ref(), tenants, report);
        }
    }
}

/// Refuses tenants that have no rate, or no burst, neither of their own nor by `tenant`.
fn check_tenants(rest: Option<&Values>, tenants: &[NamedValues], report: &mut Report) {
    for (field, example) in [(LIMIT.rate, RATE), (LIMIT.burst, BURST)] {
        let is_said = |values: &Values| values.place(field).is_some();
        let mut lacking = tenants.iter().filter(|tenant| !is_said(&tenant.values));
        if rest.is_some_and(is_said) {
            continue;
        }
        let Some(first) = lacking.next() else {
            continue;
        };
        let name = &first.name;
        let mut lacks = Diagnostic::error(
            format!("the tenant `{name}` has no {field}"),
            first.place.clone(),
        );
        lacks = match lacking.count() {
            0 => lacks,
            1 => lacks.label("nor has another one"),
            others => lacks.label(format!("nor have {others} others")),
        };
        report.add(
            lacks
                .help(format!(
                    "write {field} = {example} in [function.limiter.tenants.{name}]"
                ))
                .help(format!(
                    "or {field} = {example} in `tenant`, for all that have none of their own"
                )),
        );
    }
}

/// The tenants with what each may send. A network belongs to one of them.
fn read_tenants(
    values: &Values,
    tenants: Vec<NamedValues>,
    report: &mut Report,
) -> Option<Vec<TenantSettings>> {
    let rest = values.get(SETTINGS.tenant);
    let unit = rest
        .as_ref()
        .map_or(Some("bytes"), |rest| rest.get(LIMIT.unit));
    let mut seen: BTreeMap<IpPrefix, Range<usize>> = BTreeMap::new();
    let mut read = Vec::with_capacity(tenants.len());
    for NamedValues { name, values, .. } in tenants {
        let mut networks = Vec::new();
        for (prefix, at) in values.get(TENANT.networks)? {
            if let Some(first) = seen.get(&prefix) {
                report.add(
                    Diagnostic::error(format!("{prefix} is listed twice"), at.clone())
                        .also(first.clone(), "it is listed here")
                        .help("leave it to one tenant"),
                );
            }
            seen.entry(prefix).or_insert(at);
            networks.push(prefix);
        }
        let whose = |field: Key<u64>| match values.place(field) {
            Some(_) => Some(&values),
            None => rest.as_ref(),
        };
        let limit = || {
            let bursts = whose(LIMIT.burst)?;
            Some(LimitSettings {
                packets: unit? == "packets",
                rate: whose(LIMIT.rate)?.get(LIMIT.rate)?,
                burst: bursts.get(LIMIT.burst)?,
                burst_at: bursts.span_of(LIMIT.burst),
            })
        };
        // What is missing or wrong was said; networks that are listed twice were not.
        read.push(limit().map(|limit| TenantSettings {
            name,
            networks,
            own_burst: values.place(TENANT.burst).is_some(),
            limit,
        }));
    }
    read.into_iter().collect()
}

fn build(values: &Values, report: &mut Report) -> Option<LimiterSettings> {
    let tenants = values.get(SETTINGS.tenants)?;
    check_limits(values, &tenants, report);
    let tenants = read_tenants(values, tenants, report);
    let settings = LimiterSettings {
        from: values.get(SETTINGS.from)?,
        exact: values.get(SETTINGS.accuracy)? == "exact",
        sources: limit(values, SETTINGS.sources),
        destinations: limit(values, SETTINGS.destinations),
        services: limit(values, SETTINGS.services),
        tenants: tenants?,
    };
    for (_, _, limit) in settings.bursts() {
        if !limit.packets && limit.burst < LONG_PACKET {
            report.add(
                Diagnostic::warning(
                    format!("packets longer than {} bytes never pass", limit.burst),
                    limit.burst_at.clone(),
                )
                .help(format!("write {LONG_PACKET} or more")),
            );
        }
    }
    Some(settings)
}

/// One number, or the least and the greatest of several.
fn range(numbers: impl Iterator<Item = u64> + Clone) -> String {
    let least = numbers.clone().min().unwrap_or(0);
    let most = numbers.max().unwrap_or(0);
    if least == most {
        show_count(most)
    } else {
        format!("{} to {}", show_count(least), show_count(most))
    }
}

impl FunctionSettings for LimiterSettings {
    type Function = Limiter;
    const CHANGEABLE: &'static [&'static str] = &[SETTINGS.keys().from.name()];

    fn function(&self, objects: &[ObjectChoice]) -> Result<Limiter, FunctionError> {
        let keys = [OBJECT.sources, OBJECT.destinations, OBJECT.services].into_iter();
        let keys_max = keys.map(|name| objects::capacity(objects, name)).max();
        Ok(Limiter::new(LimiterConfig {
            keys_max: keys_max.unwrap_or(0),
            ..config(self)?
        }))
    }

    fn words(&self) -> String {
        let limits = self.of_keys().map(|(name, limit)| (name, vec![limit]));
        let tenants: Vec<_> = self.tenants.iter().map(|tenant| &tenant.limit).collect();
        let tenants = (!tenants.is_empty()).then_some(("tenant", tenants));
        let limits: Vec<String> = limits
            .chain(tenants)
            .map(|(name, limits)| {
                format!(
                    "{name} {} {} a second, {} at once",
                    range(limits.iter().map(|limit| limit.rate)),
                    if limits[0].packets {
                        "packets"
                    } else {
                        "bytes"
                    },
                    range(limits.iter().map(|limit| limit.burst))
                )
            })
            .collect();
        let accuracy = if self.exact { "exact" } else { "approximate" };
        format!("{} ({accuracy})", limits.join("; "))
    }

    /// Which way packets are limited: rates, bursts and tenants are what all hosts spend by.
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let placed = |settings: &Self| {
            let unplaced = |limit: &LimitSettings| LimitSettings {
                burst_at: 0..0,
                ..limit.clone()
            };
            let anywhere = |limit: &Option<LimitSettings>| limit.as_ref().map(unplaced);
            let tenants = settings.tenants.iter().map(|tenant| TenantSettings {
                name: String::new(),
                networks: tenant.networks.clone(),
                limit: unplaced(&tenant.limit),
                own_burst: false,
            });
            Self {
                from: wanted.from,
                sources: anywhere(&settings.sources),
                destinations: anywhere(&settings.destinations),
                services: anywhere(&settings.services),
                tenants: tenants.collect(),
                exact: settings.exact,
            }
        };
        (placed(self) == placed(wanted))
            .then(|| differing([(SETTINGS.from.name(), self.from != wanted.from)]))
    }

    /// Refuses exact limits in a store, and bursts that leave an instance's exact share without a token.
    fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    ) {
        let stored = objects
            .iter()
            .find(|one| one.kind == ObjectKind::TokenBucket && one.placement == Placement::Remote);
        if let Some(object) = stored.filter(|_| self.exact) {
            report.add(
                Diagnostic::error(
                    format!(
                        "an exact limit cannot live in a store, as `{}` is to",
                        object.name
                    ),
                    values.span_of(SETTINGS.accuracy),
                )
                .label("each host has an equal share, and no store says how many hosts there are")
                .help("choose accuracy = \"approximate\"")
                .help("or choose placement = \"replicated\" for it"),
            );
        }
        let instances = (sharing.members * sharing.instances) as u64;
        for (object, name, limit) in self.bursts() {
            let is_shared = objects
                .iter()
                .any(|one| one.name == object && one.placement == Placement::Replicated);
            if !self.exact || !is_shared {
                continue;
            }
            let share = limit.burst / instances;
            if share == 0 {
                report.add(
                    Diagnostic::error(
                        format!(
                            "the burst of `{name}` leaves no token for some of {instances} instances"
                        ),
                        limit.burst_at.clone(),
                    )
                    .help(format!("write {instances} or more"))
                    .help("or choose accuracy = \"approximate\""),
                );
            } else if !limit.packets && share < LONG_PACKET && limit.burst >= LONG_PACKET {
                report.add(
                    Diagnostic::warning(
                        format!("packets longer than {share} bytes never pass"),
                        limit.burst_at.clone(),
                    )
                    .label(format!("an equal share for each of {instances} instances"))
                    .help(format!("write {} or more", LONG_PACKET * instances)),
                );
            }
        }
    }
}

/// The settings in the function's own words, with its own capacities.
fn config(settings: &LimiterSettings) -> Result<LimiterConfig, FunctionError> {
    let rate = |limit: &LimitSettings| TokenRate {
        tokens_per_second: limit.rate,
        burst_tokens: limit.burst,
    };
    let limit = |limit: &LimitSettings| Limit {
        unit: if limit.packets {
            Unit::Packets
        } else {
            Unit::Bytes
        },
        rate: rate(limit),
    };
    let tenants = || settings.tenants.iter();
    Ok(LimiterConfig {
        from: match settings.from {
            "inside" => From::Inside,
            "outside" => From::Outside,
            _ => From::Both,
        },
        spending: if settings.exact {
            Spending::Escrow
        } else {
            Spending::Approximate
        },
        sources: settings.sources.as_ref().map(limit),
        destinations: settings.destinations.as_ref().map(limit),
        services: settings.services.as_ref().map(limit),
        // Whose rate the others are distinguished from makes no difference, so long as all hosts take the same one.
        tenant: tenants().next().map(|first| limit(&first.limit)),
        tenant_rates: (0..)
            .zip(tenants())
            .map(|(number, tenant)| (number, rate(&tenant.limit)))
            .collect(),
        tenants: Tenants::new(tenants().map(|tenant| tenant.networks.as_slice()))
            .map_err(|TooManyTenants| FunctionError::TooManyTenants)?,
        ..LimiterConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Function;
    use crate::Settings;

    const SOURCES: &str = "[function.limiter]\nsources = { rate = 1000, burst = 3000 }";

    fn read(text: &str) -> (LimiterSettings, Function) {
        let (function, report) = Function::alone(text);
        let function = function.unwrap_or_else(|| panic!("{}", report.render(false)));
        let Settings::Limiter(settings) = function.settings.clone() else {
            panic!("a limiter")
        };
        (settings, function)
    }

    #[test]
    fn defaults_are_the_functions_own() {
        let (settings, function) = read(SOURCES);
        let made = settings.function(&function.objects).unwrap();
        let own = LimiterConfig {
            sources: made.config().sources,
            ..LimiterConfig::default()
        };
        assert_eq!(*made.config(), own);
        let (settings, function) = read(
            "[function.limiter]\naccuracy = \"exact\"\ntenant = { unit = \"packets\", rate = 10, burst = 5 }\n[function.limiter.tenants.gold]\nnetworks = [\"10.0.0.0/8\"]",
        );
        settings.function(&function.objects).unwrap();
    }

    #[test]
    fn the_side_may_change_while_it_runs_and_no_limit() {
        let (now, _) = read(SOURCES);
        let (moved, _) = read(&format!("# a comment\n{SOURCES}"));
        assert_eq!(now.change_to(&moved), Some(Vec::new()));
        let (wanted, _) = read(&format!("{SOURCES}\nfrom = \"inside\""));
        assert_eq!(now.change_to(&wanted), Some(vec!["from".to_owned()]));
        let (wanted, _) = read(&SOURCES.replace("1000", "1001"));
        assert_eq!(now.change_to(&wanted), None);
        let (now, _) = read(TENANTS);
        for (from, to) in [("80", "81"), ("packets", "bytes"), ("10.1", "10.7")] {
            let (wanted, _) = read(&TENANTS.replace(from, to));
            assert_eq!(now.change_to(&wanted), None, "{to}");
        }
        // What it is called, and where a number is written that stays the same, changes nothing.
        let (renamed, _) = read(&TENANTS.replace("gold", "golden"));
        assert_eq!(now.change_to(&renamed), Some(Vec::new()));
        let (said, _) = read(&format!("{TENANTS}\nburst = 40"));
        assert_eq!(now.change_to(&said), Some(Vec::new()));
    }

    #[test]
    fn approximate_limits_may_be_in_a_store_and_exact_ones_not() {
        let text = format!("{SOURCES}\nstate.sources.placement = \"remote\"");
        let (_, function) = read(&text);
        assert_eq!(function.remote(&["sources", "destinations"]), 0b01);
        let exact = text.replace("limiter]", "limiter]\naccuracy = \"exact\"");
        let (function, report) = Function::alone(&exact);
        let report = report.render(false);
        let why = "an exact limit cannot live in a store, as `sources` is to";
        assert!(function.is_none() && report.contains(why), "{report}");
    }

    const TENANTS: &str = "[function.limiter]
tenant = { unit = \"packets\", rate = 20, burst = 40 }
[function.limiter.tenants.gold]
networks = [\"10.1.0.0/16\"]
rate = 800
[function.limiter.tenants.silver]
networks = [\"10.2.0.0/16\"]
burst = 60
[function.limiter.tenants.bronze]
networks = [\"10.3.0.0/16\"]";

    /// What each tenant may send, a second and at once.
    fn rates(settings: &LimiterSettings) -> Vec<(u64, u64)> {
        let tenants = settings.tenants.iter();
        tenants
            .map(|tenant| (tenant.limit.rate, tenant.limit.burst))
            .collect()
    }

    #[test]
    fn a_tenant_has_of_its_own_what_it_says_and_else_what_all_have() {
        let (settings, function) = read(TENANTS);
        assert_eq!(rates(&settings), [(800, 40), (20, 60), (20, 40)]);
        assert_eq!(
            settings.words(),
            "tenant 20 to 800 packets a second, 40 to 60 at once (approximate)"
        );
        let made = settings.function(&function.objects).unwrap();
        let own: Vec<_> = made.config().tenant_rates.clone();
        assert_eq!(own.len(), 3);
        for ((number, rate), expected) in own.into_iter().zip(rates(&settings)) {
            let of = settings.tenants[usize::from(number)].limit.clone();
            assert_eq!((of.rate, of.burst), expected);
            assert_eq!((rate.tokens_per_second, rate.burst_tokens), expected);
        }
        // `tenant` may hold the unit alone, or nothing, where each tenant has its own values; unused values make no difference.
        let each = TENANTS
            .replace("silver]", "silver]\nrate = 20")
            .replace("bronze]", "bronze]\nrate = 20\nburst = 40")
            .replace("rate = 800", "rate = 800\nburst = 40");
        let (all, function) = read(&each);
        assert_eq!(rates(&all), rates(&settings));
        let same = all.function(&function.objects).unwrap();
        assert_eq!(same.config(), made.config());
        let (unit, function) = read(&each.replace("packets\", rate = 20, burst = 40", "packets\""));
        let same = unit.function(&function.objects).unwrap();
        assert_eq!(same.config(), made.config());
        let nothing = each.lines().filter(|line| !line.starts_with("tenant"));
        let (bytes, _) = read(&nothing.collect::<Vec<_>>().join("\n"));
        assert_eq!(rates(&bytes), rates(&settings));
        assert!(bytes.tenants.iter().all(|tenant| !tenant.limit.packets));
    }
}
