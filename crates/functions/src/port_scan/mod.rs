//! Finds port scans and sweeps, tells every instance, and blocks who scans; may also block a destination port whose
//! traffic passes a volume (the IDPS of Constellation §3.1 and §6.6). Imports `asterism_function` alone.
//!
//! What a source probes may be seen by one instance, and the answers by another. So nothing here is a flow table:
//! each source has a trail of small sets that join (`trail.rs`, read it first). A packet is read for what it says
//! about whose probes (`clue.rs`); a trail that grew is judged; what comes of it is an alert and a block
//! (`alert.rs`), which every instance knows after the lag.
//!
//! Not seen: probes slower than a window allows; probes in fragments too small for a transport header; ACK probes
//! whose source port is below the probed one; a sweep so evenly mixed with as many ports as hosts that it looks like
//! a peer-to-peer client (what `PortScanConfig` calls concentration).

mod alert;
mod clue;
mod config;
mod host;
mod trail;
mod volume;

use asterism_function::objects::hash;
use asterism_function::{
    Act, Ask, At, Builder, Counter, Counters, Late, Map, NetworkFunction, PortNumber, Reason,
    Single, Tick, Vacancy, Verdict, state,
};

pub use alert::{Alert, Block, Subject, Watch};
pub use config::{PortScanConfig, Response, VolumePolicy};
pub use host::Host;
pub use trail::{Class, Methods, Prober, Shape, Trail};

use clue::{Clue, What};
use trail::{Finding, Marks, Set, Thresholds};
use volume::Traffic;

/// What the instances of a port-scan IDPS share.
#[state]
pub struct PortScanState {
    /// What each source probed lately.
    pub trails: Map<Prober, Trail>,
    /// Sources that are blocked.
    pub blocked: Map<Host, Block>,
    /// Scans found: one for each source, class and shape.
    pub alerts: Map<Subject, Alert>,
    /// Bits by destination port; empty without a volume policy.
    pub volume: Counters<u16>,
    /// Destination ports whose volume is measured in a window, or that are blocked.
    pub watched: Map<u16, Watch>,
    /// Probes, alerts, blocks and watches for which there was no room.
    pub unrecorded: Counter,
}

impl PortScanState {
    /// All alerts, the oldest first: what this instance found and what others did, as far as it has arrived. For the
    /// control plane: walks the table and allocates.
    #[must_use]
    pub fn alerts(&self) -> Vec<(Subject, Alert)> {
        let mut alerts = Vec::with_capacity(self.alerts.len());
        self.alerts
            .for_each(|row, alert| alerts.push((row.0, *alert)));
        alerts.sort_by_key(|(subject, alert)| (alert.first, *subject));
        alerts
    }

    /// Sources that are blocked at time `now`, with the end of their block; sorted. For the control plane.
    #[must_use]
    pub fn blocked(&self, now: Tick) -> Vec<(Host, Block)> {
        let mut blocked = Vec::new();
        self.blocked.for_each(|row, block| {
            if now < block.until {
                blocked.push((row.0, *block));
            }
        });
        blocked.sort_by_key(|(host, _)| *host);
        blocked
    }
}

/// The function: forwards from its first port to its second and back, but for what is blocked.
#[derive(Clone, Debug)]
pub struct PortScan {
    config: PortScanConfig,
    thresholds: Thresholds,
    exempt: Vec<Host>,
}

type TrailAt = At<Single<Prober>, Trail>;

