//! A chain of functions, made of its stages' settings. How it is written is in `config/chain.rs`.

use core::time::Duration;
use std::sync::Arc;

use asterism_function::chain::{Chain, ChainState, OnFailure, Stage};
use asterism_function::{NetworkFunction, State};

use super::{FunctionError, FunctionSettings, Outside, ReadFile, Settings, WithFunction};
use crate::direction::{Direction, FirstSpeaker, Side};
use crate::objects::{ObjectChoice, Sharing, change_to};
use asterism_notation::value::show_duration;
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, Setting, section};

section! {
    /// What holds for a stage.
    pub static STAGE: StageKeys = {
        path: "stage.NAME",
        meaning: "Settings of a stage of a chain. The top of the file names the stages in the order of packets from inside: chain = [\"port-scan\", \"nat\"]. Packets from outside pass them in reverse. A stage's own settings are in [function.NAME].",
        fields: {
            function: String = Setting {
                kind: Kind::Name,
                default: Default::Unset("the function that the stage is named after"),
                meaning: "The function of the stage; needed where two stages are of one kind.",
            },
            on_failure: ChosenWord = Setting {
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "drop",
                            meaning: "The packet is dropped and counted under the reason.",
                        },
                        Word {
                            word: "bypass",
                            meaning: "The packet goes on unchanged, as without the stage.",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"drop\""),
                meaning: "What happens to a packet when the stage fails: a table or pool of the stage is full, or the stage is late for longer than `wait`. A verdict of the stage is no failure.",
            },
            wait: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_micros(1),
                    most: Duration::from_secs(2),
                },
                default: Default::Is("\"2s\""),
                meaning: "The longest that a packet may be late at the stage.",
            },
            mirror: bool = Setting {
                kind: Kind::Flag,
                default: Default::Is("false"),
                meaning: "Whether the stage gets copies of packets: it delays, changes and drops nothing, and its emissions are not sent.",
            },
        },
    };
}

/// The settings of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSettings {
    /// Its stages, in the order in which packets from inside pass them.
    pub stages: Vec<StageSettings>,
}

/// The settings of a stage of a chain.
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
            (true, _) => "; it gets copies and delays nothing".to_owned(),
            (_, OnFailure::Drop) => String::new(),
            (_, OnFailure::Bypass) => format!(
                "; bypassed when it is full, or late for {}",
                show_duration(self.wait)
            ),
        };
        format!("{}{kind}: {}{way}", self.name, self.settings.words())
    }
}

/// Fields of a stage's place that a running host can take up.
pub const STAGE_CHANGEABLE: &[&str] = &[
    STAGE.keys().on_failure.name(),
    STAGE.keys().wait.name(),
    STAGE.keys().mirror.name(),
];

impl StageSettings {
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let same = (self.name, self.function) == (wanted.name, wanted.function)
            && change_to(&self.objects, &wanted.objects);
        let mut changes = self
            .settings
            .change_to(&wanted.settings, self.name)
            .filter(|_| same)?;
        let of_place = [
            self.on_failure != wanted.on_failure,
            self.wait != wanted.wait,
            self.mirror != wanted.mirror,
        ];
        let fields = STAGE_CHANGEABLE.iter().zip(of_place);
        let fields = fields.filter(|(_, differs)| *differs);
        changes.extend(fields.map(|(field, _)| format!("[stage.{}] {field}", self.name)));
        Some(changes)
    }
}

impl FunctionSettings for ChainSettings {
    type Function = Chain;

    fn function(&self, _: &[ObjectChoice]) -> Result<Chain, FunctionError> {
        let stages = self.stages.iter();
        let stages = stages.map(|stage| stage.settings.with(MakeStage(stage)));
        Ok(Chain::new(stages.collect::<Result<_, _>>()?)?)
    }

    fn words(&self) -> String {
        let stages: Vec<_> = self.stages.iter().map(StageSettings::words).collect();
        stages.join("\n            then ")
    }

