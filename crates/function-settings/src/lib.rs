//! The settings of network functions: which functions a configuration can name, the fields of each, where its state objects live, and
//! the functions made of them.
//!
//! [`read`] reads the tables `[function.NAME]`, or a `chain` with its tables `[stage.NAME]` (`function.rs`, `stages.rs`), into a
//! [`Function`]; `objects.rs` and `promises.rs` read and check the choices for each state object. The crate knows no host, no member and
//! no store: how many share the state is an argument ([`Sharing`]).
//!
//! A function is a file here and a line in the list `functions!`; a function of another crate is an [`OutsideFunction`]
//! (`outside.rs`). The file describes its fields and objects (`described.rs`) and makes the function (`settings.rs`); code that needs a
//! function of any kind passes a [`WithFunction`].

mod balancer;
mod cache_digests;
mod chain;
mod described;
pub mod direction;
mod error;
mod export;
mod file_error;
mod firewall;
mod function;
mod limiter;
mod monitor;
mod nat;
mod objects;
mod outside;
mod pass_through;
mod port_scan;
mod promises;
mod settings;
mod signature;
mod span;
mod stages;
pub mod wiring;

use core::ops::Deref;

use asterism_engine::check_placed;
use asterism_state::ObjectSettings;

pub use balancer::{Backend, BalancerIdle, BalancerMode, BalancerSettings, Check, Checks, Service};
pub use cache_digests::{CacheDigestsSettings, CacheSettings};
pub use chain::{ChainSettings, STAGE, STAGE_CHANGEABLE, StageSettings};
pub(crate) use described::CHOICE;
pub use described::{
    ACKED, AT_ONCE, DROP, DescribedObject, Description, FILTER, FLOWS_MAX, FOLLOWED, GRAPH,
    HEAVIEST, KeptHere, LARGE, LEASED, LISTED, LOCAL, ObjectKind, REPLICATED, Together, WAIT,
    absent, capacity, check_whole_seconds, count, delay, described, flow_capacity, kept_here,
    placement, release, seconds,
};
pub use error::FunctionError;
pub use file_error::{FILE_BYTES_MAX, FileError};
pub use firewall::{FirewallIdleTimes, FirewallSettings};
pub use function::{Function, read};
pub use limiter::{LimitSettings, LimiterSettings};
pub use monitor::MonitorSettings;
pub use nat::{
    CarrierSettings, ExemptionSettings, Filtering, Forward, IdleTimes, Link, LogSettings,
    NatSettings, PoolSettings, outside_of,
};
pub use objects::{ObjectChoice, Placement, STAYS_BY_KIND, Sharing, change_to};
pub use outside::{Jobs, Outside, OutsideFunction};
pub use pass_through::{Access, PassThroughSettings};
pub use port_scan::{Flooded, PortScanSettings, Volume};
pub use settings::{FunctionSettings, ReadFile};
pub use signature::{Blocked, SignatureSettings, Wanted};
pub use span::{Copied, SpanSettings};
pub use stages::passed_by;

