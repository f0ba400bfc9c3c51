//! Downloads by HTTP, many at once and compared byte by byte, and a server for laboratories that have none installed.
//! The TCP is the kernel's on both ends. Imports `clock`, `error`, `node`.

mod client;
mod server;

pub use client::{AT_ONCE_MAX, Download, DownloadReport, Downloads, Progress, Stall};
pub use server::{CONNECTIONS_MAX, DOCUMENT_BYTES_MAX, DocumentServer, document};
