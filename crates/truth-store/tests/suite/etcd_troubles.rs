//! The store in an etcd in memory (`gateway.rs`): the laws, and one scenario for each trouble. They need no etcd, and find every
//! planted bug of the client.

use std::time::Duration;

use asterism_truth_store::etcd::EtcdStore;
use asterism_truth_store::laws::{self, World};
use asterism_truth_store::{
    Campaigned, Changes, Effect, Key, Leadership, Outcome, Prefix, Renewed, Revision, TERM_MIN,
    Transaction, TruthError, TruthStore, Version,
};

use crate::etcd::{key, store};
use crate::gateway::{Gateway, Trouble};

/// What must not be.
#[derive(Debug)]
struct Violation(String);

macro_rules! claim {
    ($holds:expr, $($said:tt)*) => {
        if !$holds {
            return Err(Violation(format!($($said)*)));
        }
    };
}

fn put(name: &str) -> Transaction {
    Transaction::new()
        .expect(key(name), Version::ABSENT)
        .put(key(name), *b"value")
}

fn commit(store: &mut EtcdStore, name: &str) -> Result<Revision, Violation> {
    match store.commit(&put(name)) {
        Ok(Outcome::Committed(revision)) => Ok(revision),
        other => Err(Violation(format!("{name} was not written: {other:?}"))),
    }
}

fn lead(store: &mut EtcdStore, election: &Key) -> Result<Leadership, Violation> {
    match store.campaign(election, &key("me"), TERM_MIN) {
        Ok(Campaigned::Leads(leadership)) => Ok(leadership),
        other => Err(Violation(format!(
            "the only candidate does not lead: {other:?}"
        ))),
    }
}

/// A gateway, and a store that has written once: its outcome key has a place.
fn begin() -> Result<(Gateway, EtcdStore), Violation> {
    let gateway = Gateway::start();
    let mut store = store("a", gateway.address());
    commit(&mut store, "begun")?;
    Ok((gateway, store))
}

fn keeps_the_laws() -> Result<(), Violation> {
    let gateway = Gateway::start();
    let mut a = store("a", gateway.address());
    let mut b = store("b", gateway.address());
    let kept = laws::check(&mut World {
        stores: vec![&mut a, &mut b],
        pass: &mut || gateway.pass(300),
        wait: Duration::from_secs(5),
    });
    kept.map_err(|error| Violation(error.to_string()))
}

fn a_watch_that_ended_is_an_error() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    let read = store.read(&Prefix::all());
    let revision = read.map_err(|error| Violation(error.to_string()))?.revision;
    let quiet = store.changes(&Prefix::all(), revision, Duration::ZERO);
    let none = Changes::UpTo {
        revision,
        changes: Vec::new(),
    };
    claim!(quiet == Ok(none), "a quiet watch is {quiet:?}");
    gateway.trouble(Trouble::StreamEnds);
    let ended = store.changes(&Prefix::all(), revision, Duration::ZERO);
    claim!(
        matches!(ended, Err(TruthError::Away { .. })),
        "a watch that ended is {ended:?}"
    );
    Ok(())
}

fn a_compacted_watch_says_so() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    commit(&mut store, "x")?;
    gateway.compact();
    let found = store.changes(&Prefix::all(), Revision(1), Duration::ZERO);
    claim!(
        found == Ok(Changes::Compacted),
        "changes over a compaction are {found:?}"
    );
    Ok(())
}

fn a_renewal_without_time_is_the_end() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    let leadership = lead(&mut store, &key("orchestrator"))?;
    let renewed = store.renew(&leadership);
    claim!(
        renewed == Ok(Renewed::Leads),
        "it leads no more: {renewed:?}"
    );
    gateway.end_leases();
    let renewed = store.renew(&leadership);
    claim!(
        renewed == Ok(Renewed::Ended),
        "a lease that ended was renewed: {renewed:?}"
    );
    Ok(())
}

fn a_leader_without_its_key_leads_no_more() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    let leadership = lead(&mut store, &key("orchestrator"))?;
    gateway.remove("asterism/test/leader/orchestrator");
    let renewed = store.renew(&leadership);
    claim!(
        renewed == Ok(Renewed::Ended),
        "a leader without its key was renewed: {renewed:?}"
    );
    Ok(())
}

