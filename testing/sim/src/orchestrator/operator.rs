//! The operator of the simulated cluster, and what the cluster must be in the end.

use asterism_orchestrator::controller::{Input, Order, Stage};
use asterism_orchestrator::steering::Desired;
use asterism_placement::Time;

use super::hosts::Proc;
use super::plan::FaultKind;
use super::world::World;

impl World<'_> {
    /// The operator, once a second: a process on a machine that was given up is made sure to have ended, and declared so.
    pub(super) fn operator(&mut self) {
        let second = self.now.as_micros().is_multiple_of(1_000_000);
        let has_ended = |kind: FaultKind, now: Time| {
            self.plan
                .faults
                .iter()
                .any(|fault| fault.kind == kind && fault.until <= now)
        };
        for process in &mut self.processes {
            if process.is_given_up && has_ended(FaultKind::Move(process.place), self.now) {
                process.is_alive = false;
            }
        }
        if !second {
            return;
        }
        for place in 0..self.names.len() {
            let name = self.names[place].clone();
            // The process for which the last incarnation was named has ended, and no other of this name has begun one.
            let named = self.store.record.named.get(&name).copied();
            let of_place = || {
                self.processes
                    .iter()
                    .filter(|one| one.place == place && one.is_alive)
            };
            let has_ended = of_place()
                .all(|one| Some(one.process) != named && one.stage.incarnation().is_none());
            let incarnation = self
                .store
                .record
                .last_incarnation(&name)
                .filter(|_| has_ended);
            for number in 0..self.orchestrators.len() {
                let boot = self.orchestrators[number].boot;
                if let Some(incarnation) = incarnation {
                    let order = Input::Order(Order::Fence(name.clone(), incarnation));
                    self.answer(number, boot, order);
                }
                let is_down = self.is_on(FaultKind::LinkDown(place));
                self.answer(
                    number,
                    boot,
                    Input::Link {
                        host: name.clone(),
                        is_down,
                    },
                );
            }
        }
    }

    /// Whether the cluster is one of all places, each served by its one process, and all of them get packets.
    pub(super) fn is_as_it_should_be(&self) -> Result<(), String> {
        let Some(epoch) = &self.store.record.epoch else {
            return Err("there is no epoch".to_owned());
        };
        for (place, name) in self.names.iter().enumerate() {
            let alive: Vec<&Proc> = self
                .processes
                .iter()
                .filter(|one| one.place == place && one.is_alive)
                .collect();
            let [process] = alive.as_slice() else {
                return Err(format!("{} processes of {name} live", alive.len()));
            };
            let Some(&incarnation) = epoch.members.get(name) else {
                return Err(format!("{name} takes no part in epoch {}", epoch.epoch));
            };
            if process.stage != Stage::Serving(incarnation) {
                return Err(format!(
                    "{name} is {:?}, and {incarnation} is named",
                    process.stage
                ));
            }
            if process.epoch.as_ref() != Some(epoch) {
                return Err(format!("{name} has another epoch than {}", epoch.epoch));
            }
            let is_target = |desired: &Desired| desired.targets().any(|(target, _)| target == name);
            if !self.in_force.as_ref().is_some_and(is_target) {
                return Err(format!("{name} gets no packets: {:?}", self.in_force));
            }
        }
        Ok(())
    }
}
