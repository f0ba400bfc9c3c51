//! `asterism flows end`: an operator ends flows that a firewall knows, on all hosts. `find.rs` finds flows.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use asterism_host::control::Ask;
use asterism_host::run::flows::{ENDS_MAX, FlowFilter, FlowsEndDocument, Network};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::{Args, Subcommand};

use super::client::Which;
use super::find::{self, FindArguments};
use super::with_answer;

/// Time limit for a host's answer: the host hands its packet loop eight flows at a time.
const WITHIN: Duration = Duration::from_secs(120);

/// The arguments of `asterism flows`.
#[derive(Subcommand, Clone, Debug)]
pub enum FlowsCommand {
    /// End flows before they idle out, on all hosts; the rules now in force decide on their next packets
    ///
    /// A flow must match every given option; give at least one, or --all. Later packets of an ended connection that do not begin a
    /// connection are dropped as `no-connection`; a flow that the rules still allow begins again with the next packet that can
    /// begin it.
    End(EndArguments),
    /// Find flows in the state of all hosts, by the API of an orchestrator: their translation, and which hosts know them
    ///
    /// A flow is an entry of a state object whose key has two ends: a session of a NAT, a flow of a firewall or of a balancer.
    Find(FindArguments),
}

/// The flows to end.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct EndArguments {
    /// An end of the flow has this address, or is in this network: 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32. Give twice for both ends
    #[arg(long = "address", value_name = "ADDRESS", value_parser = network)]
    pub addresses: Vec<Network>,
    /// An end of the flow has this port. Give twice for both ends
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,
    /// The flow's protocol: tcp, udp, icmp, icmpv6, or a number
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    pub protocol: Option<u8>,
    /// The flow's VLAN: 10, 10.20 for two tags, or none
    #[arg(long, value_name = "VLAN", value_parser = vlan)]
    pub vlan: Option<(u16, u16)>,
    /// Flows that the rules in force at the queried host would not allow to begin
    #[arg(long)]
    pub denied: bool,
    /// Every flow
    #[arg(long, conflicts_with_all = ["addresses", "ports", "protocol", "vlan", "denied"])]
    pub all: bool,
    /// Only at this firewall, a stage of a chain; without this option at each firewall
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// At which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism flows end`.
pub const FLOWS_END: Schema = Schema {
    name: "asterism.flows-end",
    version: 1,
};

/// What to write instead of an address or network that is none.
const NETWORKS: &str =
    "write an address such as 192.0.2.7, or a network such as 10.0.0.0/8 or 2001:db8::/32";

/// What is wrong with the flows that are to end; no host is asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum FilterError {
    #[error("not an address: {NETWORKS}")]
    NotAnAddress,
    #[error("no flow has a mapped address: write {0} for the flows of IPv4")]
    Mapped(Ipv4Addr),
    #[error("a network's length is 0 to {most}: {NETWORKS}")]
    Length { most: u8 },
    #[error("write tcp, udp, icmp, icmpv6, or a number of 0 to 255")]
    Protocol,
    #[error("write an identifier of 1 to 4094, two such as 10.20, or none")]
    Vlan,
    #[error("no flows are named: give --address, --port, --protocol, --vlan or --denied; or --all")]
    NoneNamed,
    #[error("a flow has two ends: give at most two")]
    ManyEnds,
}

fn network(text: &str) -> Result<Network, FilterError> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| FilterError::NotAnAddress)?;
    if let IpAddr::V6(mapped) = address
        && let Some(address) = mapped.to_ipv4_mapped()
    {
        return Err(FilterError::Mapped(address));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        None => most,
        Some(length) => length
            .parse::<u8>()
            .ok()
            .filter(|length| *length <= most)
            .ok_or(FilterError::Length { most })?,
    };
    Ok(Network { address, length })
}

fn protocol(text: &str) -> Result<u8, FilterError> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmpv6" => Ok(58),
        _ => text.parse().map_err(|_| FilterError::Protocol),
    }
}

fn vlan(text: &str) -> Result<(u16, u16), FilterError> {
    let id = |text: &str| match text.parse::<u16>() {
        Ok(id @ 1..=4_094) => Ok(id),
        _ => Err(FilterError::Vlan),
    };
    match text.split_once('.') {
        _ if text == "none" => Ok((0, 0)),
        Some((outer, inner)) => Ok((id(outer)?, id(inner)?)),
        None => Ok((id(text)?, 0)),
    }
}

