// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host calls of a running machine, each with its reason: the text of `docs/explanation/process.md`, and what the test
//! of the filter compares with.

/// Number, name, and what it is for.
pub const CALLS: &[(u32, &str, &str)] = &[
    (
        0,
        "read",
        "input of the console, packets of a stream, replies of 9p servers, what they tell of changes",
    ),
    (1, "write", "output of the console, status lines, requests to 9p servers"),
    (3, "close", "machines with volumes: a file that a 9p server gave, when nobody has it open any more"),
    (
        9,
        "mmap",
        "pages of the machine's memory or root archive in the program's part, at a fixed place and shared; kernel stacks; a page \
         of memory, readable and executable, in place of one of the kernel's code that is traced",
    ),
    (
        10,
        "mprotect",
        "rights of the program's pages; the kernel's become read-only and what they were, around programs of the overlay",
    ),
    (11, "munmap", "pages of the program go away"),
    (15, "rt_sigreturn", "back from a signal that hit the kernel"),
    (19, "readv", "a packet of a tap, with its header"),
    (20, "writev", "a packet, with its header"),
    (
        24,
        "sched_yield",
        "machines with volumes: a 9p server that shares a processor with the machine answers first",
    ),
    (
        28,
        "madvise",
        "the kernel's view of the archive goes back to the host (MADV_DONTNEED); memory comes in large pages (MADV_COLLAPSE)",
    ),
    (47, "recvmsg", "machines with volumes: replies of 9p servers, and files that they give (SCM_RIGHTS)"),
    (75, "fdatasync", "machines with a disk: what was written to it is on the host's storage"),
    (158, "arch_prctl", "FS base, only where the host has no FSGSBASE"),
    (
        202,
        "futex",
        "several processors: the wait for the kernel's lock, and for work; several address spaces: the host process of the next \
         one goes on (FUTEX_WAIT, FUTEX_WAKE)",
    ),
    (223, "timer_settime", "a timer for each processor: preemption, deadlines while the program computes"),
    (228, "clock_gettime", "how fast the time-stamp counter runs"),
    (231, "exit_group", "the end"),
    (
        234,
        "tgkill",
        "one signal, to tell another processor of work, or the host process that runs of a request to stop",
    ),
    (271, "ppoll", "the wait for descriptors and deadlines"),
    (295, "preadv", "machines with a disk: sectors of its file; with volumes: data of a file that was given"),
    (296, "pwritev", "the same"),
    (324, "membarrier", "several processors: the program's own membarrier(2)"),
    (327, "preadv2", "machines with volumes: data of a file that was given, where the host has it in memory"),
];
