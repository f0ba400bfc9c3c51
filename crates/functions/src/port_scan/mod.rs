//! Finds port scans, sweeps and SYN floods, tells every instance, and blocks who scans; may also block a destination port whose
//! traffic passes a volume (the IDPS of Constellation §3.1 and §6.6). Imports `asterism_function` alone.
//!
//! What a source probes may be seen by one instance, and the answers by another. So nothing here is a flow table:
//! each source has a trail of small sets that join (`trail.rs`, read it first). A packet is read for what it says
//! about whose probes (`clue.rs`); a trail that grew is judged (`learn.rs`); what comes of it is an alert and a block
//! (`alert.rs`), which every instance knows after the lag. Floods are found by handshakes of services, not by sources
//! (`flood.rs`). `metrics.rs` is what programs see of it all.
//!
//! Not seen: probes slower than a window allows; probes in fragments too small for a transport header; ACK probes
//! whose source port is below the probed one; probes of as many ports as hosts, one each, which look like a
//! peer-to-peer client's (see `PortScanConfig::ports` and `hosts`).

mod alert;
mod clue;
mod config;
mod flood;
mod handshakes;
mod learn;
mod metrics;
mod trail;
mod volume;

use asterism_function::notice;
use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, CONTROL, Counter, Counters, Late, Map, NetworkFunction, OwnEvent, OwnMetric,
    PortNumber, Reason, Tick, Verdict, Window, WindowedCountMin, state,
};

pub use alert::{Alert, EVENTS, Subject, Watch};
pub use asterism_blocking::by_hand::Block;
pub use asterism_function::Host;
pub use config::{FloodPolicy, PortScanConfig, Response, VolumePolicy};
pub use handshakes::{Flood, Handshakes, Sample, Service};
pub use trail::{Class, Methods, Prober, Shape, Trail};

use asterism_blocking::blocked::BLOCKED_QUESTION;

use clue::{Clue, What};
use flood::Floods;
use trail::{Set, Thresholds};
use volume::Traffic;

/// What the instances of a port-scan IDPS share.
#[state]
pub struct PortScanState {
    /// What each source probed lately.
    pub trails: Map<Prober, Trail>,
    /// Sources that are blocked, for a scan or by hand.
    pub blocked: Map<Host, Block>,
    /// Scans found: one for each source, class and shape.
    pub alerts: Map<Subject, Alert>,
    /// Bits by destination port; empty without a volume policy.
    pub volume: Counters<u16>,
    /// Destination ports whose volume is measured in a window, or that are blocked.
    pub watched: Map<u16, Watch>,
    /// About how many SYNs each service got lately; next to nothing without a flood policy.
    pub syns: WindowedCountMin<Service>,
    /// What became of handshakes with services that get many SYNs: up to three samples each.
    pub handshakes: Map<Sample, Handshakes>,
    /// Floods found lately: one for each service.
    pub floods: Map<Service, Flood>,
    /// Probes, alerts, blocks, watches and handshakes for which there was no room.
    pub unrecorded: Counter,
}

/// What is measured of it.
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

    /// Floods of the last minute or so, the oldest first. For the control plane.
    #[must_use]
    pub fn floods(&self) -> Vec<(Service, Flood)> {
        let mut floods = Vec::with_capacity(self.floods.len());
        self.floods
            .for_each(|row, flood| floods.push((row.0, *flood)));
        floods.sort_by_key(|(service, flood)| (flood.first, *service));
        floods
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
    floods: Option<Floods>,
    /// In order.
    exempt: Vec<Host>,
}

