//! What comes of what a packet teaches: alerts and blocks.
//!
//! Off the path of quiet flows: only packets come here that may add to a history.

use asterism_detection::{Class, DetectedScan, Observation, Traffic};
use asterism_function::{Ask, Entry, Host, Late, Reason, Tick, Verdict};

use super::{Alert, Block, PortScan, PortScanState, Response, Subject, forward};

impl PortScan {
    /// Learns from an observation what there is to learn, and draws the consequence.
    #[inline(never)]
    pub(super) fn learn(
        &self,
        ask: Ask<'_, PortScanState>,
        source: Host,
        observation: Observation,
        traffic: Option<Traffic>,
    ) -> Result<Verdict, Late> {
        let update = self.scans.learn(&ask, &ask.histories, &observation)?;
        let consequence = match &update.detected {
            Some(detected) if !self.is_exempt(&observation.scanner) => {
                Some(self.consequence(&ask, &observation, detected)?)
            }
            _ => None,
        };
        let blocks = consequence.is_some()
            && observation.scanner == source
            && self.block_s(observation.class).is_some();
        let step = match &self.floods {
            Some(floods) if !blocks => {
                floods.step(&ask, &observation, |host| self.is_exempt(host))?
            }
            _ => None,
        };
        let addition = match traffic {
            Some(traffic) if !blocks => Some(traffic.addition(&ask)?),
            _ => None,
        };
        let out = forward(&ask);
        let mut act = ask.act()?;
        let mut unrecorded = update.write(&mut act.histories);
        if let Some(Consequence { alert, block }) = consequence {
            let noted = alert.is_none_or(|(room, alert)| act.alerts.put(room, alert));
            let blocked = block.is_none_or(|(room, block)| act.blocked.put(room, block));
            unrecorded += u64::from(!noted) + u64::from(!blocked);
        }
        if let Some(addition) = addition {
            unrecorded += addition.write(&mut act);
        }
        if let Some(step) = step {
            unrecorded += step.write(&mut act);
        }
        if unrecorded > 0 {
            act.unrecorded.add(unrecorded);
        }
        Ok(match blocks {
            true => Verdict::Drop(Reason::Blocked),
            false => Verdict::Forward(out),
        })
    }

    /// What a detected changes: the alert, unless it says so already, and the block.
    #[cold]
    fn consequence(
        &self,
        ask: &Ask<'_, PortScanState>,
        observation: &Observation,
        detected: &DetectedScan,
    ) -> Result<Consequence, Late> {
        let (now, source) = (ask.now(), self.scans.sources().one(observation.scanner));
        let subject = Subject {
            source,
            class: observation.class,
            shape: detected.shape,
        };
        let (alert, blocked) = ask.all((ask.alerts.entry(subject), ask.blocked.get(&source)))?;
        let found = Alert {
            first: now,
            target: (observation.target, observation.port),
            by: observation.scanner,
            ports: detected.ports,
            hosts: detected.hosts,
            methods: detected.methods,
        };
        let is_news = alert.value().is_none_or(|known| {
            found.ports >= known.ports.saturating_mul(2).max(1)
                || found.hosts >= known.hosts.saturating_mul(2).max(1)
        });
        let block = match (self.block_s(observation.class), blocked) {
            (None, _) => None,
            (Some(_), Some(at)) if now < at.value.until => None,
            (Some(block_s), at) => {
                let room = ask.blocked.entry_at(at, source)?;
                Some((room, Block::found(now.saturating_add(block_s))))
            }
        };
        Ok(Consequence {
            alert: is_news.then_some((alert, found)),
            block,
        })
    }

    /// For how long the source of such a scan is blocked, if it is.
    pub(super) fn block_s(&self, class: Class) -> Option<Tick> {
        match self.config.response {
            Response::Block { block_s } if class != Class::Udp || self.config.udp_blocks => {
                Some(block_s)
            }
            _ => None,
        }
    }
}

/// A detected's writes.
struct Consequence {
    alert: Option<(Entry<Subject, Alert>, Alert)>,
    block: Option<(Entry<Host, Block>, Block)>,
}
