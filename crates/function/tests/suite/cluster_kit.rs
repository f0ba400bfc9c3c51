//! The kit of several instances: who knows what, when, and what a death takes along.

use asterism_function::objects::ObjectSettings;
use asterism_function::testkit::ClusterKit;
use asterism_function::{
    Ask, Builder, Counters, Late, NetworkFunction, PortNumber, Reason, Verdict, build, state,
};
use core::net::Ipv4Addr;

#[state]
struct Packets {
    by_source: Counters<Ipv4Addr>,
}

/// Lets two packets of a source through, counted over all instances.
struct TwoEach;

impl NetworkFunction for TwoEach {
    type State = Packets;

    fn state(&self, builder: &Builder) -> Packets {
        Packets {
            by_source: builder.counters("by_source", 16),
        }
    }

    fn packet(&self, ask: Ask<'_, Packets>) -> Result<Verdict, Late> {
        let Some(source) = ask.packet().ipv4_source() else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(seen) = ask.by_source.find(&source)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        if seen.total >= 2 {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        ask.act()?.by_source.add(&seen, 1);
        Ok(Verdict::Forward(PortNumber(1)))
    }
}

const PASSES: Verdict = Verdict::Forward(PortNumber(1));
const BLOCKED: Verdict = Verdict::Drop(Reason::Blocked);

fn kit() -> ClusterKit<TwoEach> {
    ClusterKit::new(TwoEach, 3, 5)
}

fn send(kit: &mut ClusterKit<TwoEach>, member: usize) -> Verdict {
    let header =
        build::Header4::between(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(198, 51, 100, 7));
    let mut frame = vec![0; 100];
    let length = build::udp4(&header, 9, 53, b"?", &mut frame).expect("it fits");
    kit.packet(member, PortNumber(0), &frame[..length]).verdict
}

#[test]
fn news_comes_when_the_test_says_so_and_once() {
    let mut kit = kit();
    assert_eq!([send(&mut kit, 0), send(&mut kit, 0)], [PASSES; 2]);
    assert_eq!(send(&mut kit, 1), PASSES, "it has heard of nothing");
    kit.tell(0, 2);
    assert_eq!(send(&mut kit, 2), BLOCKED);
    assert_eq!(send(&mut kit, 1), PASSES, "and still has not");
    for _ in 0..3 {
        kit.exchange();
        kit.agree();
    }
    for member in 0..3 {
        let mut total = 0;
        kit.state(member)
            .by_source
            .for_each(|_, packets| total += packets);
        assert_eq!(total, 4);
    }
}

#[test]
fn who_dies_takes_along_what_nobody_had_heard_and_nothing_else() {
    let mut kit = kit();
    send(&mut kit, 0);
    kit.tell(0, 1);
    send(&mut kit, 0);
    kit.kill(0);
    // The first packet is known to both, the second to nobody.
    assert_eq!(send(&mut kit, 2), PASSES);
    assert_eq!(send(&mut kit, 2), BLOCKED);
    assert_eq!(send(&mut kit, 1), PASSES);
    kit.agree();
    assert_eq!(send(&mut kit, 1), BLOCKED);
}

#[test]
#[should_panic(expected = "an instance that was killed")]
fn the_dead_take_no_packets() {
    let mut kit = kit();
    kit.kill(1);
    send(&mut kit, 1);
}

#[test]
#[should_panic(expected = "differ though all was reported")]
fn replicas_that_differ_are_found() {
    let local = |_: &str| ObjectSettings::LOCAL;
    let mut kit = ClusterKit::with_settings(TwoEach, 2, 5, local);
    send(&mut kit, 0);
    kit.agree();
}
