//! What a packet teaches about a source's trail, and what comes of it: alerts and blocks. Imports `mod.rs`'s state and
//! function, `clue`, `trail`, `alert`, `volume`.
//!
//! Off the path of quiet flows: only packets come here that may add to a trail.

use asterism_function::{Act, Ask, At, Late, Reason, Single, Vacancy, Verdict};

use super::clue::{Clue, What};
use super::trail::{Finding, Marks, Set};
use super::volume::Traffic;
use super::{
    Alert, Block, Class, Host, Methods, PortScan, PortScanState, Prober, Response, Subject, Trail,
    forward, host_bit, is_answered, port_bit,
};
use asterism_detection::mutant::{self, Mutant};

type TrailAt = At<Single<Prober>, Trail>;

impl PortScan {
    /// Learns from a clue what there is to learn, and draws the consequence.
    #[inline(never)]
    pub(super) fn learn(
        &self,
        ask: Ask<'_, PortScanState>,
        source: Host,
        clue: Clue,
        traffic: Option<Traffic>,
    ) -> Result<Verdict, Late> {
        let own = ask.trails.get(&clue.prober());
        let (clue, known) = match clue.what {
            What::Datagram => {
                let (own, other) = ask.all((own, ask.trails.get(&clue.answered().prober())))?;
                self.answering(&ask, clue, own, other)
            }
            _ => (clue, own?),
        };
        let is_accepted = matches!(clue.what, What::Accepted | What::Engaged);
        let lesson = match self.marks(&ask, &clue, known.as_ref()) {
            _ if mutant::active(Mutant::AcceptedIgnored) && is_accepted => None,
            Some(marks) => Some(self.lesson(&ask, &clue, known, &marks)?),
            None => None,
        };
        let blocks = lesson
            .as_ref()
            .is_some_and(|lesson| lesson.consequence.is_some() && lesson.prober.host == source)
            && self.config.response != Response::Detect;
        let handshake = match blocks {
            true => None,
            false => self.handshake(&ask, &clue)?,
        };
        let addition = match traffic {
            Some(traffic) if !blocks => traffic.addition(self, &ask)?,
            _ => None,
        };
        let out = forward(&ask);
        let mut act = ask.act()?;
        if let Some(lesson) = lesson {
            lesson.write(&mut act);
        }
        if let Some(addition) = addition {
            addition.write(&mut act);
        }
        if let Some(handshake) = handshake {
            handshake.write(&mut act);
        }
        Ok(if blocks {
            Verdict::Drop(Reason::Blocked)
        } else {
            Verdict::Forward(out)
        })
    }

    /// Judges what a clue adds to a trail.
    fn lesson(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
        known: Option<TrailAt>,
        marks: &Marks,
    ) -> Result<Lesson, Late> {
        let epoch = ask.now() / self.config.window_s;
        let trail = known
            .map_or_else(Trail::default, |known| known.value)
            .marked(epoch, marks);
        let change = match known {
            Some(known) if known.value == trail => Change::None,
            Some(known) => Change::Update(known, trail),
            None => Change::Insert(ask.trails.vacancy()?, trail),
        };
        let finding = match clue.what {
            // These only clear a trail.
            What::Accepted | What::Engaged => None,
            _ if mutant::active(Mutant::ProbeJudgedAlone) => {
                let alone = Trail::default().marked(epoch, marks);
                alone.judge(clue.class, epoch, self.thresholds)
            }
            _ => trail.judge(clue.class, epoch, self.thresholds),
        };
        let consequence = match finding {
            Some(finding) if !self.is_exempt(&clue.prober) => {
                Some(self.consequence(ask, clue, &finding, &trail)?)
            }
            _ => None,
        };
        Ok(Lesson {
            prober: clue.prober(),
            change,
            consequence,
        })
    }

    /// What a finding changes: the alert, unless it says so already, and the block.
    #[cold]
    fn consequence(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
        finding: &Finding,
        trail: &Trail,
    ) -> Result<Consequence, Late> {
        let now = ask.now();
        let subject = Subject {
            source: clue.prober,
            class: clue.class,
            shape: finding.shape,
        };
        let (known, blocked) =
            ask.all((ask.alerts.get(&subject), ask.blocked.get(&clue.prober)))?;
        let found = Alert {
            first: now,
            target: (clue.target, clue.port),
            ports: finding.ports,
            hosts: finding.hosts,
            methods: trail.methods(),
        };
        let alert = match known {
            None => Change::Insert(ask.alerts.vacancy()?, found),
            Some(at) => {
                let grew = found.ports >= at.value.ports.saturating_mul(2).max(1)
                    || found.hosts >= at.value.hosts.saturating_mul(2).max(1);
                if grew {
                    Change::Update(at, found)
                } else {
                    Change::None
                }
            }
        };
        let block = match (self.config.response, blocked) {
            (Response::Detect, _) => Change::None,
            (Response::Block { .. }, Some(at)) if now < at.value.until => Change::None,
            (Response::Block { block_s }, at) => {
                let block = Block::found(now.saturating_add(block_s));
                match at {
                    Some(at) => Change::Update(at, block),
                    None => Change::Insert(ask.blocked.vacancy()?, block),
                }
            }
        };
        Ok(Consequence {
            subject,
            alert,
            block,
        })
    }

