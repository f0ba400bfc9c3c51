//! The network function of a file, `[function.NAME]`, or its chain of functions: its settings, and where its state lives.

use core::ops::Range;

use asterism_state::ObjectSettings;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::objects::{self, ObjectChoice, Placement, Sharing};
use super::{Described, Functions, ObjectKind, Settings, stages};
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::table;

/// The network function, and where its state lives.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its settings.
    pub settings: Settings,
    /// Its state objects, all of them.
    pub objects: Vec<ObjectChoice>,
}

impl Function {
    /// Which function it is, as a number; of a chain, the functions of its stages in order.
    #[must_use]
    pub fn kind_number(&self) -> u64 {
        let kinds = match &self.settings {
            Settings::Chain(chain) => chain.stages.iter().map(|stage| stage.function).collect(),
            _ => vec![self.name],
        };
        kinds.iter().fold(kinds.len() as u64, |sum, kind| {
            asterism_state::hash::bytes(kind.as_bytes(), sum)
        })
    }
    /// What was chosen for the object of a name; an unknown one is local.
    #[must_use]
    pub fn object_settings(&self, name: &str) -> ObjectSettings {
        let choice = self.objects.iter().find(|choice| choice.name == name);
        choice.map_or(ObjectSettings::LOCAL, ObjectChoice::settings)
    }
    /// Which of the objects of these names have entries in a store: a bit for each, by its place. A pool has none there: a table shows
    /// which of its items are in use.
    #[must_use]
    pub fn remote(&self, objects: &[&str]) -> u64 {
        let bits = (0..).zip(objects);
        bits.fold(0, |set, (place, name)| {
            let is_remote = self.objects.iter().any(|choice| {
                let has_entries = choice.kind != ObjectKind::Pool;
                choice.name == *name && choice.placement == Placement::Remote && has_entries
            });
            set | u64::from(is_remote) << place
        })
    }
    /// Which of the objects of these names are replicated: a bit for each, by its place.
    #[must_use]
    pub fn replicated(&self, objects: &[&str]) -> u64 {
        let bits = (0..).zip(objects);
        bits.fold(0, |set, (place, name)| {
            set | u64::from(self.object_settings(name).is_replicated()) << place
        })
    }

    /// Takes up the defaults of functions between real interfaces, where they are others than those that serve captures and the
    /// document says nothing.
    pub fn on_real_links(&mut self, document: &DeTable<'_>) {
        match &mut self.settings {
            Settings::Chain(chain) => {
                for stage in &mut chain.stages {
                    links_of(document, stage.name, &mut stage.settings);
                }
            }
            settings => links_of(document, self.name, settings),
        }
    }
}

/// Reads the function of a file, or its chain of functions. `None` if anything in it is wrong.
pub fn read(
    document: &DeTable<'_>,
    sharing: Sharing,
    functions: Functions,
    report: &mut Report,
) -> Option<Function> {
    if let Some((key, value)) = table::get(document, "chain") {
        return stages::read(document, (key.span(), value), sharing, functions, report);
    }
    let function = read_function(document, sharing, functions, report);
    if let Some((key, _)) = table::get(document, "stage") {
        report.add(
            Diagnostic::error("there is no chain that could have stages", key.span())
                .help("write chain = [\"port-scan\", \"nat\"] at the top of the file"),
        );
    }
    function
}

fn links_of(document: &DeTable<'_>, name: &str, settings: &mut Settings) {
    settings.on_real_links(&|inner, field| {
        let mut table = document;
        for name in ["function", name, inner] {
            match table::get(table, name).map(|(_, value)| value.get_ref()) {
                Some(DeValue::Table(inner)) => table = inner,
                _ => return false,
            }
        }
        table::get(table, field).is_some()
    });
}