/// `asterism flows`.
pub fn flows(command: &FlowsCommand, output: &mut Output<'_>) -> End {
    let arguments = match command {
        FlowsCommand::End(arguments) => arguments,
        FlowsCommand::Find(arguments) => return find::find(arguments, output),
    };
    let filter = FlowFilter {
        addresses: arguments.addresses.clone(),
        ports: arguments.ports.clone(),
        protocol: arguments.protocol,
        vlan: arguments.vlan,
        denied: arguments.denied,
    };
    if let Err(why) = check(&filter, arguments.all) {
        return output.fail(End::CommandLine, &why);
    }
    let request = Ask::EndFlows {
        filter,
        function: arguments.function.clone(),
    };
    let mut done = false;
    let end = with_answer(
        &arguments.which,
        &request,
        WITHIN,
        output,
        |document: FlowsEndDocument, output| {
            done = is_done(&document);
            match output.json() {
                true => output.document(FLOWS_END, &document),
                false => output.text(&text_of(&document)),
            }
        },
    );
    match end {
        End::Done if !done => End::DoesNotHold,
        end => end,
    }
}

fn check(filter: &FlowFilter, all: bool) -> Result<(), FilterError> {
    if *filter == FlowFilter::default() && !all {
        return Err(FilterError::NoneNamed);
    }
    if filter.addresses.len() > ENDS_MAX || filter.ports.len() > ENDS_MAX {
        return Err(FilterError::ManyEnds);
    }
    Ok(())
}

/// At least one flow ended, and no matching flow is still known.
fn is_done(document: &FlowsEndDocument) -> bool {
    let FlowsEndDocument { ended, refused } = document;
    refused.is_empty()
        && ended.iter().all(|one| one.left == 0)
        && ended.iter().any(|one| one.ended > 0)
}

fn text_of(document: &FlowsEndDocument) -> String {
    let mut text = String::new();
    for one in &document.ended {
        for flow in &one.flows {
            text.push_str(&format!("{flow}\n"));
        }
        let meant = one.ended + one.left;
        if meant > one.flows.len() as u64 {
            text.push_str(&format!("and {} more\n", meant - one.flows.len() as u64));
        }
        text.push_str(&format!("{}: {} flows ended", one.function, one.ended));
        if one.left > 0 {
            text.push_str(&format!(", {} are still or again known", one.left));
        }
        text.push('\n');
    }
    for refused in &document.refused {
        text.push_str(&format!(
            "{}: which flows ended is not known: {}\n",
            refused.function, refused.why
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host::run::flows::EndedFlowsDocument;
    use asterism_host::run::manual::RefusedDocument;

    #[test]
    fn what_names_flows_is_read_or_it_is_said_what_to_write() {
        let read = network("10.0.0.0/8").unwrap();
        assert_eq!((read.address, read.length), ([10, 0, 0, 0].into(), 8));
        assert_eq!(network("192.0.2.7").unwrap().length, 32);
        assert_eq!(network("2001:db8::7").unwrap().length, 128);
        for (text, said) in [
            ("10.0.0.0/33", "0 to 32"),
            ("::/129", "0 to 128"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0", "not an address"),
            ("", "not an address"),
            ("::ffff:10.0.0.7", "write 10.0.0.7"),
        ] {
            let why = network(text).unwrap_err().to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
        assert_eq!(
            [protocol("tcp"), protocol("icmpv6"), protocol("47")],
            [Ok(6), Ok(58), Ok(47)]
        );
        assert!(protocol("256").is_err() && protocol("sctp").is_err());
        assert_eq!(
            [vlan("10"), vlan("10.20"), vlan("none")],
            [Ok((10, 0)), Ok((10, 20)), Ok((0, 0))]
        );
        for wrong in ["0", "4095", "10.", "10.20.30", "ten"] {
            assert_eq!(vlan(wrong), Err(FilterError::Vlan), "{wrong}");
        }
    }

    #[test]
    fn nothing_ends_that_nobody_named() {
        let none = FlowFilter::default();
        assert_eq!(check(&none, false), Err(FilterError::NoneNamed));
        assert_eq!(check(&none, true), Ok(()));
        let ports = vec![1, 2, 3];
        assert!(check(&FlowFilter { ports, ..none }, false).is_err());
    }

    #[test]
    fn it_is_said_which_flows_ended_and_which_did_not() {
        let mut document = FlowsEndDocument {
            ended: vec![EndedFlowsDocument {
                function: "guard".to_owned(),
                ended: 2,
                left: 1,
                flows: vec!["udp 10.0.0.7:4000 and 192.0.2.1:53".to_owned()],
            }],
            refused: vec![RefusedDocument {
                function: "other".to_owned(),
                why: "it stops".to_owned(),
            }],
        };
        assert_eq!(
            text_of(&document),
            "udp 10.0.0.7:4000 and 192.0.2.1:53\nand 2 more\n\
             guard: 2 flows ended, 1 are still or again known\n\
             other: which flows ended is not known: it stops\n"
        );
        assert!(!is_done(&document));
        document.refused.clear();
        document.ended[0].left = 0;
        assert!(is_done(&document));
        document.ended[0].ended = 0;
        assert!(!is_done(&document), "there was none");
    }
}
