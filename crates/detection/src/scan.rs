//! Scans: the update of a source's history by a packet, and whether the history is a scan then.
//!
//! No instance needs to see both directions: one may learn from the probe, and another from its answer.

use asterism_function::objects::TableAct;
use asterism_function::{Ask, Builder, Entry, Late, Map, Single, State, Tick};

use crate::bits::{host_bit, port_bit};
use crate::history::{
    Class, DetectedScan, Methods, Scanner, Set, SourceHistory, Thresholds, WindowBits,
};
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
        let own = histories.get(&self.scanner(observation));
        let epoch = self.epoch(ask);
        let mut converses_too = None;
        let (observation, known) = match observation.what {
            What::Datagram => {
                let answer = observation.answered();
                let (own, other) = ask.all((own, histories.get(&self.scanner(&answer))))?;
                let host = host_bit(ask, observation.scanner);
                match &other {
                    Some(at)
                        if is_answered(&at.value, epoch, host, port_bit(ask, observation.port)) =>
                    {
                        (answer, other)
                    }
                    Some(at)
                        if converses(&at.value, epoch, host)
                            && self.scanner(&answer) != self.scanner(observation) =>
                    {
                        let marks = WindowBits::default().with(Set::HostsAccepted, host);
                        let history = at.value.marked(epoch, &marks);
                        let room = histories.entry_at(other, self.scanner(&answer))?;
                        converses_too = Some((room, history));
                        (*observation, own)
                    }
                    _ => (*observation, own),
                }
            }
            _ => (*observation, own?),
        };
        let only_clears = matches!(
            observation.what,
            What::Accepted | What::Engaged | What::Expired
        );
        let history = known.as_ref().map(|known| &known.value);
        let marks = match self.is_exempt_among_others(&observation) && !only_clears {
            true => exempt_marks(ask, epoch, &observation, history),
            false => marks(ask, epoch, &observation, history),
        };
        let ignored = mutant::active(Mutant::AcceptedIgnored) && only_clears;
        let Some(marks) = marks.filter(|_| !ignored) else {
            return Ok(HistoryUpdate {
                converses: converses_too,
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
        let judged = match mutant::active(Mutant::ProbeJudgedAlone) {
            true => SourceHistory::default().marked(epoch, &marks),
            false => history,
        };
        let thresholds = match observation.class {
            Class::Udp => self.udp,
            _ => Some(self.thresholds),
        };
        let detected = match (only_clears, thresholds) {
            (false, Some(thresholds)) => judged.judge(observation.class, epoch, thresholds),
            _ => None,
        };
        Ok(HistoryUpdate {
            detected,
            changed,
            converses: converses_too,
        })
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

/// Whether a UDP datagram from a host to a port answers the one whose history it is: it comes from a host that was
/// probed, to the very port that probed. From another port than the probed one will do (TFTP, RFC 1350 §4).
#[inline(always)]
fn is_answered(history: &SourceHistory, epoch: u32, host: u64, to: u64) -> bool {
    history.knows(epoch, Set::HostsProbed, host) && history.knows(epoch, Set::PORTS_USED, to)
}

/// Whether a history's source sent something to a host that was not known to send anything itself. One that does converses, whatever the
/// ports are: peers of VXLAN send from ports that nobody sends to.
#[inline(always)]
fn converses(history: &SourceHistory, epoch: u32, host: u64) -> bool {
    history.knows(epoch, Set::HostsProbed, host) && !history.has(epoch, Set::HostsAccepted, host)
}

/// [`marks`] of an exempt source in a history that others share: what comes to its ports is an answer, and nothing is evidence.
fn exempt_marks<S: State>(
    ask: &Ask<'_, S>,
    epoch: u32,
    observation: &Observation,
    known: Option<&SourceHistory>,
) -> Option<WindowBits> {
    if observation.what != What::Datagram {
        return None;
    }
    let host = host_bit(ask, observation.target);
    let marks = WindowBits::default()
        .with(Set::HostsProbed, host)
        .with(Set::HostsAccepted, host)
        .with(Set::PORTS_USED, port_bit(ask, observation.from));
    let is_news = known.is_none_or(|history| !history.holds(epoch, &marks));
    is_news.then_some(marks)
}

/// The sets that an observation adds to; `None` if it adds nothing to what is known.
fn marks<S: State>(
    ask: &Ask<'_, S>,
    epoch: u32,
    observation: &Observation,
    known: Option<&SourceHistory>,
) -> Option<WindowBits> {
    let inserts = match observation.what {
        What::Probe(_) | What::Datagram | What::Named | What::Flagged(_) => true,
        // The SYN may have gone through another instance, and its history not be here yet.
        What::Accepted => observation.class == Class::Tcp,
        What::Reset { answers_ack } => answers_ack,
        What::Engaged | What::Refused { .. } | What::Expired => false,
    };
    if known.is_none() && !inserts {
        return None;
    }
    let (host, port) = (
        host_bit(ask, observation.target),
        port_bit(ask, observation.port),
    );
    let knows = |set, bits| known.is_some_and(|history| history.knows(epoch, set, bits));
    let probed = |host| knows(Set::HostsProbed, host);
    let marks = match observation.what {
        What::Probe(methods) => {
            let marks = WindowBits::by(methods).with(Set::HostsProbed, host);
            match observation.class {
                Class::Icmp => marks,
                _ => marks.with(Set::PortsProbed, port),
            }
        }
        What::Named => WindowBits::default()
            .with(Set::HostsProbed, host)
            .with(Set::PortsNamed, port),
        What::Flagged(methods) => WindowBits::by(methods | Methods::FRAGMENTS),
        What::Datagram => {
            let marks = WindowBits::by(match observation.class {
                Class::Ip => Methods::PROTOCOLS,
                _ => Methods::UDP,
            });
            let marks = marks
                .with(Set::HostsProbed, host)
                .with(Set::PortsProbed, port)
                .with(Set::PORTS_USED, port_bit(ask, observation.from));
            // What was answered once is remembered for as long as either side goes on.
            let answered = [(Set::PortsAnswered, port), (Set::HostsAccepted, host)];
            answered
                .into_iter()
                .filter(|(set, bits)| knows(*set, *bits))
                .fold(marks, |marks, (set, bits)| marks.with(set, bits))
        }
        What::Accepted => {
            let marks = WindowBits::default()
                .with(Set::HostsAccepted, host)
                .with(Set::PortsAnswered, port);
            let used = port_bit(ask, observation.from);
            // The same from the other side.
            match known {
                Some(history)
                    if observation.class.is_of_datagrams()
                        && is_answered(history, epoch, host, used) =>
                {
                    marks
                        .with(Set::HostsProbed, host)
                        .with(Set::PORTS_USED, used)
                }
                _ => marks,
            }
        }
        // Each datagram of such a search has a port of its own.
        What::Expired if knows(Set::PortsProbed, port) => WindowBits::default()
            .with(Set::HostsAccepted, host)
            .with(Set::PortsAnswered, port),
        What::Expired => return None,
        // Only what was probed: else a server's clients would fill its sets and hide what it probes itself.
        What::Engaged => {
            let asked = probed(host) || knows(Set::HostsReset, host);
            if !asked || !(knows(Set::PortsProbed, port) || knows(Set::PortsNamed, port)) {
                return None;
            }
            WindowBits::default()
                .with(Set::HostsEngaged, host)
                .with(Set::PortsAnswered, port)
        }
        What::Refused { reporter } => {
            // A translator on the way quotes another address than was probed.
            let refusing = match probed(host) {
                true => host,
                false => host_bit(ask, reporter),
            };
            if !probed(refusing) {
                return None;
            }
            let marks = WindowBits::default().with(Set::HostsRefused, refusing);
            match observation.class.is_of_datagrams() && knows(Set::PortsProbed, port) {
                true => marks.with(Set::PORTS_REFUSED, port),
                false => marks,
            }
        }
        What::Reset { answers_ack } => {
            let marks = WindowBits::default().with(Set::HostsReset, host);
            match (probed(host), answers_ack) {
                (true, _) => marks,
                (false, true) => WindowBits {
                    methods: Methods::ACK,
                    ..marks
                }
                .with(Set::PortsProbed, port),
                (false, false) => return None,
            }
        }
    };
    // What others saw may have made a scan of it meanwhile: a probe is judged even if it adds nothing. Not so a datagram, of which a
    // quiet flow has many.
    let is_judged = matches!(
        observation.what,
        What::Probe(_) | What::Named | What::Flagged(_)
    );
    let is_news = is_judged || known.is_none_or(|history| !history.holds(epoch, &marks));
    is_news.then_some(marks)
}
