//! The store in a real etcd, which is killed, paused, compacted, restored without its history, and behind a proxy that lies.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use asterism_lab::etcd::EtcdServer;
use asterism_lab::pause;
use asterism_truth_store::etcd::{EtcdConfig, EtcdStore};
use asterism_truth_store::laws::{self, World};
use asterism_truth_store::{
    Campaigned, Changes, ENTRIES_MAX, Effect, Key, Leadership, Outcome, Prefix, Renewed, Revision,
    TERM_MIN, Transaction, TruthError, TruthStore, Version, WRITES_MAX, clock,
};

use crate::proxy::{FAULTS, Fault, Proxy};

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn server() -> Option<EtcdServer> {
    server_with(&[])
}

/// As [`server`], with these arguments.
fn server_with(arguments: &[&str]) -> Option<EtcdServer> {
    let server = EtcdServer::start_with(arguments);
    if server.is_none() {
        println!(
            "SKIPPED the truth store in etcd: etcd is not installed: apt-get install etcd-server"
        );
    }
    server
}

pub(crate) fn config(name: &str, address: SocketAddr) -> EtcdConfig {
    EtcdConfig {
        endpoints: vec![format!("http://{address}")],
        root: key("asterism/test"),
        name: key(name),
        incarnation: 1,
        cluster_id: None,
        // A loaded machine syncs slowly.
        answer_wait: Duration::from_secs(10),
        tls: None,
        user: None,
    }
}

pub(crate) fn store(name: &str, address: SocketAddr) -> EtcdStore {
    EtcdStore::new(&config(name, address), clock::monotonic()).unwrap()
}

/// A store that does not wait long.
fn hasty(name: &str, address: SocketAddr) -> EtcdStore {
    let config = EtcdConfig {
        answer_wait: Duration::from_millis(1_500),
        ..config(name, address)
    };
    EtcdStore::new(&config, clock::monotonic()).unwrap()
}

fn put(name: &str, value: &[u8]) -> Transaction {
    Transaction::new().put(key(name), value)
}

fn committed(outcome: Result<Outcome, TruthError>) -> Revision {
    match outcome {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

/// Asks until it is answered.
fn persist<T>(mut call: impl FnMut() -> Result<T, TruthError>) -> T {
    for _ in 0..200 {
        match call() {
            Ok(answer) => return answer,
            Err(_) => pause(Duration::from_millis(100)),
        }
    }
    panic!("{:?}", call().err())
}

#[test]
fn it_keeps_the_laws() {
    let Some(server) = server() else { return };
    let mut a = store("a", server.address());
    let mut b = store("b", server.address());
    laws::check(&mut World {
        stores: vec![&mut a, &mut b],
        pass: &mut || pause(Duration::from_millis(300)),
        wait: Duration::from_secs(20),
    })
    .unwrap();
}

#[test]
fn it_keeps_the_laws_behind_a_hostile_proxy() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.address());
    proxy.set_hostile(true);
    let mut a = store("a", proxy.address());
    let mut b = store("b", proxy.address());
    laws::check(&mut World {
        stores: vec![&mut a, &mut b],
        pass: &mut || pause(Duration::from_millis(300)),
        wait: Duration::from_secs(20),
    })
    .unwrap();
    assert!(a.counts().settled + b.counts().settled > 3);
}

