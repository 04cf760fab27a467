// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container's control group as a scope of systemd's (systemd.scope(5), org.freedesktop.systemd1(5)): what engines ask for with
//! `--systemd-cgroup`, and name `slice:prefix:name`.
//!
//! systemd owns the hierarchy then: the group is made by it, and the limits are properties of the unit as well as words in the
//! group's files, since systemd writes its own again whenever its units are reloaded. It is spoken to by busctl(1), which is its own.

use crate::{ContainerError, Result, cgroup, namespace};
use oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// How long systemd may take to make a scope. It answers at once unless it is busy with a boot.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);
/// What the name of a unit may have at most, in bytes (systemd.unit(5)).
const MAX_NAME: usize = 255;
/// Microseconds in a second, and the period of systemd's for quotas that name none.
const SECOND_US: u64 = 1_000_000;
const PERIOD_US: u64 = 100_000;

/// A scope, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    slice: String,
    unit: String,
}

impl Scope {
    /// `path`: `linux.cgroupsPath`; without one the container's id names the scope.
    pub fn of(path: Option<&Path>, id: &str) -> Result<Scope> {
        let default = PathBuf::from(format!(":unilith:{id}"));
        let path = path.unwrap_or(&default);
        let wrong = |why: String| ContainerError::Config(path.into(), format!("linux.cgroupsPath: {why}"));
        let text = path.to_str().unwrap_or_default();
        let [slice, prefix, name] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(wrong("with --systemd-cgroup it is slice:prefix:name".into()));
        };
        let slice = if slice.is_empty() { "system.slice" } else { slice };
        if !is_slice(slice) {
            return Err(wrong(format!("{slice:?} is not the name of a slice (systemd.slice(5))")));
        }
        let unit = match prefix {
            "" => format!("{name}.scope"),
            _ => format!("{prefix}-{name}.scope"),
        };
        if name.is_empty() || !is_unit(&unit) {
            return Err(wrong(format!("{unit:?} is not the name of a unit (systemd.unit(5))")));
        }
        Ok(Scope { slice: slice.into(), unit })
    }

    /// Where its group is in each hierarchy: a slice is in those that its name begins with (systemd.slice(5)).
    pub fn path(&self) -> PathBuf {
        let stem = self.slice.strip_suffix(".slice").unwrap_or_default();
        let mut path = PathBuf::from("/");
        // The root slice is called "-".
        if stem != "-" {
            let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
            path.extend(ends.map(|end| format!("{}.slice", &stem[..end])));
        }
        path.join(&self.unit)
    }

    /// Makes it, with a process in it, and waits until that is there. Answers the path of its group in the hierarchies: that of an
    /// ordinary user's systemd is below the group which the computer's has for that.
    pub fn start(&self, id: &str, pid: u32, resources: Option<&LinuxResources>) -> Result<PathBuf> {
        let mut properties = vec![
            Property::of("Description", "s", format!("Unilith container {id}")),
            Property::of("Slice", "s", self.slice.clone()),
            Property { name: "PIDs", kind: "au", words: vec!["1".into(), pid.to_string()] },
            // Groups within it are not systemd's to touch, and it has all controllers that there are.
            Property::of("Delegate", "b", "true".into()),
            // It goes as soon as its last process does, whatever that answered.
            Property::of("CollectMode", "s", "inactive-or-failed".into()),
            Property::of("DefaultDependencies", "b", "false".into()),
        ];
        let accounted = ["CPUAccounting", "MemoryAccounting", "IOAccounting", "TasksAccounting"];
        properties.extend(accounted.map(|name| Property::of(name, "b", "true".into())));
        properties.extend(resources.map(limits).into_iter().flatten());
        let mut words: Vec<String> = [&self.unit, "replace"].map(String::from).to_vec();
        words.extend(list(&properties));
        // No other unit is to be made with it.
        words.push("0".into());
        call("StartTransientUnit", "ssa(sv)a(sa(sv))", &words)?;
        let groups = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let until = Instant::now() + LIMIT;
        loop {
            // No text: the process has ended.
            let table = fs::read_to_string(&groups).map_err(crate::file("cannot read", &groups))?;
            match self.found(&table) {
                Some(path) => return Ok(path),
                None if Instant::now() > until => {
                    let why = "systemd took the request and did not make the scope".into();
                    return Err(ContainerError::Scope(self.unit.clone(), why));
                }
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// Its path, where a process is in it. `table`: as /proc/PID/cgroup (cgroups(7)).
    fn found(&self, table: &str) -> Option<PathBuf> {
        let path = self.path();
        let below = path.strip_prefix("/").unwrap_or(&path);
        let mut paths = table.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(Path::new);
        paths.find(|found| found.ends_with(below)).map(Path::to_path_buf)
    }

    /// Changes its limits, until the computer's next start.
    pub fn limit(&self, resources: &LinuxResources) -> Result<()> {
        let properties = limits(resources);
        if properties.is_empty() {
            return Ok(());
        }
        let mut words = vec![self.unit.clone(), "true".into()];
        words.extend(list(&properties));
        call("SetUnitProperties", "sba(sv)", &words)
    }

    /// Takes away what is left of it. Where its last process has ended that is nothing.
    pub fn stop(&self) {
        // systemd says of one that is gone that there is no such unit.
        let _ = call("StopUnit", "ss", &[self.unit.clone(), "replace".into()]);
    }
}

/// A name of letters, digits and `_ - . \ @ :`, as systemd.unit(5) has it.
fn is_unit(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.\\@:".contains(c);
    name.len() <= MAX_NAME && name.chars().all(fine)
}

fn is_slice(name: &str) -> bool {
    let stem = name.strip_suffix(".slice").unwrap_or_default();
    let parts = || stem.split('-');
    is_unit(name) && !stem.is_empty() && (stem == "-" || parts().all(|part| !part.is_empty()))
}

/// A property of a unit: its name, its type, and the words of its value as busctl(1) takes them.
struct Property {
    name: &'static str,
    kind: &'static str,
    words: Vec<String>,
}

impl Property {
    fn of(name: &'static str, kind: &'static str, word: String) -> Property {
        Property { name, kind, words: vec![word] }
    }

    fn number(name: &'static str, value: u64) -> Property {
        Property::of(name, "t", value.to_string())
    }
}

/// As an array of busctl(1)'s: how many, then each.
fn list(properties: &[Property]) -> Vec<String> {
    let mut words = vec![properties.len().to_string()];
    for Property { name, kind, words: value } in properties {
        words.extend([name.to_string(), kind.to_string()]);
        words.extend(value.iter().cloned());
    }
    words
}

/// The limits as systemd.resource-control(5) has them; no limit is the largest number. What it has for version 2 of control groups it
/// translates for version 1.
fn limits(resources: &LinuxResources) -> Vec<Property> {
    let mut out = Vec::new();
    let or_none = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    if let Some(memory) = resources.memory() {
        // 0 is what engines say who name none.
        if let Some(limit) = memory.limit().filter(|limit| *limit != 0) {
            out.push(Property::number("MemoryMax", or_none(limit)));
        }
        if let Some(low) = memory.reservation().filter(|low| *low != 0) {
            out.push(Property::number("MemoryLow", or_none(low)));
        }
    }
    if let Some(cpu) = resources.cpu() {
        if let Some(shares) = cpu.shares().filter(|shares| *shares > 0) {
            out.push(Property::number("CPUWeight", cgroup::weight(shares)));
        }
        if let Some(quota) = cpu.quota().filter(|quota| *quota != 0) {
            let period = cpu.period().filter(|period| *period > 0).unwrap_or(PERIOD_US);
            let of_second =
                |quota: u64| (u128::from(quota) * u128::from(SECOND_US) / u128::from(period)) as u64;
            let each_second = u64::try_from(quota).map_or(u64::MAX, of_second);
            out.push(Property::number("CPUQuotaPeriodUSec", period));
            out.push(Property::number("CPUQuotaPerSecUSec", each_second));
        }
    }
    if let Some(limit) = resources.pids().map(|pids| cgroup::host_pids(pids.limit())) {
        out.push(Property::number("TasksMax", limit.unwrap_or(u64::MAX)));
    }
    out
}

/// Calls systemd, the computer's own or, for an ordinary user, that user's.
fn call(method: &str, signature: &str, words: &[String]) -> Result<()> {
    let failed = |why: String| ContainerError::Systemd(method.into(), why);
    let whose = if namespace::is_superuser() { "--system" } else { "--user" };
    let answer = Command::new("busctl")
        .args([whose, "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"])
        .args(["org.freedesktop.systemd1.Manager", method, signature, "--"])
        .args(words)
        .stdin(Stdio::null())
        .output();
    let answer = answer.map_err(|e| failed(format!("busctl: {e}")))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&answer.stderr).trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(path: &str) -> Result<Scope> {
        Scope::of(Some(Path::new(path)), "one")
    }

    #[test]
    fn a_scope_is_below_the_slices_that_its_slice_is_in() {
        for (path, wanted) in [
            ("machine.slice:libpod:4f2", "/machine.slice/libpod-4f2.scope"),
            (":docker:4f2", "/system.slice/docker-4f2.scope"),
            ("-.slice::one", "/one.scope"),
            (
                "kubepods-burstable-pod1_2.slice:cri-containerd:a",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-a.scope",
            ),
        ] {
            assert_eq!(scope(path).unwrap().path(), Path::new(wanted), "{path}");
        }
        assert_eq!(Scope::of(None, "one").unwrap().path(), Path::new("/system.slice/unilith-one.scope"));
    }

    #[test]
    fn what_is_no_scope_is_refused_by_its_name() {
        for path in [
            "/pods/one",
            "a.slice:b",
            "a.slice:b:c:d",
            "a:b:c",
            ".slice:b:c",
            "-a.slice:b:c",
            "a--b.slice:b:c",
            "a/b.slice:b:c",
            "a.slice:../b:c",
            "a.slice:b:",
            "a.slice:b:c d",
        ] {
            let error = scope(path).unwrap_err().to_string();
            assert!(error.contains("cgroupsPath"), "{path}: {error}");
        }
        assert!(scope(&format!("a.slice:b:{}", "c".repeat(255))).is_err());
    }

    #[test]
    fn a_process_is_known_to_be_in_a_scope() {
        let scope = scope("a.slice:b:c").unwrap();
        let found = |table: &str| scope.found(table).map(|path| path.display().to_string());
        let users = "/user.slice/user-1000.slice/user@1000.service/a.slice/b-c.scope";
        assert_eq!(found("0::/a.slice/b-c.scope\n").as_deref(), Some("/a.slice/b-c.scope"));
        assert_eq!(
            found("3:cpu:/\n1:name=systemd:/a.slice/b-c.scope\n").as_deref(),
            Some("/a.slice/b-c.scope")
        );
        assert_eq!(found(&format!("0::{users}\n")).as_deref(), Some(users));
        assert_eq!(found("0::/a.slice/b-c.scope/below\n0::/b-c.scope\n0::/xa.slice/b-c.scope\n"), None);
    }

    #[test]
    fn limits_are_properties_of_the_unit() {
        let text = r#"{"memory": {"limit": 100, "reservation": 0}, "cpu": {"shares": 1024, "quota": 50000, "period": 200000},
            "pids": {"limit": -1}}"#;
        let words = list(&limits(&serde_json::from_str(text).unwrap()));
        let wanted = [
            "5",
            "MemoryMax",
            "t",
            "100",
            "CPUWeight",
            "t",
            "39",
            "CPUQuotaPeriodUSec",
            "t",
            "200000",
            "CPUQuotaPerSecUSec",
            "t",
            "250000",
            "TasksMax",
            "t",
            "18446744073709551615",
        ];
        assert_eq!(words, wanted);
        let none =
            limits(&serde_json::from_str(r#"{"memory": {"limit": -1}, "cpu": {"quota": -1}}"#).unwrap());
        assert_eq!(none.iter().filter(|p| p.words == [u64::MAX.to_string()]).count(), 2);
    }
}
