//! `asterism lab demo`: downloads through NAT hosts on real interfaces, with asymmetric paths.

use std::time::Duration;

use asterism_config::value::show_duration;
use asterism_lab::http::{DocumentServer, Downloads, document};
use asterism_lab::nat::SERVER;
use asterism_output::End;
use asterism_output::Table;
use asterism_output::{Output, Schema};
use serde::Serialize;

use super::error::LaboratoryError;
use super::{DemoArguments, Running, this_program};

/// Bytes of each document.
const DOCUMENT_BYTES: usize = 1 << 20;
/// Bytes a second of each connection, so that all are there at once.
const BYTES_PER_SECOND: u64 = 2 << 20;
/// Downloads at once at most.
const AT_ONCE: usize = 100;
/// How long a download may be without news.
const PATIENCE: Duration = Duration::from_secs(15);
const PORT: u16 = 80;

/// What `asterism lab demo` reports.
#[derive(Clone, Debug, Serialize)]
pub struct DemoDocument {
    /// The delay of the state channel one way, in microseconds.
    pub delay_us: u64,
    /// A run for each setting.
    pub runs: Vec<DemoRun>,
    /// Whether all that must hold does.
    pub holds: bool,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRun {
    /// What becomes of a reply that overtakes its session.
    pub absent: String,
    /// Downloads that came whole, byte by byte.
    pub complete: usize,
    /// Downloads.
    pub downloads: usize,
    /// The most at one moment.
    pub at_once: usize,
    /// Half of the connections were established within this many milliseconds.
    pub connect_ms: f64,
    /// 99 % were.
    pub connect_p99_ms: f64,
    /// Frames that each host took from the client.
    pub requests: Vec<u64>,
    /// Frames that each host took from the server.
    pub replies: Vec<u64>,
}

/// The schema of [`DemoDocument`].
pub const LAB_DEMO: Schema = Schema {
    name: "asterism.lab-demo",
    version: 1,
};

pub(super) fn command(
    arguments: &DemoArguments,
    output: &mut Output<'_>,
) -> Result<End, LaboratoryError> {
    let mut nat = arguments.nat.clone();
    nat.asymmetric = true;
    let answering = nat.answering();
    let Running { lab, mut hosts, .. } = nat.build()?;
    let _server = DocumentServer::start(&lab.server, (SERVER, PORT).into(), BYTES_PER_SECOND)?;
    let right = document(DOCUMENT_BYTES);
    let downloads = Downloads {
        server: (SERVER, PORT).into(),
        path: format!("/{DOCUMENT_BYTES}"),
        document: &right,
        count: arguments.downloads as usize,
        at_once: AT_ONCE,
        patience: PATIENCE,
    };
    let mut runs = Vec::new();
    let mut faults = String::new();
    for absent in ["drop", nat.absent.as_str()] {
        hosts.clear();
        let configuration = lab.write_configuration(&nat.host_options(absent))?;
        hosts = lab.start_hosts(&this_program()?, &configuration)?;
        output.say(&format!(
            "absent = {absent:?}: {} downloads\n",
            downloads.count
        ));
        let before = (lab.counts("in")?, lab.counts("out")?);
        let report = downloads.run(&lab.client)?;
        let after = (lab.counts("in")?, lab.counts("out")?);
        let taken = |before: &[asterism_lab::InterfaceCounts],
                     after: &[asterism_lab::InterfaceCounts]| {
            let pairs = after.iter().zip(before);
            pairs
                .map(|(after, before)| after.received - before.received)
                .collect()
        };
        if report.complete() < downloads.count {
            faults.push_str(&format!("absent = {absent:?}: {}\n", report.faults()));
        }
        runs.push(DemoRun {
            absent: absent.to_owned(),
            complete: report.complete(),
            downloads: downloads.count,
            at_once: report.most_at_once(),
            connect_ms: report.connect_ms(0.5),
            connect_p99_ms: report.connect_ms(0.99),
            requests: taken(&before.0, &after.0),
            replies: taken(&before.1, &after.1),
        });
    }
    let result = DemoDocument {
        delay_us: u64::try_from(nat.delay.as_micros()).unwrap_or(u64::MAX),
        holds: runs.iter().all(|run| run.holds(&answering)),
        runs,
    };
    output.say(&faults);
    if output.json() {
        output.document(LAB_DEMO, &result);
    } else {
        output.text(&text(&result, nat.delay));
    }
    Ok(if result.holds {
        End::Done
    } else {
        End::DoesNotHold
    })
}

impl DemoRun {
    /// Everything came whole, requests went through the first host alone, and replies through the others alone.
    fn holds(&self, answering: &[usize]) -> bool {
        let least = self.downloads as u64;
        // Answers to questions for Ethernet addresses may take any way.
        let few = |frames: u64| frames < 50 + least / 10;
        let apart = self.requests.len() == 1
            || self.requests[0] >= least
                && self.requests[1..].iter().all(|frames| few(*frames))
                && few(self.replies[0])
                && answering
                    .iter()
                    .map(|host| self.replies[*host])
                    .sum::<u64>()
                    >= least;
        self.complete == self.downloads && apart
    }
}

fn text(result: &DemoDocument, delay: Duration) -> String {
    let mut table = Table::new(&[
        "absent",
        "whole",
        "at once",
        "connect p50 ms",
        "p99 ms",
        "frames of the client",
        "of the server",
    ]);
    let frames = |counts: &[u64]| {
        let words: Vec<_> = counts.iter().map(u64::to_string).collect();
        words.join(" + ")
    };
    for run in &result.runs {
        table.row(&[
            run.absent.clone(),
            format!("{} of {}", run.complete, run.downloads),
            run.at_once.to_string(),
            format!("{:.1}", run.connect_ms),
            format!("{:.1}", run.connect_p99_ms),
            frames(&run.requests),
            frames(&run.replies),
        ]);
    }
    format!(
        "Downloads of 1 MiB; the state channel has {} one way; frames by NAT host.\n\n{}\n{}\n",
        show_duration(delay),
        table.text(),
        if result.holds {
            "Every document came whole, and no connection had both its ways through one host."
        } else {
            "This does not hold: a document is not whole, or packets did not go the two ways."
        }
    )
}
