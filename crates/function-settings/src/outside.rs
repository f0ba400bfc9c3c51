//! A function of another crate: how its settings are described, and how they are held beside those of this crate's functions.
//!
//! Everything that is done with a function of whatever kind ([`WithFunction`]) is compiled for the function's own type here too: an outside
//! function has a packet loop of its own, as the others have, and no call of a packet is dynamic. What this crate does with a function is a
//! method of `AnySettings`; what other crates do with one are [`Jobs`], which the program hands over with the function.

use core::any::Any;
use core::fmt::Debug;

use super::{
    Described, DescribedObject, Description, FunctionError, FunctionSettings, ReadFile, Settings,
    Together, WithFunction,
};
use crate::objects::{ObjectChoice, Sharing};
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::section::{Section, Values};

use super::chain::{MakeStage, StageDirection};

/// A network function that a program brings along: implemented by its settings. See `Program` of the crate `asterism`.
pub trait OutsideFunction: FunctionSettings + Send + Sync + 'static {
    /// Its name, as in `[function.NAME]`: words of a-z and 0-9 joined by hyphens, and no name of a function of this crate.
    const NAME: &'static str;
    /// Its fields; the path is `function.NAME`.
    const SECTION: &'static Section;
    /// Its state objects in the order of the state's fields; the path of each one's section is `function.NAME.state.OBJECT`.
    const OBJECTS: &'static [DescribedObject];
    /// Objects that keep a promise together.
    const TOGETHER: &'static [Together] = &[];

    /// Makes the settings of the values read, and adds contradictions to the report. `None` if anything is wrong: each getter of
    /// [`Values`] gives `None` where the report has the mistake already, so `?` is enough.
    fn read(values: &Values, report: &mut Report) -> Option<Self>;
}

/// What other crates do with an outside function, compiled for its type: one value for each crate, found by its type ([`Outside::job`]).
pub type Jobs = &'static [&'static (dyn Any + Send + Sync)];

impl Described {
    /// An outside function, and the jobs that were compiled for it.
    #[must_use]
    pub const fn outside<S: OutsideFunction>(jobs: Jobs) -> Described {
        Described {
            description: Description {
                name: S::NAME,
                settings: S::SECTION,
                objects: S::OBJECTS,
                together: S::TOGETHER,
                build: |values, report| {
                    let settings = Box::new(S::read(values, report)?);
                    Some(Settings::Outside(Outside {
                        settings,
                        jobs: &[],
                    }))
                },
            },
            jobs,
        }
    }
}

/// The settings of an outside function, whatever they are.
pub struct Outside {
    settings: Box<dyn AnySettings>,
    pub(super) jobs: Jobs,
}

impl Outside {
    /// The settings, if they are of this type.
    #[must_use]
    pub fn of<S: OutsideFunction>(&self) -> Option<&S> {
        self.settings.as_any().downcast_ref()
    }
    /// The settings, as a job that was compiled for them takes them.
    ///
    /// # Panics
    /// They are of another type: the program handed over jobs of another function.
    #[must_use]
    pub fn settings<S: OutsideFunction>(&self) -> &S {
        self.of()
            .unwrap_or_else(|| panic!("the jobs of {} are for other settings", S::NAME))
    }
    /// The job of this type.
    ///
    /// # Panics
    /// The program handed none over with the function.
    #[must_use]
    pub fn job<J: 'static>(&self) -> &'static J {
        let found = self.jobs.iter().find_map(|job| job.downcast_ref());
        found.unwrap_or_else(|| panic!("no {} was handed over", core::any::type_name::<J>()))
    }
    /// What the function does, in words.
    #[must_use]
    pub fn words(&self) -> String {
        self.settings.words()
    }
    pub(super) fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
        self.settings.on_real_links(is_written);
    }
    pub(super) fn shared_by(&mut self, sharing: Sharing) {
        self.settings.shared_by(sharing);
    }
    pub(super) fn why_not_passed_by(&self) -> Option<&'static str> {
        self.settings.why_not_passed_by()
    }
    pub(super) fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        self.settings.read_files(read, report);
    }
    pub(super) fn change_to(&self, wanted: &Outside) -> Option<Vec<String>> {
        self.settings.change_to(&*wanted.settings)
    }
    pub(super) fn changeable(&self) -> &'static [&'static str] {
        self.settings.changeable()
    }
    pub(super) fn tells_sides(&self) -> bool {
        self.settings.tells_sides()
    }
    pub(super) fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    ) {
        self.settings.check(objects, sharing, values, report);
    }
    pub(super) fn try_function(&self, objects: &[ObjectChoice]) -> Result<(), FunctionError> {
        self.settings.try_function(objects)
    }
    pub(super) fn stage(&self, make: MakeStage<'_>) -> <MakeStage<'_> as WithFunction>::Output {
        self.settings.stage(make)
    }
    pub(super) fn stage_direction(
        &self,
        direction: StageDirection,
    ) -> <StageDirection as WithFunction>::Output {
        self.settings.stage_direction(direction)
    }
    #[cfg(test)]
    pub(super) fn objects(&self) -> &'static [&'static str] {
        self.settings.objects()
    }
}

