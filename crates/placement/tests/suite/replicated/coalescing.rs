//! Windows of coalescing: what opens and closes them, who is waited for, and what is never held back.

use std::time::Duration;

use asterism_placement::MemberId;

use crate::replicated::scenarios::{A, C, Few};

const MS: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(50);

/// Members that know their round trips; A is about to write.
fn at_rest(members: u16) -> Few {
    let mut few = Few::new(members, |config| {
        config.keep_alive = MS * 5;
        config.coalescing_max = MOST;
    });
    few.run_for(MS * 200, nothing);
    assert_eq!(
        few.node(A).window().round,
        0,
        "a path at rest has no window"
    );
    few
}

fn nothing(_: MemberId, _: MemberId, _: &[u8]) -> bool {
    false
}

/// A writes over a path of 15 ms one way, until it is taken for congested.
fn congest(few: &mut Few) {
    few.delay = MS * 15;
    for _ in 0..40 {
        few.submit(A, 1, 100);
        few.run_for(MS, nothing);
    }
    let now = few.now;
    let window = few.node(A).window();
    assert!(window.round > 0 && window.opened <= now, "{window:?}");
}

/// What A's only instance does: it logs one group of what changed and says so.
fn drain(few: &mut Few) -> u64 {
    few.submit(A, 1, 500);
    let (now, round) = (few.now, few.node(A).window().round);
    few.node(A).drained(now, round, true);
    let window = few.node(A).window();
    assert_eq!(window.drained, Some(few.node(A).head()));
    assert!(window.length <= MOST && window.bytes > 0, "{window:?}");
    round
}

/// Also the test of the planted bugs `WindowIgnoresAcknowledgement` and `WindowHoldsGroups`.
#[test]
pub(crate) fn an_acknowledgement_closes_the_window_and_groups_leave_meanwhile() {
    let mut few = at_rest(2);
    congest(&mut few);
    few.run_for(MS * 100, nothing);
    let round = drain(&mut few);
    few.run_for(MS * 5, nothing);
    assert_eq!(few.node(A).window().round, round, "not acknowledged yet");
    // A group that packets wait for, while the window is open.
    let before = few.delivered[1].0;
    few.submit(A, 1, 40);
    few.run_for(MS * 16, nothing);
    assert_eq!(few.delivered[1].0, before + 2, "it did not wait");
    few.run_for(MS * 13, nothing);
    assert!(
        few.node(A).window().round > round,
        "acknowledged after 30 ms"
    );
    assert!(few.node(A).counters().windows_acknowledged > 0);
}

#[test]
fn a_path_that_is_short_again_has_no_window() {
    let mut few = at_rest(2);
    congest(&mut few);
    few.delay = MS;
    for _ in 0..1_000 {
        few.run_for(MS, nothing);
        if few.node(A).window().round != 0 {
            drain(&mut few);
        }
    }
    assert_eq!(few.node(A).window().round, 0);
    assert_eq!(few.node(A).window().length, Duration::ZERO);
}

#[test]
fn who_acknowledges_nothing_keeps_a_window_open_until_its_end_and_then_is_not_waited_for() {
    let mut few = at_rest(3);
    congest(&mut few);
    few.delay = MS;
    let deaf = |_: MemberId, to: MemberId, _: &[u8]| to == C;
    let mut waits = Vec::new();
    for _ in 0..30 {
        let round = drain(&mut few);
        let begun = few.now;
        while few.node(A).window().round == round {
            few.run_for(MS, deaf);
            let open = few.now.since(begun);
            assert!(open <= MOST + MS, "open for {open:?}");
        }
        waits.push(few.now.since(begun));
        if few.node(A).window().round == 0 {
            break;
        }
    }
    assert!(
        few.node(A).counters().windows_expired > 0,
        "C was waited for"
    );
    let last = waits.last().unwrap();
    assert!(
        *last <= MS * 5,
        "B alone acknowledges after 2 ms: {waits:?}"
    );
}

/// Also the test of the planted bug `WindowWithoutEnd`.
#[test]
pub(crate) fn alone_with_a_member_that_acknowledges_nothing_windows_still_end() {
    let mut few = at_rest(2);
    congest(&mut few);
    for _ in 0..20 {
        let round = drain(&mut few);
        few.run_for(MOST + MS, |_, _, _| true);
        assert!(few.node(A).window().round > round);
    }
}

/// More is lost at once than a round of the window may bring again, and the answers to the first part are lost too. Also the test of
/// the planted bug `RepairsStayPaused`.
#[test]
pub(crate) fn what_a_congested_path_lost_goes_again_part_by_part() {
    let mut few = at_rest(2);
    congest(&mut few);
    few.run_for(MS * 100, nothing);
    drain(&mut few);
    few.run_for(MS * 5, nothing);
    let part = few.node(A).window().bytes;
    let lost = part / 500 * 4 + 4;
    few.submit(A, lost, 500);
    few.run_for(MS / 100, |from, _, _| from == A);
    few.submit(A, 1, 40);
    let before = few.node(A).counters().groups_retransmitted;
    few.run_for(MS * 40, |from, _, _| from != A);
    few.run_for(MS * 20, nothing);
    few.run_for(MS * 600, nothing);
    let again = few.node(A).counters().groups_retransmitted - before;
    assert!(again >= lost, "{again} of {lost} went again");
    let head = few.node(A).head();
    assert_eq!(few.delivered[1].0, head, "{lost} lost, {part} bytes a part");
}
