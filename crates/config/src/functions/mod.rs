//! The network functions that a configuration can name: their settings, their state objects, and the choices for each object.
//!
//! A function is a file here and a line in the list `functions!`; a function of another crate is an [`OutsideFunction`]
//! (`outside.rs`). The file has its fields and makes the function ([`FunctionSettings`]); code that needs a function of any
//! kind passes a [`WithFunction`].

mod balancer;
mod cache_digests;
mod chain;
mod export;
mod firewall;
mod limiter;
mod monitor;
mod nat;
mod outside;
mod pass_through;
mod port_scan;
mod signature;
mod span;

use core::fmt::Debug;
use core::time::Duration;
use std::path::Path;

use asterism_function::NetworkFunction;

pub use balancer::{Backend, BalancerIdle, BalancerMode, BalancerSettings, Check, Checks, Service};
pub use cache_digests::{CacheDigestsSettings, CacheSettings};
pub use chain::{ChainSettings, STAGE_CHANGEABLE, StageSettings};
pub use firewall::{FirewallIdleTimes, FirewallSettings};
pub use limiter::{LimitSettings, LimiterSettings};
pub use monitor::MonitorSettings;
pub use nat::{
    CarrierSettings, ExemptionSettings, Filtering, Forward, IdleTimes, Link, LogSettings,
    NatSettings, PoolSettings, outside_of,
};
pub use outside::{Jobs, Outside, OutsideFunction};
pub use pass_through::{Access, PassThroughSettings};
pub use port_scan::{Flooded, PortScanSettings, Volume};
pub use signature::{Blocked, SignatureSettings, Wanted};
pub use span::{Copied, SpanSettings};

use super::diagnostic::{Diagnostic, Report};
use super::kind::{Kind, Word};
use super::objects::{ObjectChoice, Sharing};
use super::section::{Default, Field, Section, Values};
use crate::direction::{Direction, FirstSpeaker};

