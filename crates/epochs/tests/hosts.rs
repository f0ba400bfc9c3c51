//! Epochs of clusters that list no members: which host has which place, and mistakes in that.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use asterism_epochs::{EpochFile, HostEntry, Step, is_host_name, place_names};
use asterism_placement::MemberId;
use asterism_state::PARTITIONS;

const PLACES: u16 = 6;

fn address(last: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, (last >> 8) as u8, last as u8], 7400))
}

fn entry(place: &str, last: u64) -> HostEntry {
    HostEntry {
        place: place.to_owned(),
        address: address(last),
    }
}

fn two_hosts() -> EpochFile {
    let hosts = [
        ("a".to_owned(), entry("place-1", 1)),
        ("b".to_owned(), entry("place-2", 2)),
    ];
    let members = ["place-1", "place-2"].map(String::from);
    EpochFile::first_of(&place_names(PLACES), members, hosts.into())
}

#[test]
fn the_first_members_hold_the_ports_of_all_places() {
    let places = place_names(PLACES);
    let first = two_hosts();
    assert_eq!(first.ports.len(), 4, "those that nobody has");
    for held in first.ports.values() {
        assert!(
            held.past.is_empty(),
            "nobody waits for a place that was never used"
        );
        let of = |place: &str| held.partitions.iter().filter(|one| *one == place).count();
        assert_eq!(
            (of("place-1"), of("place-2")),
            (PARTITIONS / 2, PARTITIONS / 2)
        );
    }
    let read = EpochFile::parse(&first.text(), "epoch.toml", &places).unwrap();
    assert_eq!(read, first);
    let addresses = vec![(MemberId(1), address(1)), (MemberId(2), address(2))];
    assert_eq!(first.addresses(&places), addresses);
    assert_eq!(first.host_names(&places)[..3], ["a", "b", "place-3"]);
    assert_eq!(
        (first.place_of("b"), first.host_at("place-2")),
        (Some("place-2"), Some("b"))
    );
}

#[test]
fn an_epoch_with_listed_members_is_as_it_was() {
    let places = ["a", "b"].map(String::from);
    let text = EpochFile::first(&places).text();
    assert!(
        text.ends_with("epoch = 1\n\n[members]\na = 1\nb = 1\n"),
        "{text}"
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    let places = place_names(PLACES);
    let file =
        |hosts: &str| format!("epoch = 2\n[members]\nplace-1 = 1\nplace-2 = 1\n[hosts]\n{hosts}");
    let host = |name: &str, place: &str, address: &str| {
        format!("{name} = {{ place = \"{place}\", address = \"{address}\" }}\n")
    };
    let a = host("a", "place-1", "10.0.0.1:7400");
    for (hosts, said) in [
        (a.clone(), "no host has it"),
        (
            a.clone() + &host("b", "place-1", "10.0.0.2:7400"),
            "a and b both have place-1",
        ),
        (
            a.clone() + &host("b", "place-2", "10.0.0.1:7400"),
            "a and b are both at",
        ),
        (
            a.clone() + &host("b", "place-7", "10.0.0.2:7400"),
            "place-7 is not a member",
        ),
        (
            a.clone() + &host("b", "place-2", "0.0.0.0:7400"),
            "cannot be at",
        ),
        (
            a.clone() + &host("b", "place-2", "10.0.0.2:0"),
            "cannot be at",
        ),
        (
            a.clone() + &host("B", "place-2", "10.0.0.2:7400"),
            "no name of a host",
        ),
        (
            a.clone() + &host("b", "place-2", "here"),
            "invalid socket address",
        ),
    ] {
        let error = EpochFile::parse(&file(&hosts), "epoch.toml", &places).unwrap_err();
        assert!(error.to_string().contains(said), "{hosts}: {error}");
    }
    let whole = a + &host("b", "place-2", "10.0.0.2:7400");
    EpochFile::parse(&file(&whole), "epoch.toml", &places).unwrap();
    for name in ["", "-a", "a-", "A", "a.b", "a b", "ä", &"a".repeat(64)] {
        assert!(!is_host_name(name), "{name:?}");
    }
    assert!(is_host_name("a-1") && is_host_name(&"a".repeat(63)));
}

#[test]
fn a_member_that_goes_on_stays_the_same_host_at_its_address() {
    let known = two_hosts();
    let next = |change: &dyn Fn(&mut EpochFile)| {
        let mut next = EpochFile {
            epoch: 2,
            ..known.clone()
        };
        change(&mut next);
        known.step_to(&next).map_err(|error| error.to_string())
    };
    assert_eq!(next(&|_| {}), Ok(Step::Later));
    let moved = next(&|next| _ = next.hosts.insert("b".to_owned(), entry("place-2", 9)));
    assert!(
        moved
            .unwrap_err()
            .contains("host b is place-2 at 10.0.0.2:7400")
    );
    let renamed = next(&|next| {
        let b = next.hosts.remove("b").unwrap();
        next.hosts.insert("c".to_owned(), b);
    });
    assert!(renamed.is_err());
    // In another incarnation it may be elsewhere, or another host.
    let other = next(&|next| {
        next.members.insert("place-2".to_owned(), 2);
        next.hosts.remove("b");
        next.hosts.insert("c".to_owned(), entry("place-2", 9));
    });
    assert_eq!(other, Ok(Step::Later));
    let mut twin = known.clone();
    twin.hosts.insert("z".to_owned(), entry("place-5", 5));
    let error = known.step_to(&twin).unwrap_err().to_string();
    assert!(error.contains("hosts or addresses"), "{error}");
}

/// A random number generator for histories: splitmix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % count
    }
}