/// Each fault by itself: what the store answers is what is there, then and later.
#[test]
fn a_lost_answer_is_found_out() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.address());
    let mut direct = store("direct", server.address());
    for fault in FAULTS {
        let name = format!("fault/{fault:?}");
        let open = match fault {
            // Short enough for a late answer to be lost.
            Fault::Late => hasty,
            // Long enough for a proxy that stands still: what it has not made yet when the outcome is found out is never made.
            _ => store,
        };
        let mut store = open(&format!("{fault:?}"), proxy.address());
        committed(persist_commit(&mut store, &put("begun", b"x")));
        proxy.strike(fault, 1);
        let write = put(&name, b"once").expect(key(&name), Version::ABSENT);
        let result = store.commit(&write);
        let there = |direct: &mut EtcdStore| {
            let snapshot = persist(|| direct.read(&Prefix::new(&name).unwrap()));
            snapshot.version(&key(&name))
        };
        match (&result, fault) {
            (_, Fault::OtherCluster) => {
                let error = result.clone().unwrap_err();
                assert!(matches!(error, TruthError::OtherCluster { .. }), "{error}");
                assert_eq!(error.effect(), Effect::Unknown);
            }
            (Ok(Outcome::Committed(revision)), _) => {
                assert_eq!(there(&mut direct), Version(revision.0), "{fault:?}");
            }
            (Err(error), _) if error.effect() == Effect::NotDone => {
                assert_eq!(there(&mut direct), Version::ABSENT, "{fault:?}: {error}");
            }
            // A loaded machine: the call's time was used up before the outcome was found out.
            (Err(error), _) if error.effect() == Effect::Unknown => {}
            other => panic!("{fault:?}: {other:?}"),
        }
        // The next answer shows the outcome, and it stays: also where the request arrives after that.
        let now = persist(|| store.read(&Prefix::all())).version(&key(&name));
        if fault == Fault::MadeLater {
            pause(Duration::from_millis(1_500));
        }
        assert_eq!(there(&mut direct), now, "{fault:?}");
        match fault {
            Fault::CutRequest | Fault::FailsInstead => assert_eq!(now, Version::ABSENT),
            Fault::MadeLater | Fault::Late => {}
            _ => assert!(now > Version::ABSENT, "{fault:?}"),
        }
        // And it goes on.
        let again = persist(|| store.commit(&put(&name, b"again").expect(key(&name), now)));
        assert!(matches!(again, Outcome::Committed(_)), "{fault:?}");
    }
}

/// Two stores count up through a hostile proxy: no step is lost, none is made twice.
#[test]
fn no_step_is_lost_or_made_twice() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.address());
    proxy.set_hostile(true);
    let address = proxy.address();
    let count = |name: &'static str| {
        thread::spawn(move || {
            let mut store = store(name, address);
            let mut steps = 0u64;
            let mut open = None;
            for _ in 0..40 {
                let snapshot = persist(|| store.read(&Prefix::all()));
                let mine = key(&format!("last/{name}"));
                let value = |key: &Key| {
                    let entry = snapshot.get(key)?;
                    Some(u64::from_le_bytes(entry.value[..].try_into().unwrap()))
                };
                if open
                    .take()
                    .is_some_and(|wanted| value(&mine) == Some(wanted))
                {
                    steps += 1;
                }
                let counter = key("counter");
                let next = value(&counter).unwrap_or(0) + 1;
                let step = Transaction::new()
                    .expect(counter.clone(), snapshot.version(&counter))
                    .put(counter, next.to_le_bytes())
                    .put(mine, next.to_le_bytes());
                match store.commit(&step) {
                    Ok(Outcome::Committed(_)) => steps += 1,
                    Err(error) if error.effect() == Effect::Unknown => open = Some(next),
                    _ => {}
                }
            }
            let snapshot = persist(|| store.read(&Prefix::all()));
            let last = snapshot.get(&key(&format!("last/{name}")));
            if let (Some(wanted), Some(last)) = (open, last)
                && *last.value == wanted.to_le_bytes()
            {
                steps += 1;
            }
            steps
        })
    };
    let both = [count("a"), count("b")];
    let steps: u64 = both.map(|thread| thread.join().unwrap()).iter().sum();
    // What was cut off and made later has arrived by now.
    pause(Duration::from_millis(1_500));
    let snapshot = persist(|| store("c", server.address()).read(&Prefix::all()));
    assert_eq!(
        *snapshot.get(&key("counter")).unwrap().value,
        steps.to_le_bytes()
    );
    assert!(steps > 20, "{steps}");
}