/// The one list of functions: a kind, its settings, and how they are described.
macro_rules! functions {
    ($($(#[$meaning:meta])* $kind:ident($settings:ident) = $described:path;)*) => {
        /// The settings of one function.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Settings {
            $($(#[$meaning])* $kind($settings),)*
            /// Several of them in a row.
            Chain(ChainSettings),
            /// A function of another crate.
            Outside(Outside),
        }

        /// All functions of this crate.
        pub static ALL: &[Described] = &[$($described,)*];

        impl Settings {
            /// Does something with the settings, whatever function they are of.
            pub fn with<W: WithFunction>(&self, what: W) -> W::Output {
                match self {
                    $(Settings::$kind(settings) => what.with(settings),)*
                    Settings::Chain(settings) => what.with(settings),
                    Settings::Outside(settings) => what.with_outside(settings),
                }
            }
            /// What the function does, in words.
            #[must_use]
            pub fn words(&self) -> String {
                match self {
                    $(Settings::$kind(settings) => settings.words(),)*
                    Settings::Chain(settings) => settings.words(),
                    Settings::Outside(settings) => settings.words(),
                }
            }
            pub(super) fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
                match self {
                    $(Settings::$kind(settings) => settings.on_real_links(is_written),)*
                    // Each stage is shown separately.
                    Settings::Chain(_) => {}
                    Settings::Outside(settings) => settings.on_real_links(is_written),
                }
            }
            pub(super) fn shared_by(&mut self, sharing: Sharing) {
                match self {
                    $(Settings::$kind(settings) => settings.shared_by(sharing),)*
                    Settings::Chain(settings) => settings.shared_by(sharing),
                    Settings::Outside(settings) => settings.shared_by(sharing),
                }
            }
            /// Makes the function, as a check.
            ///
            /// # Errors
            /// Why the function refuses its settings.
            pub fn try_function(&self, objects: &[ObjectChoice]) -> Result<(), String> {
                match self {
                    $(Settings::$kind(settings) => settings.function(objects).map(|_| ()),)*
                    Settings::Chain(settings) => settings.function(objects).map(|_| ()),
                    Settings::Outside(settings) => settings.try_function(objects),
                }
            }
            pub(super) fn why_not_passed_by(&self) -> Option<&'static str> {
                match self {
                    $(Settings::$kind(settings) => settings.why_not_passed_by(),)*
                    Settings::Chain(_) => None,
                    Settings::Outside(settings) => settings.why_not_passed_by(),
                }
            }
            /// Reads the files that the settings name, by `read`, which gives a file's name and text. Mistakes go to the report.
            pub fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
                match self {
                    $(Settings::$kind(settings) => settings.read_files(read, report),)*
                    Settings::Chain(settings) => settings.read_files(read, report),
                    Settings::Outside(settings) => settings.read_files(read, report),
                }
            }
            /// What of them a running host can take up as it is `wanted`, if they differ: fields, with the tables that they are in
            /// when these are those of a function of this `name`. `None`: they differ in what it cannot.
            #[must_use]
            pub fn change_to(&self, wanted: &Settings, name: &str) -> Option<Vec<String>> {
                let fields = match (self, wanted) {
                    $((Settings::$kind(now), Settings::$kind(wanted)) => now.change_to(wanted),)*
                    (Settings::Outside(now), Settings::Outside(wanted)) => now.change_to(wanted),
                    // Which tables they are in, it says itself.
                    (Settings::Chain(now), Settings::Chain(wanted)) => return now.change_to(wanted),
                    _ => None,
                };
                let fields = fields?.into_iter();
                Some(fields.map(|field| format!("[function.{name}] {field}")).collect())
            }
            /// Fields that a running host can take up.
            #[must_use]
            pub fn changeable(&self) -> &'static [&'static str] {
                match self {
                    $(Settings::$kind(_) => <$settings as FunctionSettings>::CHANGEABLE,)*
                    Settings::Chain(_) => ChainSettings::CHANGEABLE,
                    Settings::Outside(settings) => settings.changeable(),
                }
            }
            fn tells_sides(&self) -> bool {
                match self {
                    $(Settings::$kind(settings) => settings.tells_sides(),)*
                    Settings::Chain(_) => false,
                    Settings::Outside(settings) => settings.tells_sides(),
                }
            }
            pub(super) fn check(
                &self,
                objects: &[ObjectChoice],
                sharing: Sharing,
                values: &Values,
                report: &mut Report,
            ) {
                match self {
                    $(Settings::$kind(settings) => settings.check(objects, sharing, values, report),)*
                    Settings::Chain(_) => {}
                    Settings::Outside(settings) => settings.check(objects, sharing, values, report),
                }
            }
        }
    };
}

functions! {
    /// A NAT44.
    Nat(NatSettings) = nat::NAT;
    /// A stateful firewall.
    Firewall(FirewallSettings) = firewall::FIREWALL;
    /// A load balancer.
    Balancer(BalancerSettings) = balancer::BALANCER;
    /// A port-scan detector.
    PortScan(PortScanSettings) = port_scan::PORT_SCAN;
    /// Finds byte signatures.
    Signature(SignatureSettings) = signature::SIGNATURE;
    /// A network monitor.
    Monitor(MonitorSettings) = monitor::MONITOR;
    /// A rate limiter.
    Limiter(LimiterSettings) = limiter::LIMITER;
    /// Copies packets to a port.
    Span(SpanSettings) = span::SPAN;
    /// Web-cache digests.
    CacheDigests(CacheDigestsSettings) = cache_digests::CACHE_DIGESTS;
    /// A function that changes nothing.
    PassThrough(PassThroughSettings) = pass_through::PASS_THROUGH;
}

/// The functions that a configuration may name: those of this crate, and those that the program brings along.
#[derive(Clone, Copy, Debug, Default)]
pub struct Functions {
    outside: &'static [Described],
}

