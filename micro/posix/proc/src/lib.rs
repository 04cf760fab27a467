// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What /proc and /sys say: the part of them that programs read.
#![no_std]
extern crate alloc;

pub mod audit;
mod cgroup;
mod cpu_devices;
mod cpuinfo;
mod descriptors;
mod interfaces;
mod map_files;
mod memory;
mod mounts;
mod namespaces;
mod net;
mod net_devices;
mod oom;
mod policy;
mod process;
mod sock_diag;
mod sysctls;
mod system;
mod time_offsets;
mod user_maps;

pub use cgroup::cgroup;
pub use policy::{Hidden, Policy};

use abi::Result;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use procfs::{Entry, Row};
use task::pids::PidNamespace;

/// The type of /sys, as statfs(2) has it.
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// Makes known that sock_diag(7) can be asked, of what is shown here.
pub fn initialise() {
    api_socket::register_diagnosis(&sock_diag::Sockets);
}

/// The root of /proc, with the processes of a PID namespace, of which `policy` may hide some.
pub fn proc(device: u64, pids: &PidNamespace, policy: Policy) -> Arc<dyn Inode> {
    let about = (process::key_of(pids), pids.held());
    procfs::root_with(
        system::ROWS,
        &process::Processes,
        device,
        procfs::PROC_SUPER_MAGIC,
        about,
        Some(Arc::new(policy)),
    )
}

/// The policy of a mount of /proc, from its root.
pub fn policy_of(root: &dyn Inode) -> Option<&Policy> {
    procfs::policy(root)
}

/// The root of /sys.
pub fn sys(device: u64) -> Arc<dyn Inode> {
    procfs::root(SYS, device, SYSFS_MAGIC)
}

const SYS: &[Row] = &[
    ("devices/system/cpu", Entry::Beside { rows: cpu_devices::ALL, changing: &cpu_devices::Processors }),
    ("devices/system/node/online", Entry::Fixed("0\n")),
    ("devices/system/node/possible", Entry::Fixed("0\n")),
    ("devices/system/node/has_cpu", Entry::Fixed("0\n")),
    ("devices/system/node/has_memory", Entry::Fixed("0\n")),
    ("devices/system/node/has_normal_memory", Entry::Fixed("0\n")),
    ("devices/system/node/node0/cpulist", Entry::Text(|_| cpus())),
    (
        "devices/system/node/node0/cpumap",
        Entry::Text(|_| text(format!("{:04x}\n", (1u64 << api_plat::cpus()) - 1))),
    ),
    ("devices/system/node/node0/distance", Entry::Fixed("10\n")),
    ("devices/system/node/node0/meminfo", Entry::Text(|_| system::node_memory())),
    ("kernel/mm/transparent_hugepage/enabled", Entry::Fixed("always madvise [never]\n")),
    ("kernel/mm/transparent_hugepage/defrag", Entry::Fixed("always defer defer+madvise madvise [never]\n")),
    ("kernel/mm/transparent_hugepage/hpage_pmd_size", Entry::Fixed("2097152\n")),
    ("fs/cgroup", Entry::Directory(&[])),
    // There are no block devices, buses and modules; programs look for them.
    ("block", Entry::Directory(&[])),
    ("bus", Entry::Directory(&[])),
    ("class/block", Entry::Directory(&[])),
    ("dev/block", Entry::Directory(&[])),
    ("dev/char", Entry::Directory(&[])),
    ("firmware", Entry::Directory(&[])),
    ("module", Entry::Directory(&[])),
    ("power", Entry::Directory(&[])),
    ("class/net", Entry::Changing(&net_devices::Names::Links)),
    ("devices/virtual/net", Entry::Changing(&net_devices::Names::Directories)),
];

/// The processors there are, as lists of them are written (cpuset(7)).
fn cpus() -> Result<Vec<u8>> {
    cpu_devices::list(0..api_plat::cpus())
}

/// A file's text from a string.
fn text(text: String) -> Result<Vec<u8>> {
    Ok(text.into_bytes())
}
