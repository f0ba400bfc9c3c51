//! What a host knows of the other members, as far as starting and stopping care.

use std::time::Duration;

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use asterism_placement::replicated::{Refused, Standing};
use asterism_secure_channel::Refusal;

use super::Service;
use crate::run::event_log::Event;
use crate::view::differing;

/// How often it is reported at most that members differ.
const TELL_DIFFERENCE: Duration = Duration::from_secs(60);

/// Why a host does not start beside members that know its earlier incarnation.
pub(super) const EARLIER_INCARNATION: &str = "the host was not started: other members still run that know an earlier incarnation of it, and without [cluster] epochs they let no other incarnation in; stop them too, each saves its state if [host] state names a file, then start all hosts again, the one that stopped last first";

/// Whether members speak of what this incarnation of the host never said: they have not noticed that it is another.
pub(super) fn knows_earlier_incarnation(snapshot: &ChannelSnapshot) -> bool {
    let reasons = [Refused::AcknowledgesUnsent, Refused::EchoFromFuture];
    reasons
        .iter()
        .any(|reason| snapshot.replication.refused(*reason) > 0)
}

/// Whether as many hosts have other settings than this one, of those that hosts must share, as have the same. Such a host does not begin
/// to read packets: both would deal the same shares to themselves. Where most have what this host has, the others wait.
pub(super) fn is_outvoted(snapshot: &ChannelSnapshot) -> bool {
    let members = snapshot.members.iter();
    let differ = members
        .clone()
        .filter(|member| member.other_terms.is_some());
    let agree = members.filter(|member| member.admitted.is_some() && member.other_terms.is_none());
    differ.count() > agree.count()
}

/// Another member as far as starting and stopping care.
pub(super) struct Other {
    pub(super) member: MemberId,
    /// Its session is admitted and something came of it.
    pub(super) heard: bool,
    /// Something came from its address, whatever it was.
    pub(super) is_there: bool,
    pub(super) welcomes: bool,
    pub(super) is_alive: bool,
    pub(super) head: u64,
    pub(super) applied: u64,
    pub(super) acknowledged: u64,
}

pub(super) fn others(
    snapshot: &ChannelSnapshot,
    own: MemberId,
) -> impl Iterator<Item = Other> + '_ {
    let at = snapshot.at;
    let others = snapshot
        .members
        .iter()
        .filter(move |member| member.progress.member != own)
        .filter(|member| member.progress.standing != Standing::Out);
    others.map(move |member| Other {
        member: member.progress.member,
        heard: member.admitted.is_some() && member.progress.heard.is_some(),
        is_there: member
            .traffic
            .is_some_and(|traffic| traffic.datagrams_received > 0),
        welcomes: member.has_welcomed,
        is_alive: member
            .progress
            .heard
            .is_some_and(|heard| at.as_micros().saturating_sub(heard.as_micros()) < 1_000_000),
        head: member.progress.head,
        applied: member.progress.applied,
        acknowledged: member.progress.acknowledged,
    })
}

impl Service<'_, '_> {
    /// Says which members are refused because they have settings otherwise that hosts must share, and which.
    fn tell_other_settings(&mut self) {
        let (now, snapshot) = (self.clock.now(), self.channel.snapshot());
        let refused = snapshot.refused.get(Refusal::OtherTerms);
        let (before, reported) = self.other_settings;
        if refused == before || reported.is_some_and(|reported| now < reported + TELL_DIFFERENCE) {
            return;
        }
        self.other_settings = (refused, Some(now));
        let Some(ours) = &snapshot.terms else { return };
        for member in &snapshot.members {
            let Some(theirs) = &member.other_terms else {
                continue;
            };
            let place = usize::from(member.progress.member.0).wrapping_sub(1);
            let name = self.config.cluster.members.get(place).cloned();
            for setting in differing(ours, theirs) {
                let event = Event::error("member-differs")
                    .with("member", name.as_deref().unwrap_or("?"))
                    .with("setting", &setting.name)
                    .with("ours", &setting.ours)
                    .with("theirs", &setting.theirs)
                    .effect(format!(
                        "it is refused, and refuses this host: `{}` is {} here and {} there, and what hosts share is dealt by it",
                        setting.name, setting.ours, setting.theirs
                    ))
                    .cure("write the same [cluster] on all hosts, copy one key file to all, and restart those that had others");
                self.log(&event);
            }
        }
    }

    /// Says which members are there and refused as those of another cluster: the same is said there. What comes from other places is
    /// only counted.
    pub(super) fn tell_who_differs(&mut self) {
        self.tell_other_settings();
        let (now, snapshot) = (self.clock.now(), self.channel.snapshot());
        let refused = snapshot.refused.get(Refusal::WrongCluster);
        let (before, reported) = self.strange;
        if refused == before || reported.is_some_and(|reported| now < reported + TELL_DIFFERENCE) {
            return;
        }
        let members = &self.config.cluster.members;
        let differing: Vec<&str> = others(&snapshot, self.member)
            .filter(|other| other.is_there && !other.heard)
            .filter_map(|other| members.get(usize::from(other.member.0).wrapping_sub(1)))
            .map(String::as_str)
            .collect();
        if differing.is_empty() {
            return;
        }
        let event = Event::error("member-differs")
            .with("member", differing.join(","))
            .with("datagrams_refused", refused)
            .with("shape", &self.view.names.shape)
            .effect("what it says is refused, and it refuses what this host says: it is of another cluster, or its function, its objects or their settings are others, so each would misread the other")
            .cure("compare `shape` in `asterism status` of both; run the same program with the same [cluster] name, port_lease and [function] on all hosts, and restart those that had others");
        self.strange = (refused, Some(now));
        self.log(&event);
    }
}
