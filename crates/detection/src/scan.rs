//! Scans: what a packet teaches about a source's trail, and whether the trail is a scan then. Imports `bits`, `clue`, `trail` and
//! `asterism_function`.
//!
//! Nobody needs to see both directions: the probe may teach one instance, and its answer another.

use asterism_function::objects::TableAct;
use asterism_function::{Ask, At, Builder, Late, Map, Room, Single, State, Tick};

use crate::bits::{host_bit, port_bit};
use crate::clue::{Clue, What};
use crate::mutant::{self, Mutant};
use crate::trail::{Class, Finding, Marks, Methods, Prober, Set, Thresholds, Trail};

/// What each source probed lately: see [`Scans::table`].
pub type Trails = Map<Prober, Trail>;

type Known = At<Single<Prober>, Trail>;

/// How scans are found.
#[derive(Clone, Copy, Debug)]
pub struct Scans {
    window_s: Tick,
    thresholds: Thresholds,
}

impl Scans {
    /// Evidence counts in the current window of so many seconds and in the one before. Window and thresholds of zero are taken as one.
    #[must_use]
    pub fn new(window_s: Tick, thresholds: Thresholds) -> Self {
        Self {
            window_s: window_s.max(1),
            thresholds: Thresholds {
                ports: thresholds.ports.max(1),
                hosts: thresholds.hosts.max(1),
            },
        }
    }

    /// The table `trails`: up to three for each source that is active within two windows, some 200 bytes each; at most `trails_max` over
    /// the whole cluster.
    #[must_use]
    pub fn table(&self, builder: &Builder, trails_max: u32) -> Trails {
        let idle = self.window_s.saturating_mul(2);
        builder.table("trails", trails_max, &[idle])
    }

    /// The number of the current window.
    #[inline(always)]
    fn epoch<S: State>(&self, ask: &Ask<'_, S>) -> u32 {
        ask.now() / self.window_s
    }

    /// Whether a clue may add to what is known, so that [`Scans::learn`] is due. Looks at the words that it needs where they lie and
    /// reserves nothing: all that a quiet flow costs.
    #[inline(always)]
    pub fn teaches<S: State>(
        &self,
        ask: &Ask<'_, S>,
        trails: &Trails,
        clue: &Clue,
    ) -> Result<bool, Late> {
        let epoch = self.epoch(ask);
        let own = trails.get(&clue.prober());
        match clue.what {
            What::Engaged => Ok(own?.is_some_and(|known| {
                let trail = &known.value;
                let (host, port) = (host_bit(ask, clue.target), port_bit(ask, clue.port));
                trail.knows(epoch, Set::PortsProbed, port)
                    && !(trail.has(epoch, Set::HostsEngaged, host)
                        && trail.has(epoch, Set::PortsAnswered, port))
            })),
            What::Accepted => Ok(match own? {
                None => clue.class == Class::Tcp,
                Some(known) => {
                    let (host, port) = (host_bit(ask, clue.target), port_bit(ask, clue.port));
                    !(known.value.has(epoch, Set::HostsAccepted, host)
                        && known.value.has(epoch, Set::PortsAnswered, port))
                }
            }),
            What::Datagram => {
                // A flow that goes on is known to the trail of the side that began it.
                let probe = own.map(|known| {
                    known.is_some_and(|known| {
                        let (host, port) = (host_bit(ask, clue.target), port_bit(ask, clue.port));
                        let trail = &known.value;
                        trail.has(epoch, Set::HostsProbed, host)
                            && trail.has(epoch, Set::PortsProbed, port)
                            && trail.has(epoch, Set::PORTS_USED, port_bit(ask, clue.from))
                    })
                });
                let answer = trails.get(&clue.answered().prober()).map(|known| {
                    known.map(|known| {
                        let trail = &known.value;
                        let (host, port) = (host_bit(ask, clue.prober), port_bit(ask, clue.from));
                        let is_answer = is_answered(trail, epoch, host, port_bit(ask, clue.port));
                        let is_known = trail.has(epoch, Set::HostsAccepted, host)
                            && trail.has(epoch, Set::PortsAnswered, port);
                        (is_answer, is_known)
                    })
                });
                Ok(match ask.all((probe, answer))? {
                    (_, Some((true, is_known))) => !is_known,
                    (is_known, _) => !is_known,
                })
            }
            _ => own.map(|_| true),
        }
    }

