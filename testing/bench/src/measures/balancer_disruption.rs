//! `balancer.disruption`: flows that move when one of ten backends leaves, over those that it had itself.
//!
//! Each of the ten leaves in turn, in two ways. It dies, while all connections are still being opened: every client sends its
//! SYN again, the worst moment, since a connection that is established moves never. And it is taken out of the pool while
//! all are established. Beside them the table of Maglev alone, as a balancer without state of flows would use it: places
//! that change hands when the table is made again without one (NSDI 2016, section 5.3).

use core::net::Ipv4Addr;

use asterism_function::testkit::Testkit;
use asterism_function::{
    Endpoint, MacAddress, Packet, PortNumber, Protocol, TcpFlags, Verdict, build,
};
use asterism_functions::balancer::{
    Backend, Balancer, BalancerConfig, CONTROL, CheckResult, Maglev, PLACES, Service,
};
use asterism_functions::nat::{Interface, Prefix, Route, Side};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};
use crate::traffic::Random;

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "balancer.disruption",
    make: disruption,
}];

/// Backends of the pool.
const BACKENDS: u8 = 10;
const BACKENDS_PORT: PortNumber = PortNumber(0);
const CLIENTS_PORT: PortNumber = PortNumber(1);
const SERVICE: Endpoint = Endpoint::new(Ipv4Addr::new(203, 0, 113, 10), 80, Protocol::TCP);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 9, 9]);

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 10 + number)
}

/// A balancer with all backends but one.
fn balancer(without: Option<u8>) -> Result<Balancer, Failure> {
    let router = Ipv4Addr::new(198, 51, 100, 2);
    let own = Ipv4Addr::new(198, 51, 100, 1);
    let clients = Interface::new(CLIENTS_PORT, own, 24, MAC);
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let backends = Interface::new(BACKENDS_PORT, own, 24, MAC);
    let pool = (0..BACKENDS).filter(|number| Some(*number) != without);
    let pool = pool.map(|number| Backend {
        address: address(number),
        port: 8_080,
        weight: 1,
        drains: false,
    });
    let service = Service {
        checked: true,
        ..Service::new(SERVICE, pool.collect())
    };
    let stations = (0..BACKENDS).map(|number| (address(number), STATION));
    let config = BalancerConfig {
        routes: vec![Route {
            prefix: Prefix::ALL,
            side: Side::Outside,
            next_hop: Some(router),
        }],
        neighbours: stations.chain([(router, STATION)]).collect(),
        ..BalancerConfig::new(clients, backends, vec![service])
    };
    Balancer::new(config).map_err(|faults| Failure::Unsound(format!("{faults:?}")))
}

/// Which backend gets a segment of a client.
fn taken_by(kit: &mut Testkit<Balancer>, client: Endpoint, flags: TcpFlags) -> Result<u8, Failure> {
    let header = build::Header4 {
        ethernet_source: STATION,
        ethernet_destination: MAC,
        ..build::Header4::between(client.address, SERVICE.address)
    };
    let mut frame = [0; 128];
    let segment = build::Segment::with_flags(flags);
    let length = build::tcp4(
        &header,
        client.port,
        SERVICE.port,
        &segment,
        &[],
        &mut frame,
    );
    let mut outcome = kit.packet(CLIENTS_PORT, &frame[..length.unwrap_or(0)]);
    let destination = Packet::parse(&mut outcome.packet)
        .ok()
        .and_then(|packet| packet.ipv4_destination());
    match (outcome.verdict, destination) {
        (Verdict::Forward(BACKENDS_PORT), Some(backend)) => Ok(backend.octets()[3] - 10),
        (verdict, _) => Err(Failure::Unsound(format!("{client}: {verdict:?}"))),
    }
}

