//! What hosts must have alike of a state, as one number.

use std::cell::Cell;
use std::rc::Rc;

use asterism_state::layout::Shape;
use asterism_state::{
    Absence, Builder, Context, Identity, ObjectSettings, Pair, Row, Sequencer, Single, Tick, Value,
    Wire,
};

fn shape(settings: ObjectSettings, build: impl Fn(&Builder)) -> Shape {
    let sequencer = Sequencer::Own(Cell::new(0));
    let context = Context::new(Identity::alone(), sequencer, 1, Vec::new());
    let builder = Builder::new(Rc::new(context), move |_| settings);
    build(&builder);
    builder.shape()
}

fn table<R: Row, V: Value>(builder: &Builder, name: &str, capacity: u32, idle: Tick) {
    drop(builder.table::<R, V>(name, capacity, &[idle]));
}

#[test]
fn what_hosts_must_have_alike_is_in_the_shape_and_nothing_else() {
    let of = |build: fn(&Builder)| shape(ObjectSettings::REPLICATED, build);
    let first = of(|builder| table::<Single<u32>, ()>(builder, "a", 64, 5));
    let layouts = [
        first,
        of(|builder| table::<Single<u32>, ()>(builder, "b", 64, 5)),
        of(|builder| table::<Single<u64>, ()>(builder, "a", 64, 5)),
        of(|builder| table::<Pair<u16, u16>, ()>(builder, "a", 64, 5)),
        of(|builder| drop(builder.counter("a"))),
        of(|builder| drop(builder.counters::<u32>("a", 64))),
        of(|builder| drop(builder.bloom::<u32>("a", 64, 0.01))),
        of(|builder| {
            table::<Single<u32>, ()>(builder, "a", 64, 5);
            drop(builder.counter("b"));
        }),
        of(|builder| {
            drop(builder.counter("b"));
            table::<Single<u32>, ()>(builder, "a", 64, 5);
        }),
    ];
    for (place, shape) in layouts.iter().enumerate() {
        let same = layouts.iter().filter(|other| other.layout == shape.layout);
        assert_eq!(same.count(), 1, "{place}");
        let same = layouts.iter().filter(|other| other.whole == shape.whole);
        assert_eq!(same.count(), 1, "{place}");
    }
    // Sizes are no layout, but hosts must have them alike, wherever they were said.
    let smaller = ObjectSettings {
        capacity: 63,
        ..ObjectSettings::REPLICATED
    };
    let others = [
        of(|builder| table::<Single<u32>, ()>(builder, "a", 65, 5)),
        of(|builder| table::<Single<u32>, ()>(builder, "a", 64, 6)),
        shape(smaller, |builder| {
            table::<Single<u32>, ()>(builder, "a", 64, 5);
        }),
        shape(ObjectSettings::LOCAL, |builder| {
            table::<Single<u32>, ()>(builder, "a", 64, 5);
        }),
    ];
    for (place, other) in others.iter().enumerate() {
        assert_eq!(other.layout, first.layout, "{place}");
        let same = others.iter().filter(|one| one.whole == other.whole);
        assert_eq!(same.count(), 1, "{place}");
        assert_ne!(other.whole, first.whole, "{place}");
    }
    // How long a host waits is its own matter, and so is how much it keeps for itself.
    let patient = ObjectSettings {
        absence: Absence::Wait { us: 9 },
        ..ObjectSettings::REPLICATED
    };
    let waits = shape(patient, |builder| {
        table::<Single<u32>, ()>(builder, "a", 64, 5);
    });
    assert_eq!(waits, first);
    let alone = shape(ObjectSettings::LOCAL, |builder| {
        table::<Single<u32>, ()>(builder, "a", 99, 5);
    });
    assert_eq!(alone, others[3]);
    // Where an object lives that may be shared later is no difference, and its size is one.
    let movable = |settings: ObjectSettings, capacity| {
        let settings = ObjectSettings {
            movable: true,
            ..settings
        };
        shape(settings, move |builder| {
            table::<Single<u32>, ()>(builder, "a", capacity, 5);
            drop(builder.bloom::<u32>("b", 64, 0.01));
        })
    };
    let [local, shared] = [ObjectSettings::LOCAL, ObjectSettings::REPLICATED];
    assert_ne!(movable(local, 64).whole, movable(local, 65).whole);
    assert_ne!(
        movable(local, 64).whole,
        movable(shared, 64).whole,
        "filters stay where they are"
    );
    assert_eq!(movable(local, 64).movable, 1);
    let table_alone = |settings: ObjectSettings| {
        let settings = ObjectSettings {
            movable: true,
            ..settings
        };
        shape(settings, |builder| {
            table::<Single<u32>, ()>(builder, "a", 64, 5)
        })
    };
    assert_eq!(table_alone(local), table_alone(shared));
    assert_eq!(table_alone(shared).whole, first.whole);
}

#[test]
fn rows_that_are_written_otherwise_have_another_layout() {
    let layouts = [
        u16::LAYOUT,
        <[u8; 3]>::LAYOUT,
        Option::<u16>::LAYOUT,
        <(u8, u16)>::LAYOUT,
        Single::<u16>::LAYOUT,
        Single::<u8>::LAYOUT,
        Pair::<u8, u16>::LAYOUT,
        Pair::<u16, u8>::LAYOUT,
    ];
    let mut apart = layouts.to_vec();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), layouts.len());
}
