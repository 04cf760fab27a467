// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc outside of the processes (proc(5)).

use super::interfaces::{self, number_written};
use super::{sysctls, text};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_socket::{reserved_ports, settings as sockets};
#[cfg(feature = "aio")]
use calls_files::aio;
use calls_files::{file_systems, leases, special};
#[cfg(feature = "mqueue")]
use calls_ipc::message_queues;
#[cfg(feature = "sysv-ipc")]
use calls_ipc::sysv::{memory, queues, semaphores};
use calls_process::load;
use calls_process::seccomp::ACTION_NAMES;
use calls_process::signals::core_name;
use calls_process::system::{
    RELEASE, VERSION, memory as machine_memory, names, store_domain_name, store_host_name,
};
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};
use descriptors::Description;
use descriptors::locks::{self, Listed, Owner};
use procfs::settings::{self, Setting};
use procfs::{Entry, Key, Output, Row};
use task::cpu_time::{self, Usage};
use task::identity::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, CAP_SYSLOG};
use task::pids::Pid;
use task::processes;
use task::time::namespace::shown_boottime;

/// Controllers of control groups, as the only hierarchy of version 2 has them (cgroups(7), "/proc/cgroups").
const CONTROLLERS: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\n\
    cpuacct\t0\t1\t1\nblkio\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n";
/// Kinds of terminals: driver, name, numbers, type (ps(1) names terminals by them).
const TERMINALS: &str = "/dev/tty             /dev/tty        5       0 system:/dev/tty\n\
    /dev/console         /dev/console    5       1 system:console\n\
    /dev/ptmx            /dev/ptmx       5       2 system\n\
    pty_slave            /dev/pts      136 0-1048575 pty:slave\n\
    pty_master           /dev/ptm      128 0-1048575 pty:master\n";
const NS_PER_SECOND: u64 = 1_000_000_000;
/// USER_HZ.
pub const TICKS: u64 = 100;

/// vm.swappiness, of a machine without swap.
static SWAPPINESS: [Setting; 1] = [Setting::new(0, 0, 200)];

