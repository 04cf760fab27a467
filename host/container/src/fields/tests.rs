// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table against the types of the specification, and against what the reader does with a bundle that says a field.

use super::*;
use crate::{bundle::Container, cgroup};
use oci_spec::runtime::Spec;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
        value::{Error as Failed, StrDeserializer},
    },
};
use serde_json::json;
use std::{cell::RefCell, path::Path};

/// Reads a value that says every field once, and writes the paths of all that are no structures down.
#[derive(Clone)]
struct Everything<'a> {
    path: String,
    found: &'a RefCell<Vec<String>>,
}

impl Everything<'_> {
    fn below(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) };
        Everything { path, found: self.found }
    }

    fn note(&self) {
        self.found.borrow_mut().push(self.path.clone());
    }
}

/// The fields of a structure, or the one entry of a map.
struct Fields<'a> {
    names: std::slice::Iter<'static, &'static str>,
    /// The field whose value is next.
    next: Option<&'static str>,
    of: Everything<'a>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Failed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        self.next = self.names.next().copied();
        let key = |name: &'static str| -> StrDeserializer<'static, Failed> { name.into_deserializer() };
        self.next.map(|name| seed.deserialize(key(name))).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        seed.deserialize(self.of.below(self.next.unwrap()))
    }
}

struct One<'a>(Option<Everything<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Failed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        self.0.take().map(|element| seed.deserialize(element)).transpose()
    }
}

