//! Paths that show one direction of a connection alone: what passes where that is chosen, what it costs, and that nothing of it holds
//! elsewhere.

use asterism_function::Reason;
use asterism_function::testkit::{Testkit, late_everywhere};
use asterism_functions::firewall::{Firewall, FirewallConfig};

use crate::firewall::packets::*;

const CLIENT: (u32, u16) = (5, 40_000);
const SERVER: (u32, u16) = (2_000_000, 443);

fn with(change: impl Fn(&mut FirewallConfig)) -> Testkit<Firewall> {
    let mut config = config();
    change(&mut config);
    Testkit::new(Firewall::new(config))
}

fn asymmetric() -> Testkit<Firewall> {
    with(|config| config.asymmetric = true)
}

/// The client's half of a connection, whose other half goes another way (LVS in direct routing): far more than a window of it.
#[test]
fn a_client_alone_has_its_connection() {
    let mut kit = asymmetric();
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    for step in 0..400 {
        let sent = 1_001 + 1_000 * step;
        let ack = 70_001 * step;
        let data = tcp(CLIENT, SERVER, ACK, (sent, ack), 1_000);
        passes(&mut kit, INSIDE, &data);
        if step == 0 {
            let half_open = kit.state().flows.len_now();
            assert_eq!(half_open, 1);
        }
    }
    // Idle for longer than a half-open one may be.
    kit.advance(3_600);
    let later = tcp(CLIENT, SERVER, ACK, (401_001, 9), 9);
    passes(&mut kit, INSIDE, &later);
    let fin = tcp(CLIENT, SERVER, FIN_ACK, (401_010, 9), 0);
    passes(&mut kit, INSIDE, &fin);
    // It has finished, as far as anybody sees: forgotten after two minutes, not two hours.
    kit.advance(200);
    assert_eq!(kit.state().flows.len_now(), 0);
}

/// The server's half, of which the first segment is its answer: the rules decide by who sends it.
#[test]
fn a_server_alone_has_its_connection_where_the_rules_let_it_begin() {
    let mut kit = asymmetric();
    let answer = |numbers| tcp(CLIENT, SERVER, SYN_ACK, numbers, 0);
    passes(&mut kit, INSIDE, &answer((9_000, 1_001)));
    let data = |sequence| tcp(CLIENT, SERVER, ACK, (sequence, 1_001), 900);
    passes(&mut kit, INSIDE, &data(9_001));
    passes(&mut kit, INSIDE, &data(2_000_000_000));
    // The next connection of the same ends.
    passes(&mut kit, INSIDE, &answer((77, 3_000_000_001)));
    passes(&mut kit, INSIDE, &data(78));
    let forged = tcp(SERVER, (6, 40_000), SYN_ACK, (9_000, 1_001), 0);
    drops(&mut kit, OUTSIDE, &forged, Reason::Denied);
}

/// Both directions may still come by here, in part.
#[test]
fn a_connection_of_which_both_directions_are_seen_in_part_goes_on() {
    let mut kit = asymmetric();
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    passes(
        &mut kit,
        INSIDE,
        &tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 10),
    );
    passes(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, CLIENT, ACK, (9_001, 1_011), 10),
    );
    let far = tcp(CLIENT, SERVER, ACK, (1_011, 500_000_000), 10);
    passes(&mut kit, INSIDE, &far);
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, RST, (9, 0), 0));
    drops(
        &mut kit,
        OUTSIDE,
        &tcp(SERVER, (6, 9), ACK, (1, 10), 9),
        Reason::Denied,
    );
    let bad = tcp(CLIENT, SERVER, TCP_BAD, (1, 1), 0);
    drops(&mut kit, INSIDE, &bad, Reason::BadTcpFlags);
}

const TCP_BAD: asterism_function::TcpFlags = asterism_function::TcpFlags(SYN.0 | RST.0);

/// Without the setting one direction is not enough, and numbers count.
#[test]
fn nothing_of_it_holds_where_it_was_not_chosen() {
    let mut kit = with(|_| {});
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    let ack = tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 10);
    drops(&mut kit, INSIDE, &ack, Reason::NoConnection);
    let answer = tcp((6, 1), SERVER, SYN_ACK, (9_000, 1_001), 0);
    drops(&mut kit, INSIDE, &answer, Reason::NoConnection);
}

/// A firewall that picks connections up judges those whose SYN it saw as ever, and so does Linux.
#[test]
fn a_connection_is_not_picked_up_behind_its_syn() {
    let mut kit = with(|config| config.picks_up = true);
    passes(&mut kit, INSIDE, &tcp(CLIENT, SERVER, SYN, (1_000, 0), 0));
    let ack = tcp(CLIENT, SERVER, ACK, (1_001, 9_001), 10);
    drops(&mut kit, INSIDE, &ack, Reason::NoConnection);
}

#[test]
fn late_reads_change_nothing_on_one_way_paths() {
    let packets = [
        (0, INSIDE, tcp(CLIENT, SERVER, SYN, (1_000, 0), 0)),
        (0, INSIDE, tcp(CLIENT, SERVER, ACK, (1_001, 5), 100)),
        (0, INSIDE, tcp(CLIENT, SERVER, SYN, (7_000_000, 0), 0)),
        (0, INSIDE, tcp((6, 9), SERVER, SYN_ACK, (1_000, 7), 0)),
        (0, INSIDE, tcp(CLIENT, SERVER, FIN_ACK, (1_101, 5), 0)),
        (0, INSIDE, tcp(CLIENT, SERVER, RST, (1_102, 5), 0)),
    ];
    let asymmetric = || {
        Firewall::new(FirewallConfig {
            asymmetric: true,
            ..config()
        })
    };
    late_everywhere(asymmetric, &packets);
}
