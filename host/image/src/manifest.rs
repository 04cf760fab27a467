// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings file of a catalogue entry (`apps/NAME/app.toml`) and of a project (`unilith.toml`): one schema.

use crate::{
    error::{Result, fail},
    request::Base,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        Error as _, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

/// A settings file. Unknown keys are errors that name the line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Manifest {
    /// One line on what the application is.
    pub about: Option<String>,
    /// Where the program comes from: `debian:redis-server`, `./a.out`, `oci:./image.tar`, `dir:./root`. In a project,
    /// relative paths start at the file's folder. Without it, the folder itself is the root file system.
    pub from: Option<String>,
    /// More sources laid over the first, in order.
    pub with: Vec<String>,
    /// How much of Debian's base system is in the image: `"none"`, `"auto"` or `"full"`.
    pub base: Option<Base>,
    /// The program, by name or absolute path.
    pub program: Option<String>,
    /// Arguments, unless the user gives others.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// `UID[:GID]` or names.
    pub user: Option<String>,
    /// Ports the program serves: `"6379"`, `"53/udp"`.
    pub ports: Vec<Port>,
    /// Published ports, as `-p`: `"8080:80"`. For projects.
    pub publish: Vec<String>,
    /// Host directories, as `-v`: `"./data:/data"`. For projects.
    pub volumes: Vec<String>,
    /// Paths in the image that are worth a volume.
    pub data: Vec<String>,
    /// `"64M"`.
    pub memory: Option<Size>,
    pub cpus: Option<u32>,
    /// Files and connections that the program may have open unasked, as `--ulimit nofile=`.
    pub open_files: Option<u32>,
    /// Name or number: `"SIGQUIT"`, `"3"`.
    pub stop_signal: Option<String>,
    pub ready: Option<Ready>,
    /// Kernel choices, as `--set`: `alloc = "buddy"`.
    pub set: BTreeMap<String, String>,
    /// Files of the settings file's folder put into the image: `"/etc/nginx/nginx.conf" = "nginx.conf"`.
    pub files: BTreeMap<String, String>,
    /// Symbolic links: `"/usr/bin/lua" = "lua5.4"`.
    pub links: BTreeMap<String, String>,
    /// Empty directories.
    pub directories: Vec<String>,
    /// When not empty: the image holds the program, the libraries it needs, what `files`, `links` and `directories`
    /// say, and the paths that match these patterns (`*` within a name, `**` across names); nothing else.
    pub only: Vec<String>,
    /// Paths left out, same patterns.
    pub without: Vec<String>,
    /// A command that shows it working, with `{HOST}` and `{PORT}` of the first port put in.
    #[serde(rename = "try")]
    pub try_it: Option<String>,
    pub state: Option<State>,
    /// How to build programs so that they are linked into Linux (`--ukl base`), each at the place of its number. One is
    /// written as a table, several as an array of tables.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
    pub linked: Vec<Build>,
    /// How to build the program so that it is linked with the micro kernel (`--static`), where `linked` will not do.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_several")]
    pub r#static: Vec<Build>,
}

/// How a program is built from Debian's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Build {
    /// The program of the image whose place it takes, by name or path: the settings file's `program`, unless said.
    #[serde(default)]
    pub program: Option<String>,
    /// The source package.
    pub source: String,
    /// Changes of the source, in files of the settings file's folder, applied in this order.
    #[serde(default)]
    pub patches: Vec<String>,
    /// Debian's packages that it needs beside a C compiler and make.
    #[serde(default)]
    pub needs: Vec<String>,
    #[serde(default)]
    pub libc: Libc,
    /// Lines of shell, run in the unpacked source; `$CC` and `$CXX` compile and link into Linux.
    pub build: String,
    /// The program that they make, a path below the source.
    pub makes: String,
}

