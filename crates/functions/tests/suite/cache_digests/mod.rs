//! Web-cache digests: queries are answered from what caches' digests say, reports are counted, and any instance knows what one of
//! them learnt.

mod cluster;
pub(crate) mod frames;
mod hostile;
mod packets;
