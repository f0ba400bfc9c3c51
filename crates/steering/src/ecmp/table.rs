//! The kernel's routes, read and written by the program `ip`, in a network namespace if need be.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;

use super::{EcmpRoute, IP_TIME_MAX, ROUTE_PROTOCOL};
use crate::SteeringError;
use crate::clock;

/// Bytes of an answer of `ip` that are read at most: 16 routes of 64 next hops are a tenth of it.
const ANSWER_BYTES_MAX: u64 = 2 << 20;

/// Routes as they are, and lines that change them. A trait, so that the driver is tested without a kernel too.
pub(super) trait Table: Send {
    /// Each of these routes as it is; none where there is none.
    fn read(&mut self, routes: &[EcmpRoute]) -> Result<Vec<Option<Present>>, SteeringError>;

    /// Makes each line so, in their order; the first that is refused ends it.
    fn replace(&mut self, lines: &[String]) -> Result<(), SteeringError>;
}

/// A route as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// Whether this driver wrote it.
    pub(super) is_ours: bool,
    pub(super) source: Option<Ipv4Addr>,
    /// In the order in which they share the flow space.
    pub(super) hops: Vec<PresentHop>,
}

/// One next hop of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PresentHop {
    pub(super) gateway: Ipv4Addr,
    pub(super) interface: String,
    pub(super) weight: u16,
    /// Whether the interface is down or has no carrier.
    pub(super) is_down: bool,
}

/// The program `ip`.
#[derive(Debug)]
pub(super) struct Ip {
    network: Option<PathBuf>,
}

impl Ip {
    pub(super) fn new(network: Option<PathBuf>) -> Ip {
        Ip { network }
    }

    /// Runs lines as one batch; what it wrote, or what it said of its failure. Some 3 ms.
    fn batch(&self, what: &str, json: bool, lines: &[String]) -> Result<Output, SteeringError> {
        let mut input = lines.join("\n");
        input.push('\n');
        let mut command = Command::new("ip");
        if json {
            command.arg("-json");
        }
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = self
            .spawn(command)
            .map_err(|error| SteeringError::Unreachable {
                what: what.to_owned(),
                said: error.to_string(),
            })?;
        finish(child, input).ok_or_else(|| SteeringError::TimedOut {
            what: what.to_owned(),
            waited: IP_TIME_MAX,
        })
    }

    /// Starts it inside the namespace, by a thread that goes there and ends.
    fn spawn(&self, mut command: Command) -> std::io::Result<Child> {
        let Some(path) = &self.network else {
            return command.spawn();
        };
        let network = File::open(path).map_err(|error| {
            std::io::Error::new(
                error.kind(),
                format!("opening the network namespace {}: {error}", path.display()),
            )
        })?;
        std::thread::scope(|scope| {
            let started = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(network.as_fd(), kind).map_err(|error| {
                    std::io::Error::other(format!("entering {}: {error}", path.display()))
                })?;
                command.spawn()
            });
            started
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it died")))
        })
    }
}

impl Table for Ip {
    fn read(&mut self, routes: &[EcmpRoute]) -> Result<Vec<Option<Present>>, SteeringError> {
        let what = "ip route show";
        let lines: Vec<_> = routes
            .iter()
            .map(|route| format!("route show exact {route} table {}", route.table))
            .collect();
        let output = self.batch(what, true, &lines)?;
        if !output.success {
            return Err(SteeringError::Unreachable {
                what: what.to_owned(),
                said: output.errors,
            });
        }
        parse(&output.text, routes).map_err(|error| SteeringError::Unreadable {
            what: what.to_owned(),
            said: error.to_string(),
        })
    }

    fn replace(&mut self, lines: &[String]) -> Result<(), SteeringError> {
        let what = format!("ip {}", lines.join("; ip "));
        let output = self.batch(&what, false, lines)?;
        if output.success {
            return Ok(());
        }
        Err(SteeringError::Refused {
            what,
            said: output.errors,
        })
    }
}

/// What a run of `ip` left.
struct Output {
    success: bool,
    text: String,
    errors: String,
}

/// Hands the lines over and waits for the end; none if it does not come in time, and then it is killed.
fn finish(mut child: Child, input: String) -> Option<Output> {
    let started = clock::now();
    let stdin = child.stdin.take();
    std::thread::spawn(move || {
        // A program that does not read to the end says so by its exit.
        let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
    });
    let text = read_to_end(child.stdout.take());
    let errors = read_to_end(child.stderr.take());
    let within = |answer: &Receiver<String>| {
        let left = IP_TIME_MAX.saturating_sub(started.elapsed());
        answer.recv_timeout(left).ok()
    };
    let outputs = within(&text).and_then(|text| Some((text, within(&errors)?)));
    if outputs.is_none() {
        // It may have ended by itself: then there is nothing to kill.
        let _ = child.kill();
    }
    // Both of its outputs are closed, or it was killed: its end is here or at hand.
    let status = child.wait();
    let (text, errors) = outputs?;
    Some(Output {
        success: status.is_ok_and(|status| status.success()),
        text,
        errors: errors.trim().replace('\n', "; "),
    })
}

