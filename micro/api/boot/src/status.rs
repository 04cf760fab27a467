// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine reports.

use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;

/// One line on the status port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The kernel is about to jump to the program's first instruction; nanoseconds since the kernel's first.
    Started { kernel_ns: u64 },
    /// A server socket of the program listens (TCP) or is bound to a non-ephemeral port (UDP).
    Listening { udp: bool, port: u16 },
    /// The program wants input for the first time, and takes it by the port that its output goes over, or by the console. Said where the host
    /// has such a port and the input is no terminal's.
    Input { by_port: bool },
    /// The program asked for a system call the kernel does not have; sent at the first time for each number.
    Missing { number: u32 },
    /// The program ended of its own will.
    Exit { code: u8 },
    /// The program was killed by a signal (Linux numbering).
    Signal { number: u8 },
    /// The machine ran out of memory; bytes it was given.
    OutOfMemory { given: u64 },
    /// Process machines, at the end: how many calls came by a signal (Syscall User Dispatch) instead of a patched site.
    Trapped { count: u64 },
    /// Process machines: a file of the image that the program has mapped to be executed, for debuggers.
    Mapped { address: u64, offset: u64, path: String },
    /// A line of the kernel's log, which would otherwise stand among what the program prints.
    Log { text: String },
    /// The kernel could not start the program or hit a fault of its own; one line for the user.
    Failed { reason: String },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Started { kernel_ns } => write!(f, "started {kernel_ns}"),
            Status::Listening { udp, port } => {
                write!(f, "listening {} {port}", if *udp { "udp" } else { "tcp" })
            }
            Status::Input { by_port } => write!(f, "input {}", if *by_port { "port" } else { "console" }),
            Status::Missing { number } => write!(f, "missing {number}"),
            Status::Exit { code } => write!(f, "exit {code}"),
            Status::Signal { number } => write!(f, "signal {number}"),
            Status::OutOfMemory { given } => write!(f, "out-of-memory {given}"),
            Status::Trapped { count } => write!(f, "trapped {count}"),
            Status::Mapped { address, offset, path } => {
                one_line(f, &format!("mapped {address:#x} {offset:#x} "), path)
            }
            Status::Log { text } => one_line(f, "log ", text),
            Status::Failed { reason } => one_line(f, "failed ", reason),
        }
    }
}

fn one_line(f: &mut fmt::Formatter<'_>, word: &str, text: &str) -> fmt::Result {
    f.write_str(word)?;
    text.chars().try_for_each(|c| write!(f, "{}", if c == '\n' { ' ' } else { c }))
}

impl Status {
    /// Reads one line without its newline; `None` for anything else than what [`Status`] prints.
    pub fn parse(line: &str) -> Option<Status> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "started" => Status::Started { kernel_ns: rest.parse().ok()? },
            "input" => {
                let by_port = match rest {
                    "port" => true,
                    "console" => false,
                    _ => return None,
                };
                Status::Input { by_port }
            }
            "listening" => {
                let (protocol, port) = rest.split_once(' ')?;
                let udp = match protocol {
                    "udp" => true,
                    "tcp" => false,
                    _ => return None,
                };
                Status::Listening { udp, port: port.parse().ok()? }
            }
            "missing" => Status::Missing { number: rest.parse().ok()? },
            "exit" => Status::Exit { code: rest.parse().ok()? },
            "signal" => Status::Signal { number: rest.parse().ok()? },
            "out-of-memory" => Status::OutOfMemory { given: rest.parse().ok()? },
            "trapped" => Status::Trapped { count: rest.parse().ok()? },
            "mapped" => {
                let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                let (address, rest) = rest.split_once(' ')?;
                let (offset, path) = rest.split_once(' ')?;
                Status::Mapped { address: hex(address)?, offset: hex(offset)?, path: path.to_string() }
            }
            "log" => Status::Log { text: rest.to_string() },
            "failed" => Status::Failed { reason: rest.to_string() },
            _ => return None,
        })
    }
}