fn a_lost_answer_is_found_out() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    for (name, trouble) in [
        ("made", Trouble::AnswerLost),
        ("lost", Trouble::RequestLost),
    ] {
        gateway.trouble(trouble);
        let result = store.commit(&put(name));
        let found = store.read(&Prefix::all());
        let found = found.map_err(|error| Violation(error.to_string()))?;
        let version = found.version(&key(name));
        let is_right = match &result {
            Ok(Outcome::Committed(revision)) => version == Version(revision.0),
            Err(error) if error.effect() == Effect::NotDone => version == Version::ABSENT,
            // No outcome was found out, though the gateway answers again.
            _ => false,
        };
        claim!(
            is_right,
            "{trouble:?}: {result:?}, and {version:?} is there"
        );
        let is_made = version > Version::ABSENT;
        claim!(
            is_made == (trouble == Trouble::AnswerLost),
            "{trouble:?}: {version:?}"
        );
    }
    commit(&mut store, "after")?;
    Ok(())
}

fn an_answer_of_the_past_is_an_error() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    commit(&mut store, "x")?;
    gateway.trouble(Trouble::Past);
    let found = store.read(&Prefix::all());
    claim!(
        matches!(found, Err(TruthError::WentBack { .. })),
        "an answer of the past is {found:?}"
    );
    Ok(())
}

fn another_cluster_is_an_error() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    gateway.trouble(Trouble::OtherCluster);
    let found = store.read(&Prefix::all());
    claim!(
        matches!(found, Err(TruthError::OtherCluster { .. })),
        "another cluster's answer is {found:?}"
    );
    Ok(())
}

fn a_range_that_goes_on_is_not_taken_for_whole() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    commit(&mut store, "x")?;
    gateway.trouble(Trouble::Cut);
    let found = store.read(&Prefix::all());
    claim!(
        matches!(found, Err(TruthError::TooMuch { .. })),
        "half of a range is {found:?}"
    );
    Ok(())
}

fn one_of_two_candidates_wins() -> Result<(), Violation> {
    let (gateway, mut store) = begin()?;
    gateway.trouble(Trouble::WonBetween);
    let outcome = store.campaign(&key("orchestrator"), &key("me"), TERM_MIN);
    claim!(
        matches!(&outcome, Ok(Campaigned::HeldBy { candidate, .. }) if candidate == "rival"),
        "an election that another won meanwhile is {outcome:?}"
    );
    Ok(())
}

fn evidence_against_one_leader_deposes_no_other() -> Result<(), Violation> {
    let (_gateway, mut store) = begin()?;
    let election = key("orchestrator");
    let first = lead(&mut store, &election)?;
    let deposed = store.depose(&election, first.token());
    claim!(deposed == Ok(()), "a leader was deposed: {deposed:?}");
    let second = lead(&mut store, &election)?;
    let late = store.depose(&election, first.token());
    claim!(late == Ok(()), "a former leader was deposed: {late:?}");
    let renewed = store.renew(&second);
    claim!(
        renewed == Ok(Renewed::Leads),
        "the next leader was deposed with the one before: {renewed:?}"
    );
    Ok(())
}

type Scenario = (&'static str, fn() -> Result<(), Violation>);

const SCENARIOS: [Scenario; 11] = [
    (
        "evidence against a former leader",
        evidence_against_one_leader_deposes_no_other,
    ),
    ("a watch that ended", a_watch_that_ended_is_an_error),
    ("a compacted watch", a_compacted_watch_says_so),
    ("a renewal without time", a_renewal_without_time_is_the_end),
    (
        "a leader without its key",
        a_leader_without_its_key_leads_no_more,
    ),
    ("a lost answer", a_lost_answer_is_found_out),
    ("an answer of the past", an_answer_of_the_past_is_an_error),
    ("another cluster", another_cluster_is_an_error),
    (
        "half of a range",
        a_range_that_goes_on_is_not_taken_for_whole,
    ),
    ("two candidates", one_of_two_candidates_wins),
    ("the laws", keeps_the_laws),
];

#[test]
fn every_trouble_is_answered_as_the_trait_says() {
    for (name, scenario) in SCENARIOS {
        if let Err(Violation(found)) = scenario() {
            panic!("{name}: {found}");
        }
    }
}

/// Only in a build with `--cfg asterism_mutants`:
/// `RUSTFLAGS="--cfg asterism_mutants" cargo test -p asterism-truth-store etcd_troubles`.
#[test]
#[cfg(asterism_mutants)]
fn every_planted_bug_of_the_client_is_found() {
    use asterism_truth_store::mutant::{Mutant, select};
    let mut alive = Vec::new();
    for planted in Mutant::ALL.into_iter().filter(|one| one.is_of_etcd()) {
        select(Some(planted));
        let found = SCENARIOS
            .iter()
            .find_map(|(name, scenario)| scenario().err().map(|found| (name, found)));
        select(None);
        match found {
            Some((name, Violation(found))) => println!("{planted:?}: {name}: {found}"),
            None => alive.push(planted),
        }
    }
    assert!(alive.is_empty(), "found by no scenario: {alive:?}");
}
