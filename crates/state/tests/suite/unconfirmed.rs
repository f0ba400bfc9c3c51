//! Entries whose last change is not confirmed: reads of the common path find them again as soon as it is.

use std::rc::Rc;

use asterism_state::{BiMap, Builder, Context, ObjectSettings, Origins, State, state};

#[state]
struct Pairs {
    pairs: BiMap<u32, u32>,
}

fn add(pairs: &mut Pairs, context: &Context, left: u32) {
    context.begin(u64::from(left));
    let room = pairs.pairs.vacancy().expect("at once").expect("room");
    pairs.act().pairs.insert(room, (left, left + 100), ());
    context.depend_on_nothing();
    context.end(|_, _| {});
    pairs.settle();
}

fn is_found_plainly(pairs: &Pairs, left: u32) -> bool {
    let found = pairs.pairs.nearby_by_left(&left);
    assert!(
        pairs
            .pairs
            .by_left(&left)
            .is_ok_and(|found| found.is_some())
    );
    found.is_ok_and(|found| found.is_some())
}

#[test]
fn entries_are_found_plainly_as_soon_as_their_last_change_is_confirmed() {
    let context = Rc::new(Context::alone());
    context.set_now(0, 1_000);
    context.hold_output(1);
    let settings = ObjectSettings {
        holds_output: true,
        ..ObjectSettings::REPLICATED
    };
    let builder = Builder::new(context.clone(), move |_| settings);
    let mut pairs = Pairs {
        pairs: builder.table("pairs", 64, &[0]),
    };
    for left in 1..=3 {
        add(&mut pairs, &context, left);
    }
    // The second one is removed and added again.
    let at = pairs.pairs.by_left(&2).expect("at once").expect("an entry");
    pairs.act().pairs.remove(&at);
    context.end(|_, _| {});
    add(&mut pairs, &context, 2);
    let plain = |pairs: &Pairs| [1, 2, 3].map(|left| is_found_plainly(pairs, left));
    assert_eq!(plain(&pairs), [false; 3]);
    let confirm = |pairs: &mut Pairs, sequence| {
        context.confirm(Origins::OWN, sequence);
        pairs.for_each_object(|object| object.confirmed());
    };
    confirm(&mut pairs, 3);
    assert_eq!(
        plain(&pairs),
        [true, false, true],
        "the second changed again"
    );
    confirm(&mut pairs, 4);
    assert_eq!(plain(&pairs), [true, false, true]);
    confirm(&mut pairs, 5);
    assert_eq!(plain(&pairs), [true; 3]);
}
