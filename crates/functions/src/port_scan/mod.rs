//! Finds port scans, sweeps and SYN floods, reports them to every instance, and blocks scanners; may also block a destination
//! port whose traffic exceeds a volume (the IDPS of Constellation §3.1 and §6.6).
//!
//! `asterism_detection` finds probes, floods and volumes (read it first); one instance may see a source's probes and another
//! the answers, so nothing here is a flow table. This function adds the consequences of a scan, an alert and a block that
//! every instance knows after the lag (`learn.rs`), the order of checks (this file), and the reports (`alert.rs`,
//! `metrics.rs`).
//!
//! Not seen: probes slower than a window allows; ACK probes whose source port is below the probed port; probes of as many
//! ports as hosts, one each, which look like a peer-to-peer client's (see `PortScanConfig::ports` and `hosts`).

mod alert;
mod config;
mod learn;
mod metrics;

use asterism_detection::{Floods, Observation, Scans, Traffic, flood, volume};
use asterism_function::notice;
use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, CONTROL, Counter, Counters, Late, Map, NetworkFunction, Observable, OwnEvent,
    OwnMetric, PortNumber, Reason, Tick, Verdict, WindowedCountMin, state,
};

pub use alert::{Alert, EVENTS, Subject};
pub use asterism_blocking::manual::Block;
pub use asterism_detection::{
    Class, Flood, FloodPolicy, Handshakes, Methods, Sample, Scanner, Service, Shape, SourceHistory,
    Sources, Thresholds, VolumePolicy, Watch,
};
pub use asterism_function::Host;
pub use config::{PortScanConfig, Response};

use asterism_blocking::blocked::BLOCKED_QUESTION;

/// What the instances of a port-scan IDPS share.
#[state]
pub struct PortScanState {
    /// What each source probed lately.
    pub histories: Map<Scanner, SourceHistory>,
    /// Sources that are blocked, for a scan or manually.
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

asterism_detection::sees_floods!(PortScanState);
asterism_detection::measures_volume!(PortScanState);

/// What is measured of it.
impl PortScanState {
    /// All alerts, the oldest first: what this instance found and what others did, as far as it has arrived. For the
    /// control plane: walks the table and allocates.
    #[must_use]
    pub fn alerts(&self) -> Vec<(Subject, Alert)> {
        let mut alerts = Vec::with_capacity(self.alerts.len_now());
        self.alerts
            .for_each(|row, alert| alerts.push((row.0, *alert)));
        alerts.sort_by_key(|(subject, alert)| (alert.first, *subject));
        alerts
    }

