// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of the documentation: the commands that they print.

/// The indented lines of a page, as a shell gets them: a file that a line begins (`<<'END'`) is part of it.
pub fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("    "));
    while let Some(line) = lines.next() {
        let mut line = line.to_string();
        if line.ends_with("<<'END'") {
            for more in lines.by_ref() {
                line = format!("{line}\n{more}");
                if more == "END" {
                    break;
                }
            }
        }
        commands.push(line);
    }
    commands
}
