// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses, names and routes from the boot configuration.

use crate::netlink::Netlink;
use api_boot::BootConfig;
use std::{fs, io::ErrorKind, path::Path};

/// Sets the network up. A machine without a network device has the loopback device only.
pub fn set_up(config: &BootConfig) -> Result<(), String> {
    let netlink = Netlink::open().map_err(|e| format!("route netlink: {e}"))?;
    let loopback = device_index("lo")?;
    netlink.link_up(loopback).map_err(|e| format!("the loopback device: {e}"))?;
    if let Some(ip) = &config.ip {
        let name = first_device()?.ok_or("the machine was given an address but has no network device")?;
        let device = device_index(&name)?;
        netlink.link_up(device).map_err(|e| format!("{name}: {e}"))?;
        netlink.address(device, ip.address, ip.length).map_err(|e| format!("{name}: its address: {e}"))?;
        if let Some(gateway) = config.gateway {
            netlink.default_route(gateway).map_err(|e| format!("{name}: its gateway: {e}"))?;
        }
    }
    names(config)
}

/// Host name, /etc/hosts and /etc/resolv.conf.
fn names(config: &BootConfig) -> Result<(), String> {
    let name = config.hostname.as_deref().unwrap_or("unilith");
    write("/proc/sys/kernel/hostname", name)?;
    crate::mounts::folder("/etc", 0o755)?;
    write("/etc/hostname", &format!("{name}\n"))?;
    if !Path::new("/etc/hosts").exists() {
        write(
            "/etc/hosts",
            &format!("127.0.0.1 localhost {name}\n::1 localhost ip6-localhost ip6-loopback\n"),
        )?;
    }
    if !config.hosts.is_empty() {
        let known = fs::read_to_string("/etc/hosts").map_err(|e| format!("/etc/hosts: {e}"))?;
        let lines: String = config.hosts.iter().map(|line| format!("{line}\n")).collect();
        write("/etc/hosts", &(known + &lines))?;
    }
    if config.dns.is_empty() {
        return Ok(());
    }
    // An image's own is often a link into /run that leads nowhere here.
    match fs::remove_file("/etc/resolv.conf") {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(format!("/etc/resolv.conf: {e}")),
        _ => {}
    }
    let servers = config.dns.iter().map(|[a, b, c, d]| format!("nameserver {a}.{b}.{c}.{d}\n"));
    write("/etc/resolv.conf", &servers.collect::<String>())
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{path}: {e}"))
}

/// The network device that came first, `eth0` before `eth1`.
fn first_device() -> Result<Option<String>, String> {
    let entries = fs::read_dir("/sys/class/net").map_err(|e| format!("/sys/class/net: {e}"))?;
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    Ok(names.filter(|n| n.starts_with("eth")).min())
}

fn device_index(name: &str) -> Result<u32, String> {
    let path = format!("/sys/class/net/{name}/ifindex");
    let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    text.trim().parse().map_err(|_| format!("{path}: `{}` is no number", text.trim()))
}
