//! What came of the demo, and whether it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asterism_config::value::{show_count, show_duration};
use asterism_function::{Absence, Endpoint};
use asterism_output::Schema;
use asterism_output::Table;
use serde::Serialize;

use crate::fleet::Lag;

/// The schema of [`DemoReport`].
pub const DEMO: Schema = Schema {
    name: "asterism.demo",
    version: 1,
};

/// What an absent binding means in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The reply is dropped.
    Drop,
    /// The reply waits so long.
    Wait(Duration),
}

impl Absent {
    pub(super) fn words(self) -> String {
        match self {
            Absent::Drop => "drop".to_owned(),
            Absent::Wait(longest) => format!("wait {}", show_duration(longest)),
        }
    }

    pub(super) fn wait(self) -> Absence {
        match self {
            Absent::Drop => Absence::Answer,
            Absent::Wait(longest) => Absence::Wait {
                us: u32::try_from(longest.as_micros()).unwrap_or(u32::MAX),
            },
        }
    }
}

/// What a run counts while it goes.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) packets: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_refused: u64,
    pub(super) answers_waited: u64,
    pub(super) completed: u64,
    pub(super) misdelivered: u64,
    pub(super) changed_midway: u64,
    /// Outside endpoints that were seen with more than one conversation.
    pub(super) ports_shared: BTreeSet<Endpoint>,
    pub(super) probes: u64,
    pub(super) probes_blocked: u64,
    /// Which conversation was seen with which outside endpoint.
    pub(super) users: BTreeMap<Endpoint, usize>,
}

/// What `asterism demo` reports.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// Whether everything holds that was to be shown.
    pub holds: bool,
    /// What does not hold; empty if all does.
    pub failures: Vec<String>,
    /// Whether the hosts shared their state.
    pub replication: bool,
    /// The delay between hosts in milliseconds, one way.
    pub wan_ms: f64,
    /// One run for each setting of `absent`.
    pub runs: Vec<RunRow>,
}

/// What came of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// What an absent binding meant.
    pub absent: String,
    /// Conversations.
    pub conversations: u64,
    /// Conversations that the NAT let out: flows.
    pub flows: u64,
    /// Conversations all of whose packets arrived.
    pub completed: u64,
    /// Packets that their ends sent.
    pub packets: u64,
    /// Of those, sent in vain: the host did not know the flow yet, and the end sent again after a second.
    pub packets_lost_to_lag: u64,
    /// Of those, not taken by the host.
    pub packets_refused: u64,
    /// Replies that came before their binding and waited for it.
    pub late_replies_waited: u64,
    /// Replies that came before their binding and were dropped.
    pub late_replies_dropped: u64,
    /// Flows whose translation was compared over all hosts in the end.
    pub translations_checked: u64,
    /// Of those, equal on all hosts.
    pub translations_agree: u64,
    /// Endpoints bound by two hosts at once; one binding won, the other stays as an alias.
    pub collisions: u64,
    /// Outside ports that were given to two flows.
    pub ports_shared: u64,
    /// Answers that reached another inside host.
    pub misdelivered: u64,
    /// Changes of other hosts that could not be read.
    pub groups_bad: u64,
    /// How long changes took from host to host.
    pub lag: Lag,
    /// Bytes of changes for each flow, over its whole incarnation.
    pub log_bytes_per_flow: f64,
    /// Bytes sent between hosts for each flow: to all hosts, with acknowledgements and keep-alives.
    pub wire_bytes_per_flow: f64,
    /// Whether all hosts had what the others wrote in the end.
    pub quiet: bool,
    /// Whether the hosts' states were equal in the end.
    pub digests_equal: bool,
    /// Each host.
    pub hosts: Vec<HostRow>,
    /// The IDPS.
    pub idps: IdpsRow,
}

/// What one host did.
#[derive(Clone, Debug, Serialize)]
pub struct HostRow {
    /// Its name.
    pub name: String,
    /// Packets that it took.
    pub packets: u64,
    /// Flows whose first packet it took.
    pub flows_opened: u64,
    /// Sessions that it knows in the end, its own and the others'.
    pub sessions_known: u64,
    /// Replies that it dropped because it did not know their binding.
    pub late_replies_dropped: u64,
    /// The most packets that waited at any time.
    pub parked_most: u64,
    /// The digest of the shared state.
    pub digest: String,
}

/// What the IDPS did.
#[derive(Clone, Debug, Serialize)]
pub struct IdpsRow {
    /// Packets that it saw.
    pub packets: u64,
    /// Packets that the scanner sent.
    pub probes: u64,
    /// Of those, blocked.
    pub probes_blocked: u64,
    /// Alerts: one for each source, protocol and shape of scan.
    pub alerts: u64,
    /// Sources of alerts.
    pub scanners: Vec<String>,
    /// Who scans in the captures.
    pub scanners_expected: Vec<String>,
}

