//! Scans: the update of a source's history by a packet, and whether the history is a scan then.
//!
//! No instance needs to see both directions: one may learn from the probe, and another from its answer.

use asterism_function::objects::TableAct;
use asterism_function::{Ask, At, Builder, Entry, Late, Map, Single, State, Tick};

use crate::bits::{host_bit, port_bit};
use crate::evidence::{converses, exempt_marks, is_answered, marks};
use crate::history::{Class, DetectedScan, Scanner, Set, SourceHistory, Thresholds, WindowBits};
use crate::mutant::{self, Mutant};
use crate::observation::{Observation, What};
use crate::sources::Sources;

/// What each source probed lately: see [`Scans::table`].
pub type SourceHistories = Map<Scanner, SourceHistory>;

/// How scans are found.
#[derive(Clone, Debug)]
pub struct Scans {
    window_s: Tick,
    thresholds: Thresholds,
    /// Of UDP, if its scans are looked for.
    udp: Option<Thresholds>,
    sources: Sources,
}

impl Scans {
    /// Evidence counts in the current window of so many seconds and in the one before. Window and thresholds of zero are taken as one.
    #[must_use]
    pub fn new(window_s: Tick, thresholds: Thresholds) -> Self {
        Self {
            window_s: window_s.max(1),
            thresholds: thresholds.bounded(),
            udp: Some(Thresholds::UDP),
            sources: Sources::default(),
        }
    }

    /// The same with other thresholds for UDP than [`Thresholds::UDP`], or without looking for scans by UDP.
    #[must_use]
    pub fn with_udp(self, thresholds: Option<Thresholds>) -> Self {
        let udp = thresholds.map(Thresholds::bounded);
        Self { udp, ..self }
    }

    /// The same with what sources are one, and which of them leave no evidence.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// What sources are one, and which leave no evidence.
    #[inline(always)]
    #[must_use]
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whose history an observation is about.
    #[inline(always)]
    fn scanner(&self, observation: &Observation) -> Scanner {
        Scanner {
            host: self.sources.one(observation.scanner),
            class: observation.class,
        }
    }

    /// Whether the scanner is exempt and its history is not its own alone, so that it may leave no evidence against others.
    #[inline]
    fn is_exempt_among_others(&self, observation: &Observation) -> bool {
        self.sources.one(observation.scanner) != observation.scanner
            && self.sources.is_exempt(observation.scanner)
    }

    /// The table `histories`: up to four for each source that is active within two windows, some 200 bytes each; at most `histories_max` over
    /// the whole cluster.
    #[must_use]
    pub fn table(&self, builder: &Builder, histories_max: u32) -> SourceHistories {
        let idle = self.window_s.saturating_mul(2);
        builder.table("histories", histories_max, &[idle])
    }

    /// The number of the current window.
    #[inline(always)]
    fn epoch<S: State>(&self, ask: &Ask<'_, S>) -> u32 {
        ask.now() / self.window_s
    }

    /// Whether an observation may add to what is known, so that [`Scans::learn`] is due. Looks at the words that it needs where they lie and
    /// reserves nothing: all that a quiet flow costs.
    #[inline(always)]
    pub fn teaches<S: State>(
        &self,
        ask: &Ask<'_, S>,
        histories: &SourceHistories,
        observation: &Observation,
    ) -> Result<bool, Late> {
        if observation.class == Class::Udp && self.udp.is_none() {
            return Ok(false);
        }
        let epoch = self.epoch(ask);
        let own = histories.get(&self.scanner(observation));
        match observation.what {
            What::Engaged => Ok(own?.is_some_and(|known| {
                let history = &known.value;
                let (host, port) = (
                    host_bit(ask, observation.target),
                    port_bit(ask, observation.port),
                );
                (history.knows(epoch, Set::PortsProbed, port)
                    || history.knows(epoch, Set::PortsNamed, port))
                    && !(history.has(epoch, Set::HostsEngaged, host)
                        && history.has(epoch, Set::PortsAnswered, port))
            })),
            What::Accepted => Ok(match own? {
                None => observation.class == Class::Tcp,
                Some(known) => {
                    let (host, port) = (
                        host_bit(ask, observation.target),
                        port_bit(ask, observation.port),
                    );
                    !(known.value.has(epoch, Set::HostsAccepted, host)
                        && known.value.has(epoch, Set::PortsAnswered, port))
                }
            }),
            What::Datagram => {
                // A flow that goes on is known to the history of the side that began it.
                let probe = own.map(|known| {
                    known.is_some_and(|known| {
                        let (host, port) = (
                            host_bit(ask, observation.target),
                            port_bit(ask, observation.port),
                        );
                        let history = &known.value;
                        history.has(epoch, Set::HostsProbed, host)
                            && history.has(epoch, Set::PortsProbed, port)
                            && history.has(epoch, Set::PORTS_USED, port_bit(ask, observation.from))
                    })
                });
                let answer = histories
                    .get(&self.scanner(&observation.answered()))
                    .map(|known| {
                        known.map(|known| {
                            let history = &known.value;
                            let (host, port) = (
                                host_bit(ask, observation.scanner),
                                port_bit(ask, observation.from),
                            );
                            let to = port_bit(ask, observation.port);
                            let is_answer = is_answered(history, epoch, host, to);
                            let is_known = history.has(epoch, Set::HostsAccepted, host)
                                && history.has(epoch, Set::HostsProbed, host)
                                && history.has(epoch, Set::PORTS_USED, to)
                                && history.has(epoch, Set::PortsAnswered, port);
                            (is_answer, is_known, converses(history, epoch, host))
                        })
                    });
                Ok(match ask.all((probe, answer))? {
                    (_, Some((true, is_known, _))) => !is_known,
                    (is_known, other) => !is_known || matches!(other, Some((_, _, true))),
                })
            }
            _ => own.map(|_| true),
        }
    }

