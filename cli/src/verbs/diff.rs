// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith diff`: what a machine's root file system has otherwise than its image.

use crate::{fault::Result, output::say, snapshot::Root};
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Each line is a path with a letter before it: A added, C changed, D deleted. Volumes, file systems in memory, /proc, /sys and \
/dev are not part of it, nor are /etc/hosts, /etc/hostname and /etc/resolv.conf, which every start writes.

Examples:
  unilith diff web
  unilith diff web | grep ^A")]
pub struct Args {
    machine: String,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let root = Root::open(store, &args.machine)?;
    // A file of the second before the start may have been made in it: clocks tell seconds.
    let since = (root.machine.state.started_ms.unwrap_or(0) / 1000).saturating_sub(1);
    let since = u32::try_from(since).unwrap_or(u32::MAX);
    let contents = root.quickest();
    let changes = root.export(contents, |archive| {
        unilith_snapshot::diff(&root.image, archive, contents, since, &mut &root)
    })?;
    for (path, kind) in changes {
        say!("{} {}", kind.letter(), shown(&path));
    }
    Ok(0)
}

/// A path for a terminal: what is no text, and what a terminal would obey, as `ls -b` has it.
fn shown(path: &[u8]) -> String {
    let mut out = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("\\{b:03o}")));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\{b:03o}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_file_reaches_the_terminal_as_a_command() {
        assert_eq!(shown(b"/a b/\xc3\xa4"), "/a b/ä");
        assert_eq!(shown(b"/\x1b[31m\n"), "/\\033[31m\\012");
        assert_eq!(shown(b"/\xff"), "/\\377");
    }
}
