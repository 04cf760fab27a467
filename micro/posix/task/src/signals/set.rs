// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signal numbers, sets of them, names and default actions (signal(7)).

pub const SIGHUP: i32 = 1;
pub const SIGINT: i32 = 2;
pub const SIGQUIT: i32 = 3;
pub const SIGILL: i32 = 4;
pub const SIGTRAP: i32 = 5;
pub const SIGABRT: i32 = 6;
pub const SIGBUS: i32 = 7;
pub const SIGFPE: i32 = 8;
pub const SIGKILL: i32 = 9;
pub const SIGSEGV: i32 = 11;
pub const SIGPIPE: i32 = 13;
pub const SIGALRM: i32 = 14;
pub const SIGTERM: i32 = 15;
pub const SIGCHLD: i32 = 17;
pub const SIGCONT: i32 = 18;
pub const SIGSTOP: i32 = 19;
pub const SIGTSTP: i32 = 20;
pub const SIGTTIN: i32 = 21;
pub const SIGTTOU: i32 = 22;
pub const SIGURG: i32 = 23;
pub const SIGXCPU: i32 = 24;
pub const SIGXFSZ: i32 = 25;
pub const SIGVTALRM: i32 = 26;
pub const SIGPROF: i32 = 27;
pub const SIGWINCH: i32 = 28;
pub const SIGPOLL: i32 = 29;
pub const SIGSYS: i32 = 31;
/// First real-time signal, as the kernel counts (glibc keeps two for itself).
pub const SIGRTMIN: i32 = 32;
/// Largest signal number.
pub const SIGNALS: i32 = 64;

/// Signals as a set of bits: signal n is bit n - 1.
pub type SignalSet = u64;

/// The set of one signal.
pub const fn bit(signal: i32) -> SignalSet {
    1 << (signal - 1)
}

/// Cannot be caught, blocked or ignored.
pub const UNBLOCKABLE: SignalSet = bit(SIGKILL) | bit(SIGSTOP);
/// Raised by the instruction the thread executes: delivered before all others.
pub const SYNCHRONOUS: SignalSet =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGFPE) | bit(SIGSYS);
pub const STOPS: SignalSet = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
/// Have codes of their own in `si_code` (Linux' SIG_SPECIFIC_SICODES_MASK).
pub const SPECIFIC_CODES: SignalSet = SYNCHRONOUS | bit(SIGCHLD) | bit(SIGPOLL);

/// What a signal does that no handler catches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    Terminate,
    /// Terminate with a report.
    Core,
    Ignore,
    Stop,
    Continue,
}

/// signal(7), "Standard signals".
pub const fn default_action(signal: i32) -> DefaultAction {
    match signal {
        SIGQUIT | SIGILL | SIGTRAP | SIGABRT | SIGBUS | SIGFPE | SIGSEGV | SIGXCPU | SIGXFSZ | SIGSYS => {
            DefaultAction::Core
        }
        SIGCHLD | SIGURG | SIGWINCH => DefaultAction::Ignore,
        SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => DefaultAction::Stop,
        SIGCONT => DefaultAction::Continue,
        _ => DefaultAction::Terminate,
    }
}

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The name; "real-time signal" for those that have numbers only.
pub fn name(signal: i32) -> &'static str {
    usize::try_from(signal - 1).ok().and_then(|i| NAMES.get(i).copied()).unwrap_or("real-time signal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::linux::general as linux;

    #[test]
    fn numbers_and_names_are_those_of_linux() {
        assert_eq!(SIGSYS as u32, linux::SIGSYS);
        assert_eq!(SIGPOLL as u32, linux::SIGPOLL);
        assert_eq!(SIGRTMIN as u32, linux::SIGRTMIN);
        assert_eq!(name(SIGSEGV), "SIGSEGV");
        assert_eq!(name(SIGPROF), "SIGPROF");
        assert_eq!(name(SIGSYS), "SIGSYS");
        assert_eq!(name(0), name(64));
    }
}
