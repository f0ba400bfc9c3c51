//! How a chain of functions is written: `chain = ["port-scan", "nat"]` at the top of the file, a table `[function.NAME]` for each
//! stage, and `[stage.NAME]` for the settings of its place in the chain.

use core::ops::Range;
use core::time::Duration;

use asterism_function::chain::{OnFailure, STAGES_MAX};
use asterism_state::OBJECTS_MAX;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::function::read_settings;
use super::objects::{ObjectChoice, Sharing};
use super::{ChainSettings, Described, Function, Functions, STAGE, Settings, StageSettings};
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;

/// A stage as it is named in the chain.
struct Named {
    name: String,
    span: Range<usize>,
}

/// Reads a chain. `None` if anything in it is wrong; the report says what.
pub(super) fn read(
    document: &DeTable<'_>,
    (key, value): (Range<usize>, &Spanned<DeValue<'_>>),
    sharing: Sharing,
    known: Functions,
    report: &mut Report,
) -> Option<Function> {
    let before = report.errors();
    let names = read_names(key.clone(), value, report)?;
    let empty = DeTable::new();
    let tables = |table: &str| match table::get(document, table).map(|(_, value)| value.get_ref()) {
        Some(DeValue::Table(tables)) => tables.clone(),
        _ => empty.clone(),
    };
    let (functions, stages) = (tables("function"), tables("stage"));
    for (table, what) in [(&functions, "function"), (&stages, "stage")] {
        check_named(table, what, &names, report);
    }
    let read: Vec<Option<StageSettings>> = names
        .iter()
        .map(|named| read_stage(named, (&functions, &stages), sharing, known, report))
        .collect();
    let stages: Option<Vec<StageSettings>> = read.into_iter().collect();
    if report.errors() > before {
        return None;
    }
    let stages = stages?;
    let objects: Vec<ObjectChoice> = stages.iter().flat_map(named).collect();
    if objects.len() > OBJECTS_MAX {
        report.add(
            Diagnostic::error(
                format!("the stages have {} state objects together", objects.len()),
                value.span(),
            )
            .label(format!("a chain has at most {OBJECTS_MAX}"))
            .help("leave a stage out, or run it in a cluster of its own before or behind this one"),
        );
        return None;
    }
    Some(Function {
        name: "chain",
        settings: Settings::Chain(ChainSettings { stages }),
        objects,
    })
}

/// A function as the one stage of a chain, past which packets go when they are late at it for so long. Its objects get
/// the names `STAGE.OBJECT`.
#[must_use]
pub fn passed_by(function: &Function, wait: Duration) -> Function {
    let stage = StageSettings {
        name: function.name,
        function: function.name,
        settings: function.settings.clone(),
        objects: function.objects.clone(),
        on_failure: OnFailure::Bypass,
        wait,
        mirror: false,
    };
    Function {
        name: "chain",
        objects: named(&stage).collect(),
        settings: Settings::Chain(ChainSettings {
            stages: vec![stage],
        }),
    }
}

/// The objects of a stage, by the names that they have in a chain.
fn named(stage: &StageSettings) -> impl Iterator<Item = ObjectChoice> {
    stage.objects.iter().map(|object| ObjectChoice {
        name: kept(format!("{}.{}", stage.name, object.name)),
        ..*object
    })
}

fn read_names(
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    report: &mut Report,
) -> Option<Vec<Named>> {
    let DeValue::Array(items) = value.get_ref() else {
        report.add(
            Diagnostic::error("`chain` is a list of stages", value.span())
                .help("write chain = [\"port-scan\", \"nat\"], in the order in which packets from inside pass them"),
        );
        return None;
    };
    if items.is_empty() || items.len() > STAGES_MAX {
        report.add(
            Diagnostic::error(
                format!("a chain has 1 to {STAGES_MAX} stages, not {}", items.len()),
                key,
            )
            .help("write chain = [\"port-scan\", \"nat\"]"),
        );
        return None;
    }
    let mut names: Vec<Named> = Vec::new();
    for item in items {
        let DeValue::String(name) = item.get_ref() else {
            report.add(
                Diagnostic::error("a stage is named in double quotes", item.span())
                    .help("write chain = [\"port-scan\", \"nat\"]"),
            );
            return None;
        };
        if let Some(first) = names.iter().find(|named| named.name == name.as_ref()) {
            report.add(
                Diagnostic::error(format!("a second stage \"{name}\""), item.span())
                    .also(first.span.clone(), "the first")
                    .help(format!(
                        "give it another name, such as \"{name}-2\", and say what it is: [stage.{name}-2] with function = \"{name}\""
                    )),
            );
            continue;
        }
        names.push(Named {
            name: name.to_string(),
            span: item.span(),
        });
    }
    Some(names)
}

/// Tables of stages that the chain does not name.
fn check_named(table: &DeTable<'_>, what: &str, names: &[Named], report: &mut Report) {
    for (name, _) in table {
        let known = || names.iter().map(|named| named.name.as_str());
        if known().any(|known| known == name.get_ref().as_ref()) {
            continue;
        }
        let mut unknown = Diagnostic::error(
            format!("the chain has no stage \"{}\"", name.get_ref()),
            name.span(),
        );
        if let Some(near) = suggestion::nearest(name.get_ref(), known()) {
            unknown = unknown.help(format!("did you mean [{what}.{near}]?"));
        }
        report.add(unknown.help(format!(
            "its stages are {}: leave the table out, or add its name to `chain`",
            suggestion::quoted(known()).replace(" or ", " and ")
        )));
    }
}

fn read_stage(
    named: &Named,
    (functions, stages): (&DeTable<'_>, &DeTable<'_>),
    sharing: Sharing,
    known: Functions,
    report: &mut Report,
) -> Option<StageSettings> {
    let name = named.name.as_str();
    let empty = DeTable::new();
    let (table, span) = match table::get(stages, name).map(|(key, value)| (key, value.get_ref())) {
        Some((key, DeValue::Table(table))) => (table, key.span()),
        Some((key, _)) => {
            report.add(
                Diagnostic::error(format!("`{name}` is a table"), key.span())
                    .help(format!("write [stage.{name}] on a line of its own")),
            );
            return None;
        }
        None => (&empty, named.span.clone()),
    };
    let values = STAGE
        .section()
        .read(&format!("stage.{name}"), table, span, report);
    let described = described(named, &values, known, report)?;
    let nothing = Spanned::new(named.span.clone(), DeValue::Table(DeTable::new()));
    let (key, settings) = match table::get(functions, name) {
        Some((key, value)) => (key.span(), value),
        None => (named.span.clone(), &nothing),
    };
    let place = key.clone();
    let function = read_settings(described, name, (key, settings), sharing, report);
    let mirror = values.get(STAGE.mirror)?;
    let on_failure = match values.get(STAGE.on_failure)? {
        "bypass" => OnFailure::Bypass,
        _ => OnFailure::Drop,
    };
    let function = function?;
    check_ways(&values, described, &function.settings, report);
    if let Settings::Balancer(balancer) = &function.settings
        && balancer.checks_backends()
    {
        report.add(
            Diagnostic::error("a balancer in a chain cannot check its backends", place)
                .help("leave `check` out of its services, or run it in a cluster of its own before or behind the chain"),
        );
    }
    Some(StageSettings {
        name: kept(name.to_owned()),
        function: described.name,
        settings: function.settings,
        objects: function.objects,
        on_failure,
        wait: values.get(STAGE.wait)?,
        mirror,
    })
}

/// What function a stage is.
fn described(
    named: &Named,
    values: &Values,
    functions: Functions,
    report: &mut Report,
) -> Option<&'static Described> {
    let written = values.get(STAGE.function);
    let kind = written.as_deref().unwrap_or(&named.name);
    let names = || functions.names();
    if let Some(function) = functions.find(kind) {
        return Some(function);
    }
    let span = match values.place(STAGE.function) {
        Some(place) => place.value.clone(),
        None => named.span.clone(),
    };
    let mut unknown = Diagnostic::error(format!("there is no network function `{kind}`"), span);
    if let Some(near) = suggestion::nearest(kind, names()) {
        unknown = unknown.help(format!("did you mean \"{near}\"?"));
    }
    let functions = suggestion::quoted(names()).replace(" or ", " and ");
    report.add(
        unknown
            .help(format!("functions are {functions}"))
            .help(format!(
                "a stage of another name names its function: [stage.{}] with function = \"nat\"",
                named.name
            )),
    );
    None
}

