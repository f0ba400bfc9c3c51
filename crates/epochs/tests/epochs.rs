//! The file of epochs: what the next epoch is, who holds the ports of members that left, and mistakes in a file.

use std::collections::BTreeMap;

use asterism_epochs::{EPOCH_BYTES_MAX, EpochFile, HeldPorts, Refusal};
use asterism_state::{BlockAssignment, PARTITIONS};

fn places() -> Vec<String> {
    names(&["a", "b", "c"])
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn incarnations_are_counted_and_none_twice() {
    let places = places();
    let first = EpochFile::first(&places);
    let second = first.next(&places, &names(&["b"]), &[], false).unwrap();
    assert_eq!(second.epoch, 2);
    assert_eq!((second.members.get("b"), second.left["b"]), (None, 1));
    let third = second
        .next(&places, &[], &names(&["b", "c"]), false)
        .unwrap();
    assert_eq!(
        (third.members["a"], third.members["b"], third.members["c"]),
        (1, 2, 2)
    );
    assert!(third.left.is_empty());
    let again = third.next(&places, &[], &[], true).unwrap();
    assert_eq!((again.members["a"], again.members["b"]), (2, 3));
    assert!(again.is_founding() && !third.is_founding());
    assert!(third.next(&places, &names(&["d"]), &[], false).is_err());
    assert!(third.next(&places, &[], &names(&["d"]), false).is_err());
    let nobody = third.next(&places, &[], &names(&["a", "b", "c"]), false);
    assert!(nobody.unwrap_err().to_string().contains("--founding"));
}

#[test]
fn ports_of_who_left_fall_to_who_goes_on_and_come_back() {
    let places = places();
    let first = EpochFile::first(&places);
    let mut second = first.next(&places, &names(&["b"]), &[], false).unwrap();
    let partitions: Vec<String> = ["a", "c"]
        .repeat(PARTITIONS / 2)
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(second.ports["b"].partitions, partitions);
    assert!(second.fenced.is_empty() && second.assignment(&places).fenced.is_empty());
    assert!(second.fence(&names(&["a"])).is_err(), "it takes part");
    let later = second.next_fenced(&places, &names(&["b"])).unwrap();
    assert_eq!((later.epoch, later.fenced["b"]), (3, 1));
    assert_eq!(later.ports, second.ports, "nothing changed hands");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epoch.toml");
    later.write(&path).unwrap();
    assert_eq!(EpochFile::read(&path, &places).unwrap(), later);
    let roster = later.roster(&places);
    assert_eq!(
        BlockAssignment::from_bytes(&roster.assignment),
        Some(later.assignment(&places))
    );
    let back = later
        .next(&places, &names(&["c"]), &names(&["b"]), false)
        .unwrap();
    assert!(back.fenced.is_empty());
    let held = &back.ports["b"];
    assert!(
        held.partitions.iter().all(|holder| holder == "b"),
        "{held:?}"
    );
    assert_eq!((held.since, &held.past), (4, &names(&["a", "b", "c"])));
    assert!(
        back.ports["c"]
            .partitions
            .iter()
            .all(|holder| holder != "c")
    );
    let again = back.next(&places, &[], &[], true).unwrap();
    assert!(again.ports.is_empty() && again.fenced.is_empty());
}

#[test]
fn ports_that_nobody_could_hold_are_refused() {
    let places = places();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epoch.toml");
    let partitions = |holder: &str| vec![format!("\"{holder}\""); PARTITIONS].join(", ");
    let file =
        |section: &str| format!("epoch = 3\n[members]\na = 1\nb = 1\n[left]\nc = 1\n{section}");
    let ports = |since: u32, partitions: &str, past: &str| {
        file(&format!(
            "[ports.c]\nsince = {since}\npartitions = [{partitions}]\npast = [{past}]\n"
        ))
    };
    for (text, said) in [
        (file("[fenced]\na = 1\n"), "cannot be fenced"),
        (file("[fenced]\nc = 2\n"), "cannot be fenced"),
        (ports(2, &partitions("d"), ""), "d is not a member"),
        (ports(2, &partitions("c"), ""), "c takes no part"),
        (ports(2, "\"a\"", ""), "12 partitions"),
        (ports(4, &partitions("a"), ""), "up to this one"),
        (ports(2, &partitions("a"), "\"c\", \"b\""), "not in order"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let error = EpochFile::read(&path, &places).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    std::fs::write(&path, ports(2, &partitions("a"), "\"b\", \"c\"")).unwrap();
    EpochFile::read(&path, &places).unwrap();
}

#[test]
fn the_longest_epoch_that_there_can_be_fits() {
    let names: Vec<String> = (0..64).map(|place| format!("{place:0>63}")).collect();
    let held = HeldPorts {
        since: u32::MAX,
        partitions: names[..PARTITIONS].to_vec(),
        past: names.clone(),
    };
    let last: BTreeMap<String, u64> = names
        .iter()
        .map(|name| (name.clone(), i64::MAX as u64))
        .collect();
    let mut longest = EpochFile {
        epoch: u32::MAX,
        founding: true,
        members: last.clone(),
        left: last.clone(),
        fenced: last,
        ports: names
            .iter()
            .map(|name| (name.clone(), held.clone()))
            .collect(),
        hosts: BTreeMap::new(),
    };
    let text = longest.text();
    assert!(text.len() < EPOCH_BYTES_MAX * 3 / 4, "{}", text.len());
    longest.left.clear();
    longest.fenced.clear();
    let read = EpochFile::parse(&longest.text(), "longest", &names);
    assert_eq!(read, Ok(longest.clone()));
    assert!(longest.next(&names, &[], &[], true).is_err());
    let text = "#".repeat(EPOCH_BYTES_MAX + 1);
    let error = EpochFile::parse(&text, "longer", &names).unwrap_err();
    let (reason, why) = (error.refusal(), error.to_string());
    assert!(
        reason == Refusal::Malformed && why.contains("too long"),
        "{why}"
    );
    let bytes = std::io::repeat(b'#');
    let error = EpochFile::read_from(bytes, "endless", &names)
        .unwrap_err()
        .to_string();
    assert!(error.contains("too long"), "{error}");
    let bytes = &b"epoch = 1\n\n\xFF"[..];
    let error = EpochFile::read_from(bytes, "binary", &names)
        .unwrap_err()
        .to_string();
    assert!(error.contains("binary:3: "), "{error}");
}

#[test]
fn files_are_read_back_and_mistakes_are_pointed_at() {
    let places = places();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epoch.toml");
    assert!(
        EpochFile::read(&path, &places)
            .unwrap_err()
            .to_string()
            .contains("--first")
    );
    let file = EpochFile::first(&places)
        .next(&places, &names(&["b"]), &[], false)
        .unwrap();
    file.write(&path).unwrap();
    assert_eq!(EpochFile::read(&path, &places).unwrap(), file);
    for (text, said) in [
        ("epoch = 2\n[members]\nd = 1\n", "d is not a member"),
        ("epoch = 2\n[members]\n", "at least one"),
        ("epoch = 0\n[members]\na = 1\n", "from 1"),
        (
            "epoch = 2\n[members]\na = 1\n[left]\na = 1\n",
            "used before",
        ),
        ("epoch = 2\n\nmembers = 7\n", ":3:"),
        ("epoch = 2\nmember = {}\n", "unknown field"),
        ("epoch = 99999999999\n[members]\na = 1\n", ":1:"),
        ("\u{0}", ":1:"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = EpochFile::read(&path, &places).unwrap_err().to_string();
        assert!(error.contains(said), "{text:?}: {error}");
    }
}