/// Hosts come, die, return at other addresses and are forgotten for good, and now and then all end: every epoch is taken by a host
/// with any earlier one, all ports have a participant as holder, and no incarnation of a place is of two hosts.
#[test]
fn any_history_keeps_one_host_in_a_place() {
    let places = place_names(PLACES);
    let mut reused = 0;
    for seed in 0..200 {
        let mut draws = Draws(seed);
        let mut history = vec![two_hosts()];
        let mut lives: BTreeMap<(String, u64), (String, SocketAddr)> = BTreeMap::new();
        let mut names = 2;
        for _ in 0..30 {
            let last = history.last().unwrap();
            let members: Vec<String> = last.members.keys().cloned().collect();
            let absent: Vec<String> = last.left.keys().cloned().collect();
            let (mut without, mut again) = (Vec::new(), Vec::new());
            let mut hosts = last.hosts.clone();
            let mut is_founding = false;
            match draws.below(6) {
                0 if members.len() > 1 => {
                    without.push(members[draws.below(members.len() as u64) as usize].clone());
                }
                1 if !absent.is_empty() => {
                    let place = &absent[draws.below(absent.len() as u64) as usize];
                    if let Some(host) = last.host_at(place) {
                        hosts.insert(host.to_owned(), entry(place, 100 + draws.below(9_000)));
                        again.push(place.clone());
                    }
                }
                2 => {
                    let fenced = last.fenced.keys();
                    let forgotten = fenced.filter_map(|place| last.host_at(place)).next();
                    if let Some(host) = forgotten {
                        hosts.remove(host);
                    }
                }
                3 if draws.below(4) == 0 => is_founding = true,
                _ => {
                    let is_free = |place: &&String| {
                        last.host_at(place).is_none()
                            && !last.members.contains_key(*place)
                            && last.left.get(*place) == last.fenced.get(*place)
                    };
                    if let Some(place) = places.iter().find(is_free) {
                        names += 1;
                        reused += usize::from(last.left.contains_key(place));
                        hosts.insert(format!("n{names}"), entry(place, 10_000 + names));
                        again.push(place.clone());
                    }
                }
            }
            let mut next = match is_founding {
                true => last.next_founding(&members[..1]),
                false => last.next(&places, &without, &again, false),
            }
            .unwrap();
            if !without.is_empty() && draws.below(2) == 0 {
                next.fence(&without).unwrap();
            }
            next.hosts = hosts;
            next.deal_places(&places, Some(last));
            let next = EpochFile::parse(&next.text(), "epoch.toml", &places)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", next.text()));
            for earlier in &history {
                assert_eq!(earlier.step_to(&next), Ok(Step::Later), "seed {seed}");
            }
            for (name, entry) in &next.hosts {
                let Some(incarnation) = next.members.get(&entry.place) else {
                    continue;
                };
                let life = (entry.place.clone(), *incarnation);
                let host = (name.clone(), entry.address);
                assert_eq!(
                    *lives.entry(life).or_insert(host.clone()),
                    host,
                    "seed {seed}"
                );
            }
            let assignment = next.assignment(&places);
            for place in 1..=PLACES {
                for partition in 0..PARTITIONS {
                    let holder = assignment.holder(place, partition);
                    let name = &places[usize::from(holder) - 1];
                    assert!(next.members.contains_key(name), "seed {seed}: {name}");
                }
            }
            history.push(next);
        }
    }
    assert!(
        reused > 20,
        "{reused} places passed from one host to another"
    );
}
