// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of a few bytes, for tests of the command itself: it prints what it is told to and ends as it is told to.

/// The console (COM1), the status port and the port that ends QEMU: see `api-boot`.
const CONSOLE: u16 = 0x3f8;
const STATUS: u16 = 0xe9;
const EXIT: u16 = 0xf4;
/// Where it is loaded.
const BASE: u32 = 0x10_0000;

/// What the guest does, step by step.
#[derive(Clone, Debug, Default)]
pub struct Script {
    code: Vec<u8>,
}

impl Script {
    pub fn new() -> Script {
        Script::default()
    }

    /// Prints to the console.
    pub fn print(mut self, text: &str) -> Script {
        self.put(CONSOLE, text);
        self
    }

    /// Sends a status line.
    pub fn status(mut self, line: &str) -> Script {
        self.put(STATUS, line);
        self.put(STATUS, "\n");
        self
    }

    fn put(&mut self, port: u16, text: &str) {
        self.code.extend([0x66, 0xba]); // mov $port, %dx
        self.code.extend(port.to_le_bytes());
        for byte in text.bytes() {
            self.code.extend([0xb0, byte, 0xee]); // mov $byte, %al; out %al, (%dx)
        }
    }

    /// Prints a text of two bytes to the console again and again, for ever.
    pub fn print_for_ever(self, text: [u8; 2]) -> Script {
        self.send_for_ever(CONSOLE, text)
    }

    /// Sends a text of two bytes to the status port again and again, for ever.
    pub fn report_for_ever(self, text: [u8; 2]) -> Script {
        self.send_for_ever(STATUS, text)
    }

    fn send_for_ever(mut self, port: u16, text: [u8; 2]) -> Script {
        self.code.extend([0x66, 0xba]); // mov $port, %dx
        self.code.extend(port.to_le_bytes());
        let begin = self.code.len();
        for byte in text {
            if port == CONSOLE {
                // mov $0x3fd, %dx; 1: in (%dx), %al; test $0x20, %al; jz 1b; mov $0x3f8, %dx: until the port takes a byte
                self.code
                    .extend([0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0x66, 0xba, 0xf8, 0x03]);
            }
            self.code.extend([0xb0, byte, 0xee]); // mov $byte, %al; out %al, (%dx)
        }
        let back = self.code.len() - begin + 2;
        self.code.extend([0xeb, (back as u8).wrapping_neg()]); // jmp begin
        self
    }

    /// Waits for one byte on the console and then goes on.
    pub fn wait_for_input(mut self) -> Script {
        // mov $0x3fd, %dx; 1: in (%dx), %al; test $1, %al; jz 1b; mov $0x3f8, %dx; in (%dx), %al
        self.code
            .extend([0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xfb, 0x66, 0xba, 0xf8, 0x03, 0xec]);
        self
    }

    /// Waits for a break on the console, as a machine that is asked to stop does.
    pub fn wait_for_break(mut self) -> Script {
        // mov $0x3fd, %dx; 1: in (%dx), %al; test $0x10, %al; jz 1b
        self.code.extend([0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x10, 0x74, 0xfb]);
        self
    }

    /// Ends QEMU. Without it the guest sleeps for ever at the end of its script.
    pub fn end(mut self) -> Script {
        self.code.extend([0x66, 0xba]);
        self.code.extend(EXIT.to_le_bytes());
        self.code.extend([0x31, 0xc0, 0xef]); // xor %eax, %eax; out %eax, (%dx)
        self
    }

    /// Restarts the machine by a triple fault.
    pub fn restart(mut self) -> Script {
        // lidt with zeros of the file's head (e_ident); ud2: there is no handler, nor one for that.
        self.code.extend([0x0f, 0x01, 0x1d]);
        self.code.extend((BASE + 8).to_le_bytes());
        self.code.extend([0x0f, 0x0b]);
        self
    }

    /// A 32-bit ELF file with a PVH entry note.
    pub fn assemble(&self) -> Vec<u8> {
        const HEADERS: u32 = 52 + 2 * 32;
        const NOTE: u32 = 20;
        let mut code = self.code.clone();
        code.extend([0xfa, 0xf4, 0xeb, 0xfc]); // 1: cli; hlt; jmp 1b
        let entry = BASE + HEADERS + NOTE;
        let size = HEADERS + NOTE + code.len() as u32;
        let mut out = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
        let words = |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
        words(&mut out, &[1, entry, 52, 0, 0]);
        for half in [52u16, 32, 2, 0, 0, 0] {
            out.extend(half.to_le_bytes());
        }
        words(&mut out, &[1, 0, BASE, BASE, size, size, 7, 4096]); // PT_LOAD
        words(&mut out, &[4, HEADERS, BASE + HEADERS, BASE + HEADERS, NOTE, NOTE, 4, 4]); // PT_NOTE
        words(&mut out, &[4, 4, 18]); // XEN_ELFNOTE_PHYS32_ENTRY
        out.extend(b"Xen\0");
        words(&mut out, &[entry]);
        out.extend(code);
        out
    }
}
