//! Address and port translation (RFC 4787, RFC 5382, RFC 5508, RFC 6887, RFC 6888).
//!
//! Layer 3c, above `forwarding`; imports it and `asterism_function` alone.

pub mod mutant;