impl Clone for Outside {
    fn clone(&self) -> Outside {
        Outside {
            settings: self.settings.boxed(),
            jobs: self.jobs,
        }
    }
}

impl Debug for Outside {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.settings.fmt(formatter)
    }
}

impl PartialEq for Outside {
    fn eq(&self, other: &Outside) -> bool {
        self.settings.is_same(&*other.settings)
    }
}

impl Eq for Outside {}

/// [`OutsideFunction`] by address. One method for each [`WithFunction`], so that each is made for the function's own type.
trait AnySettings: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn boxed(&self) -> Box<dyn AnySettings>;
    fn is_same(&self, other: &dyn AnySettings) -> bool;
    fn words(&self) -> String;
    fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool);
    fn shared_by(&mut self, sharing: Sharing);
    fn why_not_passed_by(&self) -> Option<&'static str>;
    fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report);
    fn change_to(&self, wanted: &dyn AnySettings) -> Option<Vec<String>>;
    fn changeable(&self) -> &'static [&'static str];
    fn tells_sides(&self) -> bool;
    fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    );
    fn try_function(&self, objects: &[ObjectChoice]) -> Result<(), FunctionError>;
    fn stage(&self, make: MakeStage<'_>) -> <MakeStage<'_> as WithFunction>::Output;
    fn stage_direction(
        &self,
        direction: StageDirection,
    ) -> <StageDirection as WithFunction>::Output;
    #[cfg(test)]
    fn objects(&self) -> &'static [&'static str];
}

impl<S: OutsideFunction> AnySettings for S {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn boxed(&self) -> Box<dyn AnySettings> {
        Box::new(self.clone())
    }
    fn is_same(&self, other: &dyn AnySettings) -> bool {
        other.as_any().downcast_ref::<S>() == Some(self)
    }
    fn words(&self) -> String {
        FunctionSettings::words(self)
    }
    fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
        FunctionSettings::on_real_links(self, is_written);
    }
    fn shared_by(&mut self, sharing: Sharing) {
        FunctionSettings::shared_by(self, sharing);
    }
    fn why_not_passed_by(&self) -> Option<&'static str> {
        FunctionSettings::why_not_passed_by(self)
    }
    fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        FunctionSettings::read_files(self, read, report);
    }
    fn change_to(&self, wanted: &dyn AnySettings) -> Option<Vec<String>> {
        FunctionSettings::change_to(self, wanted.as_any().downcast_ref::<S>()?)
    }
    fn changeable(&self) -> &'static [&'static str] {
        S::CHANGEABLE
    }
    fn tells_sides(&self) -> bool {
        FunctionSettings::tells_sides(self)
    }
    fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    ) {
        FunctionSettings::check(self, objects, sharing, values, report);
    }
    fn try_function(&self, objects: &[ObjectChoice]) -> Result<(), FunctionError> {
        super::try_made(self, objects)
    }
    fn stage(&self, make: MakeStage<'_>) -> <MakeStage<'_> as WithFunction>::Output {
        make.with(self)
    }
    fn stage_direction(
        &self,
        direction: StageDirection,
    ) -> <StageDirection as WithFunction>::Output {
        direction.with(self)
    }
    #[cfg(test)]
    fn objects(&self) -> &'static [&'static str] {
        use asterism_function::State;
        <S::Function as asterism_function::NetworkFunction>::State::OBJECTS
    }
}
