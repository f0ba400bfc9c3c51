//! Packets of an instance whose answers are late: when they are parked, called again and given up.

use asterism_function::chain::Place;
use asterism_function::{
    FlowKey, Fragment, Layout, NetworkFunction, Packet, PortNumber, Reason, refuse_late_after_act,
};
use asterism_state::{Call, State, Wait};

use super::Instance;
use crate::exchange::Up;
use crate::mutant::{self, Mutant};
use crate::parking::{Parked, Until};
use asterism_io::frame::Frame;

impl<F: NetworkFunction> Instance<F> {
    /// The flow of a packet that is at the port or place that its frame says, by its hash, and the digest of its key.
    pub(super) fn flow(&mut self, frame: &mut Frame, layout: Layout) -> (u64, u64) {
        // Nobody but other copies waits behind a copy.
        let is_copy = Place::of(PortNumber(frame.port())).is_some_and(Place::is_copy);
        let key = FlowKey::of(&Packet::with_layout(self.pool.bytes_mut(frame), layout));
        let hash = key.hash(self.context.seed() ^ u64::from(is_copy));
        (hash, key.digest())
    }

    /// Whether a packet must wait behind a parked one. Fragments need not, and a first one must not: it is what later
    /// ones wait for.
    #[cold]
    pub(super) fn follows(&mut self, frame: &mut Frame, layout: Layout) -> bool {
        if layout.fragment() != Fragment::Whole {
            return false;
        }
        let (flow, _) = self.flow(frame, layout);
        self.parking.must_follow(flow)
    }

    #[cold]
    pub(super) fn park_behind(&mut self, mut frame: Frame, layout: Layout) {
        let (flow, digest) = self.flow(&mut frame, layout);
        let until = Until::Turn {
            serial: self.context.serial(),
        };
        let since_us = self.parked_since_us.unwrap_or(self.now_us);
        let parked = Parked {
            frame,
            call: asterism_state::Call::depending_on(self.context.dependency()),
            flow,
            digest,
            is_fragment: false,
            since_us,
            arrived_us: since_us,
            until,
        };
        self.put(parked);
    }

    /// Parks a packet whose call was late. One that waits for entries is called once more for that, now, unless its reads were noted: it waits
    /// for them, and the packets that are never late need not note theirs.
    #[cold]
    #[inline(never)]
    pub(super) fn park(&mut self, mut frame: Frame, late_us_max: u64) {
        refuse_late_after_act(&self.context);
        if self.context.waits_for_entries() && !self.context.notes_reads() {
            return self.call_for_its_reads(frame);
        }
        let since_us = self.context.late_since_us().unwrap_or(self.now_us);
        let late_until_us = since_us.saturating_add(late_us_max);
        if self.stored.is_some() {
            self.note_conversation(&mut frame);
            if self.is_answered_at_once() {
                return self.call_with_answers(frame, late_until_us);
            }
            self.state.withdraw();
        }
        self.tally.late += 1;
        let arrived_us = self.context.arrived_us();
        let (call, wait) = self.context.park();
        if wait == Wait::TooMuch {
            return self.drop_call(call, frame, Reason::StoreTooMuch);
        }
        let state = &self.state;
        if mutant::active(Mutant::GrantReturnedAtPark) {
            self.context.resume(call);
            self.context.end(|object, number| {
                state.give_back(object, number);
            });
        }
        state.settle();
        let until = Until::new(wait, &call, self.now_us).by(late_until_us);
        if matches!(until, Until::Absent { .. }) {
            self.probe(arrived_us);
        }
        // Parsed once more, so that no other packet keeps its layout for this. The packet is as it came.
        let layout = Layout::parse_unverified(self.pool.bytes(&frame));
        let (flow, digest) = layout.map_or((0, 0), |layout| self.flow(&mut frame, layout));
        let since_us = self.parked_since_us.take().unwrap_or(self.now_us);
        self.put(Parked {
            frame,
            call,
            flow,
            digest,
            is_fragment: layout.is_ok_and(|layout| layout.fragment() != Fragment::Whole),
            since_us,
            arrived_us,
            until,
        });
    }

