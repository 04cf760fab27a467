// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a micro kernel can be made of: the choices of `--set`, which parts need which, and the micro-libraries that each brings.

use crate::fault::{Fault, Result};
use std::collections::{BTreeMap, BTreeSet};

/// One of the kernel's choices.
pub struct Choice {
    pub key: &'static str,
    /// What is chosen.
    pub about: &'static str,
    /// Each value with its cargo feature. The first one is the default. No feature: the kernel goes without.
    pub values: &'static [(&'static str, &'static str)],
}

impl Choice {
    fn default(&self) -> &'static str {
        self.values[0].0
    }

    /// The values' names, the default first.
    pub fn words(&self) -> Vec<&'static str> {
        self.values.iter().map(|(value, _)| *value).collect()
    }

    /// It is about the kernel, not about a program that is linked with it.
    pub fn is_of_kernel(&self) -> bool {
        self.key != PROGRAM_ALLOCATOR
    }

    fn feature(&self, value: &str) -> Option<&'static str> {
        self.values.iter().find(|(known, _)| *known == value).map(|(_, feature)| *feature)
    }

    /// Whether the kernel has the part with this value.
    fn is_in(&self, value: &str) -> bool {
        self.feature(value).is_some_and(|feature| !feature.is_empty())
    }
}

const fn part(
    key: &'static str,
    about: &'static str,
    values: &'static [(&'static str, &'static str)],
) -> Choice {
    Choice { key, about, values }
}

/// What a program that is linked with the kernel has for its `malloc`. Its values' features are those of another crate.
pub const PROGRAM_ALLOCATOR: &str = "alloc.program";

