//! Packets of an instance whose answers are late: when they are parked, called again and given up.

use asterism_function::chain::Place;
use asterism_function::{
    FlowKey, Fragment, Layout, NetworkFunction, Packet, PortNumber, Reason, refuse_late_after_act,
};
use asterism_state::{GiveBack, Settle, State};

use super::Instance;
use crate::exchange::Up;
use crate::frame::Frame;
use crate::mutant::{self, Mutant};
use crate::parking::{PARKED_US_MAX, Parked, Until};

impl<F: NetworkFunction> Instance<F> {
    /// The flow of a packet that is at the port or place that its frame says.
    pub(super) fn flow(&mut self, frame: &mut Frame, layout: Layout) -> u64 {
        // Nobody but other copies waits behind a copy.
        let is_copy = Place::of(PortNumber(frame.port())).is_some_and(Place::is_copy);
        FlowKey::of(&Packet::with_layout(self.pool.bytes_mut(frame), layout))
            .hash(self.context.seed() ^ u64::from(is_copy))
    }

    /// Whether a packet must wait behind a parked one. Fragments need not, and a first one must not: it is what later
    /// ones wait for.
    #[cold]
    pub(super) fn follows(&mut self, frame: &mut Frame, layout: Layout) -> bool {
        if layout.fragment() != Fragment::Whole {
            self.news |= layout.fragment() == Fragment::First;
            return false;
        }
        let flow = self.flow(frame, layout);
        self.parking.must_follow(flow)
    }

