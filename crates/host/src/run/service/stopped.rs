//! Why a host ends because one of its packet loops did: it was handed what it cannot apply, or it failed.

use asterism_engine::StopReason;

use super::Service;
use crate::run::error::{NOT_APPLIED_CURE, RunError};
use asterism_event_log::Event;

impl Service<'_, '_> {
    /// Why a packet loop ended by itself; the log has what was not applied.
    pub(super) fn why_loop_ended(&mut self) -> RunError {
        let stopped = self.shared.iter().find_map(|shared| shared.stopped.get());
        let Some(why) = stopped.copied() else {
            return RunError::LoopFailed;
        };
        let members = &self.host.view.names.members;
        let member = members.get(why.member()).unwrap_or_else(|| "?".to_owned());
        let mut event = Event::error("not-applied").with("member", &member);
        if let StopReason::GroupBad { origin, sequence } = why {
            event = event
                .with("incarnation", format!("{:016x}", origin.incarnation))
                .with("group", sequence);
        }
        self.log(
            &event
                .with("why", why)
                .effect("the host stops before it says that it has it: the others go on without it, and none takes it for equal")
                .cure(NOT_APPLIED_CURE),
        );
        RunError::NotApplied { member, why }
    }
}
