// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may differ between two Linux kernels of ours, and Linux's command line.

use crate::LinuxError;

/// Which kernel and how it runs programs. The default is the baseline: Debian's source, our configuration, every
/// option of the series off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// A bit for each of [`WORDS`], at its place.
    words: u32,
}

/// The device that carries the program's standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The first serial port.
    Serial,
    /// The first virtio console port.
    Virtio,
}

/// What the machine's time follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's.
    Host,
    /// The instructions it executes (QEMU's `-icount`).
    Instructions,
}

/// An option of `--ukl`.
struct Word {
    name: &'static str,
    /// The option without which this one has no meaning, and why.
    needs: Option<(&'static str, &'static str)>,
}

/// What there is, in the order in which levels are named. All but the last two are one kernel's, switched when it boots.
const WORDS: [Word; 9] = [
    Word { name: "cpl0", needs: None },
    // The program decides this one: its text is at kernel addresses or it is not. It runs as others at CPL 0 do.
    Word { name: LINKED, needs: None },
    Word {
        name: "byp",
        needs: Some(("cpl0", "only a program in supervisor mode can bypass the entry code")),
    },
    Word { name: "call", needs: Some(("byp", "a call that jumps into the kernel bypasses the entry code")) },
    Word { name: "ret", needs: Some(("cpl0", "a program in user mode can be returned to by IRET only")) },
    Word { name: "rtc", needs: Some(("cpl0", "a program in user mode is preempted")) },
    Word { name: "shortcut", needs: Some(("byp", "shortcuts are ways of calls that bypass the entry code")) },
    Word { name: CHECKS[0].name, needs: None },
    Word { name: CHECKS[1].name, needs: None },
];

/// For programs that are linked into the kernel.
const LINKED: &str = "base";

/// A kernel that checks itself, for work on the series: several times slower.
#[derive(PartialEq, Eq)]
struct Check {
    name: &'static str,
    kernel: &'static str,
    fragments: &'static [&'static str],
}

const CHECKS: [Check; 2] = [
    Check {
        name: "kasan",
        kernel: "ukl-kasan",
        fragments: &["unilith.config", "ukl.config", "kasan.config"],
    },
    Check {
        name: "lockdep",
        kernel: "ukl-lockdep",
        fragments: &["unilith.config", "ukl.config", "lockdep.config"],
    },
];

/// The papers' options that this series refuses, and why.
const REFUSED: [(&str, &str); 4] = [
    (
        "nss",
        "the kernel cannot run on a stack of the program's memory: it changes address spaces while it runs on it",
    ),
    (
        "nss_ps",
        "programs get the stacks that their C library makes, in the lower half, by which the kernel tells them apart",
    ),
    (
        "pf_df",
        "a page fault would be pushed onto the program's stack, where unmodified programs keep data (the red zone)",
    ),
    ("pf_ss", "it cannot be left out: with `cpl0` every exception has a stack of its own"),
];