fn read_function(
    document: &DeTable<'_>,
    sharing: Sharing,
    functions: Functions,
    report: &mut Report,
) -> Option<Function> {
    let names = || functions.names();
    let end = report.text.len();
    let entry = document
        .iter()
        .find(|(key, _)| key.get_ref().as_ref() == "function");
    let Some((key, DeValue::Table(table))) = entry.map(|(key, value)| (key, value.get_ref()))
    else {
        let span = entry.map_or(end..end, |(key, _)| key.span());
        report.add(
            Diagnostic::error("the network function is missing", span).help(format!(
                "add the table [function.NAME]; functions are {}",
                suggestion::quoted(names()).replace(" or ", " and ")
            )),
        );
        return None;
    };
    let mut known = Vec::new();
    for (name, value) in table {
        match functions.find(name.get_ref().as_ref()) {
            Some(function) => known.push((function, name.span(), value)),
            None => {
                let mut unknown = Diagnostic::error(
                    format!("there is no network function `{}`", name.get_ref()),
                    name.span(),
                );
                if let Some(near) = suggestion::nearest(name.get_ref(), names()) {
                    unknown = unknown.help(format!("did you mean [function.{near}]?"));
                }
                report.add(
                    unknown
                        .help(format!(
                            "functions are {}",
                            suggestion::quoted(names()).replace(" or ", " and ")
                        ))
                        .help(
                            "a function of your own has a program of its own: see `asterism new`",
                        ),
                );
            }
        }
    }
    if known.is_empty() && table.is_empty() {
        report.add(
            Diagnostic::error("the network function is missing", key.span())
                .help("write [function.nat]"),
        );
    }
    for (function, span, _) in known.iter().skip(1) {
        report.add(
            Diagnostic::error(
                format!("a second network function, `{}`", function.name),
                span.clone(),
            )
            .also(known[0].1.clone(), "the first")
            .help(format!(
                "write chain = [\"{}\", \"{}\"] at the top of the file, before all tables: the order in which packets from inside pass them",
                known[0].0.name, function.name
            )),
        );
    }
    let mut read: Vec<_> = known
        .into_iter()
        .map(|(function, span, value)| {
            read_settings(function, function.name, (span, value), sharing, report)
        })
        .collect();
    if read.is_empty() {
        None
    } else {
        read.swap_remove(0)
    }
}

/// Reads the table of a function; `name` is the one of the table.
pub(super) fn read_settings(
    function: &'static Described,
    name: &str,
    (key, value): (Range<usize>, &Spanned<DeValue<'_>>),
    sharing: Sharing,
    report: &mut Report,
) -> Option<Function> {
    let DeValue::Table(table) = value.get_ref() else {
        report.add(
            Diagnostic::error(format!("`{name}` is a table"), key)
                .help(format!("write [function.{name}] on a line of its own")),
        );
        return None;
    };
    let before = report.errors();
    let mut settings = table.clone();
    let state = settings.remove("state");
    // A table that is only there because of a table inside it has no place of its own.
    let span = if value.span().is_empty() {
        key.clone()
    } else {
        value.span()
    };
    let values =
        function
            .settings
            .read(&format!("function.{name}"), &settings, span.clone(), report);
    let settings = function.read(&values, report);
    let objects = match state.as_ref().map(|state| (state.get_ref(), state.span())) {
        None => objects::read(function, &DeTable::new(), span, sharing, report),
        Some((DeValue::Table(state), span)) => {
            objects::read(function, state, span, sharing, report)
        }
        Some((_, span)) => {
            report.add(Diagnostic::error("`state` is a table", span).help(format!(
                "write [function.{name}.state] on a line of its own"
            )));
            None
        }
    };
    if report.errors() > before {
        return None;
    }
    let (settings, objects) = (settings?, objects?);
    settings.check(&objects, sharing, &values, report);
    Some(Function {
        name: function.name,
        settings,
        objects,
    })
}

#[cfg(test)]
impl Function {
    /// The function of a text that has no tables but those of functions, as a host alone reads it.
    pub(crate) fn alone(text: &str) -> (Option<Function>, Report) {
        let sharing = Sharing {
            members: 1,
            instances: 1,
            is_acked: false,
        };
        Function::shared(text, sharing)
    }

    /// As [`Function::alone`], where so many share the state.
    pub(crate) fn shared(text: &str, sharing: Sharing) -> (Option<Function>, Report) {
        let mut report = Report::new("test.toml", text);
        let table = DeTable::parse(text).expect("TOML");
        let mut function = read(table.get_ref(), sharing, Functions::default(), &mut report);
        if let Some(function) = &mut function {
            function.settings.shared_by(sharing);
        }
        (function.filter(|_| report.errors() == 0), report)
    }
}
