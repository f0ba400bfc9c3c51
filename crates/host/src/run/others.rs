//! What a host knows of the other members, as far as starting and stopping care.

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::MemberId;
use asterism_placement::envelope::Refused;
use asterism_placement::replicated::Standing;

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
