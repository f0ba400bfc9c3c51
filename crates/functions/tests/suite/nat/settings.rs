//! Configurations: what is wrong is said, all of it at once.

use asterism_function::{Endpoint, MacAddress, Protocol};
use asterism_functions::nat::{
    Forward, Nat, NatConfig, NatExemption, PortControl, Prefix, Route, Side,
};

use crate::nat::network::*;

/// The fields that are complained about.
fn faults(change: impl FnOnce(&mut NatConfig)) -> Vec<&'static str> {
    let mut config = config();
    change(&mut config);
    match Nat::new(config) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(|fault| fault.field).collect(),
    }
}

#[test]
fn a_right_configuration_has_no_faults() {
    assert_eq!(faults(|_| {}), Vec::<&str>::new());
}

#[test]
fn every_fault_is_found() {
    assert_eq!(faults(|c| c.outside.port = c.inside.port), ["outside"]);
    assert_eq!(faults(|c| c.inside.mac = MacAddress::BROADCAST), ["inside"]);
    assert_eq!(faults(|c| c.inside.mtu = 67), ["inside"]);
    assert_eq!(faults(|c| c.outside.prefix_length = 33)[0], "outside");
    assert_eq!(
        faults(|c| c.outside_addresses.clear()),
        ["outside_addresses"]
    );
    assert_eq!(
        faults(|c| c.outside_addresses.push(OUTSIDE_ADDRESS)),
        ["outside_addresses"]
    );
    assert_eq!(
        faults(|c| c.outside_addresses.push([224, 0, 0, 1].into())),
        ["outside_addresses"]
    );
    assert_eq!(
        faults(|c| c.outside_addresses.push([192, 168, 0, 9].into())),
        ["outside_addresses"]
    );
    assert_eq!(faults(|c| c.outside_ports = (9, 8)), ["outside_ports"]);
    assert_eq!(faults(|c| c.outside_ports = (0, 8)), ["outside_ports"]);
    assert_eq!(faults(|c| c.routes.push(c.routes[0])), ["routes"]);
    let astray = Route {
        prefix: Prefix::new([1, 0, 0, 0].into(), 8),
        side: Side::Outside,
        next_hop: Some([9, 9, 9, 9].into()),
    };
    assert_eq!(faults(|c| c.routes.push(astray)), ["routes"]);
    assert_eq!(
        faults(|c| c.neighbours.push(c.neighbours[0])),
        ["neighbours"]
    );
    assert_eq!(faults(|c| c.idle.udp = 119), ["idle"]);
    assert_eq!(faults(|c| c.idle.tcp_established = 7_439), ["idle"]);
    assert_eq!(
        faults(|c| (c.idle.udp, c.short_idle) = (5, true)),
        Vec::<&str>::new()
    );
    assert_eq!(faults(|c| (c.idle.udp, c.short_idle) = (0, true)), ["idle"]);
    assert_eq!(faults(|c| c.sessions_max = 0), ["sessions_max"]);
    for (lifetime, mappings_max, wrong) in [
        (120, 1, 0),
        (86_400, 1, 0),
        (119, 1, 1),
        (86_401, 1, 1),
        (u32::MAX, 0, 2),
    ] {
        let control = PortControl {
            lifetime,
            mappings_max,
        };
        let found = faults(|c| c.port_control = Some(control));
        assert_eq!(found, vec!["port_control"; wrong]);
    }
    let forward = Forward {
        outside: tcp(OUTSIDE_ADDRESS.octets(), 80),
        inside: tcp([10, 0, 0, 80], 80),
    };
    assert_eq!(faults(|c| c.forwards = vec![forward]), Vec::<&str>::new());
    assert_eq!(
        faults(|c| c.forwards = vec![forward, forward]),
        ["forwards", "forwards"]
    );
    let elsewhere = Forward {
        outside: tcp([9, 9, 9, 9], 80),
        ..forward
    };
    assert_eq!(faults(|c| c.forwards = vec![elsewhere]), ["forwards"]);
    let ping = Endpoint::new(OUTSIDE_ADDRESS, 80, Protocol::ICMP);
    assert_eq!(
        faults(|c| c.forwards = vec![Forward {
            outside: ping,
            ..forward
        }]),
        ["forwards", "forwards"]
    );
}

#[test]
fn a_destination_that_is_not_translated_has_a_network_and_ports_of_tcp_or_udp() {
    let network = NatExemption::all(Prefix::new([198, 51, 100, 0].into(), 24));
    let with = |one: NatExemption| faults(|config| config.exempt = vec![one]);
    let of = |protocol, ports| NatExemption {
        protocol,
        ports,
        ..network
    };
    assert_eq!(with(network), Vec::<&str>::new());
    assert_eq!(with(of(None, Some((25, 25)))), Vec::<&str>::new());
    let too_long = NatExemption::all(Prefix::new([198, 51, 100, 0].into(), 33));
    for wrong in [
        too_long,
        of(Some(Protocol::ICMP), Some((1, 2))),
        of(Some(Protocol::UDP), Some((0, 2))),
        of(Some(Protocol::UDP), Some((3, 2))),
    ] {
        assert_eq!(with(wrong), ["exempt"]);
    }
    assert_eq!(
        faults(|config| config.exempt = vec![network; 65]),
        ["exempt"]
    );
}

#[test]
fn all_faults_come_at_once() {
    let found = faults(|config| {
        config.inside.mtu = 1;
        config.outside_addresses.clear();
        config.outside_ports = (9, 8);
        config.idle.udp = 1;
    });
    assert_eq!(
        found,
        ["inside", "outside_addresses", "outside_ports", "idle"]
    );
}

#[test]
fn hosts_that_would_disagree_have_other_schemas() {
    use asterism_function::NetworkFunction;
    let schema = |change: fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        Nat::new(config).unwrap().schema()
    };
    assert_eq!(schema(|_| {}), schema(|_| {}));
    assert_ne!(schema(|_| {}), schema(|c| c.outside_addresses.reverse()));
    assert_ne!(schema(|_| {}), schema(|c| c.outside_ports.0 += 1));
    assert_ne!(schema(|_| {}), schema(|c| c.idle.udp += 1));
    let answers = |c: &mut NatConfig| c.port_control = Some(PortControl::DEFAULT);
    assert_ne!(schema(|_| {}), schema(answers));
    let exempt = |c: &mut NatConfig| c.exempt = vec![NatExemption::all(Prefix::ALL)];
    assert_ne!(schema(|_| {}), schema(exempt));
}