/// A library that Debian has compiled for its own C library alone: how it is built for another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Library {
    /// The source package.
    pub source: String,
    /// Debian's packages that it needs beside a C compiler and make; those that have a recipe themselves are built too.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Lines of shell, run in the unpacked source, that put `include` and `lib` below `$PREFIX`.
    pub build: String,
    /// The library that they make, a path below `$PREFIX`.
    pub makes: String,
}

/// Libraries by the names of Debian's packages.
pub type Libraries = BTreeMap<String, Library>;

/// Reads the catalogue's file of libraries.
pub fn parse_libraries(text: &str, path: &Path) -> Result<Libraries> {
    let libraries: Libraries = from_text(text, path)?;
    for (name, library) in &libraries {
        let table = format!("{}: {name}", path.display());
        are_packages(&table, library.needs.iter().chain([&library.source, name]))?;
        are_below(&table, "makes", [&library.makes], "$PREFIX")?;
    }
    Ok(libraries)
}

/// Reads TOML; the error names file and line.
fn from_text<T: serde::de::DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    match toml::from_str(text) {
        Ok(read) => Ok(read),
        Err(error) => {
            let line =
                error.span().map_or(1, |s| 1 + text.bytes().take(s.start).filter(|b| *b == b'\n').count());
            fail!(Settings, "{}:{line}: {}", path.display(), error.message())
        }
    }
}

fn are_packages<'a>(table: &str, names: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    for name in names {
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain) {
            fail!(Settings, "{table}: `{name}` is not the name of a Debian package");
        }
    }
    Ok(())
}

fn are_below<'a>(
    table: &str,
    key: &str,
    paths: impl IntoIterator<Item = &'a String>,
    folder: &str,
) -> Result<()> {
    for path in paths {
        if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") {
            fail!(Settings, "{table}: {key} `{path}`: expected a path below {folder}");
        }
    }
    Ok(())
}

fn one_or_several<'de, D: Deserializer<'de>>(d: D) -> std::result::Result<Vec<Build>, D::Error> {
    struct Builds;
    impl<'de> Visitor<'de> for Builds {
        type Value = Vec<Build>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table, or an array of tables")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Vec<Build>, A::Error> {
            Build::deserialize(MapAccessDeserializer::new(map)).map(|build| vec![build])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<Vec<Build>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq))
        }
    }
    d.deserialize_any(Builds)
}

/// Whose C library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Libc {
    /// The system's own.
    #[default]
    Glibc,
    /// Debian's `musl-dev`.
    Musl,
}

/// How to tell that a program serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Ready {
    /// It listens on this port.
    Listening(u16),
    /// It prints a line that holds this text.
    Prints(String),
    /// It ends by itself.
    Exits,
}

/// How far an application gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct State {
    pub works: Works,
    /// One line: what runs, or on which call it stops.
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Works {
    Yes,
    Partly,
    No,
}

