//! `lab.throughput`: one iperf3 stream through one NAT host on AF_PACKET, with offloads on and off, by the clock as iperf3 tells it.
//! Client, server and host share what cores there are, so beside it stands what arrived in a second of the host's time on a core.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asterism_io::port::AfPacketMode;
use asterism_lab::nat::{HostOptions, NatLab, NatLabConfig, SERVER};
use asterism_lab::{LabError, Offloads, Program};

use super::lab::{absent, needs, product, start, unsound};
use super::relay::relay;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::timing::{Spread, process_cpu_ns};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "lab.throughput",
    make: throughput,
}];

/// Seconds of each stream, and of the long form.
const SECONDS: u64 = 3;
const SECONDS_FULL: u64 = 20;
/// Streams through the product, of which the median counts: segments that are lost at the start of one slow all of it.
const STREAMS: usize = 3;
/// Not what the machine has by default: BBR paces by timers, and is then what is measured (9 Gb/s on a bare cable, where
/// this gives 34).
const CONGESTION_CONTROL: &str = "cubic";
/// How long a stream may take to begin and end beside those seconds.
const MARGIN: Duration = Duration::from_secs(8);

/// As an operator would have ports for bulk: the kernel's own network stack has no part in it, and where no offloads are, segments
/// are merged as far as the kernel's last step.
fn port_lines(offloads: Offloads) -> &'static str {
    match offloads {
        Offloads::On => "exclusive = true",
        Offloads::Off => "exclusive = true\nmerge = true",
    }
}

/// Who forwards.
#[derive(Clone, Copy, PartialEq)]
enum Through {
    Asterism,
    /// The product's ports with nothing between them.
    Relay,
    Forwarding,
    Nftables,
}

fn throughput(context: &Context) -> Result<Outcome, Failure> {
    needs(&["ip", "iperf3", "nft"])?;
    let seconds = if context.full { SECONDS_FULL } else { SECONDS };
    let rate = |through, offloads, name: &str| {
        let rate = stream(through, offloads, seconds)?;
        context.say(&format!("{name}: {:.2} Gb/s", rate.by_clock));
        Ok::<Rate, Failure>(rate)
    };
    let ours = |offloads, name: &str| {
        let rates: Result<Vec<Rate>, Failure> = (0..STREAMS)
            .map(|_| rate(Through::Asterism, offloads, name))
            .collect();
        let rates = rates?;
        let by_clock: Vec<f64> = rates.iter().map(|rate| rate.by_clock).collect();
        let by_host: Vec<f64> = rates.iter().filter_map(|rate| rate.by_host).collect();
        Ok::<_, Failure>((by_clock, Spread::of(&by_host).median))
    };
    let (on, on_by_host) = ours(Offloads::On, "offloads on")?;
    let (off, off_by_host) = ours(Offloads::Off, "offloads off")?;
    let mut outcome = Outcome::of(&Spread::of(&on))
        .variant("offloads-off", Spread::of(&off).median)
        .variant("offloads-on-by-host-time", on_by_host)
        .variant("offloads-off-by-host-time", off_by_host)
        .samples("offloads-on", on)
        .samples("offloads-off", off);
    for (name, through, offloads) in [
        ("bare-relay-offloads-on", Through::Relay, Offloads::On),
        ("bare-relay-offloads-off", Through::Relay, Offloads::Off),
        (
            "kernel-forwarding-offloads-on",
            Through::Forwarding,
            Offloads::On,
        ),
        (
            "kernel-forwarding-offloads-off",
            Through::Forwarding,
            Offloads::Off,
        ),
        ("nftables-offloads-on", Through::Nftables, Offloads::On),
        ("nftables-offloads-off", Through::Nftables, Offloads::Off),
    ] {
        outcome = outcome.variant(name, rate(through, offloads, name)?.by_clock);
    }
    Ok(outcome)
}

/// Gigabits that arrived at the server.
struct Rate {
    /// In a second.
    by_clock: f64,
    /// In a second that the host's process was on a core, the kernel's work in its name included; of the product alone.
    by_host: Option<f64>,
}

