// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verbs and flags of docker that are not here: what to use instead.

use clap::error::{ContextKind, ContextValue, Error};

const VERBS: &[(&str, &str)] = &[
    ("push", "images stay on this computer; `unilith build` writes a directory that boots elsewhere"),
    (
        "search",
        "use `apt-cache search WORD`, then `unilith run debian:PACKAGE`; `unilith apps` lists the catalogue",
    ),
    (
        "tag",
        "images have no tags: a program's name, as in `unilith run redis`, means its image; `unilith commit NAME FILE` writes one",
    ),
    (
        "save",
        "use `unilith commit NAME FILE` of a running machine, or `unilith build`, which writes a directory that boots with plain QEMU",
    ),
    ("load", "use `unilith run oci:FILE`: it takes what `docker save` writes"),
    ("import", "use `unilith run dir:PATH` with the unpacked directory"),
    ("export", "use `unilith commit NAME FILE`: the layer in FILE is a tar archive of the files"),
    ("history", "an image is one archive; `unilith inspect NAME` says which"),
    ("create", "use `unilith run -d`, and `unilith start` for a machine that has ended"),
    ("update", "memory and processors are chosen when a machine is made: `unilith run -m SIZE --cpus N`"),
    ("info", "use `unilith doctor` for this computer, `unilith system df` for the disk"),
    (
        "container",
        "the verbs are `unilith ps`, `unilith inspect`, `unilith rm` and so on, without `container`",
    ),
    ("swarm", "there are no clusters"),
    ("service", "there are no clusters; `unilith run -d --restart always` keeps a program running"),
    ("stack", "there are no clusters"),
    ("buildx", "use `unilith build`"),
    ("builder", "use `unilith system prune`"),
    ("context", "machines run on this computer alone"),
    ("plugin", "there are no plugins; `unilith overlay build` makes programs for running machines"),
    ("ls", "use `unilith ps`"),
    ("node", "there are no clusters"),
    (
        "secret",
        "there are no clusters; a compose file has secrets, and `unilith run -v FILE:/run/secrets/NAME:ro` gives one",
    ),
    (
        "config",
        "there are no clusters; a compose file has configs, and `unilith run -v FILE:PATH:ro` gives one",
    ),
    ("trust", "images are not signed; those of registries are verified by their digest"),
    ("manifest", "programs are x86-64: an image of several platforms gives that one"),
    (
        "checkpoint",
        "the state of a running machine is not kept; its files are, with `unilith commit NAME FILE`",
    ),
    (
        "healthcheck",
        "checks run by themselves with `unilith run --health-cmd`; `unilith ps` shows what they say",
    ),
    ("pod", "machines that belong together are in a compose file: `unilith compose up`"),
    ("play", "use `unilith compose up` with a compose file"),
    ("kube", "use `unilith compose up` with a compose file; Kubernetes runs pods with `unilith-runc`"),
    ("mount", "use `unilith cp` with a running machine, or `unilith run -v HOST:PATH`"),
    ("machine", "each program has a machine of its own: `unilith run PROGRAM`"),
];

