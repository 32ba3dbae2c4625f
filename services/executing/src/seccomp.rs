//! The system calls that a sandbox refuses, as a program for the kernel (seccomp, classic BPF).
//!
//! Namespaces and missing capabilities keep a job from what belongs to the host. What is refused here needs neither, and
//! is either shared by all builds of a user (keys of the kernel, memory that no limit counts) or a way into the kernel
//! that jobs hardly need (`io_uring`, `userfaultfd`, BPF). A program that asks is told so by an error, as by a
//! kernel that was built without.
//!
//! A processor may also run the system calls of an older one of its kind, under other numbers: those are a list of their
//! own, and the program of a process that makes any is ended unless the site lets them in. The crates for such
//! filters know one kind of calls each, and end a process at its first call of another kind.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What a refused call gives.
#[derive(Clone, Copy)]
enum Answer {
    /// As by a kernel without it (`ENOSYS`): programs have another way.
    Missing = 38,
    /// As without the right to it (`EPERM`).
    Denied = 1,
    /// As by a kernel without such sockets (`EAFNOSUPPORT`).
    NoFamily = 97,
}

/// The kinds of calls: those of x86-64 and of the processor before it, the same of 64-bit ARM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Abi {
    X86_64,
    X86,
    Arm64,
    Arm,
}

/// A call that is refused, with its numbers for [`Abi`]s in their order; `None`: it does not exist there.
type Refused = ([Option<u32>; 4], Answer);

/// The same number everywhere, as for all newer calls.
const fn everywhere(number: u32, answer: Answer) -> Refused {
    ([Some(number); 4], answer)
}

const fn each(x86_64: u32, x86: u32, arm64: u32, arm: u32, answer: Answer) -> Refused {
    ([Some(x86_64), Some(x86), Some(arm64), Some(arm)], answer)
}

/// The numbers are those of the kernel's tables (`syscall_64.tbl`, `syscall_32.tbl`, `asm-generic/unistd.h`,
/// `arch/arm/tools/syscall.tbl`).
const REFUSED: [Refused; 22] = [
    // Work that no filter sees, in memory that is counted late.
    everywhere(425, Answer::Missing), // io_uring_setup
    everywhere(426, Answer::Missing), // io_uring_enter
    everywhere(427, Answer::Missing), // io_uring_register
    // Memory that the kernel itself cannot read, nor any limit count.
    everywhere(447, Answer::Missing), // memfd_secret
    // Holds the kernel in the middle of a copy: half of most attacks on it.
    each(323, 374, 282, 388, Answer::Denied), // userfaultfd
    // Keys belong to a user, not to a sandbox: those of the host and of other builds.
    each(248, 286, 217, 309, Answer::Denied), // add_key
    each(249, 287, 218, 310, Answer::Denied), // request_key
    each(250, 288, 219, 311, Answer::Denied), // keyctl
    // Sees, and may hold, what others do with files.
    each(300, 338, 262, 367, Answer::Denied), // fanotify_init
    each(301, 339, 263, 368, Answer::Denied), // fanotify_mark
    // Files by number, whatever directory they are in.
    each(304, 342, 265, 371, Answer::Denied), // open_by_handle_at
    // Programs in the kernel, and looks at it.
    each(321, 357, 280, 386, Answer::Denied), // bpf
    each(298, 336, 241, 364, Answer::Denied), // perf_event_open
    each(103, 103, 116, 103, Answer::Denied), // syslog
    // The kernel itself. These need rights that no job has; a hole there is one less.
    each(175, 128, 105, 128, Answer::Denied),                  // init_module
    each(176, 129, 106, 129, Answer::Denied),                  // delete_module
    each(313, 350, 273, 379, Answer::Denied),                  // finit_module
    each(246, 283, 104, 347, Answer::Denied),                  // kexec_load
    ([Some(320), None, Some(294), Some(401)], Answer::Denied), // kexec_file_load
    each(169, 88, 142, 88, Answer::Denied),                    // reboot
    each(167, 87, 224, 87, Answer::Denied),                    // swapon
    each(163, 51, 89, 51, Answer::Denied),                     // acct
];

/// `ioctl` and `socket`, of which only some are refused.
const IOCTL: [u32; 4] = [16, 54, 29, 54];
const SOCKET: [u32; 4] = [41, 359, 198, 281];
/// Words put into a terminal as if somebody had typed them there, and the same by the console's own call.
const TYPED: [u32; 2] = [0x5412, 0x541c];
/// Families of sockets there are: Unix, IPv4, IPv6, netlink. Others reach beyond the network's namespace (the host of a
/// virtual machine), or load parts of the kernel that hardly anybody uses.
const FAMILIES: [u32; 4] = [1, 2, 10, 16];

