//! The checks that every request passes, known routes or not: rates, host, origin, token, scope.
//!
//! A route is closed until this file opens it: orders are for operators, and tenants have [`TENANT_ROUTES`] alone. What a tenant may
//! not see answers like what does not exist.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, watch};

use super::calls::Calls;
use super::config::{Limits, ServerConfig, TARGET_BYTES_MAX, is_loopback};
use super::counts::{Counts, Refusal};
use super::problem::Failure;
use super::rates::Rates;
use crate::clock::{self, Shared};
use crate::cluster_api::{Caller, Scope};
use crate::tokens::{Found, Token, Tokens};

/// Routes that a tenant may use. Their handlers show and change what is the tenant's alone.
pub(super) const TENANT_ROUTES: &[(&str, &str)] = &[
    ("GET", "/v1/cluster"),
    ("GET", "/v1/events"),
    ("GET", "/v1/events/stream"),
    ("GET", "/v1/flows"),
    ("GET", "/v1/health"),
    ("GET", "/v1/hosts"),
    ("GET", "/v1/hosts/{name}"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/usage"),
    ("POST", "/v1/hosts/{name}/drain"),
    ("POST", "/v1/hosts/{name}/restore"),
];

/// A wrong token costs its address so many requests.
const WRONG_TOKEN_REQUESTS: u32 = 9;
/// The name of the caller where there are no tokens.
const LOOPBACK: &str = "loopback";

/// What all connections share.
pub(super) type Gate = Arc<Inner>;

/// See [`Gate`].
pub(super) struct Inner {
    pub(super) calls: Calls,
    pub(super) counts: Counts,
    /// The document of the API, as text.
    pub(super) document: Arc<str>,
    /// Places of streams.
    pub(super) streams: Arc<Semaphore>,
    /// Streams of each caller.
    pub(super) streams_of_caller: Shared<std::collections::BTreeMap<String, usize>>,
    /// Places of connections.
    pub(super) connections: Arc<Semaphore>,
    /// The log's number and the newest event in it, while there are streams.
    pub(super) newest: watch::Receiver<(u64, u64)>,
    /// `None`: there are no tokens, and all callers are operators.
    pub(super) tokens: Option<watch::Receiver<Arc<Tokens>>>,
    pub(super) stopping: watch::Receiver<bool>,
    config: ServerConfig,
    local: SocketAddr,
    rates: Shared<Rates>,
}

/// The parts of [`Inner`] that others make.
pub(super) struct Given {
    pub(super) config: ServerConfig,
    pub(super) local: SocketAddr,
    pub(super) calls: Calls,
    pub(super) document: Arc<str>,
    pub(super) newest: watch::Receiver<(u64, u64)>,
    pub(super) tokens: Option<watch::Receiver<Arc<Tokens>>>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Inner {
    pub(super) fn new(given: Given) -> Inner {
        let limits = &given.config.limits;
        let rates = Rates::new(
            limits.requests_per_second_of_address,
            limits.requests_per_second_of_caller,
            clock::now(),
        );
        Inner {
            streams: Arc::new(Semaphore::new(limits.streams)),
            streams_of_caller: Shared::default(),
            connections: Arc::new(Semaphore::new(limits.connections)),
            calls: given.calls,
            counts: Counts::default(),
            document: given.document,
            newest: given.newest,
            tokens: given.tokens,
            stopping: given.stopping,
            config: given.config,
            local: given.local,
            rates: Shared::new(rates),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Whether a token is still in force. Without tokens it always is.
    pub(super) fn is_in_force(&self, token: Option<&Token>) -> bool {
        match (&self.tokens, token) {
            (Some(tokens), Some(token)) => tokens.borrow().has(token, clock::unix_seconds()),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    fn check(&self, request: &mut Request, peer: IpAddr) -> Result<(), Failure> {
        if let Err(wait) = self.rates.lock().address(peer, clock::now()) {
            self.counts.refuse(Refusal::AddressRate);
            return Err(Failure::TooMany(wait));
        }
        if request
            .uri()
            .path_and_query()
            .map_or(0, |target| target.as_str().len())
            > TARGET_BYTES_MAX
        {
            return Err(Failure::TargetLong(TARGET_BYTES_MAX));
        }
        if is_loopback(self.local.ip()) {
            self.check_host(request.uri(), request.headers())?;
        }
        check_origin(request.headers())?;
        let (caller, token) = self.authenticate(request.headers(), peer)?;
        if let Err(wait) = self.rates.lock().caller(&caller.name, clock::now()) {
            self.counts.refuse(Refusal::CallerRate);
            return Err(Failure::TooMany(wait));
        }
        let route = request.extensions().get::<MatchedPath>();
        permits(
            &caller.scope,
            request.method(),
            route.map(MatchedPath::as_str),
        )?;
        request.extensions_mut().insert(Who { caller, token });
        Ok(())
    }

    /// A name that a foreign page made to point here is refused, or its scripts could read the answers (DNS rebinding).
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
        let port = self.local.port();
        let mut names = vec![
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "[::1]".to_owned(),
        ];
        let own = match self.local.ip() {
            IpAddr::V6(address) => format!("[{address}]"),
            IpAddr::V4(address) => address.to_string(),
        };
        names.push(own);
        names.extend(self.config.names.iter().cloned());
        let refused = || Failure::Host(format!("{}:{port}", names[0]));
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(refused());
        };
        let host = host.to_str().map_err(|_| refused())?;
        let is_own = |host: &str| {
            let (name, has_port) = match host.rsplit_once(':') {
                Some((name, digits)) if !digits.contains(']') => (name, digits.parse() == Ok(port)),
                _ => (host, true),
            };
            has_port && names.iter().any(|own| own.eq_ignore_ascii_case(name))
        };
        // A whole address in the request's first line would go before the header.
        let target = uri.authority().map(|authority| authority.as_str());
        match is_own(host) && target.is_none_or(is_own) {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(Caller, Option<Token>), Failure> {
        let caller = |name: &str, scope| Caller {
            name: name.to_owned(),
            scope,
            address: peer,
        };
        let Some(tokens) = &self.tokens else {
            return Ok((caller(LOOPBACK, Scope::Operator), None));
        };
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(sent), None) = (sent.next(), sent.next()) else {
            return Err(Failure::TokenMissing);
        };
        let sent = sent.to_str().ok().and_then(|sent| sent.split_once(' '));
        let Some((scheme, secret)) = sent else {
            return Err(Failure::TokenMissing);
        };
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Failure::TokenMissing);
        }
        let tokens = tokens.borrow();
        match tokens.find(secret.trim(), clock::unix_seconds()) {
            Found::Valid(token) => Ok((
                caller(&token.name, token.scope.clone()),
                Some(token.clone()),
            )),
            Found::Expired(_) => Err(Failure::TokenExpired),
            Found::Unknown => {
                let mut rates = self.rates.lock();
                rates.fault(peer, WRONG_TOKEN_REQUESTS, clock::now());
                Err(Failure::TokenUnknown)
            }
        }
    }
}

/// Who calls, for handlers.
#[derive(Clone)]
pub(super) struct Who {
    pub(super) caller: Caller,
    /// The token, so that a stream notices when it is no longer in force.
    pub(super) token: Option<Token>,
}

/// Where a connection comes from, for [`pass`].
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// A request that a browser sends for a page of another site is refused, whatever it asks for.
fn check_origin(headers: &HeaderMap) -> Result<(), Failure> {
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site" || site == "same-site") {
        return Err(Failure::Origin);
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok();
    let origin = origin.and_then(|origin| origin.split_once("://"));
    match (origin, host, origins.next()) {
        (Some((_, origin)), Some(host), None) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(Failure::Origin),
    }
}

/// Whether a scope may use a route at all. Handlers then ask about the host.
fn permits(scope: &Scope, method: &Method, route: Option<&str>) -> Result<(), Failure> {
    let is_reading = method == Method::GET || method == Method::HEAD;
    let method = match is_reading {
        true => "GET",
        false => method.as_str(),
    };
    match scope {
        Scope::Operator => Ok(()),
        Scope::ReadOnly if is_reading => Ok(()),
        Scope::ReadOnly => Err(Failure::ReadOnly),
        Scope::Tenant(_) => {
            let is_open = route.is_some_and(|route| TENANT_ROUTES.contains(&(method, route)));
            match is_open {
                true => Ok(()),
                false => Err(nothing_here()),
            }
        }
    }
}

pub(super) fn nothing_here() -> Failure {
    Failure::NotFound("there is nothing at this address; see /v1/openapi.json".to_owned())
}

/// The middleware around all routes, the absent ones included.
pub(super) async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    gate.counts.request();
    // Without an address there is no connection: nothing of that kind is served.
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map(|peer| peer.0.ip().to_canonical());
    let checked = match peer {
        Some(peer) => gate.check(&mut request, peer),
        None => Err(Failure::Broken),
    };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    let refusal = response.extensions().get::<Failure>();
    if let Some(refusal) = refusal.and_then(Failure::refusal) {
        gate.counts.refuse(refusal);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_nobody_opened_is_closed() {
        let blue = Scope::Tenant("blue".to_owned());
        let (get, post) = (Method::GET, Method::POST);
        permits(&blue, &get, Some("/v1/hosts")).unwrap();
        permits(&blue, &Method::HEAD, Some("/v1/hosts")).unwrap();
        permits(&blue, &post, Some("/v1/hosts/{name}/drain")).unwrap();
        for (method, route) in [
            (&post, Some("/v1/hosts")),
            (&get, Some("/v1/hosts/{name}/drain")),
            (&post, Some("/v1/hosts/{name}/fence")),
            (&post, Some("/v1/hosts/{name}/forget")),
            (&post, Some("/v1/scale")),
            (&get, Some("/v1/new-route")),
            (&get, None),
        ] {
            assert_eq!(permits(&blue, method, route), Err(nothing_here()));
            permits(&Scope::Operator, method, route).unwrap();
        }
        permits(&Scope::ReadOnly, &get, Some("/v1/new-route")).unwrap();
        for method in [&post, &Method::PUT, &Method::DELETE, &Method::PATCH] {
            let refused = permits(&Scope::ReadOnly, method, Some("/v1/new-route"));
            assert_eq!(refused, Err(Failure::ReadOnly));
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_str(value).unwrap());
            }
            check_origin(&map).is_ok()
        };
        let host = ("host", "127.0.0.1:80");
        assert!(check(&[host]));
        assert!(check(&[host, ("origin", "http://127.0.0.1:80")]));
        assert!(check(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(check(&[host, ("sec-fetch-site", "none")]));
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:81"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!check(&[host, bad]), "{bad:?}");
        }
        let own = ("origin", "http://127.0.0.1:80");
        assert!(!check(&[host, own, own]) && !check(&[own]));
    }
}
