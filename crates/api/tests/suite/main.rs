//! The server and its client over real connections on loopback, with a cluster that is not there.
#![expect(
    clippy::disallowed_methods,
    reason = "real servers are waited for by the clock of the machine"
)]

mod client;
mod intruder;
mod limits;
mod page;
mod requests;
mod routes;
mod start;
mod stream;
mod tls;
mod tokens;
