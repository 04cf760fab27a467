// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of users and groups of the host.

/// The name of a number in the format of /etc/passwd and /etc/group.
pub fn name_of(file: &str, number: u32) -> Option<&str> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then_some(name)
    })
}