/// Refuses ways to go round a stage that its function cannot bear, or that say nothing.
fn check_ways(values: &Values, described: &Described, settings: &Settings, report: &mut Report) {
    let mirror = values.get(STAGE.mirror) == Some(true);
    if mirror && let Some(place) = values.place(STAGE.on_failure) {
        report.add(
            Diagnostic::error("a stage that gets copies delays nothing", place.key.clone())
                .help("leave `on_failure` out, or mirror = true"),
        );
    }
    let Some(why) = settings.why_not_passed_by() else {
        return;
    };
    let bypass = values.get(STAGE.on_failure) == Some("bypass");
    for (passed_by, field, instead) in [
        (
            bypass,
            STAGE.on_failure.field_name(),
            "write on_failure = \"drop\"",
        ),
        (mirror, STAGE.mirror.field_name(), "leave `mirror` out"),
    ] {
        if passed_by {
            report.add(
                Diagnostic::error(
                    format!(
                        "packets cannot go past a stage that is a `{}`",
                        described.name
                    ),
                    values.span_of(field),
                )
                .label(why)
                .help(instead),
            );
        }
    }
}

/// A name for as long as the process lives; each is kept once a thread.
fn kept(name: String) -> &'static str {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    std::thread_local! {
        static KEPT: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
    }
    KEPT.with_borrow_mut(|names| match names.get(name.as_str()) {
        Some(known) => known,
        None => {
            let kept = &*name.leak();
            names.insert(kept);
            kept
        }
    })
}
