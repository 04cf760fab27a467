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
    ("--driver-opt", "there is one kind of network, without options"),
    ("--gw-priority", "every machine has one way out, whatever networks it is in"),
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
    ("--expose", "every port of a machine is open to its networks; -p publishes one on this host"),
    ("--ip6", "machines have IPv4; -p '[ADDRESS]:HOST:PORT' publishes on an address of IPv6"),
    ("--domainname", "write it into --hostname: NAME.DOMAIN"),
    ("--dns-search", "names are looked up as they are written; --add-host NAME:ADDRESS gives a short one"),
    ("--dns-option", "names are looked up as they are written; --dns chooses the server"),
    ("--net-alias", "use --network-alias"),
    ("--attach", "without -d the program's output is shown; -i passes this command's input"),
    ("--sig-proxy", "signals to `unilith run` go to the program; with -d use `unilith kill -s SIGNAL NAME`"),
    ("--annotation", "use -l"),
    ("--size", "use `unilith diff NAME`, and `unilith stats`"),
    ("--blkio-weight-device", "use ionice(1) before `unilith run`"),
    ("--cpu-rt-period", "use chrt(1) before `unilith run`"),
    ("--cpu-rt-runtime", "use chrt(1) before `unilith run`"),
    ("--cpu-count", "docker has it on Windows only: use --cpus"),
    ("--cpu-percent", "docker has it on Windows only: use --cpus"),
    ("--io-maxbandwidth", "docker has it on Windows only"),
    ("--io-maxiops", "docker has it on Windows only"),
    ("--device-cgroup-rule", "there are no devices of this host in machines"),
    (
        "--device-read-bps",
        "there are no devices of this host in machines: `systemd-run -p IOReadBandwidthMax=` before `unilith run` bounds volumes",
    ),
    (
        "--device-read-iops",
        "there are no devices of this host in machines: `systemd-run -p IOReadIOPSMax=` before `unilith run` bounds volumes",
    ),
    (
        "--device-write-bps",
        "there are no devices of this host in machines: `systemd-run -p IOWriteBandwidthMax=` before `unilith run` bounds volumes",
    ),
    (
        "--device-write-iops",
        "there are no devices of this host in machines: `systemd-run -p IOWriteIOPSMax=` before `unilith run` bounds volumes",
    ),
    ("--disable-content-trust", "images are not signed; those of registries are verified by their digest"),
    ("--link-local-ip", "addresses are chosen; machines of one network find each other by name"),
    ("--use-api-socket", "there is no daemon and so no socket of one"),
    ("--details", "labels are in `unilith inspect NAME`, not in logs"),
    ("--archive", "files keep their modes; in the machine they are the user's that its overlay is"),
    ("--follow-link", "links are copied as links: name the file that the link leads to"),
    ("--volumes", "use `unilith volume prune`"),
];

/// What to use instead of a flag of one verb.
const OF_VERB: &[(&str, &str, &str)] = &[
    ("start", "--attach", "use `unilith logs -f NAME` after it"),
    ("start", "--interactive", "use `unilith run -i`: a machine in the background has no input"),
    ("start", "--detach-keys", "a machine in the background is on no terminal: use `unilith logs -f NAME`"),
    ("stop", "--signal", "the signal is that of `unilith run --stop-signal`"),
    ("restart", "--signal", "the signal is that of `unilith run --stop-signal`"),
    ("rm", "--link", "there are no links: machines of one network find each other by name"),
    (
        "inspect",
        "--type",
        "`unilith inspect` is of machines; `unilith image inspect`, `volume inspect` and `network inspect` are of others",
    ),
    ("stats", "--all", "a machine that has ended takes nothing: `unilith ps -a` lists it"),
    ("images", "--all", "an image has no intermediate ones: all are listed"),
    ("images", "--digests", "ids are digests: `unilith images -q`"),
    ("images", "--filter", "use grep(1), or --format and --json"),
    ("pull", "--all-tags", "name each: `unilith pull NAME:TAG NAME:TAG`"),
    ("rmi", "--no-prune", "an image has no parents"),
];

/// Short flags of docker's, by its verbs: another verb has another flag of that letter.
const SHORT: &[(&str, &str, &str)] = &[
    ("start", "-a", "--attach"),
    ("start", "-i", "--interactive"),
    ("stop", "-s", "--signal"),
    ("restart", "-s", "--signal"),
    ("rm", "-l", "--link"),
    ("stats", "-a", "--all"),
    ("images", "-a", "--all"),
    ("images", "-f", "--filter"),
    ("pull", "-a", "--all-tags"),
    ("run", "-a", "--attach"),
    ("run", "-c", "--cpu-shares"),
    ("update", "-c", "--cpu-shares"),
    ("cp", "-a", "--archive"),
    ("cp", "-L", "--follow-link"),
    ("ps", "-s", "--size"),
    ("inspect", "-s", "--size"),
];

/// What to use instead of a verb.
fn verb(word: &str) -> Option<&'static str> {
    VERBS.iter().find(|(name, _)| *name == word).map(|(_, instead)| *instead)
}

