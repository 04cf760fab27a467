// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is there a KVM that really works?
//!
//! A kernel that accepts KVM_CREATE_VM means nothing: nested in another hypervisor it may emulate every guest
//! instruction, thousands of cycles at a time. So a tiny guest counts down in a loop, under KVM and under software
//! emulation ([`trial`]), and KVM counts only if its loop is not the slower one. What is compared is the quickest of
//! several loops, timed without QEMU's start, and the time that KVM gets is a multiple of what the emulator took just
//! before: a busy computer slows both down.
//!
//! What the guest showed is kept for as long as nothing changes that it depends on ([`state`]). What stood in the way of
//! running it (no device, no permission, a device that is busy) is looked at again each time.

mod state;
mod trial;

use crate::{accounts::name_of, dirs, record::Accel};
use rustix::process::{getgroups, getuid};
use serde::{Deserialize, Serialize};
use state::State;
use std::{fs, io, os::unix::fs::MetadataExt, time::Duration};
use trial::{Failure, Guest, Run};

/// What a KVM that works never needs more of than the emulator, start included.
const PATIENCE: u32 = 4;
/// A computer that is so busy that the emulator itself needs twice its time shows nothing; then all is tried again.
const TRIALS: usize = 3;
/// Longest that the emulator may need: it is there or it is not.
const MAX_TIME: Duration = Duration::from_secs(60);
const DEVICE: &str = "/dev/kvm";

/// What was found out about KVM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub works: bool,
    /// One line for the user.
    pub why: String,
    /// What to do where it does not work.
    pub remedy: Option<String>,
}

impl Probe {
    pub fn accel(&self) -> Accel {
        if self.works { Accel::Kvm } else { Accel::Tcg }
    }

    fn fails(why: impl Into<String>, remedy: impl Into<String>) -> Probe {
        Probe { works: false, why: why.into(), remedy: Some(remedy.into()) }
    }
}

/// What a run showed, and of which state.
#[derive(Serialize, Deserialize)]
struct Kept {
    state: State,
    probe: Probe,
}

/// What is known of the device as it is now, or what a new trial shows (a second or two at most on an idle computer).
pub fn probe() -> Probe {
    probe_unless(|state| {
        let text = fs::read(dirs::cache().ok()?.join("kvm.json")).ok()?;
        let kept = serde_json::from_slice::<Kept>(&text).ok()?;
        (kept.state == *state).then_some(kept.probe)
    })
}

/// As [`probe`], but it is always tried: for those who ask what this computer can do.
pub fn probe_anew() -> Probe {
    probe_unless(|_| None)
}

fn probe_unless(known: impl FnOnce(&State) -> Option<Probe>) -> Probe {
    if let Err(obstacle) = open() {
        return obstacle;
    }
    let state = State::now(DEVICE);
    if let Some(probe) = known(&state) {
        return probe;
    }
    let guest = match Guest::write() {
        Ok(guest) => guest,
        Err(e) => {
            return Probe::fails(
                format!("the guest that tries KVM out cannot be written: {e}"),
                "set TMPDIR to a directory that you may write to",
            );
        }
    };
    let (shown, probe) = judge(|accel, limit| guest.run(accel, limit));
    let path = dirs::cache().ok().map(|d| d.join("kvm.json"));
    // It may have changed meanwhile.
    if let (true, Some(path), true) = (shown, path, state == State::now(DEVICE))
        && let Ok(text) = serde_json::to_vec(&Kept { state, probe: probe.clone() })
    {
        // A probe that is not remembered is made again.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = fs::write(path, text);
    }
    probe
}

