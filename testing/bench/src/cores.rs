//! Which core a thread runs on: two threads that are timed apart share none while there are two.

use std::sync::OnceLock;

/// Keeps the thread on one of the cores that this process may use, so that the two are never on the same one while
/// there are two.
pub(crate) fn stay_on_core(number: usize) {
    keep_on_core(0, number);
}

/// Keeps the first thread of another process on one of these cores; 0 means the own thread. A process that polls never gives its core
/// up: another one that the kernel puts there waits for milliseconds.
pub(crate) fn keep_on_core(process: u32, number: usize) {
    let cores = cores();
    let Some(&core) = cores.get(number % cores.len().max(1)) else {
        return;
    };
    // SAFETY: all zeros is an empty set; the call gets a set of the size that it is given, and a core's number is below
    // that size.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut one);
        libc::sched_setaffinity(
            process as libc::pid_t,
            size_of::<libc::cpu_set_t>(),
            &raw const one,
        );
    }
}

/// The cores that this process may use, as the first who asks finds them: a thread started by one that stays on a core may
/// use only that core, and would stay there whatever it asks for.
pub(crate) fn cores() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(of_this_thread)
}

/// The cores that this thread may use now; none if the kernel does not tell.
fn of_this_thread() -> Vec<usize> {
    // SAFETY: all zeros is an empty set; the call gets a set of the size that it is given, and a core's number is below
    // that size.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&core| libc::CPU_ISSET(core, &allowed))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_core_of_the_one_that_started_it() {
        let all = cores();
        let inner = std::thread::spawn(|| {
            stay_on_core(0);
            let first = of_this_thread();
            let started = std::thread::spawn(|| {
                stay_on_core(1);
                of_this_thread()
            });
            (first, started.join().expect("it only asks"))
        });
        let (first, second) = inner.join().expect("it only asks");
        assert_eq!(first, all[..1]);
        assert_eq!(second, [all[1 % all.len()]]);
    }
}
