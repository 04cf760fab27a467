// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest program in Rust: says who it runs next to.
#![no_std]
#![no_main]
extern crate alloc;

use alloc::string::String;
use unilith_program::{File, counters, println, program};

program!(main);

fn main(arguments: &[&[u8]]) -> i32 {
    let mut name = [0; 64];
    let name = match File::open(c"/proc/self/comm").and_then(|file| file.read(&mut name)) {
        Ok(count) => String::from_utf8_lossy(name[..count].trim_ascii()),
        Err(e) => {
            println!("cannot read /proc/self/comm: error {}", e.0);
            return 1;
        }
    };
    let counters = counters();
    println!("{} argument(s), next to {name}: {} thread(s)", arguments.len() - 1, counters.threads);
    0
}
