//! What a packet loop shows of itself, now and then.

use asterism_function::{NetworkFunction, Reason, metrics_of, values_of};
use asterism_io::port::LinkState;
use asterism_placement::Time;

use super::Worker;
use asterism_event_log::Event;
use asterism_host_view::statistics::{COUNTS, InstanceSnapshot, PortSnapshot, StageSnapshot};

impl<F: NetworkFunction> Worker<F> {
    /// Tells links that came or went, and writes a snapshot for anyone who looks.
    pub(super) fn publish(&mut self, now: Time) {
        self.published_us = now.as_micros();
        for (port, known) in self.instance.ports().iter().zip(&mut self.links) {
            let link = port.link();
            if link != *known {
                *known = link;
                let event = match link {
                    LinkState::Up => Event::info("link-up").with("port", port.name()),
                    LinkState::Down => Event::warning("link-down")
                        .with("port", port.name())
                        .effect(
                            "nothing comes from it, and what is sent to it is dropped and counted",
                        )
                        .cure("bring the interface up; it is taken up again by itself"),
                };
                let _ = self.events.try_send(event);
            }
        }
        let (ring_bytes, ring_capacity) = self.instance.log_use();
        let function = self.instance.function();
        let mut own = values_of(function, self.instance.state());
        own.resize(metrics_of(function).len(), 0);
        let tally = self.instance.tally();
        let snapshot = InstanceSnapshot {
            at: now,
            turns: self.turns,
            sleeps: self.sleeps,
            counts: COUNTS.iter().map(|count| (count.of)(tally)).collect(),
            dropped: Reason::ALL
                .iter()
                .map(|reason| tally.dropped(*reason))
                .collect(),
            parked: self.instance.parked() as u64,
            parked_most: tally.parked_most as u64,
            held: tally.held_now as u64,
            held_bytes: tally.held_bytes as u64,
            held_most: tally.held_most as u64,
            incarnations: self.instance.incarnations() as u64,
            frames_in_use: self.instance.frames_in_use() as u64,
            ring_bytes: ring_bytes as u64,
            ring_capacity: ring_capacity as u64,
            ports: self
                .instance
                .ports()
                .iter()
                .map(|port| PortSnapshot {
                    statistics: port.statistics(),
                    is_up: port.link() == LinkState::Up,
                })
                .collect(),
            objects: self.instance.object_use(),
            stages: self
                .instance
                .stage_tallies()
                .map(StageSnapshot::new)
                .collect(),
            own,
        };
        self.words.clear();
        snapshot.write(&mut self.words);
        self.shared.statistics.publish(&self.words);
    }
}