pub const CHOICES: [Choice; 33] = [
    Choice {
        key: "alloc",
        about: "the kernel's heap",
        values: &[
            ("tlsf", "alloc-tlsf"),
            ("buddy", "alloc-buddy"),
            ("mimalloc", "alloc-mimalloc"),
            ("tiny", "alloc-tiny"),
            ("region", "alloc-region"),
        ],
    },
    part(
        "alloc.net",
        "a heap of the network's own",
        &[
            ("off", ""),
            ("tlsf", "alloc-net-tlsf"),
            ("buddy", "alloc-net-buddy"),
            ("mimalloc", "alloc-net-mimalloc"),
            ("tiny", "alloc-net-tiny"),
            ("region", "alloc-net-region"),
        ],
    ),
    part("heap-check", "checks around the heap, for debugging", &[("off", ""), ("on", "heap-check")]),
    part(
        "sched",
        "the scheduling policy of threads",
        &[("preemptive", "sched-preempt"), ("cooperative", "sched-coop")],
    ),
    part("smp", "several processors of a virtual machine", &[("on", "smp"), ("off", "")]),
    part("net", "TCP/IP: without it socket(AF_INET) fails", &[("tcpip", "net-tcpip"), ("none", "")]),
    // Put in where the machine's network has it: IPv4 alone is on most.
    part("ipv6", "IPv6 on the machine's network, beyond ::1", &[("off", ""), ("on", "ipv6")]),
    // Machines of `run` are told their address by the host.
    part("dhcp", "ask the network for an address, which `run` does not need", &[("off", ""), ("on", "dhcp")]),
    // Nor is there a cloud that tells them more.
    part(
        "metadata",
        "ask the cloud for the computer's name and user data, which `run` does not need",
        &[("off", ""), ("on", "metadata")],
    ),
    // Machines of `run` have virtio devices.
    part("e1000", "Intel's network cards, which `run` does not need", &[("off", ""), ("on", "e1000")]),
    // Their disks are virtio's, too.
    part(
        "nvme",
        "disks behind NVM Express, for programs of --static and for ext4",
        &[("off", ""), ("on", "nvme")],
    ),
    // Put in where a disk is mounted.
    part("ext4", "disks (/dev/vda) and the file system ext4", &[("off", ""), ("on", "ext4")]),
    // Larger than a part that most programs do without may be; engines in containers want it.
    part("overlayfs", "union mounts (mount -t overlay)", &[("off", ""), ("on", "overlayfs")]),
    part(
        "vsock",
        "the overlay and `stop` on Firecracker and Cloud Hypervisor",
        &[("on", "vsock"), ("off", "")],
    ),
    // Put in by `build --machine xen`.
    part("xen", "guests of Xen: console, clock, network, disks", &[("off", ""), ("on", "xen")]),
    // Put in by `build --disk`: no machine of `run` has a screen.
    part(
        "framebuffer",
        "the console on the screen, too, where UEFI has one",
        &[("off", ""), ("on", "framebuffer")],
    ),
    // Hosts of virtual machines have other ways.
    part(
        "acpi",
        "a computer's power button, and switching it off, which `run` does not need",
        &[("off", ""), ("on", "acpi")],
    ),
    part("unix", "sockets of AF_UNIX", &[("on", "net-unix"), ("off", "")]),
    part(
        "packet",
        "sockets of AF_PACKET, which capture and send frames",
        &[("on", "net-packet"), ("off", "")],
    ),
    // Larger than a part that most programs do without may be: a container of Docker's may make no interfaces either.
    part(
        "tun",
        "/dev/net/tun, pairs and bridges; interfaces, addresses and routes that programs change",
        &[("off", ""), ("on", "net-tun")],
    ),
    // The last one is for `bench overlay`: the channel to the host only echoes.
    part(
        "overlay",
        "exec, attach, cp and others in the running machine",
        &[("on", "overlay"), ("off", ""), ("echo", "overlay-echo")],
    ),
    part("programs", "programs of yours in the running machine", &[("on", "programs"), ("off", "")]),
    part("trace", "eBPF at functions and tracepoints, top and profile", &[("on", "trace"), ("off", "")]),
    part("sysv-ipc", "shmget, semget, msgget and theirs", &[("on", "sysv-ipc"), ("off", "")]),
    part("aio", "io_setup and its", &[("on", "aio"), ("off", "")]),
    // Larger than a part that most programs do without may be: they fall back to epoll.
    part("io_uring", "io_uring_setup and its", &[("off", ""), ("on", "io_uring")]),
    part("mqueue", "mq_open and its", &[("on", "mqueue"), ("off", "")]),
    part("inotify", "inotify_init and its", &[("on", "inotify"), ("off", "")]),
    // Larger than a part that most programs do without may be, and engines of containers refuse its calls.
    part("keys", "add_key, request_key and keyctl", &[("off", ""), ("on", "keys")]),
    part("landlock", "landlock_restrict_self and its", &[("off", ""), ("on", "landlock")]),
    part("volumes", "directories of the host (-v)", &[("on", "volumes"), ("off", "")]),
    part(
        "fail-nth",
        "/proc/self/fail-nth: requests for memory fail, for tests",
        &[("off", ""), ("on", "fail-nth")],
    ),
    part(
        PROGRAM_ALLOCATOR,
        "the malloc of a program of --static",
        &[
            ("musl", ""),
            ("tlsf", "libc-malloc/tlsf"),
            ("buddy", "libc-malloc/buddy"),
            ("mimalloc", "libc-malloc/mimalloc"),
            ("tiny", "libc-malloc/tiny"),
            ("region", "libc-malloc/region"),
            ("guard", "libc-malloc/guard"),
        ],
    ),
];

/// A part that is nothing without another one.
struct Need {
    part: &'static str,
    needs: &'static str,
    why: &'static str,
    /// Nobody asked for the part: it is left out where the other one is.
    gives_way: bool,
}