    #[cold]
    pub(super) fn park_behind(&mut self, mut frame: Frame, layout: Layout) {
        let flow = self.flow(&mut frame, layout);
        let until = Until::Turn {
            serial: self.context.serial(),
        };
        let parked = Parked {
            frame,
            call: asterism_state::Call::default(),
            flow,
            is_fragment: false,
            since_us: self.parked_since_us.unwrap_or(self.now_us),
            until,
        };
        self.put(parked);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn park(&mut self, mut frame: Frame, late_us_max: u64) {
        refuse_late_after_act(&self.context);
        self.tally.late += 1;
        let since_us = self.context.late_since_us().unwrap_or(self.now_us);
        let late_until_us = since_us.saturating_add(late_us_max);
        let (call, wait) = self.context.park();
        let state = &self.state;
        if mutant::active(Mutant::GrantReturnedAtPark) {
            self.context.resume(call);
            self.context.end(|object, number| {
                state.look(object, GiveBack(number));
            });
        }
        for object in 0..state.objects().len() as u8 {
            state.look(object, Settle);
        }
        let until = Until::new(wait, self.now_us).by(late_until_us);
        if matches!(until, Until::Absent { .. })
            && let Some(exchange) = &mut self.exchange
        {
            // What does not fit is no loss: keep-alives tell the same a little later.
            let _ = Up::Probe.push(&mut exchange.up);
        }
        // Parsed once more, so that no other packet keeps its layout for this. The packet is as it came.
        let layout = Layout::parse_unverified(self.pool.bytes(&frame));
        let flow = layout.map_or(0, |layout| self.flow(&mut frame, layout));
        let since_us = self.parked_since_us.take().unwrap_or(self.now_us);
        self.put(Parked {
            frame,
            call,
            flow,
            is_fragment: layout.is_ok_and(|layout| layout.fragment() != Fragment::Whole),
            since_us,
            until,
        });
    }

    pub(super) fn put(&mut self, parked: Parked) {
        if let Some((one, reason)) = self.parking.park(parked) {
            self.give_up(one, reason);
        }
        self.tally.parked = self.parking.len();
        self.tally.parked_most = self.tally.parked_most.max(self.tally.parked);
    }

    /// Drops a parked packet; what it had reserved returns.
    pub(super) fn give_up(&mut self, parked: Parked, reason: Reason) {
        // Not as if it were called again: the burst that is handled now goes on.
        let state = &self.state;
        self.context.abandon(parked.call, |object, number| {
            state.look(object, GiveBack(number));
        });
        for object in 0..state.objects().len() as u8 {
            state.look(object, Settle);
        }
        if mutant::active(Mutant::GivenUpFrameKept) {
            self.tally.drop(reason);
            let _ = parked.frame;
            return;
        }
        self.discard(parked.frame, reason);
    }

    /// Calls again every parked packet that may be answered now, in order for each flow.
    #[cold]
    pub(super) fn retry(&mut self) {
        let count = self.parking.begin_pass();
        // Those that were kept before a first fragment's turn came, or before there was room, are called in the next pass.
        let mut more_news = false;
        for _ in 0..count {
            let Some((mut parked, is_held)) = self.parking.next() else {
                break;
            };
            let ready = (parked.is_fragment || !is_held)
                && match parked.until {
                    Until::Fetched { at_us } => self.now_us >= at_us,
                    // Others' writes may have brought the entry itself, or cover the time.
                    Until::Absent { until_us } => self.now_us >= until_us || self.news,
                    Until::Turn { .. } => true,
                };
            if self.now_us.saturating_sub(parked.since_us) > PARKED_US_MAX {
                self.give_up(parked, Reason::ParkedTooLong);
                continue;
            }
            if !ready || !self.has_log_room() {
                // For want of room alone: what made it ready is news until then.
                more_news |= ready;
                self.parking.keep(parked);
                continue;
            }
            let Ok(layout) = Layout::parse(self.pool.bytes(&parked.frame)) else {
                self.give_up(parked, Reason::UnsupportedProtocol);
                continue;
            };
            match parked.until {
                Until::Turn { serial } => {
                    self.context.arrive(parked.since_us);
                    self.context.begin(serial);
                }
                _ => self.context.resume(core::mem::take(&mut parked.call)),
            }
            let before = self.parking.len();
            self.parked_since_us = Some(parked.since_us);
            let port = PortNumber(parked.frame.port());
            self.call(&mut parked.frame, layout, port);
            // At once: what is written but not handed on does not count as used room.
            self.commit();
            self.parked_since_us = None;
            more_news |= layout.fragment() == Fragment::First;
            if self.parking.len() > before && !parked.is_fragment {
                self.parking.hold(parked.flow);
            }
        }
        self.tally.parked = self.parking.len();
        self.news = more_news && !self.parking.is_empty();
        self.commit();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use asterism_function::{Ask, Builder, Late, Map, Verdict, build, state};
    use asterism_placement::Time;
    use asterism_state::{Absence, ObjectSettings, OriginName};

    use super::*;
    use crate::exchange::{Down, Round};
    use crate::frame::FramePool;
    use crate::instance::{Exchange, InstanceParts, Words};
    use crate::ring::ByteRing;

    /// Asks for an entry that nobody wrote.
    struct Asks;

    #[state]
    struct Entries {
        entries: Map<u32, ()>,
    }

    impl NetworkFunction for Asks {
        type State = Entries;
        fn state(&self, builder: &Builder) -> Entries {
            Entries {
                entries: builder.table("entries", 64, &[5]),
            }
        }
        fn packet(&self, ask: Ask<'_, Entries>) -> Result<Verdict, Late> {
            ask.entries.contains(&1)?;
            Ok(Verdict::Consumed)
        }
    }

    fn packet() -> Vec<u8> {
        let flow = asterism_function::Flow4 {
            source: [10, 0, 0, 1].into(),
            destination: [192, 0, 2, 1].into(),
            source_port: 1_000,
            destination_port: 53,
            protocol: 17,
        };
        let mut bytes = vec![0; 128];
        let length = build::flow4(&flow, b"payload", &mut bytes).expect("room");
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn news_for_which_there_was_no_log_room_is_news_when_there_is() {
        let (up, mut reader) = ByteRing::new(128 << 10).expect("memory for a ring");
        let (mut writer, down) = ByteRing::new(128 << 10).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.identity.members = vec![parts.identity.own.member, 7];
        parts.exchange = Some(Exchange {
            up,
            down,
            committed: Arc::new(AtomicU64::new(0)),
            written: 0,
            round: Arc::new(Round::default()),
            words: Words::new(),
        });
        let settings = ObjectSettings {
            absence: Absence::Wait { us: 500_000 },
            ..ObjectSettings::REPLICATED
        };
        let pool = FramePool::new(16).expect("memory for frames");
        let mut instance = parts.start(Arc::new(Asks), move |_| settings, pool, Vec::new());
        assert!(instance.inject(Time::from_micros(1_000), PortNumber(0), &packet()));
        assert_eq!(instance.tally().parked, 1);
        // The log is full when it becomes known that all others wrote by then is here.
        while instance.has_log_room() {
            let exchange = instance.exchange.as_mut().expect("a host of several");
            let group = Up::Group {
                sequence: 1,
                bytes: &[0; 1_000],
            };
            group.push(&mut exchange.up).expect("room");
        }
        let progress = Down::Progress {
            origin: OriginName {
                member: 7,
                incarnation: 1,
            },
            received: 0,
            stable: 0,
            covered_us: 1_500,
        };
        progress.push(&mut writer).expect("room");
        writer.publish();
        instance.turn(Time::from_micros(2_000));
        assert_eq!((instance.tally().parked, instance.is_behind()), (1, false));
        while reader.next().is_some() {}
        reader.release();
        instance.turn(Time::from_micros(2_100));
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.consumed), (0, 1));
    }
}
