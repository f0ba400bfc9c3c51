//! `lab.asymmetric-tcp`: downloads of 1 MiB from nginx, 100 at once, through two NAT hosts: requests through one, replies
//! through the other.

use std::time::Duration;

use asterism_io::link::LinkConditions;
use asterism_lab::http::{DownloadReport, Downloads, document};
use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig, SERVER};

use super::lab::{absent, needs, product, start, unsound};
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "lab.asymmetric-tcp",
    make: asymmetric_tcp,
}];

/// Downloads of each setting, and how many at once.
const DOWNLOADS: usize = 200;
const AT_ONCE: usize = 100;
/// Bytes of the document.
const DOCUMENT_BYTES: usize = 1 << 20;
/// What nginx gives a connection each second: slow enough that 100 surely meet.
const BYTES_PER_SECOND: u64 = 512 << 10;
/// What becomes of a SYN-ACK that overtakes its session, with the state channel's delays one way and its losses. The wait
/// is longer than the longest delay.
const SETTINGS: [(&str, &[(u64, f64)]); 2] = [
    ("drop", &[(5, 0.0), (50, 0.0)]),
    ("wait 150ms", &[(5, 0.0), (50, 0.0), (50, 0.01)]),
];
/// Connections made one after another to time the SYN-ACK.
const CONNECTIONS: usize = 15;
/// The same where each costs a second.
const SLOW_CONNECTIONS: usize = 4;
/// The link may be late by this share of the delay in 99 % of the frames, else the run is void. Late frames make what is
/// asked for harder, not easier: sessions are heard of later than the delay says. How late is reported in `variants`.
const LATENESS_SHARE: u64 = 2;
/// Frames of a host that is not on the way: questions for Ethernet addresses and what follows them.
const STRAY_FRAMES_MAX: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(20);

fn asymmetric_tcp(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip", "nginx"])?;
    let product = product()?;
    let lab = NatLab::new(&NatLabConfig::new(2, Duration::ZERO)).map_err(absent)?;
    let right = document(DOCUMENT_BYTES);
    lab.lab.file("document", &right).map_err(absent)?;
    lab.lab.file("small", &right[..1_000]).map_err(absent)?;
    let _nginx = lab
        .serve(lab.lab.folder(), BYTES_PER_SECOND)
        .map_err(absent)?;
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: "/document".to_owned(),
        document: &right,
        count: if context.full {
            5 * DOWNLOADS
        } else {
            DOWNLOADS
        },
        at_once: AT_ONCE,
        patience: PATIENCE,
    };
    let single = |count| Downloads {
        path: "/small".to_owned(),
        document: &right[..1_000],
        count,
        at_once: 1,
        ..downloads.clone()
    };

    let mut outcome = Outcome::new(0.0, 1);
    let (mut worst, mut runs) = (f64::INFINITY, 0);
    for (absent_setting, channels) in SETTINGS {
        let hosts = start(
            &lab,
            &product,
            &HostOptions::default().absent(absent_setting),
        )?;
        for &(delay_ms, loss) in channels {
            let delay = Duration::from_millis(delay_ms);
            let channel = lab.channel.as_ref().ok_or_else(|| {
                Failure::Unsound("two hosts have no state channel between them".to_owned())
            })?;
            channel
                .set_all(&LinkConditions {
                    loss,
                    ..LinkConditions::with_delay(delay)
                })
                .map_err(absent)?;
            let word = absent_setting.split(' ').next().unwrap_or(absent_setting);

            // Both ways through the first host: no news from another is needed.
            lab.requests_through(&[0]).map_err(absent)?;
            lab.replies_through(&[0]).map_err(absent)?;
            let direct = checked(
                single(CONNECTIONS).run(&lab.client).map_err(absent)?,
                CONNECTIONS,
            )?;
            lab.replies_through(&[1]).map_err(absent)?;
            let count = if word == "drop" {
                SLOW_CONNECTIONS
            } else {
                CONNECTIONS
            };
            let apart = checked(single(count).run(&lab.client).map_err(absent)?, count)?;
            let added = apart.connect_ms(0.5) - direct.connect_ms(0.5);

            channel.forget_lateness().map_err(absent)?;
            let before = frames(&lab)?;
            let report = downloads.run(&lab.client).map_err(absent)?;
            let after = frames(&lab)?;
            channel
                .report()
                .and_then(|report| report.sound(delay_ms * 1_000 / LATENESS_SHARE))
                .map_err(unsound)?;
            let lateness = channel.report().map_err(absent)?.lateness;
            let taken: [u64; 4] = std::array::from_fn(|place| after[place] - before[place]);
            prove(&taken, &report, downloads.count)?;

            let share = 100.0 * report.complete() as f64 / downloads.count as f64;
            if report.complete() < downloads.count {
                context.say(&report.faults());
            }
            context.say(&format!(
                "{delay_ms} ms, {loss} lost, {word}: {share} % whole, {} at once, SYN-ACK + {added:.2} ms, frames {taken:?}",
                report.most_at_once()
            ));
            worst = worst.min(share);
            runs += 1;
            let lossy = if loss > 0.0 { "lossy-" } else { "" };
            let name = |what: &str| format!("{delay_ms}ms-{lossy}{word}-{what}");
            outcome = outcome
                .variant(name("complete-percent"), share)
                .variant(name("syn-ack-added-ms"), added)
                .variant(name("connect-p99-ms-100-at-once"), report.connect_ms(0.99))
                .variant(name("most-at-once"), report.most_at_once() as f64)
                .variant(name("frames-client-to-first"), taken[0] as f64)
                .variant(name("frames-client-to-second"), taken[1] as f64)
                .variant(name("frames-server-to-first"), taken[2] as f64)
                .variant(name("frames-server-to-second"), taken[3] as f64)
                .variant(name("link-late-p99-us"), lateness.at_most_us(0.99) as f64);
        }
        for host in hosts {
            host.terminate(PATIENCE)
                .and_then(asterism_lab::Finished::successful)
                .map_err(unsound)?;
        }
    }
    Ok(outcome.with_value(worst, runs))
}

