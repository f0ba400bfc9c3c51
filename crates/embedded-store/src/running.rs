//! A server on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::server::{Server, ServerError, ServerStatistics};

/// A store that is served until it is dropped; its append file is whole then.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    statistics: Arc<ServerStatistics>,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl RunningServer {
    /// Serves from now on.
    ///
    /// # Errors
    /// The system has no thread for it, or does not say where it listens.
    pub fn start(mut server: Server) -> io::Result<Self> {
        let address = server.address()?;
        let stops = Arc::new(AtomicBool::new(false));
        let statistics = server.statistics();
        let thread = {
            let stops = stops.clone();
            let thread = thread::Builder::new().name("store".to_owned());
            thread.spawn(move || server.run(&stops))?
        };
        Ok(Self {
            address,
            stops,
            statistics,
            thread: Some(thread),
        })
    }

    /// Where connections are taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it shows of itself.
    #[must_use]
    pub fn statistics(&self) -> Arc<ServerStatistics> {
        self.statistics.clone()
    }

    /// Why it could not go on, once it could not. Said once.
    pub fn why_ended(&mut self) -> Option<EndedError> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        joined(thread).err()
    }

    /// Ends it.
    ///
    /// # Errors
    /// It could not go on, or its append file is not whole.
    pub fn stop(mut self) -> Result<(), EndedError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), EndedError> {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.take().map_or(Ok(()), joined)
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Why a store on a thread of its own ended.
#[derive(Debug)]
pub enum EndedError {
    /// It could not go on.
    Server(ServerError),
    /// Its thread panicked.
    Panicked,
}

impl core::fmt::Display for EndedError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Server(error) => error.fmt(formatter),
            Self::Panicked => formatter.write_str("its thread panicked"),
        }
    }
}

impl core::error::Error for EndedError {}

fn joined(thread: JoinHandle<Result<(), ServerError>>) -> Result<(), EndedError> {
    match thread.join() {
        Ok(ended) => ended.map_err(EndedError::Server),
        Err(_) => Err(EndedError::Panicked),
    }
}
