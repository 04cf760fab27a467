// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers whose unit says too little (`services.toml`): what must be there before the first start, and the command that
//! stays in the foreground.

use crate::service::Service;
use serde::Deserialize;

const TABLE: &str = include_str!("services.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    service: Vec<Known>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    packages: Vec<String>,
    first: Option<String>,
    run: Option<String>,
    user: Option<String>,
}

/// What is known of the first of some packages.
pub(crate) fn of(packages: &[String]) -> Option<Known> {
    let package = packages.first()?;
    // The table is this crate's own and read by its tests: one that cannot be read has nothing to say.
    let table: Table = toml::from_str(TABLE).ok()?;
    table.service.into_iter().find(|known| known.packages.contains(package))
}

impl Known {
    /// What a shell runs as root; `unit` has the environment and the directories, and the command where `run` is not said.
    pub(crate) fn service(&self, unit: Option<Service>) -> Option<Service> {
        let mut service = unit.unwrap_or_default();
        let run = match &self.run {
            Some(run) => run.clone(),
            None if service.command.is_empty() => return None,
            None => service.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        // A unit's user is kept for the unit's command alone: `first` is root's.
        let user = match &self.run {
            Some(_) => self.user.clone(),
            None => service.user.take(),
        };
        let change = user.map(|user| {
            let (user, group) = user.split_once(':').unwrap_or((&user, ""));
            let group = if group.is_empty() { format!("$(id -gn {user})") } else { group.to_string() };
            format!("setpriv --reuid={user} --regid={group} --init-groups ")
        });
        let first = self.first.as_deref().unwrap_or_default().trim();
        let script = format!("set -e\n{first}\nexec {}{run}", change.unwrap_or_default());
        service.command = vec!["/bin/sh".into(), "-c".into(), script];
        service.user = None;
        Some(service)
    }
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_whole_and_its_shell_is_a_shells() {
        let table: Table = toml::from_str(TABLE).unwrap();
        let mut seen = BTreeSet::new();
        for known in table.service {
            assert!(known.first.is_some() || known.run.is_some(), "{:?} says nothing", known.packages);
            for package in &known.packages {
                assert!(seen.insert(package.clone()), "{package} is there twice");
            }
            let unit = Service { command: vec!["/bin/x".into()], ..Service::default() };
            let service = known.service(Some(unit)).unwrap();
            let read = std::process::Command::new("sh").args(["-n", "-c", &service.command[2]]).status();
            assert!(read.unwrap().success(), "{}", service.command[2]);
        }
    }

    #[test]
    fn a_units_command_keeps_its_words_and_its_user() {
        let unit = Service {
            command: ["/bin/x", "-a", "b c'd"].map(String::from).to_vec(),
            user: Some("u:g".into()),
            ..Service::default()
        };
        let known = Known { packages: Vec::new(), first: Some("true".into()), run: None, user: None };
        let service = known.service(Some(unit)).unwrap();
        let expected =
            "set -e\ntrue\nexec setpriv --reuid=u --regid=g --init-groups '/bin/x' '-a' 'b c'\\''d'";
        assert_eq!(service.command[2], expected);
        assert_eq!(service.user, None);
        assert!(known.service(None).is_none(), "nothing is there to run");
    }
}
