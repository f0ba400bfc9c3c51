//! What came of a replay.

use std::collections::BTreeMap;

use asterism_config::value::show_count;
use asterism_function::{NetworkFunction, reasons_of};
use asterism_output::Schema;
use asterism_output::Table;
use asterism_placement::Time;
use serde::Serialize;

use crate::fleet::{Fleet, Lag};

/// The schema of [`ReplayReport`].
pub const REPLAY: Schema = Schema {
    name: "asterism.replay",
    version: 1,
};

/// What came of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayReport {
    /// Packets of the capture.
    pub packets_read: u64,
    /// Of those, handed to a host.
    pub packets_taken: u64,
    /// Of those, not handed to any host; why.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Of those, not taken by the host because it was behind.
    pub packets_refused: u64,
    /// Packets that left a host.
    pub packets_left: u64,
    /// Of those, written to the output.
    pub packets_written: u64,
    /// Alerts that were written as lines of JSON.
    pub alerts_written: u64,
    /// Flows of the capture.
    pub flows: u64,
    /// Seconds that passed on the hosts' clock.
    pub seconds: f64,
    /// Gaps of the capture that were shortened.
    pub gaps_shortened: u64,
    /// How often the captures' clocks stepped back: time went on from there.
    pub clock_steps_back: u64,
    /// The longest of these steps in seconds.
    pub clock_step_seconds_most: f64,
    /// Whether every host had what all others wrote in the end.
    pub quiet: bool,
    /// Whether the hosts then agreed on the shared state.
    pub agree: bool,
    /// How long changes took from host to host.
    pub lag: Lag,
    /// Datagrams of the state channel.
    pub channel_datagrams: u64,
    /// Their bytes.
    pub channel_bytes: u64,
    /// Each host.
    pub hosts: Vec<HostReport>,
}

/// What one host did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Packets that it took.
    pub received: u64,
    /// Packets that left it, those that it made included.
    pub forwarded: u64,
    /// Packets that it made.
    pub emitted: u64,
    /// Packets that were for itself.
    pub consumed: u64,
    /// Packets that ended here, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Reads that were late.
    pub late: u64,
    /// The most packets parked at any time.
    pub parked_most: usize,
    /// Entries of each state object.
    pub entries: BTreeMap<&'static str, usize>,
    /// The digest of the shared state.
    pub digest: String,
}

impl ReplayReport {
    /// Whether nothing was lost on the way and the hosts agree.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.packets_refused == 0 && self.quiet && self.agree
    }

    pub(super) fn complete<F: NetworkFunction>(
        &mut self,
        fleet: &Fleet<F>,
        names: &[String],
        started: Time,
    ) {
        let digests = fleet.digests();
        self.agree = digests.windows(2).all(|pair| pair[0] == pair[1]) || !fleet.shares();
        self.seconds = fleet.now().as_micros().saturating_sub(started.as_micros()) as f64 / 1e6;
        self.lag = fleet.lag();
        for ((member, name), digest) in fleet.cluster().members().iter().zip(names).zip(&digests) {
            let channel = member.channel.tally();
            self.channel_datagrams += channel.datagrams_sent;
            self.channel_bytes += channel.bytes_sent;
            let mut host = HostReport {
                name: name.clone(),
                digest: format!("{digest:016x}"),
                ..HostReport::default()
            };
            for instance in &member.instances {
                let tally = instance.tally();
                host.received += tally.received;
                host.forwarded += tally.forwarded;
                host.emitted += tally.emitted;
                host.consumed += tally.consumed;
                host.late += tally.late;
                host.parked_most = host.parked_most.max(tally.parked_most);
                for (reason, count) in tally.drops() {
                    let label = reason.label_among(reasons_of(instance.function()));
                    let label = label.unwrap_or_else(|| reason.label());
                    *host.dropped.entry(label).or_default() += count;
                }
                for (object, live, _) in instance.entries() {
                    let entries = host.entries.entry(object).or_default();
                    *entries = (*entries).max(live);
                }
            }
            self.hosts.push(host);
        }
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} packets of {} flows in {:.1} s; {} left",
            show_count(self.packets_read),
            show_count(self.flows),
            self.seconds,
            show_count(self.packets_left)
        );
        text.push_str(&match self.packets_written {
            0 => "\n".to_owned(),
            written => format!(", {} written\n", show_count(written)),
        });
        if self.alerts_written > 0 {
            text.push_str(&format!(
                "  alerts written: {}\n",
                show_count(self.alerts_written)
            ));
        }
        for (reason, count) in &self.skipped {
            text.push_str(&format!(
                "  not replayed: {} ({reason})\n",
                show_count(*count)
            ));
        }
        if self.packets_refused > 0 {
            text.push_str(&format!(
                "  not taken by a host: {}\n",
                show_count(self.packets_refused)
            ));
        }
        if self.gaps_shortened > 0 {
            text.push_str(&format!(
                "  {} long gaps were shortened (see --gap-max)\n",
                show_count(self.gaps_shortened)
            ));
        }
        if self.clock_steps_back > 0 {
            let times = match self.clock_steps_back {
                1 => "once".to_owned(),
                steps => format!("{} times", show_count(steps)),
            };
            text.push_str(&format!(
                "  the capture's clock stepped back {times}, by {:.1} s at most; time went on from there\n",
                self.clock_step_seconds_most
            ));
        }
        text.push('\n');
        let mut table = Table::new(&[
            "host",
            "packets in",
            "out",
            "dropped",
            "parked most",
            "digest",
        ]);
        for host in &self.hosts {
            table.row(&[
                host.name.clone(),
                show_count(host.received),
                show_count(host.forwarded),
                show_count(host.dropped.values().sum()),
                show_count(host.parked_most as u64),
                host.digest.clone(),
            ]);
        }
        text.push_str(&table.text());
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, count) in self.hosts.iter().flat_map(|host| &host.dropped) {
            *reasons.entry(reason).or_default() += count;
        }
        if !reasons.is_empty() {
            text.push('\n');
            let mut table = Table::new(&["dropped because", "packets"]);
            for (reason, count) in reasons {
                table.row(&[reason.to_owned(), show_count(count)]);
            }
            text.push_str(&table.text());
        }
        if let Some(host) = self.hosts.first() {
            let entries: Vec<String> = host
                .entries
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(name, count)| format!("{} {name}", show_count(*count as u64)))
                .collect();
            if !entries.is_empty() {
                text.push_str(&format!(
                    "\nState on {}: {}\n",
                    host.name,
                    entries.join(", ")
                ));
            }
        }
        if self.hosts.len() > 1 {
            text.push_str(&format!(
                "Between hosts: {} datagrams, {} bytes; lag p50 {:.2} ms, p99 {:.2} ms; {}\n",
                show_count(self.channel_datagrams),
                show_count(self.channel_bytes),
                self.lag.p50_us as f64 / 1e3,
                self.lag.p99_us as f64 / 1e3,
                if self.agree {
                    "in the end all hosts agree"
                } else {
                    "THE HOSTS DISAGREE"
                }
            ));
        }
        if !self.quiet {
            text.push_str("Changes were still on their way when the run was ended.\n");
        }
        text
    }
}
