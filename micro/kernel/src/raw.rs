// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The raw APIs' functions as a linked program calls them: `linked.s` enters these, `micro/raw` serves them.

use crate::machine::Devices;
use abi::Result;
use abi::errno::{EAGAIN, EINTR};
use alloc::vec::Vec;
use api_plat::{Access, BootConfig, Ipv4Prefix, Status, TrapFrame};
use api_sched::WaitQueue;
use posix::dispatch::{Outcome, serve};
use raw::blockdev;
use raw::netdev::{self, Given};
use raw::shfs;
use task::Call;
use task::wait::RESTART;

#[unsafe(no_mangle)]
fn unilith_netdev_start(config: &BootConfig, devices: &mut Devices, stack_has_one: bool) {
    if stack_has_one {
        netdev::add(None);
    }
    // A host gives the first device its address; the others have none.
    let mut given = if stack_has_one { Given::default() } else { given(config) };
    while !(stack_has_one && cfg!(feature = "plat-process"))
        && let Some(device) = devices.network(false)
    {
        netdev::add(Some((device, core::mem::take(&mut given))));
        if cfg!(feature = "plat-process") {
            break;
        }
    }
}

#[unsafe(no_mangle)]
fn unilith_netdev_none(_: &BootConfig, _: &mut Devices, _: bool) {}

#[unsafe(no_mangle)]
fn unilith_block_start(devices: &mut Devices) {
    devices.disks(&mut blockdev::add);
}

#[unsafe(no_mangle)]
fn unilith_block_none(_: &mut Devices) {}

fn given(config: &BootConfig) -> Given {
    let Some(Ipv4Prefix { address, length }) = &config.ip else { return Given::default() };
    let netmask = u32::MAX.checked_shl(32 - u32::from(*length)).unwrap_or(0);
    Given { address: *address, netmask: netmask.to_be_bytes(), gateway: config.gateway.unwrap_or_default() }
}

fn answer(result: Result<usize>) -> usize {
    result.unwrap_or_else(|e| e.to_return())
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_count() -> usize {
    netdev::count()
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_open(device: u32, info: u64) -> usize {
    answer(netdev::open(device as usize, info))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_listening(is_udp: i32, port: u16) -> usize {
    api_plat::status(&Status::Listening { udp: is_udp != 0, port });
    0
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_allocate(device: u32, packets: u64, count: u32) -> usize {
    answer(netdev::allocate(device as usize, packets, count as usize))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_free(device: u32, packets: u64, count: u32) -> usize {
    answer(netdev::free(device as usize, packets, count as usize))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_rx_burst(device: u32, packets: u64, count: u32) -> usize {
    answer(netdev::rx_burst(device as usize, packets, count as usize))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_netdev_tx_burst(device: u32, packets: u64, count: u32) -> usize {
    answer(netdev::tx_burst(device as usize, packets, count as usize))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_call_raw_netdev_wait(frame: &mut TrapFrame) -> Outcome {
    serve(|call| wait(call, netdev::waiters(), netdev::ready), frame)
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_blockdev_count() -> usize {
    blockdev::count()
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_blockdev_open(device: u32, info: u64) -> usize {
    answer(blockdev::open(device as usize, info))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_blockdev_submit(device: u32, requests: u64, count: u32) -> usize {
    answer(blockdev::submit(device as usize, requests, count as usize, hold))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_blockdev_poll(device: u32, completions: u64, count: u32) -> usize {
    answer(blockdev::poll(device as usize, completions, count as usize))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_call_raw_blockdev_wait(frame: &mut TrapFrame) -> Outcome {
    serve(|call| wait(call, blockdev::waiters(), blockdev::ready), frame)
}

#[unsafe(no_mangle)]
extern "C" fn unilith_call_raw_shfs_mount(frame: &mut TrapFrame) -> Outcome {
    serve(|call| shfs::mount(call.uint(0) as usize), frame)
}

#[unsafe(no_mangle)]
extern "C" fn unilith_raw_serve_shfs_open(name: u64, length: usize, file: u64) -> usize {
    answer(shfs::open(name, length, file))
}

#[unsafe(no_mangle)]
extern "C" fn unilith_call_raw_shfs_read(frame: &mut TrapFrame) -> Outcome {
    serve(|call| shfs::read(call.uint(0), call.arg(1), call.arg(2), call.size(3), hold), frame)
}

/// Pages of the program's memory, for a device.
fn hold(address: u64, length: usize, is_written: bool) -> Vec<api_mem::PageFrame> {
    mem::current().hold(address, length, if is_written { Access::Write } else { Access::Read })
}

/// Sleeps until a device has something, or its time is over.
fn wait(call: &mut Call<'_>, waiters: &WaitQueue, ready: fn(usize) -> Result<usize>) -> Result<usize> {
    let (device, timeout_ns) = (call.uint(0) as usize, call.long(1));
    let deadline = match u64::try_from(timeout_ns) {
        Ok(timeout_ns) => api_plat::now_ns().saturating_add(timeout_ns),
        Err(_) => task::wait::FOREVER,
    };
    match task::wait::on_queue(waiters, abi::Events::IN, deadline, || ready(device)) {
        Err(EAGAIN) => Ok(0),
        Err(RESTART) => Err(EINTR),
        done => done,
    }
}
