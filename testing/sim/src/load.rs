//! The load: which commands members are given.

use asterism_engine::PARKED_FLOW_MAX;
use asterism_function::PortNumber;

use crate::exercise::{BULK, Command, FEW, Verb};
use crate::ports::SHELVES;
use crate::report::Failure;
use crate::world::World;

/// Packets of a torrent: more than may be parked in all.
pub(crate) const TORRENT: usize = 1_100;

impl World<'_> {
    /// Commands for one member: one after the other, or in a burst for each of its instances.
    pub(crate) fn load(&mut self, member: usize) -> Result<(), Failure> {
        let lanes = self.scenario.lanes[member];
        let mut bursts = vec![Vec::new(); usize::from(lanes)];
        for _ in 0..self.draws.within(1, self.scenario.burst) {
            let lane = self.draws.within(0, u64::from(lanes) - 1) as usize;
            let command = self.draw_command();
            bursts[lane].push(command);
            if !self.scenario.foresees {
                self.hand_over(member, lane, &mut bursts[lane])?;
            }
        }
        for (lane, commands) in bursts.iter_mut().enumerate() {
            self.hand_over(member, lane, commands)?;
        }
        Ok(())
    }

    fn hand_over(
        &mut self,
        member: usize,
        lane: usize,
        commands: &mut Vec<Command>,
    ) -> Result<(), Failure> {
        let now = self.cluster.now();
        let packets: Vec<_> = commands.iter().map(Command::packet).collect();
        let burst = packets.iter().map(Vec::as_slice);
        let taken = self
            .cluster
            .inject_burst(member, lane, PortNumber(0), burst);
        for (number, command) in commands.drain(..).enumerate() {
            let how = if number < taken { "" } else { " not taken" };
            self.trace
                .line(|| format!("{now} m{member}.{lane} {command:?}{how}"));
        }
        self.take_done(now)
    }

    /// Very many replies of one flow to an outside port that another member leases and nobody uses here: they wait for
    /// that member. They must not fill the room that other flows have.
    pub(crate) fn torrent(&mut self) -> Result<(), Failure> {
        let ports = (self.scenario.sizes.ports * SHELVES) as u16;
        let member = self.draws.within(0, self.scenario.members() as u64 - 1) as usize;
        let instance = &self.cluster.members()[member].instances[0];
        let state = instance.state();
        let mut used = vec![false; usize::from(ports)];
        state
            .sessions
            .for_each(|pair, _| used[usize::from(pair.1)] = true);
        let free = (0..ports).find(|port| !used[usize::from(*port)] && !state.ports.is_own(port));
        let Some(key) = free else {
            return Ok(());
        };
        let parked_before = instance.tally().parked;
        let now = self.cluster.now();
        self.trace
            .line(|| format!("{now} m{member}.0 {TORRENT} times Reply to {key}"));
        for _ in 0..TORRENT {
            let command = Command {
                verb: Verb::Reply,
                key,
                token: self.next_token,
            };
            self.next_token += 1;
            self.cluster
                .inject(member, 0, PortNumber(0), &command.packet());
        }
        self.take_done(now)?;
        let tally = self.cluster.members()[member].instances[0].tally();
        let parked = tally.parked.saturating_sub(parked_before);
        if parked > PARKED_FLOW_MAX {
            return Err(Failure::new(
                "a flow that waits stops no other",
                format!("m{member}.0: {parked} packets of one flow are parked"),
            ));
        }
        Ok(())
    }

    pub(crate) fn is_loaded(&self, member: usize) -> bool {
        self.oracle.commits[member].len() >= self.scenario.commands as usize
    }

    fn draw_command(&mut self) -> Command {
        const PLAIN: [Verb; 27] = [
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
            Verb::Admit,
            Verb::Dismiss,
            Verb::Spend,
            Verb::Spend,
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
        let mut verb = if self.draws.percent(self.scenario.sessions_percent) {
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
        if verb == Verb::Dismiss {
            match self.admitted.len() as u64 {
                0 => verb = Verb::Admit,
                some => {
                    let which = self.draws.within(0, some - 1) as usize;
                    key = self.admitted.swap_remove(which);
                }
            }
        }
        match verb {
            Verb::Admit => key %= FEW[0],
            Verb::Spend => key %= FEW[1],
            _ => {}
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
