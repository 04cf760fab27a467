// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may differ between two Linux kernels of ours, and Linux's command line.

/// Which kernel. The default is the baseline: Debian's source, our configuration, every option off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {}

/// The device that carries the program's standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The first serial port.
    Serial,
    /// The first virtio console port.
    Virtio,
}

impl Options {
    /// A name for build folders and messages.
    pub fn level(&self) -> &'static str {
        "linux"
    }

    /// The files of `linux/config` that make up the configuration.
    pub(crate) fn fragments(&self) -> &'static [&'static str] {
        &["unilith.config"]
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
        // reboot=t: a machine that cannot power off (a panic) ends by a triple fault, on every machine type.
        // tsc=reliable: a machine has no second clock to check the first against, and the check makes it wait.
        format!("console={console} loglevel={level} reboot=t tsc=reliable rdinit=/.unilith/init")
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
}
