//! Directors on other machines: the driver, and what a director answers it with.
//!
//! Each director runs [`DirectorSteering`](super::DirectorSteering) beside itself ([`ServedDirector`]). The driver
//! ([`RemoteDirectorSteering`]) sends the whole desired state to the one or two directors of a pair, by sealed datagrams
//! (`asterism-director-control`). Each makes its table of it; both have the same one, since it follows from names and weights.
//!
//! **A director that does not answer.** A state is in force once all directors have it. One that does not answer is left out if the
//! other one answers and receives no heartbeats of it either; until then it may forward by an older state, and the call fails.
//! One that was started again has no state: the driver hands it the last one at once, without being asked to.
//!
//! `served.rs` is the director's side.

mod served;

use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use asterism_director_control::{
    Answer, Commander, DesiredTarget, Handled, HostNumber, Outcome, RefusedCommand, Request, Status,
};
use asterism_secure_channel::{ClusterId, DATAGRAM_BYTES_MAX, KeyRing};

pub use self::served::ServedDirector;
use crate::clock;
use crate::{
    Abilities, Applied, Counts, Desired, Generation, InForce, Notice, Observed, ObservedTarget,
    Standing, Steering, SteeringError,
};

/// How long directors may sanely take to answer.
pub const ANSWER_TIME_SANE: Duration = Duration::from_millis(500);
/// After so long without an answer a request is sent again.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often the directors are asked for their status.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// A director is silent when it has not answered for so long: calls no longer wait for it.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// How long the driver sleeps before it looks for answers again.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Datagrams that are read at once at most.
const DATAGRAMS_MAX: usize = 64;
/// Directors of a driver at most.
const DIRECTORS_MAX: usize = super::DIRECTORS_MAX;

/// A driver of directors on other machines.
pub struct RemoteDirectorConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its keys.
    pub keys: KeyRing,
    /// Other keys, whenever there are.
    pub other_keys: Receiver<KeyRing>,
    /// One director or two: the name of each, where it takes commands, and random bytes of this start.
    pub directors: Vec<(String, SocketAddr, [u8; 16])>,
    /// The names of the hosts, which the directors know by the same ones.
    pub targets: Vec<String>,
    /// How long directors may take to answer; sane: [`ANSWER_TIME_SANE`].
    pub answer_time_max: Duration,
}

/// A director.
struct Remote {
    name: String,
    socket: UdpSocket,
    commander: Commander,
    status: Status,
    /// When it answered last, or the driver was made.
    heard: Instant,
    /// When something was sent to it last.
    sent: Option<Instant>,
    has_answered: bool,
    /// Whether it answers, as reported last; `None` before the first report.
    reported: Option<bool>,
    was_active: bool,
}

impl Remote {
    fn send(&mut self) {
        self.sent = Some(clock::now());
        if let Some(datagram) = self.commander.waiting() {
            // One that could not be sent is lost like any other.
            let _ = self.socket.send(datagram);
        }
    }

    fn ask(&mut self, request: Request) {
        self.commander.request(request);
        self.send();
    }

    /// The answer to what was asked last, if it has come.
    fn receive(&mut self) -> Option<Answer> {
        let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..DATAGRAMS_MAX {
            let length = match self.socket.recv(&mut bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // Nobody listens there, as ICMP says: as good as no answer.
                Err(_) => continue,
            };
            match self.commander.handle(&mut bytes[..length]) {
                Handled::Answer(answer) => {
                    self.heard = clock::now();
                    self.has_answered = true;
                    self.status.clone_from(&answer.status);
                    return Some(answer);
                }
                Handled::SendAgain => self.send(),
                Handled::Ignored => {}
            }
        }
        None
    }

    fn is_silent(&self) -> bool {
        self.heard.elapsed() > SILENT_AFTER
    }
}

/// The driver.
pub struct RemoteDirectorSteering {
    directors: Vec<Remote>,
    targets: Vec<String>,
    other_keys: Receiver<KeyRing>,
    answer_time_max: Duration,
    applied: Applied,
    /// Hosts that the directors do not reach, as reported last.
    down: Vec<bool>,
    notices: Vec<Notice>,
    counts: Counts,
}

