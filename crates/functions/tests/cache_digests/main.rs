//! Web-cache digests: queries are answered from what caches' digests say, reports are counted, and any instance knows what one of
//! them learnt.

mod cluster;
mod frames;
mod hostile;
mod packets;