    /// Calls the function again for a packet that was late just now, with all that is pinned to it: it reads the same, and that is
    /// noted.
    fn call_for_its_reads(&mut self, mut frame: Frame) {
        let (call, _) = self.context.park();
        self.state.settle();
        let Ok(layout) = Layout::parse_unverified(self.pool.bytes(&frame)) else {
            return self.discard(frame, Reason::UnsupportedProtocol);
        };
        let port = PortNumber(frame.port());
        self.context.resume(call);
        self.context.note_reads(true);
        let traced = self.context.pause_trace();
        self.call(&mut frame, layout, port);
        self.context.resume_trace(traced);
        self.context.note_reads(false);
    }

    /// Asks others how far they are, once for all packets that have arrived by then.
    fn probe(&mut self, arrived_us: u64) {
        if let Some(exchange) = &mut self.exchange
            && self
                .probed_us
                .is_none_or(|probed_us| probed_us < arrived_us)
            && Up::Probe.push(&mut exchange.up).is_ok()
        {
            // What does not fit is no loss: keep-alives tell the same a little later.
            self.probed_us = Some(self.now_us);
        }
    }

    pub(super) fn put(&mut self, parked: Parked) {
        if let Some((one, reason)) = self.parking.park(parked, &self.context) {
            self.give_up(one, reason);
        }
        self.tally.parked = self.parking.len();
        self.tally.parked_most = self.tally.parked_most.max(self.tally.parked);
    }

    /// Drops a parked packet; what it had reserved returns.
    pub(super) fn give_up(&mut self, parked: Parked, reason: Reason) {
        if let Until::Decided { requests, .. } = parked.until {
            self.forget_outcome(requests);
        }
        self.drop_call(parked.call, parked.frame, reason);
    }

    fn drop_call(&mut self, call: Call, frame: Frame, reason: Reason) {
        // Not as if it were called again: the burst that is handled now goes on.
        let state = &self.state;
        self.context.abandon(call, |object, number| {
            state.give_back(object, number);
        });
        state.settle();
        if mutant::active(Mutant::GivenUpFrameKept) {
            self.tally.drop(reason);
            let _ = frame;
            return;
        }
        self.discard(frame, reason);
    }

    /// Calls again the parked packets for which something has come, in order for each flow. Costs a few comparisons if there are
    /// none, however many are parked.
    #[inline]
    pub(super) fn retry(&mut self) {
        let is_due = self.parking.has_ready()
            || self.context.has_woken()
            || (self.parking.next_due_us()).is_some_and(|due_us| due_us <= self.now_us);
        if is_due {
            self.retry_ready();
        }
    }

    #[cold]
    #[inline(never)]
    fn retry_ready(&mut self) {
        self.parking.take_woken(&self.context);
        while let Some(parked) = self.parking.take_due(self.now_us, &self.context) {
            self.give_up(parked, Reason::ParkedTooLong);
        }
        // Each at most once on the average, so that ports are read between two passes.
        for _ in 0..self.parking.len() {
            // Without room for what it may write it stays ready.
            if !self.has_log_room() {
                break;
            }
            let Some(parked) = self.parking.next_ready() else {
                break;
            };
            self.call_again(parked);
            self.parking.was_called();
            self.parking.take_woken(&self.context);
        }
        self.tally.parked = self.parking.len();
    }