/// The most jumps of one instruction: both distances are one byte.
const FAR: usize = 255;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offsets in what the kernel tells of a call: its number, its kind, and the lower halves of its first two arguments.
const NUMBER: u32 = 0;
const KIND: u32 = 4;
const FIRST: u32 = 16;
const SECOND: u32 = 24;
/// On x86-64 a number with this bit is a call of x32, a third kind with the mark of the first.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// One instruction, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// How many instructions are left out where the comparison holds, and where it does not.
    then: u8,
    otherwise: u8,
    value: u32,
}

impl Abi {
    /// The kinds a processor runs, its own first. `None`: this one is not known here.
    fn of_machine(machine: &str) -> Option<[Abi; 2]> {
        match machine {
            "x86_64" => Some([Abi::X86_64, Abi::X86]),
            "aarch64" => Some([Abi::Arm64, Abi::Arm]),
            _ => None,
        }
    }

    /// How the kernel marks a call of this kind (`AUDIT_ARCH_…`).
    fn mark(self) -> u32 {
        match self {
            Abi::X86_64 => 0xc000_003e,
            Abi::X86 => 0x4000_0003,
            Abi::Arm64 => 0xc000_00b7,
            Abi::Arm => 0x4000_0028,
        }
    }

    fn place(self) -> usize {
        match self {
            Abi::X86_64 => 0,
            Abi::X86 => 1,
            Abi::Arm64 => 2,
            Abi::Arm => 3,
        }
    }
}

/// Where a test leads that decides, as long as distances are not known.
fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, then: 0, otherwise: 0, value: offset }
}

fn give(value: u32) -> Instruction {
    Instruction { code: RETURN, then: 0, otherwise: 0, value }
}

/// Leaves `count` instructions out unless the accumulator equals `value`.
fn unless_equal(value: u32, count: usize) -> Instruction {
    Instruction { code: EQUAL, then: 0, otherwise: u8::try_from(count.min(FAR)).unwrap_or(u8::MAX), value }
}

/// What is refused of one kind of calls.
fn rules(abi: Abi) -> Vec<Instruction> {
    let place = abi.place();
    let mut rules = vec![load(NUMBER)];
    if abi == Abi::X86_64 {
        rules.push(Instruction { code: AT_LEAST, then: 0, otherwise: 1, value: X32 });
        rules.push(give(KILL_PROCESS));
    }
    for (numbers, answer) in &REFUSED {
        if let Some(number) = numbers.get(place).copied().flatten() {
            rules.extend([unless_equal(number, 1), give(ERRNO | *answer as u32)]);
        }
    }
    let refused = |answer: Answer| give(ERRNO | answer as u32);
    let mut typed = vec![load(SECOND)];
    typed.extend(TYPED.iter().flat_map(|call| [unless_equal(*call, 1), refused(Answer::Denied)]));
    typed.push(give(ALLOW));
    let mut families = vec![load(FIRST)];
    families.extend(FAMILIES.iter().flat_map(|family| [unless_equal(*family, 1), give(ALLOW)]));
    families.push(refused(Answer::NoFamily));
    for (numbers, branch) in [(IOCTL, typed), (SOCKET, families)] {
        if let Some(number) = numbers.get(place) {
            rules.push(unless_equal(*number, branch.len()));
            rules.extend(branch);
        }
    }
    rules.push(give(ALLOW));
    rules
}

/// The program for a machine of this name (as `uname -m` has it). `None`: its calls are not known here.
fn program(machine: &str, foreign: bool) -> Option<Vec<Instruction>> {
    let [own, other] = Abi::of_machine(machine)?;
    let mut program = vec![load(KIND)];
    let kinds: &[Abi] = if foreign { &[own, other] } else { &[own] };
    for kind in kinds {
        let rules = rules(*kind);
        program.push(unless_equal(kind.mark(), rules.len()));
        program.extend(rules);
    }
    program.push(give(KILL_PROCESS));
    Some(program)
}

/// Whether this kernel takes such a program, and there is one for this processor.
pub fn is_there() -> bool {
    filter(false).is_some()
}