/// What to use instead of a flag, which may have a value behind `=`.
pub fn flag(verb: &str, word: &str) -> Option<&'static str> {
    let name = word.split('=').next().unwrap_or(word);
    let short = SHORT.iter().find(|(of, letter, _)| *of == verb && *letter == name);
    let name = short.map_or(name, |(_, _, long)| long);
    let of_verb = OF_VERB.iter().find(|(of, flag, _)| *of == verb && *flag == name);
    if let Some((_, _, instead)) = of_verb {
        return Some(instead);
    }
    FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, instead)| *instead)
}

/// The verb of this process's command line.
fn verb_of_line() -> String {
    crate::detach::words().nth(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Ends this process as clap does, with what docker's users may want instead.
pub fn exit(error: &Error) -> ! {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let instead =
        word(ContextKind::InvalidSubcommand).and_then(|name| Some((name, verb(name)?))).or_else(|| {
            word(ContextKind::InvalidArg).and_then(|name| Some((name, flag(&verb_of_line(), name)?)))
        });
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
        assert!(flag("run", "--gpus=all").is_some() && flag("run", "--publish").is_none());
        assert!(flag("run", "-c").unwrap().contains("--cpus") && flag("ps", "-c").is_none());
        assert!(verb("run").is_none());
    }

    /// What `docker VERB --help` of docker 28 lists, short letters before their words.
    const DOCKER: &[(&str, &str)] = &[
        (
            "run",
            "add-host annotation a/attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns cidfile \
             cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime c/cpu-shares cpus cpuset-cpus \
             cpuset-mems d/detach detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps \
             device-write-iops disable-content-trust dns dns-option dns-search domainname entrypoint e/env env-file expose \
             gpus group-add health-cmd health-interval health-retries health-start-interval health-start-period \
             health-timeout help h/hostname init i/interactive io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory \
             l/label label-file link link-local-ip log-driver log-opt mac-address m/memory memory-reservation memory-swap \
             memory-swappiness mount name network network-alias no-healthcheck oom-kill-disable oom-score-adj pid pids-limit \
             platform privileged p/publish P/publish-all pull q/quiet read-only restart rm runtime security-opt shm-size \
             sig-proxy stop-signal stop-timeout storage-opt sysctl tmpfs t/tty ulimit use-api-socket u/user userns uts \
             v/volume volume-driver volumes-from w/workdir",
        ),
        ("exec", "d/detach detach-keys e/env env-file i/interactive privileged t/tty u/user w/workdir"),
        ("ps", "a/all f/filter format n/last l/latest no-trunc q/quiet s/size"),
        ("logs", "details f/follow since n/tail t/timestamps until"),
        ("inspect", "f/format s/size type"),
        ("cp", "a/archive L/follow-link q/quiet"),
        ("rm", "f/force l/link v/volumes"),
        ("stop", "s/signal t/time"),
        ("restart", "s/signal t/time"),
        ("kill", "s/signal"),
        ("start", "a/attach detach-keys i/interactive"),
        ("events", "f/filter format since until"),
        ("stats", "a/all format no-stream no-trunc"),
        ("pull", "a/all-tags disable-content-trust platform q/quiet"),
        ("images", "a/all digests f/filter format no-trunc q/quiet"),
        ("rmi", "f/force no-prune"),
        (
            "update",
            "blkio-weight cpu-period cpu-quota cpu-rt-period cpu-rt-runtime c/cpu-shares cpus cpuset-cpus cpuset-mems m/memory \
             memory-reservation memory-swap pids-limit restart",
        ),
        ("network connect", "alias driver-opt gw-priority ip ip6 link link-local-ip"),
        ("network disconnect", "f/force"),
        ("wait", ""),
        ("rename", ""),
        ("port", ""),
    ];

    #[test]
    fn every_option_of_dockers_is_there_or_says_what_to_use_instead() {
        use clap::CommandFactory;
        let mut command = crate::Cli::command();
        command.build();
        let mut unanswered = Vec::new();
        for (verb, options) in DOCKER {
            let mut words = verb.split(' ');
            let ours = words.try_fold(&command, |command, word| command.find_subcommand(word)).unwrap();
            for option in options.split_whitespace() {
                let (letter, word) =
                    option.split_once('/').map_or((None, option), |(l, w)| (l.chars().next(), w));
                let has_word = ours.get_arguments().any(|arg| {
                    arg.get_long() == Some(word)
                        || arg.get_all_aliases().is_some_and(|all| all.contains(&word))
                });
                let long = format!("--{word}");
                if !has_word && flag(verb, &long).is_none() {
                    unanswered.push(format!("{verb} {long}"));
                }
                let Some(letter) = letter else { continue };
                let has_letter = ours.get_arguments().any(|arg| {
                    arg.get_short() == Some(letter)
                        || arg.get_all_short_aliases().is_some_and(|all| all.contains(&letter))
                });
                if !has_letter && flag(verb, &format!("-{letter}")).is_none() {
                    unanswered.push(format!("{verb} -{letter}"));
                }
            }
        }
        assert!(unanswered.is_empty(), "{unanswered:?}");
    }
}