use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::section::Values;

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
        pub static ALL: &[Described] = &[$(Described {
            description: Description {
                name: $described.name,
                settings: $described.settings,
                objects: $described.objects,
                together: $described.together,
                build: |values, report| ($described.build)(values, report).map(Settings::$kind),
            },
            jobs: &[],
        },)*];

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
            pub(crate) fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
                match self {
                    $(Settings::$kind(settings) => settings.on_real_links(is_written),)*
                    // Each stage is shown separately.
                    Settings::Chain(_) => {}
                    Settings::Outside(settings) => settings.on_real_links(is_written),
                }
            }
            /// Takes up how many share the state. Called once, after the settings are read.
            pub fn shared_by(&mut self, sharing: Sharing) {
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
            pub fn try_function(&self, objects: &[ObjectChoice]) -> Result<(), FunctionError> {
                match self {
                    $(Settings::$kind(settings) => try_made(settings, objects),)*
                    Settings::Chain(settings) => try_made(settings, objects),
                    Settings::Outside(settings) => settings.try_function(objects),
                }
            }
            /// Why packets must not go past the function in a chain, if they must not: in a few words.
            #[must_use]
            pub fn why_not_passed_by(&self) -> Option<&'static str> {
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
            pub(crate) fn check(
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

/// Makes the function, and sees whether its objects can live where they are to.
fn try_made<S: FunctionSettings>(
    settings: &S,
    objects: &[ObjectChoice],
) -> Result<(), FunctionError> {
    let function = settings.function(objects)?;
    let is_remote = |object: &ObjectChoice| object.placement == Placement::Remote;
    if !objects.iter().any(is_remote) {
        return Ok(());
    }
    let objects = objects.to_vec();
    Ok(check_placed(&function, move |name| {
        let choice = objects.iter().find(|choice| choice.name == name);
        choice.map_or(ObjectSettings::LOCAL, ObjectChoice::settings)
    })?)
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
    /// Its name, fields and objects, and how its settings are read.
    pub description: Description<Settings>,
    /// What other crates do with it, if it is an outside function; none for those of this crate, whose types they know.
    pub jobs: Jobs,
}

impl Deref for Described {
    type Target = Description<Settings>;

    fn deref(&self) -> &Description<Settings> {
        &self.description
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use asterism_function::{Builder, NetworkFunction, State};
    use asterism_functions::balancer::BalancerConfig;
    use asterism_functions::nat::NatConfig;
    use asterism_functions::port_scan::PortScanConfig;
    use asterism_state::{Context, Identity, Sequencer};
    use asterism_toml_schema::kind::Kind;

    fn read(text: &str) -> Function {
        let (function, report) = Function::alone(text);
        function.unwrap_or_else(|| panic!("{}", report.render(false)))
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

    /// A function of its defaults.
    fn made(described: &Described) -> Function {
        let needed = match described.name {
            "nat" => "outside = [\"203.0.113.1\"]\nport_quarantine = { time = \"0s\" }",
            "firewall" => "rules = \"rules\"",
            "signature" => "signatures.example = { id = 7, bytes = \"GET /\" }",
            "balancer" => BALANCED,
            "cache-digests" => {
                "caches.a = { address = \"10.0.0.1\", reports = 1_000 }\nreports = \"192.0.2.9:5140\""
            }
            "limiter" => "sources = { rate = 1_000, burst = 3_000 }",
            _ => "",
        };
        let mut function = read(&format!("[function.{}]\n{needed}", described.name));
        let mut report = Report::new("test.toml", "");
        let rules = |_: &Path| Ok(("rules".to_owned(), "default drop".to_owned()));
        function.settings.read_files(&rules, &mut report);
        assert_eq!(report.errors(), 0, "{}", described.name);
        function
    }

    /// Every function is made of its defaults, and the objects that can be placed are those that it has.
    #[test]
    fn objects_are_the_functions_own() {
        for described in ALL {
            let function = made(described);
            let objects: Vec<_> = described.objects.iter().map(|object| object.name).collect();
            let own = function.settings.with(Objects(&function.objects));
            assert_eq!(objects, own, "{}", described.name);
        }
    }

    /// Why each object cannot live in a store, as the object itself says.
    struct Stays<'a>(&'a [ObjectChoice]);

    impl WithFunction for Stays<'_> {
        type Output = Vec<(Option<&'static str>, bool)>;
        fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
            let function = settings.function(self.0).unwrap();
            let context = Context::new(Identity::alone(), Sequencer::Own(0.into()), 0, Vec::new());
            let builder = Builder::new(Rc::new(context), |_| ObjectSettings::LOCAL);
            let state = builder.built(function.state(&builder));
            let numbers = 0..self.0.len() as u8;
            numbers
                .map(|number| {
                    let object = state.object(number).unwrap();
                    (object.stays_because(), object.is_by_conversation())
                })
                .collect()
        }
        fn with_outside(self, _: &Outside) -> Self::Output {
            Vec::new()
        }
    }

    /// What the configuration offers, and the sentence with which it refuses, are the objects' own.
    #[test]
    fn objects_can_live_in_a_store_as_they_say_themselves() {
        let mut remote = 0;
        for described in ALL {
            let function = made(described);
            let stays = function.settings.with(Stays(&function.objects));
            assert_eq!(stays.len(), described.objects.len(), "{}", described.name);
            for (object, (why, is_by_conversation)) in described.objects.iter().zip(stays) {
                let name = format!("{} of {}", object.name, described.name);
                assert_eq!(object.can_be_remote(), why.is_none(), "{name}: {why:?}");
                let may_be_in_shards = object.kind == ObjectKind::Conversations;
                assert_eq!(
                    may_be_in_shards,
                    is_by_conversation && why.is_none(),
                    "{name}"
                );
                remote += usize::from(why.is_none());
                let placement = &object.section.fields[0];
                let Kind::Choice { refused, .. } = placement.kind else {
                    panic!("{name}")
                };
                let refused = refused.iter().find(|word| word.word == "remote");
                let ends_so = |why| refused.is_some_and(|word| word.meaning.ends_with(why));
                assert!(why.is_none_or(ends_so), "{name}: {why:?}, {refused:?}");
            }
        }
        assert!(remote > 10, "{remote}");
    }

    #[test]
    fn tables_of_flows_have_up_to_sixteen_million_entries() {
        let text = "[function.nat]\noutside = [\"203.0.113.1\"]\nstate.sessions = { capacity = 16_777_216 }";
        let function = read(text);
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
        let function = read(text);
        function.settings.with(Objects(&function.objects));
    }

    /// A default of the configuration that says what the function's own default says cannot drift from it.
    #[test]
    fn defaults_are_the_functions_own() {
        let function = read("[function.nat]\noutside = [\"203.0.113.1\"]");
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
        let function = read(&format!("[function.balancer]\n{BALANCED}"));
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
        let function = read("[function.port-scan]");
        let Settings::PortScan(settings) = &function.settings else {
            panic!()
        };
        let made = settings.function(&function.objects).unwrap();
        assert_eq!(*made.config(), PortScanConfig::default());
        let empty = read("[function.port-scan]\nflood = {}");
        assert_eq!(empty.settings, function.settings);
        let none = read("[function.port-scan]\nflood = { handshakes = 0 }");
        assert!(matches!(none.settings, Settings::PortScan(settings) if settings.flood.is_none()));
    }
}
