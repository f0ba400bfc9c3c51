//! What of a configuration can change while the host runs, and what cannot. All or nothing: one change that cannot be made
//! keeps all others from being made.

use core::fmt;
use std::any::Any;
use std::sync::Arc;

use asterism_config::diagnostic::{DiagnosticDocument, Report, Severity};
use asterism_config::differences::{self, Difference};
use asterism_config::files::FileError;
use asterism_config::functions::{
    FunctionError, FunctionSettings, Outside, OutsideFunction, WithFunction,
};
use asterism_config::{Cluster, Config, ObjectChoice, STAYS_BY_KIND, Settings, change_to};
use thiserror::Error;

use super::error::{AlertsFileError, BackgroundError};
use asterism_lines::LinesError;

/// What to do instead where hosts may differ for a while.
const RESTART_EACH: &str = "start the hosts again, one after the other";
/// What to do instead. A host that is restarted alone is refused by those that knew its earlier incarnation.
const RESTART_ALL: &str = "stop all hosts, then start them with it";

/// Why a host does not go on with another configuration.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Mistakes(#[from] MistakesError),
    /// Something of the configuration cannot change while the host runs.
    #[error("{}", joined(.0))]
    Unchangeable(Vec<ChangeError>),
    /// The file of alerts cannot be opened.
    #[error(transparent)]
    AlertsFile(#[from] AlertsFileError),
    /// The function cannot be made.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The state channel has taken none of its orders for seconds.
    #[error(
        "the state channel does not take orders; see in `asterism top` whether it turns, and reload again"
    )]
    ChannelBehind,
    /// An instance takes no requests any more; those before it have the other function.
    #[error("an instance has ended; start the host again")]
    InstanceEnded,
    /// Alerts have no thread that writes them; the rest of the configuration is in force.
    #[error(transparent)]
    Alerts(#[from] LinesError),
    /// Backends cannot be checked, or digests not fetched; the rest of the configuration is in force.
    #[error(transparent)]
    Background(#[from] BackgroundError),
}

impl ReloadError {
    /// What the refused reload leaves behind.
    #[must_use]
    pub fn effect(&self) -> &'static str {
        match self {
            ReloadError::InstanceEnded => {
                "instances before that one have the other function, and objects the other placements"
            }
            ReloadError::Alerts(_) | ReloadError::Background(_) => {
                "the rest of the configuration is in force"
            }
            _ => "nothing changed",
        }
    }
}

fn joined(errors: &[ChangeError]) -> String {
    let errors: Vec<String> = errors.iter().map(ChangeError::to_string).collect();
    errors.join("; ")
}

/// Why something of a configuration cannot change while the host runs; `cure` is what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// A field is written otherwise.
    #[error("{file}:{line}: {field} cannot change while the host runs: {cure}")]
    Written {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The field.
        field: Difference,
        /// What to do instead.
        cure: &'static str,
    },
    /// A field is not written any more.
    #[error(
        "{file}: {field}, which is not written there any more, cannot change while the host runs: {cure}"
    )]
    Gone {
        /// The file.
        file: String,
        /// The field.
        field: Difference,
        /// What to do instead.
        cure: &'static str,
    },
    /// A setting has another meaning, and its text is the same.
    #[error("{file}: {setting} cannot change while the host runs: {cure}")]
    Elsewhere {
        /// The file.
        file: String,
        /// The setting, with its table.
        setting: String,
        /// What to do instead.
        cure: &'static str,
    },
}

/// A configuration with the text that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// What it means.
    pub config: &'a Config,
    /// The file's text.
    pub text: &'a str,
}

/// What of it is refused, so far.
struct Refusals<'a> {
    file: &'a str,
    /// Whether the object of a name is built as one that can be changed between local and replicated.
    movable: &'a dyn Fn(&str) -> bool,
    differences: Vec<Difference>,
    errors: Vec<ChangeError>,
}

