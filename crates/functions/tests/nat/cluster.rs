//! Two instances that tell each other what they wrote: a connection whose packets change from one to the other.

use std::cell::Cell;
use std::rc::Rc;

use asterism_function::objects::{
    Absence, Context, Identity, ObjectSettings, OriginName, Sequencer, Settle,
};
use asterism_function::testkit::Outcome;
use asterism_function::{
    Builder, Call, Emissions, Endpoint, Late, NetworkFunction, Packet, PortNumber, State, Verdict,
    call,
};
use asterism_functions::nat::{Nat, NatState};

use crate::network::{
    ACK, FIN_ACK, INSIDE, OUTSIDE, RST, SYN, SYN_ACK, config, flagged, frame, left_by, nat, tcp,
};

const MS: u64 = 1_000;
const WAIT_US: u32 = 20_000;

/// One instance of two.
struct Member {
    place: u16,
    nat: Nat,
    context: Rc<Context>,
    state: NatState,
    emissions: Emissions,
}

impl Member {
    fn new(place: u16, absence: Absence) -> Self {
        let nat = nat(config());
        let identity = Identity {
            own: Self::name(place),
            members: vec![0, 1],
            lane: (0, 1),
        };
        let addresses = config().outside_addresses;
        let addresses = addresses.iter().map(|address| address.to_bits()).collect();
        let sequencer = Sequencer::Own(Cell::new(0));
        let context = Rc::new(Context::new(identity, sequencer, 7, addresses));
        let settings = move |object: &str| ObjectSettings {
            absence: match object {
                "ports" => absence,
                _ => Absence::Answer,
            },
            ..ObjectSettings::REPLICATED
        };
        let state = nat.state(&Builder::new(context.clone(), settings));
        Self {
            place,
            nat,
            context,
            state,
            emissions: Emissions::default(),
        }
    }

    fn name(place: u16) -> OriginName {
        OriginName {
            member: place,
            incarnation: 1,
        }
    }

    /// Calls the NAT at `now_us` for a packet that arrived at `arrived_us`.
    fn packet(
        &mut self,
        (arrived_us, now_us): (u64, u64),
        port: PortNumber,
        bytes: &[u8],
    ) -> Result<Outcome, Late> {
        self.context.set_now(now_us, 1_000);
        self.context.arrive(arrived_us);
        self.context.begin(arrived_us);
        let mut packet = bytes.to_vec();
        let given = Call {
            state: &mut self.state,
            context: &self.context,
            emissions: &mut self.emissions,
            port,
        };
        let result = call(&self.nat, Packet::parse(&mut packet).unwrap(), given);
        self.context.end(|_, _| {});
        for object in 0..NatState::OBJECTS.len() as u8 {
            self.state.look(object, Settle);
        }
        result.map(|verdict| Outcome {
            verdict,
            packet,
            emitted: Vec::new(),
            calls: 1,
        })
    }

    /// Everything that it wrote comes to `other`, which knows then that it has all up to `time_us`.
    fn tell(&mut self, other: &mut Self, time_us: u64) {
        let name = Self::name(self.place);
        self.context.take_groups(|sequence, bytes| {
            let applied = other.state.apply(&other.context, name, sequence, bytes);
            assert!(applied.is_ok(), "a group cannot be read");
        });
        other.context.set_covered(self.place, time_us);
    }
}

fn pair(absence: Absence) -> (Member, Member) {
    (Member::new(0, absence), Member::new(1, absence))
}

fn ends() -> (Endpoint, Endpoint) {
    (tcp([10, 0, 0, 5], 40_000), tcp([198, 51, 100, 7], 443))
}

const WAIT: Absence = Absence::Wait { us: WAIT_US };

/// The second segment takes another way than the first, faster than the first instance's word.
#[test]
fn a_connection_that_changes_instances_within_the_lag_keeps_its_port() {
    let (mut first, mut second) = pair(WAIT);
    let (inside, remote) = ends();
    let syn = frame(INSIDE, inside, remote, flagged(SYN));
    let ack = frame(INSIDE, inside, remote, flagged(ACK));
    let opened = first.packet((0, 0), INSIDE, &syn).unwrap();
    let outside = left_by(&opened, OUTSIDE).source();

    assert!(second.packet((2 * MS, 2 * MS), INSIDE, &ack).is_err());
    first.tell(&mut second, 2 * MS);
    let followed = second.packet((2 * MS, 9 * MS), INSIDE, &ack).unwrap();
    assert_eq!(left_by(&followed, OUTSIDE).source(), outside);
    assert_eq!(second.state.sessions.len(), 1);
}

