//! A Linux NAT in a node of a laboratory, and the ends of its two links in another.

use std::time::{Duration, Instant};

use asterism_functions::nat::Side;
use asterism_lab::{Cable, Lab, LabError, Node};

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
    // With it go the links.
    _lab: Lab,
    _nodes: [Node; 2],
}

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
        let ruleset = ruleset(scenario);
        let (lab, nodes, sockets) = build(scenario, &ruleset).map_err(|error| error.to_string())?;
        let sockets = sockets.map_err(|error| format!("a packet socket: {error}"))?;
        Ok(Self {
            sockets,
            frames: Vec::new(),
            began: Instant::now(),
            description: hosts::description(scenario),
            ruleset,
            _lab: lab,
            _nodes: nodes,
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

/// The box and the hosts' end of its links, with what opening the packet sockets said.
#[allow(clippy::type_complexity, reason = "taken apart at once, in one place")]
fn build(
    scenario: &Scenario,
    ruleset: &str,
) -> Result<(Lab, [Node; 2], std::io::Result<[Socket; 2]>), LabError> {
    let lab = Lab::new()?;
    let (nat, outer) = (lab.node("box")?, lab.node("hosts")?);
    for node in [&nat, &outer] {
        set(node, SYSCTLS)?;
    }
    for (place, link) in hosts::BOX.iter().enumerate() {
        let mut cable = Cable::default();
        cable.macs[0] = Some(link.mac.to_owned());
        let (own, end) = (format!("g{place}"), format!("h{place}"));
        lab.cable((&nat, &own), (&outer, &end), &cable)?;
    }
    nat.ip(&hosts::links(scenario))?;
    set(&nat, scenario.sysctls)?;
    nat.program("nft").args(["-f", "-"]).input(ruleset).run()?;
    let sockets = outer.enter(|| Ok([Socket::open("h0")?, Socket::open("h1")?]))?;
    Ok((lab, [nat, outer], sockets))
}

/// Writes kernel settings. A kernel without one of them does not do what it would switch.
fn set(node: &Node, sysctls: &[(&str, &str)]) -> Result<(), LabError> {
    for (path, value) in sysctls {
        let setting = format!("net/{path}");
        let file = format!("/proc/sys/{setting}");
        if node.enter(|| std::path::Path::new(&file).exists())? {
            node.sysctl(&setting, value)?;
        }
    }
    Ok(())
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