impl Functions {
    /// Those of this crate and these.
    #[must_use]
    pub const fn with(outside: &'static [Described]) -> Functions {
        Functions { outside }
    }
    /// All of them.
    pub fn all(self) -> impl Iterator<Item = &'static Described> + Clone {
        ALL.iter().chain(self.outside)
    }
    /// The one of a name.
    #[must_use]
    pub fn find(self, name: &str) -> Option<&'static Described> {
        self.all().find(|function| function.name == name)
    }
    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        self.all().map(|function| function.name)
    }
}

impl PartialEq for Functions {
    fn eq(&self, other: &Functions) -> bool {
        self.names().eq(other.names())
    }
}

impl Eq for Functions {}

/// Reads a file that a configuration names: its name for people, and its text; or why it cannot be read.
pub type ReadFile<'a> = dyn Fn(&Path) -> Result<(String, String), String> + 'a;

/// What is made of a function's settings.
pub trait FunctionSettings: Clone + Debug + PartialEq {
    /// The function that they are for.
    type Function: NetworkFunction + Send + Sync;

    /// Fields that a running host can take up, as they are called in the function's table: what [`FunctionSettings::change_to`] may
    /// tell.
    const CHANGEABLE: &'static [&'static str] = &[];

    /// Makes the function.
    ///
    /// # Errors
    /// What the function itself finds wrong, which `check` should have found; nothing was made.
    fn function(&self, objects: &[ObjectChoice]) -> Result<Self::Function, String>;

    /// What it does, in words.
    fn words(&self) -> String;

    /// Where packets of a capture come in.
    fn direction(&self) -> Box<dyn Direction<Self::Function>> {
        Box::new(FirstSpeaker::default())
    }

    /// Whether [`FunctionSettings::direction`] knows the sides by more than who spoke first.
    fn tells_sides(&self) -> bool {
        false
    }

    /// Why packets must not go past it in a chain, if they must not: in a few words.
    fn why_not_passed_by(&self) -> Option<&'static str> {
        None
    }

    /// Defaults that serve captures may be others between real interfaces. `is_written` tells whether a table of the
    /// function's has a field in the file.
    fn on_real_links(&mut self, _is_written: &dyn Fn(&str, &str) -> bool) {}

    /// Takes up how many instances share the state.
    fn shared_by(&mut self, _: Sharing) {}

    /// Reads the files that the settings name. Mistakes go to the report.
    fn read_files(&mut self, _: &ReadFile<'_>, _: &mut Report) {}

    /// What of them a running host can take up as it is `wanted`, if they differ: fields. `None`: they differ in what it cannot.
    /// The function that is made of `wanted` must have made the state that the one of `self` has.
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        (self == wanted).then(Vec::new)
    }

    /// Refuses settings that do not go with where the objects live, or with how many share them.
    fn check(&self, _: &[ObjectChoice], _: Sharing, _: &Values, _: &mut Report) {}
}

/// Something to do with a function, whatever its kind.
pub trait WithFunction {
    /// What comes of it.
    type Output;
    /// Does it.
    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output;
    /// Does it with an outside function: calls the method of `settings` that is made for this.
    fn with_outside(self, settings: &Outside) -> Self::Output;
}

/// A network function that a configuration can name.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// The name, as in `[function.nat]`.
    pub name: &'static str,
    /// Its settings.
    pub settings: &'static Section,
    /// Its state objects, by the names that the function gives them.
    pub objects: &'static [DescribedObject],
    /// Objects that keep a promise together and so must be placed alike.
    pub together: &'static [Together],
    /// Builds the settings from what was read, and says what contradicts. `None` if anything is wrong.
    pub build: fn(&Values, &mut Report) -> Option<Settings>,
    /// What other crates do with it, if it is an outside function; none for those of this crate, whose types they know.
    pub jobs: Jobs,
}

impl Described {
    /// The settings that `values` hold; what contradicts goes to the report. `None` if anything is wrong.
    pub fn read(&self, values: &Values, report: &mut Report) -> Option<Settings> {
        let mut settings = (self.build)(values, report)?;
        if let Settings::Outside(outside) = &mut settings {
            outside.jobs = self.jobs;
        }
        Some(settings)
    }
}