const FLAGS: &[(&str, &str)] = &[
    ("--privileged", "a machine has a kernel of its own and needs no rights on this host"),
    ("--platform", "programs are x86-64"),
    ("--gpus", "there are no devices of this host in machines"),
    ("--device", "there are no devices of this host in machines"),
    (
        "--link",
        "give both machines --network NAME: they reach each other by name (`unilith network create NAME`)",
    ),
    ("--ip", "addresses are chosen; machines of one network find each other by name"),
    ("--subnet", "a network has no range of its own; UNILITH_NETWORK names the one for all machines"),
    ("--gateway", "a network has no range of its own; UNILITH_NETWORK names the one for all machines"),
    ("--internal", "a machine without a way out has `run --network none`"),
    ("--volumes-from", "give the same -v to both"),
    ("--env-host", "use -e NAME for each variable"),
    ("--shm-size", "/dev/shm is part of the machine's memory: use -m"),
    ("--memory-swap", "machines do not swap: use -m"),
    ("--cpu-shares", "use --cpus"),
    ("--cpuset-cpus", "use taskset(1) before `unilith run`"),
    ("--pid", "a machine has its own processes only"),
    ("--ipc", "a machine has its own IPC only"),
    ("--userns", "a machine has its own users only"),
    ("--log-driver", "use `unilith logs`"),
    (
        "--detach-keys",
        "it is for `unilith run -it`: a program of `exec` ends with its client; -d starts one that does not",
    ),
    ("--cidfile", "`unilith run -d` prints the id; --name gives a name"),
    ("--sysctl", "the kernel is the machine's own and has no settings for it; --set chooses its parts"),
    ("--pids-limit", "processes are bounded by the machine's memory: use -m"),
    ("--memory-reservation", "a machine takes what it uses, up to -m"),
    ("--memory-swappiness", "machines do not swap: use -m"),
    ("--kernel-memory", "the machine's kernel lives in its memory: use -m"),
    ("--oom-kill-disable", "a machine that is out of memory ends: use -m"),
    ("--oom-score-adj", "use choom(1) before `unilith run`"),
    ("--cpu-period", "use --cpus"),
    ("--cpu-quota", "use --cpus"),
    ("--cpuset-mems", "use numactl(8) before `unilith run`"),
    ("--blkio-weight", "use ionice(1) before `unilith run`"),
    ("--cgroup-parent", "use `systemd-run --slice=NAME` before `unilith run`"),
    ("--cgroupns", "a machine has a kernel of its own and no cgroups"),
    ("--uts", "a machine has a name of its own: --hostname"),
    ("--runtime", "--machine says what the machine is, --kernel which kernel it has"),
    ("--isolation", "--machine says what the machine is"),
    ("--storage-opt", "the root file system is in the machine's memory: use -m"),
    ("--volume-driver", "volumes are directories of this host: `unilith volume create NAME`"),
    ("--group-add", "groups are those of the user in the image's /etc/group: use -u USER"),
    ("--expose", "every port of a machine is open to its networks; -p publishes one on this host"),
    ("--ip6", "machines have IPv4; -p '[ADDRESS]:HOST:PORT' publishes on an address of IPv6"),
    ("--mac-address", "addresses are chosen"),
    ("--domainname", "write it into --hostname: NAME.DOMAIN"),
    ("--dns-search", "names are looked up as they are written; --add-host NAME:ADDRESS gives a short one"),
    ("--dns-option", "names are looked up as they are written; --dns chooses the server"),
    ("--net-alias", "use --network-alias"),
    ("--attach", "without -d the program's output is shown; -i passes this command's input"),
    ("--sig-proxy", "signals to `unilith run` go to the program; with -d use `unilith kill -s SIGNAL NAME`"),
    ("--label-file", "use -l for each"),
    ("--annotation", "use -l"),
    ("--size", "use `unilith diff NAME`, and `unilith stats`"),
];

/// What to use instead of a verb.
fn verb(word: &str) -> Option<&'static str> {
    VERBS.iter().find(|(name, _)| *name == word).map(|(_, instead)| *instead)
}

/// What to use instead of a flag, which may have a value behind `=`.
pub fn flag(word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or(word);
    FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, instead)| *instead)
}

/// Ends this process as clap does, with what docker's users may want instead.
pub fn exit(error: &Error) -> ! {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let instead = word(ContextKind::InvalidSubcommand)
        .and_then(|name| Some((name, verb(name)?)))
        .or_else(|| word(ContextKind::InvalidArg).and_then(|name| Some((name, flag(name)?))));
    if let Some((name, instead)) = instead {
        eprintln!("unilith: there is no {name}: {instead}");
        std::process::exit(2);
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dockers_words_are_answered() {
        assert!(verb("save").unwrap().contains("commit NAME FILE"));
        assert!(flag("--gpus=all").is_some() && flag("--publish").is_none() && verb("run").is_none());
    }
}