/// The filter of a sandbox on this machine in the kernel's form, as base64. `foreign`: whether programs of the older
/// processor of its kind are let in. `None`: there is none for this machine or kernel.
pub(crate) fn filter(foreign: bool) -> Option<String> {
    let machine = rustix::system::uname();
    let program = program(&machine.machine().to_string_lossy(), foreign)?;
    if !Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        return None;
    }
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for one in program {
        bytes.extend(one.code.to_ne_bytes());
        bytes.extend([one.then, one.otherwise]);
        bytes.extend(one.value.to_ne_bytes());
    }
    Some(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a call: it reads the program as it is.
    fn answer(program: &[Instruction], kind: u32, number: u32, arguments: [u32; 2]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let one = program[at];
            at += 1;
            match one.code {
                LOAD => {
                    accumulator = match one.value {
                        NUMBER => number,
                        KIND => kind,
                        FIRST => arguments[0],
                        SECOND => arguments[1],
                        other => panic!("offset {other}"),
                    }
                }
                EQUAL => at += usize::from(if accumulator == one.value { one.then } else { one.otherwise }),
                AT_LEAST => at += usize::from(if accumulator >= one.value { one.then } else { one.otherwise }),
                RETURN => return one.value,
                other => panic!("code {other}"),
            }
        }
    }

    #[test]
    fn each_kind_of_calls_has_its_own_numbers() {
        for (machine, kinds) in [("x86_64", [Abi::X86_64, Abi::X86]), ("aarch64", [Abi::Arm64, Abi::Arm])] {
            for kind in kinds {
                let program = program(machine, true).unwrap();
                let ask = |number| answer(&program, kind.mark(), number, [0, 0]);
                for (numbers, expected) in REFUSED {
                    if let Some(number) = numbers[kind.place()] {
                        assert_eq!(ask(number), ERRNO | expected as u32, "{kind:?} {number}");
                    }
                }
                // read, write, openat, clone, execve, on one machine or the other.
                for number in [0, 1, 3, 4, 5, 11, 56, 57, 59, 63, 64, 120, 220, 221, 257, 322, 435] {
                    assert_eq!(ask(number), ALLOW, "{kind:?} {number}");
                }
            }
        }
    }

    #[test]
    fn of_sockets_and_terminals_only_some_calls_are_refused() {
        for (machine, kind) in
            [("x86_64", Abi::X86_64), ("x86_64", Abi::X86), ("aarch64", Abi::Arm64), ("aarch64", Abi::Arm)]
        {
            let program = program(machine, true).unwrap();
            let socket = |family| answer(&program, kind.mark(), SOCKET[kind.place()], [family, 1]);
            let ioctl = |call| answer(&program, kind.mark(), IOCTL[kind.place()], [7, call]);
            assert_eq!([1, 2, 10, 16].map(socket), [ALLOW; 4], "{kind:?}");
            // Bluetooth, the host of a virtual machine, the kernel's ciphers.
            assert_eq!([31, 38, 40].map(socket), [ERRNO | 97; 3], "{kind:?}");
            assert_eq!([0x5412, 0x541c].map(ioctl), [ERRNO | 1; 2], "{kind:?}");
            // The size of a terminal, bytes that can be read.
            assert_eq!([0x5413, 0x541b].map(ioctl), [ALLOW; 2], "{kind:?}");
        }
    }

    #[test]
    fn programs_of_another_kind_are_ended_unless_the_site_lets_them_in() {
        let (own, all) = (program("x86_64", false).unwrap(), program("x86_64", true).unwrap());
        let read = |program: &[Instruction], kind: u32, number| answer(program, kind, number, [0, 0]);
        assert_eq!(read(&own, Abi::X86_64.mark(), 0), ALLOW);
        assert_eq!((read(&own, Abi::X86.mark(), 3), read(&all, Abi::X86.mark(), 3)), (KILL_PROCESS, ALLOW));
        // Nobody lets in x32: its io_uring_setup has the same mark and another number.
        assert_eq!(read(&all, Abi::X86_64.mark(), X32 | 425), KILL_PROCESS);
        assert_eq!(read(&all, Abi::Arm64.mark(), 63), KILL_PROCESS);
        assert_eq!(program("riscv64", true), None);
    }

    #[test]
    fn a_program_is_one_the_kernel_takes() {
        for (machine, foreign) in [("x86_64", true), ("x86_64", false), ("aarch64", true)] {
            let program = program(machine, foreign).unwrap();
            // BPF_MAXINSNS, and no jump that was cut short.
            assert!(program.len() < 4096);
            assert!(program.iter().all(|one| usize::from(one.otherwise) < FAR), "{machine}");
        }
    }
}
