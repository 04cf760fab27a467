// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `update`, as the resources that they stand for.

use serde_json::{Value, json};
use unilith_container::bundle::Group;
use unilith_image::Size;

#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct Options {
    /// Weight of its input and output on disks, from 10 to 1000
    #[arg(long, value_name = "N", conflicts_with = "resources")]
    blkio_weight: Option<u16>,
    /// Microseconds of the period that --cpu-quota is for
    #[arg(long, value_name = "USEC", conflicts_with = "resources")]
    cpu_period: Option<u64>,
    /// Microseconds of processor time in each period; -1: no limit
    #[arg(long, value_name = "USEC", allow_negative_numbers = true, conflicts_with = "resources")]
    cpu_quota: Option<i64>,
    /// Microseconds that may be used beyond the quota, of what was left of it before
    #[arg(long, value_name = "USEC", conflicts_with = "resources")]
    cpu_burst: Option<u64>,
    /// Microseconds of the period that --cpu-rt-runtime is for
    #[arg(long, value_name = "USEC", conflicts_with = "resources")]
    cpu_rt_period: Option<u64>,
    /// Microseconds of processor time in each period for threads with a real-time policy
    #[arg(long, value_name = "USEC", allow_negative_numbers = true, conflicts_with = "resources")]
    cpu_rt_runtime: Option<i64>,
    /// 1: it runs when nobody else wants to
    #[arg(long, value_name = "0|1", conflicts_with = "resources")]
    cpu_idle: Option<i64>,
    /// Share of processor time, beside other containers that want it
    #[arg(long, value_name = "N", conflicts_with = "resources")]
    cpu_share: Option<u64>,
    /// Processors of the host that it may run on (0-2,5)
    #[arg(long, value_name = "LIST", conflicts_with = "resources")]
    cpuset_cpus: Option<String>,
    /// Memory nodes of the host that it may use
    #[arg(long, value_name = "LIST", conflicts_with = "resources")]
    cpuset_mems: Option<String>,
    /// Memory, in bytes or with k, m, g or t behind the number; -1: no limit
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes, conflicts_with = "resources")]
    memory: Option<i64>,
    /// Memory that it is left with where the host has little
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes, conflicts_with = "resources")]
    memory_reservation: Option<i64>,
    /// Memory and swap together; -1: as much swap as there is
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes, conflicts_with = "resources")]
    memory_swap: Option<i64>,
    /// Most processes and threads; -1: no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "resources")]
    pids_limit: Option<i64>,
}

impl Options {
    /// `LinuxResources` with what was named. Version 2 of control groups has the quota and its period in one file, so the one that was
    /// not named comes from the container's `group`.
    pub fn resources(&self, group: &Group) -> Value {
        let mut out = json!({});
        let mut put = |part: &str, key: &str, value: Option<Value>| {
            if let Some(value) = value {
                out[part][key] = value;
            }
        };
        put("memory", "limit", self.memory.map(Value::from));
        put("memory", "reservation", self.memory_reservation.map(Value::from));
        put("memory", "swap", self.memory_swap.map(Value::from));
        put("pids", "limit", self.pids_limit.map(Value::from));
        put("blockIO", "weight", self.blkio_weight.map(Value::from));
        put("cpu", "shares", self.cpu_share.map(Value::from));
        put("cpu", "burst", self.cpu_burst.map(Value::from));
        put("cpu", "realtimePeriod", self.cpu_rt_period.map(Value::from));
        put("cpu", "realtimeRuntime", self.cpu_rt_runtime.map(Value::from));
        put("cpu", "idle", self.cpu_idle.map(Value::from));
        put("cpu", "cpus", self.cpuset_cpus.clone().map(Value::from));
        put("cpu", "mems", self.cpuset_mems.clone().map(Value::from));
        if self.cpu_period.is_some() || self.cpu_quota.is_some() {
            let before = group.quota.map_or(Value::from(-1), Value::from);
            put("cpu", "quota", Some(self.cpu_quota.map_or(before, Value::from)));
            put("cpu", "period", Some(self.cpu_period.unwrap_or(group.period).into()));
        }
        out
    }
}

/// Bytes as engines' users write them, or -1.
fn bytes(text: &str) -> Result<i64, String> {
    match text {
        "-1" => Ok(-1),
        _ => i64::try_from(text.parse::<Size>()?.0)
            .map_err(|_| format!("size `{text}`: no computer has as much")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_engines_users_write() {
        assert_eq!(bytes("50M"), Ok(50 << 20));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert_eq!(bytes("-1"), Ok(-1));
        for wrong in ["", "M", "-2", "1x", "9999999999999999999", "9000000000t"] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }
}
