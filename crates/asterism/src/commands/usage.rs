//! `asterism usage`: what tenants used, from an orchestrator's HTTP API. A tenant's token shows that tenant alone.

use std::collections::BTreeMap;

use asterism_api::data::TenantUsage;
use asterism_elasticity::usage::{Usage, json_lines};
use asterism_output::{End, Output, Schema, Table};
use clap::Args;
use serde::Serialize;

use super::cluster::{ClusterError, Where, client};

/// The arguments of `asterism usage`.
#[derive(Args, Clone, Debug)]
pub struct UsageArguments {
    /// Where.
    #[command(flatten)]
    pub at: Where,
    /// Write a line of JSON for each tenant, for billing
    #[arg(long)]
    pub lines: bool,
}

/// What `asterism usage` reports.
#[derive(Clone, Debug, Serialize)]
pub struct UsageDocument {
    /// The cluster.
    pub cluster: String,
    /// When this was true, in milliseconds since 1970.
    pub at_ms: u64,
    /// Tenants by name.
    pub tenants: Vec<TenantUsage>,
}

/// The schema of [`UsageDocument`].
pub const USAGE: Schema = Schema {
    name: "asterism.usage",
    version: 1,
};

/// `asterism usage`.
pub fn command(arguments: &UsageArguments, output: &mut Output<'_>) -> End {
    let read = || -> Result<UsageDocument, ClusterError> {
        let client = client(&arguments.at)?;
        let (cluster, usage) = (client.cluster()?.name, client.usage()?);
        Ok(UsageDocument {
            cluster,
            at_ms: usage.at_ms,
            tenants: usage.tenants,
        })
    };
    let document = match read() {
        Ok(document) => document,
        Err(error) => return output.fail(End::File, &error),
    };
    if output.json() {
        output.document(USAGE, &document);
    } else if arguments.lines {
        output.text(&lines(&document));
    } else {
        output.text(&text(&document));
    }
    output.end(End::Done)
}

fn lines(document: &UsageDocument) -> String {
    let usage = |used: &TenantUsage| Usage {
        packets: used.packets.into(),
        bytes: used.bytes.into(),
        flows: used.flows.into(),
        instance_ms: used.instance_ms.into(),
    };
    let totals = document.tenants.iter();
    let totals: BTreeMap<String, Usage> = totals
        .map(|used| (used.tenant.clone(), usage(used)))
        .collect();
    json_lines(&totals, &document.cluster, document.at_ms)
}

fn text(document: &UsageDocument) -> String {
    if document.tenants.is_empty() {
        return "No tenants are configured, or none is this token's.\n".to_owned();
    }
    let mut table = Table::new(&["tenant", "packets", "bytes", "flows", "instance time"]);
    for used in &document.tenants {
        let seconds = used.instance_ms / 1_000;
        table.row(&[
            used.tenant.clone(),
            used.packets.to_string(),
            used.bytes.to_string(),
            used.flows.to_string(),
            format!(
                "{}:{:02}:{:02}",
                seconds / 3_600,
                seconds / 60 % 60,
                seconds % 60
            ),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_table_or_lines() {
        let document = UsageDocument {
            cluster: "edge".to_owned(),
            at_ms: 1_800_000_000_000,
            tenants: vec![TenantUsage {
                tenant: "blue".to_owned(),
                packets: 1_500,
                bytes: 150_000,
                flows: 150,
                instance_ms: 3_723_004,
            }],
        };
        assert!(text(&document).contains("1:02:03"), "{}", text(&document));
        assert_eq!(
            lines(&document),
            "{\"cluster\":\"edge\",\"tenant\":\"blue\",\"at_ms\":1800000000000,\"packets\":1500,\"bytes\":150000,\"flows\":150,\
             \"instance_seconds\":3723.004}\n"
        );
        let nobody = UsageDocument {
            tenants: Vec::new(),
            ..document
        };
        assert!(text(&nobody).starts_with("No tenants"));
    }
}
