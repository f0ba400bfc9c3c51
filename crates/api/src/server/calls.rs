//! Calls of the orchestrator: beside the connections' thread, a bounded number at once, each for a bounded time.
//!
//! A call that does not return keeps its place, so that a stuck orchestrator costs so many threads and no more. Questions and orders
//! have places of their own, so that readers never keep an operator from ordering.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::config::Limits;
use super::problem::Failure;
use crate::cluster_api::ClusterApi;

/// See the module.
pub(super) struct Calls {
    api: Arc<dyn ClusterApi>,
    reads: Arc<Semaphore>,
    orders: Arc<Semaphore>,
    wait: Duration,
    call: Duration,
}

impl Calls {
    pub(super) fn new(api: Arc<dyn ClusterApi>, limits: &Limits) -> Calls {
        Calls {
            api,
            reads: Arc::new(Semaphore::new(limits.reads_at_once)),
            orders: Arc::new(Semaphore::new(limits.orders_at_once)),
            wait: limits.call_wait,
            call: limits.call,
        }
    }

    /// A question.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.call(&self.reads, ask).await
    }

    /// An order.
    pub(super) async fn order<T: Send + 'static>(
        &self,
        give: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.call(&self.orders, give).await
    }

    async fn call<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        call: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = timeout(self.wait, Arc::clone(places).acquire_owned()).await;
        // The semaphore is never closed.
        let Ok(Ok(place)) = place else {
            return Err(Failure::Busy);
        };
        let api = Arc::clone(&self.api);
        let running = tokio::task::spawn_blocking(move || {
            let answer = call(&*api);
            drop(place);
            answer
        });
        match timeout(self.call, running).await {
            Ok(Ok(answer)) => Ok(answer),
            // It panicked; the panic's own message is in the log, and its place was given back.
            Ok(Err(_)) => Err(Failure::Broken),
            Err(_) => Err(Failure::Late),
        }
    }
}
