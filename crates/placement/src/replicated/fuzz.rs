//! What a fuzzer runs.

use core::time::Duration;

use super::{Config, Deliver, Event, Replicator, SnapshotKind};
use crate::{ClusterId, Epoch, Incarnation, MemberId, Time};

/// Feeds arbitrary bytes to a replicator as messages of a known and of an unknown member: for fuzzing. Panics only on a
/// defect.
pub fn fuzz_handle(data: &[u8]) {
    struct Nowhere(usize);
    impl Deliver for Nowhere {
        fn group(&mut self, _: MemberId, _: Incarnation, _: u64, group: &[u8]) {
            self.0 += group.len();
        }
    }

    let members = vec![MemberId(1), MemberId(2), MemberId(3)];
    let mut config = Config::new(ClusterId(1), Epoch(1), MemberId(1), Incarnation(1), members);
    config.log_bytes_max = 8_192;
    config.log_groups_max = 16;
    config.reorder_groups_max = 64;
    config.unapplied_groups_max = 128;
    let Ok(mut replicator) = Replicator::new(config, Time::ZERO) else {
        return;
    };
    let mut deliver = Nowhere(0);
    let mut buffer = Vec::new();
    let mut now = Time::ZERO;
    let mut rest = data;
    let mut sequence = 0;
    // Each message: a byte that steers, a length, the bytes.
    while let [steer, length, tail @ ..] = rest {
        let (message, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        now = now + Duration::from_micros(u64::from(*steer) * 100);
        let from = MemberId(u16::from(steer & 3) + 1);
        let _ = replicator.handle(
            now,
            from,
            Incarnation(u64::from(steer >> 7)),
            message,
            &mut deliver,
        );
        if steer & 4 != 0
            && replicator
                .submit(now, sequence + 1, &message[..message.len().min(9)])
                .is_ok()
        {
            sequence += 1;
        }
        if steer & 8 != 0 {
            replicator.applied(now, from, u64::from(*length));
            replicator.snapshot_applied(now, from, u32::from(*length), &mut deliver);
        }
        replicator.handle_timeout(now);
        while replicator.poll_transmit(now, &mut buffer).is_some() {}
        while let Some(event) = replicator.poll_event() {
            if let Event::LaggingReplica { member, scan, .. } = event {
                let _ = replicator.submit_snapshot(now, member, scan, &[1]);
                let _ = replicator.finish_snapshot(now, member, scan, SnapshotKind::Changes);
            }
        }
        assert!(replicator.poll_timeout().is_some());
        assert!(replicator.log_room().groups <= 16);
    }
}
