// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups of a container: version 1 (a hierarchy for each controller) and version 2 (one for all), through their files
//! (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst). The machine's process and its supervisor are in them, so what the
//! engine measures and limits is the whole machine.

use crate::{ContainerError, Result, file};
use oci_spec::runtime::LinuxResources;
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

mod settings;

use settings::lacking;
pub(crate) use settings::settings;
pub use settings::{host_pids, weight};

/// How long the last process of a group may take to go.
const LIMIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// Where the hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Mount point, and its controllers; none for the one of version 2.
    mounts: Vec<(PathBuf, Vec<String>)>,
}

impl Hierarchies {
    /// Those of this host.
    pub fn of_host() -> Hierarchies {
        Hierarchies::read(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// `table`: as /proc/PID/mountinfo (proc(5)).
    fn read(table: &str) -> Hierarchies {
        let mount = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let place = left.split(' ').nth(4)?;
            let mut right = right.split(' ');
            let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
            let controllers = match kind {
                "cgroup" => {
                    options.split(',').filter(|o| *o != "rw" && *o != "ro").map(String::from).collect()
                }
                "cgroup2" => Vec::new(),
                _ => return None,
            };
            Some((PathBuf::from(place), controllers))
        };
        let mut mounts: Vec<(PathBuf, Vec<String>)> = Vec::new();
        for (place, controllers) in table.lines().filter_map(mount) {
            // The same hierarchy may be mounted twice.
            if !mounts.iter().any(|(_, known)| *known == controllers) {
                mounts.push((place, controllers));
            }
        }
        Hierarchies { mounts }
    }

    /// The limit of memory, in bytes, that the group above has, in which an engine puts all containers of a pod.
    pub fn memory_of_pod(&self, path: &Path) -> Option<u64> {
        let above = below(path.parent()?);
        // What version 1 says of a group without a limit, in pages of 4 KiB.
        let unlimited = i64::MAX as u64 / 4096 * 4096;
        self.mounts.iter().find_map(|(place, _)| {
            let read = |name| fs::read_to_string(place.join(&above).join(name)).ok();
            let text = ["memory.limit_in_bytes", "memory.max"].into_iter().find_map(read)?;
            text.trim().parse().ok().filter(|bytes| (1..unlimited).contains(bytes))
        })
    }

    /// Whether a group of that path is there.
    pub fn has(&self, path: &Path) -> bool {
        let below = below(path);
        self.mounts.iter().any(|(place, _)| place.join(&below).exists())
    }

    /// Makes the groups of a container and puts a process into them. Groups that are there are used. `made`: those to remove, after
    /// an error as well.
    pub fn join(&self, path: &Path, pid: u32, made: &mut Vec<PathBuf>) -> Result<()> {
        let below = below(path);
        for (place, controllers) in &self.mounts {
            let group = place.join(&below);
            if controllers.iter().any(|c| c == "cpuset") {
                make_cpuset(place, &below)?;
            } else if controllers.is_empty() {
                make_unified(place, &below)?;
            } else {
                fs::create_dir_all(&group).map_err(file("cannot make the control group", &group))?;
            }
            let members = group.join("cgroup.procs");
            made.push(group.clone());
            if is_frozen(&group) {
                return Err(ContainerError::Frozen(group));
            }
            fs::write(&members, pid.to_string()).map_err(file("cannot join", &members))?;
        }
        Ok(())
    }
}

/// Whoever joins such a group stands still.
fn is_frozen(group: &Path) -> bool {
    let read = |name| fs::read_to_string(group.join(name)).unwrap_or_default();
    let version_1 = read("freezer.state");
    let events = read("cgroup.events");
    !matches!(version_1.trim(), "" | "THAWED")
        || read("cgroup.freeze").trim() == "1"
        || events.lines().any(|line| line == "frozen 1")
}

/// The path of a group as one below a hierarchy's place, that leads nowhere else.
fn below(path: &Path) -> PathBuf {
    path.components().filter(|c| matches!(c, Component::Normal(_))).collect()
}

/// One that is there already is used.
fn make_group(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(file("cannot make the control group", path)(e))
        }
        _ => Ok(()),
    }
}