/// Runs the guest under both until they can be compared; also says whether it is the guest that showed the answer.
fn judge(mut run: impl FnMut(&str, Duration) -> Result<Run, Failure>) -> (bool, Probe) {
    let elsewhere = "in a virtual machine: its host's KVM does without hardware's help; choose another host, or use \
                     process machines, which need none";
    for _ in 0..TRIALS {
        // It also fills the page cache. Some distributions build QEMU without the emulator.
        let before = run("tcg", MAX_TIME).ok();
        let limit = before.map_or(MAX_TIME, |b| b.whole * PATIENCE);
        match (run("kvm", limit), before) {
            (Ok(kvm), Some(tcg)) if tcg.turns < kvm.turns => {
                let why = format!(
                    "{DEVICE} is there but slower than software emulation ({} against {} for a loop)",
                    show(kvm.turns),
                    show(tcg.turns)
                );
                return (true, Probe::fails(why, elsewhere));
            }
            (Ok(kvm), _) => {
                let why = format!(
                    "{DEVICE} works (a loop takes {}, an exit to QEMU {})",
                    show(kvm.turns),
                    show(kvm.exit)
                );
                return (true, Probe { works: true, why, remedy: None });
            }
            (Err(Failure::Refused(words)), _) => {
                let remedy = "look for another hypervisor that has the processor (VirtualBox, VMware), and at what \
                              `dmesg` says of kvm";
                return (
                    false,
                    Probe::fails(format!("{DEVICE} is there but QEMU cannot use it: {words}"), remedy),
                );
            }
            (Err(Failure::Limit), None) => break,
            (Err(Failure::Limit), Some(before)) => {
                let after = run("tcg", MAX_TIME);
                if after.is_ok_and(|after| after.whole <= before.whole * 2) {
                    let why = format!(
                        "{DEVICE} is there but does not run a guest in useful time ({}; software emulation needs {})",
                        show(limit),
                        show(before.whole)
                    );
                    return (true, Probe::fails(why, elsewhere));
                }
            }
        }
    }
    let why = format!("{DEVICE} is there but this computer is too busy to find out whether it works");
    (false, Probe::fails(why, "try again when less runs, or say --accel kvm"))
}

/// A time with a unit that suits it.
fn show(time: Duration) -> String {
    match time.as_micros() {
        us if us < 10_000 => format!("{us} us"),
        us => format!("{} ms", us / 1000),
    }
}

/// What stands in the way of KVM before anything was tried: no device, or no right to it.
pub fn obstacle() -> Option<Probe> {
    open().err()
}

/// Whether there is an emulator, without which nothing can be tried.
pub fn can_be_tried() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(crate::qemu::QEMU).is_file())
}

/// Opens the device, or says what stands in the way and what to do about it.
fn open() -> Result<(), Probe> {
    match fs::OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            Err(Probe::fails(format!("there is no {DEVICE}"), remedy_without_device(&processor)))
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(denied()),
        // The module is gone, or has no processor to work on.
        Err(e) => Err(Probe::fails(
            format!("{DEVICE} cannot be opened ({})", e.kind()),
            "as root: modprobe kvm_intel or kvm_amd, and look at what `dmesg` says of kvm",
        )),
    }
}

