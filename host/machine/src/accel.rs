// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is there a KVM that really works?
//!
//! A kernel that accepts KVM_CREATE_VM means nothing: nested in another hypervisor it may emulate every guest
//! instruction, thousands of cycles at a time. So a tiny guest counts down in a loop, once under KVM and once under
//! software emulation, and KVM counts only if it is not the slower one. The answer holds until the next boot.

use crate::{dirs, qemu, record::Accel};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Turns of the probe's loop: two instructions each, about 10 ms under software emulation.
const TURNS: u32 = 5_000_000;
/// A KVM that works ends the probe in a fraction of this; one that emulates needs many seconds.
const LIMIT: Duration = Duration::from_millis(1500);
/// What QEMU exits with after the probe's last instruction: `isa-debug-exit` of 0x10 is (0x10 << 1) | 1.
const PROBE_CODE: i32 = 0x21;

/// What was found out about KVM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `/proc/sys/kernel/random/boot_id` of when it was found out.
    boot: String,
    pub works: bool,
    /// One line for the user.
    pub why: String,
}

impl Probe {
    pub fn accel(&self) -> Accel {
        if self.works { Accel::Kvm } else { Accel::Tcg }
    }
}

/// The cached answer, or a new one (at most about two seconds).
pub fn probe() -> Probe {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string();
    let cache = dirs::cache().ok().map(|d| d.join("kvm.json"));
    let known = cache.as_ref().and_then(|p| serde_json::from_slice::<Probe>(&fs::read(p).ok()?).ok());
    if let Some(known) = known.filter(|k| k.boot == boot && !boot.is_empty()) {
        return known;
    }
    let (works, why) = match try_out() {
        Ok(why) => (true, why),
        Err(why) => (false, why),
    };
    let probe = Probe { boot, works, why };
    if let (Some(path), Ok(text)) = (cache, serde_json::to_vec(&probe)) {
        // A probe that is not remembered is made again.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = fs::write(path, text);
    }
    probe
}

fn try_out() -> Result<String, String> {
    let open = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    match open.map_err(|e| e.kind()) {
        Ok(_) => {}
        Err(io::ErrorKind::NotFound) => return Err("there is no /dev/kvm".into()),
        Err(io::ErrorKind::PermissionDenied) => {
            return Err(
                "you may not use /dev/kvm (as root: usermod -aG kvm YOUR-NAME, then log in again)".into()
            );
        }
        Err(kind) => return Err(format!("/dev/kvm cannot be opened ({kind})")),
    }
    let folder = std::env::temp_dir().join(format!("unilith-probe-{}", std::process::id()));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("probe"), program()));
    let result = written.map_err(|e| format!("the probe cannot be written: {e}")).and_then(|()| {
        let image = folder.join("probe");
        let kvm = time("kvm", &image).ok_or("/dev/kvm is there but does not run a guest in useful time")?;
        match time("tcg", &image) {
            Some(tcg) if tcg < kvm => Err(format!(
                "/dev/kvm is there but slower than software emulation ({} ms against {} ms for the probe)",
                kvm.as_millis(),
                tcg.as_millis()
            )),
            _ => Ok(format!("/dev/kvm works (probe guest: {} ms)", kvm.as_millis())),
        }
    });
    // Left behind it would do no harm: it is in the temporary directory.
    let _ = fs::remove_dir_all(&folder);
    result
}

/// How long the probe takes; `None` if it does not come to its end in time.
fn time(accel: &str, image: &Path) -> Option<Duration> {
    let begin = Instant::now();
    let mut child = Command::new(qemu::QEMU)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "16M"])
        .args(["-M", "microvm,x-option-roms=off,pit=off,pic=off,rtc=off", "-accel", accel, "-kernel"])
        .arg(image)
        .args(["-device", &format!("isa-debug-exit,iobase={:#x},iosize=0x04", api_boot::EXIT_PORT)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return (status.code() == Some(PROBE_CODE)).then(|| begin.elapsed());
        }
        if begin.elapsed() > LIMIT {
            // Either it ends now or it has just ended.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The probe: a 32-bit ELF file with a PVH entry note (Xen `XEN_ELFNOTE_PHYS32_ENTRY`, 18) that counts down and ends QEMU.
fn program() -> Vec<u8> {
    const BASE: u32 = 0x10_0000;
    const HEADERS: u32 = 52 + 2 * 32;
    const NOTE: u32 = 20;
    let mut code = vec![0xb9];
    code.extend(TURNS.to_le_bytes()); // mov $TURNS, %ecx
    code.extend([0x49, 0x75, 0xfd]); // 1: dec %ecx; jnz 1b
    code.extend([0xb8, 0x10, 0, 0, 0]); // mov $0x10, %eax
    code.extend([0x66, 0xba]); // mov $EXIT_PORT, %dx
    code.extend(api_boot::EXIT_PORT.to_le_bytes());
    code.extend([0xef, 0xf4, 0xeb, 0xfd]); // out %eax, (%dx); 1: hlt; jmp 1b
    let entry = BASE + HEADERS + NOTE;
    let size = HEADERS + NOTE + code.len() as u32;
    let words = |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let mut out = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([2, 0, 3, 0]); // ET_EXEC, EM_386
    words(&mut out, &[1, entry, 52, 0, 0]); // version, entry, program headers, no sections, flags
    for half in [52u16, 32, 2, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    words(&mut out, &[1, 0, BASE, BASE, size, size, 7, 4096]); // PT_LOAD
    words(&mut out, &[4, HEADERS, BASE + HEADERS, BASE + HEADERS, NOTE, NOTE, 4, 4]); // PT_NOTE
    words(&mut out, &[4, 4, 18]);
    out.extend(b"Xen\0");
    words(&mut out, &[entry]);
    out.extend(code);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_guest_runs_to_its_end_under_software_emulation() {
        if Command::new(qemu::QEMU).arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: needs {} (apt-get install qemu-system-x86)", qemu::QEMU);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("probe");
        fs::write(&image, program()).unwrap();
        assert!(time("tcg", &image).is_some());
    }
}
