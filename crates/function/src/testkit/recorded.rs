//! A function whose calls are recorded, for tests that must know which packet an instance called it for, and with what was pinned.
#![expect(
    clippy::disallowed_types,
    reason = "what tests read; no packet of a host comes by"
)]

use core::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use asterism_state::{Builder, Late};

use super::Pinned;
use crate::ask::Ask;
use crate::function::{NetworkFunction, PortNumber, Verdict};
use crate::observable::Observable;

/// A call of the function that ended with a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// What was pinned to the packet.
    pub pinned: Pinned,
    /// The port that the packet came in by.
    pub port: PortNumber,
    /// The packet before the call.
    pub packet: Vec<u8>,
    /// The call read objects of a store, which has yet to commit it. Else it took effect at once.
    pub is_staged: bool,
}

/// Calls in their order, until they are taken.
#[derive(Clone, Debug, Default)]
pub struct RecordedCalls(Arc<Mutex<Vec<RecordedCall>>>);

impl RecordedCalls {
    /// Takes the calls that were recorded since the last time.
    pub fn take(&self) -> Vec<RecordedCall> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut *calls)
    }
    /// Takes the last call, if its transaction is for a store to commit.
    pub fn take_last_staged(&self) -> Option<RecordedCall> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.pop_if(|call| call.is_staged)
    }
    /// The packet's number of the last call.
    pub fn last_serial(&self) -> Option<u64> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.last().map(|call| call.pinned.serial)
    }
    fn push(&self, call: RecordedCall) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
    }
}

/// The function `F`, whose calls are recorded. Not for chains, whose stages are called one by one.
#[derive(Debug)]
pub struct Recorded<F> {
    function: F,
    calls: RecordedCalls,
}

impl<F> Recorded<F> {
    /// The function, and where its calls are recorded.
    pub fn new(function: F, calls: RecordedCalls) -> Self {
        Self { function, calls }
    }
}

impl<F: NetworkFunction> NetworkFunction for Recorded<F> {
    type State = F::State;

    fn state(&self, builder: &Builder) -> F::State {
        self.function.state(builder)
    }

    fn packet(&self, ask: Ask<'_, F::State>) -> Result<Verdict, Late> {
        let context = ask.context.clone();
        let call = RecordedCall {
            pinned: Pinned {
                serial: context.serial(),
                arrived_us: context.arrived_us(),
                tick: context.arrived_tick(),
            },
            port: ask.port(),
            packet: ask.packet().bytes().to_vec(),
            is_staged: context.is_staged(),
        };
        let result = self.function.packet(ask);
        if result.is_ok() {
            self.calls.push(call);
        }
        result
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.function.addresses()
    }

    fn observable(&self) -> Option<&dyn Observable<F::State>> {
        self.function.observable()
    }

    fn schema(&self) -> u64 {
        self.function.schema()
    }
}
