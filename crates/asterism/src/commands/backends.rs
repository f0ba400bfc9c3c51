//! `asterism backends`: a balancer's services and backends, with the health and the number of flows of each backend.

use asterism_host::control::Ask;
use asterism_host::run::backends::{BackendDocument, BackendsDocument};
use asterism_output::End;
use asterism_output::Table;
use asterism_output::{Output, Schema};
use clap::Args;

use super::client::Which;
use super::{WITHIN, with_answer};

/// The arguments of `asterism backends`.
#[derive(Args, Clone, Debug)]
pub struct BackendsArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism backends`.
pub const BACKENDS: Schema = Schema {
    name: "asterism.backends",
    version: 1,
};

/// `asterism backends`.
pub fn backends(arguments: &BackendsArguments, output: &mut Output<'_>) -> End {
    with_answer(
        &arguments.which,
        &Ask::Backends,
        WITHIN,
        output,
        |document: BackendsDocument, output| {
            if output.json() {
                output.document(BACKENDS, &document);
            } else {
                output.text(&backends_text(&document));
            }
        },
    )
}

fn backends_text(document: &BackendsDocument) -> String {
    let services = document.services.iter().map(|service| {
        let mut table = Table::new(&["backend", "weight", "flows", "is"]);
        for backend in &service.backends {
            table.row(&[
                backend.backend.clone(),
                backend.weight.to_string(),
                backend.flows.to_string(),
                is_text(backend),
            ]);
        }
        format!(
            "{} (to port {}), {}\n{}",
            service.service,
            service.last_port,
            service.mode,
            table.text()
        )
    });
    services.collect::<Vec<_>>().join("\n")
}

/// A backend's state, and the votes behind it.
fn is_text(backend: &BackendDocument) -> String {
    let mut text = match backend.state.as_str() {
        "dead" => "DEAD".to_owned(),
        state => state.to_owned(),
    };
    if backend.drains {
        text.push_str(", drains");
    }
    if let (Some(votes), Some(dead)) = (backend.votes, backend.votes_dead) {
        text.push_str(&match votes {
            0 => ", no host reports".to_owned(),
            _ => format!(", {dead} of {votes} hosts without an answer"),
        });
    }
    if let Some(failures @ 1..) = backend.failures {
        text.push_str(&format!(", {failures} flows failed"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host::run::backends::ServiceDocument;

    #[test]
    fn a_service_is_a_table_of_its_backends() {
        let backend = |state: &str, drains, votes: Option<(u32, u32)>, failures| BackendDocument {
            backend: "10.0.0.1:80/tcp".to_owned(),
            state: state.to_owned(),
            weight: 5,
            drains,
            flows: 17,
            votes: votes.map(|votes| votes.0),
            votes_dead: votes.map(|votes| votes.1),
            failures,
        };
        let services = vec![ServiceDocument {
            service: "192.0.2.1:80/tcp".to_owned(),
            last_port: 81,
            mode: "nat".to_owned(),
            backends: vec![
                backend("alive", false, None, None),
                backend("dead", true, Some((3, 2)), Some(4)),
                backend("alive", false, Some((0, 0)), Some(0)),
            ],
        }];
        let text = backends_text(&BackendsDocument { services });
        for (place, line) in [
            (0, "192.0.2.1:80/tcp (to port 81), nat"),
            (
                4,
                "DEAD, drains, 2 of 3 hosts without an answer, 4 flows failed",
            ),
            (5, "alive, no host reports"),
        ] {
            assert!(text.lines().nth(place).unwrap().ends_with(line), "{text}");
        }
        assert!(text.lines().nth(3).unwrap().ends_with(" alive"), "{text}");
    }
}
