// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ACPI says of switching the computer off, and of the button for that: the registers of the fixed hardware (ACPI 6.5, 4.8.3) in the
//! FADT (5.2.9), and the value for the state S5, which is in the program of the DSDT as a package called `_S5_` (7.4.2). That program is not
//! run: the package is looked for.

use crate::acpi::{self, Physical, Result, u16_at, u32_at, u64_at};
use crate::windows::Line;

/// Where things are in the FADT.
const DSDT: usize = 40;
const SCI_INTERRUPT: usize = 46;
const SMI_COMMAND: usize = 48;
const ACPI_ENABLE: usize = 52;
const EVENT_BLOCK: usize = 56;
const CONTROL_BLOCKS: [usize; 2] = [64, 68];
const EVENT_LENGTH: usize = 88;
const FLAGS: usize = 112;
const LONG_DSDT: usize = 140;
const SLEEP_CONTROL: usize = 244;
/// Flags: the button is no fixed hardware; there is no fixed hardware at all.
const NO_BUTTON: u32 = 1 << 4;
const IS_REDUCED: u32 = 1 << 20;
/// An address of the table's long form that is an I/O port (5.2.3.2).
const IN_PORTS: u8 = 1;
/// The control register: the type of sleep from bit 10 on, and its beginning. The sleep control register has them from 2 on and at 5.
const TYPE_SHIFT: u32 = 10;
const SLEEP: u16 = 1 << 13;
const SLEEP_MASK: u16 = 7 << TYPE_SHIFT | SLEEP;
/// The end of the DSDT's header.
const PROGRAM: usize = 36;
/// Bytes of its program (20.2).
const NAME: u8 = 8;
const PACKAGE: u8 = 0x12;
const BYTE: u8 = 0x0a;
const WORD: u8 = 0x0b;

/// How the computer is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// What is written to the one or two control registers, over what [`Off::value`] keeps of them.
    Control([(u16, u16); 2]),
    /// What is written to the sleep control register.
    Sleep(u16, u8),
}

impl Off {
    /// The value of a control register that held `old`.
    pub fn value(old: u16, new: u16) -> u16 {
        old & !SLEEP_MASK | new
    }
}

/// The power button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Button {
    /// The port of the status register, and that of the enable register.
    pub status: u16,
    pub enable: u16,
    /// A register that says whether the hardware is the operating system's, and what asks firmware for it: a port and a value.
    pub control: u16,
    pub hand_over: Option<(u16, u8)>,
    /// The interrupt, and whether it is active when the line is low.
    pub line: Line,
    pub is_low: bool,
}

/// The bit of the button in both registers, and that of the control register for whose the hardware is.
pub const PRESSED: u16 = 1 << 8;
pub const IS_OURS: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    pub off: Off,
    pub button: Option<Button>,
}

/// What the tables say; `None`: nothing that can be used. `rsdp` as for [`acpi::find`].
pub fn find(memory: &impl Physical, rsdp: u64) -> Result<Option<Power>> {
    let Some(fadt) = acpi::find(memory, rsdp, b"FACP")? else { return Ok(None) };
    let long = u64_at(&fadt, LONG_DSDT).filter(|at| *at != 0);
    let dsdt = long.or(u32_at(&fadt, DSDT).map(u64::from)).unwrap_or(0);
    let Some(dsdt) = acpi::table(memory, dsdt, b"DSDT")? else { return Ok(None) };
    let Some([a, b]) = soft_off(&dsdt[PROGRAM..]) else { return Ok(None) };
    let flags = u32_at(&fadt, FLAGS).unwrap_or(0);
    if flags & IS_REDUCED != 0 {
        let at = u64_at(&fadt, SLEEP_CONTROL + 4).and_then(|at| u16::try_from(at).ok());
        let at = at.filter(|at| *at != 0 && fadt[SLEEP_CONTROL] == IN_PORTS);
        return Ok(at.map(|at| Power { off: Off::Sleep(at, a << 2 | 1 << 5), button: None }));
    }
    let port = |at: usize| u32_at(&fadt, at).and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
    let value = |kind: u8| u16::from(kind) << TYPE_SHIFT | SLEEP;
    let [first, second] = CONTROL_BLOCKS.map(port);
    if first == 0 {
        return Ok(None);
    }
    let off = Off::Control([(first, value(a)), (second, value(b))]);
    let (status, length) = (port(EVENT_BLOCK), fadt.get(EVENT_LENGTH).copied().unwrap_or(0));
    if flags & NO_BUTTON != 0 || status == 0 || length < 4 {
        return Ok(Some(Power { off, button: None }));
    }
    let asks = (port(SMI_COMMAND), fadt[ACPI_ENABLE]);
    let (line, is_low) = interrupt(memory, rsdp, u16_at(&fadt, SCI_INTERRUPT).unwrap_or(0));
    let button = Button {
        status,
        enable: status.saturating_add(u16::from(length / 2)),
        control: first,
        hand_over: (asks.0 != 0 && asks.1 != 0).then_some(asks),
        line,
        is_low,
    };
    Ok(Some(Power { off, button: Some(button) }))
}

/// The two values of S5 in a DSDT's program.
fn soft_off(program: &[u8]) -> Option<[u8; 2]> {
    let at = program.windows(4).position(|name| name == b"_S5_")?;
    let before = program[..at].strip_suffix(b"\\").unwrap_or(&program[..at]);
    let rest = &program[at + 4..];
    if before.last() != Some(&NAME) || *rest.first()? != PACKAGE {
        return None;
    }
    // The two highest bits of a package's length say how many bytes of it follow; then comes the number of elements.
    let more = usize::from(*rest.get(1)? >> 6);
    let mut elements = rest.get(more + 3..)?;
    let mut next = || {
        let (value, length) = match *elements {
            [BYTE, value, ..] => (value, 2),
            [WORD, value, 0, ..] => (value, 3),
            [value @ 0..=1, ..] => (value, 1),
            _ => return None,
        };
        elements = &elements[length..];
        (value <= 7).then_some(value)
    };
    Some([next()?, next()?])
}

