//! The server: HTTP/1.1 on threads of its own, with or without TLS, for callers that are not trusted.
//!
//! One thread drives all connections; calls of the orchestrator run beside it, a bounded number at once (`calls.rs`). What comes in
//! passes, in this order: bounds of connections (`listen.rs`), TLS (`tls.rs`), limits of headers and time (`listen.rs`, `guarded.rs`),
//! and the checks of `gate.rs` (rates, host, origin, token, scope), before a handler of `routes.rs` sees it. What goes out passes
//! `visible.rs`, which knows what each scope may see. Files of tokens and certificates are read again when they change (`reread.rs`).

mod calls;
mod config;
mod counts;
mod document;
mod events;
mod extract;
mod gate;
mod guarded;
mod listen;
mod orders;
mod problem;
mod questions;
mod race;
mod rates;
mod reread;
mod routes;
mod stream;
mod tls;
mod visible;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;

pub use config::{ConfigError, Limits, ServerConfig, TlsFiles};
pub use document::document;
pub use problem::{CODES, Code};
pub use tls::TlsError;

use crate::cluster_api::ClusterApi;
use crate::tokens::{self, TokenFileError};

/// Threads for calls beyond those that the limits name: files are read again, and events looked for.
const CALLS_OF_ITS_OWN: usize = 4;
/// How much longer than [`Limits::stop`] a stop takes at most: for calls that do not return.
const STOP_MARGIN: Duration = Duration::from_millis(200);

/// Something that the operator should know. The server goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Another file of tokens is in force.
    #[error("the tokens were read again: {tokens} are in force")]
    TokensChanged {
        /// How many.
        tokens: usize,
    },
    /// The file of tokens is wrong; the tokens before it stay in force.
    #[error("{why}; the tokens before it stay in force")]
    TokensRefused {
        /// The sentence, with the line.
        why: String,
    },
    /// Another certificate is in force for new connections.
    #[error("the certificate was read again")]
    CertificateChanged,
    /// The certificate or its key is wrong; those before them stay in force.
    #[error("{why}; the certificate before it stays in force")]
    CertificateRefused {
        /// The sentence.
        why: String,
    },
    /// The system gives no further connections, mostly for want of file descriptors.
    #[error("no connection can be accepted: {why}")]
    NotAccepting {
        /// The system's reason.
        why: String,
    },
}

/// Why a server did not start. Nothing runs and nothing is bound.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not safe or makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file of tokens is refused.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The certificate or its key is refused.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be bound.
    #[error("the API cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The system gives no thread or no timer.
    #[error("the API's thread does not start: {0}")]
    Thread(#[source] io::Error),
}

/// A server that runs. [`Server::stop`] or its drop ends it.
pub struct Server {
    local: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server on a thread of its own. `notices` is called from that thread, and must not wait.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(
        config: ServerConfig,
        api: Arc<dyn ClusterApi>,
        notices: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Server, StartError> {
        config.check()?;
        let tokens = match &config.tokens {
            Some(path) => Some(tokens::read(path)?),
            None => None,
        };
        let tls = match &config.tls {
            Some(files) => Some(tls::read(files)?),
            None => None,
        };
        let bind = |source| StartError::Bind {
            address: config.listen,
            source,
        };
        let listener = TcpListener::bind(config.listen).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let local = listener.local_addr().map_err(bind)?;

        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(
                config.limits.reads_at_once + config.limits.orders_at_once + CALLS_OF_ITS_OWN,
            )
            .thread_name("api-call")
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopping) = watch::channel(false);
        let longest_stop = config.limits.stop + STOP_MARGIN;
        let thread = thread::Builder::new()
            .name("api".to_owned())
            .spawn(move || {
                let parts = listen::Parts {
                    config,
                    local,
                    api,
                    tokens,
                    tls,
                    notices: Arc::new(notices),
                    stopping,
                };
                runtime.block_on(listen::run(listener, parts));
                runtime.shutdown_timeout(longest_stop);
            })
            .map_err(StartError::Thread)?;
        Ok(Server {
            local,
            stop,
            thread: Some(thread),
        })
    }

    /// The address that it listens on, with the port that the system chose if the configuration has port 0.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Ends it: no further connection is accepted, requests that were received are answered, streams end. Takes twice
    /// [`Limits::stop`] at most: connections are cut then, and calls that do not return are left alone.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
