// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Service units (systemd.service(5), systemd.exec(5)): what `systemctl start` would run, as whom, and where.

use crate::{
    debian::Unpacked,
    maintainer::{self, Shell},
    tree::{Meta, Tree},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Directories that a service gets below a place of its own (systemd.exec(5), RuntimeDirectory=).
const PLACES: [(&str, &str); 5] = [
    ("RuntimeDirectory", "/run"),
    ("StateDirectory", "/var/lib"),
    ("CacheDirectory", "/var/cache"),
    ("LogsDirectory", "/var/log"),
    ("ConfigurationDirectory", "/etc"),
];
/// Bytes of a unit; the longest of Debian 12 has 7 kB.
const MAX_UNIT: usize = 64 << 10;

/// What a service runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// The unit's name without `.service`.
    pub unit: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    /// `USER` or `USER:GROUP`.
    pub user: Option<String>,
    pub cwd: Option<String>,
    pub stop_signal: Option<String>,
}

/// A unit as written: the values of each key of its sections, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    name: String,
    keys: BTreeMap<(String, String), Vec<String>>,
}

impl Unit {
    /// Reads a unit. Lines that are no settings are passed over, as systemd does.
    pub(crate) fn parse(name: &str, text: &str) -> Unit {
        let mut keys: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        let short: String = text.chars().take(MAX_UNIT).collect();
        for line in short.replace("\\\n", " ").lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.to_string();
            } else if let Some((key, value)) = line.split_once('=') {
                let values = keys.entry((section.clone(), key.trim().to_string())).or_default();
                match value.trim() {
                    // An empty value forgets the ones before it.
                    "" => values.clear(),
                    value => values.push(value.to_string()),
                }
            }
        }
        Unit { name: name.trim_end_matches(".service").to_string(), keys }
    }

    fn all(&self, key: &str) -> &[String] {
        self.keys.get(&("Service".to_string(), key.to_string())).map_or(&[], Vec::as_slice)
    }

    fn one(&self, key: &str) -> Option<&str> {
        self.all(key).last().map(String::as_str)
    }

    /// Whether it is started at boot when the package is installed.
    fn is_wanted(&self) -> bool {
        self.keys.contains_key(&("Install".to_string(), "WantedBy".to_string()))
    }

    /// Specifiers of systemd.unit(5) that mean the same in every image.
    fn specifiers(&self, text: &str) -> String {
        let mut out = String::new();
        let mut signs = text.chars();
        while let Some(c) = signs.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match signs.next() {
                Some('%') => out.push('%'),
                Some('t') => out.push_str("/run"),
                Some('S') => out.push_str("/var/lib"),
                Some('C') => out.push_str("/var/cache"),
                Some('L') => out.push_str("/var/log"),
                Some('E') => out.push_str("/etc"),
                Some('T') => out.push_str("/tmp"),
                Some('n') => out.push_str(&format!("{}.service", self.name)),
                Some('N' | 'p') => out.push_str(&self.name),
                Some('H' | 'l') => out.push_str("localhost"),
                Some(other) => out.extend(['%', other]),
                None => out.push('%'),
            }
        }
        out
    }

    /// What it runs; `None`: nothing that stays in the foreground.
    pub(crate) fn service(&self, tree: &Tree) -> Option<Service> {
        let kind = self.one("Type").unwrap_or("simple");
        let mut env: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: &str| {
            env.retain(|(k, _)| k != key);
            env.push((key.to_string(), value.to_string()));
        };
        for line in self.all("Environment") {
            for word in maintainer::words(&self.specifiers(line)) {
                if let Some((key, value)) = word.split_once('=') {
                    set(key, value);
                }
            }
        }
        for file in self.all("EnvironmentFile") {
            let text = tree.text(file.trim_start_matches('-')).unwrap_or_default();
            for line in
                text.replace("\\\n", " ").lines().map(str::trim).filter(|l| !l.starts_with(['#', ';']))
            {
                if let Some((key, value)) = line.split_once('=') {
                    let value = value.trim();
                    let inner = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
                    set(key.trim(), inner.unwrap_or(value));
                }
            }
        }
        let line = self.one("ExecStart")?;
        let mut command = self.command(line, &env)?;
        match kind {
            "oneshot" | "dbus" => return None,
            // nginx is told by its own argument; of the others nobody knows how they stay in the foreground.
            "forking" => {
                let directive = command.iter_mut().find(|w| w.contains("daemon on;"))?;
                *directive = directive.replace("daemon on;", "daemon off;");
            }
            _ => {}
        }
        let user = self.one("User").map(|user| match self.one("Group") {
            Some(group) => format!("{user}:{group}"),
            None => user.to_string(),
        });
        Some(Service {
            unit: self.name.clone(),
            command,
            env,
            user,
            cwd: self
                .one("WorkingDirectory")
                .map(|d| d.trim_start_matches('-').to_string())
                .filter(|d| d.starts_with('/')),
            stop_signal: self.one("KillSignal").map(str::to_string),
        })
    }

    /// The words of a command line: `$NAME` as a word of its own becomes several, `${NAME}` becomes text.
    fn command(&self, line: &str, env: &[(String, String)]) -> Option<Vec<String>> {
        let prefixes = line.chars().take_while(|c| "@-:+!".contains(*c)).collect::<String>();
        let value = |name: &str| env.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v.as_str());
        let mut out = Vec::new();
        for (index, word) in maintainer::words(&line[prefixes.len()..]).into_iter().enumerate() {
            // The name that the program is told as its own.
            if index == 1 && prefixes.contains('@') {
                continue;
            }
            match word.strip_prefix('$').filter(|n| is_variable(n)) {
                Some(name) => out.extend(maintainer::words(value(name))),
                None => {
                    let mut text = self.specifiers(&word);
                    for (key, value) in env {
                        text = text.replace(&format!("${{{key}}}"), value);
                    }
                    out.push(text.replace("$$", "$"));
                }
            }
        }
        out.first().is_some_and(|p| p.starts_with('/')).then_some(out)
    }

    /// Makes the directories that the service gets, and does what its ExecStartPre lines say where that is known.
    pub(crate) fn prepare(&self, tree: &mut Tree) {
        let user = self.one("User").unwrap_or("root");
        let group = self.one("Group").map(str::to_string).unwrap_or_default();
        let (uid, gid) = maintainer::owner(tree, &format!("{user}:{group}")).unwrap_or((0, 0));
        for (key, place) in PLACES {
            let mode = self.one(&format!("{key}Mode")).and_then(|m| u32::from_str_radix(m, 8).ok());
            let meta = Meta { mode: mode.unwrap_or(0o755) & 0o7777, uid, gid, ..Meta::DIRECTORY };
            let names = self.all(key).iter().flat_map(|v| v.split_whitespace());
            for name in names.map(|n| self.specifiers(n.split(':').next().unwrap_or(n))) {
                if name.contains('%') || name.split('/').any(|p| p == "..") {
                    continue;
                }
                let path = PathBuf::from(place).join(name.trim_start_matches('/'));
                // What cannot be made (a file is in the way) the program will name itself.
                let _ = tree.put_directory(&path, meta, true);
                tree.change(&path, true, &|m| *m = meta);
            }
        }
        for line in self.all("ExecStartPre") {
            if let Some(words) = self.command(line, &[]) {
                Shell::single(tree, &words);
            }
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The unit of a package that its name means: its own name, that name without what packages add to it, else the only
/// one that is started at boot.
pub(crate) fn of_package<'a>(package: &str, units: &'a [Unit]) -> Option<&'a Unit> {
    let startable = |u: &&Unit| u.one("ExecStart").is_some() && !u.name.ends_with('@');
    let units: Vec<&Unit> = units.iter().filter(startable).collect();
    let named = |name: &str| units.iter().find(|u| u.name == name).copied();
    let base = ["-server", "-daemon", "-light", "-extras", "-full", "-core", "-common"]
        .iter()
        .find_map(|end| package.strip_suffix(end));
    if let Some(unit) = named(package).or_else(|| named(base?)) {
        return Some(unit);
    }
    let begins = |u: &&&Unit| u.is_wanted() && (package.starts_with(&u.name) || u.name.starts_with(package));
    let mut near: Vec<&&Unit> = units.iter().filter(begins).collect();
    near.sort_by_key(|u| u.name.len());
    let mut wanted = units.iter().filter(|u| u.is_wanted());
    match (near.first(), wanted.next(), wanted.next()) {
        (Some(unit), ..) => Some(unit),
        (None, Some(only), None) => Some(only),
        _ => None,
    }
}

