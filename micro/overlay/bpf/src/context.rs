// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program gets in R1: a read-only structure whose layout is that of Linux, so that programs written for Linux
//! with its `vmlinux.h` or `bpf_tracing.h` find their fields, by offset or by name (CO-RE).

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Number,
    /// Start of the packet's bytes.
    Packet,
    /// Address of the byte behind the packet.
    PacketEnd,
}

/// A field: its name in C, offset and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: &'static str,
    pub offset: u16,
    pub size: u16,
    pub kind: Field,
}

const fn n(name: &'static str, offset: u16, size: u16) -> Member {
    Member { name, offset, size, kind: Field::Number }
}

/// The kinds of context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Context {
    /// `struct pt_regs`: entry to and return from a function, and samples.
    Registers = 1,
    /// `struct trace_event_raw_sys_enter`.
    CallEntry = 2,
    /// `struct trace_event_raw_sys_exit`.
    CallExit = 3,
    /// `struct trace_event_raw_sched_switch`.
    Switch = 4,
    /// `struct trace_event_raw_sched_wakeup_template`.
    Wakeup = 5,
    /// `struct unilith_packet`: a frame received or about to be sent.
    Packet = 6,
    /// `struct trace_event_raw_x86_exceptions`.
    Fault = 7,
}

const REGISTERS: &[Member] = &[
    n("r15", 0, 8),
    n("r14", 8, 8),
    n("r13", 16, 8),
    n("r12", 24, 8),
    n("bp", 32, 8),
    n("bx", 40, 8),
    n("r11", 48, 8),
    n("r10", 56, 8),
    n("r9", 64, 8),
    n("r8", 72, 8),
    n("ax", 80, 8),
    n("cx", 88, 8),
    n("dx", 96, 8),
    n("si", 104, 8),
    n("di", 112, 8),
    n("orig_ax", 120, 8),
    n("ip", 128, 8),
    n("cs", 136, 8),
    n("flags", 144, 8),
    n("sp", 152, 8),
    n("ss", 160, 8),
];
const CALL_ENTRY: &[Member] = &[n("id", 8, 8), n("args", 16, 48)];
const CALL_EXIT: &[Member] = &[n("id", 8, 8), n("ret", 16, 8)];
const SWITCH: &[Member] = &[
    n("prev_comm", 8, 16),
    n("prev_pid", 24, 4),
    n("prev_prio", 28, 4),
    n("prev_state", 32, 8),
    n("next_comm", 40, 16),
    n("next_pid", 56, 4),
    n("next_prio", 60, 4),
];
const WAKEUP: &[Member] = &[n("comm", 8, 16), n("pid", 24, 4), n("prio", 28, 4), n("target_cpu", 32, 4)];
const PACKET: &[Member] = &[
    Member { name: "data", offset: 0, size: 8, kind: Field::Packet },
    Member { name: "data_end", offset: 8, size: 8, kind: Field::PacketEnd },
    n("len", 16, 4),
];

const FAULT: &[Member] = &[n("address", 8, 8), n("ip", 16, 8), n("error_code", 24, 8)];

/// The largest context in bytes.
pub const MAX_SIZE: usize = 168;

impl Context {
    pub const ALL: [Context; 7] = [
        Context::Registers,
        Context::CallEntry,
        Context::CallExit,
        Context::Switch,
        Context::Wakeup,
        Context::Packet,
        Context::Fault,
    ];

    pub fn from_number(number: u8) -> Option<Context> {
        Context::ALL.into_iter().find(|c| *c as u8 == number)
    }

    /// The structure's name in C.
    pub fn name(self) -> &'static str {
        match self {
            Context::Registers => "pt_regs",
            Context::CallEntry => "trace_event_raw_sys_enter",
            Context::CallExit => "trace_event_raw_sys_exit",
            Context::Switch => "trace_event_raw_sched_switch",
            Context::Wakeup => "trace_event_raw_sched_wakeup_template",
            Context::Packet => "unilith_packet",
            Context::Fault => "trace_event_raw_x86_exceptions",
        }
    }

    pub fn members(self) -> &'static [Member] {
        match self {
            Context::Registers => REGISTERS,
            Context::CallEntry => CALL_ENTRY,
            Context::CallExit => CALL_EXIT,
            Context::Switch => SWITCH,
            Context::Wakeup => WAKEUP,
            Context::Packet => PACKET,
            Context::Fault => FAULT,
        }
    }

    /// Bytes of the structure.
    pub fn size(self) -> usize {
        let last = self.members().last();
        last.map_or(0, |m| usize::from(m.offset + m.size)).next_multiple_of(8)
    }

    /// What a read of `size` bytes at `offset` gives; `None` where there is no such field.
    pub fn field(self, offset: i64, size: u32) -> Option<Field> {
        let end = offset.checked_add(i64::from(size))?;
        let m = self
            .members()
            .iter()
            .find(|m| i64::from(m.offset) <= offset && end <= i64::from(m.offset + m.size))?;
        (m.kind == Field::Number || size == u32::from(m.size)).then_some(m.kind)
    }
}
