//! Address and port translation (RFC 4787, RFC 5382, RFC 5508, RFC 6887, RFC 6888).
//!
//! Layer 3c, above `forwarding`; imports it and `asterism_function` alone. Read first: `session.rs`, then `translator.rs`.

mod bindings;
mod census;
mod config;
mod error;
mod limits;
pub mod mutant;
pub mod pcp;
mod ports;
mod session;
mod state;
mod subscribers;
mod translator;
mod untranslated;
mod ways;

pub use census::{EVENTS_MAX, NEWS_QUESTION, NatEvent, NatEventKind, NatNews, NatUse};
pub use config::{Filtering, Forward, NatConfig, OUTSIDE_ADDRESSES_MAX};
pub use limits::{
    AddressPool, BLOCK_PORTS_MAX, BLOCK_REST_LEAST_S, BLOCKS_PER_SUBSCRIBER_MAX, POOL_NETWORKS_MAX,
    POOLS_MAX, PortBlocks, PortRest, SUBSCRIBERS_MAX, SubscriberLimits,
};
pub use pcp::{Asked, PortControl};
pub use ports::OutsidePorts;
pub use session::{BY_INSIDE, BY_OUTSIDE, Session};
pub use state::{Translates, TranslationWrites, Translations};
pub use translator::{Translator, translation_tables};
pub use untranslated::{UNTRANSLATED_MAX, Untranslated};
pub use ways::{Inward, Outward, Refused, Way};
