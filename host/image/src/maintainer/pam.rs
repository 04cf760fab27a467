// SPDX-License-Identifier: Apache-2.0 OR MIT
//! pam-auth-update(8): /etc/pam.d/common-* from the templates of /usr/share/pam and the profiles of /usr/share/pam-configs.
//! Without these files nobody logs in: sshd, su, login and cron include them.

use crate::tree::{Meta, Tree};
use std::{cmp::Reverse, collections::BTreeMap, path::Path};

const TEMPLATES: &str = "/usr/share/pam";
const PROFILES: &str = "/usr/share/pam-configs";

/// A profile: its fields, with the lines of those that have several.
struct Profile(BTreeMap<String, Vec<String>>);

impl Profile {
    fn parse(text: &str) -> Profile {
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut name = String::new();
        for line in text.lines().filter(|l| !l.trim_start().starts_with('#')) {
            let value = match (line.starts_with(char::is_whitespace), line.split_once(':')) {
                (false, Some((field, value))) => {
                    name = field.to_string();
                    value
                }
                _ => line,
            };
            let values = fields.entry(name.clone()).or_default();
            values.extend(Some(value.trim().to_string()).filter(|v| !v.is_empty()));
        }
        Profile(fields)
    }

    fn is(&self, field: &str, wanted: &str) -> bool {
        self.0.get(field).is_some_and(|lines| lines.first().is_some_and(|l| l == wanted))
    }

    fn priority(&self) -> i64 {
        let text = self.0.get("Priority").and_then(|lines| lines.first());
        text.and_then(|t| t.parse().ok()).unwrap_or(0)
    }

    /// The modules of a stack; the first profile of a block has lines of its own.
    fn modules(&self, stack: &str, is_first: bool) -> &[String] {
        let initial = self.0.get(&format!("{stack}-Initial")).filter(|_| is_first);
        initial.or_else(|| self.0.get(stack)).map_or(&[], Vec::as_slice)
    }
}

/// Makes the files of all stacks whose template is there.
pub(super) fn update(tree: &mut Tree) -> Option<()> {
    let mut names = tree.names_in(Path::new(PROFILES));
    names.sort();
    let texts = names.iter().filter_map(|name| tree.text(&format!("{PROFILES}/{name}")));
    let mut profiles: Vec<Profile> =
        texts.map(|text| Profile::parse(&text)).filter(|profile| profile.is("Default", "yes")).collect();
    profiles.sort_by_key(|profile| Reverse(profile.priority()));
    for (file, stack, variable) in [
        ("common-auth", "Auth", "auth"),
        ("common-account", "Account", "account"),
        ("common-password", "Password", "password"),
        ("common-session", "Session", "session"),
        ("common-session-noninteractive", "Session", "session_nonint"),
    ] {
        let Some(template) = tree.text(&format!("{TEMPLATES}/{file}")) else { continue };
        let is_wanted = |p: &&Profile| {
            file != "common-session-noninteractive" || !p.is("Session-Interactive-Only", "yes")
        };
        let chosen: Vec<&Profile> = profiles.iter().filter(is_wanted).collect();
        let mut text = String::new();
        for line in template.lines() {
            match line.strip_prefix('$').and_then(|name| name.strip_prefix(variable)) {
                Some("_primary") => text.push_str(&block(&chosen, stack, "Primary")),
                Some("_additional") => text.push_str(&block(&chosen, stack, "Additional")),
                _ => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        tree.put_bytes(Path::new(&format!("/etc/pam.d/{file}")), text.into_bytes(), Meta::FILE).ok()?;
    }
    Some(())
}

/// The lines of one block of a stack. `success=end` of a primary module jumps behind the `pam_deny.so` that follows the block.
fn block(profiles: &[&Profile], stack: &str, kind: &str) -> String {
    let of_kind = profiles.iter().filter(|p| p.is(&format!("{stack}-Type"), kind));
    let modules: Vec<&String> =
        of_kind.enumerate().flat_map(|(at, profile)| profile.modules(stack, at == 0)).collect();
    let word = stack.to_lowercase();
    if modules.is_empty() && kind == "Primary" {
        return format!("{word}\t[default=1]\t\t\tpam_permit.so\n");
    }
    let mut text = String::new();
    for (at, module) in modules.iter().enumerate() {
        let behind = format!("={}", modules.len() - at);
        text.push_str(&format!("{word}\t{}\n", module.replace("=end", &behind)));
    }
    text
}
