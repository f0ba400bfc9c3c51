//! The store from outside: what it answers, beside the real Redis, over connections, and after its process ended.

#![allow(
    clippy::disallowed_methods,
    reason = "the tests wait for a real program to start"
)]

mod connections;
mod durable;
mod replies;
mod same_as_redis;
