//! The uses of `bpf(2)` that ports need: four of AF_XDP sockets, and one that keeps packets from the kernel's own network stack.
//! The programs are six and two instructions long, so no compiler and no library is needed for them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROGRAM_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const XSKMAP: u32 = 17;
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACH: u32 = 37;
const CLASSIFIER_PROGRAM: u32 = 3;
const INGRESS_ATTACH: u32 = 46;
/// `TCX_DROP`.
const DROP: i32 = 2;

/// `union bpf_attr`, of which each command reads the front; zeroes mean "not given".
#[repr(C, align(8))]
struct Attributes([u32; 32]);

impl Attributes {
    fn new(words: &[u32]) -> Attributes {
        let mut attributes = Attributes([0; 32]);
        for (to, from) in attributes.0.iter_mut().zip(words) {
            *to = *from;
        }
        attributes
    }

    /// A pointer in two words, from word `at`.
    fn put_pointer<T>(&mut self, at: usize, pointer: *const T) {
        let number = pointer as usize as u64;
        let halves = number.to_ne_bytes();
        let (first, second) = halves.split_at(4);
        for (word, half) in self.0[at..at + 2].iter_mut().zip([first, second]) {
            *word = u32::from_ne_bytes([half[0], half[1], half[2], half[3]]);
        }
    }

    fn call(&self, command: i64) -> io::Result<i64> {
        // SAFETY: the kernel reads the attributes, and what they point to, which lives in the callers below.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.0.as_ptr(),
                size_of_val(&self.0),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(result)
    }

    fn open(&self, command: i64) -> io::Result<OwnedFd> {
        let descriptor = self.call(command)? as i32;
        // SAFETY: the kernel just gave this descriptor to us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

/// A map from queues of an interface to AF_XDP sockets.
pub(crate) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    Attributes::new(&[XSKMAP, 4, 4, queues]).open(MAP_CREATE)
}

/// Puts the socket of a queue into the map.
pub(crate) fn put_socket(map: impl AsFd, queue: u32, socket: impl AsFd) -> io::Result<()> {
    let value = socket.as_fd().as_raw_fd() as u32;
    let mut attributes = Attributes::new(&[map.as_fd().as_raw_fd() as u32]);
    attributes.put_pointer(2, &raw const queue);
    attributes.put_pointer(4, &raw const value);
    attributes.call(MAP_UPDATE).map(drop)
}

/// The program: a packet goes to the socket of its queue, or on into the kernel if there is none.
///
/// `r2 = context.rx_queue_index; r1 = map; r3 = XDP_PASS; return bpf_redirect_map(r1, r2, r3)`
pub(crate) fn redirecting_program(map: impl AsFd) -> io::Result<OwnedFd> {
    let program = [
        instruction(0x61, 0x12, 16, 0),
        instruction(0x18, 0x11, 0, map.as_fd().as_raw_fd()),
        instruction(0x00, 0x00, 0, 0),
        instruction(0xb7, 0x03, 0, 2),
        instruction(0x85, 0x00, 0, 51),
        instruction(0x95, 0x00, 0, 0),
    ];
    load(XDP_PROGRAM, &program)
}

fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> u64 {
    let [a, b] = offset.to_le_bytes();
    let [c, d, e, f] = immediate.to_le_bytes();
    u64::from_le_bytes([code, registers, a, b, c, d, e, f])
}

fn load(kind: u32, program: &[u64]) -> io::Result<OwnedFd> {
    let licence = c"Dual MIT/GPL";
    let mut attributes = Attributes::new(&[kind, program.len() as u32]);
    attributes.put_pointer(2, program.as_ptr());
    attributes.put_pointer(4, licence.as_ptr());
    attributes.open(PROGRAM_LOAD)
}

/// Keeps all that an interface receives from the kernel's own network stack, for as long as the returned descriptor is open:
/// packet sockets have seen a packet before it gets there. Needs Linux 6.6.
pub(crate) fn keep_from_kernel(index: u32) -> io::Result<OwnedFd> {
    // `return TCX_DROP`
    let program = [
        instruction(0xb7, 0x00, 0, DROP),
        instruction(0x95, 0x00, 0, 0),
    ];
    let program = load(CLASSIFIER_PROGRAM, &program)?;
    let program = program.as_raw_fd() as u32;
    Attributes::new(&[program, index, INGRESS_ATTACH]).open(LINK_CREATE)
}

/// Attaches a program to an interface for as long as the returned descriptor is open: a crash leaves nothing behind.
pub(crate) fn attach(program: impl AsFd, index: u32, native: bool) -> io::Result<OwnedFd> {
    let mode = if native { 4 } else { 2 };
    let program = program.as_fd().as_raw_fd() as u32;
    Attributes::new(&[program, index, XDP_ATTACH, mode]).open(LINK_CREATE)
}