impl fmt::Debug for RemoteDirectorSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDirectorSteering")
            .field("directors", &self.directors.len())
            .field("targets", &self.targets)
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

impl RemoteDirectorSteering {
    /// A driver of these directors, at most two; more are left out. Sends nothing yet. Dropped, it leaves the directors as they are.
    ///
    /// # Errors
    /// There is no socket.
    pub fn new(config: RemoteDirectorConfig) -> std::io::Result<RemoteDirectorSteering> {
        let directors = config.directors.into_iter().take(DIRECTORS_MAX);
        let directors: std::io::Result<Vec<Remote>> = directors
            .map(|(name, address, salt)| {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                // Only the director's datagrams are received then.
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(Remote {
                    name,
                    socket,
                    commander: Commander::new(config.cluster, config.keys.clone(), salt),
                    status: Status::default(),
                    heard: clock::now(),
                    sent: None,
                    has_answered: false,
                    reported: None,
                    was_active: false,
                })
            })
            .collect();
        Ok(RemoteDirectorSteering {
            directors: directors?,
            down: vec![false; config.targets.len()],
            targets: config.targets,
            other_keys: config.other_keys,
            answer_time_max: config.answer_time_max,
            applied: Applied::default(),
            notices: Vec::new(),
            counts: Counts::default(),
        })
    }

    fn take_keys(&mut self) {
        if let Some(keys) = self.other_keys.try_iter().last() {
            for director in &mut self.directors {
                director.commander.set_keys(keys.clone());
            }
        }
    }

    /// The request of a desired state. An error if it names a target that the directors do not know.
    fn request_of(&self, desired: &Desired) -> Result<Request, SteeringError> {
        let mut targets = Vec::new();
        for (name, target) in desired.targets() {
            if target.standing == Standing::Out {
                continue;
            }
            if !self.targets.iter().any(|known| known == name) {
                return Err(SteeringError::UnknownTarget(name.to_owned()));
            }
            targets.push(DesiredTarget {
                host: HostNumber::of(name),
                weight: target.weight,
                drains: target.standing == Standing::Drains,
            });
        }
        Ok(Request::Apply {
            generation: desired.generation().0,
            targets,
        })
    }

    /// Sends a request to all directors, and waits for the answers of those that are not silent.
    fn exchange(&mut self, request: &Request) -> Vec<Option<Answer>> {
        self.take_keys();
        let started = clock::now();
        for director in &mut self.directors {
            // What came before is the answer to something else.
            let _ = director.receive();
            director.ask(request.clone());
        }
        let mut answers: Vec<Option<Answer>> = vec![None; self.directors.len()];
        loop {
            for (director, answer) in self.directors.iter_mut().zip(&mut answers) {
                if answer.is_none() {
                    *answer = director.receive();
                }
            }
            let mut both = self.directors.iter().zip(&answers);
            let waits = both.any(|(director, answer)| answer.is_none() && !director.is_silent());
            let has_some = answers.iter().any(Option::is_some);
            if (has_some && !waits) || started.elapsed() > self.answer_time_max {
                return answers;
            }
            for (director, answer) in self.directors.iter_mut().zip(&answers) {
                let is_due = |sent: Instant| sent.elapsed() > SEND_AGAIN_AFTER;
                if answer.is_none() && director.sent.is_none_or(is_due) {
                    director.send();
                }
            }
            clock::pause(LOOK_AGAIN);
        }
    }

    /// An error if a director did not answer that may be there all the same.
    fn check_present(&self, answers: &[Option<Answer>]) -> Result<(), String> {
        let answered: Vec<&Answer> = answers.iter().flatten().collect();
        let is_heard = answered.iter().any(|answer| answer.status.hears_other);
        let mut absent = self.directors.iter().zip(answers);
        let absent = absent.find(|(_, answer)| answer.is_none());
        match absent {
            Some((director, _)) if answered.is_empty() || is_heard => Err(director.name.clone()),
            _ => Ok(()),
        }
    }

