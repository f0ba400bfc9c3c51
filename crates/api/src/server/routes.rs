//! The routes: handlers of what only reads, and the one list from which the router and its document are made.
//!
//! A further route is a handler with `#[utoipa::path]` and a line in [`routes`]. It is then closed to tenants until `gate.rs` opens
//! it, and the intruder's test tries it by itself.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::events::{self, EventsQuery};
use super::extract::{Asked, HostName};
use super::gate::{self, Gate, Who};
use super::orders;
use super::problem::Failure;
use super::questions;
use super::stream;
use super::visible;
use crate::cluster_api::{ClusterApi, OrderError, Scope};
use crate::data::{
    ClusterSnapshot, ClusterSummary, Events, FLOWS_FOUND_MAX, FlowFound, FlowQuery, Flows, Health,
    Host, Hosts, NAME_BYTES_MAX, Plan, UsageTotals,
};

/// All routes.
pub(super) fn routes() -> OpenApiRouter<Gate> {
    OpenApiRouter::new()
        .routes(routes!(cluster))
        .routes(routes!(hosts))
        .routes(routes!(host))
        .routes(routes!(questions::host_status))
        .routes(routes!(questions::state))
        .routes(routes!(questions::entries))
        .routes(routes!(orders::drain))
        .routes(routes!(orders::restore))
        .routes(routes!(orders::fence))
        .routes(routes!(orders::forget))
        .routes(routes!(orders::scale))
        .routes(routes!(orders::moves))
        .routes(routes!(flows))
        .routes(routes!(plan))
        .routes(routes!(health))
        .routes(routes!(page_of_events))
        .routes(routes!(stream::stream))
        .routes(routes!(usage))
        .routes(routes!(openapi))
        .routes(routes!(metrics))
}

/// The routes with all checks around them.
pub(super) fn router(gate: Gate) -> Router {
    let (router, _) = routes().split_for_parts();
    let body_bytes = gate.limits().body_bytes;
    router
        .fallback(async || gate::nothing_here())
        .method_not_allowed_fallback(async || Failure::Method)
        .layer(DefaultBodyLimit::max(body_bytes))
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&gate),
            gate::pass,
        ))
        .with_state(gate)
}

async fn snapshot(gate: &Gate) -> Result<Arc<ClusterSnapshot>, Failure> {
    gate.calls.read(|api| api.snapshot()).await
}

/// The cluster without its hosts
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster",
    responses((status = 200, description = "The cluster", body = ClusterSummary)))]
async fn cluster(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
) -> Result<Json<ClusterSummary>, Failure> {
    let snapshot = snapshot(&gate).await?;
    Ok(Json(visible::cluster(&who.caller.scope, &snapshot)))
}

/// All hosts that the caller may see
#[utoipa::path(get, path = "/v1/hosts", tag = "hosts",
    responses((status = 200, description = "The hosts", body = Hosts)))]
async fn hosts(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
) -> Result<Json<Hosts>, Failure> {
    let snapshot = snapshot(&gate).await?;
    Ok(Json(visible::hosts(&who.caller.scope, &snapshot)))
}

/// One host
#[utoipa::path(get, path = "/v1/hosts/{name}", tag = "hosts", params(("name" = String, Path, description = "The host")),
    responses((status = 200, description = "The host", body = Host)))]
async fn host(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    HostName(name): HostName,
) -> Result<Json<Host>, Failure> {
    let snapshot = snapshot(&gate).await?;
    match visible::host(&who.caller.scope, &snapshot, &name) {
        Some(host) => Ok(Json(host.clone())),
        None => Err(Failure::no_host(&name)),
    }
}

/// Where flows are
#[utoipa::path(get, path = "/v1/flows", tag = "flows", params(FlowQuery),
    responses((status = 200, description = "The flows", body = Flows)))]