/// The unit that the first of some packages means: one of its own, else one of its dependencies that is named as it is.
pub(crate) fn of_packages(packages: &[String], unpacked: &Unpacked) -> Option<Unit> {
    let package = packages.first()?;
    let own = packages.iter().filter_map(|p| unpacked.units.get(p)).flatten().cloned().collect::<Vec<_>>();
    if let Some(unit) = of_package(package, &own) {
        return Some(unit.clone());
    }
    let direct = unpacked.depends.get(package)?;
    let mut reached: Vec<&String> = direct.iter().collect();
    reached.extend(direct.iter().filter_map(|d| unpacked.depends.get(d)).flatten());
    let units: Vec<Unit> = reached.iter().filter_map(|d| unpacked.units.get(*d)).flatten().cloned().collect();
    let found = of_package(package, &units)?;
    let same = package.strip_prefix(&found.name).is_some_and(|r| r.is_empty() || r.starts_with('-'));
    same.then(|| found.clone())
}

/// Where units are, below the root.
pub(crate) fn is_unit(path: &Path) -> bool {
    let folder = path.parent();
    let place =
        ["/lib/systemd/system", "/usr/lib/systemd/system"].iter().any(|p| folder == Some(Path::new(p)));
    place && path.extension().is_some_and(|e| e == "service")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUID: &str = "[Unit]\nDescription=x\n[Service]\nType=notify\nUser=proxy\nGroup=proxy\nRuntimeDirectory=squid\n\
        RuntimeDirectoryMode=0750\nEnvironment=\"A=b c\" D=e\nEnvironmentFile=-/etc/default/squid\n\
        ExecStartPre=/bin/mkdir -p /var/spool/x\nExecStart=-/usr/sbin/squid --foreground \\\n -sYC $OPTS ${A} %n 100%%\n\
        [Install]\nWantedBy=multi-user.target\n";

    #[test]
    fn what_systemctl_would_start_is_read_from_the_unit() {
        let mut tree = Tree::new();
        tree.put_bytes(Path::new("/etc/default/squid"), *b"# x\nOPTS=\"-a -b\"\nD='f'\n", Meta::FILE)
            .unwrap();
        tree.put_bytes(Path::new("/etc/passwd"), *b"proxy:x:13:13::/:\n", Meta::FILE).unwrap();
        tree.put_bytes(Path::new("/etc/group"), *b"proxy:x:13:\n", Meta::FILE).unwrap();
        let unit = Unit::parse("squid.service", SQUID);
        let service = unit.service(&tree).unwrap();
        let expected =
            ["/usr/sbin/squid", "--foreground", "-sYC", "-a", "-b", "b c", "squid.service", "100%"];
        assert_eq!(service.command, expected);
        assert_eq!(service.user.as_deref(), Some("proxy:proxy"));
        assert_eq!(service.env.iter().find(|(k, _)| k == "D").unwrap().1, "f");
        unit.prepare(&mut tree);
        let (_, id) = tree.walk(Path::new("/run/squid"), true).unwrap();
        assert_eq!((tree.node(id).meta.mode, tree.node(id).meta.uid), (0o750, 13));
        assert!(tree.is_directory(Path::new("/var/spool/x")));
    }

    #[test]
    fn a_unit_that_goes_to_the_background_is_none_unless_it_can_be_told_not_to() {
        let unit =
            |exec: &str| Unit::parse("x.service", &format!("[Service]\nType=forking\nExecStart={exec}\n"));
        assert_eq!(unit("/usr/sbin/x --daemon").service(&Tree::new()), None);
        let nginx = unit("/usr/sbin/nginx -g 'daemon on; master_process on;'").service(&Tree::new()).unwrap();
        assert_eq!(nginx.command[2], "daemon off; master_process on;");
        assert_eq!(unit("x relative").service(&Tree::new()), None);
    }

    #[test]
    fn the_unit_of_a_package_is_the_one_that_its_name_means() {
        let unit = |name: &str, wanted: bool| {
            let install = if wanted { "[Install]\nWantedBy=x\n" } else { "" };
            Unit::parse(name, &format!("[Service]\nExecStart=/bin/x\n{install}"))
        };
        let units = [
            unit("redis-server@.service", true),
            unit("redis-server.service", true),
            unit("nginx.service", true),
        ];
        for (package, expected) in
            [("redis-server", Some("redis-server")), ("nginx-light", Some("nginx")), ("other", None)]
        {
            assert_eq!(of_package(package, &units).map(|u| u.name.as_str()), expected, "{package}");
        }
        let one = [unit("named.service", true), unit("named-resolvconf.service", false)];
        assert_eq!(of_package("bind9", &one).map(|u| u.name.as_str()), Some("named"));
    }
}