    /// The greatest change of any director.
    fn judge(&self, answers: &[Option<Answer>], what: &str) -> Result<(u32, u16), SteeringError> {
        let mut most = (0, 0);
        for (director, answer) in self.directors.iter().zip(answers) {
            match answer.as_ref().map(|answer| &answer.outcome) {
                Some(Outcome::Done {
                    changed,
                    moved_permille,
                }) => most = (most.0.max(*changed), most.1.max(*moved_permille)),
                Some(Outcome::Refused(refused)) => return Err(self.refusal(director, refused)),
                None => {}
            }
        }
        self.check_present(answers)
            .map_err(|name| SteeringError::TimedOut {
                what: format!("{what} at the director {name}"),
                waited: self.answer_time_max,
            })?;
        let mut tables = answers.iter().flatten().map(|answer| answer.status.table);
        let first = tables.next();
        if tables.any(|table| Some(table) != first) {
            return Err(SteeringError::Refused {
                what: "one table in both directors".to_owned(),
                said: "they spread differently: give both the same configuration and version"
                    .to_owned(),
            });
        }
        Ok(most)
    }

    fn refusal(&self, director: &Remote, refused: &RefusedCommand) -> SteeringError {
        let offered = self.applied.begun().map(Desired::generation);
        let offered = offered.unwrap_or_default();
        match refused {
            RefusedCommand::Stale { known } => SteeringError::Stale {
                offered,
                known: Generation(*known),
            },
            RefusedCommand::Contradicts => SteeringError::Contradicts(offered),
            RefusedCommand::UnknownTarget(number) => {
                let is_it = |name: &&String| HostNumber::of(name) == *number;
                let name = self.targets.iter().find(is_it).cloned();
                SteeringError::UnknownTarget(name.unwrap_or_default())
            }
            RefusedCommand::Failed(said) => SteeringError::Refused {
                what: format!("a table at the director {}", director.name),
                said: said.clone(),
            },
        }
    }

    /// The directors that are not silent, and of these the active one, or all while none is.
    fn deciding(&self) -> Vec<&Status> {
        let present = self.directors.iter().filter(|one| !one.is_silent());
        let all: Vec<&Status> = present.map(|one| &one.status).collect();
        let active: Vec<&Status> = all.iter().copied().filter(|one| one.is_active).collect();
        if active.is_empty() { all } else { active }
    }

    /// Whether the directors that decide do not reach each target. A director without one that it reaches has just begun.
    fn links_down(&self) -> Vec<bool> {
        let deciding = self.deciding();
        let is_down = |name: &String| {
            let number = HostNumber::of(name);
            let unreached = |status: &&&Status| {
                let mut targets = status.targets.iter();
                let is_it = |one: &&asterism_director_control::TargetStatus| one.host == number;
                targets.find(is_it).is_some_and(|one| !one.is_reachable)
            };
            let begun = |status: &&&Status| status.targets.iter().any(|one| one.is_reachable);
            deciding
                .iter()
                .filter(begun)
                .any(|status| unreached(&status))
        };
        self.targets.iter().map(is_down).collect()
    }

    fn notice(&mut self) {
        for director in &mut self.directors {
            let name = &director.name;
            let answers = match (director.is_silent(), director.has_answered) {
                (true, _) => false,
                (false, true) => true,
                // It may answer yet.
                (false, false) => continue,
            };
            let is_new = director.reported.replace(answers) != Some(answers);
            let notice = is_new.then(|| match answers {
                true => ("director-heard", false, format!("the director {name} answers")),
                false => {
                    let text = format!(
                        "the director {name} does not answer: it has ended, or goes on by the last state that it has"
                    );
                    ("director-silent", true, text)
                }
            });
            let notice = notice.into_iter();
            let is_active = answers && director.status.is_active;
            let role = (is_active && !director.was_active).then(|| {
                let text = format!("the director {name} has the shared addresses");
                ("director-active", false, text)
            });
            director.was_active = is_active;
            self.notices
                .extend(notice.chain(role).map(|(kind, is_warning, text)| Notice {
                    kind,
                    is_warning,
                    text,
                }));
        }
    }
}

