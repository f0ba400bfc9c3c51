//! Functions past which packets go while their store is away: `when_down = "bypass"`.

use asterism_function::chain::OnFailure;
use toml::de::DeTable;

use super::fields::{BYPASS, SERVE_KNOWN, STORE};
use asterism_function_settings::{
    Function, ObjectChoice, Placement, STAGE, Settings, StageSettings, passed_by,
};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;
use asterism_toml_schema::table;

/// Lets packets go past the functions that have objects in the store, if that is what `[store]` says: those that are no stage of a chain
/// become one.
pub(super) fn read(
    document: &DeTable<'_>,
    values: &Values,
    function: &mut Function,
    report: &mut Report,
) -> Option<()> {
    let when_down = values.get(STORE.when_down)?;
    for (field, word) in [
        (STORE.known_for.field_name(), SERVE_KNOWN.word),
        (STORE.bypass_after.field_name(), BYPASS.word),
    ] {
        if when_down != word && values.place(field).is_some() {
            let error = format!("this holds with when_down = \"{word}\" alone");
            let error = Diagnostic::error(error, values.span_of(field));
            report.add(error.help("add that to [store], or leave this out"));
        }
    }
    if when_down != BYPASS.word {
        return Some(());
    }
    let wait = values.get(STORE.bypass_after)?;
    let mut pass_by = |name: &str, settings: &Settings| match settings.why_not_passed_by() {
        None => true,
        Some(why) => {
            let error = Diagnostic::error(
                format!("packets cannot go past `{name}`"),
                values.span_of(STORE.when_down),
            );
            report.add(error.label(why).help(
                "write when_down = \"drop\"; or \"serve-known\", with which known flows go on",
            ));
            false
        }
    };
    let Settings::Chain(chain) = &mut function.settings else {
        if pass_by(function.name, &function.settings) {
            *function = passed_by(function, wait);
        }
        return Some(());
    };
    let is_remote = |object: &ObjectChoice| object.placement == Placement::Remote;
    let is_stored = |stage: &&mut StageSettings| stage.objects.iter().any(is_remote);
    for stage in chain.stages.iter_mut().filter(is_stored) {
        // What is said of a stage itself holds for it.
        let says = |field| table::place(document, &["stage", stage.name, field]).is_some();
        if stage.mirror || says(STAGE.keys().on_failure.name()) {
            continue;
        }
        if pass_by(stage.name, &stage.settings) {
            stage.on_failure = OnFailure::Bypass;
            if !says(STAGE.keys().wait.name()) {
                stage.wait = wait;
            }
        }
    }
    Some(())
}
