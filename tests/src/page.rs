// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of the documentation: the commands that they print.

/// The indented lines of a page, as a shell gets them: a file that a line begins (`<<'END'`) is part of it. What stands between fences is text.
pub fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_text = false;
    let printed = text.lines().filter(|line| {
        is_text ^= line.starts_with("```");
        !is_text
    });
    let mut lines = printed.filter_map(|line| line.strip_prefix("    "));
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
