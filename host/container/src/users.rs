// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The users and groups of a container, and who they are on the host (user_namespaces(7)).

use std::path::PathBuf;

/// Whom the users and groups of a container are on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// The same ones.
    #[default]
    Host,
    /// Those that these maps have: users, groups.
    Mapped(Vec<Extent>, Vec<Extent>),
    /// Those of the process in whose user namespace it is.
    Of(PathBuf),
}

/// A line of a map (config.md, "User namespace mappings").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Most lines of a map (Linux' UID_GID_MAP_MAX_EXTENTS).
const MAX_EXTENTS: usize = 340;

impl Users {
    /// Of a user namespace of the container's own.
    pub fn of(linux: &oci_spec::runtime::Linux) -> std::result::Result<Users, String> {
        let maps = [("uidMappings", linux.uid_mappings()), ("gidMappings", linux.gid_mappings())];
        let [users, groups] = maps.map(|(name, map)| {
            let lines = map.iter().flatten().map(|line| Extent {
                inside: line.container_id(),
                outside: line.host_id(),
                count: line.size(),
            });
            check_map(lines.collect()).map_err(|why| format!("linux.{name}: {why}"))
        });
        Ok(Users::Mapped(users?, groups?))
    }
}

/// What Linux takes for a map (user_namespaces(7)), with root in it, without whom nothing could be begun.
fn check_map(lines: Vec<Extent>) -> std::result::Result<Vec<Extent>, String> {
    if lines.is_empty() {
        return Err("a user namespace of its own needs a map".into());
    }
    if lines.len() > MAX_EXTENTS {
        return Err(format!("{} lines; {MAX_EXTENTS} at most", lines.len()));
    }
    let meet = |a: u32, b: u32, first: &Extent, second: &Extent| {
        u64::from(a) < u64::from(b) + u64::from(second.count)
            && u64::from(b) < u64::from(a) + u64::from(first.count)
    };
    for (n, line) in lines.iter().enumerate() {
        let Extent { inside, outside, count } = *line;
        if count == 0 || inside.checked_add(count).is_none() || outside.checked_add(count).is_none() {
            return Err(format!("{inside} {outside} {count} maps no ids that there can be"));
        }
        let overlaps = |other: &&Extent| {
            meet(inside, other.inside, line, other) || meet(outside, other.outside, line, other)
        };
        if lines[..n].iter().any(|other| overlaps(&other)) {
            return Err(format!("{inside} {outside} {count} overlaps another line"));
        }
    }
    match lines.iter().any(|line| line.inside == 0) {
        true => Ok(lines),
        false => Err("it has no root (containerID 0)".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_user_namespace_of_its_own_has_the_maps_of_the_bundle() {
        let line = |inside: u32, outside: u32, count: u32| json!({"containerID": inside, "hostID": outside, "size": count});
        let with = |users: Value, groups: Value| {
            let linux = json!({"uidMappings": users, "gidMappings": groups});
            Users::of(&serde_json::from_value(linux).unwrap())
        };
        let one = |inside, outside, count| Extent { inside, outside, count };
        let users = with(json!([line(0, 100_000, 10), line(10, 5, 1)]), json!([line(0, 7, 1)])).unwrap();
        assert_eq!(users, Users::Mapped(vec![one(0, 100_000, 10), one(10, 5, 1)], vec![one(0, 7, 1)]));
        for (map, says) in [
            (json!([]), "needs a map"),
            (json!([line(1, 5, 5)]), "no root"),
            (json!([line(0, 5, 0)]), "no ids"),
            (json!([line(0, u32::MAX, 2)]), "no ids"),
            (json!([line(0, 5, 5), line(4, 100, 1)]), "overlaps"),
            (json!([line(0, 5, 5), line(9, 9, 1)]), "overlaps"),
        ] {
            let error = with(json!([line(0, 7, 1)]), map.clone()).unwrap_err();
            assert!(error.contains("gidMappings") && error.contains(says), "{map}: {error}");
        }
    }
}
