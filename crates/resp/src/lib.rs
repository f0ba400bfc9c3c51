//! The Redis serialization protocol, versions 2 and 3 (RESP): commands are written, and values are read in place.
//!
//! Layer 0, sans I/O: bytes in, bytes out. A client writes commands ([`CommandWriter`]) and reads replies; a store reads commands and
//! writes replies ([`ReplyWriter`]). Both find the end of what came by a [`Scanner`], which looks at each byte once however it is cut, and
//! read it by [`Value::read`], which copies nothing. All lengths are bounded ([`scan`]): the other side may send any bytes.
//!
//! Read first: `value.rs`, then `scan.rs`.

#![forbid(unsafe_code)]

pub mod scan;
mod value;
mod write;

pub use scan::{RespError, Scanner};
pub use value::{Value, Values};
pub use write::{CommandWriter, ReplyWriter};
