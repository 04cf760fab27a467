// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith doctor`: what this computer can do, and what to do about what it cannot.

use crate::output::say;
use crate::{
    fault::Result,
    repository::{self, CLONE, Place},
};
use serde::Serialize;
use std::process::{Command, Stdio};
use unilith_machine::{accel, cloud_hypervisor, dirs, firecracker, qemu, support};
use unilith_network::{nat, passt, tap};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

const PLACES: &str = "places";

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    what: &'static str,
    state: Health,
    /// What was found.
    found: String,
    /// What to do, where something is to be done.
    remedy: Option<String>,
}

/// A line, and one more on what to do.
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = match self.state {
            Health::Good => "ok     ",
            Health::Limited => "limited",
            Health::Missing => "MISSING",
        };
        write!(f, "{mark}  {}: {}", self.what, self.found)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "\n         {remedy}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Good,
    /// Works without it, but less well.
    Limited,
    /// Nothing runs without it.
    Missing,
}

fn findings() -> [Finding; 11] {
    [
        emulator(),
        kvm(),
        process_machines(),
        machines_of("Firecracker", "firecracker", firecracker::version(), firecracker::lack),
        machines_of(
            "Cloud Hypervisor",
            "cloud-hypervisor",
            cloud_hypervisor::version(),
            cloud_hypervisor::lack,
        ),
        tap_device(),
        translation(),
        user_network(),
        compiler(),
        clang(),
        places(),
    ]
}

/// What is printed, without the directories, which are named by the user.
pub fn without_places() -> String {
    findings().iter().filter(|finding| finding.what != PLACES).map(|finding| format!("{finding}\n")).collect()
}

pub fn act(args: &Args) -> Result<u8> {
    let findings = findings();
    if args.json {
        super::print_json(&findings)?;
    } else {
        findings.iter().for_each(|finding| say!("{finding}"));
    }
    Ok(u8::from(findings.iter().any(|f| f.state == Health::Missing)))
}

/// The first line a command prints, or `None` if it cannot be run.
fn first_line(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_string())
}

fn good(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { what, state: Health::Good, found: found.into(), remedy: None }
}

fn emulator() -> Finding {
    match first_line(qemu::QEMU, &["--version"]) {
        Some(version) => good("QEMU", version),
        None => Finding {
            what: "QEMU",
            // Process machines need none.
            state: if support::lacks().is_empty() { Health::Limited } else { Health::Missing },
            found: format!("{} cannot be run: there are no virtual machines", qemu::QEMU),
            remedy: Some("as root: apt-get install -y qemu-system-x86".into()),
        },
    }
}

fn kvm() -> Finding {
    let probe = accel::probe_anew();
    if probe.works {
        return good("KVM", probe.why);
    }
    let found = match support::lacks().is_empty() {
        true => format!("{}: --machine auto takes process machines", probe.why),
        false => format!("{}: machines run under software emulation, about 20 times slower", probe.why),
    };
    Finding { what: "KVM", state: Health::Limited, found, remedy: probe.remedy }
}

fn process_machines() -> Finding {
    let what = "process machines";
    let lacks = support::lacks();
    if lacks.is_empty() {
        return good(what, "they work: a program runs at the speed of this computer, without virtualisation");
    }
    let found = format!("{}: there are virtual machines only", lacks.join("; "));
    Finding { what, state: Health::Limited, found, remedy: None }
}

/// The machines of a monitor that has to be there, and of which nobody needs to have heard.
fn machines_of(
    what: &'static str,
    machine: &str,
    version: std::result::Result<String, firecracker::Lack>,
    lack: fn(bool) -> Option<firecracker::Lack>,
) -> Finding {
    let lack = match &version {
        // Whether KVM works was found out a moment ago.
        Ok(_) => lack(true),
        Err(lack) => Some(lack.clone()),
    };
    match (version, lack) {
        (Ok(version), None) => good(what, format!("{version}, and KVM works: --machine {machine}")),
        (version, lack) => Finding {
            what,
            state: Health::Limited,
            found: format!(
                "no --machine {machine}: {}{}",
                version.map(|version| format!("{version} is there; ")).unwrap_or_default(),
                lack.as_ref().map_or("", |lack| &lack.why)
            ),
            remedy: lack.map(|lack| lack.remedy).filter(|remedy| !remedy.is_empty()),
        },
    }
}

fn tap_device() -> Finding {
    match tap::allowed() {
        Ok(()) => good("tap devices", "this user may make them: machines have an address of their own"),
        Err(error) => Finding {
            what: "tap devices",
            state: Health::Limited,
            found: format!(
                "none for this user ({error}): machines use user-mode networking, which is slower"
            ),
            remedy: Some("run unilith as root (sudo) for full speed and direct addresses".into()),
        },
    }
}

fn translation() -> Finding {
    match nat::nft() {
        Some(path) => good(
            "address translation",
            format!("{} is there: machines on tap devices reach other hosts", path.display()),
        ),
        None => Finding {
            what: "address translation",
            state: Health::Limited,
            found: "nft is not installed: machines on tap devices reach this host only".into(),
            remedy: Some("as root: apt-get install -y nftables".into()),
        },
    }
}

fn user_network() -> Finding {
    let what = "user-mode networking";
    let Err(error) = passt::works() else { return good(what, "passt works") };
    let help = Command::new(qemu::QEMU).args(["-M", "none", "-netdev", "help"]).stdin(Stdio::null()).output();
    let listed = help.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).lines().any(|l| l.trim() == "user"));
    let instead = if listed {
        "QEMU's own is used, which process machines do not have"
    } else {
        "this QEMU was built without its own"
    };
    let remedy = passt::installed().is_none().then(|| "as root: apt-get install -y passt".to_string());
    Finding { what, state: Health::Limited, found: format!("{error}: {instead}"), remedy }
}

/// Where kernels come from.
fn compiler() -> Finding {
    if let Ok(Place::Installed(_)) = repository::place() {
        return Finding {
            what: "kernels",
            state: Health::Good,
            found: "those of the default choices, which came with the package".into(),
            remedy: Some(format!("for --set, --static and --kernel linux: {CLONE}")),
        };
    }
    match first_line(repository::cargo(), &["--version"]) {
        Some(version) => good("Rust", version),
        None => Finding {
            what: "Rust",
            state: Health::Limited,
            found: "cargo cannot be run: only kernels that were built before can be used".into(),
            remedy: Some("as root: apt-get install -y cargo-web".into()),
        },
    }
}

fn clang() -> Finding {
    match first_line("clang", &["--version"]) {
        Some(version) => good("clang", version),
        None => Finding {
            what: "clang",
            state: Health::Limited,
            found: "it cannot be run: there is no --lto, and eBPF for `unilith trace` only from elsewhere"
                .into(),
            remedy: Some("as root: apt-get install -y clang".into()),
        },
    }
}

fn places() -> Finding {
    let what = PLACES;
    match (dirs::state(), dirs::cache()) {
        (Ok(state), Ok(cache)) => {
            good(what, format!("machines in {}, cache in {}", state.display(), cache.display()))
        }
        (Err(error), _) | (_, Err(error)) => Finding {
            what,
            state: Health::Missing,
            found: error.to_string(),
            remedy: Some("export HOME=/some/directory".into()),
        },
    }
}
