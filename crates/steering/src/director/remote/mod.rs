//! Directors on other machines: the driver, and what a director answers it with.
//!
//! Each director runs [`DirectorSteering`](super::DirectorSteering) beside itself ([`ServedDirector`]). The driver
//! ([`RemoteDirectorSteering`]) sends the whole desired state to the one or two directors of a pair, by sealed datagrams
//! (`asterism-director-control`). Each makes its table of it; both have the same one, since it follows from names and weights.
//!
//! **A director that does not answer.** A state is in force once all directors have it. One that does not answer is left out if the
//! other one answers and receives no heartbeats of it either; until then it may forward by an older state, and the call fails.
//! One that was started again has no state: the driver hands it the last one at once, and the moved buckets, without being asked to.
//!
//! **An orchestrator that begins to lead** takes over the moves that the directors have.
//!
//! `buckets.rs` has moved buckets, flows and counts; `served.rs` is the director's side.

mod buckets;
mod served;

use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use asterism_director::table::{BucketSpace, Table};
use asterism_director_control::{
    Answer, Commander, DesiredTarget, Handled, HostNumber, Outcome, RefusedCommand, Request, Status,
};
use asterism_secure_channel::{ClusterId, DATAGRAM_BYTES_MAX, KeyRing};

use self::buckets::Moved;
pub use self::served::ServedDirector;
use crate::clock;
use crate::mutant::{self, Mutant};
use crate::{
    Abilities, Applied, Buckets, Counts, Desired, DirectorReport, Generation, InForce, Notice,
    Observed, ObservedTarget, Standing, Steering, SteeringError,
};

/// How long directors may sanely take to answer.
pub const ANSWER_TIME_SANE: Duration = Duration::from_millis(500);
/// After so long without an answer a request is sent again.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often the directors are asked for their status.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
/// A director is silent when it has not answered for so long: calls no longer wait for it.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// How long handing over moved buckets may take beside an answer.
const MOVES_TIME_MAX: Duration = Duration::from_secs(2);
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
    /// The names of the hosts, which the directors know by the same ones and in the same order.
    pub targets: Vec<String>,
    /// How the directors divide the flow space.
    pub space: BucketSpace,
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
    /// The part of the moved buckets that was handed to it last, if its answer is awaited between two calls.
    handed: Option<usize>,
    /// Whether its packets were counted last time: else the next counts are of an unknown time.
    was_counted: bool,
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
        self.handed = None;
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
                    if let Some(status) = &answer.status {
                        self.status.clone_from(status);
                    }
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
    space: BucketSpace,
    other_keys: Receiver<KeyRing>,
    answer_time_max: Duration,
    applied: Applied,
    /// The moved buckets that the directors are to have; `None`: those that they have, which are not known yet.
    moved: Option<Moved>,
    /// The table of a desired state and of moved buckets with this digest.
    table: Option<(Generation, u64, Table)>,
    /// The number under which packets of buckets were counted last.
    taking: u64,
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
        // Takings of two orchestrators, or of two starts, have different numbers.
        let salt = config.directors.first().map_or([0; 16], |(.., salt)| *salt);
        let taking = u64::from_le_bytes(*salt.first_chunk().unwrap_or(&[0; 8]));
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
                    handed: None,
                    was_counted: false,
                })
            })
            .collect();
        Ok(RemoteDirectorSteering {
            directors: directors?,
            down: vec![false; config.targets.len()],
            targets: config.targets,
            space: config.space,
            other_keys: config.other_keys,
            answer_time_max: config.answer_time_max,
            applied: Applied::default(),
            moved: None,
            table: None,
            taking,
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

    /// Whether a director has had a later desired state than this driver began: another orchestrator has led meanwhile.
    fn is_overtaken(&self) -> bool {
        let begun = self.applied.begun().map(|begun| begun.generation().0);
        let mut known = self.directors.iter().map(|one| one.status.generation);
        begun.is_some() && known.any(|known| known > begun)
    }

    /// Has all directors take a desired state, and the moved buckets.
    fn bring_about(
        &mut self,
        desired: &Desired,
        request: &Request,
    ) -> Result<(u32, u16), SteeringError> {
        let answers = self.exchange(request);
        let (changed, moved) = self.judge(&answers, "a table")?;
        let changed = changed.max(self.settle_moves(desired, &answers)?);
        self.compare_tables(&answers)?;
        Ok((changed, moved))
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
        exchange(&mut self.directors, request, self.answer_time_max)
    }

    /// Sends a request to one director, and waits for its answer.
    fn exchange_with(&mut self, director: usize, request: &Request) -> Option<Answer> {
        self.take_keys();
        let one = self.directors.get_mut(director..=director)?;
        exchange(one, request, self.answer_time_max).pop()?
    }

    /// An error if a director did not answer that may be there all the same.
    fn check_present(&self, answers: &[Option<Answer>]) -> Result<(), String> {
        let answered: Vec<&Answer> = answers.iter().flatten().collect();
        let heard = self.directors.iter().zip(answers);
        let mut heard = heard.filter(|(_, answer)| answer.is_some());
        let is_heard = heard.any(|(director, _)| director.status.hears_other);
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
                Some(Outcome::Refused(refused)) => {
                    return Err(self.refusal(director, what, refused));
                }
                Some(Outcome::Counts(_) | Outcome::Moved(_)) | None => {}
            }
        }
        self.check_present(answers)
            .map_err(|name| SteeringError::TimedOut {
                what: format!("{what} at the director {name}"),
                waited: self.answer_time_max,
            })?;
        Ok(most)
    }

    /// An error if the directors that answered have different tables.
    fn compare_tables(&self, answers: &[Option<Answer>]) -> Result<(), SteeringError> {
        let both = self.directors.iter().zip(answers);
        let mut tables = both
            .filter(|(_, answer)| answer.is_some())
            .map(|(director, _)| director.status.table);
        let first = tables.next();
        if tables.any(|table| Some(table) != first) {
            return Err(SteeringError::Refused {
                what: "one table in both directors".to_owned(),
                said: "they spread differently: give both the same configuration and version"
                    .to_owned(),
            });
        }
        Ok(())
    }

    fn refusal(&self, director: &Remote, what: &str, refused: &RefusedCommand) -> SteeringError {
        let at_director = || format!("{what} at the director {}", director.name);
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
            RefusedCommand::LacksState { .. } => SteeringError::Lost {
                what: at_director(),
                said: "it was started again".to_owned(),
            },
            RefusedCommand::OutOfOrder => SteeringError::Lost {
                what: at_director(),
                said: "it has forgotten the parts before".to_owned(),
            },
            RefusedCommand::NoBucket { buckets } => SteeringError::Refused {
                what: at_director(),
                said: format!("it has {buckets} buckets: give all the same configuration"),
            },
            RefusedCommand::Failed(said) => SteeringError::Refused {
                what: at_director(),
                said: said.clone(),
            },
        }
    }

    fn report(&self, director: &Remote) -> DirectorReport {
        let status = &director.status;
        let target = |name: &String| {
            let number = HostNumber::of(name);
            let found = status.targets.iter().find(|one| one.host == number)?;
            Some(ObservedTarget {
                name: name.clone(),
                share_permille: found.share_permille,
                link_down: !found.is_reachable,
            })
        };
        DirectorReport {
            name: director.name.clone(),
            answers: director.has_answered && !director.is_silent(),
            is_active: status.is_active,
            hears_other: status.hears_other,
            generation: status.generation,
            elsewhere_permille: status.elsewhere_permille,
            forwarded: status.forwarded,
            dropped: status.dropped,
            refused: status.refused.by_reason().to_vec(),
            targets: self.targets.iter().filter_map(target).collect(),
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

/// Sends a request to directors, and waits for the answers of those that are not silent.
fn exchange(
    directors: &mut [Remote],
    request: &Request,
    time_max: Duration,
) -> Vec<Option<Answer>> {
    let started = clock::now();
    for director in &mut *directors {
        // What came before is the answer to something else.
        let _ = director.receive();
        director.ask(request.clone());
    }
    let mut answers: Vec<Option<Answer>> = vec![None; directors.len()];
    loop {
        for (director, answer) in directors.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                *answer = director.receive();
            }
        }
        let mut both = directors.iter().zip(&answers);
        let waits = both.any(|(director, answer)| answer.is_none() && !director.is_silent());
        let has_some = answers.iter().any(Option::is_some);
        if (has_some && !waits) || started.elapsed() > time_max {
            return answers;
        }
        for (director, answer) in directors.iter_mut().zip(&answers) {
            let is_due = |sent: Instant| sent.elapsed() > SEND_AGAIN_AFTER;
            if answer.is_none() && director.sent.is_none_or(is_due) {
                director.send();
            }
        }
        clock::pause(LOOK_AGAIN);
    }
}