const NEEDS: [Need; 10] = [
    Need { part: "programs", needs: "overlay", why: "they come over its channel", gives_way: true },
    Need { part: "trace", needs: "overlay", why: "its commands come over that channel", gives_way: true },
    Need { part: "overlay", needs: "volumes", why: "its files are a volume", gives_way: false },
    Need { part: "alloc.net", needs: "net", why: "the heap is that of TCP/IP", gives_way: true },
    Need { part: "dhcp", needs: "net", why: "the address is that of TCP/IP", gives_way: true },
    Need { part: "metadata", needs: "net", why: "the cloud is asked over TCP/IP", gives_way: true },
    Need { part: "ipv6", needs: "net", why: "the device is that of TCP/IP", gives_way: true },
    Need { part: "packet", needs: "net", why: "the link is that of TCP/IP", gives_way: true },
    Need { part: "tun", needs: "net", why: "the interfaces are those of TCP/IP", gives_way: true },
    Need { part: "e1000", needs: "net", why: "the card is driven for TCP/IP", gives_way: true },
];

/// Two choices that cannot be together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub keys: [&'static str; 2],
    pub text: String,
}

/// A value, and why it is not what was said or the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub value: &'static str,
    /// It gave way to this choice.
    pub because_of: Option<String>,
}

pub fn choice(key: &str) -> Option<&'static Choice> {
    CHOICES.iter().find(|choice| choice.key == key)
}

/// What `--help` says of `--set`.
pub fn help() -> String {
    let is_switch = |choice: &&Choice| matches!(choice.words()[..], ["on", "off"] | ["off", "on"]);
    let named = CHOICES.iter().filter(|choice| choice.is_of_kernel() && !is_switch(choice));
    let named: Vec<String> =
        named.map(|choice| format!("{}={}", choice.key, choice.words().join("|"))).collect();
    let switches: Vec<&str> = CHOICES.iter().filter(is_switch).map(|choice| choice.key).collect();
    let program = choice(PROGRAM_ALLOCATOR).map_or(String::new(), |choice| choice.words().join("|"));
    format!(
        "Choose a part of the kernel: {}; with on|off: {}; and of a program of --static its malloc: \
         {PROGRAM_ALLOCATOR}={program}; `unilith menu --list` says what each is; may repeat",
        named.join(", "),
        switches.join(", "),
    )
}

/// Key and value of a choice as `--set` takes it.
pub fn pair(text: &str) -> Result<(String, String)> {
    let pair = text.split_once('=').ok_or_else(|| Fault::new(format!("--set {text}: write KEY=VALUE")))?;
    Ok((pair.0.to_string(), pair.1.to_string()))
}

/// The value of every choice; the error names what is unknown.
pub fn values(set: &BTreeMap<String, String>) -> Result<BTreeMap<&'static str, Value>> {
    if let Some(unknown) = set.keys().find(|key| choice(key).is_none()) {
        let known: Vec<&str> = CHOICES.iter().map(|choice| choice.key).collect();
        return Err(Fault::new(format!(
            "--set {unknown}: there is no such choice; there are {}",
            known.join(", ")
        )));
    }
    let mut values = BTreeMap::new();
    for choice in &CHOICES {
        let wanted = set.get(choice.key).map_or(choice.default(), String::as_str);
        let known = choice.values.iter().find(|(value, _)| *value == wanted).map(|(value, _)| *value);
        let value = known.ok_or_else(|| {
            let key = choice.key;
            Fault::new(format!("--set {key}={wanted}: {key} is one of {}", choice.words().join(", ")))
        })?;
        values.insert(choice.key, Value { value, because_of: None });
    }
    for need in NEEDS.iter().filter(|need| need.gives_way && !set.contains_key(need.part)) {
        let Some(out) = choice(need.part).and_then(|c| c.values.iter().find(|(_, f)| f.is_empty())) else {
            continue;
        };
        if is_in(&values, need.part) && !is_in(&values, need.needs) {
            let because_of = Some(format!("{}={}", need.needs, values[need.needs].value));
            values.insert(need.part, Value { value: out.0, because_of });
        }
    }
    Ok(values)
}

fn is_in(values: &BTreeMap<&'static str, Value>, key: &str) -> bool {
    values.get(key).zip(choice(key)).is_some_and(|(value, choice)| choice.is_in(value.value))
}