/// A state object of a function.
#[derive(Clone, Copy, Debug)]
pub struct DescribedObject {
    /// Its name.
    pub name: &'static str,
    /// What kind of object it is.
    pub kind: ObjectKind,
    /// What can be chosen for it.
    pub section: &'static Section,
}

/// What kind of object it is, as far as placements care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A map, a set or a two-way map.
    Table,
    /// Limited items, assigned to hosts in blocks.
    Pool,
    /// A counter, or one for each key.
    Counter,
    /// A token bucket.
    TokenBucket,
    /// What each instance makes of its other objects for itself.
    Derived,
}

/// Objects that keep a promise together.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Their names.
    pub objects: &'static [&'static str],
    /// What happens if they are placed apart, or each host keeps its own.
    pub otherwise: &'static str,
}

/// The words for protocols with ports, where a setting chooses between them.
pub(crate) const TCP: Word = Word {
    word: "tcp",
    meaning: "TCP.",
};
/// See [`TCP`].
pub(crate) const UDP: Word = Word {
    word: "udp",
    meaning: "UDP.",
};

/// Where an object lives: a field of its section. `default` is TOML: [`LOCAL`] or [`REPLICATED`].
#[must_use]
pub const fn placement(default: &'static str) -> Field {
    Field {
        name: "placement",
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "local",
                    meaning: "Each instance has its own object, unseen by others. Costs a memory access.",
                },
                Word {
                    word: "replicated",
                    meaning: "Every instance has a replica; replicas converge. Costs a memory access; updates travel behind the packets.",
                },
                Word {
                    word: "late",
                    meaning: "For tests: as `local`, but each read is late by `delay`, so that packets park.",
                },
            ],
            refused: &[
                Word {
                    word: "owned",
                    meaning: "choose \"replicated\" when several hosts need the object, \"local\" when each host's own will do",
                },
                Word {
                    word: "remote",
                    meaning: "choose \"replicated\" when several hosts need the object; nothing is kept in a data store yet",
                },
                Word {
                    word: "partitioned",
                    meaning: "choose \"local\" when all packets of a flow reach one instance, else \"replicated\"",
                },
            ],
        },
        default: Default::Is(default),
        meaning: "Where the object is kept.",
    }
}

/// How late reads are with the placement `late`: a field of an object's section.
#[must_use]
pub const fn delay() -> Field {
    Field {
        name: "delay",
        kind: Kind::Duration {
            least: Duration::from_micros(1),
            most: Duration::from_secs(1),
        },
        default: Default::Unset("needed with the placement `late`, and refused with others"),
        meaning: "The delay of each read, with the placement `late`.",
    }
}

/// What an absent entry means: a field of the section of a table or pool. `default` is TOML: [`DROP`] or [`WAIT`].
#[must_use]
pub const fn absent(default: &'static str) -> Field {
    Field {
        name: "absent",
        kind: Kind::Absent {
            most: Duration::from_secs(1),
        },
        default: Default::Is(default),
        meaning: "What an absent entry means: `drop` takes it for absent; `wait` lets a packet wait this long for an entry that another host may have made.",
    }
}

/// The most entries: a field of an object's section. `default` is TOML, such as `"65_536"`.
#[must_use]
pub const fn capacity(default: &'static str) -> Field {
    Field {
        name: "capacity",
        kind: Kind::Count {
            least: 64,
            most: 1 << 22,
        },
        default: Default::Is(default),
        meaning: "The most entries over the whole cluster, shared out to hosts before they insert. Every instance reserves memory for all.",
    }
}

/// The same of a table of flows, which may have far more.
#[must_use]
pub const fn flow_capacity(default: &'static str) -> Field {
    Field {
        name: "capacity",
        kind: Kind::Count {
            least: 64,
            most: FLOWS_MAX,
        },
        default: Default::Is(default),
        meaning: "The most entries over the whole cluster, shared out to hosts before they insert. Every instance uses 150 to 250 bytes of memory for each existing entry, and reserves addresses for three times as many: some 10 GiB for the most.",
    }
}

