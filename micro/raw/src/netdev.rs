// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `unilith/netdev.h`, with the addresses that the program gave.

use crate::port::{BUFFERS, BURST, Packet, Port};
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_netdev::NetDevice;
use api_sched::WaitQueue;

/// What the host gave the machine for a device, in network byte order; zeroes: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub address: [u8; 4],
    pub netmask: [u8; 4],
    pub gateway: [u8; 4],
}

/// A device of the machine.
enum Device {
    /// TCP/IP has it.
    Stacks,
    Free(Arc<dyn NetDevice>, Given),
    Open(Box<Port>),
}

static DEVICES: SpinLock<Vec<Device>> = SpinLock::new(Vec::new());

/// Threads that sleep until a packet comes.
static WAITERS: WaitQueue = WaitQueue::new();

/// Whom to wait with for [`ready`].
pub fn waiters() -> &'static WaitQueue {
    &WAITERS
}

/// Adds a device, before the program runs. `None`: it is the stack's.
pub fn add(device: Option<(Arc<dyn NetDevice>, Given)>) {
    DEVICES.lock().push(match device {
        Some((device, given)) => Device::Free(device, given),
        None => Device::Stacks,
    });
}

fn interrupted() {
    WAITERS.wake_all(Events::IN);
}

pub fn count() -> usize {
    DEVICES.lock().len()
}

/// `unilith_netdev_open`.
pub fn open(index: usize, info: u64) -> Result<usize> {
    let device = DEVICES.lock().get(index).map(|device| match device {
        Device::Stacks => Err(true),
        Device::Open(_) => Err(false),
        Device::Free(device, given) => Ok((device.clone(), *given)),
    });
    let (device, given) = match device.ok_or(ENODEV)? {
        Ok(free) => free,
        Err(is_the_stacks) => {
            if is_the_stacks {
                log::error!(
                    "netdev: TCP/IP has network device {index}, for the program calls socket: leave it out with --set net=none"
                );
            }
            return Err(EBUSY);
        }
    };
    api_user::write_bytes(info, &describe(&*device, given))?;
    let port = Box::new(Port::new(device.clone()).ok_or(ENOMEM)?);
    let mut devices = DEVICES.lock();
    match devices.get_mut(index) {
        Some(free @ Device::Free(..)) => *free = Device::Open(port),
        _ => return Err(EBUSY),
    }
    drop(devices);
    device.on_interrupt(api_sched::add_deferred_work(interrupted));
    Ok(0)
}

/// `struct unilith_netdev_info`.
fn describe(device: &dyn NetDevice, given: Given) -> [u8; 28] {
    let info = device.info();
    let mut out = [0; 28];
    out[..6].copy_from_slice(&info.mac);
    out[6..8].copy_from_slice(&(info.mtu as u16).to_ne_bytes());
    out[8..12].copy_from_slice(&given.address);
    out[12..16].copy_from_slice(&given.netmask);
    out[16..20].copy_from_slice(&given.gateway);
    out[20..24].copy_from_slice(&(BUFFERS as u32).to_ne_bytes());
    out[24..].copy_from_slice(&(info.headroom as u32).to_ne_bytes());
    out
}

fn opened(devices: &mut [Device], index: usize) -> Result<&mut Port> {
    match devices.get_mut(index) {
        Some(Device::Open(port)) => Ok(port),
        _ => Err(EBADF),
    }
}

/// Lets `next` make up to `count` packets and writes them to the program's memory.
fn hand_out(
    index: usize,
    packets: u64,
    count: usize,
    prepare: fn(&mut Port) -> bool,
    next: fn(&mut Port) -> Option<Packet>,
) -> Result<usize> {
    let mut devices = DEVICES.lock();
    let port = opened(&mut devices, index)?;
    if !prepare(port) {
        return Ok(0);
    }
    let mut bytes = core::mem::take(&mut port.scratch);
    bytes.clear();
    for _ in 0..count.min(BURST) {
        let Some(packet) = next(port) else { break };
        bytes.extend_from_slice(&packet.to_bytes());
    }
    drop(devices);
    let written = api_user::write_bytes(packets, &bytes);
    let mut devices = DEVICES.lock();
    let port = opened(&mut devices, index)?;
    let given = bytes.len() / Packet::SIZE;
    if written.is_err() {
        for packet in packets_in(&bytes) {
            port.free(packet)?;
        }
    }
    port.scratch = bytes;
    written.map(|()| given)
}

fn packets_in(bytes: &[u8]) -> impl Iterator<Item = Packet> {
    bytes.as_chunks().0.iter().map(Packet::from_bytes)
}

/// Reads up to a burst of packets from the program's memory and lets `each` have them.
fn take_in(
    index: usize,
    packets: u64,
    count: usize,
    each: impl FnOnce(&mut Port, &[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut bytes = core::mem::take(&mut opened(&mut DEVICES.lock(), index)?.scratch);
    bytes.resize(count.min(BURST) * Packet::SIZE, 0);
    let read = api_user::read_bytes(packets, &mut bytes);
    let mut devices = DEVICES.lock();
    let port = opened(&mut devices, index)?;
    let done = read.and_then(|()| each(port, &bytes));
    port.scratch = bytes;
    done
}

/// `unilith_netdev_allocate`.
pub fn allocate(index: usize, packets: u64, count: usize) -> Result<usize> {
    hand_out(index, packets, count, |_| true, Port::allocate)
}

/// `unilith_netdev_rx_burst`.
pub fn rx_burst(index: usize, packets: u64, count: usize) -> Result<usize> {
    hand_out(index, packets, count, Port::look, Port::receive)
}

/// `unilith_netdev_free`.
pub fn free(index: usize, packets: u64, count: usize) -> Result<usize> {
    let mut done = 0;
    while done < count {
        let rest = (count - done).min(BURST);
        take_in(index, packets.wrapping_add((done * Packet::SIZE) as u64), rest, |port, packets| {
            packets_in(packets).try_for_each(|packet| port.free(packet)).map(|()| 0)
        })?;
        done += rest;
    }
    Ok(count)
}

/// `unilith_netdev_tx_burst`.
pub fn tx_burst(index: usize, packets: u64, count: usize) -> Result<usize> {
    take_in(index, packets, count, |port, packets| {
        let (mut offered, mut refused) = (0, Ok(()));
        for packet in packets_in(packets) {
            refused = port.offer(packet);
            if refused.is_err() {
                break;
            }
            offered += 1;
        }
        match refused {
            Err(e) if offered == 0 => Err(e),
            _ => Ok(port.send()),
        }
    })
}

/// Whether a packet has come; `EAGAIN` when there will be an interrupt when one does.
pub fn ready(index: usize) -> Result<usize> {
    let mut devices = DEVICES.lock();
    let port = opened(&mut devices, index)?;
    loop {
        if port.look() {
            return Ok(1);
        }
        if port.device().arm_interrupt(0) {
            return Err(EAGAIN);
        }
    }
}
