//! A chain of functions, made of its stages' settings. How it is written is in `config/chain.rs`.

use core::time::Duration;
use std::sync::Arc;

use asterism_function::chain::{Chain, ChainState, OnFailure, Stage};
use asterism_function::{NetworkFunction, State};

use super::{FunctionSettings, Outside, ReadFile, Settings, WithFunction};
use crate::config::diagnostic::Report;
use crate::config::objects::ObjectChoice;
use crate::config::value::show_duration;
use crate::replay::{Direction, FirstSpeaker, Side};

/// What a chain is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSettings {
    /// Its stages, in the order in which packets from inside pass them.
    pub stages: Vec<StageSettings>,
}

/// What a stage of a chain is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSettings {
    /// Its name.
    pub name: &'static str,
    /// What function it is.
    pub function: &'static str,
    /// The function's settings.
    pub settings: Settings,
    /// Its state objects, by the names that the function gives them.
    pub objects: Vec<ObjectChoice>,
    /// What becomes of a packet when it fails.
    pub on_failure: OnFailure,
    /// How long a packet may be late at it.
    pub wait: Duration,
    /// Whether it gets copies.
    pub mirror: bool,
}

impl StageSettings {
    fn words(&self) -> String {
        let kind = if self.name == self.function {
            String::new()
        } else {
            format!(" ({})", self.function)
        };
        let way = match (self.mirror, self.on_failure) {
            (true, _) => "; it gets copies and holds nothing up".to_owned(),
            (_, OnFailure::Drop) => String::new(),
            (_, OnFailure::Bypass) => format!(
                "; bypassed when it is full, or late for {}",
                show_duration(self.wait)
            ),
        };
        format!("{}{kind}: {}{way}", self.name, self.settings.words())
    }
}

impl FunctionSettings for ChainSettings {
    type Function = Chain;

    fn function(&self, _: &[ObjectChoice]) -> Result<Chain, String> {
        let stages = self.stages.iter();
        let stages = stages.map(|stage| stage.settings.with(MakeStage(stage)));
        Chain::new(stages.collect::<Result<_, _>>()?).map_err(|error| error.to_string())
    }

    fn words(&self) -> String {
        let stages: Vec<_> = self.stages.iter().map(StageSettings::words).collect();
        stages.join("\n            then ")
    }

    fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        for stage in &mut self.stages {
            stage.settings.read_files(read, report);
        }
    }

    /// Nothing: a stage's function is kept with its state.
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let same = |now: &StageSettings, wanted: &StageSettings| {
            // Files are named at other places of a configuration that only moved.
            let with_wanted = StageSettings {
                settings: wanted.settings.clone(),
                ..now.clone()
            };
            now.settings.change_to(&wanted.settings) == Some(Vec::new()) && with_wanted == *wanted
        };
        let mut stages = self.stages.iter().zip(&wanted.stages);
        let all = self.stages.len() == wanted.stages.len()
            && stages.all(|(now, wanted)| same(now, wanted));
        all.then(Vec::new)
    }

    /// As its first stage tells that knows by addresses; else as functions alone.
    fn direction(&self) -> Box<dyn Direction<Chain>> {
        let knows = |stage: &StageSettings| stage.settings.tells_sides();
        match self.stages.iter().position(knows) {
            Some(number) => self.stages[number].settings.with(StageDirection(number)),
            None => Box::new(FirstSpeaker::default()),
        }
    }
}

pub(super) struct MakeStage<'a>(&'a StageSettings);

impl WithFunction for MakeStage<'_> {
    type Output = Result<Stage, String>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let function = settings.function(&self.0.objects);
        let function = function.map_err(|error| format!("stage {}: {error}", self.0.name))?;
        let stage = Stage::new(self.0.name, Arc::new(function))
            .on_failure(self.0.on_failure)
            .waits_at_most(u64::try_from(self.0.wait.as_micros()).unwrap_or(u64::MAX));
        Ok(if self.0.mirror {
            stage.mirrors()
        } else {
            stage
        })
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        settings.stage(self)
    }
}

/// Where packets come in, as a stage of this number tells.
pub(super) struct StageDirection(usize);

impl WithFunction for StageDirection {
    type Output = Box<dyn Direction<Chain>>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        Box::new(OfStage {
            number: self.0,
            direction: settings.direction(),
        })
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        settings.stage_direction(self)
    }
}

struct OfStage<F: NetworkFunction> {
    number: usize,
    direction: Box<dyn Direction<F>>,
}

impl<F: NetworkFunction> Direction<Chain> for OfStage<F>
where
    F::State: State,
{
    fn side(&mut self, bytes: &mut [u8], states: &mut dyn Iterator<Item = &ChainState>) -> Side {
        let number = self.number;
        let mut states = states.filter_map(|state| state.stage(number));
        self.direction.side(bytes, &mut states)
    }
}
