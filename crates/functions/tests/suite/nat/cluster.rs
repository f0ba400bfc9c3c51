//! Two instances that tell each other what they wrote: a connection whose packets change from one to the other.

use asterism_function::objects::{Absence, ObjectSettings};
use asterism_function::testkit::{ClusterKit, Outcome};
use asterism_function::{Endpoint, Late, PortNumber, Reason, Verdict};
use asterism_functions::nat::Nat;

use crate::nat::network::{
    ACK, FIN_ACK, INSIDE, OUTSIDE, RST, SYN, SYN_ACK, config, flagged, frame, left_by, nat, tcp,
};

const MS: u64 = 1_000;
const WAIT_US: u32 = 20_000;

/// Two instances, of which the first sees the begin.
struct Pair(ClusterKit<Nat>);

impl Pair {
    fn new(absence: Absence) -> Self {
        let settings = move |object: &str| ObjectSettings {
            absence: match object {
                "ports" => absence,
                _ => Absence::Answer,
            },
            ..ObjectSettings::REPLICATED
        };
        Self(ClusterKit::with_settings(nat(config()), 2, 7, settings))
    }

    /// Calls the NAT of an instance at `now_us` for a packet that arrived at `arrived_us`.
    fn packet(
        &mut self,
        member: usize,
        (arrived_us, now_us): (u64, u64),
        port: PortNumber,
        bytes: &[u8],
    ) -> Result<Outcome, Late> {
        self.0.advance_us(now_us - self.0.now_us());
        self.0.packet_since(member, arrived_us, port, bytes)
    }

    /// Everything that one wrote comes to the other, which knows then that it has all up to `time_us`.
    fn tell(&mut self, from: usize, time_us: u64) {
        self.0.advance_us(time_us - self.0.now_us());
        self.0.tell(from, 1 - from);
    }

    fn sessions(&self, member: usize) -> usize {
        self.0.state(member).sessions.len_now()
    }
}

fn ends() -> (Endpoint, Endpoint) {
    (tcp([10, 0, 0, 5], 40_000), tcp([198, 51, 100, 7], 443))
}

const WAIT: Absence = Absence::Wait { us: WAIT_US };

/// The second segment takes another way than the first, faster than the first instance's word.
#[test]
fn a_connection_that_changes_instances_within_the_lag_keeps_its_port() {
    let mut pair = Pair::new(WAIT);
    let (inside, remote) = ends();
    let syn = frame(INSIDE, inside, remote, flagged(SYN));
    let ack = frame(INSIDE, inside, remote, flagged(ACK));
    let opened = pair.packet(0, (0, 0), INSIDE, &syn).unwrap();
    let outside = left_by(&opened, OUTSIDE).source();

    assert!(pair.packet(1, (2 * MS, 2 * MS), INSIDE, &ack).is_err());
    pair.tell(0, 2 * MS);
    let followed = pair.packet(1, (2 * MS, 9 * MS), INSIDE, &ack).unwrap();
    assert_eq!(left_by(&followed, OUTSIDE).source(), outside);
    assert_eq!(pair.sessions(1), 1);
}

/// Nobody has a session for it: it opens one once that is known, or when it has waited long enough.
#[test]
fn a_segment_that_nobody_knows_opens_a_session_in_the_end() {
    let (inside, remote) = ends();
    let ack = frame(INSIDE, inside, remote, flagged(ACK));
    let reset = frame(INSIDE, inside, remote, flagged(RST));
    let waited = u64::from(WAIT_US) + 2 * MS;
    for (reported, called_at) in [(true, 5 * MS), (false, waited)] {
        let mut pair = Pair::new(WAIT);
        assert!(pair.packet(1, (2 * MS, 2 * MS), INSIDE, &reset).is_err());
        assert!(pair.packet(1, (2 * MS, 2 * MS), INSIDE, &ack).is_err());
        if reported {
            pair.tell(0, 2 * MS);
        } else {
            assert!(pair.packet(1, (2 * MS, waited - 1), INSIDE, &ack).is_err());
        }
        let at = (2 * MS, called_at);
        let refused = pair.packet(1, at, INSIDE, &reset).unwrap();
        assert!(matches!(refused.verdict, Verdict::Drop(_)));
        let opened = pair.packet(1, at, INSIDE, &ack).unwrap();
        assert_eq!(opened.verdict, Verdict::Forward(OUTSIDE));
        assert_eq!(pair.sessions(1), 1);
    }
}

/// First segments wait for nobody, and where the operator wants no waiting nothing does.
#[test]
fn first_segments_and_those_that_may_not_wait_are_not_late() {
    let (inside, remote) = ends();
    for (absence, flags) in [(WAIT, SYN), (Absence::Answer, ACK)] {
        let mut pair = Pair::new(absence);
        let segment = frame(INSIDE, inside, remote, flagged(flags));
        let opened = pair.packet(1, (2 * MS, 2 * MS), INSIDE, &segment).unwrap();
        assert_eq!(opened.verdict, Verdict::Forward(OUTSIDE));
    }
}

