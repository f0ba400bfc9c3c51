//! An intruder: for every route of the OpenAPI document, all the ways in that are no ways in. A route that is added is tried by itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::exchange::{Answer, Exchange, ExchangeError};
use super::fake::{FakeCluster, OPERATORS_ALONE};
use crate::cluster_api::Scope;
use crate::server::{Server, ServerConfig, StartError, document};
use crate::tokens::{self, Hash, Secret, Token, TokenFileError};

/// The fewest cases of a route.
const CASES_MIN: usize = 4;
/// The host that paths name: of the tenant that the intruder's token is not of.
const OTHERS_HOST: &str = "green-1";
/// The state object that paths name.
const AN_OBJECT: &str = "sessions";
/// Texts that the answers to a token of the tenant `blue` must not have.
const NOT_OF_BLUE: [&str; 3] = ["green", "shared-1", OPERATORS_ALONE];
/// Requests per second that the intruder needs to try everything.
const PLENTY: u32 = 1_000_000;

/// What an intruder came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntruderReport {
    /// Routes: paths with a method each.
    pub routes: usize,
    /// Cases tried.
    pub cases: usize,
    /// The fewest cases of a route.
    pub cases_of_a_route_min: usize,
    /// Cases that succeeded, as route and case: there must be none.
    pub succeeded: Vec<String>,
}

/// Why an intruder proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum UnsoundIntruder {
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The tokens could not be written.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// A request was not answered.
    #[error("{case}: {source}")]
    Exchange {
        /// Route and case.
        case: String,
        /// Why.
        source: ExchangeError,
    },
    /// A request that is allowed was refused, so a refusal of others means nothing.
    #[error("{case}: answered with {status}, though it is allowed: {body}")]
    Control {
        /// Route and case.
        case: String,
        /// The answer.
        status: u16,
        /// Its body.
        body: String,
    },
    /// The document has no routes, or a route has too few cases.
    #[error("{0}")]
    Document(String),
    /// No randomness.
    #[error(transparent)]
    Randomness(#[from] tokens::NoRandomness),
}

/// One route of the document.
struct Route {
    method: String,
    target: String,
    body: Option<String>,
}

/// The secrets that requests are made with.
struct Secrets {
    operator: Secret,
    reader: Secret,
    blue: Secret,
    expired: Secret,
    unknown: Secret,
}

/// Tries everything against a server on loopback that it starts, in a folder for its file of tokens.
///
/// # Errors
/// See [`UnsoundIntruder`]: nothing is proven then.
pub fn intruder(folder: &Path) -> Result<IntruderReport, UnsoundIntruder> {
    let secrets = Secrets {
        operator: Secret::draw()?,
        reader: Secret::draw()?,
        blue: Secret::draw()?,
        expired: Secret::draw()?,
        unknown: Secret::draw()?,
    };
    let path = folder.join("intruder-tokens.toml");
    let blue = Scope::Tenant("blue".to_owned());
    for (name, scope, expires, secret) in [
        ("operator", Scope::Operator, None, &secrets.operator),
        ("reader", Scope::ReadOnly, None, &secrets.reader),
        ("blue", blue, None, &secrets.blue),
        ("expired", Scope::Operator, Some(1), &secrets.expired),
    ] {
        let token = Token {
            name: name.to_owned(),
            scope,
            expires,
            hash: Hash::of(secret.reveal()),
        };
        tokens::add(&path, &token)?;
    }
    let mut config = ServerConfig::loopback(0);
    config.limits.requests_per_second_of_address = PLENTY;
    config.limits.requests_per_second_of_caller = PLENTY;
    let open = Arc::new(FakeCluster::new());
    let open_server = Server::start(config.clone(), Arc::clone(&open) as _, |_| ())?;
    config.tokens = Some(path);
    let guarded = Arc::new(FakeCluster::new());
    let guarded_server = Server::start(config, Arc::clone(&guarded) as _, |_| ())?;

    let routes = routes()?;
    let mut report = IntruderReport {
        routes: routes.len(),
        cases_of_a_route_min: usize::MAX,
        ..IntruderReport::default()
    };
    for route in &routes {
        let mut cases = with_tokens(route, &secrets, guarded_server.local());
        let without = without_tokens(route);
        report.cases_of_a_route_min = report.cases_of_a_route_min.min(cases.len() + without.len());
        report.cases += cases.len() + without.len();
        for (name, request) in cases.drain(..) {
            let case = format!("{} {}: {name}", route.method, route.target);
            if attempt(
                &case,
                request,
                &guarded,
                guarded_server.local(),
                NOT_A_TENANT,
            )? {
                report.succeeded.push(case);
            }
        }
        for (name, request) in without {
            let case = format!("{} {}: {name}", route.method, route.target);
            if attempt(&case, request, &open, open_server.local(), NOT_A_TENANT)? {
                report.succeeded.push(case);
            }
        }
        let case = format!(
            "{} {}: the token of another tenant",
            route.method, route.target
        );
        let request = route.request().token(secrets.blue.reveal());
        let request = request.header("Host", &guarded_server.local().to_string());
        report.cases += 1;
        if attempt(&case, request, &guarded, guarded_server.local(), A_TENANT)? {
            report.succeeded.push(case);
        }
        controls(
            route,
            &secrets,
            &guarded,
            &open,
            [&guarded_server, &open_server],
        )?;
    }
    if report.cases_of_a_route_min < CASES_MIN {
        let why = format!("a route has {} cases", report.cases_of_a_route_min);
        return Err(UnsoundIntruder::Document(why));
    }
    Ok(report)
}

