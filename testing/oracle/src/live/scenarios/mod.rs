//! The scenarios, each the script of one recording.

mod errors;
mod fragments;
mod pressure;
mod sessions;
mod tcp;
mod times;

use super::Scenario;

/// All scenarios, by the names of their recordings.
pub const SCENARIOS: &[Scenario] = &[
    sessions::SESSIONS,
    sessions::ECHO,
    sessions::HAIRPIN,
    tcp::TCP,
    tcp::DAMAGE,
    errors::ERRORS,
    errors::NARROW_OUTSIDE,
    errors::NARROW_INSIDE,
    fragments::FRAGMENTS,
    pressure::PRESSURE,
    times::UDP_TIMES,
    times::TCP_TIMES,
];

/// A masquerade and nothing else.
const PLAIN: Scenario = Scenario {
    name: "",
    about: "",
    settings: "",
    mtu: (1_500, 1_500),
    sysctls: &[],
    post: "oifname \"g1\" masquerade",
    pre: "",
    play: |_| Ok(()),
};
