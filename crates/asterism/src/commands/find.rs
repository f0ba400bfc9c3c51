//! `asterism flows find`: which hosts know a flow, by the API of an orchestrator or at a control socket.

use std::net::{IpAddr, SocketAddr};

use asterism_api::data::{FlowFound, FlowQuery, Flows, Protocol};
use asterism_host::control::Ask;
use asterism_host::run::entries::{EntriesDocument, EntriesWanted};
use asterism_host_view::flow_text::FlowWanted;
use asterism_output::{End, Output, Schema, Table};
use clap::{Args, ValueEnum};

use super::WITHIN;
use super::client::{Which, ask};
use super::cluster::{ClusterError, client};
use super::remote::{Remote, SourceError};

/// The flows to find.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct FindArguments {
    /// An end of the flow, before or after translation: 10.0.0.1, 10.0.0.1:4000 or 2001:db8::1; before a port, IPv6 stands in brackets
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = end)]
    pub end: Option<FlowEnd>,
    /// The port of an end, whatever its address
    #[arg(long, value_name = "PORT", conflicts_with = "end", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The flow's protocol
    #[arg(long, value_enum)]
    pub protocol: Option<ProtocolName>,
    /// At a control socket of this machine.
    #[command(flatten)]
    pub which: Which,
    /// By the API, which is asked where no socket is named: with --host the flows that this host wrote last, without it all.
    #[command(flatten)]
    pub remote: Remote,
}

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    address: IpAddr,
    port: Option<u16>,
}

/// A protocol's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ProtocolName {
    Tcp,
    Udp,
    Icmp,
}

/// What is no end of a flow.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write an address such as 10.0.0.1 or 2001:db8::1, or with a port 10.0.0.1:4000 or [2001:db8::1]:53"
)]
struct NotAnEnd;

fn end(text: &str) -> Result<FlowEnd, NotAnEnd> {
    if let Ok(address) = text.parse() {
        return Ok(FlowEnd {
            address,
            port: None,
        });
    }
    let socket: SocketAddr = text.parse().map_err(|_| NotAnEnd)?;
    Ok(FlowEnd {
        address: socket.ip(),
        port: Some(socket.port()),
    })
}

/// The schema of `asterism flows find`.
pub const FLOWS: Schema = Schema {
    name: "asterism.flows",
    version: 1,
};

/// `asterism flows find`.
pub(super) fn find(arguments: &FindArguments, output: &mut Output<'_>) -> End {
    let is_local = arguments.which.socket.is_some() || arguments.which.config.is_some();
    let found = match is_local {
        true => at_socket(arguments, output),
        false => by_api(arguments),
    };
    let flows = match found {
        Ok(flows) => flows,
        Err(error) => return output.fail(End::File, &error),
    };
    if output.json() {
        output.document(FLOWS, &flows);
    } else if flows.flows.is_empty() {
        output.say("no host that answered knows such a flow\n");
    } else {
        output.text(&text_of(&flows.flows));
        if flows.is_cut {
            output.say("more flows match than are shown\n");
        }
    }
    output.end(match flows.flows.is_empty() {
        true => End::DoesNotHold,
        false => End::Done,
    })
}

fn port(arguments: &FindArguments) -> Option<u16> {
    let of_end = arguments.end.and_then(|end| end.port);
    of_end.or(arguments.port)
}

fn by_api(arguments: &FindArguments) -> Result<Flows, SourceError> {
    let query = FlowQuery {
        address: arguments.end.map(|end| end.address.to_string()),
        port: port(arguments),
        protocol: arguments.protocol.map(|name| match name {
            ProtocolName::Tcp => Protocol::Tcp,
            ProtocolName::Udp => Protocol::Udp,
            ProtocolName::Icmp => Protocol::Icmp,
        }),
        host: arguments.remote.host.clone(),
    };
    let client = client(&arguments.remote.address())?;
    Ok(client.flows(&query).map_err(ClusterError::from)?)
}

fn at_socket(arguments: &FindArguments, output: &mut Output<'_>) -> Result<Flows, SourceError> {
    let socket = arguments.which.socket(output.functions())?;
    let wanted = FlowWanted {
        address: arguments.end.map(|end| end.address),
        port: port(arguments),
        protocol: arguments
            .protocol
            .and_then(|name| Some(name.to_possible_value()?.get_name().to_owned())),
    };
    let request = Ask::Entries(EntriesWanted {
        flow: Some(wanted),
        ..EntriesWanted::default()
    });
    let found: EntriesDocument = ask(&socket, &request, WITHIN)?;
    for why in &found.unsearched {
        output.say(&format!("{why}\n"));
    }
    let flow = |entry: asterism_host::run::entries::HeldEntry| {
        let flow = entry.flow?;
        Some(FlowFound {
            flow: flow.flow,
            translated: flow.translated,
            host: entry.written_by.unwrap_or_default(),
            ..FlowFound::default()
        })
    };
    Ok(Flows {
        flows: found.entries.into_iter().filter_map(flow).collect(),
        is_cut: found.more,
    })
}

fn text_of(flows: &[FlowFound]) -> String {
    let mut table = Table::new(&["flow", "translated", "written by", "held by"]);
    for flow in flows {
        table.row(&[
            flow.flow.clone(),
            flow.translated.clone().unwrap_or_default(),
            flow.host.clone(),
            flow.held_by.join(" "),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_address_with_or_without_a_port() {
        let read = |text: &str| end(text).map(|end| (end.address.to_string(), end.port));
        for (text, address, port) in [
            ("10.0.0.1", "10.0.0.1", None),
            ("10.0.0.1:4000", "10.0.0.1", Some(4_000)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]:53", "2001:db8::1", Some(53)),
        ] {
            assert_eq!(read(text), Ok((address.to_owned(), port)));
        }
        for text in ["", "10.0.0", "10.0.0.1:", "10.0.0.1:70000", "host:53"] {
            assert_eq!(read(text), Err(NotAnEnd), "{text}");
        }
    }
}