/// Whether a request that is answered has succeeded only if it shows what is not the caller's.
const A_TENANT: bool = true;
const NOT_A_TENANT: bool = false;

/// Whether an intrusion succeeded: it was answered, or it reached the cluster as an order.
fn attempt(
    case: &str,
    request: Exchange,
    cluster: &FakeCluster,
    address: SocketAddr,
    is_tenant: bool,
) -> Result<bool, UnsoundIntruder> {
    let before = cluster.orders().len();
    let answer = send(case, request, address)?;
    let ordered = cluster.orders().len() > before;
    let shows = NOT_OF_BLUE.iter().any(|text| answer.body.contains(text));
    Ok(match is_tenant {
        // A refusal repeats the name that was asked for, and says nothing of whether there is one.
        true => ordered || answer.is_success() && shows,
        false => ordered || answer.is_success(),
    })
}

fn send(case: &str, request: Exchange, address: SocketAddr) -> Result<Answer, UnsoundIntruder> {
    let sent = request.send_bare(address);
    sent.map_err(|source| UnsoundIntruder::Exchange {
        case: case.to_owned(),
        source,
    })
}

/// What must be answered, or the refusals prove nothing: an operator, a reader, and where there are no tokens everybody.
fn controls(
    route: &Route,
    secrets: &Secrets,
    guarded: &FakeCluster,
    open: &FakeCluster,
    [guarded_server, open_server]: [&Server; 2],
) -> Result<(), UnsoundIntruder> {
    let local = guarded_server.local();
    let host =
        |request: Exchange, address: SocketAddr| request.header("Host", &address.to_string());
    let mut controls = vec![
        (
            "an operator",
            route.request().token(secrets.operator.reveal()),
            guarded,
            local,
        ),
        ("without tokens", route.request(), open, open_server.local()),
    ];
    if route.method == "GET" {
        let reader = route.request().token(secrets.reader.reveal());
        controls.push(("a reader", reader, guarded, local));
    }
    for (name, request, cluster, address) in controls {
        let case = format!("{} {}: {name}", route.method, route.target);
        let before = cluster.orders().len();
        let answer = send(&case, host(request, address), address)?;
        let is_ordered = cluster.orders().len() == before + 1;
        if !answer.is_success() || is_ordered != (route.method != "GET") {
            return Err(UnsoundIntruder::Control {
                case,
                status: answer.status,
                body: answer.body,
            });
        }
    }
    Ok(())
}