/// The root of /proc. Below `sys` are limits and switches that programs read; nothing in the kernel goes by those that are
/// fixed, which cannot be written.
pub const ROWS: &[Row] = &[
    ("self", Entry::Link(|key| text(format!("{}", own_number(key, task::current().process.pid)?)))),
    (
        "thread-self",
        Entry::Link(|key| {
            let task = task::current();
            let (pid, tid) = (own_number(key, task.process.pid)?, own_number(key, task.tid)?);
            text(format!("{pid}/task/{tid}"))
        }),
    ),
    ("mounts", Entry::Link(|_| Ok(b"self/mounts".to_vec()))),
    ("net", Entry::Link(|_| Ok(b"self/net".to_vec()))),
    ("sys/kernel/ostype", Entry::Fixed("Linux\n")),
    ("sys/kernel/pid_max", Entry::Text(|_| text(format!("{}\n", processes::PID_MAX)))),
    ("sys/kernel/ns_last_pid", Entry::File { text: newest, store: set_newest, permissions: 0o666 }),
    ("sys/kernel/threads-max", Entry::Fixed("32768\n")),
    ("sys/kernel/cap_last_cap", Entry::Fixed("40\n")),
    ("sys/kernel/ngroups_max", Entry::Fixed("65536\n")),
    ("sys/kernel/overflowuid", Entry::Fixed("65534\n")),
    ("sys/kernel/overflowgid", Entry::Fixed("65534\n")),
    ("sys/kernel/randomize_va_space", Entry::Fixed("2\n")),
    sysctls::CORE_PATTERN,
    ("sys/kernel/dmesg_restrict", settings::entry!(kmsg::RESTRICTED)),
    ("sys/kernel/printk", settings::entry!(abi::setting::PRINTK)),
    ("sys/kernel/core_uses_pid", settings::entry!(core_name::USES_PID)),
    sysctls::ROUND_ROBIN,
    sysctls::SHARE_PERIOD,
    sysctls::SHARE_RUNTIME,
    ("sys/kernel/seccomp/actions_avail", Entry::Fixed(ACTION_NAMES)),
    ("sys/kernel/random/entropy_avail", Entry::Fixed("256\n")),
    ("sys/kernel/random/poolsize", Entry::Fixed("256\n")),
    ("sys/kernel/yama/ptrace_scope", Entry::Fixed("0\n")),
    ("sys/kernel/perf_event_paranoid", Entry::Fixed("4\n")),
    ("sys/kernel/pty/max", Entry::Fixed("4096\n")),
    ("sys/kernel/arch", Entry::Fixed("x86_64\n")),
    ("sys/kernel/random/write_wakeup_threshold", Entry::Fixed("256\n")),
    ("sys/kernel/random/urandom_min_reseed_secs", Entry::Fixed("60\n")),
    ("sys/fs/overflowuid", Entry::Fixed("65534\n")),
    ("sys/fs/overflowgid", Entry::Fixed("65534\n")),
    ("sys/fs/suid_dumpable", Entry::Fixed("0\n")),
    ("sys/kernel/tainted", Entry::Fixed("0\n")),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/msgmax", settings::entry!(queues::MAX_MESSAGE)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/msgmnb", settings::entry!(queues::QUEUE_BYTES)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/msgmni", settings::entry!(queues::MAX_QUEUES)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/shmmax", settings::entry!(memory::MAX_SEGMENT_BYTES)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/shmall", settings::entry!(memory::MAX_PAGES)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/shmmni", settings::entry!(memory::MAX_SEGMENTS)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/shm_rmid_forced", settings::entry!(memory::REMOVAL_IS_FORCED)),
    #[cfg(feature = "sysv-ipc")]
    ("sys/kernel/sem", settings::entry!(semaphores::LIMITS)),
    #[cfg(feature = "sysv-ipc")]
    sysctls::next_id::<queues::Queues>("sys/kernel/msg_next_id"),
    #[cfg(feature = "sysv-ipc")]
    sysctls::next_id::<semaphores::Sets>("sys/kernel/sem_next_id"),
    #[cfg(feature = "sysv-ipc")]
    sysctls::next_id::<memory::Segments>("sys/kernel/shm_next_id"),
    #[cfg(feature = "sysv-ipc")]
    ("sysvipc/msg", Entry::Lines(|_, out| queues::show(out))),
    #[cfg(feature = "sysv-ipc")]
    ("sysvipc/sem", Entry::Lines(|_, out| semaphores::show(out))),
    #[cfg(feature = "sysv-ipc")]
    ("sysvipc/shm", Entry::Lines(|_, out| memory::show(out))),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/maxkeys", settings::entry!(keys::MAX_KEYS)),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/maxbytes", settings::entry!(keys::MAX_BYTES)),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/root_maxkeys", settings::entry!(keys::ROOT_MAX_KEYS)),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/root_maxbytes", settings::entry!(keys::ROOT_MAX_BYTES)),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/gc_delay", settings::entry!(keys::GC_DELAY)),
    #[cfg(feature = "keys")]
    ("sys/kernel/keys/persistent_keyring_expiry", settings::entry!(keys::PERSISTENT_EXPIRY)),
    (
        "kmsg",
        Entry::Opens {
            open: |_, inode| match task::current().credentials().lock().can(CAP_SYSLOG) {
                true => Ok(kmsg::syslog::proc_kmsg(inode)),
                false => Err(EPERM),
            },
            permissions: 0o400,
        },
    ),
    #[cfg(feature = "keys")]
    ("keys", Entry::Lines(|_, out| calls_keys::listing::keys(out))),
    #[cfg(feature = "keys")]
    ("key-users", Entry::Lines(|_, out| calls_keys::listing::users(out))),
    ("sys/vm/overcommit_memory", settings::entry!(mem::OVERCOMMIT)),
    (
        "sys/vm/overcommit_ratio",
        Entry::File {
            text: |_| text(format!("{}\n", mem::overcommit_limits().0)),
            store: |_, bytes| number_written(bytes).map(mem::set_overcommit_ratio),
            permissions: 0o644,
        },
    ),
    (
        "sys/vm/overcommit_kbytes",
        Entry::File {
            text: |_| text(format!("{}\n", mem::overcommit_limits().1)),
            store: |_, bytes| number_written(bytes).map(mem::set_overcommit_kbytes),
            permissions: 0o644,
        },
    ),
    ("sys/vm/max_map_count", Entry::File { text: max_mappings, store: set_max_mappings, permissions: 0o644 }),
    ("sys/vm/swappiness", settings::entry!(SWAPPINESS)),
    ("sys/vm/mmap_min_addr", Entry::Fixed("65536\n")),
    ("sys/fs/file-max", Entry::Fixed("9223372036854775807\n")),
    #[cfg(feature = "mqueue")]
    ("sys/fs/mqueue/queues_max", settings::entry!(message_queues::MAX_QUEUES)),
    #[cfg(feature = "mqueue")]
    ("sys/fs/mqueue/msg_max", settings::entry!(message_queues::MAX_MESSAGES)),
    #[cfg(feature = "mqueue")]
    ("sys/fs/mqueue/msgsize_max", settings::entry!(message_queues::MAX_SIZE)),
    #[cfg(feature = "mqueue")]
    ("sys/fs/mqueue/msg_default", settings::entry!(message_queues::DEFAULT_MESSAGES)),
    #[cfg(feature = "mqueue")]
    ("sys/fs/mqueue/msgsize_default", settings::entry!(message_queues::DEFAULT_SIZE)),
    ("sys/fs/lease-break-time", settings::entry!(leases::BREAK_TIME)),
    ("sys/fs/nr_open", settings::entry!(descriptors::NR_OPEN)),
    ("sys/fs/pipe-user-pages-soft", settings::entry!(pipe::USER_PAGES_SOFT)),
    ("sys/fs/pipe-user-pages-hard", settings::entry!(pipe::USER_PAGES_HARD)),
    ("sys/fs/pipe-max-size", settings::entry!(special::PIPE_MAX_SIZE)),
    #[cfg(feature = "aio")]
    ("sys/fs/aio-max-nr", settings::entry!(aio::MAX_EVENTS)),
    #[cfg(feature = "aio")]
    ("sys/fs/aio-nr", Entry::Text(|_| text(format!("{}\n", aio::events())))),
    ("sys/fs/protected_fifos", settings::entry!(vfs::protection::FIFOS)),
    ("sys/fs/protected_hardlinks", settings::entry!(vfs::protection::HARDLINKS)),
    ("sys/fs/protected_regular", settings::entry!(vfs::protection::REGULAR)),
    ("sys/fs/protected_symlinks", settings::entry!(vfs::protection::SYMLINKS)),
    #[cfg(feature = "inotify")]
    ("sys/fs/inotify/max_queued_events", settings::entry!(inotify::MAX_EVENTS)),
    #[cfg(feature = "inotify")]
    ("sys/fs/inotify/max_user_instances", settings::entry!(inotify::MAX_INSTANCES)),
    #[cfg(feature = "inotify")]
    ("sys/fs/inotify/max_user_watches", settings::entry!(inotify::MAX_WATCHES)),
    ("sys/net/core/somaxconn", settings::entry!(sockets::MAX_BACKLOG)),
    ("sys/net/core/rmem_max", settings::entry!(sockets::MAX_RECEIVE_BUFFER)),
    ("sys/net/core/wmem_max", settings::entry!(sockets::MAX_SEND_BUFFER)),
    ("sys/net/core/rmem_default", settings::entry!(sockets::RECEIVE_BUFFER)),
    ("sys/net/core/wmem_default", settings::entry!(sockets::SEND_BUFFER)),
    ("sys/net/unix/max_dgram_qlen", settings::entry!(sockets::MAX_DATAGRAMS)),
    ("sys/net/ipv6/bindv6only", Entry::Fixed("0\n")),
    ("sys/net/ipv6/conf/all/disable_ipv6", Entry::Fixed("0\n")),
    ("sys/net/ipv6/conf/lo/disable_ipv6", Entry::Fixed("0\n")),
    ("sys/net/ipv6/conf/eth0/disable_ipv6", Entry::Text(|_| super::net::table("disable_ipv6"))),
    ("sys/net/ipv6/auto_flowlabels", Entry::Fixed("0\n")),
    ("sys/net/ipv6/ip6frag_time", Entry::Fixed("60\n")),
    ("sys/net/ipv6/ip_nonlocal_bind", Entry::Fixed("0\n")),
    ("sys/net/ipv4/ip_forward", FORWARDING),
    interfaces::tag!("all"),
    interfaces::tag!("default"),
    interfaces::tag!("lo"),
    ("sys/net/ipv4/conf/all/forwarding", FORWARDING),
    ("sys/net/ipv4/conf/default/forwarding", Entry::Text(|_| show_forwarding())),
    ("sys/net/ipv4/conf/eth0/forwarding", Entry::Text(|_| show_forwarding())),
    ("sys/net/ipv4/conf/lo/forwarding", Entry::Text(|_| show_forwarding())),
    // What the stack does, which nobody changes.
    ("sys/net/ipv4/conf/all/accept_redirects", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/accept_source_route", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/log_martians", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/proxy_arp", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/route_localnet", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/rp_filter", Entry::Fixed("0\n")),
    ("sys/net/ipv4/conf/all/send_redirects", Entry::Fixed("0\n")),
    ("sys/net/ipv4/icmp_echo_ignore_all", Entry::Fixed("0\n")),
    ("sys/net/ipv4/ip_default_ttl", Entry::Fixed("64\n")),
    ("sys/net/ipv4/ip_nonlocal_bind", Entry::Fixed("0\n")),
    ("sys/net/ipv4/tcp_ecn", Entry::Fixed("0\n")),
    ("sys/net/ipv4/tcp_mtu_probing", Entry::Fixed("0\n")),
    ("sys/net/ipv4/tcp_no_metrics_save", Entry::Fixed("1\n")),
    ("sys/net/ipv4/tcp_syncookies", Entry::Fixed("0\n")),
    ("sys/net/ipv4/tcp_timestamps", Entry::Fixed("1\n")),
    ("sys/net/ipv4/tcp_window_scaling", Entry::Fixed("1\n")),
    ("sys/net/ipv4/tcp_sack", Entry::Fixed("1\n")),
    (
        "sys/net/ipv4/ip_local_port_range",
        Entry::File {
            text: |_| settings::show(&sockets::LOCAL_PORTS),
            store: |_, bytes| store_local_ports(bytes),
            permissions: 0o644,
        },
    ),
    (
        "sys/net/ipv4/ip_unprivileged_port_start",
        Entry::File {
            text: |_| settings::show(&sockets::UNPRIVILEGED_PORTS),
            store: |_, bytes| store_unprivileged_ports(bytes),
            permissions: 0o644,
        },
    ),
    (
        "sys/net/ipv4/ping_group_range",
        Entry::File {
            text: |_| settings::show(&sockets::PING_GROUPS),
            store: |_, bytes| store_ping_groups(bytes),
            permissions: 0o644,
        },
    ),
    // Clients may ask (MSG_FASTOPEN), and the handshake is made in full.
    ("sys/net/ipv4/tcp_fastopen", Entry::Fixed("1\n")),
    (
        "sys/net/ipv4/tcp_fastopen_key",
        Entry::File {
            text: |_| super::net::table("tcp_fastopen_key"),
            store: |_, written| {
                // Programs write all of their buffer.
                let line = written.split(|byte| [b'\n', 0].contains(byte)).next().unwrap_or_default();
                let text = core::str::from_utf8(line).map_err(|_| EINVAL)?;
                api_socket::set_text("tcp_fastopen_key", text)
            },
            permissions: 0o600,
        },
    ),
    ("sys/net/ipv4/tcp_max_syn_backlog", Entry::Fixed("4096\n")),
    ("sys/net/ipv4/tcp_congestion_control", Entry::Fixed("cubic\n")),
    ("sys/net/ipv4/tcp_available_congestion_control", Entry::Fixed("reno cubic\n")),
    ("sys/net/ipv4/tcp_allowed_congestion_control", Entry::Fixed("reno cubic\n")),
    ("sys/net/ipv4/tcp_fin_timeout", settings::entry!(sockets::FIN_TIMEOUT)),
    ("sys/net/ipv4/tcp_keepalive_intvl", settings::entry!(sockets::KEEPALIVE_INTERVAL)),
    ("sys/net/ipv4/tcp_keepalive_probes", settings::entry!(sockets::KEEPALIVE_PROBES)),
    ("sys/net/ipv4/tcp_syn_retries", settings::entry!(sockets::SYN_RETRIES)),
    ("sys/net/ipv4/tcp_retries2", settings::entry!(sockets::RETRIES)),
    ("sys/net/ipv4/tcp_rmem", settings::entry!(sockets::TCP_RECEIVE_BUFFER)),
    ("sys/net/ipv4/tcp_wmem", settings::entry!(sockets::TCP_SEND_BUFFER)),
    (
        "sys/net/ipv4/ip_local_reserved_ports",
        Entry::File {
            text: |_| {
                let mut out = String::new();
                // Writing to a string cannot fail.
                let _ = reserved_ports::show(&mut out);
                text(out)
            },
            store: |_, bytes| reserved_ports::store(bytes),
            permissions: 0o644,
        },
    ),
    ("sys/net/ipv4/tcp_keepalive_time", settings::entry!(sockets::KEEPALIVE_TIME)),
    // There are as many as there is memory for.
    ("sys/user/max_cgroup_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_ipc_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_mnt_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_net_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_pid_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_time_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_user_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/user/max_uts_namespaces", Entry::Fixed("2147483647\n")),
    ("sys/kernel/osrelease", Entry::Text(|_| text(format!("{RELEASE}\n")))),
    ("sys/kernel/version", Entry::Text(|_| text(format!("{VERSION}\n")))),
    (
        "sys/kernel/hostname",
        Entry::File {
            text: |_| Ok(line(names().host_name())),
            store: |_, name| store_host_name(name),
            permissions: 0o644,
        },
    ),
    (
        "sys/kernel/domainname",
        Entry::File {
            text: |_| Ok(line(names().domain_name())),
            store: |_, name| store_domain_name(name),
            permissions: 0o644,
        },
    ),
    ("sys/kernel/random/uuid", Entry::Text(|_| text(uuid(random())))),
    ("sys/kernel/random/boot_id", Entry::Text(|_| text(uuid(boot_id())))),
    ("sys/fs/mount-max", Entry::Text(|_| text(format!("{}\n", vfs::MAX_MOUNTS)))),
    ("sys/fs/file-nr", Entry::Text(|_| text(format!("{}\t0\t9223372036854775807\n", Description::count())))),
    ("version", Entry::Text(|_| text(format!("Linux version {RELEASE} (unilith) {VERSION}\n")))),
    ("cgroups", Entry::Fixed(CONTROLLERS)),
    ("execdomains", Entry::Fixed("0-0\tLinux           \t[kernel]\n")),
    ("tty/drivers", Entry::Fixed(TERMINALS)),
    ("filesystems", Entry::Text(|_| text(file_systems::list()))),
    ("cmdline", Entry::Fixed("\n")),
    ("swaps", Entry::Fixed("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
    (
        "devices",
        Entry::Fixed(
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n136 pts\n\nBlock devices:\n",
        ),
    ),
    // There are no block devices.
    ("partitions", Entry::Fixed("major minor  #blocks  name\n\n")),
    ("diskstats", Entry::Fixed("")),
    ("locks", Entry::Lines(|_, out| locks(out))),
    ("meminfo", Entry::Text(|_| meminfo())),
    ("cpuinfo", Entry::Text(|_| super::cpuinfo::text())),
    ("stat", Entry::Text(|_| stat())),
    ("uptime", Entry::Text(|_| uptime())),
    ("loadavg", Entry::Text(|_| loadavg())),
    ("vmstat", Entry::Text(|_| vmstat())),
];

/// Ports that are chosen for programs are never those that need a right: `EINVAL`, and nothing changes.
fn store_local_ports(bytes: &[u8]) -> Result<()> {
    let before = sockets::LOCAL_PORTS[0].get();
    let last = sockets::LOCAL_PORTS[1].get();
    settings::store_range(&sockets::LOCAL_PORTS, bytes)?;
    if sockets::LOCAL_PORTS[0].get() < sockets::UNPRIVILEGED_PORTS[0].get() {
        sockets::LOCAL_PORTS[0].set(before);
        sockets::LOCAL_PORTS[1].set(last);
        return Err(EINVAL);
    }
    Ok(())
}

/// Whether packets for others are sent on, by all interfaces or none.
const FORWARDING: Entry = Entry::File {
    text: |_| show_forwarding(),
    store: |_, bytes| store_forwarding(bytes),
    permissions: 0o644,
};

/// Of the caller's network; without one that forwards, there is none.
fn show_forwarding() -> Result<Vec<u8>> {
    text(api_socket::table("ip_forward").unwrap_or_else(|_| String::from("0\n")))
}

fn store_forwarding(bytes: &[u8]) -> Result<()> {
    let value = [Setting::new(0, 0, i32::MAX as u64)];
    settings::store(&value, bytes)?;
    match api_socket::set("ip_forward", value[0].get() as i64) {
        // Without the part nothing is forwarded, which is no change.
        Err(ENOENT) if value[0].get() == 0 => Ok(()),
        Err(ENOENT) => Err(EOPNOTSUPP),
        done => done,
    }
}

fn store_unprivileged_ports(bytes: &[u8]) -> Result<()> {
    let before = sockets::UNPRIVILEGED_PORTS[0].get();
    settings::store(&sockets::UNPRIVILEGED_PORTS, bytes)?;
    if sockets::UNPRIVILEGED_PORTS[0].get() > sockets::LOCAL_PORTS[0].get() {
        sockets::UNPRIVILEGED_PORTS[0].set(before);
        return Err(EINVAL);
    }
    Ok(())
}

/// A range whose first group is above the last is nobody's, and shown as `1 0` (Linux' set_ping_group_range).
fn store_ping_groups(bytes: &[u8]) -> Result<()> {
    settings::store(&sockets::PING_GROUPS, bytes)?;
    if sockets::PING_GROUPS[0].get() > sockets::PING_GROUPS[1].get() {
        sockets::PING_GROUPS[0].set(1);
        sockets::PING_GROUPS[1].set(0);
    }
    Ok(())
}

fn line(mut text: Vec<u8>) -> Vec<u8> {
    text.push(b'\n');
    text
}

fn max_mappings(_: Key) -> Result<Vec<u8>> {
    text(format!("{}\n", mem::max_mappings()))
}

fn set_max_mappings(_: Key, bytes: &[u8]) -> Result<()> {
    let count: u32 = number_written(bytes)?;
    mem::set_max_mappings(i32::try_from(count).map_err(|_| EINVAL)? as usize);
    Ok(())
}

/// The number given out last in the caller's PID namespace (proc_sys_kernel(5), ns_last_pid).
fn newest(_: Key) -> Result<Vec<u8>> {
    text(format!("{}\n", newest_number()))
}

fn newest_number() -> i32 {
    task::current().process.pids.newest().unwrap_or_else(processes::newest)
}

fn set_newest(_: Key, written: &[u8]) -> Result<()> {
    let (pids, who) = (&task::current().process.pids, task::current().credentials().lock().clone());
    let owner = pids.owner();
    if !who.can_in(&owner, CAP_SYS_ADMIN) && !who.can_in(&owner, CAP_CHECKPOINT_RESTORE) {
        return Err(EPERM);
    }
    let number: Option<i32> = core::str::from_utf8(written).ok().and_then(|text| text.trim().parse().ok());
    let number = number.filter(|number| (0..processes::PID_MAX).contains(number)).ok_or(EINVAL)?;
    match pids.newest() {
        Some(_) => pids.set_newest(number),
        None => processes::set_newest(number),
    }
    Ok(())
}

/// A number of the caller's; `ENOENT` where its namespace is not the file system's.
fn own_number(key: Key, pid: Pid) -> Result<i32> {
    Some(super::process::viewer(key).number_of(pid)).filter(|number| *number != 0).ok_or(ENOENT)
}

/// Numbers, kinds, owners, files (device and inode) and ranges of the locks that are held (proc(5)).
fn locks(out: &mut Output) -> Result<()> {
    let own = task::current().process.pid;
    let all = locks::all()?;
    for (i, Listed { inode, lock, whole }) in (0..all.len()).map(|i| (i, &all[i])) {
        let whole = *whole;
        let (kind, pid) = match lock.owner {
            _ if whole => ("FLOCK ", own.here()),
            Owner::Process(pid) => ("POSIX ", Pid::from_machine(pid).here()),
            Owner::Description(_) => ("OFDLCK", -1),
        };
        let access = if lock.exclusive { "WRITE" } else { "READ " };
        let stat = inode.stat()?;
        let (major, minor) = (stat.device >> 8, stat.device & 0xff);
        let end = if lock.end == u64::MAX { "EOF".into() } else { format!("{}", lock.end - 1) };
        let (number, inode, start) = (i + 1, stat.inode, lock.start);
        out.print(format_args!(
            "{number}: {kind} ADVISORY  {access} {pid} {major:02x}:{minor:02x}:{inode} {start} {end}\n"
        ))?;
    }
    show_leases(all.len(), out)
}

/// The leases, behind that many locks.
fn show_leases(locks: usize, out: &mut Output) -> Result<()> {
    let all = leases::all()?;
    for (number, leases::Listed { inode, pid, kind, is_breaking }) in (locks + 1..).zip(&all) {
        let pid = pid.here();
        let state = if *is_breaking { "BREAKING " } else { "ACTIVE   " };
        let access = match kind {
            leases::Kind::Read => "READ",
            leases::Kind::Write => "WRITE",
            leases::Kind::None => "UNLCK",
        };
        let stat = inode.stat()?;
        let (major, minor, inode) = (stat.device >> 8, stat.device & 0xff, stat.inode);
        out.print(format_args!(
            "{number}: LEASE  {state} {access} {pid} {major:02x}:{minor:02x}:{inode} 0 EOF\n"
        ))?;
    }
    Ok(())
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    api_plat::entropy(&mut bytes);
    bytes
}

fn boot_id() -> [u8; 16] {
    static ID: SpinLock<Option<[u8; 16]>> = SpinLock::new(None);
    *ID.lock().get_or_insert_with(random)
}

/// A random UUID (RFC 4122 4.4).
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut out = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    out.push('\n');
    out
}

fn meminfo() -> Result<Vec<u8>> {
    let (_, free_pages) = alloc_frames::statistics();
    let total = machine_memory() / 1024;
    let free = free_pages * PAGE_SIZE as u64 / 1024;
    let heap = api_alloc::statistics();
    let (committed, limit) = mem::commitment();
    let kib = |bytes: usize| bytes as u64 / 1024;
    let mut out = String::new();
    let lines = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", total.saturating_sub(free)),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("Shmem", 0),
        ("Slab", kib(heap.total)),
        ("SReclaimable", kib(heap.total - heap.used)),
        ("SUnreclaim", kib(heap.used)),
        ("CommitLimit", limit >> 10),
        ("Committed_AS", committed >> 10),
        ("VmallocTotal", 34_359_738_367),
        ("Hugepagesize", 2048),
    ];
    for (name, value) in lines {
        let label = format!("{name}:");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{label:<15} {value:>8} kB");
        if name == "VmallocTotal" {
            out.push_str("HugePages_Total:       0\nHugePages_Free:        0\n");
        }
    }
    text(out)
}

