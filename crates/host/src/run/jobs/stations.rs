//! Requests for the stations of a balancer's backends, which the main thread sends to the first instance while the host runs: its state
//! carries what comes of them to all others.
//!
//! A few are on their way at once, since the queue of an instance is short and commands of the operator take it too.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use asterism_config::Function;
use asterism_placement::Time;

use super::job::{HostContext, HostLog, Job};
use crate::stations::{self, Addressed};
use asterism_host_view::phase::Phase;
use asterism_host_view::requests::Request;

/// Requests for stations that are on their way to the first instance at most.
pub const STATIONS_AT_ONCE: usize = 4;
/// The pause behind so many: at most 400 questions by ARP are sent a second.
const PAUSE: Duration = Duration::from_millis(10);

/// The requests of a host, in rounds.
#[derive(Debug, Default)]
pub(super) struct Stations {
    requests: Vec<Addressed>,
    /// The first that the function has not taken in this round.
    next: usize,
    /// When the round began.
    begun: Time,
    /// When the next ones may be sent.
    due: Time,
    sent: Option<Sent>,
}

/// Requests that are on their way.
#[derive(Debug)]
struct Sent {
    count: usize,
    taken: usize,
    answers: Receiver<bool>,
}

impl Job for Stations {
    fn has_turns(&self, phase: Phase) -> bool {
        phase == Phase::Running
    }

    /// Sends the requests that are due.
    fn turn(&mut self, now: Time, host: &HostContext, _: &mut HostLog<'_>) {
        self.go_on(now, &host.requests[0]);
    }
}

impl Stations {
    /// Begins at once with the stations of a function.
    pub(super) fn of(function: &Function) -> Stations {
        Stations {
            requests: stations::requests(function),
            ..Stations::default()
        }
    }

    /// Sends what is due. What the function could not take comes again.
    fn go_on(&mut self, now: Time, instance: &SyncSender<Request>) {
        if let Some(sent) = &mut self.sent {
            loop {
                match sent.answers.try_recv() {
                    Ok(is_taken) => sent.taken += usize::from(is_taken),
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => break,
                }
            }
            if sent.taken == sent.count {
                self.next += sent.count;
            }
            self.sent = None;
        }
        let is_over = self.next >= self.requests.len();
        if now < self.due || is_over && now < self.begun + stations::ROUND {
            return;
        }
        if is_over {
            self.next = 0;
        }
        if self.next == 0 {
            self.begun = now;
        }
        self.due = now + PAUSE;
        let (called, answers) = sync_channel(STATIONS_AT_ONCE);
        let due = self.requests[self.next..].iter().take(STATIONS_AT_ONCE);
        let count = due
            .take_while(|(port, request)| {
                let reported = Request::Tell {
                    port: *port,
                    frame: request.frame().into(),
                    called: Some(called.clone()),
                };
                instance.try_send(reported).is_ok()
            })
            .count();
        self.sent = Some(Sent {
            count,
            taken: 0,
            answers,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{CONTROL, PortNumber};
    use asterism_functions::balancer::StationRequest;
    use asterism_functions::nat::Side;

    fn requesting(count: u8) -> Stations {
        let one = |last| StationRequest {
            side: Side::Inside,
            address: [10, 0, 0, last].into(),
        };
        Stations {
            requests: (0..count).map(|last| (CONTROL, one(last))).collect(),
            ..Stations::default()
        }
    }

    /// The last bytes of the addresses that came to the instance, each of which it says to have taken, or not.
    fn taken(instance: &Receiver<Request>, is_taken: bool) -> Vec<u8> {
        let requests = instance.try_iter();
        requests
            .map(|request| {
                let Request::Tell {
                    port,
                    frame,
                    called,
                } = request
                else {
                    panic!("another request");
                };
                assert_eq!(port, PortNumber(u16::MAX));
                called.unwrap().try_send(is_taken).unwrap();
                StationRequest::read(&frame).unwrap().address.octets()[3]
            })
            .collect()
    }

    #[test]
    fn a_few_are_sent_at_once_and_all_again_in_the_next_round() {
        let (sender, instance) = sync_channel(16);
        let mut requesting = requesting(10);
        let begun = Time::ZERO + Duration::from_secs(5);
        let mut go_on = |after_ms| {
            let now = begun + Duration::from_millis(after_ms);
            requesting.go_on(now, &sender);
        };
        go_on(0);
        go_on(1);
        assert_eq!(taken(&instance, true), [0, 1, 2, 3]);
        // They were taken, and the pause is not over.
        go_on(9);
        assert!(taken(&instance, true).is_empty());
        go_on(10);
        // What was not taken comes again.
        assert_eq!(taken(&instance, false), [4, 5, 6, 7]);
        go_on(20);
        // None is sent while some are on their way.
        go_on(60);
        go_on(90);
        assert_eq!(taken(&instance, true), [4, 5, 6, 7]);
        go_on(100);
        assert_eq!(taken(&instance, true), [8, 9]);
        go_on(200);
        go_on(9_999);
        assert!(taken(&instance, true).is_empty());
        go_on(10_000);
        assert_eq!(taken(&instance, true), [0, 1, 2, 3]);
    }

    #[test]
    fn a_full_queue_keeps_none_from_being_sent_later() {
        let (sender, instance) = sync_channel(2);
        let mut requesting = requesting(3);
        requesting.go_on(Time::ZERO, &sender);
        assert_eq!(taken(&instance, true), [0, 1]);
        requesting.go_on(Time::ZERO + PAUSE, &sender);
        assert_eq!(taken(&instance, true), [2]);
        // Nor does nothing to request do anything.
        requesting.requests.clear();
        requesting.go_on(Time::ZERO + PAUSE * 2, &sender);
        assert!(taken(&instance, true).is_empty());
    }
}
