// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of interfaces as those see it who have ports (`api_netdev::interface`), and how a stack gets its table.

use super::veth::{Backlog, Place};
use super::{Interfaces, Kind, New};
use crate::ip::{Configuration, Ip};
use crate::sockets::interface_flags::*;
use crate::stack::{Net, Stack};
use crate::wire::Mac;
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use api_netdev::interface::{self, Port};
use api_netdev::{Buffer, Name};

/// Largest packet of a new interface (Linux: `ETH_DATA_LEN`).
pub const USUAL_MTU: usize = 1500;

impl Ip {
    /// A made-up Ethernet address.
    pub(crate) fn random_mac(&mut self) -> Mac {
        let [a, b, c, d, e, f, ..] = self.random().to_ne_bytes();
        api_netdev::local_address([a, b, c, d, e, f])
    }

    /// The key of a table that strangers fill.
    pub(crate) fn new_key(&mut self) -> crate::hash::Keyed {
        crate::hash::Keyed::new(self.random())
    }

    /// The address that a DHCP server gave is gone.
    #[cfg(feature = "dhcp")]
    pub(crate) fn lose_configuration(&mut self) {
        let Some(all) = &mut self.interfaces else { return };
        let given = self.configuration.map(|configuration| configuration.address);
        let device = all.get(super::DEVICE).ok();
        let found =
            device.and_then(|device| device.addresses.iter().find(|known| Some(known.local) == given));
        if let Some(address) = found.copied() {
            // It is there: it was just found.
            let _ = all.remove_address(super::DEVICE, &address);
        }
    }

    /// After a change: what is known of the device outside of the table is as the table has it.
    pub(crate) fn follow_interfaces(&mut self) {
        let Some(interfaces) = &self.interfaces else { return };
        if self.info.is_none() {
            return;
        }
        self.configuration = interfaces.configuration();
        if let (Ok(device), Some(info)) = (interfaces.get(super::DEVICE), &mut self.info) {
            info.mtu = device.mtu;
        }
    }
}

impl Stack {
    /// The table of interfaces, which is made by the first change of a program.
    pub(crate) fn interfaces_mut(&mut self, net: &Arc<Net>) -> Result<&mut Interfaces> {
        if self.ip.interfaces.is_none() {
            let place = Place { net: Arc::downgrade(net), backlog: Arc::new(Backlog::default()) };
            let mut new = Interfaces::new(place)?;
            new.notices.listeners = net.listeners.clone();
            new.set_mtu(super::LOOPBACK, self.ip.lo.mtu as usize)?;
            if let Some(info) = self.ip.info {
                new.add_device(info.mac, info.mtu)?;
                if let Some(configuration) = self.ip.configuration {
                    new.configure(super::DEVICE, &configuration)?;
                }
            }
            // What has been there all along is no news.
            while new.notices.pop().is_some() {}
            self.ip.interfaces = Some(Box::new(new));
        }
        self.ip.interfaces.as_deref_mut().ok_or(ENOMEM)
    }

    /// Changes the table, and what depends on it.
    pub(crate) fn change_interfaces<R>(
        &mut self,
        net: &Arc<Net>,
        change: impl FnOnce(&mut Interfaces) -> Result<R>,
    ) -> Result<R> {
        let result = change(self.interfaces_mut(net)?);
        self.ip.follow_interfaces();
        result
    }
}

/// The interfaces of a stack for others, whose ports do not keep the stack.
struct StackInterfaces(Weak<Net>);

pub fn of(net: &Arc<Net>) -> Arc<dyn interface::Interfaces> {
    Arc::new(StackInterfaces(Arc::downgrade(net)))
}

/// Makes an interface of Ethernet that is up and has the address, and a default route by its gateway where it has one; its index.
/// `hardware`: its address and the largest packet. Errors as those of [`interface::Interfaces::add`].
pub fn place(
    net: &Arc<Net>,
    name: &str,
    configuration: &Configuration,
    (mac, mtu): (Mac, usize),
    port: Arc<dyn Port>,
) -> Result<u32> {
    let name = Name::parse(name.as_bytes())?;
    net.act(|stack, _| {
        stack.change_interfaces(net, |all| {
            let kind = Kind::Port { port, has_ethernet: true };
            let flags = IFF_UP | IFF_MULTICAST;
            let index = all.add(New { name, index: 0, kind, mac, mtu, flags, has_carrier: true })?;
            all.configure(index, configuration)?;
            Ok(index)
        })
    })
}

impl StackInterfaces {
    fn net(&self) -> Result<Arc<Net>> {
        self.0.upgrade().ok_or(ENODEV)
    }
}

impl interface::Interfaces for StackInterfaces {
    fn add(&self, name: &Name, has_ethernet: bool, port: Arc<dyn Port>) -> Result<(u32, Name)> {
        let net = self.net()?;
        net.act(|stack, _| {
            let mac = if has_ethernet { stack.ip.random_mac() } else { [0; 6] };
            let flags = if has_ethernet { IFF_MULTICAST } else { IFF_MULTICAST | IFF_NOARP };
            stack.change_interfaces(&net, |all| {
                let kind = Kind::Port { port, has_ethernet };
                let new = New { name: *name, index: 0, kind, mac, mtu: USUAL_MTU, flags, has_carrier: true };
                let index = all.add(new)?;
                if !has_ethernet {
                    all.get_mut(index)?.queue_length = 500;
                }
                Ok((index, all.get(index)?.name))
            })
        })
    }

    fn remove(&self, index: u32) {
        let Ok(net) = self.net() else { return };
        // What the interface held goes without the lock.
        let gone = net.act(|stack, _| stack.change_interfaces(&net, |all| all.remove(index)));
        drop(gone);
    }

    fn port(&self, name: &Name) -> Result<(u32, Arc<dyn Port>)> {
        let net = self.net()?;
        net.look(|stack| {
            let all = stack.interfaces_mut(&net)?;
            let index = all.named(name).ok_or(ENODEV)?;
            match &all.get(index)?.kind {
                Kind::Port { port, .. } => Ok((index, port.clone())),
                _ => Err(EINVAL),
            }
        })
    }

    fn name(&self, index: u32) -> Result<Name> {
        self.net()?.look(|stack| Ok(stack.ip.interfaces.as_ref().ok_or(ENODEV)?.get(index)?.name))
    }

    fn set_carrier(&self, index: u32, is_on: bool) {
        let Ok(net) = self.net() else { return };
        net.act(|stack, _| {
            if let Some(all) = &mut stack.ip.interfaces {
                all.set_carrier(index, is_on);
            }
        });
    }

    fn receive(&self, index: u32, frame: Buffer) -> Result<()> {
        self.net()?.act(|stack, now| if stack.receive_frame(now, index, frame) { Ok(()) } else { Err(EIO) })
    }

    fn count_receive_drop(&self, index: u32) {
        let Ok(net) = self.net() else { return };
        net.look(|stack| {
            if let Some(interface) = stack.ip.interfaces.as_mut().and_then(|all| all.all.get_mut(&index)) {
                interface.traffic.received_dropped += 1;
            }
        });
    }

    fn address(&self, index: u32) -> Result<Mac> {
        self.net()?.look(|stack| Ok(stack.ip.interfaces.as_ref().ok_or(ENODEV)?.get(index)?.mac))
    }

    fn set_address(&self, index: u32, address: Mac) -> Result<()> {
        let net = self.net()?;
        net.act(|stack, _| stack.change_interfaces(&net, |all| all.set_mac(index, address)))
    }
}