/// A group of version 2 has the controllers that the one above it gives to those below it (cgroup-v2.rst, "Enabling and Disabling").
fn make_unified(place: &Path, below: &Path) -> Result<()> {
    let mut at = place.to_path_buf();
    for name in below.components() {
        let words = |name: &str| fs::read_to_string(at.join(name)).unwrap_or_default();
        let given = words("cgroup.subtree_control");
        let there = words("cgroup.controllers");
        let missing =
            there.split_whitespace().filter(|one| !given.split_whitespace().any(|given| given == *one));
        for controller in missing {
            // One that cannot be given, since processes are in the group above or it is another's, is missed where a limit wants it.
            let _ = fs::write(at.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        at.push(name);
        make_group(&at)?;
    }
    Ok(())
}

/// A new cpuset is empty, and nobody can join it until it has processors and memory of the one above it (cpusets.rst).
fn make_cpuset(place: &Path, below: &Path) -> Result<()> {
    let mut at = place.to_path_buf();
    for name in below.components() {
        let above = at.clone();
        at.push(name);
        make_group(&at)?;
        for part in ["cpuset.cpus", "cpuset.mems"] {
            let mine = fs::read_to_string(at.join(part)).unwrap_or_default();
            if mine.trim().is_empty() {
                let value = fs::read_to_string(above.join(part)).unwrap_or_default();
                fs::write(at.join(part), value.trim()).map_err(file("cannot write", at.join(part)))?;
            }
        }
    }
    Ok(())
}

/// Writes the limits to the groups. One that no group can hold is an error, where the container has groups at all.
pub fn limit(groups: &[PathBuf], resources: &LinuxResources) -> Result<()> {
    let settings = settings(resources);
    if !groups.is_empty()
        && let Some(name) = lacking(&settings, |name| groups.iter().any(|group| group.join(name).exists()))
    {
        return Err(ContainerError::NoController(name));
    }
    let quota = settings.iter().find(|(name, _)| *name == "cpu.cfs_quota_us").map(|(_, value)| value.clone());
    for (name, value) in settings {
        for path in groups.iter().map(|group| group.join(name)).filter(|path| path.exists()) {
            let written = fs::write(&path, &value).or_else(|error| {
                // A limit of memory and the one of memory and swap must never cross, so the second is tried first then.
                if name == "memory.limit_in_bytes" {
                    let both = path.with_file_name("memory.memsw.limit_in_bytes");
                    fs::write(both, &value).and_then(|()| fs::write(&path, &value))
                } else if name == "cpu.cfs_period_us" {
                    // With the quota that is there, a shorter period may be more than the group above has.
                    let quota = quota.as_ref().ok_or(error)?;
                    fs::write(path.with_file_name("cpu.cfs_quota_us"), quota)
                        .and_then(|()| fs::write(&path, &value))
                } else {
                    Err(error)
                }
            });
            written.map_err(file("cannot write", &path))?;
        }
    }
    write_unified(groups, resources)
}

/// How often the host's kernel found no memory within the limits of the groups.
pub fn out_of_memory(groups: &[PathBuf]) -> u64 {
    let count = |(file, key): (&str, &str), group: &Path| -> Option<u64> {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    let files = [("memory.events", "oom_kill "), ("memory.oom_control", "oom_kill ")];
    groups.iter().flat_map(|group| files.iter().filter_map(|file| count(*file, group))).max().unwrap_or(0)
}

/// Writes what is named by the files of version 2.
fn write_unified(groups: &[PathBuf], resources: &LinuxResources) -> Result<()> {
    let of_version_2 = groups.iter().find(|group| group.join("cgroup.controllers").exists());
    for (name, value) in resources.unified().iter().flatten() {
        let is_name = !name.contains('/') && !name.starts_with('.') && name.contains('.');
        let group = of_version_2.filter(|group| is_name && group.join(name).exists());
        let path = group.ok_or_else(|| ContainerError::NoUnified(name.clone()))?.join(name);
        fs::write(&path, value).map_err(file("cannot write", &path))?;
    }
    Ok(())
}

/// What the calling process wants more than its groups have room for then.
const TOO_MUCH: usize = 32 << 20;

/// Has the host's kernel end the calling process, the last of the groups, for want of memory. A machine that runs out of it
/// inside has not asked the host for any, and engines know of no other sign than the groups' own counters and events
/// (cgroup-v1/memory.rst, 10; cgroup-v2.rst, `memory.events`). Comes back if there is no such group.
pub fn run_out_of_memory(groups: &[PathBuf]) {
    for group in groups {
        // Version 2: what is above a new limit and cannot be reclaimed is made free by ending processes.
        let newer = group.join("memory.max");
        if newer.exists() {
            let _ = fs::write(newer, "0");
        }
        // Version 1: only whoever asks for more than the limit is ended.
        let used = fs::read_to_string(group.join("memory.usage_in_bytes")).unwrap_or_default();
        if let Ok(used) = used.trim().parse::<u64>() {
            let _ = fs::write(group.join("memory.force_empty"), "0");
            let limited = fs::write(group.join("memory.limit_in_bytes"), (used + (1 << 20)).to_string());
            if limited.is_ok() {
                std::hint::black_box(vec![1_u8; used as usize + TOO_MUCH]);
            }
        }
    }
}

/// Removes the groups once their processes are gone.
pub fn remove(groups: &[PathBuf]) -> Result<()> {
    let until = Instant::now() + LIMIT;
    for group in groups {
        loop {
            match fs::remove_dir(group) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                Err(_) if Instant::now() < until => std::thread::sleep(POLL),
                Err(e) => return Err(file("cannot remove the control group", group)(e)),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> LinuxResources {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let table = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            31 25 0:27 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n\
            32 25 0:27 / /mnt/memory rw - cgroup cgroup rw,memory\n\
            33 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            34 25 0:29 / / rw - ext4 /dev/vda rw\n\nodd\n";
        let found = Hierarchies::read(table);
        let places: Vec<_> =
            found.mounts.iter().map(|(place, c)| (place.to_str().unwrap(), c.len())).collect();
        let wanted = [("/sys/fs/cgroup/cpu", 1), ("/sys/fs/cgroup/memory", 1), ("/sys/fs/cgroup/unified", 0)];
        assert_eq!(places, wanted);
    }

    #[test]
    fn a_frozen_group_is_not_joined() {
        let host = tempfile::tempdir().unwrap();
        let group = host.path().join("one");
        fs::create_dir(&group).unwrap();
        let hierarchies = Hierarchies { mounts: vec![(host.path().into(), vec!["freezer".into()])] };
        let mut made = Vec::new();
        for (file, frozen, thawed) in [
            ("freezer.state", "FROZEN\n", "THAWED\n"),
            ("cgroup.events", "populated 0\nfrozen 1\n", "populated 0\nfrozen 0\n"),
        ] {
            fs::write(group.join(file), frozen).unwrap();
            let refusal = hierarchies.join(Path::new("/one"), 1, &mut made).unwrap_err().to_string();
            assert!(refusal.contains("is frozen: thaw it"), "{refusal}");
            fs::write(group.join(file), thawed).unwrap();
            hierarchies.join(Path::new("/one"), 1, &mut made).unwrap();
        }
    }

    #[test]
    fn a_container_joins_its_groups_and_is_limited_in_the_files_that_exist() {
        let host = tempfile::tempdir().unwrap();
        let (memory, set) = (host.path().join("memory"), host.path().join("cpuset"));
        for folder in [&memory, &set] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(set.join("cpuset.cpus"), "0-1\n").unwrap();
        fs::write(set.join("cpuset.mems"), "0\n").unwrap();
        let mounts = vec![(memory.clone(), vec!["memory".into()]), (set.clone(), vec!["cpuset".into()])];
        let mut groups = Vec::new();
        Hierarchies { mounts }.join(Path::new("/../pods/one"), 42, &mut groups).unwrap();
        assert_eq!(groups, [memory.join("pods/one"), set.join("pods/one")]);
        assert_eq!(fs::read_to_string(groups[0].join("cgroup.procs")).unwrap(), "42");
        assert_eq!(fs::read_to_string(groups[1].join("cpuset.cpus")).unwrap(), "0-1");
        fs::write(groups[0].join("memory.limit_in_bytes"), "").unwrap();
        limit(&groups, &resources(r#"{"memory": {"limit": 1048576}, "cpu": {"shares": 512}}"#)).unwrap();
        assert_eq!(fs::read_to_string(groups[0].join("memory.limit_in_bytes")).unwrap(), "1048576");
        assert!(!groups[0].join("cpu.shares").exists(), "no file is made that was not there");
        let error = limit(&groups, &resources(r#"{"pids": {"limit": 100}}"#)).unwrap_err().to_string();
        assert!(error.contains("pids.max"), "a limit that nothing holds: {error}");
        limit(&groups, &resources(r#"{"pids": {"limit": -1}, "cpu": {"quota": -1}}"#)).unwrap();
    }

    #[test]
    fn groups_of_version_2_get_the_controllers_of_the_group_above() {
        let host = tempfile::tempdir().unwrap();
        let above = host.path().join("pods");
        fs::create_dir(&above).unwrap();
        fs::write(host.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(host.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        fs::write(above.join("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(above.join("cgroup.subtree_control"), "cpu\n").unwrap();
        let mounts = vec![(host.path().to_path_buf(), Vec::new())];
        let mut groups = Vec::new();
        Hierarchies { mounts }.join(Path::new("/pods/one"), 42, &mut groups).unwrap();
        assert_eq!(groups, [above.join("one")]);
        // What was given already is not asked for again; the kernel takes each word by itself.
        assert_eq!(fs::read_to_string(above.join("cgroup.subtree_control")).unwrap(), "+memory");
        assert_eq!(
            fs::read_to_string(host.path().join("cgroup.subtree_control")).unwrap(),
            "cpu memory pids\n"
        );
    }

    #[test]
    fn the_memory_of_a_pod_is_that_of_the_group_above_its_containers() {
        let host = tempfile::tempdir().unwrap();
        let pod = host.path().join("kubepods/pod1");
        fs::create_dir_all(&pod).unwrap();
        let hierarchies = Hierarchies { mounts: vec![(host.path().into(), vec!["memory".into()])] };
        let found = || hierarchies.memory_of_pod(Path::new("/kubepods/pod1/sandbox"));
        assert_eq!(found(), None, "without a limit");
        for (name, text, limit) in [
            ("memory.max", "max\n", None),
            ("memory.max", "1048576\n", Some(1 << 20)),
            ("memory.limit_in_bytes", "9223372036854771712\n", None),
            ("memory.limit_in_bytes", "4194304\n", Some(4 << 20)),
        ] {
            fs::write(pod.join(name), text).unwrap();
            assert_eq!(found(), limit, "{name}: {text}");
        }
        assert_eq!(hierarchies.memory_of_pod(Path::new("/")), None);
    }
}