impl PortScan {
    /// A port-scan IDPS. Thresholds of zero are taken as one.
    #[must_use]
    pub fn new(mut config: PortScanConfig) -> Self {
        config.window_s = config.window_s.max(1);
        let thresholds = Thresholds {
            ports: config.ports.max(1),
            hosts: config.hosts.max(1),
        };
        let mut exempt: Vec<Host> = config
            .exempt
            .iter()
            .map(|&address| address.into())
            .collect();
        exempt.sort_unstable();
        Self {
            floods: config.flood.map(Floods::new),
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

    /// Handles IPv6, ICMP, fragments and other protocols.
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, PortScanState>) -> Result<Verdict, Late> {
        match Clue::of_uncommon(ask.packet()) {
            Some((source, clue)) => self.handle(ask, source, clue),
            None if ask.port() == CONTROL => Self::told(ask),
            None => Ok(Verdict::Forward(forward(&ask))),
        }
    }

    /// Handles an IP packet while nothing is measured, or hands it on.
    #[inline(always)]
    fn handle(
        &self,
        ask: Ask<'_, PortScanState>,
        source: Host,
        clue: Option<Clue>,
    ) -> Result<Verdict, Late> {
        if self.config.volume.is_some() | !ask.handshakes.is_empty() {
            return self.handle_measured(ask, source, clue);
        }
        let is_blocked = self.is_blocked(&ask, &source);
        let Some(clue) = clue else {
            return Ok(match is_blocked? {
                true => Verdict::Drop(Reason::Blocked),
                false => Verdict::Forward(forward(&ask)),
            });
        };
        match ask.all((is_blocked, self.teaches(&ask, &clue)))? {
            (true, _) => Ok(Verdict::Drop(Reason::Blocked)),
            (false, false) => Ok(Verdict::Forward(forward(&ask))),
            (false, true) => self.learn(ask, source, clue, None),
        }
    }

    /// The same with a volume policy, or while a service is looked at that may be flooded.
    #[inline(never)]
    fn handle_measured(
        &self,
        ask: Ask<'_, PortScanState>,
        source: Host,
        clue: Option<Clue>,
    ) -> Result<Verdict, Late> {
        let teaches = match &clue {
            Some(clue) => self.teaches(&ask, clue),
            None => Ok(false),
        };
        let (is_blocked, teaches, traffic) = ask.all((
            self.is_blocked(&ask, &source),
            teaches,
            Traffic::of(self, &ask),
        ))?;
        if is_blocked {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        if traffic
            .as_ref()
            .is_some_and(|traffic| traffic.is_blocked(ask.now()))
        {
            return Ok(Verdict::Drop(Reason::PortBlocked));
        }
        if let (true, Some(clue)) = (teaches, clue) {
            return self.learn(ask, source, clue, traffic);
        }
        let addition = match traffic {
            Some(traffic) => traffic.addition(self, &ask)?,
            None => None,
        };
        let handshake = self.acknowledged(&ask)?;
        let out = forward(&ask);
        if addition.is_some() || handshake.is_some() {
            let mut act = ask.act()?;
            if let Some(addition) = addition {
                addition.write(&mut act);
            }
            if let Some(handshake) = handshake {
                handshake.write(&mut act);
            }
        }
        Ok(Verdict::Forward(out))
    }

    /// Whether the packet's source is blocked. Who was exempted since is not, whatever others still hold against him, but by hand.
    #[inline(always)]
    fn is_blocked(&self, ask: &Ask<'_, PortScanState>, source: &Host) -> Result<bool, Late> {
        let block = ask.blocked.get(source)?;
        Ok(block.is_some_and(|block| {
            ask.now() < block.value.until && (block.value.is_by_hand() || !self.is_exempt(source))
        }))
    }

    /// Whether a source never raises an alert.
    fn is_exempt(&self, source: &Host) -> bool {
        self.exempt.binary_search(source).is_ok()
    }

    /// Whether a clue may add to what is known. Looks at the words that it needs where they lie: what a quiet flow
    /// costs, besides the look for a block.
    #[inline(always)]
    fn teaches(&self, ask: &Ask<'_, PortScanState>, clue: &Clue) -> Result<bool, Late> {
        let epoch = ask.now() / self.config.window_s;
        let own = ask.trails.get(&clue.prober());
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
                let answer = ask.trails.get(&clue.answered().prober()).map(|known| {
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
        let (syns, window_s) = match &self.floods {
            Some(floods) => (flood::SYNS_KNOWN, floods.window_s),
            None => ((0.5, 0.5), 1),
        };
        let window = Window {
            buckets: 2,
            bucket_seconds: window_s,
        };
        let of_floods = |most: u32| if self.floods.is_some() { most } else { 1 };
        PortScanState {
            trails: builder.table(
                "trails",
                config.trails_max,
                &[config.window_s.saturating_mul(2)],
            ),
            blocked: builder.table("blocked", config.alerts_max, &Block::idle(block_s)),
            alerts: builder.table("alerts", config.alerts_max, &[config.alert_keep_s]),
            // Every port there is, even if one of four instances should see most of them first.
            volume: builder.counters("volume", if config.volume.is_some() { 1 << 18 } else { 1 }),
            watched: builder.table(
                "watched",
                if config.volume.is_some() { 1 << 16 } else { 1 },
                &[watch_s],
            ),
            syns: builder.windowed_count_min("syns", syns, window),
            handshakes: builder.table(
                "handshakes",
                of_floods(config.samples_max),
                &[window_s.saturating_mul(2)],
            ),
            floods: builder.table("floods", of_floods(config.alerts_max), &[flood::NOTED_S]),
            unrecorded: builder.counter("unrecorded"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, PortScanState>) -> Result<Verdict, Late> {
        match Clue::of_common(ask.packet()) {
            Some((source, clue)) => self.handle(ask, source, clue),
            None => self.uncommon(ask),
        }
    }

    /// Alerts, then ports that are blocked for their volume, then floods, as [`Notice::read_all`](notice::Notice::read_all) reads them;
    /// or who is blocked, as [`BlockedRecord`](asterism_blocking::blocked::BlockedRecord).
    fn report(
        &self,
        state: &PortScanState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        match question {
            notice::QUESTION => self.notices(state, range, out),
            BLOCKED_QUESTION => Self::blocks(state, range, out),
            _ => None,
        }
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &PortScanState, values: &mut Vec<u64>) {
        state.measure(values);
    }

    fn schema(&self) -> u64 {
        let volume_s = self
            .config
            .volume
            .map_or(u64::from(u32::MAX) + 1, |volume| volume.window_s.into());
        let flood = self.floods.as_ref().map_or(0, Floods::schema);
        // The last number stands for how alerts are written.
        hash::words(
            hash::words(self.config.window_s.into(), volume_s, 1),
            flood,
            1,
        )
    }
}

#[inline(always)]
fn forward(ask: &Ask<'_, PortScanState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

/// Whether a UDP datagram from a host to a port answers the one whose trail it is: it comes from a host that was
/// probed, to the very port that probed. From another port than the probed one will do (TFTP, RFC 1350 §4).
#[inline(always)]
fn is_answered(trail: &Trail, epoch: u32, host: u64, to: u64) -> bool {
    trail.knows(epoch, Set::HostsProbed, host) && trail.knows(epoch, Set::PORTS_USED, to)
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