/// The same of the machine's only memory node.
pub fn node_memory() -> Result<Vec<u8>> {
    let (_, free_pages) = alloc_frames::statistics();
    let total = machine_memory() / 1024;
    let free = free_pages * PAGE_SIZE as u64 / 1024;
    let mut out = String::new();
    for (name, kib) in [("MemTotal:", total), ("MemFree:", free), ("MemUsed:", total.saturating_sub(free))] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Node 0 {name:<15} {kib:>8} kB");
    }
    text(out)
}

/// Nanoseconds since boot, and those of them that the program used.
fn times() -> (u64, u64) {
    (api_plat::now_ns(), used().total_ns())
}

/// What all processes used, those that were waited for included.
fn used() -> Usage {
    let mut sum = Usage::default();
    for process in processes::all() {
        let zombie = *process.family.zombie.lock();
        sum += zombie.map_or_else(|| process.usage(), |ended| ended.used);
        sum += *process.family.children_used.lock();
    }
    sum
}

fn stat() -> Result<Vec<u8>> {
    let (up, busy) = times();
    let ticks = |ns: u64| ns / (NS_PER_SECOND / TICKS);
    cpu_time::start();
    let usage = used();
    let cpus = u64::from(api_plat::cpus());
    let show = |share: u64| {
        let idle = ticks((up * cpus).saturating_sub(busy) / share);
        format!("{} 0 {} {idle} 0 0 0 0 0 0", ticks(usage.user_ns / share), ticks(usage.system_ns / share))
    };
    let mut lines = format!("cpu  {}\n", show(1));
    for cpu in 0..cpus {
        // What each of them did is not kept apart. Writing to a string cannot fail.
        let _ = writeln!(lines, "cpu{cpu} {}", show(cpus));
    }
    let switches = usage.voluntary_switches + usage.involuntary_switches;
    let running = load::runnable();
    // Such that what was shown as time since boot ends now.
    let boot = (api_plat::wall_ns() + up).saturating_sub(shown_boottime(up)) / NS_PER_SECOND;
    let threads = processes::newest();
    text(format!(
        "{lines}intr 0\nctxt {switches}\nbtime {boot}\nprocesses {threads}\nprocs_running {running}\nprocs_blocked 0\n\
         softirq 0 0 0 0 0 0 0 0 0 0 0\n"
    ))
}

fn uptime() -> Result<Vec<u8>> {
    let (up, busy) = times();
    let show = |ns: u64| format!("{}.{:02}", ns / NS_PER_SECOND, ns % NS_PER_SECOND / 10_000_000);
    // A turn that has just begun is counted when it ends: what was said once stays said.
    static SAID: AtomicU64 = AtomicU64::new(0);
    let idle = (up * u64::from(api_plat::cpus())).saturating_sub(busy);
    let idle = SAID.fetch_max(idle, Ordering::Relaxed).max(idle);
    text(format!("{} {}\n", show(shown_boottime(up)), show(idle)))
}

fn loadavg() -> Result<Vec<u8>> {
    let threads = processes::threads();
    let show = |average: u64| {
        // Rounded to hundredths.
        let hundredths = ((average + (1 << load::PLACES) / 200) * 100) >> load::PLACES;
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    };
    let [one, five, fifteen] = load::averages().map(show);
    let newest = newest_number();
    text(format!("{one} {five} {fifteen} {}/{threads} {newest}\n", load::runnable()))
}

fn vmstat() -> Result<Vec<u8>> {
    let (_, free) = alloc_frames::statistics();
    text(format!("nr_free_pages {free}\npgfault 0\npgmajfault 0\n"))
}
