// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of sockets (socket(7), SO_ATTACH_FILTER): where they are in the program's memory, and how many instructions they have.

use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_socket::Socket;
use api_socket::options::int;
use classic_bpf::packet::Environment;
use classic_bpf::{Instruction, MAX_INSTRUCTIONS};
use task::files;

/// The same number as SO_ATTACH_FILTER.
pub const SO_GET_FILTER: u32 = linux::SO_ATTACH_FILTER;
/// `sizeof(struct sock_fprog)`.
const SOCK_FPROG: usize = 16;

/// What programs ask for that is not their packet's.
struct Machine;

impl Environment for Machine {
    fn processor(&self) -> u32 {
        api_plat::cpu()
    }

    fn random(&self) -> u32 {
        let mut bytes = [0; 4];
        api_plat::entropy(&mut bytes);
        u32::from_ne_bytes(bytes)
    }
}

pub fn initialise() {
    api_socket::filter::register_environment(&Machine);
}

/// Attaches a program: `None` when the option is another one.
pub fn set(socket: &dyn Socket, name: u32, value: &[u8]) -> Option<Result<()>> {
    match name {
        linux::SO_ATTACH_FILTER | linux::SO_ATTACH_REUSEPORT_CBPF => Some(attach(socket, name, value)),
        linux::SO_ATTACH_BPF | linux::SO_ATTACH_REUSEPORT_EBPF => Some(attach_descriptor(socket, value)),
        _ => None,
    }
}

/// `EPERM` when the socket's programs may not be changed (SO_LOCK_FILTER), which Linux says first.
fn check_lock(socket: &dyn Socket) -> Result<()> {
    let locked = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_LOCK_FILTER as i32, &[])?;
    if int(&locked)? != 0 { Err(EPERM) } else { Ok(()) }
}

fn attach(socket: &dyn Socket, name: u32, value: &[u8]) -> Result<()> {
    let program: &[u8; SOCK_FPROG] = value.try_into().map_err(|_| EINVAL)?;
    let ([low, high, ..], at) = (program, program.last_chunk().map_or(0, |at| u64::from_ne_bytes(*at)));
    let length = usize::from(u16::from_ne_bytes([*low, *high]));
    check_lock(socket)?;
    if at == 0 || length == 0 || length > MAX_INSTRUCTIONS {
        return Err(EINVAL);
    }
    let instructions = api_user::read_vec(at, length * Instruction::SIZE)?;
    socket.set_option(linux::SOL_SOCKET as i32, name as i32, &instructions)
}

/// A program of bpf(2), of which there are none: `EBADF` when nothing is open there, `EINVAL` when something else is.
fn attach_descriptor(socket: &dyn Socket, value: &[u8]) -> Result<()> {
    let value: &[u8; 4] = value.try_into().map_err(|_| EINVAL)?;
    check_lock(socket)?;
    files::get(i32::from_ne_bytes(*value)).and(Err(EINVAL))
}

/// SO_GET_FILTER: writes the program to where there is room for `room` instructions. How many it has; with room for none, that alone.
pub fn read_back(socket: &dyn Socket, to: u64, room: usize) -> Result<usize> {
    let bytes: Vec<u8> = socket.get_option(linux::SOL_SOCKET as i32, SO_GET_FILTER as i32, &[])?;
    let instructions = bytes.len() / Instruction::SIZE;
    match room {
        0 => {}
        _ if instructions == 0 => {}
        _ if room < instructions => return Err(EINVAL),
        _ => api_user::write_bytes(to, &bytes)?,
    }
    Ok(instructions)
}
