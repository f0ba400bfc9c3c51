//! A loop whose instructions are known, to test the counter.

use crate::instructions::Workload;

/// Instructions of one turn of the loop below.
#[cfg(target_arch = "x86_64")]
const TURN: u32 = 10;

pub(super) const WORKLOADS: &[Workload] = &[
    #[cfg(target_arch = "x86_64")]
    Workload {
        name: "known-loop",
        prepare: || Box::new(turn_many_times),
    },
];

/// `turns` turns of [`TURN`] instructions: eight additions, one decrement, one branch.
#[cfg(target_arch = "x86_64")]
fn turn_many_times(turns: u32) {
    const { assert!(TURN == 8 + 2) };
    // SAFETY: only the two registers named are changed; no memory is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "add {sum}, 1",
            "dec {left}",
            "jnz 2b",
            sum = inout(reg) 0u64 => _,
            left = inout(reg) u64::from(turns.max(1)) => _,
            options(nomem, nostack),
        );
    }
}