#[test]
fn an_etcd_that_was_killed_is_away_and_comes_back_with_everything() {
    let Some(mut server) = server() else { return };
    let mut store = store("a", server.address());
    let revision = committed(store.commit(&put("a", b"one")));
    let address = server.address();
    let watcher = thread::spawn(move || {
        let mut watching = self::store("b", address);
        watching.changes(&Prefix::all(), revision, Duration::from_secs(30))
    });
    pause(Duration::from_millis(500));
    server.kill();
    // However it ends, the end of a stream is no answer.
    let lost = watcher.join().unwrap().unwrap_err();
    assert!(matches!(lost, TruthError::Away { .. }), "{lost}");
    let away = store.commit(&put("a", b"two")).unwrap_err();
    // Nobody was there to receive it.
    assert_eq!(away.effect(), Effect::NotDone, "{away}");
    assert!(store.read(&Prefix::all()).is_err());
    server.restart();
    let snapshot = persist(|| store.read(&Prefix::all()));
    assert_eq!(*snapshot.get(&key("a")).unwrap().value, *b"one");
    let second = persist(|| store.commit(&put("a", b"two")));
    assert!(committed(Ok(second)) > revision);
}

#[test]
fn an_etcd_that_stands_still_leaves_an_outcome_that_is_found_out_later() {
    let Some(server) = server() else { return };
    let mut store = hasty("a", server.address());
    let first = committed(persist_commit(&mut store, &put("a", b"one")));
    // On a loaded machine that may have taken several tries.
    let before = store.counts();
    server.pause();
    let away = store.read(&Prefix::all()).unwrap_err();
    assert!(matches!(away, TruthError::Away { .. }), "{away}");
    let unknown = store.commit(&put("a", b"two")).unwrap_err();
    assert_eq!(unknown.effect(), Effect::Unknown, "{unknown}");
    assert_eq!(store.counts().unknown, before.unknown + 1);
    // As long as it is open, nothing else is answered.
    assert!(store.read(&Prefix::all()).is_err());
    server.go_on();
    let found = persist(|| store.read(&Prefix::all()));
    let entry = found.get(&key("a")).unwrap().clone();
    assert!(*entry.value == *b"two" || entry.version == Version(first.0));
    pause(Duration::from_secs(2));
    let later = persist(|| store.read(&Prefix::all()));
    assert_eq!(later.get(&key("a")), Some(&entry), "it is final");
    assert_eq!(store.counts().settled, before.settled + 1);
}

fn persist_commit(store: &mut EtcdStore, transaction: &Transaction) -> Result<Outcome, TruthError> {
    Ok(persist(|| store.commit(transaction)))
}

fn lead(store: &mut EtcdStore, name: &str) -> Leadership {
    for _ in 0..600 {
        match store.campaign(&key("orchestrator"), &key(name), TERM_MIN) {
            Ok(Campaigned::Leads(leadership)) => return leadership,
            _ => pause(Duration::from_millis(100)),
        }
    }
    panic!("{name} never leads")
}

/// The first leads, writes, and is left to it by the second. Its term is a second: on a loaded machine it may end in between, and then
/// it leads again.
fn leads_for_a_while(a: &mut EtcdStore, b: &mut EtcdStore) -> Leadership {
    for _ in 0..20 {
        let first = lead(a, "a");
        assert!(first.term() >= TERM_MIN);
        let renewed = a.renew(&first);
        let written = a.commit(&put("led", b"a").under(&first));
        match b.campaign(&key("orchestrator"), &key("b"), TERM_MIN) {
            Ok(Campaigned::HeldBy { candidate, token }) => {
                assert_eq!((candidate.as_str(), token), ("a", first.token()));
                assert_eq!(renewed, Ok(Renewed::Leads));
                committed(written);
                return first;
            }
            Ok(Campaigned::Leads(instead)) => b.resign(&instead).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    panic!("its term ends each time")
}

/// The leader stands still past its term, with a write under way and others to come: none takes effect.
#[test]
fn a_leader_that_was_paused_and_wakes_changes_nothing() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.address());
    let mut a = store("a", proxy.address());
    let mut b = store("b", server.address());
    let first = leads_for_a_while(&mut a, &mut b);
    let second = lead(&mut b, "b");
    assert!(second.token() > first.token());
    // It wakes: first a write that the network had kept, then its own.
    proxy.strike(Fault::MadeLater, 1);
    let kept = a.commit(&put("led", b"kept").under(&first));
    assert!(!matches!(kept, Ok(Outcome::Committed(_))), "{kept:?}");
    pause(Duration::from_millis(1_500));
    let late = a.commit(&put("led", b"late").under(&first));
    assert_eq!(late, Ok(Outcome::Deposed));
    assert_eq!(a.renew(&first), Ok(Renewed::Ended));
    assert_eq!(a.resign(&first), Ok(()));
    let snapshot = b.read(&Prefix::all()).unwrap();
    assert_eq!(*snapshot.get(&key("led")).unwrap().value, *b"a");
    if b.renew(&second) == Ok(Renewed::Leads) {
        committed(b.commit(&put("led", b"b").under(&second)));
    }
    b.resign(&second).unwrap();
    assert!(lead(&mut a, "a").token() > second.token());
}

