// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits as the files of control groups and what is written to them, in the words of both versions.

use oci_spec::runtime::{LinuxBlockIo, LinuxResources};

/// The file of a setting in whichever of the groups has it, and its value.
pub type Setting = (&'static str, String);

/// 0 is what engines say of most that nobody has limited, as runc takes it.
fn asked<T: Default + PartialEq>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value != T::default())
}

/// What the resources say, for both versions: only files that exist are written.
pub fn settings(resources: &LinuxResources) -> Vec<Setting> {
    let mut out: Vec<Setting> = Vec::new();
    let or_max = |value: i64| if value < 0 { "max".to_string() } else { value.to_string() };
    if let Some(memory) = resources.memory() {
        if let Some(limit) = asked(memory.limit()) {
            out.push(("memory.limit_in_bytes", limit.to_string()));
            out.push(("memory.max", or_max(limit)));
        }
        if let Some(reservation) = asked(memory.reservation()) {
            out.push(("memory.soft_limit_in_bytes", reservation.to_string()));
            out.push(("memory.low", or_max(reservation)));
        }
        if let Some(swap) = asked(memory.swap()) {
            out.push(("memory.memsw.limit_in_bytes", swap.to_string()));
            // Version 2 counts swap apart.
            let alone = if swap < 0 { -1 } else { (swap - memory.limit().unwrap_or(0)).max(0) };
            out.push(("memory.swap.max", or_max(alone)));
        }
        out.extend(memory.swappiness().map(|swappiness| (SWAPPINESS, swappiness.to_string())));
    }
    if let Some(cpu) = resources.cpu() {
        if let Some(shares) = asked(cpu.shares()) {
            out.push(("cpu.shares", shares.to_string()));
            out.push(("cpu.weight", weight(shares).to_string()));
        }
        if let Some(period) = asked(cpu.period()) {
            out.push(("cpu.cfs_period_us", period.to_string()));
        }
        if let Some(quota) = asked(cpu.quota()) {
            out.push(("cpu.cfs_quota_us", quota.to_string()));
            let period = asked(cpu.period()).unwrap_or(100_000);
            let quota = if quota <= 0 { "max".into() } else { quota.to_string() };
            out.push(("cpu.max", format!("{quota} {period}")));
        }
        if let Some(burst) = cpu.burst() {
            out.extend(["cpu.cfs_burst_us", "cpu.max.burst"].map(|name| (name, burst.to_string())));
        }
        // The period first, which the time of it must not be more than.
        out.extend(asked(cpu.realtime_period()).map(|period| ("cpu.rt_period_us", period.to_string())));
        out.extend(asked(cpu.realtime_runtime()).map(|runtime| ("cpu.rt_runtime_us", runtime.to_string())));
        out.extend(cpu.idle().map(|idle| ("cpu.idle", idle.to_string())));
        for (name, value) in [("cpuset.cpus", cpu.cpus()), ("cpuset.mems", cpu.mems())] {
            out.extend(value.clone().filter(|v| !v.is_empty()).map(|value| (name, value)));
        }
    }
    if let Some(weight) = asked(resources.block_io().as_ref().and_then(|io| io.weight())) {
        out.push(("blkio.bfq.weight", weight.to_string()));
        out.push(("blkio.weight", weight.to_string()));
        out.push(("io.bfq.weight", weight.to_string()));
    }
    if let Some(io) = resources.block_io() {
        out.extend(of_disks(io));
    }
    if let Some(limit) = resources.pids().map(|pids| pids.limit()) {
        out.push(("pids.max", host_pids(limit).map_or("max".into(), |limit| limit.to_string())));
    }
    out
}

/// Weights and limits of single disks.
fn of_disks(io: &LinuxBlockIo) -> Vec<Setting> {
    let mut out = Vec::new();
    for disk in io.weight_device().iter().flatten() {
        let weight = disk.weight().map(|weight| format!("{}:{} {weight}", disk.major(), disk.minor()));
        if let Some(value) = weight {
            out.extend(["blkio.bfq.weight_device", "io.bfq.weight"].map(|name| (name, value.clone())));
        }
    }
    for (disks, file, key) in [
        (io.throttle_read_bps_device(), "blkio.throttle.read_bps_device", "rbps"),
        (io.throttle_write_bps_device(), "blkio.throttle.write_bps_device", "wbps"),
        (io.throttle_read_iops_device(), "blkio.throttle.read_iops_device", "riops"),
        (io.throttle_write_iops_device(), "blkio.throttle.write_iops_device", "wiops"),
    ] {
        for disk in disks.iter().flatten() {
            let (major, minor, rate) = (disk.major(), disk.minor(), disk.rate());
            out.push((file, format!("{major}:{minor} {rate}")));
            // No limit is a word in version 2, and 0 in version 1.
            let rate = if rate == 0 { "max".to_string() } else { rate.to_string() };
            out.push(("io.max", format!("{major}:{minor} {key}={rate}")));
        }
    }
    out
}

/// Shares of processors as version 2 weighs them: runc's and systemd's conversion of 2..262144 to 1..10000.
pub fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// How many processes and threads of the host a container with this limit may have. The processes of the machine are its own; those
/// of the host that carry it are few.
pub fn host_pids(limit: i64) -> Option<u64> {
    u64::try_from(limit).ok().filter(|limit| *limit > 0).map(|limit| limit.max(LEAST_PIDS))
}

