// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program with an address.

use alloc::string::String;
use alloc::vec::Vec;

/// Where parts of the program are asked to be.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// A multiple of the page size.
    pub base: u64,
    /// What stack canaries are compared with.
    pub canary: u64,
}

/// A function or variable of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub address: u64,
    pub size: u64,
}

/// The bytes of a program. Segments begin at multiples of the page size.
#[derive(Clone, Debug)]
pub struct Image {
    /// Readable and executable, from the base on.
    pub text: Vec<u8>,
    /// Readable.
    pub rodata_address: u64,
    pub rodata: Vec<u8>,
    /// Readable and writable; zeros follow, `data_size` bytes in all.
    pub data_address: u64,
    pub data: Vec<u8>,
    pub data_size: u64,
    /// `int start(int argc, char **argv)`: constructors, `main`, destructors.
    pub start: u64,
    /// Ends the program with the status in EAX: the return address of `start`.
    pub leave: u64,
    /// The thread control block, for FS.
    pub thread_pointer: u64,
    /// Some code reaches the program's thread-local variables through FS.
    pub uses_fs: bool,
    /// Sorted by address.
    pub symbols: Vec<Symbol>,
}

impl Image {
    /// The symbol that holds `address`, for reports.
    pub fn describe(&self, address: u64) -> Option<(&str, u64)> {
        let end = self.symbols.partition_point(|s| s.address <= address);
        let symbol = self.symbols.get(end.checked_sub(1)?)?;
        let offset = address - symbol.address;
        (offset < symbol.size.max(1)).then_some((symbol.name.as_str(), offset))
    }

    /// Address of a function or variable of the program.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|s| s.name == name).map(|s| s.address)
    }
}
