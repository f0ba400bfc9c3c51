//! A Linux NAT in a namespace, and the ends of its two links in another. Imports `namespace`, `socket`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use asterism_functions::nat::Side;

use super::namespace::{Namespace, run};
use super::socket::{Socket, wait};
use super::{Scenario, hosts};
use crate::recording::Frame;

/// Milliseconds without a frame after which what a packet caused is complete.
const QUIET_MS: u64 = 4;
/// Milliseconds that a first frame is waited for.
const NOTHING_MS: u64 = 40;

/// Kernel settings of every scenario: it routes, says all its errors, and does nothing of its own.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
    ("ipv4/ip_forward", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_msgs_per_sec", "100000"),
    ("ipv4/icmp_msgs_burst", "100000"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// A Linux NAT under test.
#[derive(Debug)]
pub struct Network {
    sockets: [Socket; 2],
    frames: Vec<Frame>,
    began: Instant,
    description: String,
    ruleset: String,
    // Dropped last: with them go the links.
    _box: Namespace,
    _hosts: Namespace,
}

static NETWORKS: AtomicU32 = AtomicU32::new(0);

#[allow(
    clippy::disallowed_methods,
    reason = "recordings are made in real time: this file is their clock"
)]
impl Network {
    /// Builds namespaces, links, routes, neighbours and rules of a scenario.
    ///
    /// # Errors
    /// With the words of the program that failed.
    pub fn start(scenario: &Scenario) -> Result<Self, String> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("oracle{}-{number}", std::process::id());
        let nat = Namespace::new(format!("{prefix}-box"))?;
        let outer = Namespace::new(format!("{prefix}-hosts"))?;
        for namespace in [&nat, &outer] {
            // In the outer one only what keeps it silent matters.
            namespace.run(&["sh", "-c", &written(SYSCTLS)], None)?;
        }
        let description = hosts::description(scenario);
        let macs = hosts::BOX.map(|link| link.mac);
        for (place, mac) in macs.iter().enumerate() {
            let (link, end) = (format!("g{place}"), format!("h{place}"));
            let link = [
                "link",
                "add",
                &link,
                "netns",
                nat.name(),
                "address",
                mac,
                "type",
                "veth",
                "peer",
                "name",
                &end,
                "netns",
                outer.name(),
            ];
            run("ip", &link, None)?;
        }
        outer.ip("link set h0 up\nlink set h1 up\n")?;
        nat.ip(&hosts::links(scenario))?;
        nat.run(&["sh", "-c", &written(scenario.sysctls)], None)?;
        let ruleset = ruleset(scenario);
        nat.run(&["nft", "-f", "-"], Some(&ruleset))?;
        let sockets = outer.enter(|| {
            let open = |name| Socket::open(name).map_err(|error| format!("{name}: {error}"));
            Ok([open("h0")?, open("h1")?])
        })?;
        Ok(Self {
            sockets,
            frames: Vec::new(),
            began: Instant::now(),
            description,
            ruleset,
            _box: nat,
            _hosts: outer,
        })
    }

    /// Sends a frame to the box; what the box sends meanwhile.
    ///
    /// # Errors
    /// With a sentence when the kernel refuses the frame.
    pub fn send(&mut self, side: Side, frame: Vec<u8>) -> Result<Vec<Frame>, String> {
        self.hand_over(side, frame)?;
        Ok(self.collect(NOTHING_MS))
    }

    /// Sends frames one right after another; what the box sends meanwhile.
    ///
    /// # Errors
    /// With a sentence when the kernel refuses a frame.
    pub fn send_all(&mut self, side: Side, frames: Vec<Vec<u8>>) -> Result<Vec<Frame>, String> {
        for frame in frames {
            self.hand_over(side, frame)?;
        }
        Ok(self.collect(NOTHING_MS))
    }

    fn hand_over(&mut self, side: Side, frame: Vec<u8>) -> Result<(), String> {
        let place = usize::from(side == Side::Outside);
        let time_us = self.now_us();
        self.sockets[place]
            .send(&frame)
            .map_err(|error| format!("sending {} bytes: {error}", frame.len()))?;
        self.frames.push(Frame {
            time_us,
            side,
            bytes: frame,
        });
        Ok(())
    }

    /// Lets time pass.
    pub fn pause(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.collect(left.as_millis().min(50) as u64);
        }
    }

    /// Waits for what may still come.
    pub fn rest(&mut self) {
        self.collect(NOTHING_MS);
    }

    /// What was on both links, the box's description and its ruleset.
    #[must_use]
    pub fn end(self) -> (Vec<Frame>, String, String) {
        (self.frames, self.description, self.ruleset)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn collect(&mut self, first_ms: u64) -> Vec<Frame> {
        let mut collected = Vec::new();
        let mut quiet_since = Instant::now();
        loop {
            let mut some = false;
            for (socket, side) in self.sockets.iter().zip([Side::Inside, Side::Outside]) {
                while let Some(bytes) = socket.receive() {
                    some = true;
                    collected.push(Frame {
                        time_us: self.began.elapsed().as_micros() as u64,
                        side,
                        bytes,
                    });
                }
            }
            if some {
                quiet_since = Instant::now();
            }
            let limit = if collected.is_empty() {
                first_ms
            } else {
                QUIET_MS
            };
            let quiet_ms = quiet_since.elapsed().as_millis() as u64;
            if quiet_ms >= limit {
                break;
            }
            wait(&self.sockets, (limit - quiet_ms) as i32);
        }
        self.frames.extend_from_slice(&collected);
        collected
    }
}

/// The shell's words that write kernel settings. A kernel without one of them does not do what it would switch.
fn written(sysctls: &[(&str, &str)]) -> String {
    sysctls
        .iter()
        .map(|(path, value)| {
            format!(
                "if [ -e /proc/sys/net/{path} ]; then echo {value} > /proc/sys/net/{path}; fi\n"
            )
        })
        .collect()
}

/// A masquerade with a firewall that is silent as our NAT is, and passes what our NAT passes.
fn ruleset(scenario: &Scenario) -> String {
    format!(
        r#"table ip nat {{
  chain post {{
    type nat hook postrouting priority 100;
{}
  }}
  chain pre {{
    type nat hook prerouting priority -100;
{}
  }}
}}
table ip filter {{
  chain input {{
    type filter hook input priority 0; policy drop;
    icmp type echo-request accept
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    icmp type {{ source-quench, redirect }} drop
    ct state invalid drop
    ct state established,related accept
    iifname "g0" accept
    ct status dnat accept
  }}
}}
"#,
        indented(scenario.post),
        indented(scenario.pre)
    )
}

fn indented(statements: &str) -> String {
    let lines = statements.lines().map(str::trim);
    let lines: Vec<String> = lines
        .filter(|line| !line.is_empty())
        .map(|line| format!("    {line}"))
        .collect();
    lines.join("\n")
}
