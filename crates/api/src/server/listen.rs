//! Connections: accepted within bounds, served until they end, cut off when they take too long.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Notice;
use super::calls::Calls;
use super::config::{HEADER_BYTES_MAX, HEADERS_MAX, ServerConfig, is_loopback};
use super::counts::Refusal;
use super::document::document;
use super::gate::{Gate, Given, Inner, Peer};
use super::guarded::Guarded;
use super::race::before;
use super::rates::prefix;
use super::reread;
use super::routes::router;
use super::stream::watch_log;
use crate::clock::Shared;
use crate::cluster_api::ClusterApi;
use crate::tokens::Tokens;

/// Pause after the system gave no connection, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server is made of.
pub(super) struct Parts {
    pub(super) config: ServerConfig,
    pub(super) local: SocketAddr,
    pub(super) api: Arc<dyn ClusterApi>,
    pub(super) tokens: Option<Tokens>,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) notices: Arc<dyn Fn(Notice) + Send + Sync>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Serves until it is stopped.
pub(super) async fn run(listener: StdListener, parts: Parts) {
    let Parts {
        config,
        local,
        api,
        tokens,
        tls,
        notices,
        mut stopping,
    } = parts;
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            return notices(Notice::NotAccepting {
                why: error.to_string(),
            });
        }
    };
    let limits = config.limits.clone();
    let notify = |notices: &Arc<dyn Fn(Notice) + Send + Sync>| {
        let notices = Arc::clone(notices);
        move |notice| notices(notice)
    };
    let tokens = tokens.zip(config.tokens.clone()).map(|(tokens, path)| {
        let (sender, receiver) = watch::channel(Arc::new(tokens));
        let notices = notify(&notices);
        tokio::spawn(reread::tokens(path, limits.reread, sender, notices));
        receiver
    });
    let tls = tls.zip(config.tls.clone()).map(|(tls, files)| {
        let (sender, receiver) = watch::channel(tls);
        let notices = notify(&notices);
        tokio::spawn(reread::certificate(files, limits.reread, sender, notices));
        receiver
    });
    let (newest, newest_seen) = watch::channel((0, 0));
    let gate: Gate = Arc::new(Inner::new(Given {
        calls: Calls::new(api, &limits),
        document: document().into(),
        newest: newest_seen,
        tokens,
        stopping: stopping.clone(),
        config,
        local,
    }));
    tokio::spawn(watch_log(Arc::clone(&gate), newest));
    let serve = Serve {
        service: TowerToHyperService::new(router(Arc::clone(&gate))),
        of_address: Arc::default(),
        tls,
        gate: Arc::clone(&gate),
    };
    let accept = accept(&listener, &serve, &notices);
    let stopped = async {
        // The sender is gone only when the server is.
        let _ = stopping.wait_for(|stops| *stops).await;
    };
    before(accept, stopped).await;
    drop(listener);
    // Every place back means that every connection has ended.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _ = timeout(limits.stop, gate.connections.acquire_many(all)).await;
}

async fn accept(
    listener: &TcpListener,
    serve: &Serve,
    notices: &Arc<dyn Fn(Notice) + Send + Sync>,
) {
    let mut is_reported = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                is_reported = false;
                if let Some(places) = serve.places(peer.ip()) {
                    tokio::spawn(serve.clone().connection(stream, peer, places));
                }
            }
            Err(error) => {
                if !is_reported {
                    notices(Notice::NotAccepting {
                        why: error.to_string(),
                    });
                }
                is_reported = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How connections are served.
#[derive(Clone)]
struct Serve {
    service: TowerToHyperService<axum::Router>,
    /// Connections of each address that has some: as many entries as connections at most.
    of_address: Arc<Shared<BTreeMap<IpAddr, usize>>>,
    tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    gate: Gate,
}

/// The places that a connection takes up.
struct Places {
    _permit: OwnedSemaphorePermit,
    address: Option<IpAddr>,
    of_address: Arc<Shared<BTreeMap<IpAddr, usize>>>,
}

impl Drop for Places {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut of_address = self.of_address.lock();
        if let Some(count) = of_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                of_address.remove(&address);
            }
        }
    }
}

