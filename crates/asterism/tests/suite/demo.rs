//! The demo holds, the same seed gives the same report, and it fails when the hosts do not share their state.

use std::time::Duration;

use asterism::command_line;
use asterism_output::End;
use asterism_rehearsal::demo::{DemoReport, Plan, run_unseen};

fn plan() -> Plan {
    Plan {
        conversations: 400,
        span: Duration::from_secs(2),
        ..Plan::default()
    }
}

fn run(plan: &Plan) -> DemoReport {
    run_unseen(plan).unwrap()
}

#[test]
fn it_holds_and_shows_something() {
    let report = run(&plan());
    assert!(report.holds, "{}", report.text());
    let [drop, wait] = &report.runs[..] else {
        panic!("two settings")
    };
    assert!(
        drop.packets_lost_to_lag > 0 && drop.late_replies_waited == 0,
        "{drop:?}"
    );
    assert!(
        wait.packets_lost_to_lag == 0 && wait.late_replies_waited > 0,
        "{wait:?}"
    );
    for run in [drop, wait] {
        assert_eq!((run.flows, run.translations_agree), (400, 400));
        assert!(
            run.collisions > 0,
            "hosts that bind one endpoint at once are part of the show"
        );
        assert!((40_000..60_000).contains(&run.lag.p50_us), "{:?}", run.lag);
        assert!(run.hosts.iter().all(|host| host.flows_opened > 100));
        assert!(run.idps.probes_blocked > 1_000, "{:?}", run.idps);
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    assert_eq!(run(&plan()).text(), run(&plan()).text());
}

#[test]
fn without_replication_it_fails() {
    let report = run(&Plan {
        replication: false,
        ..plan()
    });
    assert!(!report.holds);
    let text = report.text();
    for failure in [
        "0 of 400 translations agree",
        "states differ",
        "given to two flows",
        "lost to lag",
    ] {
        assert!(text.contains(failure), "{failure}: {text}");
    }
}

#[test]
fn the_exit_code_says_whether_it_holds() {
    let end = |arguments: &[&str]| {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let all = ["asterism", "demo", "--conversations", "200"]
            .into_iter()
            .chain(arguments.iter().copied());
        let end = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
        assert!(
            !String::from_utf8(stderr).unwrap().contains('\x1b'),
            "plain lines where there is no terminal"
        );
        end
    };
    assert_eq!(end(&[]), End::Done);
    assert_eq!(end(&["--replication", "off"]), End::DoesNotHold);
}