impl Steering for RemoteDirectorSteering {
    /// As of directors in this process: a draining target keeps its TCP connections.
    fn abilities(&self) -> Abilities {
        Abilities {
            keeps_flows: true,
            moves_least: true,
            waits_max: self.answer_time_max,
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        let started = clock::now();
        let refused = |counts: &mut Counts| counts.refused += 1;
        let checked = self.applied.check(desired);
        checked.inspect_err(|_| refused(&mut self.counts))?;
        let request = self.request_of(desired);
        let request = request.inspect_err(|_| refused(&mut self.counts))?;
        let was_applied = self.applied.begin(desired);
        let answers = self.exchange(&request);
        let judged = self.judge(&answers, "a table");
        let (changed, moved) = judged.inspect_err(|_| self.counts.failed += 1)?;
        self.applied.finish();
        self.counts.applied += 1;
        self.counts.changed += u64::from(changed);
        self.counts.repaired += u64::from(was_applied && changed > 0);
        Ok(InForce {
            generation: desired.generation(),
            changed,
            moved_permille: Some(moved),
            took: started.elapsed(),
        })
    }

    fn observe(&mut self) -> Result<Observed, SteeringError> {
        let answers = self.exchange(&Request::Query);
        self.notice();
        let present: Vec<&Status> = answers.iter().flatten().map(|one| &one.status).collect();
        if present.is_empty() {
            let names: Vec<&str> = self.directors.iter().map(|one| &one.name[..]).collect();
            return Err(SteeringError::Unreachable {
                what: format!("the director {}", names.join(" or ")),
                said: format!("no answer within {:?}", self.answer_time_max),
            });
        }
        let begun = self.applied.begun().map(Desired::generation);
        let generation = begun.filter(|_| self.applied.is_finished());
        let as_applied = generation.is_some_and(|applied| {
            let has_it = |status: &&Status| status.generation == Some(applied.0);
            present.iter().all(has_it)
        });
        let share = |name: &String| {
            let number = HostNumber::of(name);
            let shares = present.iter().map(|status| {
                let is_it = |one: &&asterism_director_control::TargetStatus| one.host == number;
                let target = status.targets.iter().find(is_it);
                target.map_or(0, |target| target.share_permille)
            });
            shares.min().unwrap_or(0)
        };
        let elsewhere = present.iter().map(|status| status.elsewhere_permille);
        let elsewhere_permille = elsewhere.max().unwrap_or(0);
        let down = self.links_down();
        let targets = self.targets.iter().zip(&down);
        let targets = targets
            .map(|(name, link_down)| ObservedTarget {
                name: name.clone(),
                share_permille: share(name),
                link_down: *link_down,
            })
            .collect();
        Ok(Observed {
            generation,
            as_applied,
            targets,
            elsewhere_permille,
        })
    }

    /// Also asks the directors for their status, and hands a director that was started again the state in force.
    fn links_changed(&mut self) -> bool {
        self.take_keys();
        let begun = self.applied.begun().filter(|_| self.applied.is_finished());
        let in_force = begun.and_then(|begun| {
            let request = self.request_of(begun).ok()?;
            Some((begun.generation().0, request))
        });
        for director in &mut self.directors {
            let has_answered = director.receive().is_some();
            let lacks = |generation: u64| director.status.generation < Some(generation);
            let missing = in_force
                .as_ref()
                .filter(|(generation, _)| has_answered && lacks(*generation));
            let is_due = |sent: Instant| sent.elapsed() > QUERY_INTERVAL;
            if let Some((_, request)) = missing {
                director.ask(request.clone());
            } else if director.sent.is_none_or(is_due) {
                director.ask(Request::Query);
            }
        }
        self.notice();
        let down = self.links_down();
        let has_changed = down != self.down;
        self.down = down;
        has_changed
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests;
