//! What every function's settings are to the rest of the program.

use core::fmt::Debug;
use std::path::Path;

use asterism_function::NetworkFunction;

use crate::direction::{Direction, FirstSpeaker};
use crate::error::FunctionError;
use crate::file_error::FileError;
use crate::objects::{ObjectChoice, Sharing};
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::section::Values;

/// Reads a file that a configuration names: its name for people, and its text; or why it cannot be read.
pub type ReadFile<'a> = dyn Fn(&Path) -> Result<(String, String), FileError> + 'a;

/// The names of the fields that differ.
pub(super) fn differing<const COUNT: usize>(fields: [(&'static str, bool); COUNT]) -> Vec<String> {
    let differing = fields.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(name, _)| name.to_owned()).collect()
}

/// Implements what [`FunctionSettings`] says of changes while a host runs, for settings of which these fields may change: each by its
/// key in the table, and the field of the settings that holds it.
macro_rules! changeable {
    ($section:ident: $($key:ident = $field:ident),* $(,)?) => {
        const CHANGEABLE: &'static [&'static str] = &[$($section.keys().$key.name()),*];

        #[allow(clippy::clone_on_copy, clippy::needless_update, reason = "as the settings are")]
        fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
            let with_wanted = Self {
                $($field: wanted.$field.clone(),)*
                ..self.clone()
            };
            (with_wanted == *wanted).then(|| {
                $crate::settings::differing([
                    $(($section.$key.name(), self.$field != wanted.$field),)*
                ])
            })
        }
    };
}
pub(super) use changeable;

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
    fn function(&self, objects: &[ObjectChoice]) -> Result<Self::Function, FunctionError>;

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
