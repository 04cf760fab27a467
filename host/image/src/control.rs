// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of Debian control files (Debian Policy 5) that say which packages belong together.

/// The names of a control file's `Pre-Depends` and `Depends` fields (Debian Policy 7.1), in order.
pub(crate) fn depends(control: &str) -> Vec<String> {
    let joined = control.replace("\n ", " ");
    let fields = ["Pre-Depends:", "Depends:"];
    let values = fields.iter().filter_map(|f| joined.lines().find_map(|l| l.strip_prefix(f)));
    values.flat_map(|v| v.split([',', '|'])).filter_map(package).collect()
}

/// The name in a dependency, without version and architecture.
fn package(dependency: &str) -> Option<String> {
    let name = dependency.split_whitespace().next()?;
    Some(name.split(':').next().unwrap_or(name).to_string())
}

/// The packages that stanzas recommend, the first of alternatives.
pub(crate) fn recommended(stanzas: &str) -> Vec<String> {
    let values = stanzas.lines().filter_map(|l| l.strip_prefix("Recommends:"));
    values.flat_map(|v| v.split(',')).filter_map(package).collect()
}

/// The names of the packages of a section (Debian Policy 2.4).
pub(crate) fn of_section(stanzas: &str, section: &str) -> Vec<String> {
    let field = |stanza: &str, key: &str| -> Option<String> {
        stanza.lines().find_map(|l| l.strip_prefix(key)).map(|v| v.trim().to_string())
    };
    let fits =
        |stanza: &&str| field(stanza, "Section:").is_some_and(|s| s.rsplit('/').next() == Some(section));
    stanzas.split("\n\n").filter(fits).filter_map(|stanza| field(stanza, "Package:")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_names_without_versions() {
        let control = "Package: x\nPre-Depends: dpkg (>= 1)\nDepends: libc6 (>= 2.36), nginx (<< 2) | nginx-full,\n python3:any\nX: y\n";
        assert_eq!(depends(control), ["dpkg", "libc6", "nginx", "nginx-full", "python3"]);
    }

    #[test]
    fn recommended_development_files_are_found_by_their_section() {
        let gcc = "Package: gcc\nDepends: cpp\nRecommends: libc6-dev | libc-dev, python3:any (>= 3), man\nSection: devel\n\n";
        assert_eq!(recommended(gcc), ["libc6-dev", "python3", "man"]);
        let found = "Package: libc6-dev\nSection: libdevel\n\nPackage: man\nSection: doc\n\nPackage: x-dev\nSection: non-free/libdevel\n";
        assert_eq!(of_section(found, "libdevel"), ["libc6-dev", "x-dev"]);
    }
}
