//! A function of another crate: how its settings are described, and how they are held beside those of this crate's functions.
//!
//! Anyone who does something with a function of whatever kind ([`WithFunction`]) is made for the function's own type also here: an
//! outside function has a packet loop of its own, as the others have, and nothing is called by address for a packet.

use core::any::Any;
use core::fmt::Debug;

use super::{
    Described, DescribedObject, FunctionSettings, ReadFile, Settings, Together, WithFunction,
};
use crate::config::diagnostic::Report;
use crate::config::objects::{ObjectChoice, Sharing};
use crate::config::section::{Section, Values};
use crate::replay;
use crate::run;
use crate::scenario;

use super::chain::{MakeStage, StageDirection};

/// A network function that a program brings along: implemented by its settings. See [`Program`](crate::program::Program).
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

impl Described {
    /// An outside function.
    #[must_use]
    pub const fn outside<S: OutsideFunction>() -> Described {
        Described {
            name: S::NAME,
            settings: S::SECTION,
            objects: S::OBJECTS,
            together: S::TOGETHER,
            build: |values, report| {
                let settings = S::read(values, report)?;
                Some(Settings::Outside(Outside(Box::new(settings))))
            },
        }
    }
}

/// The settings of an outside function, whatever they are.
pub struct Outside(Box<dyn AnySettings>);

impl Outside {
    /// The settings, if they are of this type.
    #[must_use]
    pub fn of<S: OutsideFunction>(&self) -> Option<&S> {
        self.0.as_any().downcast_ref()
    }
    /// What the function does, in words.
    #[must_use]
    pub fn words(&self) -> String {
        self.0.words()
    }
    pub(super) fn on_real_links(&mut self, is_written: &dyn Fn(&str, &str) -> bool) {
        self.0.on_real_links(is_written);
    }
    pub(super) fn shared_by(&mut self, sharing: Sharing) {
        self.0.shared_by(sharing);
    }
    pub(super) fn why_not_passed_by(&self) -> Option<&'static str> {
        self.0.why_not_passed_by()
    }
    pub(super) fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        self.0.read_files(read, report);
    }
    pub(super) fn change_to(&self, wanted: &Outside) -> Option<Vec<String>> {
        self.0.change_to(&*wanted.0)
    }
    pub(super) fn changeable(&self) -> &'static [&'static str] {
        self.0.changeable()
    }
    pub(super) fn tells_sides(&self) -> bool {
        self.0.tells_sides()
    }
    pub(super) fn check(
        &self,
        objects: &[ObjectChoice],
        sharing: Sharing,
        values: &Values,
        report: &mut Report,
    ) {
        self.0.check(objects, sharing, values, report);
    }
    pub(crate) fn run(&self, run: run::Run<'_, '_>) -> <run::Run<'_, '_> as WithFunction>::Output {
        self.0.run(run)
    }
    pub(crate) fn replay(
        &self,
        replay: replay::Configured<'_>,
    ) -> <replay::Configured<'_> as WithFunction>::Output {
        self.0.replay(replay)
    }
    pub(crate) fn test(
        &self,
        test: scenario::Tested<'_>,
    ) -> <scenario::Tested<'_> as WithFunction>::Output {
        self.0.test(test)
    }
    pub(crate) fn copies(
        &self,
        copies: run::reload::Copies<'_>,
    ) -> <run::reload::Copies<'_> as WithFunction>::Output {
        self.0.copies(copies)
    }
    pub(super) fn stage(&self, make: MakeStage<'_>) -> <MakeStage<'_> as WithFunction>::Output {
        self.0.stage(make)
    }
    pub(super) fn stage_direction(
        &self,
        direction: StageDirection,
    ) -> <StageDirection as WithFunction>::Output {
        self.0.stage_direction(direction)
    }
    #[cfg(test)]
    pub(super) fn objects(&self) -> &'static [&'static str] {
        self.0.objects()
    }
}

impl Clone for Outside {
    fn clone(&self) -> Outside {
        Outside(self.0.boxed())
    }
}

impl Debug for Outside {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(formatter)
    }
}

impl PartialEq for Outside {
    fn eq(&self, other: &Outside) -> bool {
        self.0.is_same(&*other.0)
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
    fn run(&self, run: run::Run<'_, '_>) -> <run::Run<'_, '_> as WithFunction>::Output;
    fn replay(
        &self,
        replay: replay::Configured<'_>,
    ) -> <replay::Configured<'_> as WithFunction>::Output;
    fn test(&self, test: scenario::Tested<'_>) -> <scenario::Tested<'_> as WithFunction>::Output;
    fn copies(
        &self,
        copies: run::reload::Copies<'_>,
    ) -> <run::reload::Copies<'_> as WithFunction>::Output;
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
    fn run(&self, run: run::Run<'_, '_>) -> <run::Run<'_, '_> as WithFunction>::Output {
        run.with(self)
    }
    fn replay(
        &self,
        replay: replay::Configured<'_>,
    ) -> <replay::Configured<'_> as WithFunction>::Output {
        replay.with(self)
    }
    fn test(&self, test: scenario::Tested<'_>) -> <scenario::Tested<'_> as WithFunction>::Output {
        test.with(self)
    }
    fn copies(
        &self,
        copies: run::reload::Copies<'_>,
    ) -> <run::reload::Copies<'_> as WithFunction>::Output {
        copies.with(self)
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