/// Entries of a table of flows at most. Three times as many, and three more for each instance, have numbers below 2³¹, which an
/// index and the links between entries hold.
pub const FLOWS_MAX: u64 = 1 << 24;
const _: () = assert!(
    3 * (FLOWS_MAX
        + asterism_placement::replicated::MEMBERS_MAX as u64 * crate::host::INSTANCES_MAX)
        < 1 << 31
);

const fn allocation() -> Field {
    Field {
        name: "allocation",
        kind: Kind::Choice {
            allowed: &[Word {
                word: "leased",
                meaning: "Items are leased to hosts in blocks of 64, so that no two hosts give out the same item.",
            }],
            refused: &[Word {
                word: "collide",
                meaning: "choose \"leased\"",
            }],
        },
        default: Default::Is("\"leased\""),
        meaning: "How hosts share a limited resource.",
    }
}

/// An object of a function, whose section lists the choices.
#[must_use]
pub const fn described(
    name: &'static str,
    kind: ObjectKind,
    section: &'static Section,
) -> DescribedObject {
    DescribedObject {
        name,
        kind,
        section,
    }
}

/// A time in whole seconds, a week at most; who takes it calls [`check_whole_seconds`].
#[must_use]
pub const fn seconds(
    name: &'static str,
    least: u64,
    default: &'static str,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind: Kind::Duration {
            least: Duration::from_secs(least),
            most: Duration::from_secs(7 * 24 * 3600),
        },
        default: Default::Is(default),
        meaning,
    }
}

/// A whole number.
#[must_use]
pub const fn count(
    name: &'static str,
    (least, most): (u64, u64),
    default: Default,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind: Kind::Count { least, most },
        default,
        meaning,
    }
}

/// Refuses a time with parts of a second, where times are ticks.
pub fn check_whole_seconds(values: &Values, field: &str, report: &mut Report) {
    if values
        .duration(field)
        .is_some_and(|time| time.subsec_nanos() != 0)
    {
        let title = format!("`{field}` is not in whole seconds");
        report.add(
            Diagnostic::error(title, values.span_of(field))
                .help("write whole seconds, such as \"60s\""),
        );
    }
}

/// The placement `local`.
pub const LOCAL: &str = "\"local\"";
/// The placement `replicated`.
pub const REPLICATED: &str = "\"replicated\"";
/// An absent entry is absent.
pub const DROP: &str = "\"drop\"";
/// An absent entry is waited for, 20 ms at most.
pub const WAIT: &str = "\"wait 20ms\"";

/// What can be chosen for one object of a function.
macro_rules! object {
    ($name:ident, $path:expr, $meaning:literal, [$($field:expr),*]) => {
        static $name: $crate::section::Section = $crate::section::Section {
            path: $path,
            meaning: $meaning,
            fields: &[$($field),*],
        };
    };
}
use object;

