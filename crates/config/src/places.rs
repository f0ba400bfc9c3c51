//! Clusters that list no members, but say how many places there are for hosts that register: what contradicts that.

use super::fields::{CHANNEL, CLUSTER};
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;

/// Whether hosts register, and no members are listed.
pub(super) fn is_open(values: &Values) -> bool {
    values.place(CLUSTER.places).is_some()
}

/// What contradicts a cluster to which hosts come that register.
pub(super) fn check_places(values: &Values, report: &mut Report) {
    if !is_open(values) {
        return;
    }
    let places = || values.span_of(CLUSTER.places);
    if values.place(CLUSTER.members).is_some() {
        report.add(
            Diagnostic::error(
                "hosts are listed, or they register",
                values.span_of(CLUSTER.members),
            )
            .also(places(), "so many places for hosts that register")
            .help("leave out `places`, or `members`"),
        );
    }
    if values
        .get(CLUSTER.orchestrators)
        .is_some_and(|listed| listed.is_empty())
    {
        report.add(
            Diagnostic::error("hosts register with orchestrators, and there are none", places())
                .help("add orchestrators = [\"192.0.2.9:7500\"], or list the hosts: members = [\"a\", \"b\"]"),
        );
    }
    if values
        .get(CLUSTER.member)
        .is_some_and(|tables| !tables.is_empty())
    {
        report.add(
            Diagnostic::error("hosts that register say where they are", values.span_of(CLUSTER.member))
                .also(places(), "so many places for hosts that register")
                .help("write address = \"192.0.2.1:7400\" into [host] of each host instead, or list the hosts in `members`"),
        );
    }
    let channel = values.get(CLUSTER.channel);
    if let Some(channel) = channel.filter(|channel| channel.place(CHANNEL.multicast).is_some()) {
        report.add(
            Diagnostic::error(
                "`multicast` is for listed members only",
                channel.span_of(CHANNEL.multicast),
            )
            .label("the state channel learns the hosts' addresses from epochs, and sends to each")
            .help("leave it out, or list the hosts in `members`"),
        );
    }
    if values.place(CLUSTER.port_lease).is_some() {
        report.add(
            Diagnostic::error(
                "`port_lease` is for listed members only",
                values.span_of(CLUSTER.port_lease),
            )
            .label("a lease counts the members of the list, and places may have no host")
            .help("leave it out, or list the hosts in `members`"),
        );
    }
}