impl RunRow {
    /// What does not hold.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let mut must = |holds: bool, failure: String| {
            if !holds {
                failures.push(format!("absent = \"{}\": {failure}", self.absent));
            }
        };
        must(
            self.digests_equal,
            "the hosts' states differ in the end".into(),
        );
        must(
            self.translations_checked == self.conversations
                && self.translations_agree == self.translations_checked,
            format!(
                "{} of {} translations agree on all hosts",
                self.translations_agree, self.conversations
            ),
        );
        must(
            self.quiet,
            "changes were still on their way when the run was ended".into(),
        );
        must(
            self.completed == self.conversations,
            format!(
                "{} of {} conversations came to their end",
                self.completed, self.conversations
            ),
        );
        must(
            self.ports_shared == 0,
            format!(
                "{} outside ports were given to two flows",
                self.ports_shared
            ),
        );
        must(
            self.misdelivered == 0,
            format!("{} answers reached another host", self.misdelivered),
        );
        must(
            self.groups_bad == 0,
            format!("{} changes could not be read", self.groups_bad),
        );
        must(
            self.packets_refused == 0,
            format!("{} packets were not taken", self.packets_refused),
        );
        must(
            !self.absent.starts_with("wait") || self.packets_lost_to_lag == 0,
            format!("{} packets were lost to lag", self.packets_lost_to_lag),
        );
        must(
            self.idps.scanners == self.idps.scanners_expected,
            format!(
                "the IDPS found {:?} instead of {:?}",
                self.idps.scanners, self.idps.scanners_expected
            ),
        );
        failures
    }
}

impl DemoReport {
    /// The report on these runs.
    pub(super) fn new(replication: bool, wan: Duration, runs: Vec<RunRow>) -> DemoReport {
        let failures: Vec<String> = runs.iter().flat_map(RunRow::failures).collect();
        DemoReport {
            holds: failures.is_empty() && !runs.is_empty(),
            failures,
            replication,
            wan_ms: wan.as_secs_f64() * 1e3,
            runs,
        }
    }

    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(run) = self.runs.last() {
            let mut table = Table::new(&[
                "host",
                "packets",
                "flows opened",
                "sessions known",
                "state digest",
            ]);
            for host in &run.hosts {
                table.row(&[
                    host.name.clone(),
                    show_count(host.packets),
                    show_count(host.flows_opened),
                    show_count(host.sessions_known),
                    host.digest.clone(),
                ]);
            }
            text.push_str(&table.text());
            text.push('\n');
        }
        let headings: Vec<String> = self
            .runs
            .iter()
            .map(|run| format!("absent = \"{}\"", run.absent))
            .collect();
        let mut columns = vec!["a reply that overtakes its binding:"];
        columns.extend(headings.iter().map(String::as_str));
        let mut table = Table::new(&columns);
        let mut line = |name: &str, cell: &dyn Fn(&RunRow) -> String| {
            let cells: Vec<String> = core::iter::once(name.to_owned())
                .chain(self.runs.iter().map(cell))
                .collect();
            table.row(&cells);
        };
        line("flows; came to their end", &|run| {
            format!("{}; {}", show_count(run.flows), show_count(run.completed))
        });
        line("translations equal on all hosts", &|run| {
            format!(
                "{} of {}",
                show_count(run.translations_agree),
                show_count(run.translations_checked)
            )
        });
        line("endpoints bound by two hosts at once", &|run| {
            show_count(run.collisions)
        });
        line("outside ports given to two flows", &|run| {
            show_count(run.ports_shared)
        });
        line("late replies that waited", &|run| {
            show_count(run.late_replies_waited)
        });
        line("late replies dropped", &|run| {
            show_count(run.late_replies_dropped)
        });
        line("packets lost to lag, sent again", &|run| {
            show_count(run.packets_lost_to_lag)
        });
        line("lag between hosts, p50 / p99", &|run| {
            format!(
                "{:.1} / {:.1} ms",
                run.lag.p50_us as f64 / 1e3,
                run.lag.p99_us as f64 / 1e3
            )
        });
        line("bytes of changes per flow", &|run| {
            format!("{:.0}", run.log_bytes_per_flow)
        });
        line("bytes on the wire per flow, to all hosts", &|run| {
            format!("{:.0}", run.wire_bytes_per_flow)
        });
        line("state digests", &|run| {
            if run.digests_equal {
                "equal"
            } else {
                "DIFFERENT"
            }
            .to_owned()
        });
        text.push_str(&table.text());
        if let Some(run) = self.runs.last() {
            let idps = &run.idps;
            text.push_str(&format!(
                "\nIDPS: {} packets seen; {} alerts, all of {}; {} of {} probes blocked\n",
                show_count(idps.packets),
                idps.alerts,
                if idps.scanners.is_empty() {
                    "nobody".to_owned()
                } else {
                    idps.scanners.join(", ")
                },
                show_count(idps.probes_blocked),
                show_count(idps.probes),
            ));
        }
        text.push('\n');
        if self.holds {
            text.push_str("Everything holds: packets of one flow went through different hosts, which behaved like one box.\n");
        } else {
            text.push_str("This does not hold:\n");
            for failure in &self.failures {
                text.push_str(&format!("  {failure}\n"));
            }
        }
        text
    }
}