    /// What an observation adds to its history, and what the history amounts to then.
    pub fn learn<S: State>(
        &self,
        ask: &Ask<'_, S>,
        histories: &SourceHistories,
        observation: &Observation,
    ) -> Result<HistoryUpdate, Late> {
        let epoch = self.epoch(ask);
        let Subject {
            observation,
            known,
            converses,
        } = self.subject(ask, histories, observation)?;
        let known_history = known.as_ref().map(|known| &known.value);
        let Some(marks) = self.evidence(ask, epoch, &observation, known_history) else {
            return Ok(HistoryUpdate {
                converses,
                ..HistoryUpdate::default()
            });
        };
        let history = known
            .map_or_else(SourceHistory::default, |known| known.value)
            .marked(epoch, &marks);
        let changed = match known {
            Some(known) if known.value == history => None,
            _ => Some((
                histories.entry_at(known, self.scanner(&observation))?,
                history,
            )),
        };
        let judged = judged_history(history, epoch, &marks);
        Ok(HistoryUpdate {
            detected: self.judge(&observation, epoch, &judged),
            changed,
            converses,
        })
    }

    /// Whose history an observation is about: a datagram that answers is about that of the host that it answers.
    #[inline]
    fn subject<S: State>(
        &self,
        ask: &Ask<'_, S>,
        histories: &SourceHistories,
        observation: &Observation,
    ) -> Result<Subject, Late> {
        let own = histories.get(&self.scanner(observation));
        if observation.what != What::Datagram {
            return Ok(Subject {
                observation: *observation,
                known: own?,
                converses: None,
            });
        }
        let epoch = self.epoch(ask);
        let answer = observation.answered();
        let (own, other) = ask.all((own, histories.get(&self.scanner(&answer))))?;
        let host = host_bit(ask, observation.scanner);
        if let Some(at) = &other
            && is_answered(&at.value, epoch, host, port_bit(ask, observation.port))
        {
            return Ok(Subject {
                observation: answer,
                known: other,
                converses: None,
            });
        }
        let converses = match &other {
            Some(at)
                if converses(&at.value, epoch, host)
                    && self.scanner(&answer) != self.scanner(observation) =>
            {
                let marks = WindowBits::default().with(Set::HostsAccepted, host);
                let history = at.value.marked(epoch, &marks);
                let room = histories.entry_at(other, self.scanner(&answer))?;
                Some((room, history))
            }
            _ => None,
        };
        Ok(Subject {
            observation: *observation,
            known: own,
            converses,
        })
    }

    /// The sets that an observation adds to; `None` if it adds nothing to what is known.
    #[inline]
    fn evidence<S: State>(
        &self,
        ask: &Ask<'_, S>,
        epoch: u32,
        observation: &Observation,
        known: Option<&SourceHistory>,
    ) -> Option<WindowBits> {
        if only_clears(observation.what) && mutant::active(Mutant::AcceptedIgnored) {
            return None;
        }
        match self.is_exempt_among_others(observation) && !only_clears(observation.what) {
            true => exempt_marks(ask, epoch, observation, known),
            false => marks(ask, epoch, observation, known),
        }
    }

    /// The scan that a history amounts to after an observation, if it does.
    #[inline]
    fn judge(
        &self,
        observation: &Observation,
        epoch: u32,
        history: &SourceHistory,
    ) -> Option<DetectedScan> {
        if only_clears(observation.what) {
            return None;
        }
        let thresholds = match observation.class {
            Class::Udp => self.udp,
            _ => Some(self.thresholds),
        };
        history.judge(observation.class, epoch, thresholds?)
    }
}

/// The history that an observation is about.
struct Subject {
    /// As it is of that history's source.
    observation: Observation,
    known: Option<At<Single<Scanner>, SourceHistory>>,
    /// What the history of the host that was sent to gets.
    converses: Option<Change>,
}

/// Whether an observation only ever speaks for its source.
#[inline(always)]
fn only_clears(what: What) -> bool {
    matches!(what, What::Accepted | What::Engaged | What::Expired)
}

/// The history that is judged: with the evidence of all instances.
#[inline]
fn judged_history(history: SourceHistory, epoch: u32, marks: &WindowBits) -> SourceHistory {
    match mutant::active(Mutant::ProbeJudgedAlone) {
        true => SourceHistory::default().marked(epoch, marks),
        false => history,
    }
}

/// What a packet taught: a write to come, and a scan if there is one.
#[derive(Debug, Default)]
#[must_use = "what is not written is not known"]
pub struct HistoryUpdate {
    /// The scan that the history of the observation's scanner amounts to, if it does. Said again of each further probe while it lasts.
    pub detected: Option<DetectedScan>,
    changed: Option<Change>,
    /// What the history of who was sent to gets: that the other one sends, too.
    converses: Option<Change>,
}

type Change = (Entry<Scanner, SourceHistory>, SourceHistory);

impl HistoryUpdate {
    /// Writes it. How many histories there was no room for.
    #[inline(never)]
    pub fn write(self, histories: &mut TableAct<'_, Single<Scanner>, SourceHistory>) -> u64 {
        crate::write(histories, self.changed) + crate::write(histories, self.converses)
    }
}
