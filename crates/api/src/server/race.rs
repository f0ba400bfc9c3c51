//! Two futures, and which of them is ready first.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The output of the first future if it is ready before the second; `None` if the second is. The other one is dropped.
pub(super) async fn before<T>(
    work: impl Future<Output = T>,
    end: impl Future<Output = ()>,
) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|context| {
        if let Poll::Ready(output) = work.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        end.as_mut().poll(context).map(|()| None)
    })
    .await
}