/// A port the program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub number: u16,
    pub udp: bool,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Port, String> {
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let udp = match protocol {
            "tcp" => false,
            "udp" => true,
            _ => return Err(format!("port `{text}`: the protocol is tcp or udp")),
        };
        match number.parse() {
            Ok(number) if number != 0 => Ok(Port { number, udp }),
            _ => Err(format!("port `{text}`: expected 1 to 65535, with /tcp or /udp behind it or not")),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.udp { "/udp" } else { "" })
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Port, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Port {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// A number of bytes, written as docker's `-m` does: `64M`, `1g`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
        let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
        let of_unit = units.iter().find_map(|(unit, shift)| Some((lower.strip_suffix(*unit)?, *shift)));
        let (digits, shift) = of_unit.unwrap_or((lower, 0));
        // `0.5g`: nine places say a byte of a gigabyte.
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let places = u32::try_from(part.len()).ok().filter(|n| (1..=9).contains(n));
        let number = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).and_then(|n| {
            let part = part.parse::<u64>().ok()?.checked_mul(1 << shift)? / 10_u64.pow(places?);
            n.checked_add(part)
        });
        number.map(Size).ok_or_else(|| {
            format!("size `{text}`: expected a number with k, m, g or t behind it or not, for example 64M")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Size, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl Manifest {
    /// Reads and checks a settings file; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Manifest> {
        let manifest: Manifest = from_text(text, path)?;
        let path = path.display();
        let absolute = manifest
            .files
            .keys()
            .chain(manifest.links.keys())
            .chain(&manifest.directories)
            .chain(&manifest.data)
            .chain(&manifest.only)
            .chain(&manifest.without)
            .chain(&manifest.workdir);
        for p in absolute {
            if !p.starts_with('/') || p.split('/').any(|part| part == "..") {
                fail!(Settings, "{path}: `{p}`: expected an absolute path of the image without `..`");
            }
        }
        if let Some(signal) = &manifest.stop_signal
            && signal_number(signal).is_none()
        {
            fail!(
                Settings,
                "{path}: stop-signal `{signal}`: expected a signal's name or number, for example SIGTERM"
            );
        }
        for name in manifest.env.keys() {
            if name.is_empty() || name.contains(['=', '\0']) {
                fail!(Settings, "{path}: env: `{name}` is not the name of an environment variable");
            }
        }
        if manifest.linked.iter().filter(|build| build.program.is_none()).count() > 1 {
            fail!(
                Settings,
                "{path}: linked: of several programs, all but one say with `program` which they are"
            );
        }
        for build in manifest.linked.iter().chain(&manifest.r#static) {
            let table = format!("{path}: linked");
            are_packages(&table, build.needs.iter().chain([&build.source]))?;
            are_below(&table, "makes", [&build.makes], "the source")?;
            are_below(&table, "patches", &build.patches, "this file's folder")?;
        }
        Ok(manifest)
    }
}

/// The Linux x86-64 number of a signal by name (with or without SIG) or number.
pub fn signal_number(text: &str) -> Option<u8> {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    if let Ok(number) = text.parse::<u8>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let real_time = |rest: &str, base: i32| {
        let offset = if rest.is_empty() { 0 } else { rest.parse::<i32>().ok()? };
        u8::try_from(base + offset).ok().filter(|n| (34..=64).contains(n))
    };
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return real_time(rest, 34);
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        return real_time(rest, 64);
    }
    NAMES.iter().position(|n| *n == name).map(|i| i as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> std::result::Result<Manifest, String> {
        Manifest::parse(text, Path::new("app.toml")).map_err(|e| e.message)
    }

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        for (text, bytes) in [
            ("64M", 64 << 20),
            ("1g", 1 << 30),
            ("512kb", 512 << 10),
            ("7", 7),
            ("2GiB", 2 << 30),
            ("0.5g", 512 << 20),
            ("1t", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "M", "-1", "1y", "99999999999999g", "1.", ".5g", "1.0000000000001g", "1.-1g"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(64 << 20).to_string(), "64M");
    }

    #[test]
    fn signals_have_their_linux_numbers() {
        let cases =
            [("SIGTERM", 15), ("quit", 3), ("9", 9), ("SIGSYS", 31), ("SIGRTMIN+3", 37), ("RTMAX-1", 63)];
        for (text, number) in cases {
            assert_eq!(signal_number(text), Some(number), "{text}");
        }
        for text in ["", "SIGNOPE", "0", "65", "RTMIN-1"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let error = parse("program = \"x\"\nportz = [\"1\"]\n").unwrap_err();
        assert!(error.starts_with("app.toml:2: ") && error.contains("portz"), "{error}");
        let error = parse("\n\nports = [\"70000\"]\n").unwrap_err();
        assert!(error.starts_with("app.toml:3: ") && error.contains("70000"), "{error}");
        assert!(parse("memory = \"lots\"").unwrap_err().contains("64M"));
        assert!(parse("stop-signal = \"SIGNOPE\"").unwrap_err().contains("SIGNOPE"));
        assert!(parse("[files]\n\"etc/x\" = \"x\"").unwrap_err().contains("absolute"));
        assert!(parse("directories = [\"/a/../b\"]").unwrap_err().contains(".."));
    }

    #[test]
    fn a_full_file_is_read() {
        let text = r#"
            from = "debian:redis-server"
            program = "redis-server"
            ports = ["6379", "53/udp"]
            memory = "32M"
            ready = { listening = 6379 }
            try = "redis-cli -p {PORT} ping"
            state = { works = "yes", note = "all" }
            [env]
            A = "b"
            [set]
            alloc = "buddy"
        "#;
        let m = parse(text).unwrap();
        assert_eq!(m.linked, []);
        assert_eq!(m.ports, [Port { number: 6379, udp: false }, Port { number: 53, udp: true }]);
        assert_eq!(m.ready, Some(Ready::Listening(6379)));
        assert_eq!(m.memory, Some(Size(32 << 20)));
    }

    #[test]
    fn a_build_names_packages_and_a_path_below_its_source() {
        let text = |source: &str, makes: &str| {
            format!("[linked]\nsource = \"{source}\"\nbuild = \"make\"\nmakes = \"{makes}\"")
        };
        let build = parse(&text("lua5.4", "src/lua")).unwrap().linked.remove(0);
        assert_eq!((build.libc, build.needs.len()), (Libc::Glibc, 0));
        assert!(parse(&text("lua5.4", "../lua")).unwrap_err().contains("below the source"));
        assert!(parse(&text("lua5.4", "/bin/lua")).unwrap_err().contains("below the source"));
        assert!(parse(&text("-o x", "lua")).unwrap_err().contains("not the name of a Debian package"));
        assert!(parse("[linked]\nsource = \"lua5.4\"").unwrap_err().contains("build"));
        let patched = |file: &str| format!("{}\npatches = [\"{file}\"]", text("lua5.4", "lua"));
        assert_eq!(parse(&patched("a/b.patch")).unwrap().linked[0].patches, ["a/b.patch"]);
        let one = text("lua5.4", "lua").replace("[linked]", "[[linked]]");
        assert_eq!(parse(&one).unwrap().linked.len(), 1);
        assert!(parse(&format!("{one}\n{one}")).unwrap_err().contains("all but one"));
        let several = parse(&format!("{one}\n{one}\nprogram = \"luac\"")).unwrap().linked;
        assert_eq!(several[1].program.as_deref(), Some("luac"));
        assert!(parse(&patched("../b.patch")).unwrap_err().contains("below this file's folder"));
    }

    #[test]
    fn libraries_are_named_as_debians_packages() {
        let parse = |text: &str| parse_libraries(text, Path::new("libraries.toml")).map_err(|e| e.message);
        let text =
            |makes: &str| format!("[zlib1g-dev]\nsource = \"zlib\"\nbuild = \"make\"\nmakes = \"{makes}\"\n");
        assert_eq!(parse(&text("lib/libz.a")).unwrap()["zlib1g-dev"].source, "zlib");
        let error = parse(&text("/lib/libz.a")).unwrap_err();
        assert!(
            error.starts_with("libraries.toml: zlib1g-dev: makes") && error.contains("$PREFIX"),
            "{error}"
        );
        let error = parse(&format!("{}program = \"z\"\n", text("z"))).unwrap_err();
        assert!(error.starts_with("libraries.toml:5: ") && error.contains("program"), "{error}");
        assert!(parse(&text("z").replace("zlib1g-dev", "\"-o\"")).unwrap_err().contains("a Debian package"));
    }

    #[test]
    fn the_catalogues_libraries_can_be_read() {
        let libraries =
            crate::Catalogue::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps")).libraries();
        assert!(libraries.unwrap().contains_key("zlib1g-dev"));
    }
}