/// All of these connections must be whole, or their times say nothing.
fn checked(report: DownloadReport, count: usize) -> Result<DownloadReport, Failure> {
    if report.complete() == count {
        Ok(report)
    } else {
        Err(Failure::Unsound(format!(
            "of {count} connections to be timed {}",
            report.faults()
        )))
    }
}

/// Frames that each host took from the client, then from the server.
fn frames(lab: &NatLab) -> Result<[u64; 4], Failure> {
    let inside = lab.counts("in").map_err(absent)?;
    let outside = lab.counts("out").map_err(absent)?;
    Ok([
        inside[0].received,
        inside[1].received,
        outside[0].received,
        outside[1].received,
    ])
}

/// What was measured is what is said to be: paths were asymmetric, and downloads overlapped.
fn prove(taken: &[u64; 4], report: &DownloadReport, count: usize) -> Result<(), Failure> {
    let [requests, other_requests, other_replies, replies] = *taken;
    // A whole document is 700 frames; each download sends ten frames at least.
    let complete = report.complete() as u64;
    if requests < 10 * complete
        || replies < 700 * complete
        || other_requests.max(other_replies) > STRAY_FRAMES_MAX
    {
        return Err(Failure::Unsound(format!(
            "the paths were not asymmetric: the hosts took {requests} and {other_requests} frames from the client, {other_replies} and {replies} from the server"
        )));
    }
    let least = AT_ONCE.min(count);
    if report.most_at_once() < least {
        return Err(Failure::Unsound(format!(
            "only {} downloads were under way at one moment, not {least}",
            report.most_at_once()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_lab::http::{Download, Stall};

    #[test]
    fn symmetric_paths_and_downloads_one_by_one_are_refused() {
        let report = |at_once: usize| DownloadReport {
            downloads: (0..200)
                .map(|number| Download {
                    began: Duration::from_secs(number as u64 / at_once as u64),
                    connect: Some(Duration::from_millis(1)),
                    ended: Duration::from_secs(number as u64 / at_once as u64 + 1),
                    stall: Stall::default(),
                    fault: None,
                })
                .collect(),
        };
        assert!(prove(&[40_000, 3, 3, 150_000], &report(100), 200).is_ok());
        for taken in [
            [40_000, 0, 150_000, 0],
            [20_000, 20_000, 0, 150_000],
            [0, 0, 0, 0],
        ] {
            assert!(prove(&taken, &report(100), 200).is_err(), "{taken:?}");
        }
        assert!(prove(&[40_000, 3, 3, 150_000], &report(99), 200).is_err());
    }
}