impl Refusals<'_> {
    /// Refuses that something changes, unless it is the same: an error for each field at or below `path` that is written
    /// otherwise, which says where; if none is (its meaning came from elsewhere), one without a line. Fields in `but` can change.
    fn unless(&mut self, same: bool, path: &[&str], but: &[&[&str]], cure: &'static str) {
        if same {
            return;
        }
        let file = || self.file.to_owned();
        let may = |one: &&Difference| {
            but.iter()
                .any(|fields| one.is_below(&[path, fields].concat()))
        };
        let below = self.differences.iter().filter(|one| one.is_below(path));
        let before = self.errors.len();
        self.errors.extend(below.filter(|one| !may(one)).map(|one| {
            let (file, field) = (file(), one.clone());
            match one.line {
                Some(line) => ChangeError::Written {
                    file,
                    line,
                    field,
                    cure,
                },
                None => ChangeError::Gone { file, field, cure },
            }
        }));
        if self.errors.len() == before {
            let setting = match path {
                [field] => format!("[{field}]"),
                [tables @ .., field] => format!("[{}] {field}", tables.join(".")),
                [] => String::new(),
            };
            self.errors.push(ChangeError::Elsewhere {
                file: file(),
                setting,
                cure,
            });
        }
    }

    /// Refuses that objects of the function, or of the stage of a chain, of this name change, but for placements that can.
    fn of_objects(&mut self, name: &str, now: &[ObjectChoice], wanted: &[ObjectChoice]) {
        for (now, wanted) in now.iter().zip(wanted) {
            if now.placement == wanted.placement {
                continue;
            }
            // What else differs of it is refused for itself.
            let may_move = now.movable.is_some() && wanted.movable.is_some();
            let path = ["function", name, "state", now.name, "placement"];
            let cure = match may_move {
                true => STAYS_BY_KIND,
                false => now.stays_because(wanted),
            };
            let is_built_so = self.is_movable(name, now.name);
            self.unless(may_move && is_built_so, &path, &[], cure);
        }
    }

    /// Whether an object of a function, or of a stage, is built as one that can be changed.
    fn is_movable(&self, name: &str, object: &str) -> bool {
        (self.movable)(object) || (self.movable)(&format!("{name}.{object}"))
    }

    /// Refuses that a function, or a stage, changes in what it does not take up, which it does if `takes_up`.
    fn of_one(
        &mut self,
        (name, takes_up): (&str, bool),
        changeable: &[&str],
        (now, wanted): (&[ObjectChoice], &[ObjectChoice]),
    ) {
        let same = now.len() == wanted.len()
            && now
                .iter()
                .zip(wanted)
                .all(|(now, wanted)| now.is_same_elsewhere(wanted));
        let placed: Vec<[&str; 3]> = now
            .iter()
            .map(|one| ["state", one.name, "placement"])
            .collect();
        let fields: Vec<[&str; 1]> = changeable.iter().map(|field| [*field]).collect();
        let but: Vec<&[&str]> = fields
            .iter()
            .map(|field| &field[..])
            .chain(placed.iter().map(|field| &field[..]))
            .collect();
        self.unless(takes_up && same, &["function", name], &but, RESTART_ALL);
        self.of_objects(name, now, wanted);
    }

    fn of_function(&mut self, now: &Config, wanted: &Config) {
        let (a, b) = (&now.function, &wanted.function);
        let takes_up = a.name == b.name && a.settings.change_to(&b.settings, a.name).is_some();
        let (Settings::Chain(chain), Settings::Chain(then)) = (&a.settings, &b.settings) else {
            let is_chain = |settings: &Settings| matches!(settings, Settings::Chain(_));
            if is_chain(&a.settings) || is_chain(&b.settings) {
                return self.unless(false, &["chain"], &[], RESTART_ALL);
            }
            let (but, objects) = match a.name == b.name {
                true => (a.settings.changeable(), (&a.objects[..], &b.objects[..])),
                false => (&[][..], (&[][..], &[][..])),
            };
            return self.of_one((b.name, takes_up), but, objects);
        };
        let kinds = |chain: &asterism_config::functions::ChainSettings| -> Vec<_> {
            let stages = chain.stages.iter();
            stages.map(|stage| (stage.name, stage.function)).collect()
        };
        if kinds(chain) != kinds(then) {
            return self.unless(false, &["chain"], &[], RESTART_ALL);
        }
        for (now, wanted) in chain.stages.iter().zip(&then.stages) {
            let name = now.name;
            let takes_up = now.settings.change_to(&wanted.settings, name).is_some();
            let objects = (&now.objects[..], &wanted.objects[..]);
            self.of_one((name, takes_up), now.settings.changeable(), objects);
        }
    }
}

