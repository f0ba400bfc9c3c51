//! Versions of writes: confirmed in their order, bounded, and what a packet depends on.

use asterism_state::{Context, Origin, Origins, Stamp, UNCONFIRMED_MAX};

fn stamp(origin: u16, sequence: u64) -> Stamp {
    Stamp {
        origin: Origin(origin),
        sequence,
    }
}

#[test]
fn versions_are_confirmed_in_their_order() {
    let context = Context::alone();
    assert_eq!(context.version_of(stamp(0, 1)), None, "nothing is held");
    context.hold_output(2);
    assert_eq!(context.version_of(stamp(0, 1)), Some(1));
    assert_eq!(context.version_of(stamp(0, 1)), Some(1), "one packet's");
    assert_eq!(context.version_of(stamp(3, 7)), Some(2));
    assert_eq!(context.version_of(stamp(0, 2)), Some(3));
    context.confirm(Origins::OWN, 2);
    assert_eq!(context.confirmed_version(), 1, "the second one is not");
    context.confirm(Origin(3), 6);
    assert_eq!(context.confirmed_version(), 1);
    context.confirm(Origin(3), 7);
    assert_eq!((context.confirmed_version(), context.unconfirmed()), (3, 0));
    assert_eq!(context.version_of(stamp(0, 2)), None, "it is known");
}

#[test]
fn with_one_copy_asked_for_others_writes_are_confirmed_where_they_are_applied() {
    let context = Context::alone();
    context.hold_output(1);
    assert_eq!(context.version_of(stamp(3, 7)), None);
    assert_eq!(context.version_of(stamp(0, 1)), Some(1));
}

#[test]
fn a_packet_depends_on_the_last_version_that_is_not_confirmed() {
    let context = Context::alone();
    context.hold_output(1);
    for sequence in 1..=3 {
        context.version_of(stamp(0, sequence));
    }
    context.confirm(Origins::OWN, 1);
    context.depend_on(1);
    assert_eq!(
        (context.dependency(), context.needs_attention()),
        (0, false)
    );
    context.depend_on(3);
    context.depend_on(2);
    assert_eq!((context.dependency(), context.needs_attention()), (3, true));
    context.end(|_, _| {});
    assert_eq!((context.dependency(), context.needs_attention()), (3, true));
    context.depend_on_nothing();
    context.end(|_, _| {});
    assert_eq!(
        (context.dependency(), context.needs_attention()),
        (0, false)
    );
}

#[test]
fn a_parked_packet_keeps_what_it_depends_on() {
    let context = Context::alone();
    context.hold_output(1);
    context.version_of(stamp(0, 1));
    context.depend_on(1);
    let (call, _) = context.park();
    assert_eq!(context.dependency(), 0);
    context.resume(call);
    assert_eq!(context.dependency(), 1);
}

#[test]
fn versions_are_bounded_and_none_is_confirmed_early() {
    let context = Context::alone();
    context.hold_output(2);
    context.version_of(stamp(3, 1));
    for sequence in 1..=UNCONFIRMED_MAX as u64 + 10 {
        context.version_of(stamp(0, sequence));
    }
    assert_eq!(context.unconfirmed(), UNCONFIRMED_MAX);
    context.confirm(Origin(3), 1);
    let last = context.version_of(stamp(0, UNCONFIRMED_MAX as u64 + 11));
    context.confirm(Origins::OWN, UNCONFIRMED_MAX as u64 + 10);
    assert!(last > Some(context.confirmed_version()));
    context.confirm(Origins::OWN, UNCONFIRMED_MAX as u64 + 11);
    assert_eq!(last, Some(context.confirmed_version()));
}