/// What of these values cannot be together, with the reason.
pub fn conflicts(values: &BTreeMap<&'static str, Value>) -> Vec<Conflict> {
    let broken = NEEDS.iter().filter(|need| is_in(values, need.part) && !is_in(values, need.needs));
    let say = |need: &Need| Conflict {
        keys: [need.part, need.needs],
        text: format!(
            "{part}={value} needs {needs}, for {}; choose {part}={without} or leave out {needs}={out}",
            need.why,
            part = need.part,
            value = values[need.part].value,
            needs = need.needs,
            without = without(need.part),
            out = values[need.needs].value,
        ),
    };
    broken.map(say).collect()
}

/// The value with which the kernel goes without.
fn without(key: &str) -> &'static str {
    let values = choice(key).map_or(&[][..], |choice| choice.values);
    values.iter().find(|(_, feature)| feature.is_empty()).map_or("", |(value, _)| value)
}

/// What a choice needs, and what needs it.
pub fn needs(key: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let needed = NEEDS.iter().filter(|need| need.part == key).map(|need| need.needs).collect();
    (needed, NEEDS.iter().filter(|need| need.needs == key).map(|need| need.part).collect())
}

/// The cargo features for `--set` choices, defaults filled in.
pub fn features(set: &BTreeMap<String, String>) -> Result<Vec<&'static str>> {
    let values = values(set)?;
    if let Some(conflict) = conflicts(&values).first() {
        return Err(Fault::new(format!("--set: {}", conflict.text)));
    }
    let of_kernel = CHOICES.iter().filter(|choice| choice.is_of_kernel());
    let chosen = of_kernel.filter_map(|choice| choice.feature(values[choice.key].value));
    Ok(chosen.filter(|feature| !feature.is_empty()).collect())
}

/// The heap library that is to be the `malloc` of a linked program; none: the C library's own.
pub fn program_allocator(set: &BTreeMap<String, String>) -> Result<Option<&'static str>> {
    let value = values(set)?[PROGRAM_ALLOCATOR].value;
    Ok(choice(PROGRAM_ALLOCATOR).is_some_and(|choice| choice.is_in(value)).then_some(value))
}

/// Where features say which crates they bring.
const MANIFESTS: [(&str, &str); 14] = [
    (KERNEL, include_str!("../../../micro/kernel/Cargo.toml")),
    ("plat-pc", include_str!("../../../micro/plat/pc/Cargo.toml")),
    ("posix", include_str!("../../../micro/posix/Cargo.toml")),
    ("proc", include_str!("../../../micro/posix/proc/Cargo.toml")),
    ("task", include_str!("../../../micro/posix/task/Cargo.toml")),
    ("calls-files", include_str!("../../../micro/calls/files/Cargo.toml")),
    ("calls-ipc", include_str!("../../../micro/calls/ipc/Cargo.toml")),
    ("calls-memory", include_str!("../../../micro/calls/memory/Cargo.toml")),
    ("calls-process", include_str!("../../../micro/calls/process/Cargo.toml")),
    ("calls-sockets", include_str!("../../../micro/calls/sockets/Cargo.toml")),
    ("calls-keys", include_str!("../../../micro/calls/keys/Cargo.toml")),
    ("calls-landlock", include_str!("../../../micro/calls/landlock/Cargo.toml")),
    ("calls-uring", include_str!("../../../micro/calls/uring/Cargo.toml")),
    (PROGRAMS, include_str!("../../../micro/libc/malloc/Cargo.toml")),
];

const KERNEL: &str = "kernel";

/// The crate of [`PROGRAM_ALLOCATOR`], which is part of a program.
const PROGRAMS: &str = "libc-malloc";

/// Crates of one choice each (`keys`, `landlock`, `io_uring`): what they need and nobody else does comes with them.
const OPTIONAL: [&str; 3] = ["calls-keys", "calls-landlock", "calls-uring"];

/// What the kernel's manifests say of their crates.
pub struct Parts {
    /// Of each feature of the kernel, with those that it brings in.
    of_features: BTreeMap<String, BTreeSet<String>>,
    /// Crates that every kernel has.
    always: BTreeSet<String>,
}