macro_rules! leaves {
    ($($method:ident $visit:ident $($value:expr)?;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            self.note();
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Everything<'_> {
    type Error = Failed;

    leaves! {
        deserialize_bool visit_bool true;
        deserialize_i8 visit_i8 1; deserialize_i16 visit_i16 1; deserialize_i32 visit_i32 1; deserialize_i64 visit_i64 1;
        deserialize_u8 visit_u8 1; deserialize_u16 visit_u16 1; deserialize_u32 visit_u32 1; deserialize_u64 visit_u64 1;
        deserialize_f32 visit_f32 1.0; deserialize_f64 visit_f64 1.0;
        deserialize_char visit_char 'x';
        deserialize_bytes visit_bytes b""; deserialize_byte_buf visit_bytes b"";
        deserialize_unit visit_unit ; deserialize_ignored_any visit_unit ;
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.note();
        // Where the crate looks at a text, it is a list of processors or the name of a capability.
        let is_list = self.path.starts_with("process.execCPUAffinity");
        visitor.visit_str(if is_list { "0" } else { "CAP_CHOWN" })
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(One(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_map(Fields { names: ["*"].iter(), next: None, of: self })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_map(Fields { names: fields.iter(), next: None, of: self })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.note();
        let first: StrDeserializer<'static, Failed> = variants[0].into_deserializer();
        visitor.visit_enum(first)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &str, _: V) -> Result<V::Value, Failed> {
        Err(Failed::custom(name))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &str,
        _: usize,
        _: V,
    ) -> Result<V::Value, Failed> {
        Err(Failed::custom(name))
    }
}

#[test]
fn every_field_of_the_specification_is_in_the_table_once() {
    let found = RefCell::new(Vec::new());
    Spec::deserialize(Everything { path: String::new(), found: &found }).unwrap();
    let found = found.into_inner();
    assert!(
        found.len() > 150 && found.contains(&"linux.seccomp.syscalls.args.valueTwo".to_string()),
        "{found:?}"
    );
    let is_at_or_above = |name: &str, path: &str| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // The crate has them here as well; the specification has them in `linux` alone (config-linux.md, "User namespace mappings").
    let is_crates = |path: &str| path.starts_with("uidMappings.") || path.starts_with("gidMappings.");
    for path in found.iter().filter(|path| !is_crates(path)) {
        let rows: Vec<&str> =
            FIELDS.iter().map(|field| field.name).filter(|name| is_at_or_above(name, path)).collect();
        assert_eq!(rows.len(), 1, "{path}: {rows:?}");
    }
    for (n, field) in FIELDS.iter().enumerate() {
        let is_known = found.iter().any(|path| is_at_or_above(field.name, path));
        // What the crate does not have yet.
        assert!(is_known || field.name == "freebsd", "{}: the specification has no such field", field.name);
        assert!(FIELDS[..n].iter().all(|other| other.name != field.name), "{} twice", field.name);
    }
    for field in FIELDS_OF_EXEC {
        let is_process = |path: &String| path.starts_with("process.") && is_at_or_above(field.name, path);
        assert!(found.iter().any(is_process), "{}: a process has no such field", field.name);
    }
}

/// A bundle that says nothing but what it must, with a place for each sample.
fn config() -> Value {
    json!({
        "ociVersion": "1.2.0",
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/x", "type": "bind", "source": "/etc", "options": ["rbind"]}],
        "process": {
            "user": {"uid": 1, "gid": 1},
            "args": ["sh"],
            "cwd": "/",
            "scheduler": {"policy": "SCHED_BATCH"},
        },
        "hooks": {},
        "annotations": {},
        "linux": {
            "uidMappings": [{"containerID": 0, "hostID": 1000, "size": 10}],
            "gidMappings": [{"containerID": 0, "hostID": 1000, "size": 10}],
            "namespaces": [{"type": "ipc"}, {"type": "user"}],
            "resources": {
                "memory": {},
                "cpu": {},
                "pids": {"limit": 5},
                "blockIO": {"weightDevice": [{"major": 8, "minor": 0, "weight": 500}]},
                "network": {},
            },
            "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"},
            "personality": {"domain": "LINUX"},
        },
    })
}

/// A value of a field, and another one.
fn sample(name: &str) -> Option<(&'static str, Value, Value)> {
    let hook = |path: &str| json!([{"path": path}]);
    let list = |path: &str| json!([path]);
    let rate = |rate: u64| json!([{"major": 8, "minor": 0, "rate": rate}]);
    let map = |host: u32| json!([{"containerID": 0, "hostID": host, "size": 10}]);
    let text = |a: &str, b: &str| (json!(a), json!(b));
    let number = || (json!(2), json!(3));
    // Where it is set, if that is not its path.
    let mut at = "";
    let (a, b) = match name {
        "ociVersion" => text("1.0.2", "1.1.0"),
        "root.path" => text("a", "b"),
        "root.readonly" => (json!(true), json!(false)),
        "mounts.destination" => text("/a", "/b"),
        "mounts.type" => {
            at = "/mounts/0";
            let mount = |kind: &str| json!({"destination": "/x", "type": kind, "source": "/etc"});
            (mount("bind"), mount("tmpfs"))
        }
        "mounts.source" => text("/etc", "/usr"),
        "mounts.options" => (json!(["rbind", "ro"]), json!(["rbind", "rw"])),
        "mounts.uidMappings" | "mounts.gidMappings" => (map(5), map(6)),
        "process.terminal" | "process.noNewPrivileges" => (json!(true), json!(false)),
        "process.consoleSize" => (json!({"width": 80, "height": 24}), json!({"width": 81, "height": 24})),
        "process.user.uid" | "process.user.gid" | "process.user.umask" => number(),
        "process.user.additionalGids" => (json!([1]), json!([2])),
        "process.user.username" | "process.commandLine" => text("a", "b"),
        "process.args" => (list("a"), list("b")),
        "process.env" => (list("A=b"), list("A=c")),
        "process.cwd" => text("/a", "/b"),
        "process.capabilities" => (json!({"effective": ["CAP_CHOWN"]}), json!({"bounding": ["CAP_CHOWN"]})),
        "process.rlimits" => {
            let limit = |hard: u64| json!([{"type": "RLIMIT_CORE", "soft": 1, "hard": hard}]);
            (limit(1), limit(2))
        }
        "process.apparmorProfile" | "process.selinuxLabel" | "linux.mountLabel" => text("a", "b"),
        "process.oomScoreAdj" => number(),
        "process.ioPriority" => {
            let of = |level: u32| json!({"class": "IOPRIO_CLASS_BE", "priority": level});
            (of(1), of(2))
        }
        "process.scheduler.policy" => text("SCHED_BATCH", "SCHED_IDLE"),
        "process.scheduler.nice" | "process.scheduler.priority" => number(),
        "process.scheduler.flags" => (list("SCHED_RESET_ON_FORK"), json!([])),
        "process.scheduler.runtime" | "process.scheduler.deadline" | "process.scheduler.period" => number(),
        "process.execCPUAffinity" => (json!({"initial": "0"}), json!({"initial": "1", "final": "0-1"})),
        "hostname" | "domainname" => text("a", "b"),
        name if name.starts_with("hooks.") => (hook("/a"), hook("/b")),
        "annotations" => (json!({"a": "b"}), json!({"a": "c"})),
        "linux.netDevices" => (json!({"eth0": {"name": "a"}}), json!({"eth0": {}})),
        "linux.uidMappings" | "linux.gidMappings" => (map(5), map(6)),
        "linux.sysctl" => (json!({"net.core.somaxconn": "1"}), json!({"net.core.somaxconn": "2"})),
        "linux.resources.devices" => {
            (json!([{"allow": false, "access": "rwm"}]), json!([{"allow": true, "access": "rwm"}]))
        }
        "linux.resources.memory.disableOOMKiller" => (json!(true), json!(false)),
        "linux.resources.memory.useHierarchy" | "linux.resources.memory.checkBeforeUpdate" => {
            (json!(true), json!(false))
        }
        name if name.starts_with("linux.resources.memory.") => (json!(1 << 30), json!(1 << 29)),
        "linux.resources.cpu.cpus" | "linux.resources.cpu.mems" => text("0", "0-1"),
        name if name.starts_with("linux.resources.cpu.") => (json!(100), json!(1000)),
        "linux.resources.pids.limit" => number(),
        "linux.resources.blockIO.weight" | "linux.resources.blockIO.leafWeight" => number(),
        name if name.starts_with("linux.resources.blockIO.weightDevice.") => number(),
        name if name.starts_with("linux.resources.blockIO.throttle") => (rate(5), rate(6)),
        "linux.resources.hugepageLimits" => {
            (json!([{"pageSize": "2MB", "limit": 1}]), json!([{"pageSize": "2MB", "limit": 2}]))
        }
        "linux.resources.network.classID" => number(),
        "linux.resources.network.priorities" => (json!([{"name": "eth0", "priority": 1}]), json!([])),
        "linux.resources.rdma" => (json!({"mlx5": {"hcaHandles": 1}}), json!({"mlx5": {"hcaHandles": 2}})),
        "linux.resources.unified" => (json!({"io.max": "a"}), json!({"io.max": "b"})),
        "linux.cgroupsPath" => text("/a", "/b"),
        "linux.namespaces.type" => text("ipc", "uts"),
        "linux.namespaces.path" => text("/proc/1/ns/ipc", "/proc/2/ns/ipc"),
        "linux.devices" => {
            let device = |path: &str| json!([{"path": path, "type": "c", "major": 10, "minor": 229}]);
            (device("/dev/a"), device("/dev/b"))
        }
        "linux.seccomp.defaultAction" => text("SCMP_ACT_ERRNO", "SCMP_ACT_KILL"),
        "linux.seccomp.defaultErrnoRet" => number(),
        "linux.seccomp.architectures" => {
            (list("SCMP_ARCH_X86_64"), json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"]))
        }
        "linux.seccomp.flags" => (list("SECCOMP_FILTER_FLAG_LOG"), list("SECCOMP_FILTER_FLAG_SPEC_ALLOW")),
        "linux.seccomp.listenerPath" | "linux.seccomp.listenerMetadata" => text("/a", "/b"),
        "linux.seccomp.syscalls" => {
            let rule = |call: &str| json!([{"names": [call], "action": "SCMP_ACT_ALLOW"}]);
            (rule("read"), rule("write"))
        }
        "linux.rootfsPropagation" => text("private", "rshared"),
        "linux.maskedPaths" | "linux.readonlyPaths" => (list("/a"), list("/b")),
        "linux.intelRdt" => (json!({"closID": "a"}), json!({"enableMonitoring": true})),
        "linux.memoryPolicy" => (json!({"mode": "MPOL_BIND", "nodes": "0"}), json!({})),
        "linux.personality.domain" => text("LINUX", "LINUX32"),
        "linux.personality.flags" => (list("a"), list("b")),
        "linux.timeOffsets" => (json!({"boottime": {"secs": 1}}), json!({"monotonic": {"secs": 1}})),
        "solaris" => (json!({"milestone": "a"}), json!({})),
        "windows" => (json!({"layerFolders": ["a"]}), json!({})),
        "zos" => (json!({"namespaces": [{"type": "ipc"}]}), json!({})),
        "freebsd" => (json!({"devices": [{"path": "a"}]}), json!({})),
        "vm" => (json!({"kernel": {"path": "/a"}}), json!({})),
        _ => return None,
    };
    Some((at, a, b))
}

/// Sets a field; lists have one element that counts.
fn set(config: &mut Value, path: &str, value: Value) {
    let mut place = config;
    for name in path.split('.') {
        if place.is_array() {
            place = &mut place[0];
        }
        place = &mut place[name];
    }
    *place = value;
}

fn with(name: &str, at: &str, value: Value) -> Result<String, String> {
    let mut config = config();
    match at {
        "" => set(&mut config, name, value),
        at => *config.pointer_mut(at).unwrap() = value,
    }
    let mut container = Container::parse(&config.to_string(), Path::new("/bundle"))?;
    // Limits have an effect by what is written to control groups, and in what the machine is told.
    let limits = container
        .resources
        .take()
        .map(|resources| (cgroup::settings(&resources), resources.unified().clone()));
    Ok(format!("{container:?} {limits:?}"))
}

/// Fields that are honoured beyond the container's description, with the test that holds it.
const ELSEWHERE: [&str; 1] = [
    // container_calls.rs: an_update_can_ask_whether_there_is_room_for_it
    "linux.resources.memory.checkBeforeUpdate",
];

#[test]
fn a_bundle_with_a_field_is_what_the_table_says() {
    for field in FIELDS {
        let name = field.name;
        let (at, a, b) = sample(name).unwrap_or_else(|| panic!("{name} has no sample"));
        let (one, other) = (with(name, at, a), with(name, at, b));
        match field.state {
            State::Refused => {
                let error = one.unwrap_err();
                assert!(error.starts_with(&format!("{name}: ")), "{name}: {error}");
            }
            State::NoMeaning => assert_eq!(one.unwrap(), other.unwrap(), "{name}"),
            State::Honoured if ELSEWHERE.contains(&name) => {
                assert_eq!(one.unwrap(), other.unwrap(), "{name}")
            }
            State::Honoured if name == "linux.personality.domain" => {
                assert!(one.is_ok() && other.unwrap_err().contains("linux.personality"));
            }
            State::Honoured => assert_ne!(one.unwrap(), other.unwrap(), "{name} is passed over in silence"),
            State::Containers => panic!("{name}: there is no other container"),
        }
    }
}

#[test]
fn what_engines_say_who_want_nothing_is_not_refused() {
    for field in FIELDS.iter().filter(|field| field.state == State::Refused) {
        let nothing = [json!(null), json!(false), json!(""), json!([]), json!({}), json!({"x": [{"y": ""}]})];
        for nothing in nothing {
            let mut config = config();
            set(&mut config, field.name, nothing.clone());
            assert_eq!(check(Part::Whole, &config), Ok(()), "{} {nothing}", field.name);
        }
    }
}

#[test]
fn parts_of_a_bundle_are_refused_by_the_same_names() {
    let error = check(Part::Resources, &json!({"network": {"classID": 0}})).unwrap_err();
    assert!(error.starts_with("linux.resources.network.classID: "), "{error}");
    let error = check(Part::Exec, &json!({"scheduler": {"policy": "SCHED_IDLE"}})).unwrap_err();
    assert!(error.starts_with("process.scheduler: "), "{error}");
    assert_eq!(check(Part::Exec, &json!({"windows": {"a": "b"}, "args": ["a"]})), Ok(()));
}