/// Nobody has a session for it: it opens one once that is known, or when it has waited long enough.
#[test]
fn a_segment_that_nobody_knows_opens_a_session_in_the_end() {
    let (inside, remote) = ends();
    let ack = frame(INSIDE, inside, remote, flagged(ACK));
    let reset = frame(INSIDE, inside, remote, flagged(RST));
    let waited = u64::from(WAIT_US) + 2 * MS;
    for (told, called_at) in [(true, 5 * MS), (false, waited)] {
        let (mut first, mut second) = pair(WAIT);
        assert!(second.packet((2 * MS, 2 * MS), INSIDE, &reset).is_err());
        assert!(second.packet((2 * MS, 2 * MS), INSIDE, &ack).is_err());
        if told {
            first.tell(&mut second, 2 * MS);
        } else {
            assert!(second.packet((2 * MS, waited - 1), INSIDE, &ack).is_err());
        }
        let at = (2 * MS, called_at);
        let refused = second.packet(at, INSIDE, &reset).unwrap();
        assert!(matches!(refused.verdict, Verdict::Drop(_)));
        let opened = second.packet(at, INSIDE, &ack).unwrap();
        assert_eq!(opened.verdict, Verdict::Forward(OUTSIDE));
        assert_eq!(second.state.sessions.len(), 1);
    }
}

/// First segments wait for nobody, and where the operator wants no waiting nothing does.
#[test]
fn first_segments_and_those_that_may_not_wait_are_not_late() {
    let (inside, remote) = ends();
    for (absence, flags) in [(WAIT, SYN), (Absence::Answer, ACK)] {
        let (_, mut second) = pair(absence);
        let segment = frame(INSIDE, inside, remote, flagged(flags));
        let opened = second.packet((2 * MS, 2 * MS), INSIDE, &segment).unwrap();
        assert_eq!(opened.verdict, Verdict::Forward(OUTSIDE));
    }
}

/// A connection ends at one instance, and its ends connect anew by another that does not know of it yet and gives them a port
/// of its own. Whichever of the two sessions the order prefers: the connection that lives keeps its port, on both.
#[test]
fn a_connection_that_ended_does_not_hide_the_next_one_of_its_ends() {
    let (inside, remote) = ends();
    let [syn, ack, fin] =
        [SYN, ACK, FIN_ACK].map(|flags| frame(INSIDE, inside, remote, flagged(flags)));
    for old_place in [0, 1] {
        let (mut one, mut two) = pair(WAIT);
        let (old, new) = if old_place == 0 {
            (&mut one, &mut two)
        } else {
            (&mut two, &mut one)
        };
        let opened = old.packet((0, 0), INSIDE, &syn).unwrap();
        let first = left_by(&opened, OUTSIDE).source();
        for (port, flags) in [(OUTSIDE, SYN_ACK), (INSIDE, ACK), (OUTSIDE, FIN_ACK)] {
            let bytes = match port {
                OUTSIDE => frame(OUTSIDE, remote, first, flagged(flags)),
                _ => ack.clone(),
            };
            old.packet((MS, MS), port, &bytes).unwrap();
        }
        old.packet((MS, MS), INSIDE, &fin).unwrap();

        let again = new.packet((2 * MS, 2 * MS), INSIDE, &syn).unwrap();
        let second = left_by(&again, OUTSIDE).source();
        assert_ne!(first, second);
        old.tell(new, 3 * MS);
        new.tell(old, 3 * MS);
        for member in [&mut *old, new] {
            // A SYN that is sent again, the handshake's end, and what comes then.
            for bytes in [&syn, &ack, &ack] {
                let sent = member.packet((4 * MS, 4 * MS), INSIDE, bytes).unwrap();
                assert_eq!(
                    left_by(&sent, OUTSIDE).source(),
                    second,
                    "old at {old_place}"
                );
            }
            let reply = frame(OUTSIDE, remote, second, flagged(ACK));
            let came = member.packet((4 * MS, 4 * MS), OUTSIDE, &reply).unwrap();
            assert_eq!(left_by(&came, INSIDE).destination(), inside);
        }
    }
}
