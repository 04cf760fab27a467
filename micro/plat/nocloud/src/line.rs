// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's command line with what the files say (its words are those of `api-boot`).

use crate::yaml::{Step::Key, Wrong, read};
use crate::{Files, Say, network, smbios};
use core::fmt::Write;

/// Longest name of a host (`HOST_NAME_MAX`).
const MAX_HOSTNAME: usize = 64;

/// Words that are written to memory of a fixed size.
struct Out<'o> {
    bytes: &'o mut [u8],
    length: usize,
}

impl Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Words that would be more than a name are none.
fn is_name_of_host(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= MAX_HOSTNAME
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}

fn is_name_of_variable(word: &str) -> bool {
    !word.starts_with(|c: char| c.is_ascii_digit())
        && !word.is_empty()
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn told(result: Result<(), Wrong>, file: &str, say: &mut Say<'_>) {
    if let Err(wrong) = result {
        say(format_args!("{file}, line {}: {}; the rest of the file is left out", wrong.line, wrong.why));
    }
}

/// Writes the command line `line` with what the files say in place of what it says about the same; answers its length. `None`: it is
/// longer than `out`. `say` is told what of the files was left out.
pub fn words(files: &Files<'_>, line: &str, out: &mut [u8], say: &mut Say<'_>) -> Option<usize> {
    let (settings, program) = match line.find(" -- ") {
        Some(end) => line.split_at(end + 1),
        None if line == "--" || line.starts_with("-- ") => ("", line),
        None => line.split_at(line.strip_suffix(" --").map_or(line.len(), |settings| settings.len() + 1)),
    };
    let mut hostname = None;
    let meta = read(files.meta, &mut |path, word| match *path {
        [Key("local-hostname")] => hostname = Some(word),
        [Key("hostname")] => hostname = hostname.or(Some(word)),
        // `instance-id` tells cloud-init that an image is at its first boot; every boot is one here.
        _ => {}
    });
    told(meta, "meta-data", say);
    hostname = smbios::hostname(files.serial).or(hostname);
    let network = match network::parse(files.network, say) {
        Ok(network) => network,
        Err(wrong) => {
            // Half of an address would be worse than none.
            say(format_args!("network-config, line {}: {}; the file is left out", wrong.line, wrong.why));
            Default::default()
        }
    };
    let is_cloud_config = files.user.lines().next().is_some_and(|line| line.trim_end() == "#cloud-config");
    if !is_cloud_config && !files.user.trim().is_empty() {
        say(format_args!("user-data is left out: it does not begin with #cloud-config"));
    }
    let user = if is_cloud_config { files.user } else { "" };
    let mut unknown = None;
    let result = read(user, &mut |path, word| match *path {
        [Key("hostname")] => hostname = Some(word),
        [Key("unilith"), Key("env"), Key(_)] => {}
        [Key(key), ..] => {
            if unknown != Some(key) {
                say(format_args!(
                    "user-data: `{key}` is left out: a machine of one program has `hostname`, and `env` of `unilith`"
                ));
            }
            unknown = Some(key);
        }
        _ => {}
    });
    told(result, "user-data", say);
    hostname = hostname.filter(|name| {
        let is_one = is_name_of_host(name);
        if !is_one {
            say(format_args!("the host name is left out: it is no name"));
        }
        is_one
    });
    let own = network.address.zip(network.prefix);
    if own.is_none() && network.address.is_some() {
        say(format_args!("network-config: the address is left out: it has no netmask"));
    }

    let mut out = Out { bytes: out, length: 0 };
    let mut write = || -> core::fmt::Result {
        for word in settings.split_ascii_whitespace() {
            let replaced = match word.split_once('=').map_or(word, |(key, _)| key) {
                "ip" | "gw" => own.is_some(),
                "dns" => network.servers().next().is_some(),
                "hostname" => hostname.is_some(),
                _ => false,
            };
            if !replaced {
                write!(out, "{word} ")?;
            }
        }
        if let Some((address, prefix)) = own {
            write!(out, "ip={address}/{prefix} ")?;
            if let Some(gateway) = network.gateway {
                write!(out, "gw={gateway} ")?;
            }
        }
        let mut separator = "dns=";
        for server in network.servers() {
            write!(out, "{separator}{server}")?;
            separator = ",";
        }
        if separator == "," {
            out.write_str(" ")?;
        }
        if let Some(name) = hostname {
            write!(out, "hostname={name} ")?;
        }
        let mut done = Ok(());
        let mut refused = false;
        let _ = read(user, &mut |path, word| {
            let [Key("unilith"), Key("env"), Key(name)] = *path else { return };
            if is_name_of_variable(name) {
                done = done.and_then(|()| variable(&mut out, name, word));
            } else {
                refused = true;
            }
        });
        if refused {
            say(format_args!("user-data: a variable of the environment is left out: it has no name of one"));
        }
        done?;
        out.write_str(program)
    };
    write().ok()?;
    Some(out.length)
}

fn variable(out: &mut Out<'_>, name: &str, value: &str) -> core::fmt::Result {
    write!(out, "env.{name}=")?;
    for byte in value.bytes() {
        match byte {
            b'!'..=b'$' | b'&'..=b'~' => out.write_char(byte as char)?,
            _ => write!(out, "%{byte:02x}")?,
        }
    }
    out.write_str(" ")
}
