//! Our firewall against Linux's connection tracking, live.

use asterism_oracle::firewall::{Judges, Policy, captures, steps};

#[test]
fn captures_fare_alike() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let mut judges = Judges::start().unwrap();
    for path in captures(&folder).unwrap() {
        let Some(steps) = steps(&path) else {
            println!("skip {}", path.display());
            continue;
        };
        for policy in &Policy::ALL {
            let tally = judges.compare(policy, &steps).unwrap();
            println!(
                "{} {}: judged {} passed {} dropped {} explained {:?} differences {}",
                path.strip_prefix(&folder).unwrap().display(),
                policy.name,
                tally.judged,
                tally.passed,
                tally.dropped,
                tally.explained,
                tally.differences.len()
            );
            for d in tally.differences.iter().take(6) {
                println!("    {} {}", d.place, d.sentence);
            }
        }
    }
}