/// The input of the I/O APICs that ISA's interrupt is, and whether it is active low: an entry of the MADT may say so (5.2.12.5). Otherwise, as
/// the FADT's interrupt is one of PCI's kind, it is low.
fn interrupt(memory: &impl Physical, rsdp: u64, source: u16) -> (Line, bool) {
    const OVERRIDE: u8 = 2;
    let mut found = (Line(source as u8), true);
    let madt = acpi::find(memory, rsdp, b"APIC").ok().flatten();
    let mut rest = madt.as_deref().and_then(|madt| madt.get(44..)).unwrap_or(&[]);
    while let Some((entry, next)) =
        rest.get(1).and_then(|length| rest.split_at_checked(usize::from(*length).max(2)))
    {
        rest = next;
        if entry[0] == OVERRIDE && entry.len() >= 10 && u16::from(entry[3]) == source {
            let line = u32_at(entry, 4).and_then(|line| u8::try_from(line).ok()).unwrap_or(u8::MAX);
            // Polarity: 0 is the bus's own, 1 high, 3 low.
            found = (Line(line), entry[8] & 3 != 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acpi::tests::{Pieces, table};
    use std::vec::Vec;

    /// As QEMU's q35 has it.
    fn fadt(dsdt: u32) -> Vec<u8> {
        let mut body = std::vec![0; 268 - 36];
        let mut put = |at: usize, bytes: &[u8]| body[at - 36..][..bytes.len()].copy_from_slice(bytes);
        put(DSDT, &dsdt.to_le_bytes());
        put(SCI_INTERRUPT, &[9, 0]);
        put(SMI_COMMAND, &0xb2u32.to_le_bytes());
        put(ACPI_ENABLE, &[2]);
        put(EVENT_BLOCK, &0x600u32.to_le_bytes());
        put(CONTROL_BLOCKS[0], &0x604u32.to_le_bytes());
        put(EVENT_LENGTH, &[4]);
        body
    }

    const S5: &[u8] = b"\x08_S5_\x12\x06\x04\x0a\x05\x00\x00\x00";

    fn memory(fadt: &[u8], program: &[u8]) -> Pieces {
        let entry = [2, 10, 0, 9, 9, 0, 0, 0, 0xd, 0];
        let madt = table(b"APIC", &[&[0; 8][..], &entry].concat());
        Pieces::acpi(&[(0x6000, table(b"FACP", fadt)), (0x7000, madt)], &[(0x8000, table(b"DSDT", program))])
    }

    #[test]
    fn registers_and_values_are_those_of_the_tables() {
        let program = [b"\x10\x05_SB_\x08_S4_\x12\x06\x04\x0a\x06\x00\x00\x00", S5].concat();
        let power = find(&memory(&fadt(0x8000), &program), 0).unwrap().unwrap();
        assert_eq!(power.off, Off::Control([(0x604, 5 << 10 | SLEEP), (0, SLEEP)]));
        let button = power.button.unwrap();
        assert_eq!((button.status, button.enable, button.control), (0x600, 0x602, 0x604));
        assert_eq!((button.hand_over, button.line, button.is_low), (Some((0xb2, 2)), Line(9), false));
        assert_eq!(Off::value(0x1c01, 5 << 10 | SLEEP), 0x3401, "other bits stay");
    }

    #[test]
    fn reduced_hardware_has_a_register_of_its_own() {
        let mut reduced = fadt(0x8000);
        reduced[FLAGS - 36..][..4].copy_from_slice(&IS_REDUCED.to_le_bytes());
        assert_eq!(find(&memory(&reduced, S5), 0).unwrap(), None, "none is told");
        reduced[SLEEP_CONTROL - 36] = IN_PORTS;
        reduced[SLEEP_CONTROL + 4 - 36..][..2].copy_from_slice(&0x600u16.to_le_bytes());
        let power = find(&memory(&reduced, S5), 0).unwrap().unwrap();
        assert_eq!((power.off, power.button), (Off::Sleep(0x600, 0x34), None));
    }

    #[test]
    fn tables_that_lie_are_refused_or_not_used() {
        for program in [
            &b""[..],
            b"_S5_",
            b"\x08_S5_",
            b"\x08_S5_\x12",
            b"\x08_S5_\x12\x06\x04",
            b"\x00_S5_\x12\x06\x04\x00\x00",
            b"\x08_S5_\x12\xff\x04\x0a\x05",
            b"\x08_S5_\x12\x06\x04\x0a\x09\x00",
        ] {
            assert_eq!(find(&memory(&fadt(0x8000), program), 0), Ok(None), "{program:?}");
        }
        assert!(find(&memory(&fadt(0x9000), S5), 0).is_err(), "no memory");
        assert_eq!(find(&memory(&fadt(0x7000), S5), 0), Ok(None), "another table");
        for length in 0..fadt(0x8000).len() {
            let _ = find(&memory(&fadt(0x8000)[..length], S5), 0);
        }
        let mut seed = 7u32;
        for _ in 0..2_000 {
            let (mut fadt, mut program) = (fadt(0x8000), S5.to_vec());
            for bytes in [&mut fadt, &mut program] {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as usize % bytes.len();
                bytes[at] = seed as u8;
            }
            let _ = find(&memory(&fadt, &program), 0);
        }
    }
}