/// What to do where the device is missing, by what /proc/cpuinfo says.
fn remedy_without_device(processor: &str) -> String {
    let flags = processor.lines().find_map(|l| l.strip_prefix("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_ascii_whitespace().any(|f| f == flag);
    let in_container =
        fs::exists("/.dockerenv").unwrap_or(false) || fs::exists("/run/.containerenv").unwrap_or(false);
    let module = if has("vmx") { "kvm_intel" } else { "kvm_amd" };
    if has("vmx") || has("svm") {
        if in_container {
            return format!(
                "give the container the device (--device {DEVICE}); on its host, as root: modprobe {module}"
            );
        }
        return format!("as root: modprobe {module}");
    }
    if has("hypervisor") {
        return "this is a virtual machine: its owner must allow nested virtualisation".into();
    }
    "enable virtualisation (VT-x, AMD-V, SVM) in the firmware, then, as root: modprobe kvm_intel or kvm_amd"
        .into()
}

/// Who the device is for, and what this user lacks.
fn denied() -> Probe {
    let why = format!("you may not use {DEVICE}");
    let Ok(device) = fs::metadata(DEVICE) else { return Probe::fails(why, "as root: ls -l /dev/kvm") };
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let user = name_of(&users, getuid().as_raw()).unwrap_or("YOUR-NAME");
    let mine = getgroups().unwrap_or_default().iter().any(|g| g.as_raw() == device.gid());
    Probe::fails(why, remedy_of_denial(device.mode(), device.gid(), &groups, user, mine))
}

/// What lets `user`, who has the device's group or has not, open a device of this mode and group.
fn remedy_of_denial(mode: u32, gid: u32, groups: &str, user: &str, mine: bool) -> String {
    const GROUP_MAY: u32 = 0o060;
    let again = "then log in again";
    let device_group = name_of(groups, gid).filter(|_| gid != 0 && mode & GROUP_MAY == GROUP_MAY);
    let Some(group) = device_group else {
        return format!(
            "as root: chgrp kvm {DEVICE} && chmod 660 {DEVICE} && usermod -aG kvm {user}, {again}"
        );
    };
    if mine {
        // The mode allows it; something else does not.
        return format!(
            "something beyond its permissions protects {DEVICE}: a container's or a security module's rules"
        );
    }
    let line = groups.lines().find(|l| l.split(':').next() == Some(group)).unwrap_or_default();
    if line.rsplit(':').next().unwrap_or_default().split(',').any(|member| member == user) {
        return format!("{user} is in the group {group} since this session began: log in again");
    }
    format!("as root: usermod -aG {group} {user}, {again}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ran(whole: u64, turns: u64) -> Result<Run, Failure> {
        Ok(Run { whole: ms(whole), turns: ms(turns), exit: ms(1) })
    }

    /// Judges by runs in this order; each names its accelerator.
    fn judged(runs: &[(&str, Result<Run, Failure>)]) -> (bool, Probe) {
        let mut left = runs.iter();
        let answer = judge(|accel, limit| {
            let (expected, run) = left.next().expect("no more runs than these");
            assert_eq!(accel, *expected);
            match run {
                Ok(run) if run.whole > limit => Err(Failure::Limit),
                run => run.clone(),
            }
        });
        assert_eq!(left.len(), 0, "every run is needed");
        answer
    }

    #[test]
    fn quickest_loop_decides_and_not_how_long_qemu_takes_to_start() {
        let (shown, probe) = judged(&[("tcg", ran(100, 10)), ("kvm", ran(390, 2))]);
        assert!(shown && probe.works, "{probe:?}");
        let (shown, probe) = judged(&[("tcg", ran(100, 10)), ("kvm", ran(90, 11))]);
        assert!(shown && !probe.works && probe.why.contains("slower"), "{probe:?}");
    }

    #[test]
    fn time_that_kvm_gets_follows_from_the_emulators() {
        let (shown, probe) = judged(&[("tcg", ran(100, 10)), ("kvm", ran(401, 2)), ("tcg", ran(110, 10))]);
        assert!(shown && !probe.works && probe.why.contains("useful time"), "{probe:?}");
        let (_, probe) = judged(&[("tcg", ran(3000, 10)), ("kvm", ran(11_000, 2))]);
        assert!(probe.works, "{probe:?}");
    }

    #[test]
    fn busy_computer_shows_nothing_and_nothing_is_kept() {
        let turn = [("tcg", ran(100, 10)), ("kvm", ran(5000, 2)), ("tcg", ran(300, 10))];
        let (shown, probe) = judged(&[turn.clone(), turn.clone(), turn.clone()].concat());
        assert!(!shown && !probe.works && probe.why.contains("busy"), "{probe:?}");
        let then = [("tcg", ran(100, 10)), ("kvm", ran(110, 2))];
        let (shown, probe) = judged(&[turn.as_slice(), &then].concat());
        assert!(shown && probe.works, "{probe:?}");
    }

    #[test]
    fn device_that_qemu_cannot_use_is_named_in_its_words_and_is_tried_again() {
        let busy = Err(Failure::Refused("ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy".into()));
        let (shown, probe) = judged(&[("tcg", ran(100, 10)), ("kvm", busy)]);
        assert!(!shown && !probe.works && probe.why.contains("resource busy"), "{probe:?}");
    }

    #[test]
    fn emulator_that_is_missing_does_not_stand_in_kvms_way() {
        let without = Err(Failure::Refused("invalid accelerator tcg".into()));
        let (shown, probe) = judged(&[("tcg", without), ("kvm", ran(110, 2))]);
        assert!(shown && probe.works, "{probe:?}");
    }

    const GROUPS: &str = "root:x:0:\nkvm:x:104:libvirt,me\nvirt:x:7:\n";

    #[test]
    fn denial_is_answered_with_what_this_user_lacks() {
        let remedy = |mode, gid, user, mine| remedy_of_denial(mode, gid, GROUPS, user, mine);
        assert_eq!(remedy(0o660, 104, "you", false), "as root: usermod -aG kvm you, then log in again");
        assert_eq!(remedy(0o660, 7, "you", false), "as root: usermod -aG virt you, then log in again");
        assert!(remedy(0o660, 104, "me", false).contains("log in again"));
        assert!(!remedy(0o660, 104, "me", false).contains("usermod"));
        assert!(remedy(0o600, 104, "me", true).contains("chmod 660"));
        assert!(remedy(0o660, 0, "you", false).contains("chgrp kvm"));
        assert!(remedy(0o660, 104, "me", true).contains("rules"));
    }

    #[test]
    fn missing_device_is_answered_by_what_the_processor_has() {
        assert!(remedy_without_device("flags\t\t: fpu vmx ept").contains("modprobe kvm_intel"));
        assert!(remedy_without_device("flags\t\t: fpu svm npt").contains("modprobe kvm_amd"));
        assert!(remedy_without_device("flags\t\t: fpu hypervisor").contains("nested"));
        assert!(remedy_without_device("flags\t\t: fpu").contains("firmware"));
    }
}