/// Flows that moved and flows that the one who left had, of so many.
fn leaves(clients: &[Endpoint], gone: u8, dies: bool) -> Result<(u32, u32), Failure> {
    let mut kit = Testkit::new(balancer(None)?);
    let mut had = Vec::with_capacity(clients.len());
    for client in clients {
        had.push(taken_by(&mut kit, *client, TcpFlags::SYN)?);
    }
    let flags = if dies {
        let finding = CheckResult {
            member: 0,
            backend: Endpoint::new(address(gone), 8_080, Protocol::TCP),
            is_down: true,
        };
        kit.packet(CONTROL, &finding.frame());
        TcpFlags::SYN
    } else {
        kit.replace_function(balancer(Some(gone))?);
        TcpFlags::ACK
    };
    let (mut moved, mut own) = (0, 0);
    for (client, had) in clients.iter().zip(had) {
        let has = taken_by(&mut kit, *client, flags)?;
        own += u32::from(had == gone);
        moved += u32::from(has != had);
        if dies && has == gone {
            return Err(Failure::Unsound("the dead got a flow".into()));
        }
    }
    Ok((moved, own))
}

/// Places of the table that change hands when one leaves, over its own.
fn of_the_table(gone: u8) -> f64 {
    let name = |number| Endpoint::new(address(number), 8_080, Protocol::TCP).to_bits();
    let all: Vec<_> = (0..BACKENDS).map(|number| (name(number), 1)).collect();
    let mut rest = all.clone();
    rest[usize::from(gone)].1 = 0;
    let (before, after) = (Maglev::new(&all), Maglev::new(&rest));
    let places = || 0..PLACES;
    let own = places().filter(|place| before.at(*place) == Some(gone.into()));
    let moved = places().filter(|place| before.at(*place) != after.at(*place));
    moved.count() as f64 / own.count() as f64
}

fn disruption(context: &Context) -> Result<Outcome, Failure> {
    let flows = if context.full { 50_000 } else { 5_000 };
    let mut random = Random::new(context.seed);
    let mut clients = std::collections::BTreeSet::new();
    while clients.len() < flows {
        let bits = random.bits();
        let address = Ipv4Addr::from_bits(0xc600_0000 | (bits as u32 & 0xff_ffff));
        let port = 1_024 + (bits >> 32) as u16 % 60_000;
        clients.insert(Endpoint::new(address, port, Protocol::TCP));
    }
    let clients: Vec<_> = clients.into_iter().collect();
    let (mut dying, mut removed, mut table) = (Vec::new(), Vec::new(), Vec::new());
    for gone in 0..BACKENDS {
        for (dies, ratios) in [(true, &mut dying), (false, &mut removed)] {
            let (moved, own) = leaves(&clients, gone, dies)?;
            ratios.push(f64::from(moved) / f64::from(own));
        }
        table.push(of_the_table(gone));
    }
    let most = |ratios: &[f64]| ratios.iter().copied().fold(0.0, f64::max);
    let (worst_death, worst_removal) = (most(&dying), most(&removed));
    context.say(&format!(
        "of {flows} flows: {worst_death:.3} of its own when one dies, {worst_removal:.3} when it is taken out; the table alone {:.3}",
        most(&table)
    ));
    Ok(
        Outcome::new(worst_death.max(worst_removal), u32::from(BACKENDS))
            .variant("dies-while-connecting", worst_death)
            .variant("taken-out-while-established", worst_removal)
            .variant("table-alone", most(&table))
            .samples("dies-while-connecting", dying),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_moves_its_own_flows_and_a_removal_none() {
        let clients: Vec<_> = (0..300)
            .map(|number| Endpoint::new([198, 18, 0, 1].into(), 2_000 + number, Protocol::TCP))
            .collect();
        let (moved, own) = leaves(&clients, 3, true).expect("it is sound");
        assert!(own > 5 && moved == own, "{moved} of {own}");
        let (moved, own) = leaves(&clients, 3, false).expect("it is sound");
        assert!(own > 5 && moved == 0, "{moved} of {own}");
        assert!(of_the_table(3) > 1.0, "a table made again moves others too");
    }
}