fn read_to_end(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (done, answer) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What was read until an error is all that there is; the exit code says the rest.
            let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        }
        // Nobody may be waiting any more.
        let _ = done.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    answer
}

/// A route as `ip -json route show` has it.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    metric: u32,
    prefsrc: Option<Ipv4Addr>,
    /// Of a route with one next hop.
    #[serde(flatten)]
    only: ShownHop,
    #[serde(default)]
    nexthops: Vec<ShownHop>,
}

#[derive(Deserialize)]
struct ShownHop {
    gateway: Option<Ipv4Addr>,
    dev: Option<String>,
    weight: Option<u16>,
    #[serde(default)]
    flags: Vec<String>,
}

impl ShownHop {
    /// None of a next hop that is no gateway, which is no target's.
    fn present(self) -> PresentHop {
        let is_down = |flag: &String| flag == "dead" || flag == "linkdown";
        PresentHop {
            gateway: self.gateway.unwrap_or(Ipv4Addr::UNSPECIFIED),
            interface: self.dev.unwrap_or_default(),
            weight: self.weight.unwrap_or(1),
            is_down: self.flags.iter().any(is_down),
        }
    }
}

/// Why an answer of `ip` is not understood.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    /// It is not JSON with lists of routes.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has more or fewer lists than there were questions.
    #[error("{lists} lists for {routes} routes")]
    Lists { lists: usize, routes: usize },
}

/// Reads one list a route, of which at most one has its metric.
fn parse(text: &str, routes: &[EcmpRoute]) -> Result<Vec<Option<Present>>, AnswerError> {
    let lists: Result<Vec<Vec<Shown>>, _> = serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect();
    let lists = lists?;
    if lists.len() != routes.len() {
        return Err(AnswerError::Lists {
            lists: lists.len(),
            routes: routes.len(),
        });
    }
    let present = |(list, route): (Vec<Shown>, &EcmpRoute)| {
        let shown = list
            .into_iter()
            .find(|shown| shown.metric == route.metric)?;
        let hops = if shown.nexthops.is_empty() {
            vec![shown.only]
        } else {
            shown.nexthops
        };
        Some(Present {
            is_ours: shown.protocol == ROUTE_PROTOCOL.to_string(),
            source: shown.prefsrc,
            hops: hops.into_iter().map(ShownHop::present).collect(),
        })
    };
    Ok(lists.into_iter().zip(routes).map(present).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> [EcmpRoute; 2] {
        [
            EcmpRoute::new([0, 0, 0, 0].into(), 0),
            EcmpRoute::new([203, 0, 113, 0].into(), 29),
        ]
    }

    #[test]
    fn what_ip_shows_is_read() {
        let text = r#"[{"dst":"default","protocol":"77","prefsrc":"10.77.0.2","flags":[],"nexthops":[{"gateway":"10.77.0.1","dev":"nat1","weight":3,"flags":["onlink"]},{"gateway":"10.77.0.1","dev":"nat2","weight":1,"flags":["onlink","dead","linkdown"]}]}]
[{"dst":"203.0.113.0/29","gateway":"10.0.0.1","dev":"eth0","metric":9,"flags":[]},{"dst":"203.0.113.0/29","protocol":"static","gateway":"10.0.0.9","dev":"eth0","flags":["linkdown"]}]
"#;
        let hop = |gateway: [u8; 4], interface: &str, weight, is_down| PresentHop {
            gateway: gateway.into(),
            interface: interface.to_owned(),
            weight,
            is_down,
        };
        assert_eq!(
            parse(text, &routes()).unwrap(),
            [
                Some(Present {
                    is_ours: true,
                    source: Some([10, 77, 0, 2].into()),
                    hops: vec![
                        hop([10, 77, 0, 1], "nat1", 3, false),
                        hop([10, 77, 0, 1], "nat2", 1, true)
                    ],
                }),
                Some(Present {
                    is_ours: false,
                    source: None,
                    hops: vec![hop([10, 0, 0, 9], "eth0", 1, true)],
                }),
            ]
        );
        assert_eq!(parse("[]\n[]\n", &routes()).unwrap(), [None, None]);
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        for text in [
            "",
            "[]",
            "{}{}",
            "[]\n[{\"metric\":-1}]",
            "[]\n[",
            "nonsense",
        ] {
            assert!(parse(text, &routes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_namespace_that_is_not_there_is_reported() {
        let mut ip = Ip::new(Some(PathBuf::from("/nowhere/at-all")));
        let error = ip.read(&routes()).unwrap_err();
        assert!(
            matches!(&error, SteeringError::Unreachable { said, .. } if said.contains("/nowhere/at-all")),
            "{error}"
        );
        assert!(error.to_string().contains("nothing was changed"));
    }
}
