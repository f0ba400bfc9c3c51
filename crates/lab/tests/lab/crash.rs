//! `kill -9` of a process that holds a laboratory leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use asterism_lab::{Cable, WireConfig, wait_until};

use crate::lab;

/// Makes [`a_laboratory_that_is_killed`] be the victim.
const VICTIM: &str = "ASTERISM_LAB_VICTIM";

/// How many threads and descriptors of all processes hold this network namespace.
pub(crate) fn holders(number: u64) -> usize {
    let held = format!("net:[{number}]");
    let mut holders = 0;
    for process in entries("/proc") {
        if !process
            .rsplit('/')
            .next()
            .unwrap()
            .starts_with(|sign: char| sign.is_ascii_digit())
        {
            continue;
        }
        for thread in entries(&format!("{process}/task")) {
            let space = std::fs::metadata(format!("{thread}/ns/net"));
            holders += usize::from(space.is_ok_and(|space| space.ino() == number));
        }
        for descriptor in entries(&format!("{process}/fd")) {
            let target = std::fs::read_link(&descriptor);
            holders += usize::from(target.is_ok_and(|target| target.as_os_str() == held.as_str()));
        }
    }
    holders
}

fn entries(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_laboratory_that_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        be_killed();
    }
    if lab().is_none() {
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::a_laboratory_that_is_killed",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut words = Vec::new();
    for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "built" {
            break;
        }
        words.extend(line.strip_prefix("held ").map(str::to_owned));
    }
    let [folder, network, processes @ ..] = words.as_slice() else {
        panic!("the victim said {words:?}");
    };
    let network: u64 = network.parse().unwrap();
    assert_eq!(processes.len(), 3);
    assert!(holders(network) >= 4);
    assert!(std::path::Path::new(folder).join("key").exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let gone = |process: &String| !std::path::Path::new(&format!("/proc/{process}")).exists();
    let what = format!("the end of {processes:?}, of the namespace {network} and of {folder}");
    wait_until(&what, Duration::from_secs(20), || {
        processes.iter().all(gone)
            && holders(network) == 0
            && !std::path::Path::new(folder).exists()
    })
    .unwrap();
}

/// Builds a laboratory with all that there is, says what it holds, and waits for the end.
fn be_killed() -> ! {
    let lab = lab().unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    lab.cable((&a, "eth0"), (&b, "eth0"), &Cable::default())
        .unwrap();
    let _wire = lab
        .wire(&[(&a, "eth1"), (&b, "eth1")], &WireConfig::default())
        .unwrap();
    lab.file("key", "secret").unwrap();
    println!("\nheld {}", lab.folder().display());
    println!("held {}", a.namespace_number().unwrap());
    let program = a
        .program("sh")
        // A child, one that left its session, and one that ignores what it can.
        .args(["-c", "sleep 62 & setsid sh -c 'sleep 63 & wait' & trap '' HUP TERM INT; while :; do sleep 1; done"])
        .start()
        .unwrap();
    let plain = b.program("sleep").arg("64").start().unwrap();
    println!("held {}", program.process_id());
    println!("held {}", plain.process_id());
    let mut sleeper = None;
    wait_until("the sleeper", Duration::from_secs(20), || {
        sleeper = entries("/proc").into_iter().find(|process| {
            std::fs::read(format!("{process}/cmdline")).is_ok_and(|words| words == b"sleep\x0063\0")
                && std::fs::metadata(format!("{process}/ns/net"))
                    .is_ok_and(|space| space.ino() == a.namespace_number().unwrap())
        });
        sleeper.is_some()
    })
    .unwrap();
    println!("held {}", sleeper.unwrap().rsplit('/').next().unwrap());
    println!("built");
    loop {
        std::thread::park();
    }
}
