//! Handlers of what changes the cluster. Each checks what the server can know, and hands the order to the orchestrator.

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{Body, HostName};
use super::gate::{Gate, Who, nothing_here};
use super::problem::Failure;
use super::visible;
use crate::cluster_api::{OrderError, Scope};
use crate::data::{
    Drain, Fence, Forget, Move, MoveWhat, NAME_BYTES_MAX, Order, OrderAccepted,
    REASON_CHARACTERS_MAX, Restore, Scale,
};

/// Bytes of the name of a flow.
const FLOW_BYTES_MAX: usize = 256;

type Accepted = (StatusCode, Json<OrderAccepted>);

/// The host keeps its flows and gets no new ones
#[utoipa::path(post, path = "/v1/hosts/{name}/drain", tag = "orders", params(("name" = String, Path, description = "The host")),
    request_body = Drain, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn drain(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    HostName(host): HostName,
    Body(body): Body<Drain>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Drain { host, body }).await
}

/// The host gets packets again
#[utoipa::path(post, path = "/v1/hosts/{name}/restore", tag = "orders", params(("name" = String, Path, description = "The host")),
    request_body = Restore, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn restore(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    HostName(host): HostName,
    Body(body): Body<Restore>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Restore { host, body }).await
}

/// The operator declares that a host's process has ended
#[utoipa::path(post, path = "/v1/hosts/{name}/fence", tag = "orders", params(("name" = String, Path, description = "The host")),
    request_body = Fence, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn fence(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    HostName(host): HostName,
    Body(body): Body<Fence>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Fence { host, body }).await
}

/// A host is gone for good, and its place is free for another one
#[utoipa::path(post, path = "/v1/hosts/{name}/forget", tag = "orders", params(("name" = String, Path, description = "The host")),
    request_body = Forget, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn forget(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    HostName(host): HostName,
    Body(body): Body<Forget>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Forget { host, body }).await
}

/// So many hosts
#[utoipa::path(post, path = "/v1/scale", tag = "orders",
    request_body = Scale, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn scale(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    Body(body): Body<Scale>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Scale(body)).await
}

/// A bucket or a flow to a host
#[utoipa::path(post, path = "/v1/moves", tag = "orders",
    request_body = Move, responses((status = 202, description = "The order was taken", body = OrderAccepted)))]
pub(super) async fn moves(
    State(gate): State<Gate>,
    Extension(who): Extension<Who>,
    Body(body): Body<Move>,
) -> Result<Accepted, Failure> {
    give(&gate, who, Order::Move(body)).await
}

async fn give(gate: &Gate, who: Who, order: Order) -> Result<Accepted, Failure> {
    check(&order)?;
    if matches!(who.caller.scope, Scope::Tenant(_)) {
        let Some(host) = order.host() else {
            return Err(nothing_here());
        };
        let snapshot = gate.calls.read(|api| api.snapshot()).await?;
        if visible::host(&who.caller.scope, &snapshot, host).is_none() {
            return Err(Failure::no_host(host));
        }
    }
    let given = gate.calls.order(move |api| api.order(&who.caller, order));
    match given.await? {
        Ok(accepted) => Ok((StatusCode::ACCEPTED, Json(accepted))),
        Err(error) => Err(Failure::Order(error)),
    }
}

/// What needs no orchestrator to be refused.
fn check(order: &Order) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::Order(OrderError::Refused { why }));
    let is_text =
        |text: &str, most: usize| text.len() <= most && !text.chars().any(char::is_control);
    if order.reason().is_some_and(|reason| {
        reason.chars().count() > REASON_CHARACTERS_MAX || !is_text(reason, usize::MAX)
    }) {
        return refused(format!(
            "a reason has at most {REASON_CHARACTERS_MAX} characters and no control characters"
        ));
    }
    if order
        .host()
        .is_some_and(|host| !is_text(host, NAME_BYTES_MAX))
    {
        return refused(format!(
            "the name of a host has at most {NAME_BYTES_MAX} bytes and no control characters"
        ));
    }
    if let Order::Move(Move {
        what: MoveWhat::Flow(flow),
        ..
    }) = order
        && !is_text(flow, FLOW_BYTES_MAX)
    {
        return refused(format!(
            "the name of a flow has at most {FLOW_BYTES_MAX} bytes and no control characters"
        ));
    }
    Ok(())
}