impl Steering for RemoteDirectorSteering {
    /// As of directors in this process: a draining target keeps its TCP connections.
    fn abilities(&self) -> Abilities {
        Abilities {
            keeps_flows: true,
            moves_least: true,
            waits_max: self.answer_time_max + MOVES_TIME_MAX,
        }
    }

    fn apply(&mut self, desired: &Desired) -> Result<InForce, SteeringError> {
        let started = clock::now();
        let refused = |counts: &mut Counts| counts.refused += 1;
        let checked = self.applied.check(desired);
        checked.inspect_err(|_| refused(&mut self.counts))?;
        let request = self.request_of(desired);
        let request = request.inspect_err(|_| refused(&mut self.counts))?;
        if self.is_overtaken() && !mutant::active(Mutant::OldMovesAgain) {
            self.moved = None;
        }
        let was_applied = self.applied.begin(desired);
        let brought_about = self.bring_about(desired, &request);
        let (changed, moved) = brought_about.inspect_err(|_| self.counts.failed += 1)?;
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
        let both = self.directors.iter().zip(&answers);
        let present = both.filter(|(_, answer)| answer.is_some());
        let present: Vec<&Status> = present.map(|(director, _)| &director.status).collect();
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
            let moves = self.moved.as_ref().map(|moved| moved.digest);
            let has_it = |status: &&Status| {
                status.generation == Some(applied.0) && Some(status.moves) == moves
            };
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
            let answer = director.receive();
            let handed = director.handed;
            let missing = in_force.as_ref().zip(answer.as_ref());
            let missing = missing.and_then(|((generation, request), answer)| {
                match director.status.generation {
                    Some(known) if known == *generation => {
                        let moved = self.moved.as_ref()?;
                        moved.missing(&director.status, *generation, handed, answer)
                    }
                    known => (known < Some(*generation)).then(|| (request.clone(), None)),
                }
            });
            let is_due = |sent: Instant| sent.elapsed() > QUERY_INTERVAL;
            if let Some((request, part)) = missing {
                director.ask(request);
                director.handed = part;
            } else if director.sent.is_none_or(is_due) {
                match handed.filter(|_| answer.is_none()) {
                    // A part that was lost, or its answer.
                    Some(_) => director.send(),
                    None => director.ask(Request::Query),
                }
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

    fn directors(&self) -> Vec<DirectorReport> {
        self.directors.iter().map(|one| self.report(one)).collect()
    }

    fn buckets(&mut self) -> Option<&mut dyn Buckets> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
