//! Downloads by HTTP, many in parallel and compared byte by byte, and a server for laboratories that have none installed.
//! Both ends use the kernel's TCP.

mod client;
mod server;

pub use client::{AT_ONCE_MAX, Download, DownloadReport, Downloads, Progress, Stall};
pub use server::{CONNECTIONS_MAX, DOCUMENT_BYTES_MAX, DocumentServer, document};
