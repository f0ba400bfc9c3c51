//! The store of simulators keeps the laws too, however hostile.

use std::time::Duration;

use asterism_truth_store::laws::{self, World};
use asterism_truth_store::testing::{Faults, MemoryTruth};
use asterism_truth_store::{
    Campaigned, Effect, Key, Outcome, Prefix, Renewed, TERM_MIN, Transaction, TruthError,
    TruthStore, Version,
};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn laws_on(truth: &MemoryTruth) -> Result<(), laws::LawError> {
    let (mut a, mut b) = (truth.store(), truth.store());
    laws::check(&mut World {
        stores: vec![&mut a, &mut b],
        pass: &mut || truth.advance(Duration::from_millis(300)),
        wait: Duration::ZERO,
    })
}

#[test]
fn a_store_without_faults_keeps_the_laws() {
    laws_on(&MemoryTruth::new(1, Faults::default())).unwrap();
}

#[test]
fn a_hostile_store_keeps_the_laws() {
    for seed in 0..300 {
        let done = laws_on(&MemoryTruth::new(seed, Faults::HOSTILE));
        assert_eq!(done, Ok(()), "seed {seed}");
    }
}

/// Counts up by several stores, each of which reads, guards and retries: no step is lost, and none is made twice.
#[test]
fn nothing_is_lost_or_twice_in_a_hostile_store() {
    let counter = key("counter");
    let mut faults_seen = 0;
    for seed in 0..300 {
        let truth = MemoryTruth::new(seed, Faults::HOSTILE);
        let mut stores = [truth.store(), truth.store(), truth.store()];
        let mut steps = 0u64;
        // A step whose outcome is open: the version it would be written over, and the value.
        let mut open: [Option<(Version, u64)>; 3] = [None; 3];
        for turn in 0..300 {
            let (store, open) = (&mut stores[turn % 3], &mut open[turn % 3]);
            let snapshot = match store.read(&Prefix::all()) {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    assert_eq!(error.effect(), Effect::NotDone);
                    continue;
                }
            };
            // The marker of this store says which of its steps was the last to take effect.
            let mine = key(&format!("last/{}", turn % 3));
            let value = |key: &Key| {
                let entry = snapshot.get(key)?;
                Some(u64::from_le_bytes(entry.value[..].try_into().unwrap()))
            };
            if let Some((_, wanted)) = open.take()
                && value(&mine) == Some(wanted)
            {
                steps += 1;
            }
            let next = value(&counter).unwrap_or(0) + 1;
            let expected = snapshot.version(&counter);
            let step = Transaction::new()
                .expect(counter.clone(), expected)
                .put(counter.clone(), next.to_le_bytes())
                .put(mine, next.to_le_bytes());
            match store.commit(&step) {
                Ok(Outcome::Committed(_)) => steps += 1,
                Ok(_) => {}
                Err(error) if error.effect() == Effect::Unknown => *open = Some((expected, next)),
                Err(_) => faults_seen += 1,
            }
        }
        truth.set_faults(Faults::default());
        for (at, store) in stores.iter_mut().enumerate() {
            let snapshot = store.read(&Prefix::all()).unwrap();
            let last = snapshot.get(&key(&format!("last/{at}")));
            if let (Some((_, wanted)), Some(last)) = (open[at], last)
                && *last.value == wanted.to_le_bytes()
            {
                steps += 1;
            }
        }
        let really = truth.really();
        let count = really.get(&counter).unwrap();
        assert_eq!(*count.value, steps.to_le_bytes(), "seed {seed}");
    }
    assert!(faults_seen > 1_000, "{faults_seen}");
}

#[test]
fn two_runs_of_one_seed_are_equal() {
    let run = |seed| {
        let truth = MemoryTruth::new(seed, Faults::HOSTILE);
        let mut store = truth.store();
        let mut log = Vec::new();
        for i in 0..200u8 {
            log.push(format!("{:?}", store.read(&Prefix::all())));
            let put = Transaction::new().put(key("a"), [i]);
            log.push(format!("{:?}", store.commit(&put)));
        }
        log
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn who_is_cut_off_loses_its_leadership_and_changes_nothing() {
    let truth = MemoryTruth::new(1, Faults::default());
    let (mut a, mut b) = (truth.store(), truth.store());
    let election = key("orchestrator");
    let Ok(Campaigned::Leads(first)) = a.campaign(&election, &key("a"), TERM_MIN) else {
        panic!("it leads")
    };
    truth.set_reachable(&a, false);
    let away = a.renew(&first).unwrap_err();
    assert!(matches!(away, TruthError::Away { .. }));
    assert_eq!(
        b.campaign(&election, &key("b"), TERM_MIN),
        Ok(Campaigned::HeldBy {
            candidate: "a".into(),
            token: first.token(),
        })
    );
    truth.advance(TERM_MIN);
    let Ok(Campaigned::Leads(second)) = b.campaign(&election, &key("b"), TERM_MIN) else {
        panic!("it leads")
    };
    truth.set_reachable(&a, true);
    let late = Transaction::new().put(key("x"), *b"late");
    assert_eq!(a.commit(&late.under(&first)), Ok(Outcome::Deposed));
    assert_eq!(a.renew(&first), Ok(Renewed::Ended));
    assert_eq!(b.renew(&second), Ok(Renewed::Leads));
    assert!(truth.really().entries.is_empty());
}
