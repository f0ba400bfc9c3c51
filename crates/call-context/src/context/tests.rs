//! Grants, groups and late answers of a context.

use super::*;

#[test]
fn retries_get_the_same_grant_and_unspent_ones_return() {
    let context = Context::alone();
    context.arrive(5);
    context.begin(1);
    assert_eq!(context.grant(3, |_| true, || Some(77)), Some((77, 0)));
    let (call, _) = context.park();
    context.arrive(6);
    context.begin(2);
    assert_eq!(context.grant(3, |_| true, || Some(78)), Some((78, 0)));
    context.spend(0);
    context.end(|_, _| panic!("a spent grant must not return"));
    context.resume(call);
    assert_eq!(
        context.grant(3, |_| true, || panic!("it has one already")),
        Some((77, 0))
    );
    let mut returned = Vec::new();
    context.end(|object, number| returned.push((object, number)));
    assert_eq!(returned, [(3, 77)]);
}

#[test]
fn what_is_no_packets_continues_in_another_group() {
    let context = Context::alone();
    for _ in 0..40 {
        context.stamp(true, OPERATION_BYTES_MAX);
        context.log(|out| out.raw(&[7; 100]));
    }
    let mut total = 0;
    let mut last = 0;
    context.take_groups(|sequence, bytes| {
        assert_eq!(sequence, last + 1);
        assert!(bytes.len() <= GROUP_BYTES_MAX);
        last = sequence;
        total += bytes.len();
    });
    assert_eq!(total, 4000);
    assert!(!context.wrote());
}

#[test]
fn an_absent_entry_is_late_until_covered_or_out_of_time() {
    let identity = Identity {
        members: vec![0, 1, 2],
        ..Identity::alone()
    };
    let context = Context::new(identity, Sequencer::Own(Cell::new(0)), 1, Vec::new());
    context.set_now(1_000, 0);
    context.arrive(1_000);
    context.begin(1);
    assert!(context.absent(Some(1), 500).is_err());
    let (member, until_us) = (Some(1), 1_500);
    assert_eq!(context.park().1, Wait::Absent { member, until_us });
    context.set_covered(1, 1_000);
    assert!(context.absent(Some(1), 500).is_ok());
    assert!(context.absent(None, 500).is_err(), "2 is not covered");
    context.set_covered(2, 1_000);
    assert!(context.absent(None, 500).is_ok());
    assert!(context.expect(500).is_err(), "whatever is covered");
    context.set_now(1_500, 0);
    assert!(context.expect(500).is_ok(), "time is up");
}
