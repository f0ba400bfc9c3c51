//! Connection tracking (RFC 9293 for TCP; pseudo-connections of all else; IPv4 and IPv6).
//!
//! Layer 3c; imports `asterism_function` alone.
