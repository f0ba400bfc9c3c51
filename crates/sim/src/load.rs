//! The load: which commands members are given.

use asterism_function::PortNumber;

use crate::exercise::{BULK, Command, SHELVES, Verb};
use crate::report::Failure;
use crate::world::World;

impl World<'_> {
    /// A burst of commands for one member.
    pub(crate) fn load(&mut self, member: usize) -> Result<(), Failure> {
        let lanes = self.scenario.lanes[member];
        for _ in 0..self.draws.within(1, self.scenario.burst) {
            let lane = self.draws.within(0, u64::from(lanes) - 1) as usize;
            let command = self.draw_command();
            command.packet(&mut self.packet);
            let now = self.cluster.now();
            let taken = self
                .cluster
                .inject(member, lane, PortNumber(0), &self.packet);
            self.trace.line(|| {
                format!(
                    "{now} m{member}.{lane} {command:?}{}",
                    if taken { "" } else { " not taken" }
                )
            });
            self.take_done(now)?;
        }
        Ok(())
    }

    pub(crate) fn is_loaded(&self, member: usize) -> bool {
        self.oracle.commits[member].len() >= self.scenario.commands as usize
    }

    fn draw_command(&mut self) -> Command {
        const PLAIN: [Verb; 23] = [
            Verb::Pair,
            Verb::Pair,
            Verb::Pair,
            Verb::Note,
            Verb::Write,
            Verb::Write,
            Verb::Write,
            Verb::Erase,
            Verb::Use,
            Verb::Use,
            Verb::Join,
            Verb::Join,
            Verb::Join,
            Verb::Ban,
            Verb::Ban,
            Verb::Unban,
            Verb::Elect,
            Verb::Raise,
            Verb::Tally,
            Verb::Tally,
            Verb::Tally,
            Verb::Visit,
            Verb::Visit,
        ];
        const SESSION: [Verb; 8] = [
            Verb::Open,
            Verb::Open,
            Verb::Open,
            Verb::Open,
            Verb::Close,
            Verb::Reply,
            Verb::Reply,
            Verb::Reply,
        ];
        let verb = if self.draws.percent(self.scenario.sessions_percent) {
            self.draws.one_of(&SESSION)
        } else if self.draws.percent(1) {
            Verb::Bulk
        } else {
            self.draws.one_of(&PLAIN)
        };
        let mut key = self.draws.within(0, self.scenario.keys - 1) as u16;
        if !matches!(verb, Verb::Open | Verb::Close | Verb::Write | Verb::Ban) {
            // Their objects have room for fewer keys.
            key %= 40;
        }
        if verb == Verb::Reply {
            let ports = u64::from(self.scenario.sizes.ports * SHELVES);
            key = if self.recent_ports.is_empty() || self.draws.percent(20) {
                self.draws.within(0, ports - 1) as u16
            } else {
                self.draws.one_of(&self.recent_ports)
            };
        }
        let token = self.next_token;
        self.next_token += if verb == Verb::Bulk { BULK } else { 1 };
        Command { verb, key, token }
    }
}