    /// Floods of the last minute or so, the oldest first. For the control plane.
    #[must_use]
    pub fn floods(&self) -> Vec<(Service, Flood)> {
        let mut floods = Vec::with_capacity(self.floods.len_now());
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
    scans: Scans,
    floods: Option<Floods>,
}

impl PortScan {
    /// A port-scan IDPS. Thresholds of zero are taken as one.
    #[must_use]
    pub fn new(mut config: PortScanConfig) -> Self {
        config.window_s = config.window_s.max(1);
        let thresholds = Thresholds {
            ports: config.ports,
            hosts: config.hosts,
        };
        let sources = Sources::new(config.ipv6_prefix, config.exempt.iter().copied());
        Self {
            floods: config.flood.map(Floods::new),
            scans: Scans::new(config.window_s, thresholds)
                .with_udp(config.udp)
                .with_sources(sources),
            config,
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
        match Observation::of_uncommon(ask.packet()) {
            Some((source, observation)) => self.handle(ask, source, observation),
            None if ask.port() == CONTROL => self.reported(ask),
            None => Ok(Verdict::Forward(forward(&ask))),
        }
    }

    /// Handles an IP packet while nothing is measured, or hands it on.
    #[inline(always)]
    fn handle(
        &self,
        ask: Ask<'_, PortScanState>,
        source: Host,
        observation: Option<Observation>,
    ) -> Result<Verdict, Late> {
        let is_empty = ask.handshakes.is_empty();
        if self.config.volume.is_some() | (is_empty != Ok(true)) {
            return self.handle_measured(ask, (source, observation), is_empty);
        }
        let is_blocked = self.is_blocked(&ask, &source);
        let Some(observation) = observation else {
            return Ok(match is_blocked? {
                true => Verdict::Drop(Reason::Blocked),
                false => Verdict::Forward(forward(&ask)),
            });
        };
        match ask.all((
            is_blocked,
            self.scans.teaches(&ask, &ask.histories, &observation),
        ))? {
            (true, _) => Ok(Verdict::Drop(Reason::Blocked)),
            (false, false) => Ok(Verdict::Forward(forward(&ask))),
            (false, true) => self.learn(ask, source, observation, None),
        }
    }

    /// The same with a volume policy, or while a service is looked at that may be flooded.
    #[inline(never)]
    fn handle_measured(
        &self,
        ask: Ask<'_, PortScanState>,
        (source, observation): (Host, Option<Observation>),
        is_empty: Result<bool, Late>,
    ) -> Result<Verdict, Late> {
        let teaches = match &observation {
            Some(observation) => self.scans.teaches(&ask, &ask.histories, observation),
            None => Ok(false),
        };
        let answers = ask.all((
            self.is_blocked(&ask, &source),
            teaches,
            Traffic::of(self.config.volume.as_ref(), &ask),
        ));
        let (_, (is_blocked, teaches, traffic)) = ask.all((is_empty, answers))?;
        if is_blocked {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        if traffic
            .as_ref()
            .is_some_and(|traffic| traffic.is_blocked(ask.now()))
        {
            return Ok(Verdict::Drop(Reason::PortBlocked));
        }
        if let (true, Some(observation)) = (teaches, observation) {
            return self.learn(ask, source, observation, traffic);
        }
        let addition = match traffic {
            Some(traffic) => Some(traffic.addition(&ask)?),
            None => None,
        };
        let step = match &self.floods {
            Some(floods) => floods.acknowledged(&ask)?,
            None => None,
        };
        let out = forward(&ask);
        if addition.is_some() || step.is_some() {
            let mut act = ask.act()?;
            let unrecorded = addition.map_or(0, |addition| addition.write(&mut act))
                + step.map_or(0, |step| step.write(&mut act));
            if unrecorded > 0 {
                act.unrecorded.add(unrecorded);
            }
        }
        Ok(Verdict::Forward(out))
    }

    /// Whether the packet's source is blocked, or all addresses of its prefix. Who was exempted since is not, whatever others still hold
    /// against him, but manually; and manually each address is blocked alone.
    #[inline(always)]
    fn is_blocked(&self, ask: &Ask<'_, PortScanState>, source: &Host) -> Result<bool, Late> {
        let one = self.scans.sources().one(*source);
        let own = ask.blocked.get(source);
        let (own, of_all) = match one == *source {
            true => (own?, None),
            false => ask.all((own, ask.blocked.get(&one)))?,
        };
        let of_all = of_all.filter(|block| !block.value.is_manual());
        Ok(own.into_iter().chain(of_all).any(|block| {
            ask.now() < block.value.until && (block.value.is_manual() || !self.is_exempt(source))
        }))
    }

    /// Whether a source never raises an alert.
    fn is_exempt(&self, source: &Host) -> bool {
        self.scans.sources().is_exempt(*source)
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
        let histories = self.scans.table(builder, config.histories_max);
        let written = [
            "histories",
            "alerts",
            "blocked",
            "watched",
            "handshakes",
            "floods",
        ];
        builder.writing(6, &written.map(|object| (object, 1)));
        let blocked = builder.table("blocked", config.alerts_max, &Block::idle(block_s));
        let alerts = builder.table("alerts", config.alerts_max, &[config.alert_keep_s]);
        let (volume, watched) = volume::tables(builder, config.volume.as_ref());
        let (syns, handshakes, floods) = flood::tables(
            builder,
            self.floods.as_ref(),
            config.samples_max,
            config.alerts_max,
        );
        PortScanState {
            histories,
            blocked,
            alerts,
            volume,
            watched,
            syns,
            handshakes,
            floods,
            unrecorded: builder.counter("unrecorded"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, PortScanState>) -> Result<Verdict, Late> {
        match Observation::of_common(ask.packet()) {
            Some((source, observation)) => self.handle(ask, source, observation),
            None => self.uncommon(ask),
        }
    }

    fn observable(&self) -> Option<&dyn Observable<PortScanState>> {
        Some(self)
    }

    fn schema(&self) -> u64 {
        let volume_s = self
            .config
            .volume
            .map_or(u64::from(u32::MAX) + 1, |volume| volume.window_s.into());
        let flood = self.floods.as_ref().map_or(0, Floods::schema);
        // Histories are of these sources. The last number stands for how alerts are written.
        let sources = u64::from(self.config.ipv6_prefix) << 32 | u64::from(self.config.window_s);
        hash::words(hash::words(sources, volume_s, 1), flood, 2)
    }
}

impl Observable<PortScanState> for PortScan {
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
            BLOCKED_QUESTION => self.blocks(state, range, out),
            _ => None,
        }
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &PortScanState, values: &mut Vec<u64>) {
        state.measure(values);
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }
}

#[inline(always)]
fn forward(ask: &Ask<'_, PortScanState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}
