// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which program a reference to packages means.

use crate::{
    debian,
    facts::{Facts, Program},
};
use std::path::{Path, PathBuf};

/// Programs that a message names.
const MAX_NAMED: usize = 12;

/// Which program of a set of packages runs: the one named as the package, the one of a dependency that the package's
/// name begins with (nginx-light) or that has the package's name with a version (php-fpm8.2), else the only one it has.
pub(crate) fn choose(facts: &mut Facts, packages: &[String], unpacked: &mut debian::Unpacked) {
    let package = packages.first().map_or("", String::as_str);
    if facts.find(package).is_some() {
        facts.program = Some(package.to_string());
        return;
    }
    let own: Vec<PathBuf> = packages.iter().filter_map(|n| unpacked.files.remove(n)).flatten().collect();
    let commands = facts.commands();
    // A package may still say /bin where the command is in /usr/bin: the last directory and the name decide.
    let ends = |p: &Path| p.iter().rev().take(2).map(|n| n.to_os_string()).collect::<Vec<_>>();
    let of = |files: &[PathBuf]| -> Vec<&String> {
        commands.iter().filter(|c| files.iter().any(|o| ends(o) == ends(Path::new(c)))).collect()
    };
    let mine = of(&own);
    let name = |path: &String| path.rsplit('/').next().unwrap_or(path).to_string();
    // php for php-cli, by Debian's alternatives or as a file.
    let short =
        ["-cli", "-bin", "-core", "-nox", "-full", "-client"].iter().find_map(|e| package.strip_suffix(e));
    if let Some(program) = short.filter(|short| mine.len() != 1 && facts.find(short).is_some()) {
        facts.program = Some(program.to_string());
        return;
    }
    if mine.is_empty() {
        let direct = unpacked.depends.get(package).cloned().unwrap_or_default();
        let files: Vec<PathBuf> =
            direct.iter().filter_map(|d| unpacked.files.get(d)).flatten().cloned().collect();
        let begins = |c: &&&String| {
            let name = name(c);
            name.len() > 2
                && package.strip_prefix(&name).is_some_and(|r| r.starts_with(|c: char| !c.is_alphabetic()))
        };
        let all = of(&files);
        // php-fpm's is php-fpm8.2: a package of the newest version has only that version's program.
        let versions = |c: &&&String| {
            let version = |r: &str| r.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let is_version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
            name(c).strip_prefix(package).is_some_and(|r| version(r) && r.chars().all(is_version))
        };
        if let Some(program) = all.iter().find(versions) {
            facts.program = Some((**program).clone());
            return;
        }
        if let Some(program) = all.iter().filter(begins).max_by_key(|c| c.len()) {
            facts.program = Some((**program).clone());
            return;
        }
    }
    // iputils-ping's is ping and fortune-mod's is fortune, whatever else they have.
    let is_part = |c: &&&String| {
        let (name, apart) = (name(c), |c: char| !c.is_alphanumeric());
        let begins = package.strip_prefix(&name).is_some_and(|rest| rest.starts_with(apart));
        let ends = package.strip_suffix(&name).is_some_and(|rest| rest.ends_with(apart));
        name.len() > 1 && (begins || ends)
    };
    if let Some(program) =
        mine.iter().filter(is_part).max_by_key(|c| name(c).len()).filter(|_| mine.len() > 1)
    {
        facts.program = Some((*program).clone());
        return;
    }
    match &mine[..] {
        [only] => facts.program = Some((*only).clone()),
        [] => {
            // Those that only other programs start: plugins of a monitor, tools in /usr/lib.
            let elsewhere = |p: &&Program| {
                !commands.contains(&p.path) && own.iter().any(|o| ends(o) == ends(Path::new(&p.path)))
            };
            let elsewhere: Vec<&str> =
                facts.programs.iter().filter(elsewhere).map(|p| p.path.as_str()).take(MAX_NAMED).collect();
            if let Some(first) = elsewhere.first() {
                facts.no_program = format!(
                    "the package {package} has no program on PATH; it has {}: name one, as in `unilith run debian:{package} -- {first}`",
                    elsewhere.join(", ")
                );
                return;
            }
            let others: Vec<String> = commands.iter().map(name).take(MAX_NAMED).collect();
            facts.no_program = match others.is_empty() {
                true => format!(
                    "the package {package} has no program (nothing executable in usr/bin or usr/sbin); name one that has"
                ),
                false => format!(
                    "the package {package} has no program of its own; its dependencies have {}: name one, as in `unilith run debian:{package} -- {}`",
                    others.join(", "),
                    others[0]
                ),
            };
        }
        several => {
            let names: Vec<String> = several.iter().map(|p| name(p)).collect();
            facts.no_program = format!(
                "the package {package} has several programs: {}; name one, as in `unilith run debian:{package} -- {}`",
                names.join(", "),
                names[0]
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What runs of a package that depends on others, each with its files.
    fn chosen(package: &str, others: &[(&str, &[&str])]) -> std::result::Result<String, String> {
        let program = |path: &&str| Program { path: (*path).into(), script: None, problem: None };
        let programs = others.iter().flat_map(|(_, files)| files.iter().map(program)).collect();
        let mut facts = Facts { programs, ..Facts::default() };
        let mut unpacked = debian::Unpacked::default();
        for (name, files) in others {
            unpacked.files.insert((*name).into(), files.iter().map(PathBuf::from).collect());
        }
        let names = others.iter().map(|(name, _)| name.to_string()).filter(|name| name != package);
        unpacked.depends.insert(package.into(), names.collect());
        choose(&mut facts, &[package.into()], &mut unpacked);
        facts.program.ok_or(facts.no_program)
    }

    #[test]
    fn of_several_programs_the_one_that_the_package_is_named_after_is_meant() {
        let ping = [("iputils-ping", &["/usr/bin/ping", "/usr/bin/ping4", "/usr/bin/ping6"][..])];
        assert_eq!(chosen("iputils-ping", &ping).unwrap(), "/usr/bin/ping");
        let fortune = [("fortune-mod", &["/usr/bin/strfile", "/usr/games/fortune"][..])];
        assert_eq!(chosen("fortune-mod", &fortune).unwrap(), "/usr/games/fortune");
        let error = chosen("moreutils", &[("moreutils", &["/usr/bin/sponge", "/usr/bin/ts"])]).unwrap_err();
        assert!(error.contains("several programs: sponge, ts"), "{error}");
    }

    #[test]
    fn programs_that_are_not_on_the_path_are_named() {
        let plugins = ["/usr/lib/nagios/plugins/check_load", "/usr/lib/nagios/plugins/check_users"];
        let error =
            chosen("plugins", &[("plugins", &plugins[..]), ("procps", &["/usr/bin/ps"])]).unwrap_err();
        assert!(
            error.contains("has no program on PATH; it has /usr/lib/nagios/plugins/check_load, /usr/lib")
                && error.ends_with("`unilith run debian:plugins -- /usr/lib/nagios/plugins/check_load`"),
            "{error}"
        );
    }

    #[test]
    fn a_package_without_a_program_means_that_of_its_dependency() {
        let of = |package, others| chosen(package, others).unwrap();
        let fpm = [("php8.2-fpm", &["/usr/sbin/php-fpm8.2"][..]), ("procps", &["/usr/bin/ps"])];
        assert_eq!(of("php-fpm", &fpm), "/usr/sbin/php-fpm8.2");
        let light = [("iproute2", &["/usr/bin/ctstat"][..]), ("nginx", &["/usr/sbin/nginx"])];
        assert_eq!(of("nginx-light", &light), "/usr/sbin/nginx");
        // A name that goes on with letters is another program's.
        let error = chosen("php-fpm", &[("other", &["/usr/bin/php-fpm-admin"])]).unwrap_err();
        assert!(error.contains("no program of its own") && error.contains("php-fpm-admin"), "{error}");
    }
}
