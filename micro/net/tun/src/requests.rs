// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ioctl(2) of /dev/net/tun (tun(4), `linux/if_tun.h`).

use crate::device::*;
use crate::file::TunFile;
use crate::headers::VNET;
use abi::{Result, errno::*};
use api_netdev::Name;
use api_user::UserPtr;

const TUNSETNOCSUM: u32 = 0x4004_54c8;
const TUNSETDEBUG: u32 = 0x4004_54c9;
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETPERSIST: u32 = 0x4004_54cb;
const TUNSETOWNER: u32 = 0x4004_54cc;
const TUNSETLINK: u32 = 0x4004_54cd;
const TUNSETGROUP: u32 = 0x4004_54ce;
const TUNGETFEATURES: u32 = 0x8004_54cf;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNGETIFF: u32 = 0x8004_54d2;
const TUNGETSNDBUF: u32 = 0x8004_54d3;
const TUNSETSNDBUF: u32 = 0x4004_54d4;
const TUNGETVNETHDRSZ: u32 = 0x8004_54d7;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
const TUNSETQUEUE: u32 = 0x4004_54d9;
const TUNSETVNETLE: u32 = 0x4004_54dc;
const TUNGETVNETLE: u32 = 0x8004_54dd;
const TUNSETCARRIER: u32 = 0x4004_54e2;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCSIFHWADDR: u32 = 0x8924;
const IFF_ATTACH_QUEUE: u16 = 0x200;
const IFF_DETACH_QUEUE: u16 = 0x400;
/// TUN_F_CSUM, and what needs it: TSO4, TSO6, TSO_ECN, UFO.
const OFFLOAD_CHECKSUM: u64 = 1;
const OFFLOADS: u64 = 0x1f;
/// `sizeof(struct ifreq)`, and the field behind the name.
const IFREQ: usize = 40;
const FIELD: usize = 16;
/// The largest `vnet_size`: with more no frame is left (Linux takes any).
const MAX_VNET: i32 = 256;
const ARPHRD_ETHER: u64 = 1;
const ARPHRD_NONE: u64 = 0xfffe;

type Request = [u8; IFREQ];

fn flags_of(request: &Request) -> u16 {
    u16::from_ne_bytes([request[FIELD], request[FIELD + 1]])
}

/// Number and pointer arguments are told apart by each request.
pub fn answer(file: &TunFile, command: u32, argument: u64) -> Result<usize> {
    match command {
        TUNGETFEATURES => UserPtr::<u32>::new(argument).write(FEATURES.into())?,
        TUNSETIFF => {
            let pointer = UserPtr::<Request>::new(argument);
            let mut request = pointer.read()?;
            if file.device.lock().as_ref().is_some_and(|device| device.place().is_ok()) {
                return Err(EEXIST);
            }
            let name = attach(file, &request)?;
            request[..FIELD].copy_from_slice(&name.field());
            pointer.write(request)?;
        }
        TUNSETQUEUE => {
            let flags = flags_of(&UserPtr::<Request>::new(argument).read()?);
            set_queue(file, flags)?;
        }
        _ => return of_device(file, &*file.attached()?, command, argument),
    }
    Ok(0)
}

/// TUNSETIFF: the file becomes a queue of the interface of that name, which is made where there is none.
fn attach(file: &TunFile, request: &Request) -> Result<Name> {
    let flags = flags_of(request);
    let default = if flags & IFF_TAP != 0 { "tap%d" } else { "tun%d" };
    let name = match request[0] {
        0 => Name::new(default),
        _ => Name::parse(&request[..FIELD])?,
    };
    let found = if name.is_pattern()? { Err(ENODEV) } else { file.network.port(&name) };
    match found {
        Ok((index, port)) => {
            let device = port.into_any().downcast::<Device>().map_err(|_| EINVAL)?;
            if flags & IFF_TUN_EXCL != 0 {
                return Err(EBUSY);
            }
            let is_same = flags & if device.is_tap { IFF_TAP } else { IFF_TUN } != 0;
            if !is_same || (flags ^ device.settings().flags) & IFF_MULTI_QUEUE != 0 {
                return Err(EINVAL);
            }
            check_owner(&device)?;
            device.attach(&file.queue)?;
            device.set(|settings| {
                settings.flags = flags & (IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE | IFF_ONE_QUEUE);
            });
            *file.device.lock() = Some(device);
            file.network.set_carrier(index, true);
            file.network.name(index)
        }
        Err(ENODEV) => {
            if !api_socket::may_administer() {
                return Err(EPERM);
            }
            if flags & (IFF_TUN | IFF_TAP) == 0 {
                return Err(EINVAL);
            }
            let device = Device::new(flags);
            device.attach(&file.queue)?;
            let (index, name) = file.network.add(&name, device.is_tap, device.clone())?;
            device.settle_at(Place { interfaces: file.network.clone(), index });
            *file.device.lock() = Some(device);
            Ok(name)
        }
        Err(error) => Err(error),
    }
}