impl Parts {
    pub fn read() -> Result<Parts> {
        let wrong = |name: &str| Fault::new(format!("micro/{name}/Cargo.toml cannot be read"));
        let mut features: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut always, mut of_optional) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
        for (name, text) in MANIFESTS {
            let manifest: toml_edit::DocumentMut = text.parse().map_err(|_| wrong(name))?;
            let table = |key: &str| manifest.get(key).and_then(toml_edit::Item::as_table_like);
            for (feature, brings) in table("features").iter().flat_map(|features| features.iter()) {
                let brings = brings.as_array().ok_or_else(|| wrong(name))?.iter();
                let brings = brings.filter_map(toml_edit::Value::as_str);
                let full = |word: &str| match name == KERNEL || word.contains([':', '/']) {
                    // A feature of a crate that may not be there is found by the name that the crate gives it.
                    true => word.replace('?', ""),
                    false => format!("{name}/{word}"),
                };
                let mut all: Vec<String> = brings.map(full).collect();
                if name == PROGRAMS {
                    all.push(format!("dep:{PROGRAMS}"));
                }
                features.insert(full(feature), all);
            }
            for (dependency, details) in table("dependencies").ok_or_else(|| wrong(name))?.iter() {
                let details = details.as_table_like();
                let optional = details.and_then(|details| details.get("optional")?.as_bool());
                let library = dependency.replace('-', "_");
                match name {
                    PROGRAMS => {}
                    _ if optional == Some(true) => {}
                    _ if OPTIONAL.contains(&name) => {
                        of_optional.entry(name.replace('-', "_")).or_default().insert(library);
                    }
                    _ => drop(always.insert(library)),
                }
            }
        }
        let mut of_features: BTreeMap<String, BTreeSet<String>> =
            features.keys().map(|name| (name.clone(), crates(&features, name))).collect();
        for (name, needs) in &of_optional {
            let with_it = of_features.values_mut().filter(|all| all.contains(name));
            with_it.for_each(|all| all.extend(needs.difference(&always).cloned()));
        }
        Ok(Parts { of_features, always })
    }

    /// The crates that a feature brings, without those of choices that come with it; none for no feature.
    pub fn of(&self, feature: &str) -> BTreeSet<String> {
        self.of_features.get(feature).cloned().unwrap_or_default()
    }

    pub fn is_always_there(&self, library: &str) -> bool {
        library == KERNEL || self.always.contains(library)
    }
}

