// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What /proc and /sys say: the part of them that programs read.

mod descriptors;
mod process;
mod system;

use crate::task;
use abi::Result;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use procfs::{Directory, Entry};

/// PROC_SUPER_MAGIC and SYSFS_MAGIC.
const PROC_MAGIC: u64 = 0x9fa0;
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// The root of /proc.
pub fn proc(device: u64) -> Arc<dyn Inode> {
    let mut root = Directory::new();
    system::fill(&mut root);
    // The program is process 1; /proc/self is a link to it, as in Linux.
    let mut own = Directory::new();
    process::fill(&mut own);
    root.add("1", Entry::Directory(own));
    root.add("self", link(|| text(alloc::format!("{}", task::current().process.pid))));
    root.add(
        "thread-self",
        link(|| {
            let task = task::current();
            text(alloc::format!("{}/task/{}", task.process.pid, task.tid))
        }),
    );
    root.into_root(device, PROC_MAGIC)
}

/// The root of /sys.
pub fn sys(device: u64) -> Arc<dyn Inode> {
    let mut root = Directory::new();
    for name in ["online", "possible", "present"] {
        root.add(&alloc::format!("devices/system/cpu/{name}"), Entry::fixed("0\n"));
    }
    root.add("devices/system/cpu/offline", Entry::fixed("\n"));
    root.add("devices/system/cpu/kernel_max", Entry::fixed("15\n"));
    for (name, value) in [("physical_package_id", "0\n"), ("core_id", "0\n"), ("thread_siblings_list", "0\n")]
    {
        root.add(&alloc::format!("devices/system/cpu/cpu0/topology/{name}"), Entry::fixed(value));
    }
    root.add("devices/system/node/online", Entry::fixed("0\n"));
    root.add("devices/system/node/possible", Entry::fixed("0\n"));
    root.add("devices/system/node/node0/cpulist", Entry::fixed("0\n"));
    root.add("kernel/mm/transparent_hugepage/enabled", Entry::fixed("always madvise [never]\n"));
    root.add(
        "kernel/mm/transparent_hugepage/defrag",
        Entry::fixed("always defer defer+madvise madvise [never]\n"),
    );
    root.add("kernel/mm/transparent_hugepage/hpage_pmd_size", Entry::fixed("2097152\n"));
    root.add("fs/cgroup", Entry::Directory(Directory::new()));
    root.add("class/net/lo/mtu", Entry::fixed("65536\n"));
    root.add("class/net/lo/operstate", Entry::fixed("unknown\n"));
    root.into_root(device, SYSFS_MAGIC)
}

/// A file's text from a string.
fn text(text: String) -> Result<Vec<u8>> {
    Ok(text.into_bytes())
}

fn link(target: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Entry {
    Entry::Link(Box::new(target))
}
