//! Members that are refused: why, and what to do about it.

use std::time::Duration;

use asterism_engine::transport::ChannelSnapshot;
use asterism_placement::Time;
use asterism_placement::envelope::Refused;
use asterism_secure_channel::Refusal;

use super::job::{HostContext, HostLog, Job};
use crate::run::others::others;
use asterism_epochs::MemberNames;
use asterism_event_log::Event;
use asterism_host_view::differing;

/// How often each difference is reported at most.
const TELL_DIFFERENCE: Duration = Duration::from_secs(60);

/// What was refused by now, and what of it was reported.
#[derive(Debug, Default)]
pub(super) struct RefusedMembers {
    /// Messages refused because they are of another incarnation of a member, when that was reported last.
    incarnations: u64,
    /// Datagrams refused because of settings that hosts must share.
    other_settings: Reported,
    /// Datagrams refused as those of another cluster.
    other_cluster: Reported,
}

/// Datagrams that were refused for a reason when that was reported last, and when that was.
#[derive(Debug, Default)]
struct Reported {
    refused: u64,
    at: Option<Time>,
}

impl Reported {
    /// Whether more were refused, and it may be reported again.
    fn is_due(&self, refused: u64, now: Time) -> bool {
        refused != self.refused && self.at.is_none_or(|at| now >= at + TELL_DIFFERENCE)
    }
}

impl Job for RefusedMembers {
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        let snapshot = host.channel.snapshot();
        self.report_incarnations(&snapshot, log);
        self.report_other_settings(now, &snapshot, &host.view.names.members, log);
        self.report_other_cluster(now, &snapshot, host, log);
    }
}

impl RefusedMembers {
    fn report_incarnations(&mut self, snapshot: &ChannelSnapshot, log: &mut HostLog<'_>) {
        let refused = snapshot.replication.refused(Refused::WrongIncarnation);
        if refused <= self.incarnations {
            return;
        }
        self.incarnations = refused;
        log.write(&Event::error("member-incarnation-mismatch")
            .with("messages_refused", refused)
            .effect("a member was restarted; what it says is refused until this host is restarted too")
            .cure("name its new incarnation in an epoch (`asterism epoch`, [cluster] epochs); without epochs stop all hosts, each saves its state if [host] state names a file, then start them all"));
    }

    /// Says which members are refused because they have settings otherwise that hosts must share, and which.
    fn report_other_settings(
        &mut self,
        now: Time,
        snapshot: &ChannelSnapshot,
        members: &MemberNames,
        log: &mut HostLog<'_>,
    ) {
        let refused = snapshot.refused.get(Refusal::OtherTerms);
        if !self.other_settings.is_due(refused, now) {
            return;
        }
        let at = Some(now);
        self.other_settings = Reported { refused, at };
        let Some(ours) = &snapshot.terms else { return };
        for member in &snapshot.members {
            let Some(theirs) = &member.other_terms else {
                continue;
            };
            let name = members.get(member.progress.member);
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
                log.write(&event);
            }
        }
    }

    /// Says which members are there and refused as those of another cluster: the same is said there. What comes from other places is
    /// only counted.
    fn report_other_cluster(
        &mut self,
        now: Time,
        snapshot: &ChannelSnapshot,
        host: &HostContext,
        log: &mut HostLog<'_>,
    ) {
        let refused = snapshot.refused.get(Refusal::WrongCluster);
        if !self.other_cluster.is_due(refused, now) {
            return;
        }
        let names = &host.view.names.members;
        let differing: Vec<String> = others(snapshot, host.member)
            .filter(|other| other.is_there && !other.heard)
            .filter_map(|other| names.get(other.member))
            .collect();
        if differing.is_empty() {
            return;
        }
        let event = Event::error("member-differs")
            .with("member", differing.join(","))
            .with("datagrams_refused", refused)
            .with("shape", &host.view.names.shape)
            .effect("what it says is refused, and it refuses what this host says: it is of another cluster, or its function, its objects or their settings are others, so each would misread the other")
            .cure("compare `shape` in `asterism status` of both; run the same program with the same [cluster] name, port_lease and [function] on all hosts, and restart those that had others");
        let at = Some(now);
        self.other_cluster = Reported { refused, at };
        log.write(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_reported_at_once_and_again_after_a_minute() {
        let start = Time::ZERO + Duration::from_secs(5);
        let mut reported = Reported::default();
        assert!(!reported.is_due(0, start), "nothing was refused");
        assert!(reported.is_due(3, start));
        let at = Some(start);
        reported = Reported { refused: 3, at };
        assert!(!reported.is_due(9, start + TELL_DIFFERENCE / 2), "too soon");
        assert!(!reported.is_due(3, start + TELL_DIFFERENCE), "no more");
        assert!(reported.is_due(9, start + TELL_DIFFERENCE));
    }
}