/// Whoever the interface is not for administers the network (Linux' `tun_not_capable`).
fn check_owner(device: &Device) -> Result<()> {
    let settings = device.settings();
    let own = api_socket::credentials();
    let is_others = settings.owner.is_some_and(|owner| own.is_none_or(|own| own.uid != owner))
        || settings.group.is_some_and(|group| own.is_none_or(|own| own.gid != group));
    if is_others && !api_socket::may_administer() { Err(EPERM) } else { Ok(()) }
}

/// TUNSETQUEUE: the file's queue is none of its interface's for a while.
fn set_queue(file: &TunFile, flags: u16) -> Result<()> {
    let device = file.attached().map_err(|_| EINVAL)?;
    match flags {
        IFF_ATTACH_QUEUE => {
            check_owner(&device)?;
            let (was_there, _) = device.detach(&file.queue);
            device.attach(&file.queue)?;
            if was_there { Err(EINVAL) } else { Ok(()) }
        }
        IFF_DETACH_QUEUE if device.settings().flags & IFF_MULTI_QUEUE == 0 => Err(EINVAL),
        IFF_DETACH_QUEUE => {
            let (was_there, _) = device.detach(&file.queue);
            file.queue.clear();
            if was_there { Ok(()) } else { Err(EINVAL) }
        }
        _ => Err(EINVAL),
    }
}

fn of_device(file: &TunFile, device: &Device, command: u32, argument: u64) -> Result<usize> {
    let place = device.place()?;
    let id = Some(argument as u32).filter(|id| *id != u32::MAX);
    match command {
        TUNGETIFF => {
            let mut request = [0; IFREQ];
            request[..FIELD].copy_from_slice(&place.interfaces.name(place.index)?.field());
            request[FIELD..FIELD + 2].copy_from_slice(&device.shown_flags().to_ne_bytes());
            UserPtr::<Request>::new(argument).write(request)?;
        }
        // Checksums are always made, and nothing is told.
        TUNSETNOCSUM | TUNSETDEBUG => {}
        TUNSETPERSIST => device.set(|settings| settings.is_persistent = argument != 0),
        TUNSETOWNER => device.set(|settings| settings.owner = id),
        TUNSETGROUP => device.set(|settings| settings.group = id),
        TUNSETLINK => {
            let own = if device.is_tap { ARPHRD_ETHER } else { ARPHRD_NONE };
            if argument != own {
                return Err(EINVAL);
            }
        }
        TUNSETOFFLOAD => {
            let is_sound = argument & !OFFLOADS == 0 && (argument == 0 || argument & OFFLOAD_CHECKSUM != 0);
            if !is_sound {
                return Err(EINVAL);
            }
        }
        TUNGETSNDBUF => UserPtr::<i32>::new(argument).write(device.settings().send_buffer)?,
        TUNSETSNDBUF => match UserPtr::<i32>::new(argument).read()? {
            size @ 1.. => device.set(|settings| settings.send_buffer = size),
            _ => return Err(EINVAL),
        },
        TUNGETVNETHDRSZ => UserPtr::<i32>::new(argument).write(device.settings().vnet_size as i32)?,
        TUNSETVNETHDRSZ => match UserPtr::<i32>::new(argument).read()? {
            size if (VNET as i32..=MAX_VNET).contains(&size) => {
                device.set(|settings| settings.vnet_size = size as usize);
            }
            _ => return Err(EINVAL),
        },
        TUNGETVNETLE => UserPtr::<i32>::new(argument).write(device.settings().is_little_endian.into())?,
        TUNSETVNETLE => {
            let is_little = UserPtr::<i32>::new(argument).read()? != 0;
            device.set(|settings| settings.is_little_endian = is_little);
        }
        TUNSETCARRIER => {
            let is_on = UserPtr::<u32>::new(argument).read()? != 0;
            place.interfaces.set_carrier(place.index, is_on);
        }
        SIOCGIFHWADDR => {
            let mut request = [0; IFREQ];
            request[..FIELD].copy_from_slice(&place.interfaces.name(place.index)?.field());
            let kind = if device.is_tap { ARPHRD_ETHER } else { ARPHRD_NONE } as u16;
            request[FIELD..FIELD + 2].copy_from_slice(&kind.to_ne_bytes());
            request[FIELD + 2..FIELD + 8].copy_from_slice(&place.interfaces.address(place.index)?);
            UserPtr::<Request>::new(argument).write(request)?;
        }
        SIOCSIFHWADDR => {
            let request = UserPtr::<Request>::new(argument).read()?;
            let mac = request[FIELD + 2..FIELD + 8].first_chunk().copied().ok_or(EINVAL)?;
            place.interfaces.set_address(place.index, mac)?;
        }
        _ => return Err(EINVAL),
    }
    let _ = file;
    Ok(0)
}
