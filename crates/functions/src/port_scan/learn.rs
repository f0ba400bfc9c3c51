//! What comes of what a packet teaches: alerts and blocks. Imports `mod.rs`'s state and function, `alert`.
//!
//! Off the path of quiet flows: only packets come here that may add to a trail.

use asterism_detection::{Class, Clue, Finding, Traffic};
use asterism_function::{Ask, Host, Late, Reason, Room, Tick, Verdict};

use super::{Alert, Block, PortScan, PortScanState, Response, Subject, forward};

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
        let lesson = self.scans.learn(&ask, &ask.trails, &clue)?;
        let consequence = match &lesson.finding {
            Some(finding) if !self.is_exempt(&clue.prober) => {
                Some(self.consequence(&ask, &clue, finding)?)
            }
            _ => None,
        };
        let blocks =
            consequence.is_some() && clue.prober == source && self.block_s(clue.class).is_some();
        let step = match &self.floods {
            Some(floods) if !blocks => floods.step(&ask, &clue, |host| self.is_exempt(host))?,
            _ => None,
        };
        let addition = match traffic {
            Some(traffic) if !blocks => Some(traffic.addition(&ask)?),
            _ => None,
        };
        let out = forward(&ask);
        let mut act = ask.act()?;
        let mut unrecorded = lesson.write(&mut act.trails);
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

    /// What a finding changes: the alert, unless it says so already, and the block.
    #[cold]
    fn consequence(
        &self,
        ask: &Ask<'_, PortScanState>,
        clue: &Clue,
        finding: &Finding,
    ) -> Result<Consequence, Late> {
        let (now, source) = (ask.now(), self.scans.sources().one(clue.prober));
        let subject = Subject {
            source,
            class: clue.class,
            shape: finding.shape,
        };
        let (alert, blocked) = ask.all((ask.alerts.room_for(subject), ask.blocked.get(&source)))?;
        let found = Alert {
            first: now,
            target: (clue.target, clue.port),
            by: clue.prober,
            ports: finding.ports,
            hosts: finding.hosts,
            methods: finding.methods,
        };
        let is_news = alert.value().is_none_or(|known| {
            found.ports >= known.ports.saturating_mul(2).max(1)
                || found.hosts >= known.hosts.saturating_mul(2).max(1)
        });
        let block = match (self.block_s(clue.class), blocked) {
            (None, _) => None,
            (Some(_), Some(at)) if now < at.value.until => None,
            (Some(block_s), at) => {
                let room = ask.blocked.room_at(at, source)?;
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

/// A finding's writes.
struct Consequence {
    alert: Option<(Room<Subject, Alert>, Alert)>,
    block: Option<(Room<Host, Block>, Block)>,
}