/// Threads of a supervisor and processes of a machine that are there whatever the program does: a machine of 16 processors has as many
/// threads in each of its host processes, 32 at most.
const LEAST_PIDS: u64 = 640;

/// Limits that are said to hold, by their names in both versions.
const HELD: [[&str; 2]; 13] = [
    ["memory.limit_in_bytes", "memory.max"],
    ["cpu.cfs_quota_us", "cpu.max"],
    ["pids.max", "pids.max"],
    ["cpu.cfs_burst_us", "cpu.max.burst"],
    ["cpu.idle", "cpu.idle"],
    ["cpu.rt_period_us", "cpu.rt_period_us"],
    ["cpu.rt_runtime_us", "cpu.rt_runtime_us"],
    [SWAPPINESS, SWAPPINESS],
    ["blkio.bfq.weight_device", "io.bfq.weight"],
    ["blkio.throttle.read_bps_device", "io.max"],
    ["blkio.throttle.write_bps_device", "io.max"],
    ["blkio.throttle.read_iops_device", "io.max"],
    ["blkio.throttle.write_iops_device", "io.max"],
];
/// 0 is a value of it.
const SWAPPINESS: &str = "memory.swappiness";

/// The name, in version 2, of a limit that no group can hold; `is_there`: whether one of them has the file.
pub fn lacking(settings: &[Setting], is_there: impl Fn(&str) -> bool) -> Option<&'static str> {
    let wanted = settings.iter().filter(|(name, value)| *name == SWAPPINESS || !is_none(value));
    let mut files = wanted.filter_map(|(name, _)| HELD.iter().find(|names| names.contains(name)));
    files.find(|names| !names.iter().any(|name| is_there(name))).map(|names| names[1])
}

/// Whether a value is that of a group which nobody has limited, of one disk as well.
fn is_none(value: &str) -> bool {
    let last = value.rsplit([' ', '=']).next().unwrap_or_default();
    value.starts_with("max") || value.starts_with('-') || last == "0" || last == "max"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_said_in_the_words_of_either_version() {
        let all = settings(&resources(
            r#"{"memory": {"limit": 100, "swap": 150}, "cpu": {"shares": 1024, "quota": 50000, "period": 100000}, "pids": {"limit": -1}}"#,
        ));
        let value = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!((value("memory.max"), value("memory.swap.max")), (Some("100"), Some("50")));
        assert_eq!((value("cpu.weight"), value("cpu.max")), (Some("39"), Some("50000 100000")));
        assert_eq!((value("cpu.cfs_quota_us"), value("pids.max")), (Some("50000"), Some("max")));
    }

    #[test]
    fn zero_is_what_engines_say_where_nobody_asked() {
        let all = settings(&resources(
            r#"{"memory": {"limit": 0, "swap": 0, "reservation": 0}, "blockIO": {"weight": 0}, "cpu": {"shares": 0, "quota": 0,
                "period": 0, "realtimeRuntime": 0, "realtimePeriod": 0, "cpus": "", "mems": ""}}"#,
        ));
        assert_eq!(all, []);
    }

    #[test]
    fn what_no_group_can_hold_is_named() {
        let lacks =
            |text: &str, files: &[&str]| lacking(&settings(&resources(text)), |name| files.contains(&name));
        let rate = r#"{"blockIO": {"throttleReadBpsDevice": [{"major": 8, "minor": 0, "rate": 5}]}}"#;
        assert_eq!(lacks(rate, &["io.weight"]), Some("io.max"));
        assert_eq!(lacks(rate, &["io.max"]), None);
        assert_eq!(lacks(rate, &["blkio.throttle.read_bps_device"]), None);
        assert_eq!(lacks(&rate.replace("5}", "0}"), &[]), None, "no limit needs no group");
        assert_eq!(lacks(r#"{"cpu": {"quota": 5, "period": 10}}"#, &["cpu.weight"]), Some("cpu.max"));
        assert_eq!(lacks(r#"{"cpu": {"quota": -1, "burst": 0}}"#, &[]), None);
        assert_eq!(lacks(r#"{"memory": {"swappiness": 0}}"#, &["memory.max"]), Some(SWAPPINESS));
    }

    #[test]
    fn limits_of_single_disks_are_said_in_the_words_of_either_version() {
        let disk = r#"[{"major": 8, "minor": 16, "rate": 7, "weight": 300}]"#;
        let text = format!(r#"{{"blockIO": {{"weightDevice": {disk}, "throttleWriteIOPSDevice": {disk}}}}}"#);
        let all = settings(&resources(&text));
        let value = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str());
        assert_eq!(value("blkio.bfq.weight_device"), Some("8:16 300"));
        assert_eq!(value("io.bfq.weight"), Some("8:16 300"));
        assert_eq!(value("blkio.throttle.write_iops_device"), Some("8:16 7"));
        assert_eq!(value("io.max"), Some("8:16 wiops=7"));
    }

    fn resources(text: &str) -> LinuxResources {
        serde_json::from_str(text).unwrap()
    }
}