/// Compares what runs with what is wanted, in a file of this name; tells what would change, for people. `movable` says which objects
/// are built as ones that can be changed between local and replicated.
///
/// # Errors
/// An error for each change that needs a new start, with its line in the file.
pub fn changes(
    now: Written<'_>,
    wanted: Written<'_>,
    file: &str,
    movable: &dyn Fn(&str) -> bool,
) -> Result<Vec<String>, Vec<ChangeError>> {
    let mut refusals = Refusals {
        file,
        movable,
        differences: differences::between(now.text, wanted.text, &now.config.host.name),
        errors: Vec::new(),
    };
    let (now, wanted) = (now.config, wanted.config);
    let mut refuse = |same: bool, path: &[&str], cure| refusals.unless(same, path, &[], cure);
    let (a, b) = (&now.cluster, &wanted.cluster);
    // All of it, so that nothing that is new there is forgotten here.
    let Cluster {
        name: _,
        key: _,
        epochs: _,
        orchestrators: _,
        heartbeat: _,
        port_lease: _,
        is_open: _,
        members: _,
        addresses: _,
        sites: _,
        hold: _,
        channel: _,
    } = a;
    refuse(a.name == b.name, &["cluster", "name"], RESTART_ALL);
    refuse(a.key == b.key, &["cluster", "key"], RESTART_ALL);
    refuse(a.epochs == b.epochs, &["cluster", "epochs"], RESTART_ALL);
    let same = a.orchestrators == b.orchestrators;
    refuse(same, &["cluster", "orchestrators"], RESTART_EACH);
    let same = a.heartbeat == b.heartbeat;
    refuse(same, &["cluster", "heartbeat"], RESTART_EACH);
    let is_same = a.is_open == b.is_open && (!a.is_open || a.members == b.members);
    refuse(
        is_same,
        &["cluster", "places"],
        "ports are dealt by place; stop all hosts and orchestrators, then start them with it",
    );
    refuse(
        !is_same || a.members == b.members,
        &["cluster", "members"],
        "leases are dealt by place in the list; stop all hosts, then start them with it",
    );
    let same = a.addresses == b.addresses && a.sites == b.sites;
    refuse(same, &["cluster", "member"], RESTART_ALL);
    let same = a.port_lease == b.port_lease;
    refuse(same, &["cluster", "port_lease"], RESTART_ALL);
    let same = a.hold.is_some() == b.hold.is_some();
    refuse(same, &["cluster", "release"], RESTART_ALL);
    let same = !same || a.hold == b.hold;
    refuse(same, &["cluster", "hold"], RESTART_ALL);
    refuse(a.channel == b.channel, &["cluster", "channel"], RESTART_ALL);
    let (a, b) = (&now.host, &wanted.host);
    refuse(a.name == b.name, &["host", "name"], RESTART_ALL);
    let same = a.address == b.address;
    refuse(same, &["host", "address"], RESTART_EACH);
    refuse(
        a.instances == b.instances,
        &["host", "instances"],
        RESTART_ALL,
    );
    refuse(a.cores == b.cores, &["host", "cores"], RESTART_ALL);
    let same = a.channel_idle == b.channel_idle;
    refuse(same, &["host", "channel_idle"], RESTART_ALL);
    refuse(a.control == b.control, &["host", "control"], RESTART_ALL);
    refuse(a.metrics == b.metrics, &["host", "metrics"], RESTART_ALL);
    refuse(now.ports == wanted.ports, &["port"], RESTART_ALL);
    refuse(now.tenants == wanted.tenants, &["tenants"], RESTART_EACH);
    refuse(now.store == wanted.store, &["store"], RESTART_ALL);
    refusals.of_function(now, wanted);
    if !refusals.errors.is_empty() {
        return Err(refusals.errors);
    }
    let (a, b) = (&now.function, &wanted.function);
    debug_assert!(change_to(&a.objects, &b.objects), "the rest was refused");
    let of_function = a.settings.change_to(&b.settings, a.name);
    let of_objects = placements(now, wanted);
    let (a, b) = (&now.host, &wanted.host);
    let changes = [
        ("idle", a.idle != b.idle),
        ("state", a.state != b.state),
        ("join_wait", a.join_wait != b.join_wait),
        ("drain_max", a.drain_max != b.drain_max),
        ("eve", a.eve != b.eve),
    ];
    Ok(changes
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| format!("[host] {field}"))
        .chain(of_function.into_iter().flatten())
        .chain(of_objects)
        .collect())
}