impl Options {
    /// Reads the value of `--ukl`: words separated by commas.
    pub fn parse(text: &str) -> Result<Options, LinuxError> {
        let mut words = 0;
        for name in text.split(',').filter(|w| !w.is_empty()) {
            if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                return Err(LinuxError::new(format!("--ukl {name}: {why}")));
            }
            let Some(at) = WORDS.iter().position(|word| word.name == name) else {
                let known: Vec<_> = WORDS.iter().map(|word| format!("`{}`", word.name)).collect();
                let text = format!("--ukl {name}: no such option; there are {}", known.join(", "));
                return Err(LinuxError::new(text));
            };
            words |= 1 << at;
            if name == LINKED {
                words |= 1;
            }
        }
        let options = Options { words };
        for Word { name, needs } in options.chosen() {
            if let Some((needed, why)) = needs.filter(|(needed, _)| !options.has(needed)) {
                let text = format!("--ukl {name}: {why}; write `--ukl {needed},{name}`");
                return Err(LinuxError::new(text));
            }
        }
        if CHECKS.iter().all(|check| options.has(check.name)) {
            return Err(LinuxError::new(
                "--ukl kasan,lockdep: these are two kernels; test with one, then the other",
            ));
        }
        Ok(options)
    }

    fn chosen(&self) -> impl Iterator<Item = &'static Word> {
        let words = self.words;
        WORDS.iter().enumerate().filter(move |(at, _)| words & (1 << at) != 0).map(|(_, word)| word)
    }

    /// Is it for a program that is linked into the kernel?
    pub fn linked(&self) -> bool {
        self.has(LINKED)
    }

    /// Does the kernel check itself?
    pub fn checks(&self) -> bool {
        self.check().is_some()
    }

    fn check(&self) -> Option<&'static Check> {
        CHECKS.iter().find(|check| self.has(check.name))
    }

    fn has(&self, name: &str) -> bool {
        self.chosen().any(|word| word.name == name)
    }

    /// The point on the spectrum, for messages and tables.
    pub fn level(&self) -> String {
        let linked = self.linked();
        let named = self.chosen().filter(|word| !linked || word.name != WORDS[0].name);
        named.fold("linux".into(), |level, word| level + "+" + word.name)
    }

    /// The kernel that can do this; several levels share one.
    pub(crate) fn kernel(&self) -> &'static str {
        match self.check() {
            Some(check) => check.kernel,
            None if *self == Options::default() => "linux",
            None => "ukl",
        }
    }

    /// The files of `linux/config` that make up the configuration.
    pub(crate) fn fragments(&self) -> &'static [&'static str] {
        match self.check() {
            Some(check) => check.fragments,
            None if *self == Options::default() => &["unilith.config"],
            None => &["unilith.config", "ukl.config"],
        }
    }

    pub(crate) fn command_line(&self, console: Console, clock: Clock, log: Option<&str>) -> String {
        // earlyprintk: a kernel that ends before it has its console says why on the serial port. Behind the level, in whose
        // order Linux acts on them.
        let (console, early) = match console {
            Console::Serial => ("ttyS0", " earlyprintk=ttyS0"),
            Console::Virtio => ("hvc0", ""),
        };
        // Messages below this number reach the console (include/linux/kern_levels.h); the console is the
        // program's, so without a wish only what precedes the kernel's end is shown.
        let level = match log {
            Some("error") => 4,
            Some("warn") => 5,
            Some("info") => 7,
            Some("debug") => 8,
            _ if self.checks() => 5,
            _ => 3,
        };
        // `ukl` is the kernel's, which then allows it; the other is for init, which then does it. Linux leaves words
        // with a dot to modules it does not have.
        let is_inits = |name: &&str| *name != LINKED && CHECKS.iter().all(|check| check.name != *name);
        let words: Vec<_> = self.chosen().map(|word| word.name).filter(is_inits).collect();
        let mut ukl = match words.is_empty() {
            true => String::new(),
            false => format!("ukl=cpl0 unilith.ukl={} ", words.join(",")),
        };
        if self.checks() {
            // What a check finds ends the machine: it is looked for.
            ukl += "panic_on_warn=1 oops=panic ";
        }
        // reboot=t: a machine that cannot power off (a panic) ends by a triple fault, on every machine type.
        // tsc=reliable: a machine has no second clock to check the first against, and the check makes it wait.
        // no_timer_check: Linux counts timer interrupts against instructions that it executes and panics where too few
        // come, as happens in an emulated machine whose host is busy. Under KVM it leaves the check out by itself. Where
        // instructions are the clock the check cannot fail, and without it programs were seen to stop there.
        let clock = match clock {
            Clock::Host => "tsc=reliable no_timer_check",
            Clock::Instructions => "tsc=reliable",
        };
        format!("console={console} loglevel={level}{early} reboot=t {clock} {ukl}rdinit=/.unilith/init")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_quiet_unless_asked() {
        let options = Options::default();
        assert!(
            options
                .command_line(Console::Serial, Clock::Host, None)
                .contains("console=ttyS0 loglevel=3 earlyprintk=ttyS0 ")
        );
        assert!(
            options
                .command_line(Console::Virtio, Clock::Host, Some("debug"))
                .contains("console=hvc0 loglevel=8 ")
        );
        let of_host = options.command_line(Console::Serial, Clock::Host, None);
        assert!(of_host.contains(" no_timer_check "));
        assert!(!options.command_line(Console::Serial, Clock::Instructions, None).contains("no_timer_check"));
    }

    #[test]
    fn options_are_named_in_one_order_whatever_the_order_they_are_written_in() {
        let options = Options::parse("ret,shortcut,byp,call,cpl0").unwrap();
        assert_eq!(options, Options::parse("cpl0,byp,call,ret,shortcut,").unwrap());
        assert_eq!(options.level(), "linux+cpl0+byp+call+ret+shortcut");
        assert!(
            options
                .command_line(Console::Serial, Clock::Host, None)
                .contains(" ukl=cpl0 unilith.ukl=cpl0,byp,call,ret,shortcut ")
        );
        assert_eq!(Options::parse("base,byp").unwrap().level(), "linux+base+byp");
        let line = Options::parse("base,byp").unwrap().command_line(Console::Serial, Clock::Host, None);
        assert!(line.contains(" ukl=cpl0 unilith.ukl=cpl0,byp "));
        assert_eq!(Options::parse("").unwrap(), Options::default());
        assert_eq!(Options::default().level(), "linux");
    }

    #[test]
    fn what_is_refused_is_refused_with_a_reason() {
        let error = |text: &str| Options::parse(text).unwrap_err().to_string();
        assert!(error("fast").contains("no such option; there are `cpl0`"));
        assert!(error("byp").ends_with("write `--ukl cpl0,byp`"));
        assert!(error("cpl0,shortcut").ends_with("write `--ukl byp,shortcut`"));
        assert!(error("rtc").contains("is preempted"));
        assert!(error("cpl0,pf_df").contains("red zone"));
        for (name, why) in REFUSED {
            assert_eq!(error(&format!("cpl0,{name}")), format!("--ukl {name}: {why}"));
        }
    }

    #[test]
    fn a_kernel_that_checks_itself_is_another_kernel_for_the_same_levels() {
        let options = Options::parse("cpl0,byp,kasan").unwrap();
        assert_eq!(
            (options.kernel(), Options::parse("lockdep").unwrap().kernel()),
            ("ukl-kasan", "ukl-lockdep")
        );
        assert_eq!(options.level(), "linux+cpl0+byp+kasan");
        let line = options.command_line(Console::Serial, Clock::Host, None);
        assert!(line.contains("unilith.ukl=cpl0,byp ") && line.contains("panic_on_warn=1"), "{line}");
        let ordinary = Options::parse("lockdep").unwrap().command_line(Console::Serial, Clock::Host, None);
        assert!(!ordinary.contains("ukl="), "{ordinary}");
        assert!(Options::parse("kasan,lockdep").unwrap_err().to_string().contains("two kernels"));
    }

    #[test]
    fn every_word_stands_behind_what_it_needs() {
        for (at, word) in WORDS.iter().enumerate() {
            let place = |name: &str| WORDS.iter().position(|w| w.name == name);
            assert!(word.needs.is_none_or(|(needed, _)| place(needed).is_some_and(|n| n < at)));
        }
    }
}