/// A leader that others have evidence against leads no more at once, long before its term ends, and learns of it by its next write.
#[test]
fn a_deposed_leader_changes_nothing_before_its_term_ends() {
    let Some(server) = server() else { return };
    let mut a = store("a", server.address());
    let mut b = store("b", server.address());
    let election = key("orchestrator");
    let term = Duration::from_secs(60);
    let Ok(Campaigned::Leads(first)) = a.campaign(&election, &key("a"), term) else {
        panic!("it leads")
    };
    let held = b.campaign(&election, &key("b"), term);
    let Ok(Campaigned::HeldBy { token, .. }) = held else {
        panic!("{held:?}")
    };
    assert_eq!(b.depose(&election, token), Ok(()));
    assert_eq!(
        a.commit(&put("led", b"a").under(&first)),
        Ok(Outcome::Deposed)
    );
    assert_eq!(a.renew(&first), Ok(Renewed::Ended));
    let Ok(Campaigned::Leads(second)) = b.campaign(&election, &key("b"), term) else {
        panic!("it leads")
    };
    // Evidence against the first says nothing about the second.
    assert_eq!(a.depose(&election, token), Ok(()));
    committed(b.commit(&put("led", b"b").under(&second)));
}

#[test]
fn a_compaction_under_a_watcher_is_seen() {
    let Some(server) = server() else { return };
    let mut store = store("a", server.address());
    let first = committed(store.commit(&put("a", b"0")));
    let mut last = first;
    for _ in 0..3 {
        last = committed(store.commit(&put("a", b"1")));
    }
    let body = format!("{{\"revision\":\"{}\",\"physical\":true}}", last.0);
    crate::etcd_access::post(server.address(), "/v3/kv/compaction", &body);
    let wait = Duration::from_secs(20);
    assert_eq!(
        store.changes(&Prefix::all(), first, wait),
        Ok(Changes::Compacted)
    );
    let snapshot = store.read(&Prefix::all()).unwrap();
    let none = store.changes(&Prefix::all(), snapshot.revision, Duration::ZERO);
    let upto = snapshot.revision;
    assert!(
        matches!(none, Ok(Changes::UpTo { revision, changes }) if revision == upto && changes.is_empty())
    );
    committed(store.commit(&put("a", b"2")));
    let one = store.changes(&Prefix::all(), upto, wait).unwrap();
    assert!(matches!(one, Changes::UpTo { changes, .. } if changes.len() == 1));
}

#[test]
fn another_cluster_and_a_lost_history_are_refused() {
    let Some(mut server) = server_with(&["--initial-cluster-token=x"]) else {
        return;
    };
    let mut store = store("a", server.address());
    for _ in 0..5 {
        committed(store.commit(&put("a", b"a")));
    }
    let known = store.cluster_id().unwrap();
    server.forget("x");
    let back = persist_error(&mut store);
    assert!(matches!(back, TruthError::WentBack { .. }), "{back}");
    server.forget("y");
    let other = persist_error(&mut store);
    assert!(
        matches!(other, TruthError::OtherCluster { known: one, .. } if one == known),
        "{other}"
    );
    let commit = store.commit(&put("a", b"b")).unwrap_err();
    assert!(
        matches!(commit, TruthError::OtherCluster { .. }),
        "{commit}"
    );
}

