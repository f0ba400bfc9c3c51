//! How long added hosts take: from the decision to the first packet that the director sends to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use asterism_director::DirectorStatistics;
use asterism_io::seqlock::Seqlock;
use asterism_orchestrator::run::Logged;
use asterism_placement::Time;

/// Hosts that were decided on while packets flowed.
pub(super) struct Arrivals {
    /// The places, in the order of the directors' slots.
    names: Vec<String>,
    directors: Vec<Arc<Seqlock>>,
    decided: Option<Time>,
    /// Hosts that have started and got no packet yet: when they were decided on, and packets to their place before.
    awaited: BTreeMap<String, (Time, u64)>,
    slowest: Option<f64>,
}

impl Arrivals {
    pub(super) fn new(names: &[String], directors: impl Iterator<Item = Arc<Seqlock>>) -> Arrivals {
        Arrivals {
            names: names.to_vec(),
            directors: directors.collect(),
            decided: None,
            awaited: BTreeMap::new(),
            slowest: None,
        }
    }

    /// Notes decisions and starts.
    pub(super) fn note(&mut self, now: Time, logged: &Logged) {
        match (logged.kind, &logged.host) {
            // Before packets flow, the first hosts wait for each other.
            ("scale-out", _) if self.packets().iter().sum::<u64>() > 0 => self.decided = Some(now),
            ("host-started", Some(host)) => {
                if let Some(decided) = self.decided {
                    let before = self.packets_to(host);
                    self.awaited.insert(host.clone(), (decided, before));
                }
            }
            // What is started from now on is in the place of one that ended.
            ("host-takes" | "host-ended", _) => self.decided = None,
            _ => {}
        }
    }

    /// Looks whether a host got its first packet.
    pub(super) fn look(&mut self, now: Time) {
        let names: Vec<String> = self.awaited.keys().cloned().collect();
        for name in names {
            let packets = self.packets_to(&name);
            let arrived = self
                .awaited
                .get(&name)
                .filter(|(_, before)| packets > *before);
            if let Some((decided, _)) = arrived {
                let seconds = now.since(*decided).as_secs_f64();
                self.slowest = Some(self.slowest.unwrap_or(0.0).max(seconds));
                self.awaited.remove(&name);
            }
        }
    }

    /// Seconds of the slowest.
    pub(super) fn slowest(&self) -> Option<f64> {
        self.slowest
    }

    fn packets_to(&self, host: &str) -> u64 {
        let place = self.names.iter().position(|name| name == host);
        let packets = self.packets();
        place
            .and_then(|place| packets.get(place).copied())
            .unwrap_or(0)
    }

    /// Packets to each place, of all directors.
    fn packets(&self) -> Vec<u64> {
        let mut sums = vec![0; self.names.len()];
        for director in &self.directors {
            let words = director.read().unwrap_or_default();
            let Some(statistics) = DirectorStatistics::read(&words) else {
                continue;
            };
            for (sum, target) in sums.iter_mut().zip(&statistics.targets) {
                *sum += target.packets;
            }
        }
        sums
    }
}