    fn shared_by(&mut self, sharing: Sharing) {
        for stage in &mut self.stages {
            stage.settings.shared_by(sharing);
        }
    }

    fn read_files(&mut self, read: &ReadFile<'_>, report: &mut Report) {
        for stage in &mut self.stages {
            stage.settings.read_files(read, report);
        }
    }

    /// What each stage's function can take up, and what holds for its place. Tells the tables too.
    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        if self.stages.len() != wanted.stages.len() {
            return None;
        }
        let stages = self.stages.iter().zip(&wanted.stages);
        let changes: Option<Vec<_>> = stages.map(|(now, then)| now.change_to(then)).collect();
        Some(changes?.into_iter().flatten().collect())
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
    type Output = Result<Stage, FunctionError>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let function = settings.function(&self.0.objects);
        let function = function.map_err(|error| FunctionError::Stage {
            stage: self.0.name,
            error: Box::new(error),
        })?;
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

#[cfg(test)]
mod tests {
    use asterism_engine::InstanceParts;
    use asterism_function::chain::StageTally;
    use asterism_function::{PortNumber, Reason};
    use asterism_functions::cache_digests::icp;
    use asterism_io::frame::FramePool;
    use asterism_io::port::{MemoryPort, Port};
    use asterism_packet::{TcpFlags, build};
    use asterism_placement::Time;

    use super::*;
    use crate::ALL;
    use crate::Function;

    /// What a stage of this kind is asked to be made; the rules of a firewall are written apart.
    fn needed(kind: &str) -> &'static str {
        match kind {
            "nat" => "outside = [\"203.0.113.1\"]",
            "firewall" => "rules = \"rules\"",
            "signature" => "signatures.example = { id = 7, bytes = \"GET /\" }",
            "balancer" => {
                "services.web = { address = \"203.0.113.10:80\", backends = [{ address = \"10.0.0.10\" }] }"
            }
            "limiter" => "sources = { rate = 1_000, burst = 3_000 }",
            "cache-digests" => "caches.a = { address = \"203.0.113.10\" }",
            "pass-through" => "access = \"read-write\"",
            _ => "",
        }
    }

    /// A chain of one stage, all of whose objects answer so late. `None` if such a stage may not be bypassed.
    fn chain(kind: &str, on_failure: &str, delay: &str) -> Option<(Chain, Vec<ObjectChoice>)> {
        let described = ALL.iter().find(|one| one.name == kind).unwrap();
        let mut text = format!(
            "chain = [\"{kind}\"]\n[stage.{kind}]\non_failure = \"{on_failure}\"\nwait = \"2ms\"\n[function.{kind}]\n{}\n",
            needed(kind)
        );
        for object in described.objects {
            let may_be_late = object
                .section
                .fields
                .iter()
                .any(|one| one.name == crate::CHOICE.delay.name());
            if may_be_late {
                let name = object.name;
                text.push_str(&format!(
                    "[function.{kind}.state.{name}]\nplacement = \"late\"\ndelay = \"{delay}\"\n"
                ));
            }
        }
        let (function, mut report) = Function::alone(&text);
        let Some(mut function) = function else {
            let said = report.render(false);
            assert!(said.contains("packets cannot go past a stage"), "{said}");
            return None;
        };
        let rules = |_: &std::path::Path| Ok(("rules".to_owned(), "default allow".to_owned()));
        function.settings.read_files(&rules, &mut report);
        assert_eq!(report.errors(), 0, "{}", report.render(false));
        let Settings::Chain(settings) = &function.settings else {
            panic!("a chain")
        };
        let made = settings.function(&function.objects).unwrap();
        Some((made, function.objects))
    }

