//! Usage of tenants in a running orchestrator: [`UsageKeeper`](crate::usage::UsageKeeper) between the controller and the store's thread.

use super::decide::Decide;
use super::offer;
use super::store::StoreCommand;
use super::view::Logged;
use crate::clock;
use crate::usage::UsageAnswer;

impl Decide {
    /// Tells the keeper who leads and who takes part, and carries out what it wants.
    pub(super) fn keep_usage(&mut self) {
        let now = clock::time();
        let before = self.usage.view().error.clone();
        let term = self.leads_in(now);
        self.usage.leads(now, term);
        while let Ok(answer) = self.store.usage.try_recv() {
            self.usage.answer(now, answer);
        }
        if let Some(epoch) = self
            .controller
            .record()
            .and_then(|record| record.epoch.as_ref())
        {
            self.usage
                .members(clock::wall_ms(), epoch.epoch, &epoch.members);
        }
        if let Some(command) = self.usage.poll_command(now)
            && !offer(&self.store.commands, StoreCommand::Usage(command))
        {
            self.usage.answer(now, UsageAnswer::Failed);
        }
        let error = &self.usage.view().error;
        if *error != before
            && let Some(error) = error
        {
            self.log_line(Logged {
                kind: "usage-not-kept",
                host: None,
                is_warning: true,
                text: format!("{error}; hosts go on counting, and what is shown stays"),
            });
        }
    }
}
