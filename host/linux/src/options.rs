// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may differ between two Linux kernels of ours, and Linux's command line.

use crate::LinuxError;

/// Which kernel and how it runs programs. The default is the baseline: Debian's source, our configuration, every
/// option of the series off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The program runs in supervisor mode, unmodified.
    pub cpl0: bool,
    /// Its system calls bypass the entry and exit code.
    pub byp: bool,
}

/// The device that carries the program's standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The first serial port.
    Serial,
    /// The first virtio console port.
    Virtio,
}

/// Levels of the design that this version does not have, so that asking for one says so.
const PLANNED: [&str; 7] = ["base", "ret", "nss", "nss_ps", "pf_df", "pf_ss", "shortcut"];

impl Options {
    /// Reads the value of `--ukl`: words separated by commas.
    pub fn parse(text: &str) -> Result<Options, LinuxError> {
        let mut options = Options::default();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            match word {
                "cpl0" => options.cpl0 = true,
                "byp" => options.byp = true,
                _ if PLANNED.contains(&word) => {
                    return Err(LinuxError::new(format!(
                        "--ukl {word} is not there yet; `cpl0` and `byp` are"
                    )));
                }
                _ => {
                    return Err(LinuxError::new(format!(
                        "--ukl {word}: no such option; there are `cpl0` and `byp`"
                    )));
                }
            }
        }
        if options.byp && !options.cpl0 {
            return Err(LinuxError::new(
                "--ukl byp: only a program in supervisor mode can bypass the entry code; write `--ukl cpl0,byp`",
            ));
        }
        Ok(options)
    }

    /// The point on the spectrum, for messages and tables.
    pub fn level(&self) -> &'static str {
        match (self.cpl0, self.byp) {
            (false, _) => "linux",
            (true, false) => "linux+cpl0",
            (true, true) => "linux+cpl0+byp",
        }
    }

    /// The kernel that can do this; several levels share one.
    pub(crate) fn kernel(&self) -> &'static str {
        if self.cpl0 { "ukl" } else { "linux" }
    }

    /// The files of `linux/config` that make up the configuration.
    pub(crate) fn fragments(&self) -> &'static [&'static str] {
        if self.cpl0 { &["unilith.config", "ukl.config"] } else { &["unilith.config"] }
    }

    pub(crate) fn command_line(&self, console: Console, log: Option<&str>) -> String {
        let console = match console {
            Console::Serial => "ttyS0",
            Console::Virtio => "hvc0",
        };
        // Messages below this number reach the console (include/linux/kern_levels.h); the console is the
        // program's, so without a wish only what precedes the kernel's end is shown.
        let level = match log {
            Some("error") => 4,
            Some("warn") => 5,
            Some("info") => 7,
            Some("debug") => 8,
            _ => 3,
        };
        // `ukl` is the kernel's, which then allows it; the other is for init, which then does it. Linux leaves words
        // with a dot to modules it does not have.
        let ukl = match (self.cpl0, self.byp) {
            (false, _) => "",
            (true, false) => "ukl=cpl0 unilith.ukl=cpl0 ",
            (true, true) => "ukl=cpl0 unilith.ukl=cpl0,byp ",
        };
        // reboot=t: a machine that cannot power off (a panic) ends by a triple fault, on every machine type.
        // tsc=reliable: a machine has no second clock to check the first against, and the check makes it wait.
        format!("console={console} loglevel={level} reboot=t tsc=reliable {ukl}rdinit=/.unilith/init")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_quiet_unless_asked() {
        let options = Options::default();
        assert!(options.command_line(Console::Serial, None).contains("console=ttyS0 loglevel=3 "));
        assert!(options.command_line(Console::Virtio, Some("debug")).contains("console=hvc0 loglevel=8 "));
    }

    #[test]
    fn an_option_that_is_not_there_is_told_from_one_that_never_will_be() {
        assert_eq!(Options::parse("cpl0,byp").unwrap(), Options { cpl0: true, byp: true });
        assert_eq!(Options::parse("").unwrap(), Options::default());
        assert!(Options::parse("cpl0,ret").unwrap_err().to_string().contains("not there yet"));
        assert!(Options::parse("fast").unwrap_err().to_string().contains("no such option"));
        assert!(Options::parse("byp").unwrap_err().to_string().contains("cpl0,byp"));
    }
}