    /// A connection's first packet, to the balancer's service; or a query to a cache. For those that look at contents, it ends as a
    /// signature begins.
    fn packet(kind: &str) -> Vec<u8> {
        let payload: &[u8] = match kind {
            "signature" => b"first GE",
            _ => b"",
        };
        let mut bytes = vec![0; 256];
        let between = build::Header4::between([10, 0, 0, 2].into(), [203, 0, 113, 10].into());
        if kind == "cache-digests" {
            let mut query = [0; 64];
            let length = icp::write_query(7, b"http://a.example/", &mut query).unwrap();
            let length = build::udp4(&between, 4_000, 3_130, &query[..length], &mut bytes);
            bytes.truncate(length.unwrap());
            return bytes;
        }
        let segment = build::Segment::with_flags(TcpFlags::SYN);
        let length = build::tcp4(&between, 4_000, 80, &segment, payload, &mut bytes);
        bytes.truncate(length.unwrap());
        bytes
    }

    /// What became of one packet that came from inside, 50 ms later.
    struct Passed {
        /// Bytes that left by `outside`.
        left: u64,
        dropped: u64,
        parked: usize,
        stage: StageTally,
    }

    fn pass(kind: &str, (chain, objects): (Chain, Vec<ObjectChoice>)) -> Passed {
        let mut inside = MemoryPort::new("inside");
        inside.feed(packet(kind));
        let ports: Vec<Box<dyn Port>> =
            vec![Box::new(inside), Box::new(MemoryPort::new("outside"))];
        let settings = move |name: &str| {
            let choice = objects.iter().find(|choice| choice.name == name);
            choice.unwrap().settings()
        };
        let pool = FramePool::new(512).unwrap();
        let mut instance = InstanceParts::alone(7).start(Arc::new(chain), settings, pool, ports);
        for turn in 1..=100 {
            instance.turn(Time::from_micros(turn * 500));
        }
        let outside = instance.port_mut(PortNumber(1)).unwrap().statistics();
        let stage = instance.stage_tallies().next().unwrap().clone();
        Passed {
            left: outside.sent_bytes,
            dropped: instance.tally().dropped(Reason::StageLate),
            parked: instance.tally().parked,
            stage,
        }
    }

    /// A stage whose state does not answer holds a packet up for `wait` and no longer, whatever function it is: then it is dropped,
    /// or goes on as it was where that is allowed.
    #[test]
    fn a_stage_of_any_kind_that_does_not_answer_fails() {
        let (mut failed, mut bypassed) = (Vec::new(), Vec::new());
        for kind in ALL.iter().map(|one| one.name) {
            let passed = pass(kind, chain(kind, "drop", "900ms").unwrap());
            assert_eq!(passed.parked, 0, "{kind}");
            if passed.stage.late == 0 {
                // It asks for nothing that could be late.
                assert_eq!(passed.stage.acted, 1, "{kind}");
                continue;
            }
            failed.push(kind);
            assert_eq!((passed.left, passed.dropped), (0, 1), "{kind}");
            assert_eq!(passed.stage.dropped(Reason::StageLate), 1, "{kind}");
            assert_eq!(passed.stage.bypassed, 0, "{kind}");
            // A little late is no failure.
            let passed = pass(kind, chain(kind, "drop", "100us").unwrap());
            assert_eq!(passed.stage.dropped(Reason::StageLate), 0, "{kind}");
            assert_eq!((passed.stage.acted, passed.parked), (1, 0), "{kind}");

            let Some(made) = chain(kind, "bypass", "900ms") else {
                continue;
            };
            bypassed.push(kind);
            let passed = pass(kind, made);
            assert_eq!(passed.left, packet(kind).len() as u64, "{kind}");
            assert_eq!((passed.dropped, passed.stage.bypassed), (0, 1), "{kind}");
        }
        let all = [
            "nat",
            "firewall",
            "balancer",
            "port-scan",
            "signature",
            "monitor",
            "limiter",
            "cache-digests",
            "pass-through",
        ];
        assert_eq!(failed, all);
        assert_eq!(
            bypassed,
            [
                "port-scan",
                "signature",
                "monitor",
                "limiter",
                "cache-digests",
                "pass-through"
            ]
        );
    }
}
