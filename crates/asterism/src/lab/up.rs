//! `asterism lab up`: a laboratory that stays until it is ended.

use std::fmt::Write;
use std::time::Duration;

use asterism_config::value::show_duration;
use asterism_lab::http::DocumentServer;
use asterism_lab::nat::SERVER;
use asterism_lab::{Finished, Lab, LabError, Node, Program, Wire, wait_until};
use asterism_output::End;
use asterism_output::{Output, Schema};
use serde::Serialize;

use super::error::LaboratoryError;
use super::plan::Plan;
use super::{NatArguments, Running, UpArguments};

/// How long a command given with `--exec` may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How often the programs of a laboratory are looked after.
const LOOK_AFTER: Duration = Duration::from_millis(200);

/// What `asterism lab up` reports once the laboratory is there.
#[derive(Clone, Debug, Serialize)]
pub struct UpDocument {
    /// Its nodes.
    pub nodes: Vec<NodeRow>,
    /// The folder with its files.
    pub folder: String,
    /// The configuration of its hosts, if it has any.
    pub configuration: Option<String>,
}

/// A node of a laboratory.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// The file by which `nsenter --net=FILE` enters it.
    pub namespace: String,
}

/// The schema of [`UpDocument`].
pub const LAB_UP: Schema = Schema {
    name: "asterism.lab-up",
    version: 1,
};

pub(super) fn command(
    arguments: &UpArguments,
    output: &mut Output<'_>,
) -> Result<End, LaboratoryError> {
    match &arguments.file {
        None => nat(&arguments.nat, arguments.exec.as_deref(), output),
        Some(file) => {
            let plan = Plan::read(file)?;
            planned(&plan, arguments.exec.as_deref(), output)
        }
    }
}

fn nat(
    arguments: &NatArguments,
    exec: Option<&str>,
    output: &mut Output<'_>,
) -> Result<End, LaboratoryError> {
    let Running {
        lab,
        configuration,
        hosts,
    } = arguments.build()?;
    let _server = DocumentServer::start(&lab.server, (SERVER, 80).into(), 0)?;
    if let Some(command) = exec {
        return execute(&lab.client, &lab.lab, command);
    }
    let nodes: Vec<&Node> = [&lab.client, &lab.server]
        .into_iter()
        .chain(&lab.hosts)
        .collect();
    let client = lab.client.namespace_file();
    let mut text = format!(
        "{} NAT hosts are up; the state channel has {} one way and loses {} %. Requests go through {}, replies through {}.\n\n",
        arguments.hosts,
        show_duration(arguments.delay),
        arguments.loss * 100.0,
        if arguments.asymmetric {
            "the first"
        } else {
            "any"
        },
        if arguments.asymmetric && arguments.hosts > 1 {
            "the others"
        } else {
            "any"
        },
    );
    text.push_str(&entries(&nodes));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\nTry, in another terminal:\n  nsenter --net={client} ping {SERVER}\n  nsenter --net={client} curl -o /dev/null http://{SERVER}/100000000\n  nsenter --net={client} iperf3 -c {SERVER}   (after iperf3 -s in the server)\n",
    );
    for place in 0..lab.hosts.len() {
        let socket = lab.control_socket(place);
        let _ = writeln!(text, "  asterism status --socket {}", socket.display());
    }
    let _ = writeln!(
        text,
        "\nThe hosts' configuration is {}.\nCtrl-C ends it; nothing stays behind.",
        configuration.display()
    );
    let document = UpDocument {
        nodes: rows(&nodes),
        folder: lab.lab.folder().display().to_string(),
        configuration: Some(configuration.display().to_string()),
    };
    show(&document, &text, output);
    Err(look_after(&hosts).into())
}

fn planned(
    plan: &Plan,
    exec: Option<&str>,
    output: &mut Output<'_>,
) -> Result<End, LaboratoryError> {
    let built = plan.build()?;
    let nodes: Vec<&Node> = built.nodes.iter().collect();
    if let Some(command) = exec {
        return execute(nodes[0], &built.lab, command);
    }
    let text = format!(
        "{}\nCtrl-C ends it; nothing stays behind.\n",
        entries(&nodes)
    );
    let document = UpDocument {
        nodes: rows(&nodes),
        folder: built.lab.folder().display().to_string(),
        configuration: None,
    };
    show(&document, &text, output);
    let _wires: &[Wire] = &built.wires;
    Err(look_after(&built.programs).into())
}

/// Runs a command in a node, with this process's terminal.
fn execute(node: &Node, lab: &Lab, command: &str) -> Result<End, LaboratoryError> {
    let Finished { status, .. } = node
        .program("/bin/sh")
        .args(["-c", command])
        .env("LAB", lab.folder())
        .inherit()
        .time_max(COMMAND_TIME_MAX)
        .finish()?;
    Ok(match status.code() {
        Some(0) => End::Done,
        Some(code) => End::Program(u8::try_from(code).unwrap_or(u8::MAX)),
        // As shells say it.
        None => End::Program(
            128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0) as u8,
        ),
    })
}

/// Waits until a program of the laboratory ends, which none should.
fn look_after(programs: &[Program]) -> LabError {
    loop {
        let ended = programs.iter().find(|program| !program.runs());
        if let Some(program) = ended {
            return LabError::Failed {
                what: program.in_words().to_owned(),
                said: format!(
                    "it ended; it had said: {}{}",
                    program.stdout(),
                    program.stderr()
                ),
            };
        }
        // Nothing to be waited for: the time passes.
        let _ = wait_until("the next look", LOOK_AFTER, || false);
    }
}

fn show(document: &UpDocument, text: &str, output: &mut Output<'_>) {
    if output.json() {
        output.document(LAB_UP, document);
    } else {
        output.text(text);
    }
    output.flush();
}

fn rows(nodes: &[&Node]) -> Vec<NodeRow> {
    let row = |node: &&Node| NodeRow {
        name: node.name().to_owned(),
        namespace: node.namespace_file(),
    };
    nodes.iter().map(row).collect()
}

fn entries(nodes: &[&Node]) -> String {
    let width = nodes
        .iter()
        .map(|node| node.name().len())
        .max()
        .unwrap_or(0);
    nodes
        .iter()
        .map(|node| {
            format!(
                "  {:width$}  nsenter --net={}\n",
                node.name(),
                node.namespace_file()
            )
        })
        .collect()
}