impl PortScan {
    /// A port-scan IDPS. Thresholds of zero are taken as one.
    #[must_use]
    pub fn new(mut config: PortScanConfig) -> Self {
        config.window_s = config.window_s.max(1);
        let thresholds = Thresholds {
            ports: config.ports.max(1),
            hosts: config.hosts.max(1),
        };
        let exempt = config
            .exempt
            .iter()
            .map(|&address| address.into())
            .collect();
        Self {
            config,
            thresholds,
            exempt,
        }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &PortScanConfig {
        &self.config
    }

    /// The trails that a clue is about: the prober's, and for a UDP datagram that of the other end.
    #[inline(always)]
    fn trails(
        ask: &Ask<'_, PortScanState>,
        clue: Option<&Clue>,
    ) -> Result<(Option<TrailAt>, Option<TrailAt>), Late> {
        let Some(clue) = clue else {
            return Ok((None, None));
        };
        let own = ask.trails.get(&Prober {
            host: clue.prober,
            class: clue.class,
        });
        if clue.what == What::Datagram {
            return ask.all((
                own,
                ask.trails.get(&Prober {
                    host: clue.target,
                    class: clue.class,
                }),
            ));
        }
        Ok((own?, None))
    }

    /// Judges what a clue adds to a trail.
    #[inline(never)]
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
            _ => trail.judge(clue.class, epoch, self.thresholds),
        };
        let consequence = match finding {
            Some(finding) if !self.exempt.contains(&clue.prober) => {
                Some(self.consequence(ask, clue, &finding, &trail)?)
            }
            _ => None,
        };
        Ok(Lesson {
            prober: Prober {
                host: clue.prober,
                class: clue.class,
            },
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
                let block = Block {
                    until: now.saturating_add(block_s),
                };
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
    #[inline(always)]
    fn answering(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: Clue,
        own: Option<TrailAt>,
        other: Option<TrailAt>,
    ) -> (Clue, Option<TrailAt>) {
        if let (What::Datagram, Some(at)) = (clue.what, &other) {
            let epoch = ask.now() / self.config.window_s;
            // To the very port that it probed from; from another port than it probed will do (TFTP, RFC 1350 §4).
            if at
                .value
                .knows(epoch, Set::HostsProbed, host_bit(ask, clue.prober))
                && at
                    .value
                    .knows(epoch, Set::PORTS_USED, port_bit(ask, clue.port))
            {
                return (clue.answered(), other);
            }
        }
        (clue, own)
    }

    /// The sets that a clue adds to; `None` if it adds nothing to what is known.
    #[inline(always)]
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
enum Change<K, V> {
    None,
    Update(At<Single<K>, V>, V),
    Insert(Option<Vacancy>, V),
}

impl NetworkFunction for PortScan {
    type State = PortScanState;

    fn state(&self, builder: &Builder) -> PortScanState {
        let config = &self.config;
        let block_s = match config.response {
            Response::Detect => 1,
            // Entries are never touched, so a block ends on its own.
            Response::Block { block_s } => block_s.max(1),
        };
        let watch_s = match config.volume {
            Some(VolumePolicy {
                window_s, block_s, ..
            }) if window_s > 0 => window_s.saturating_mul(2).max(block_s),
            _ => 0,
        };
        PortScanState {
            trails: builder.table(
                "trails",
                config.trails_max,
                &[config.window_s.saturating_mul(2)],
            ),
            blocked: builder.table("blocked", config.alerts_max, &[block_s]),
            alerts: builder.table("alerts", config.alerts_max, &[config.alert_keep_s]),
            // Every port there is, even if one of four instances should see most of them first.
            volume: builder.counters("volume", if config.volume.is_some() { 1 << 18 } else { 1 }),
            watched: builder.table(
                "watched",
                if config.volume.is_some() { 1 << 16 } else { 1 },
                &[watch_s],
            ),
            unrecorded: builder.counter("unrecorded"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, PortScanState>) -> Result<Verdict, Late> {
        let out = forward(&ask);
        let Some((source, destination)) = Host::ends(ask.packet()) else {
            return Ok(Verdict::Forward(out));
        };
        let clue = Clue::read(ask.packet(), source, destination);
        let (blocked, traffic, (own, other)) = ask.all((
            ask.blocked.get(&source),
            Traffic::of(self, &ask),
            Self::trails(&ask, clue.as_ref()),
        ))?;
        let now = ask.now();
        if blocked.is_some_and(|block| now < block.value.until) {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        if traffic
            .as_ref()
            .is_some_and(|traffic| traffic.is_blocked(now))
        {
            return Ok(Verdict::Drop(Reason::PortBlocked));
        }
        let lesson = match clue {
            None => None,
            Some(clue) => {
                let (clue, known) = self.answering(&ask, clue, own, other);
                match self.marks(&ask, &clue, known.as_ref()) {
                    Some(marks) => Some(self.lesson(&ask, &clue, known, &marks)?),
                    None => None,
                }
            }
        };
        let blocks = lesson
            .as_ref()
            .is_some_and(|lesson| lesson.consequence.is_some() && lesson.prober.host == source)
            && self.config.response != Response::Detect;
        let addition = match traffic {
            Some(traffic) if !blocks => traffic.addition(self, &ask)?,
            _ => None,
        };
        if lesson.is_some() || addition.is_some() {
            let mut act = ask.act()?;
            if let Some(lesson) = lesson {
                lesson.write(&mut act);
            }
            if let Some(addition) = addition {
                addition.write(&mut act);
            }
        }
        Ok(if blocks {
            Verdict::Drop(Reason::Blocked)
        } else {
            Verdict::Forward(out)
        })
    }

    fn schema(&self) -> u64 {
        let volume_s = self
            .config
            .volume
            .map_or(u64::from(u32::MAX) + 1, |volume| volume.window_s.into());
        hash::words(self.config.window_s.into(), volume_s, 0)
    }
}

#[inline(always)]
fn forward(ask: &Ask<'_, PortScanState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

/// A port's bit in a set, alike on all instances.
#[inline(always)]
fn port_bit(ask: &Ask<'_, PortScanState>, port: u16) -> u64 {
    1 << ask.choose(1 << 63 | u64::from(port), 64)
}

/// A host's bit in a set, alike on all instances.
#[inline(always)]
fn host_bit(ask: &Ask<'_, PortScanState>, host: Host) -> u64 {
    let (high, low) = host.words();
    // Chosen in two steps with the secret in each, so that nobody can find hosts that share a bit.
    let high = if high == 0 {
        0
    } else {
        u64::from(ask.choose(high, u32::MAX)) << 31
    };
    1 << ask.choose(low ^ high, 64)
}
