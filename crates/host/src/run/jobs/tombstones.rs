//! Whether what ended fills the tables, since a member of the epoch has not heard of it.
//!
//! What ended is kept until all members of the epoch know (`docs/src/architecture/replication.md`): only an epoch says that one need not. So the host says
//! in time who keeps it, and how much room that takes.

use std::time::Duration;

use asterism_engine::transport::{ChannelSnapshot, MemberSnapshot};
use asterism_placement::replicated::Standing;
use asterism_placement::{MemberId, Time};

use super::job::{HostContext, HostLog, Job};
use asterism_event_log::Event;
use asterism_host_view::View;

/// How often the tables are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is reported at most.
const TELL: Duration = Duration::from_secs(60);
/// Who was not heard for so long, or has not caught up for so long, keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tombstones are reported from this part of the capacity on, and no more once they take half as much.
const PART: u64 = 4;

/// Looks at the tables' room now and then.
#[derive(Debug, Default)]
pub(super) struct TombstoneWatch {
    looked: Option<Time>,
    reported: Option<Time>,
}

/// An object, and how many of its entries ended and are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PinnedTombstones {
    object: &'static str,
    entries: u64,
    capacity: u64,
}

impl PinnedTombstones {
    /// Of all objects the one of whose capacity what ended takes the largest part.
    fn most(view: &View) -> Option<PinnedTombstones> {
        let instances = view.snapshots().into_iter().flatten();
        let objects = instances.flat_map(|instance| instance.objects);
        let kept = objects.filter(|object| object.capacity > 0);
        kept.map(|object| PinnedTombstones {
            object: object.name,
            entries: object.ended as u64,
            capacity: object.capacity.into(),
        })
        .max_by_key(|kept| kept.entries * 1_000 / kept.capacity)
    }

    /// Whether it takes so much that the host says so; `reported`: whether it has.
    fn is_much(self, reported: bool) -> bool {
        let part = if reported { PART * 2 } else { PART };
        self.entries * part >= self.capacity
    }
}

/// Members of the epoch for which tombstones are kept, and for how long each has been silent or behind.
fn waited_for(snapshot: &ChannelSnapshot) -> Vec<(MemberId, Duration)> {
    let age = |since: Time| snapshot.at.since(since);
    let silent_for = |member: &MemberSnapshot| {
        let unheard = age(member.progress.heard.unwrap_or(Time::ZERO));
        unheard.max(member.progress.lags_since.map_or(Duration::ZERO, age))
    };
    let others = snapshot.members.iter().filter(|member| {
        member.progress.member != snapshot.member && member.progress.standing != Standing::Out
    });
    others
        .map(|member| (member.progress.member, silent_for(member)))
        .filter(|(_, silent)| *silent >= PATIENCE)
        .collect()
}

impl Job for TombstoneWatch {
    fn turn(&mut self, now: Time, host: &HostContext, log: &mut HostLog<'_>) {
        if let Some(event) = self.query(now, &host.view, &host.channel.snapshot()) {
            log.write(&event);
        }
    }
}

impl TombstoneWatch {
    /// Says who keeps the tables filled with what ended, and when that is over; looks once a second.
    fn query(&mut self, now: Time, view: &View, channel: &ChannelSnapshot) -> Option<Event> {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return None;
        }
        self.looked = Some(now);
        let kept = PinnedTombstones::most(view)?;
        if !kept.is_much(self.reported.is_some()) {
            self.reported.take()?;
            return Some(Event::info("tombstones-released").with("object", kept.object));
        }
        let members = waited_for(channel);
        if members.is_empty() || self.reported.is_some_and(|reported| now < reported + TELL) {
            return None;
        }
        self.reported = Some(now);
        let name = |&(member, _): &(MemberId, Duration)| {
            let name = view.names.members.get(member);
            name.unwrap_or_else(|| "?".to_owned())
        };
        let names: Vec<String> = members.iter().map(name).collect();
        let longest = members.iter().map(|(_, silent)| silent.as_secs()).max();
        let event = Event::warning("tombstones-pinned")
            .with("object", kept.object)
            .with("ended", kept.entries)
            .with("capacity", kept.capacity)
            .with("member", names.join(","))
            .with("silent_s", longest.unwrap_or(0))
            .effect("what ended is kept until every member of the epoch knows of it, and so are its ports: once the table is full new entries are refused")
            .cure("bring the member back, or name it gone: `asterism epoch CONFIG --without NAME`, and `--fenced` once its process has ended");
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_reported_from_a_quarter_of_the_capacity_to_an_eighth() {
        let kept = |entries| PinnedTombstones {
            object: "sessions",
            entries,
            capacity: 1_000,
        };
        assert!(!kept(249).is_much(false));
        assert!(kept(250).is_much(false));
        assert!(kept(125).is_much(true));
        assert!(!kept(124).is_much(true));
    }
}
