//! How a host that starts waits until it has what other hosts have.

use std::time::Duration;

use asterism_placement::MemberId;

use super::{Interrupted, LOOK_JOINING, Service};
use crate::run::error::{RunError, StartError};
use crate::run::others::{is_outvoted, knows_earlier_incarnation, others};
use asterism_event_log::Event;

/// How many times `join_wait` a host takes at most to take over what others have.
const JOIN_FACTOR: u32 = 10;
/// How long a host that starts listens at least for a later epoch than its own, unless it receives all members: a handshake's round trip
/// and a repetition. Less if `join_wait` is less.
const LATER_EPOCH_WAIT: Duration = Duration::from_millis(250);

impl Service<'_, '_> {
    /// Waits until everything is here that other hosts have. Tells whether nobody has anything.
    pub(super) fn listen(&mut self) -> Result<bool, Interrupted> {
        if !self.host.channel.snapshot().is_ready {
            self.join()?;
            return Ok(false);
        }
        let mut start = self.host.clock.now();
        let wait = self.host.config.host.join_wait;
        let mut targets: Vec<(MemberId, u64)> = Vec::new();
        let listed = self.host.config.cluster.members.len();
        let mut stands_still = false;
        loop {
            self.query()?;
            let (now, snapshot) = (self.host.clock.now(), self.host.channel.snapshot());
            // Whatever an old epoch gives this host, a later one may have given to others: there is no time after which it goes on.
            if let Some((_, later)) = snapshot.later_epoch {
                if !core::mem::replace(&mut stands_still, true) {
                    let waits = format!("waits for epoch {}, which others have in force", later.0);
                    self.manager.status(&waits);
                }
                continue;
            }
            if is_outvoted(&snapshot) {
                if !core::mem::replace(&mut stands_still, true) {
                    self.manager
                        .status("refused: other members have other settings of the cluster");
                }
                continue;
            }
            if core::mem::replace(&mut stands_still, false) {
                self.manager.status("listening for other hosts");
                (start, targets) = (now, Vec::new());
            }
            let is_early = now < start + wait.min(LATER_EPOCH_WAIT);
            if self.has_epochs && targets.len() + 1 < listed && is_early {
                continue;
            }
            let members = others(&snapshot, self.host.member).count() + 1;
            for other in others(&snapshot, self.host.member).filter(|other| other.heard) {
                if !targets.iter().any(|(member, _)| *member == other.member) {
                    targets.push((other.member, other.head));
                }
            }
            let behind = others(&snapshot, self.host.member).any(|other| {
                let target = targets.iter().find(|(member, _)| *member == other.member);
                // Anyone who is there but not heard yet is waited for too.
                match target {
                    Some((_, head)) => other.applied < *head || !other.welcomes,
                    None => other.is_there,
                }
            });
            let over = now >= start + wait;
            if over && behind && knows_earlier_incarnation(&snapshot) {
                return Err(RunError::from(StartError::EarlierIncarnation).into());
            }
            if !behind && (over || targets.len() + 1 >= members) {
                let cold = targets.iter().all(|(_, head)| *head == 0);
                if targets.len() + 1 < members {
                    self.log(&Event::warning("members-missing")
                        .with("heard", targets.len())
                        .with("members", members - 1)
                        .effect("the host goes on without them; they take over what it has once they are heard")
                        .cure("see that they run, and that the network carries UDP between the members' addresses"));
                }
                return Ok(cold);
            }
            if now >= start + wait * JOIN_FACTOR {
                self.log(&Event::warning("join-not-complete")
                    .effect("the host goes on before it has all that others have: packets of sessions that it does not know may be dropped")
                    .cure("see the state channel's lag in `asterism status`; a longer join_wait gives more time"));
                return Ok(false);
            }
        }
    }

    /// Waits until this host has what the others have: it writes nothing before.
    fn join(&mut self) -> Result<(), Interrupted> {
        self.manager.status("joining");
        self.log(
            &Event::info("joining")
                .effect("the host reads no packets before it has what the others have"),
        );
        let mut patient_until =
            self.host.clock.now() + self.host.config.host.join_wait * JOIN_FACTOR;
        while !self.host.channel.snapshot().is_ready {
            self.look_for(LOOK_JOINING)?;
            if self.host.clock.now() >= patient_until {
                patient_until =
                    self.host.clock.now() + self.host.config.host.join_wait * JOIN_FACTOR;
                let snapshot = self.host.channel.snapshot();
                let silent = others(&snapshot, self.host.member).filter(|other| !other.is_alive);
                self.log(&Event::warning("join-takes-long")
                    .with("members_silent", silent.count())
                    .effect("the host reads no packets")
                    .cure("see that all members of the epoch run and were handed the same epoch (`asterism status`); one that is dead keeps others from joining until an epoch leaves it out"));
            }
        }
        Ok(())
    }
}
