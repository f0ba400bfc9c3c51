//! Which epoch may follow which: what `asterism epoch` writes does, and what contradicts or forgets is refused.

use asterism_epochs::{EpochFile, Refusal, Step};

fn places() -> Vec<String> {
    names("abcd")
}

fn names(names: &str) -> Vec<String> {
    names.chars().map(String::from).collect()
}

fn refused(before: &EpochFile, next: &EpochFile) -> Refusal {
    before.step_to(next).unwrap_err().refusal()
}

/// A number below `most`, of a simple generator.
fn draw(state: &mut u64, most: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 33) % most
}

/// Epochs that the command writes over any deaths and returns: each may follow every earlier one, and none goes back.
#[test]
fn whatever_the_command_writes_may_follow_whatever_it_wrote_before() {
    let places = places();
    let (mut founded, mut ports) = (0, 0);
    for seed in 0..200 {
        let mut state = seed;
        let mut epochs = vec![EpochFile::first(&places)];
        for _ in 0..12 {
            let now = epochs.last().unwrap();
            let pick = |odds: u64, state: &mut u64| -> Vec<String> {
                let all = places.iter();
                all.filter(|_| draw(state, odds) == 0).cloned().collect()
            };
            let mut without = pick(3, &mut state);
            without.retain(|name| now.members.contains_key(name));
            let again = pick(4, &mut state);
            let next = match draw(&mut state, 8) {
                0 => now.next(&places, &[], &[], true),
                1 => now.next_fenced(&places, &without),
                _ => now.next(&places, &without, &again, false),
            };
            // The command refuses some draws.
            if let Ok(next) = next
                && EpochFile::parse(&next.text(), "the next", &places).is_ok()
            {
                founded += u32::from(next.founding);
                ports += next.ports.len();
                epochs.push(next);
            }
        }
        for (place, before) in epochs.iter().enumerate() {
            assert_eq!(before.step_to(before), Ok(Step::Same));
            for next in &epochs[place + 1..] {
                assert_eq!(before.step_to(next), Ok(Step::Later), "{before:?} {next:?}");
                assert_eq!(refused(next, before), Refusal::Older);
            }
        }
    }
    assert!(founded > 50 && ports > 500, "{founded} {ports}");
}

#[test]
fn another_epoch_of_the_same_number_contradicts() {
    let places = places();
    let first = EpochFile::first(&places);
    let left = |name: &str| first.next(&places, &names(name), &[], false).unwrap();
    let (b, c) = (left("b"), left("c"));
    assert_eq!(refused(&b, &c), Refusal::Contradicts);
    let said = |other: &EpochFile| b.step_to(other).unwrap_err().to_string();
    assert!(said(&c).contains("members or incarnations"));
    let mut other = b.clone();
    other.fence(&names("b")).unwrap();
    assert!(
        said(&other).contains("ended incarnations"),
        "{}",
        said(&other)
    );
    let mut other = b.clone();
    other.ports.clear();
    assert!(said(&other).contains("holders"), "{}", said(&other));
}

#[test]
fn incarnations_and_ports_that_are_forgotten_are_missed() {
    let places = places();
    let first = EpochFile::first(&places);
    let now = first.next(&places, &names("b"), &[], false).unwrap();
    let later = |change: &dyn Fn(&mut EpochFile)| {
        let mut next = now.next(&places, &[], &names("c"), false).unwrap();
        assert_eq!(now.step_to(&next), Ok(Step::Later));
        change(&mut next);
        now.step_to(&next).unwrap_err()
    };
    for (change, said) in [
        (
            &(|next: &mut EpochFile| _ = next.left.remove("b")) as &dyn Fn(&mut EpochFile),
            "incarnation 1 of b",
        ),
        (&|next| _ = next.members.remove("d"), "incarnation 1 of d"),
        (
            &|next| _ = next.members.insert("a".into(), 0),
            "incarnation 1 of a",
        ),
        (
            &|next| {
                next.left.clear();
                next.members.insert("b".into(), 1);
            },
            "incarnation 1 of b",
        ),
        (&|next| next.ports.clear(), "ports of b"),
        (
            &|next| next.ports.get_mut("b").unwrap().past.clear(),
            "ports of b",
        ),
        (
            &|next| next.ports.get_mut("b").unwrap().partitions.reverse(),
            "ports of b",
        ),
        (
            &|next| next.ports.get_mut("b").unwrap().since = 1,
            "ports of b",
        ),
    ] {
        let error = later(change);
        let (reason, why) = (error.refusal(), error.to_string());
        assert_eq!(reason, Refusal::Forgets);
        assert!(why.contains(said), "{said}: {why}");
    }
}