    /// A UDP datagram turned into the answer that it is, if the other end probed first.
    fn answering(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: Clue,
        own: Option<TrailAt>,
        other: Option<TrailAt>,
    ) -> (Clue, Option<TrailAt>) {
        if let (What::Datagram, Some(at)) = (clue.what, &other) {
            let epoch = ask.now() / self.config.window_s;
            if is_answered(
                &at.value,
                epoch,
                host_bit(ask, clue.prober),
                port_bit(ask, clue.port),
            ) {
                return (clue.answered(), other);
            }
        }
        (clue, own)
    }

    /// The sets that a clue adds to; `None` if it adds nothing to what is known.
    fn marks(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
        known: Option<&TrailAt>,
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
        let epoch = ask.now() / self.config.window_s;
        let (host, port) = (host_bit(ask, clue.target), port_bit(ask, clue.port));
        let probed = |known: Option<&TrailAt>| {
            known.is_some_and(|known| known.value.knows(epoch, Set::HostsProbed, host))
        };
        let marks = match clue.what {
            What::Probe(methods) => {
                let marks = Marks {
                    methods,
                    ..Marks::default()
                }
                .with(Set::HostsProbed, host);
                if clue.class == Class::Icmp {
                    marks
                } else {
                    marks.with(Set::PortsProbed, port)
                }
            }
            What::Datagram => Marks {
                methods: Methods::UDP,
                ..Marks::default()
            }
            .with(Set::HostsProbed, host)
            .with(Set::PortsProbed, port)
            .with(Set::PORTS_USED, port_bit(ask, clue.from)),
            What::Accepted => Marks::default()
                .with(Set::HostsAccepted, host)
                .with(Set::PortsAnswered, port),
            // Only what was probed: else a server's clients would fill its sets and hide what it probes itself.
            What::Engaged => {
                let trail = &known?.value;
                let asked = probed(known) || trail.knows(epoch, Set::HostsReset, host);
                if !asked || !trail.knows(epoch, Set::PortsProbed, port) {
                    return None;
                }
                Marks::default()
                    .with(Set::HostsEngaged, host)
                    .with(Set::PortsAnswered, port)
            }
            What::Refused { .. } if probed(known) => Marks::default().with(Set::HostsRefused, host),
            // A translator on the way quotes another address than was probed.
            What::Refused { reporter } => {
                let reporter = host_bit(ask, reporter);
                if !known?.value.knows(epoch, Set::HostsProbed, reporter) {
                    return None;
                }
                Marks::default().with(Set::HostsRefused, reporter)
            }
            What::Reset { answers_ack } => {
                let marks = Marks::default().with(Set::HostsReset, host);
                match (probed(known), answers_ack) {
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
        match known {
            // What others saw may have made a scan of it meanwhile: a probe is judged even if it adds nothing. Not
            // so a datagram, of which a quiet flow has many.
            Some(known)
                if !matches!(clue.what, What::Probe(_)) && known.value.holds(epoch, &marks) =>
            {
                None
            }
            _ => Some(marks),
        }
    }
}

/// What a packet taught: writes to come.
struct Lesson {
    prober: Prober,
    change: Change<Prober, Trail>,
    consequence: Option<Consequence>,
}

impl Lesson {
    #[inline(never)]
    fn write(self, act: &mut Act<'_, PortScanState>) {
        match self.change {
            Change::None => {}
            Change::Update(at, trail) => act.trails.update(&at, trail),
            Change::Insert(Some(room), trail) => act.trails.insert(room, self.prober, trail),
            Change::Insert(None, _) => act.unrecorded.add(1),
        }
        let Some(Consequence {
            subject,
            alert,
            block,
        }) = self.consequence
        else {
            return;
        };
        match alert {
            Change::None => {}
            Change::Update(at, alert) => act.alerts.update(&at, alert),
            Change::Insert(Some(room), alert) => act.alerts.insert(room, subject, alert),
            Change::Insert(None, _) => act.unrecorded.add(1),
        }
        match block {
            Change::None => {}
            Change::Update(at, block) => act.blocked.update(&at, block),
            Change::Insert(Some(room), block) => act.blocked.insert(room, subject.source, block),
            Change::Insert(None, _) => act.unrecorded.add(1),
        }
    }
}

/// A finding's writes.
struct Consequence {
    subject: Subject,
    alert: Change<Subject, Alert>,
    block: Change<Host, Block>,
}

/// A write that is due in a map.
pub(super) enum Change<K, V> {
    None,
    Update(At<Single<K>, V>, V),
    Insert(Option<Vacancy>, V),
}