/// What can be chosen for the objects of a router between two links, which functions that have one list beside their own.
macro_rules! router_objects {
    ($function:literal) => {
        router_objects!(
            @ FRAGMENTS, $function, "fragments",
            "Fragmented datagrams in transit: later fragments carry no ports.",
            [placement(REPLICATED), delay(), absent(WAIT), capacity("65_536")]
        );
        router_objects!(
            @ NEIGHBOURS, $function, "neighbours",
            "Ethernet addresses learnt by ARP.",
            [placement(REPLICATED), delay(), absent(DROP), capacity("4_096")]
        );
        router_objects!(
            @ ERRORS, $function, "errors",
            "ICMP errors sent in this second; best `local`, because no other instance needs the count.",
            [placement(LOCAL), delay(), absent(DROP)]
        );
    };
    (@ $name:ident, $function:literal, $object:literal, $meaning:literal, $fields:tt) => {
        $crate::functions::object!(
            $name, concat!("function.", $function, ".state.", $object), $meaning, $fields
        );
    };
}
use router_objects;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use asterism_function::State;
    use asterism_functions::balancer::BalancerConfig;
    use asterism_functions::nat::NatConfig;
    use asterism_functions::port_scan::PortScanConfig;

    fn read(text: &str) -> Config {
        let (config, report) = Config::read("test.toml", text);
        config.unwrap_or_else(|| panic!("{}", report.render(false)))
    }

    const BALANCED: &str = "services.web = { address = \"203.0.113.10:80\", backends = [{ address = \"10.0.0.10\" }] }";

    struct Objects<'a>(&'a [ObjectChoice]);

    impl WithFunction for Objects<'_> {
        type Output = &'static [&'static str];
        fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
            settings.function(self.0).unwrap();
            <S::Function as NetworkFunction>::State::OBJECTS
        }
        fn with_outside(self, settings: &Outside) -> Self::Output {
            settings.objects()
        }
    }

    /// Every function is made of its defaults, and the objects that can be placed are those that it has.
    #[test]
    fn objects_are_the_functions_own() {
        for described in ALL {
            let needed = match described.name {
                "nat" => "outside = [\"203.0.113.1\"]",
                "firewall" => "rules = \"rules\"",
                "signature" => "signatures.example = { id = 7, bytes = \"GET /\" }",
                "balancer" => BALANCED,
                "cache-digests" => "caches.a = { address = \"10.0.0.1\" }",
                "limiter" => "sources = { rate = 1_000, burst = 3_000 }",
                _ => "",
            };
            let mut function = read(&format!("[function.{}]\n{needed}", described.name)).function;
            let mut report = Report::new("test.toml", "");
            let rules = |_: &Path| Ok(("rules".to_owned(), "default drop".to_owned()));
            function.settings.read_files(&rules, &mut report);
            assert_eq!(report.errors(), 0, "{}", described.name);
            let objects: Vec<_> = described.objects.iter().map(|object| object.name).collect();
            let own = function.settings.with(Objects(&function.objects));
            assert_eq!(objects, own, "{}", described.name);
        }
    }

    #[test]
    fn tables_of_flows_have_up_to_sixteen_million_entries() {
        let text = "[function.nat]\noutside = [\"203.0.113.1\"]\nstate.sessions = { capacity = 16_777_216 }";
        let function = read(text).function;
        let Settings::Nat(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        assert_eq!(made.config().sessions_max, 16_777_216);
    }

    #[test]
    fn a_volume_policy_is_made() {
        let text =
            "[function.port-scan]\nvolume = { megabits = 10, window = \"10s\", block = \"1m\" }";
        let function = read(text).function;
        function.settings.with(Objects(&function.objects));
    }

    /// A default of the configuration that says what the function's own default says cannot drift from it.
    #[test]
    fn defaults_are_the_functions_own() {
        let function = read("[function.nat]\noutside = [\"203.0.113.1\"]").function;
        let Settings::Nat(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        let made = made.config();
        let own = NatConfig::new(made.inside, made.outside, made.outside_addresses.clone());
        let kept = NatConfig {
            routes: made.routes.clone(),
            neighbours: made.neighbours.clone(),
            ..own
        };
        assert_eq!(*made, kept);
        let function = read(&format!("[function.balancer]\n{BALANCED}")).function;
        let Settings::Balancer(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        let made = made.config();
        let own = BalancerConfig::new(made.clients, made.backends, made.services.clone());
        let kept = BalancerConfig {
            // A host alone has no other to wait for.
            known_wait_us: 0,
            routes: made.routes.clone(),
            neighbours: made.neighbours.clone(),
            ..own
        };
        assert_eq!(*made, kept);
        let function = read("[function.port-scan]").function;
        let Settings::PortScan(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        assert_eq!(*made.config(), PortScanConfig::default());
        let empty = read("[function.port-scan]\nflood = {}").function;
        assert_eq!(empty.settings, function.settings);
        let none = read("[function.port-scan]\nflood = { handshakes = 0 }").function;
        assert!(matches!(none.settings, Settings::PortScan(settings) if settings.flood.is_none()));
    }
}