/// The first error that is not for want of an answer.
fn persist_error(store: &mut EtcdStore) -> TruthError {
    for _ in 0..200 {
        match store.read(&Prefix::all()) {
            Err(TruthError::Away { .. }) => pause(Duration::from_millis(100)),
            Err(error) => return error,
            Ok(snapshot) => panic!("{snapshot:?}"),
        }
    }
    panic!("it never answers")
}

#[test]
fn a_store_of_the_same_name_takes_over() {
    let Some(server) = server() else { return };
    let mut old = store("a", server.address());
    committed(old.commit(&put("a", b"old")));
    let again = EtcdConfig {
        incarnation: 2,
        ..config("a", server.address())
    };
    let mut new = EtcdStore::new(&again, clock::monotonic()).unwrap();
    committed(new.commit(&put("a", b"new")));
    let replaced = old.commit(&put("a", b"late")).unwrap_err();
    assert_eq!(replaced, TruthError::Replaced("a".into()));
    assert_eq!(*new.read(&Prefix::all()).unwrap().entries[0].value, *b"new");
    assert!(old.read(&Prefix::all()).is_ok(), "it may still read");
}

#[test]
fn an_endpoint_that_is_down_is_passed_over() {
    let Some(server) = server() else { return };
    let nobody = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let down = nobody.local_addr().unwrap();
    drop(nobody);
    let mut config = config("a", server.address());
    config.endpoints.insert(0, format!("http://{down}"));
    let mut store = EtcdStore::new(&config, clock::monotonic()).unwrap();
    committed(store.commit(&put("a", b"a")));
    assert_eq!(store.read(&Prefix::all()).unwrap().entries.len(), 1);
}

#[test]
fn a_full_store_refuses_and_says_so() {
    let Some(server) = server() else { return };
    let mut store = store("a", server.address());
    let mut number = 0;
    for _ in 0..ENTRIES_MAX / WRITES_MAX {
        let all = (0..WRITES_MAX).fold(Transaction::new(), |all, i| {
            all.put(key(&format!("k{}", number + i)), *b"x")
        });
        number += WRITES_MAX;
        committed(store.commit(&all));
    }
    let full = store.commit(&put("more", b"x")).unwrap_err();
    assert!(matches!(full, TruthError::Full { .. }), "{full}");
    assert_eq!(full.effect(), Effect::NotDone);
    assert_eq!(
        store.read(&Prefix::all()).unwrap().entries.len(),
        ENTRIES_MAX
    );
    committed(store.commit(&Transaction::new().remove(key("k1"))));
    committed(store.commit(&put("more", b"x")));
}

#[test]
fn a_quota_that_is_used_up_changes_nothing_more() {
    let Some(server) = server_with(&["--quota-backend-bytes=2097152"]) else {
        return;
    };
    let mut store = store("a", server.address());
    let mut last = Version::ABSENT;
    for round in 0..40 {
        let value = vec![round; 400_000];
        let write = Transaction::new().put(key("large"), value);
        match store.commit(&write) {
            Ok(outcome) => last = Version(committed(Ok(outcome)).0),
            Err(error) => {
                assert!(matches!(error, TruthError::Full { .. }), "{error}");
                assert_eq!(error.effect(), Effect::NotDone);
                let there = store.read(&Prefix::all()).unwrap();
                assert_eq!(there.version(&key("large")), last);
                return;
            }
        }
    }
    panic!("the quota is never used up");
}

/// A foreign key among ours is named, not skipped.
#[test]
fn a_key_that_is_not_ours_is_named() {
    let Some(server) = server() else { return };
    let mut store = store("a", server.address());
    committed(store.commit(&put("a", b"a")));
    // "asterism/test/truth/a b".
    let body = r#"{"key":"YXN0ZXJpc20vdGVzdC90cnV0aC9hIGI=","value":"eA=="}"#;
    crate::etcd_access::post(server.address(), "/v3/kv/put", body);
    let error = store.read(&Prefix::all()).unwrap_err();
    assert!(error.to_string().contains("a b"), "{error}");
}