impl Serve {
    /// `None`: a bound is reached, and the connection is closed at once.
    fn places(&self, peer: IpAddr) -> Option<Places> {
        let gate = &self.gate;
        let Ok(permit) = Arc::clone(&gate.connections).try_acquire_owned() else {
            gate.counts.refuse(Refusal::Connections);
            return None;
        };
        let address = (!is_loopback(peer)).then(|| prefix(peer));
        if let Some(address) = address {
            let mut of_address = self.of_address.lock();
            let has = of_address.get(&address).copied().unwrap_or(0);
            if has >= gate.limits().connections_of_address {
                gate.counts.refuse(Refusal::ConnectionsOfAddress);
                return None;
            }
            of_address.insert(address, has + 1);
        }
        Some(Places {
            _permit: permit,
            address,
            of_address: Arc::clone(&self.of_address),
        })
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, places: Places) {
        // Answers are small and whole; without this they wait for acknowledgements. A socket that refuses it works as well.
        let _ = stream.set_nodelay(true);
        let stream = Guarded::new(stream, self.gate.limits().write);
        match &self.tls {
            None => self.http(stream, peer).await,
            Some(config) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&config.borrow()));
                let shaken = timeout(self.gate.limits().handshake, acceptor.accept(stream)).await;
                match shaken {
                    Ok(Ok(stream)) => self.http(stream, peer).await,
                    Ok(Err(_)) | Err(_) => self.gate.counts.refuse(Refusal::Handshake),
                }
            }
        }
        drop(places);
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: SocketAddr) {
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            self.service.call(request)
        });
        let limits = self.gate.limits();
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.headers)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut stopping = self.gate.stopping.clone();
        let stopped = async {
            // The sender is gone only when the server is.
            let _ = stopping.wait_for(|stops| *stops).await;
        };
        // How a connection ends, well or not, is the peer's business: requests were counted.
        if before(connection.as_mut(), stopped).await.is_none() {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(limits.stop, connection).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeCluster;

    /// On loopback no test can connect from two addresses, so the bound is tested where addresses are arguments.
    #[test]
    fn connections_of_one_address_leave_room_for_others() {
        let mut config = ServerConfig::loopback(0);
        config.limits.connections = 5;
        config.limits.connections_of_address = 2;
        let (_newest, newest) = watch::channel((0, 0));
        let (_stop, stopping) = watch::channel(false);
        let gate: Gate = Arc::new(Inner::new(Given {
            calls: Calls::new(Arc::new(FakeCluster::new()), &config.limits),
            document: "".into(),
            newest,
            tokens: None,
            stopping,
            local: config.listen,
            config,
        }));
        let serve = Serve {
            service: TowerToHyperService::new(router(Arc::clone(&gate))),
            of_address: Arc::default(),
            tls: None,
            gate,
        };
        let places = |address: &str| serve.places(address.parse().unwrap());
        let held = [places("192.0.2.1"), places("::ffff:192.0.2.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(places("192.0.2.1").is_none());
        let others = [places("2001:db8::1"), places("2001:db8::2")];
        assert!(others.iter().all(Option::is_some));
        assert!(places("2001:db8::3").is_none(), "one customer has a /64");
        let last = places("127.0.0.1");
        assert!(
            last.is_some() && places("127.0.0.1").is_none(),
            "five in all"
        );
        drop((held, others, last));
        assert!(serve.of_address.lock().is_empty());
        let local: Vec<_> = (0..5).map(|_| places("127.0.0.1")).collect();
        assert!(
            local.iter().all(Option::is_some),
            "loopback has no bound of its own"
        );
    }
}