fn crates(features: &BTreeMap<String, Vec<String>>, name: &str) -> BTreeSet<String> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let is_a_choice = |word: &str| CHOICES.iter().flat_map(|c| c.values).any(|(_, feature)| *feature == word);
    let mut next = vec![name.to_string()];
    while let Some(feature) = next.pop() {
        if !seen.insert(feature.clone()) {
            continue;
        }
        for word in features.get(&feature).into_iter().flatten() {
            match word.strip_prefix("dep:") {
                Some(dependency) => drop(found.insert(dependency.replace('-', "_"))),
                None if is_a_choice(word) => {}
                None => next.push(word.clone()),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn what_is_not_chosen_has_its_default() {
        assert_eq!(
            features(&set(&[])).unwrap(),
            [
                "alloc-tlsf",
                "sched-preempt",
                "smp",
                "net-tcpip",
                "vsock",
                "net-unix",
                "net-packet",
                "overlay",
                "programs",
                "trace",
                "sysv-ipc",
                "aio",
                "mqueue",
                "inotify",
                "volumes"
            ]
        );
        let lean = set(&[
            ("alloc", "buddy"),
            ("overlay", "off"),
            ("sysv-ipc", "off"),
            ("aio", "off"),
            ("inotify", "off"),
        ]);
        assert_eq!(
            features(&lean).unwrap(),
            [
                "alloc-buddy",
                "sched-preempt",
                "smp",
                "net-tcpip",
                "vsock",
                "net-unix",
                "net-packet",
                "mqueue",
                "volumes"
            ]
        );
    }

    #[test]
    fn the_overlay_goes_without_its_larger_parts_and_they_not_without_it() {
        let small = features(&set(&[("programs", "off"), ("trace", "off")])).unwrap();
        assert!(small.contains(&"overlay") && !small.contains(&"trace") && !small.contains(&"programs"));
        let none = features(&set(&[("overlay", "off")])).unwrap();
        assert!(["overlay", "trace", "programs"].iter().all(|part| !none.contains(part)));
        let given = values(&set(&[("overlay", "off")])).unwrap();
        assert_eq!(given["trace"], Value { value: "off", because_of: Some("overlay=off".into()) });
        let asked = features(&set(&[("overlay", "off"), ("trace", "on")])).unwrap_err().message;
        assert!(asked.contains("trace=on needs overlay") && asked.contains("overlay=off"), "{asked}");
    }

    #[test]
    fn what_needs_a_part_that_is_left_out_is_refused_with_the_reason() {
        for (wrong, words) in [
            (&[("volumes", "off")][..], ["overlay=on needs volumes", "volumes=off"]),
            (&[("net", "none"), ("dhcp", "on")], ["dhcp=on needs net", "net=none"]),
            (&[("overlay", "off"), ("programs", "on")], ["programs=on needs overlay", "programs=off"]),
        ] {
            let error = features(&set(wrong)).unwrap_err().message;
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        assert!(features(&set(&[("overlay", "off"), ("volumes", "off")])).is_ok());
    }

    #[test]
    fn a_programs_allocator_is_no_part_of_the_kernel() {
        let chosen = set(&[("alloc.program", "tlsf")]);
        assert_eq!(features(&chosen).unwrap(), features(&set(&[])).unwrap());
        assert_eq!(program_allocator(&chosen).unwrap(), Some("tlsf"));
        assert_eq!(program_allocator(&set(&[("alloc.program", "musl")])).unwrap(), None);
        let error = program_allocator(&set(&[("alloc.program", "jemalloc")])).unwrap_err().message;
        assert!(error.contains("musl, tlsf, buddy, mimalloc, tiny, region, guard"), "{error}");
    }

    #[test]
    fn an_unknown_choice_is_answered_with_the_known_ones() {
        let error = features(&set(&[("alloc", "slab")])).unwrap_err().message;
        assert!(
            error.contains("alloc=slab") && error.contains("tlsf, buddy, mimalloc, tiny, region"),
            "{error}"
        );
        let error = features(&set(&[("speed", "fast")])).unwrap_err().message;
        assert!(
            error.contains("--set speed") && error.contains("alloc, alloc.net, heap-check, sched"),
            "{error}"
        );
    }

    #[test]
    fn every_feature_of_a_choice_is_one_of_the_kernels_and_brings_its_crates() {
        let parts = Parts::read().unwrap();
        for (value, feature) in CHOICES.iter().flat_map(|choice| choice.values).filter(|(_, f)| !f.is_empty())
        {
            assert!(parts.of_features.contains_key(*feature), "{value}: {feature}");
        }
        assert!(parts.of("alloc-tlsf").contains("alloc_tlsf") && parts.of("net-tcpip").contains("tcpip"));
        // Through posix; and not what comes with another choice.
        assert!(parts.of("mqueue").contains("mqueue") && parts.of("volumes").contains("ninep"));
        assert!(["calls_keys", "keys"].iter().all(|part| parts.of("keys").contains(*part)));
        assert!(!parts.is_always_there("keys"));
        // Through the platform.
        assert!(parts.of("framebuffer").contains("framebuffer") && !parts.is_always_there("framebuffer"));
        assert!(["calls_uring", "uring"].iter().all(|part| parts.of("io_uring").contains(*part)));
        assert!(parts.of("ext4").contains("disks") && !parts.of("io_uring").contains("vfs"));
        assert!(!parts.of("trace").contains("ninep") && parts.of("trace").contains("overlay_trace"));
        let guard = parts.of("libc-malloc/guard");
        assert!(["alloc_checked", "alloc_tlsf", "libc_malloc"].iter().all(|part| guard.contains(*part)));
        assert!(parts.is_always_there("vfs") && !parts.is_always_there("tcpip"));
    }
}