/// Objects whose placement differs, for people.
fn placements(now: &Config, wanted: &Config) -> Vec<String> {
    let (now, wanted) = (&now.function, &wanted.function);
    let pairs = now.objects.iter().zip(&wanted.objects);
    let moved = pairs.filter(|(now, wanted)| now.placement != wanted.placement);
    let moved = moved.map(|(_, wanted)| wanted);
    let table = |name: &str| match (&now.settings, name.split_once('.')) {
        (Settings::Chain(_), Some((stage, object))) => format!("{stage}.state.{object}"),
        _ => format!("{}.state.{name}", now.name),
    };
    moved
        .map(|one| {
            format!(
                "[function.{}] placement = \"{}\"",
                table(one.name),
                one.placement.word()
            )
        })
        .collect()
}

/// What is wrong with a configuration that cannot be used: how much, and the first of it, with its line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct MistakesError {
    count: usize,
    first: Option<Box<DiagnosticDocument>>,
}

impl fmt::Display for MistakesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("the configuration has a mistake: ")?,
            count => write!(f, "the configuration has {count} mistakes, the first: ")?,
        }
        if let Some(one) = &self.first {
            write!(f, "{}:{}: {}", one.file, one.line, one.message)?;
            if !one.label.is_empty() {
                write!(f, ", {}", one.label)?;
            }
            if let Some(help) = one.help.first() {
                write!(f, ": {help}")?;
            }
        }
        f.write_str("; see `asterism check`")
    }
}

/// What is wrong with a configuration. Of a file that the configuration names, what is wrong there comes first.
pub fn first_mistake(report: &Report) -> MistakesError {
    let documents = report.documents();
    let mut errors = documents
        .iter()
        .filter(|one| one.severity == Severity::Error);
    let elsewhere = errors.clone().find(|one| one.file != report.file);
    let first = elsewhere.or_else(|| errors.next()).cloned();
    MistakesError {
        count: report.errors(),
        first: first.map(Box::new),
    }
}

/// The function that is configured, once for each instance of a running one.
pub struct Copies<'a>(pub &'a [ObjectChoice], pub usize);

impl WithFunction for Copies<'_> {
    type Output = Result<Vec<Box<dyn Any + Send>>, FunctionError>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let function = Arc::new(settings.function(self.0)?);
        let copy = |_| Box::new(function.clone()) as Box<dyn Any + Send>;
        Ok((0..self.1).map(copy).collect())
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        (settings.job::<CopiesJob>().0)(settings, self)
    }
}

/// [`Copies`] for an outside function, compiled for its type.
pub struct CopiesJob(for<'a> fn(&Outside, Copies<'a>) -> <Copies<'a> as WithFunction>::Output);

impl CopiesJob {
    /// The job of the function with these settings.
    #[must_use]
    pub const fn new<S: OutsideFunction>() -> CopiesJob {
        CopiesJob(|settings, copies| copies.with(settings.settings::<S>()))
    }
}
