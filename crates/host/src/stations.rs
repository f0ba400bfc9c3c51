//! The stations that balancers ask for by ARP before the first packet to them, so that no flow loses its first packet. The frames
//! that request it go to the function by its control port; hosts that run and scenarios send them.

use std::time::Duration;

use asterism_config::functions::BalancerSettings;
use asterism_config::{Function, Settings};
use asterism_function::chain::Chain;
use asterism_function::{CONTROL, PortNumber};
use asterism_functions::balancer::StationRequest;
use asterism_functions::nat::Side;

/// How often each station is requested at most. One that is known and answered within five minutes is not asked.
pub const ROUND: Duration = Duration::from_secs(10);

/// A request, and the port by which the function or a stage of it takes it.
pub(crate) type Addressed = (PortNumber, StationRequest);

/// The stations of a function's balancers, each once: of backends on their link, of the router before the others, of the clients' router.
pub fn requests(function: &Function) -> Vec<Addressed> {
    let mut requests = Vec::new();
    let mut add = |port, settings: &Settings| {
        if let Settings::Balancer(balancer) = settings {
            requests.extend(of_balancer(balancer).into_iter().map(|one| (port, one)));
        }
    };
    match &function.settings {
        Settings::Chain(chain) => {
            for (number, stage) in chain.stages.iter().enumerate() {
                if let Some(port) = Chain::control(number) {
                    add(port, &stage.settings);
                }
            }
        }
        settings => add(CONTROL, settings),
    }
    requests
}

fn of_balancer(settings: &BalancerSettings) -> Vec<StationRequest> {
    let (clients, backends) = (&settings.clients_link, &settings.backends_link);
    let services = settings.services.iter();
    let all = services.flat_map(|service| service.backends.iter().map(|one| one.address));
    let (mut inside, beyond): (Vec<_>, Vec<_>) =
        all.partition(|address| backends.address.contains(*address));
    if !beyond.is_empty() && backends.next_hop_mac.is_none() {
        inside.push(backends.next_hop);
    }
    inside.sort_unstable();
    inside.dedup();
    let outside = clients.next_hop_mac.is_none().then_some(clients.next_hop);
    let inside = inside.into_iter().map(|address| (Side::Inside, address));
    let outside = outside.map(|address| (Side::Outside, address));
    inside
        .chain(outside)
        .map(|(side, address)| StationRequest { side, address })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_config::functions::Functions;
    use asterism_config::{Config, Purpose};

    fn requested(text: &str) -> Vec<(PortNumber, Side, String)> {
        let functions = Functions::default();
        let (config, report) = Config::read_as("test", text, Purpose::Scenario, None, functions);
        assert_eq!(report.errors(), 0);
        requests(&config.unwrap().function)
            .into_iter()
            .map(|(port, one)| (port, one.side, one.address.to_string()))
            .collect()
    }

    const SERVICES: &str = "\
        services.one = { address = \"203.0.113.10:80\", backends = [{ address = \"10.0.0.11\" }, { address = \"10.0.0.10\" }] }\n\
        services.two = { address = \"203.0.113.10:81\", backends = [{ address = \"10.0.0.10\" }] }\n";

    #[test]
    fn each_station_is_requested_once_and_configured_ones_are_not() {
        let links = |backends: &str, clients: &str| {
            format!(
                "backends_link = {{ address = \"10.0.0.1/24\", next_hop = \"10.0.0.254\"{backends} }}\n\
                 clients_link = {{ address = \"203.0.113.2/24\", next_hop = \"203.0.113.1\"{clients} }}\n"
            )
        };
        let cluster = "[cluster]\nmembers = [\"a\"]\n";
        let own = "[port]\ninside.interface = \"eth1\"\noutside.interface = \"eth2\"\n";
        let real = links(", next_hop_mac = \"02:00:00:00:00:09\"", "");
        let text = format!("{cluster}{own}[function.balancer]\n{real}{SERVICES}");
        let inside = |address: &str| (CONTROL, Side::Inside, address.to_owned());
        let router = (CONTROL, Side::Outside, "203.0.113.1".to_owned());
        let near = [inside("10.0.0.10"), inside("10.0.0.11")];
        assert_eq!(
            requested(&text),
            [&near[..], std::slice::from_ref(&router)].concat()
        );

        // Two backends beyond the link have one router, and the clients' router needs nothing.
        let beyond = "services.far = { address = \"203.0.113.10:82\", backends = [{ address = \"10.9.0.1\" }, { address = \"10.9.0.2\" }] }\n";
        let real = links("", ", next_hop_mac = \"02:00:00:00:00:09\"");
        let text = format!("{cluster}{own}[function.balancer]\n{real}{SERVICES}{beyond}");
        assert_eq!(
            requested(&text),
            [&near[..], &[inside("10.0.0.254")]].concat()
        );
    }

    #[test]
    fn a_function_without_a_balancer_requests_nothing() {
        let text = "[cluster]\nmembers = [\"a\"]\n[function.pass-through]\n";
        assert_eq!(requested(text), []);
    }
}