/// A connection ends at one instance, and its ends connect again by another that does not know of it yet and gives them a port
/// of its own. Whichever of the two sessions the order prefers: the connection that lives keeps its port, on both.
#[test]
fn a_connection_that_ended_does_not_hide_the_next_one_of_its_ends() {
    let (inside, remote) = ends();
    let [syn, ack, fin] =
        [SYN, ACK, FIN_ACK].map(|flags| frame(INSIDE, inside, remote, flagged(flags)));
    for old_place in [0, 1] {
        let mut pair = Pair::new(WAIT);
        let (old, new) = (old_place, 1 - old_place);
        let opened = pair.packet(old, (0, 0), INSIDE, &syn).unwrap();
        let first = left_by(&opened, OUTSIDE).source();
        for (port, flags) in [(OUTSIDE, SYN_ACK), (INSIDE, ACK), (OUTSIDE, FIN_ACK)] {
            let bytes = match port {
                OUTSIDE => frame(OUTSIDE, remote, first, flagged(flags)),
                _ => ack.clone(),
            };
            pair.packet(old, (MS, MS), port, &bytes).unwrap();
        }
        pair.packet(old, (MS, MS), INSIDE, &fin).unwrap();

        let again = pair.packet(new, (2 * MS, 2 * MS), INSIDE, &syn).unwrap();
        let second = left_by(&again, OUTSIDE).source();
        assert_ne!(first, second);
        pair.tell(old, 3 * MS);
        pair.tell(new, 3 * MS);
        for member in [old, new] {
            // A SYN that is sent again, the handshake's end, and what comes then.
            for bytes in [&syn, &ack, &ack] {
                let sent = pair
                    .packet(member, (4 * MS, 4 * MS), INSIDE, bytes)
                    .unwrap();
                assert_eq!(
                    left_by(&sent, OUTSIDE).source(),
                    second,
                    "old at {old_place}"
                );
            }
            let reply = frame(OUTSIDE, remote, second, flagged(ACK));
            let came = pair
                .packet(member, (4 * MS, 4 * MS), OUTSIDE, &reply)
                .unwrap();
            assert_eq!(left_by(&came, INSIDE).destination(), inside);
        }
    }
}

/// An instance that joins, or hears of a saved state, knows what others opened long ago: that is not opened now.
#[test]
fn what_is_learnt_late_spends_no_burst() {
    const BURST: u16 = 10;
    let mut config = config();
    config.subscribers.sessions_per_second = 1;
    config.subscribers.sessions_burst = BURST.into();
    let mut cluster = ClusterKit::new(nat(config), 4, 7);
    let host = |port| tcp([10, 0, 0, 5], port);
    let opens = |cluster: &mut ClusterKit<Nat>, member: usize, port: u16| {
        let syn = frame(
            INSIDE,
            host(port),
            tcp([198, 51, 100, 7], 443),
            flagged(SYN),
        );
        cluster.packet(member, INSIDE, &syn).verdict
    };
    for port in 0..BURST {
        let opened = opens(&mut cluster, 0, 5_000 + port);
        assert_eq!(opened, Verdict::Forward(OUTSIDE));
    }
    // Who hears of them at once knows that the burst is spent, by whichever way it comes.
    cluster.tell(0, 1);
    cluster.take_snapshot(0, 2);
    for member in [0, 1, 2] {
        let refused = opens(&mut cluster, member, 6_000);
        assert_eq!(refused, Verdict::Drop(Reason::RateLimited));
    }
    // When time has made up for all of it, who first hears of it then may open as many as the others.
    cluster.advance(u32::from(BURST));
    cluster.take_snapshot(0, 3);
    assert_eq!(cluster.state(3).sessions.len_now(), usize::from(BURST));
    for port in 0..BURST {
        let opened = opens(&mut cluster, 3, 7_000 + port);
        assert_eq!(opened, Verdict::Forward(OUTSIDE), "{port}");
    }
    let refused = opens(&mut cluster, 3, 8_000);
    assert_eq!(refused, Verdict::Drop(Reason::RateLimited));
}

/// As restored sessions reach the others: by groups, with when they were used.
#[test]
fn word_that_comes_late_spends_no_burst() {
    let mut config = config();
    config.subscribers.sessions_per_second = 1;
    config.subscribers.sessions_burst = 5;
    let mut cluster = ClusterKit::new(nat(config), 2, 7);
    for member in [0, 1] {
        for port in 0..5 {
            let host = tcp([10, 0, 0, 5], 5_000 + port);
            let remote = tcp([198, 51, 100, 7 + member as u8], 443);
            let syn = frame(INSIDE, host, remote, flagged(SYN));
            let opened = cluster.packet(member, INSIDE, &syn).verdict;
            assert_eq!(opened, Verdict::Forward(OUTSIDE), "{member} {port}");
        }
        cluster.advance(5);
        cluster.exchange();
    }
}

/// A host that grants no ports for a moment refuses nobody: its clients would give up connections that the next segment opens.
#[test]
fn a_host_whose_epoch_is_outdated_drops_new_connections_without_a_word() {
    let mut pair = Pair::new(Absence::Answer);
    let (client, server) = ends();
    let first = frame(INSIDE, client, server, flagged(SYN));
    pair.0.set_outdated(0, true);
    let outdated = pair.0.packet(0, INSIDE, &first);
    assert_eq!(outdated.verdict, Verdict::Drop(Reason::PortsExhausted));
    assert_eq!(outdated.emitted, []);
    pair.0.set_outdated(0, false);
    pair.0.advance(1);
    let again = pair.0.packet(0, INSIDE, &first);
    assert_eq!(again.verdict, Verdict::Forward(OUTSIDE));
}