/// Cases against a server with tokens.
fn with_tokens(
    route: &Route,
    secrets: &Secrets,
    address: SocketAddr,
) -> Vec<(&'static str, Exchange)> {
    let host = address.to_string();
    let operator = secrets.operator.reveal();
    let plain = || route.request().header("Host", &host);
    let separator = if route.target.contains('?') { '&' } else { '?' };
    let in_target = format!("{}{separator}access_token={operator}", route.target);
    let doubled = format!("/{}", route.target);
    let dotted = format!("/v1/..{}", route.target);
    let mut cases = vec![
        ("no token", plain()),
        ("an unknown token", plain().token(secrets.unknown.reveal())),
        ("an expired token", plain().token(secrets.expired.reveal())),
        ("an empty token", plain().header("Authorization", "Bearer ")),
        (
            "the hash as the token",
            plain().token(&Hash::of(operator).to_string()),
        ),
        (
            "the beginning of a token",
            plain().token(&operator[..operator.len() - 1]),
        ),
        (
            "a token of another scheme",
            plain().header("Authorization", &format!("Basic {operator}")),
        ),
        (
            "an unknown token before a good one",
            plain().token(secrets.unknown.reveal()).token(operator),
        ),
        (
            "a token in the address",
            route.at(&in_target).header("Host", &host),
        ),
        (
            "no token and a doubled slash",
            route.at(&doubled).header("Host", &host),
        ),
        (
            "no token and a path with dots",
            route.at(&dotted).header("Host", &host),
        ),
        (
            "a good token and another host",
            route
                .request()
                .header("Host", "rebound.example")
                .token(operator),
        ),
        (
            "a good token and another port",
            route
                .request()
                .header("Host", "127.0.0.1:1")
                .token(operator),
        ),
        ("a good token and no host", route.request().token(operator)),
        (
            "a good token and a page of another site",
            plain()
                .token(operator)
                .header("Origin", "https://evil.example"),
        ),
    ];
    if route.method != "GET" {
        cases.push(("a read-only token", plain().token(secrets.reader.reveal())));
    }
    cases
}

/// Cases against a server without tokens, which serves this machine's users and no page in their browsers.
fn without_tokens(route: &Route) -> Vec<(&'static str, Exchange)> {
    let rebound = route.request().header("Host", "rebound.example");
    let local = || route.request().header("Host", "localhost");
    let mut cases = vec![
        ("no tokens, and another host", rebound),
        ("no tokens, and no host", route.request()),
        (
            "no tokens, and a page of another site",
            local().header("Origin", "https://evil.example"),
        ),
        (
            "no tokens, and a request of another site",
            local().header("Sec-Fetch-Site", "cross-site"),
        ),
    ];
    if let Some(body) = &route.body {
        // What a form of any page can send without asking first.
        let form = Exchange::new(&route.method, &route.target)
            .header("Host", "localhost")
            .header("Content-Type", "text/plain")
            .body(body);
        cases.push(("no tokens, and a form's body", form));
    }
    cases
}

impl Route {
    fn request(&self) -> Exchange {
        self.at(&self.target)
    }

    fn at(&self, target: &str) -> Exchange {
        let request = Exchange::new(&self.method, target);
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }
}

/// The routes of the document, with the examples that it has for parameters and bodies.
fn routes() -> Result<Vec<Route>, UnsoundIntruder> {
    let unsound = |why: String| UnsoundIntruder::Document(why);
    let api: Value =
        serde_json::from_str(&document()).map_err(|error| unsound(error.to_string()))?;
    let paths = api["paths"].as_object().filter(|paths| !paths.is_empty());
    let paths = paths.ok_or_else(|| unsound("the document has no paths".to_owned()))?;
    let mut routes = Vec::new();
    for (path, item) in paths {
        let methods: BTreeMap<&String, &Value> = item.as_object().into_iter().flatten().collect();
        for (method, operation) in methods {
            let mut target = path
                .replace("{name}", OTHERS_HOST)
                .replace("{object}", AN_OBJECT);
            if target.contains('{') {
                return Err(unsound(format!(
                    "{path}: no value for its parameter is known"
                )));
            }
            let mut separator = '?';
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let example = match &parameter["example"] {
                    Value::Null => &parameter["schema"]["example"],
                    example => example,
                };
                if parameter["in"] == "query" && !example.is_null() {
                    let name = parameter["name"].as_str().unwrap_or_default();
                    let value = example.as_str().map_or(example.to_string(), str::to_owned);
                    target.push_str(&format!("{separator}{name}={value}"));
                    separator = '&';
                }
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = match schema["$ref"]
                .as_str()
                .and_then(|place| place.rsplit('/').next())
            {
                None => None,
                Some(name) => match &api["components"]["schemas"][name]["example"] {
                    Value::Null => return Err(unsound(format!("{name} has no example"))),
                    example => Some(example.to_string().replace("alpha", OTHERS_HOST)),
                },
            };
            routes.push(Route {
                method: method.to_ascii_uppercase(),
                target,
                body,
            });
        }
    }
    Ok(routes)
}