    /// What a clue adds to its trail, and what the trail amounts to then.
    pub fn learn<S: State>(
        &self,
        ask: &Ask<'_, S>,
        trails: &Trails,
        clue: &Clue,
    ) -> Result<Lesson, Late> {
        let own = trails.get(&clue.prober());
        let (clue, known) = match clue.what {
            What::Datagram => {
                let (own, other) = ask.all((own, trails.get(&clue.answered().prober())))?;
                self.answering(ask, *clue, own, other)
            }
            _ => (*clue, own?),
        };
        let epoch = self.epoch(ask);
        let only_clears = matches!(clue.what, What::Accepted | What::Engaged);
        let marks = match marks(ask, epoch, &clue, known.as_ref().map(|known| &known.value)) {
            Some(marks) if !(mutant::active(Mutant::AcceptedIgnored) && only_clears) => marks,
            _ => return Ok(Lesson::default()),
        };
        let trail = known
            .map_or_else(Trail::default, |known| known.value)
            .marked(epoch, &marks);
        let changed = match known {
            Some(known) if known.value == trail => None,
            _ => Some((trails.room_at(known, clue.prober())?, trail)),
        };
        let judged = match mutant::active(Mutant::ProbeJudgedAlone) {
            true => Trail::default().marked(epoch, &marks),
            false => trail,
        };
        let finding = match only_clears {
            true => None,
            false => judged.judge(clue.class, epoch, self.thresholds),
        };
        Ok(Lesson { finding, changed })
    }

    /// A UDP datagram turned into the answer that it is, if the other end probed first.
    fn answering<S: State>(
        &self,
        ask: &Ask<'_, S>,
        clue: Clue,
        own: Option<Known>,
        other: Option<Known>,
    ) -> (Clue, Option<Known>) {
        if let Some(at) = &other {
            let (host, port) = (host_bit(ask, clue.prober), port_bit(ask, clue.port));
            if is_answered(&at.value, self.epoch(ask), host, port) {
                return (clue.answered(), other);
            }
        }
        (clue, own)
    }
}

/// What a packet taught: a write to come, and a scan if there is one.
#[derive(Debug, Default)]
#[must_use = "what is not written is not known"]
pub struct Lesson {
    /// The scan that the trail of the clue's prober amounts to, if it does. Said again of each further probe while it lasts.
    pub finding: Option<Finding>,
    changed: Option<(Room<Prober, Trail>, Trail)>,
}

impl Lesson {
    /// Writes it. How many trails there was no room for.
    #[inline(never)]
    pub fn write(self, trails: &mut TableAct<'_, Single<Prober>, Trail>) -> u64 {
        crate::write(trails, self.changed)
    }
}

/// Whether a UDP datagram from a host to a port answers the one whose trail it is: it comes from a host that was
/// probed, to the very port that probed. From another port than the probed one will do (TFTP, RFC 1350 §4).
#[inline(always)]
fn is_answered(trail: &Trail, epoch: u32, host: u64, to: u64) -> bool {
    trail.knows(epoch, Set::HostsProbed, host) && trail.knows(epoch, Set::PORTS_USED, to)
}

/// The sets that a clue adds to; `None` if it adds nothing to what is known.
fn marks<S: State>(
    ask: &Ask<'_, S>,
    epoch: u32,
    clue: &Clue,
    known: Option<&Trail>,
) -> Option<Marks> {
    let inserts = match clue.what {
        What::Probe(_) | What::Datagram => true,
        // The SYN may have gone through another instance, and its trail not be here yet.
        What::Accepted => clue.class == Class::Tcp,
        What::Reset { answers_ack } => answers_ack,
        What::Engaged | What::Refused { .. } => false,
    };
    if known.is_none() && !inserts {
        return None;
    }
    let (host, port) = (host_bit(ask, clue.target), port_bit(ask, clue.port));
    let knows = |set, bits| known.is_some_and(|trail| trail.knows(epoch, set, bits));
    let probed = |host| knows(Set::HostsProbed, host);
    let marks = match clue.what {
        What::Probe(methods) => {
            let marks = Marks::by(methods).with(Set::HostsProbed, host);
            match clue.class {
                Class::Icmp => marks,
                Class::Tcp | Class::Udp => marks.with(Set::PortsProbed, port),
            }
        }
        What::Datagram => Marks::by(Methods::UDP)
            .with(Set::HostsProbed, host)
            .with(Set::PortsProbed, port)
            .with(Set::PORTS_USED, port_bit(ask, clue.from)),
        What::Accepted => Marks::default()
            .with(Set::HostsAccepted, host)
            .with(Set::PortsAnswered, port),
        // Only what was probed: else a server's clients would fill its sets and hide what it probes itself.
        What::Engaged => {
            let asked = probed(host) || knows(Set::HostsReset, host);
            if !asked || !knows(Set::PortsProbed, port) {
                return None;
            }
            Marks::default()
                .with(Set::HostsEngaged, host)
                .with(Set::PortsAnswered, port)
        }
        What::Refused { .. } if probed(host) => Marks::default().with(Set::HostsRefused, host),
        // A translator on the way quotes another address than was probed.
        What::Refused { reporter } => {
            let reporter = host_bit(ask, reporter);
            if !probed(reporter) {
                return None;
            }
            Marks::default().with(Set::HostsRefused, reporter)
        }
        What::Reset { answers_ack } => {
            let marks = Marks::default().with(Set::HostsReset, host);
            match (probed(host), answers_ack) {
                (true, _) => marks,
                (false, true) => Marks {
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
    let is_judged = matches!(clue.what, What::Probe(_));
    let is_news = is_judged || known.is_none_or(|trail| !trail.holds(epoch, &marks));
    is_news.then_some(marks)
}