/// What arrives of a stream in a laboratory of its own.
fn stream(through: Through, offloads: Offloads, seconds: u64) -> Result<Rate, Failure> {
    let (client, server) = end_cores();
    let config = NatLabConfig::new(1, Duration::ZERO)
        .offloads(offloads)
        .ends_on_cores(client, server);
    let lab = NatLab::new(&config).map_err(absent)?;
    let mut hosts = Vec::new();
    match through {
        Through::Asterism => {
            let options = HostOptions {
                bulk: offloads == Offloads::On,
                port_lines: port_lines(offloads).to_owned(),
                ..HostOptions::default()
            };
            hosts = start(&lab, &product()?, &options)?;
        }
        Through::Relay => lab.use_routes(0).map_err(absent)?,
        Through::Forwarding => lab.use_forwarding(0).map_err(absent)?,
        Through::Nftables => lab.use_kernel(0).map_err(absent)?,
    }
    if through != Through::Relay {
        return iperf3(&lab, &hosts, seconds);
    }
    let ends = AtomicBool::new(false);
    let mode = match offloads {
        Offloads::On => AfPacketMode::Bulk,
        Offloads::Off => AfPacketMode::Ring,
    };
    std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay(&lab, mode, &ends));
        let rate = iperf3(&lab, &hosts, seconds);
        ends.store(true, Ordering::Relaxed);
        relay
            .join()
            .map_err(|_| Failure::Unsound("the relay panicked".into()))??;
        rate
    })
}

/// The cores of the client and of the server, each for its program and for what it receives, as if they were machines; anyone
/// forwards is put on neither. Without, the core that works off acknowledgements, and what they let the client send, is drawn
/// again by each connection's ports, and so is the figure.
fn end_cores() -> (usize, usize) {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    (0, cores - 1)
}

/// The stream itself.
fn iperf3(lab: &NatLab, hosts: &[Program], seconds: u64) -> Result<Rate, Failure> {
    let address = SERVER.to_string();
    let (client_core, server_core) = end_cores();
    let server = lab
        .server
        .program("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", &address])
        .start()
        .map_err(absent)?;
    server
        .wait_for_output("listening", MARGIN)
        .map_err(absent)?;
    let host_ns = || process_cpu_ns(hosts.first()?.process_id());
    let before_ns = host_ns();
    let client = lab
        .client
        .program("iperf3")
        .args(["-c", &address, "-J", "-t", &seconds.to_string()])
        .args(["-C", CONGESTION_CONTROL])
        .args(["-A", &format!("{client_core},{server_core}")])
        .time_max(Duration::from_secs(seconds) + MARGIN)
        .run()
        .map_err(unsound)?;
    if hosts.iter().any(|host| !host.runs()) {
        return Err(unsound(LabError::Failed {
            what: "the NAT host".to_owned(),
            said: hosts.iter().map(Program::stderr).collect(),
        }));
    }
    let document: serde_json::Value = serde_json::from_slice(&client.stdout)
        .map_err(|error| Failure::Unsound(format!("iperf3 printed no document ({error})")))?;
    let rate = document["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.filter(|rate| *rate > 0.0).ok_or_else(|| {
        Failure::Unsound(format!(
            "nothing arrived at the server: {}",
            document["error"]
        ))
    })?;
    // Every byte must have passed the host's interfaces.
    let bytes = lab.counts("in").map_err(absent)?[0].received_bytes as f64;
    if bytes * 8.0 < rate * seconds as f64 * 0.9 {
        return Err(Failure::Unsound(format!(
            "the host took {bytes} bytes, fewer than arrived: the stream went another way"
        )));
    }
    let took_ns = host_ns()
        .zip(before_ns)
        .map(|(after, before)| after - before);
    Ok(Rate {
        by_clock: rate / 1e9,
        // Bits in a nanosecond are gigabits in a second.
        by_host: took_ns.map(|took| rate * seconds as f64 / took as f64),
    })
}