async fn flows(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    Asked(query): Asked<FlowQuery>,
) -> Result<Json<Flows>, Failure> {
    check(&query)?;
    let scope = who.caller.scope;
    let found = gate.calls.read(move |api| find(api, &scope, &query));
    let mut flows = found.await?.map_err(Failure::Order)?;
    let is_cut = flows.len() > FLOWS_FOUND_MAX;
    flows.truncate(FLOWS_FOUND_MAX);
    Ok(Json(Flows { flows, is_cut }))
}

fn check(query: &FlowQuery) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::Malformed(format!("the query: {why}")));
    let address = query.address.as_ref();
    if address.is_some_and(|address| address.parse::<IpAddr>().is_err()) {
        return refused("address is one of IPv4 or IPv6");
    }
    let host = query.host.as_ref();
    if host.is_some_and(|host| host.len() > NAME_BYTES_MAX) {
        return refused("no host has such a name");
    }
    Ok(())
}

/// One more than an answer has, so that a cut is noticed. A tenant's hosts are asked for one by one: other tenants' flows neither
/// appear nor take the place of its own.
fn find(
    api: &dyn ClusterApi,
    scope: &Scope,
    query: &FlowQuery,
) -> Result<Vec<FlowFound>, OrderError> {
    let max = FLOWS_FOUND_MAX + 1;
    let Scope::Tenant(_) = scope else {
        return api.find_flow(query, max);
    };
    let mut flows = Vec::new();
    for host in visible::hosts(scope, &api.snapshot()).hosts {
        if query.host.as_ref().is_some_and(|asked| *asked != host.name) {
            continue;
        }
        let of_host = FlowQuery {
            host: Some(host.name.clone()),
            ..query.clone()
        };
        let found = api.find_flow(&of_host, max - flows.len())?;
        flows.extend(found.into_iter().filter(|flow| flow.host == host.name));
        if flows.len() >= max {
            break;
        }
    }
    Ok(flows)
}

/// What the elasticity policies would do now
#[utoipa::path(get, path = "/v1/plan", tag = "cluster",
    responses((status = 200, description = "The dry run", body = Plan)))]
async fn plan(State(gate): State<Gate>) -> Result<Json<Plan>, Failure> {
    let plan = gate.calls.read(|api| api.plan()).await?;
    plan.map(Json).map_err(Failure::Order)
}

/// What is wrong, and what to do
#[utoipa::path(get, path = "/v1/health", tag = "cluster",
    responses((status = 200, description = "The items", body = Health)))]
async fn health(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
) -> Result<Json<Health>, Failure> {
    let snapshot = snapshot(&gate).await?;
    Ok(Json(visible::health(&who.caller.scope, &snapshot)))
}

/// A part of the event log
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventsQuery),
    responses((status = 200, description = "The events", body = Events)))]
async fn page_of_events(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    Asked(query): Asked<EventsQuery>,
) -> Result<Json<Events>, Failure> {
    let page = events::page(&gate, &who.caller.scope, query).await?;
    Ok(Json(page))
}

/// What tenants used
#[utoipa::path(get, path = "/v1/usage", tag = "usage",
    responses((status = 200, description = "The usage", body = UsageTotals)))]
async fn usage(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
) -> Result<Json<UsageTotals>, Failure> {
    let snapshot = snapshot(&gate).await?;
    Ok(Json(visible::usage(&who.caller.scope, &snapshot)))
}

/// This document
#[utoipa::path(get, path = "/v1/openapi.json", tag = "api",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value, content_type = "application/json")))]
async fn openapi(State(gate): State<Gate>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, gate.document.to_string()).into_response()
}

/// Metrics of the cluster and of the API
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    responses((status = 200, description = "Prometheus' text format", body = String, content_type = "text/plain")))]
async fn metrics(State(gate): State<Gate>) -> Result<Response, Failure> {
    let mut text = gate.calls.read(|api| api.metrics()).await?;
    let limits = gate.limits();
    let connections = limits.connections - gate.connections.available_permits();
    let streams = limits.streams - gate.streams.available_permits();
    text.push_str(&gate.counts.text(connections, streams));
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, text).into_response())
}