    fn call_again(&mut self, mut parked: Parked) {
        if let Until::Decided { requests, until_us } = parked.until {
            self.end_decided(parked, (requests, until_us));
            // At once, as after a call.
            return self.commit();
        }
        let Ok(layout) = Layout::parse(self.pool.bytes(&parked.frame)) else {
            return self.give_up(parked, Reason::UnsupportedProtocol);
        };
        match parked.until {
            Until::Turn { serial } => {
                self.context.arrive(parked.since_us);
                self.context.begin(serial);
                self.context.depend_on(parked.call.dependency());
            }
            _ => self.context.resume(core::mem::take(&mut parked.call)),
        }
        if !self.install_answers(&mut parked) {
            return;
        }
        self.parked_since_us = Some(parked.since_us);
        let port = PortNumber(parked.frame.port());
        self.tally.called_again += 1;
        self.context.note_reads(true);
        self.call(&mut parked.frame, layout, port);
        self.context.note_reads(false);
        self.called_with_answers();
        // At once: what is written but not handed on does not count as used room.
        self.commit();
        self.parked_since_us = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asterism_function::{Ask, Builder, Late, Map, Verdict, build, state};
    use asterism_placement::Time;
    use asterism_state::{Absence, ObjectSettings, OriginName};

    use super::*;
    use crate::exchange::Down;
    use crate::instance::{Exchange, InstanceParts};
    use asterism_io::frame::FramePool;
    use asterism_io::ring::ByteRing;

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

    /// Waits for one of two entries by its source address; a packet to port 7 writes one; one to port 9 waits for nobody.
    struct Waits;

    #[state]
    struct Written {
        entries: Map<u32, ()>,
    }

    impl NetworkFunction for Waits {
        type State = Written;
        fn state(&self, builder: &Builder) -> Written {
            Written {
                entries: builder.table("entries", 4_096, &[0]),
            }
        }
        fn packet(&self, ask: Ask<'_, Written>) -> Result<Verdict, Late> {
            let source = ask.packet().ipv4_source().map_or(0, |host| host.to_bits());
            match ask.packet().ports() {
                Some((_, 7)) => {
                    let room = ask.entries.entry(source)?;
                    ask.act()?.entries.put(room, ());
                }
                Some((_, 9)) => {}
                _ => {
                    let other = source | 1 << 31;
                    if !(ask.entries.contains(&other)? || ask.entries.contains(&source)?) {
                        ask.expect(500_000)?;
                        return Ok(Verdict::Drop(Reason::NoBinding));
                    }
                }
            }
            Ok(Verdict::Consumed)
        }
    }

    fn packet_of(source: u32, from: u16, to: u16) -> Vec<u8> {
        let flow = asterism_function::Flow4 {
            source: source.into(),
            destination: [192, 0, 2, 1].into(),
            source_port: from,
            destination_port: to,
            protocol: 17,
        };
        let mut bytes = vec![0; 128];
        // Long enough for the path of nearly all packets.
        let length = build::flow4(&flow, &[0; 18], &mut bytes).expect("room");
        bytes.truncate(length);
        bytes
    }

    fn waiting() -> Instance<Waits> {
        let pool = FramePool::new(1_024).expect("memory for frames");
        let settings = |_: &str| ObjectSettings::REPLICATED;
        InstanceParts::alone(1).start(Arc::new(Waits), settings, pool, Vec::new())
    }

    fn inject(instance: &mut Instance<Waits>, now_us: u64, packet: &[u8]) {
        assert!(instance.inject(Time::from_micros(now_us), PortNumber(0), packet));
    }

    #[test]
    fn a_packet_is_woken_by_the_entry_that_it_read_and_by_no_other() {
        let mut instance = waiting();
        for source in 0..200 {
            inject(&mut instance, 1_000, &packet_of(source, 5, 5));
        }
        assert_eq!(instance.tally().late, 200, "each counts once");
        for source in 200..1_000 {
            inject(&mut instance, 2_000, &packet_of(source, 5, 7));
            instance.turn(Time::from_micros(2_000));
        }
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.called_again), (200, 0));
        for source in [17, 3, 99] {
            inject(&mut instance, 3_000, &packet_of(source, 5, 7));
            assert!(instance.next_due() <= Time::from_micros(3_000));
            instance.turn(Time::from_micros(3_000));
        }
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.called_again), (197, 3));
        assert_eq!((tally.dropped_total(), tally.consumed), (0, 803 + 3));
        // Nobody is lost at the deadline: all are called once more, and answered.
        assert_eq!(instance.parking.next_due_us(), Some(501_000));
        instance.turn(Time::from_micros(500_999));
        assert_eq!(instance.tally().parked, 197);
        instance.turn(Time::from_micros(501_000));
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.called_again), (0, 200));
        assert_eq!(tally.dropped(Reason::NoBinding), 197);
    }

    #[test]
    fn packets_of_other_flows_go_on_and_those_of_its_own_follow() {
        let mut instance = waiting();
        inject(&mut instance, 1_000, &packet_of(1, 5, 5));
        // Of the same ends, either way: they follow. Of others: they do not, whatever path they take.
        for number in 0..3 {
            inject(&mut instance, 1_000, &packet_of(1, 5, 5));
            assert_eq!(instance.tally().parked, 2 + number);
        }
        for source in 2..2_000 {
            inject(&mut instance, 1_000, &packet_of(source, 5, 9));
        }
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.consumed), (4, 1_998));
        inject(&mut instance, 1_000, &packet_of(1, 6, 7));
        instance.turn(Time::from_micros(1_001));
        let tally = instance.tally();
        assert_eq!((tally.parked, tally.called_again), (0, 4));
        assert_eq!(tally.dropped_total(), 0);
    }

    #[test]
    fn packets_of_a_flow_that_is_parked_within_their_burst_follow() {
        let mut instance = waiting();
        let (waits, other) = (packet_of(1, 5, 5), packet_of(2, 5, 9));
        // With nothing parked before the burst, and with something.
        for source in [3, 4] {
            let first = packet_of(source, 5, 5);
            let burst = [&first, &other, &first, &other, &first].map(Vec::as_slice);
            let now = Time::from_micros(1_000);
            assert_eq!(instance.inject_burst(now, PortNumber(0), burst), 5);
            inject(&mut instance, 1_000, &waits);
        }
        let tally = instance.tally();
        // Three and three of the bursts, and the others, one of which is first of its flow: the rest follow, and are not called.
        assert_eq!((tally.parked, tally.late, tally.consumed), (8, 3, 4));
    }

    #[test]
    fn others_are_asked_once_how_far_they_are() {
        let (up, mut reader) = ByteRing::new(128 << 10).expect("memory for a ring");
        let (_writer, down) = ByteRing::new(128 << 10).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.identity.members = vec![parts.identity.own.member, 7];
        parts.exchange = Some(Exchange::of_rings(up, down));
        let settings = ObjectSettings {
            absence: Absence::Wait { us: 500_000 },
            ..ObjectSettings::REPLICATED
        };
        let pool = FramePool::new(64).expect("memory for frames");
        let mut instance = parts.start(Arc::new(Waits), move |_| settings, pool, Vec::new());
        for source in 0..20 {
            inject(&mut instance, 1_000, &packet_of(source, 5, 5));
        }
        inject(&mut instance, 1_700, &packet_of(30, 5, 5));
        instance.turn(Time::from_micros(1_800));
        assert_eq!(instance.tally().parked, 21);
        let mut probes = 0;
        while let Some(record) = reader.next() {
            probes += u32::from(Up::read(record) == Some(Up::Probe));
        }
        assert_eq!(probes, 2, "once for all that had arrived");
    }

    #[cfg(asterism_mutants)]
    #[test]
    fn planted_bugs_of_bursts_are_found() {
        mutant::select(Some(Mutant::ParkedInBurstUnseen));
        let test = packets_of_a_flow_that_is_parked_within_their_burst_follow;
        let result = std::panic::catch_unwind(test);
        mutant::select(None);
        assert!(result.is_err(), "it survived");
    }

    #[cfg(asterism_mutants)]
    #[test]
    fn planted_bugs_of_wake_ups_are_found() {
        use asterism_state::mutant::{Mutant, select};
        for mutant in [
            Mutant::WakesByFirstReadAlone,
            Mutant::OthersWriteWakesNobody,
        ] {
            select(Some(mutant));
            let test = a_packet_is_woken_by_the_entry_that_it_read_and_by_no_other;
            let result = std::panic::catch_unwind(test);
            select(None);
            assert!(result.is_err(), "{mutant:?} survived");
        }
    }

    #[test]
    fn what_is_ready_waits_for_log_room() {
        let (up, mut reader) = ByteRing::new(128 << 10).expect("memory for a ring");
        let (mut writer, down) = ByteRing::new(128 << 10).expect("memory for a ring");
        let mut parts = InstanceParts::alone(1);
        parts.identity.members = vec![parts.identity.own.member, 7];
        parts.exchange = Some(Exchange::of_rings(up, down));
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
            confirmed: 0,
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
