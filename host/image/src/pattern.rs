// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Path patterns of settings files: `?` and `*` within a name, `**` across names (as in gitignore(5)).

/// Whether a pattern matches a whole path, or a directory above it.
pub(crate) fn covers(pattern: &str, path: &str) -> bool {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
    let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
    ends.into_iter().any(|end| matches(pattern.as_bytes(), &path.as_bytes()[..end]))
}

/// Backtracks only to the last star of each kind, so the time is bounded by the product of the lengths.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut stars: Option<(usize, usize)> = None;
    loop {
        if p == pattern.len() && s == path.len() {
            return true;
        }
        if pattern[p.min(pattern.len())..].starts_with(b"**") {
            p += 2;
            stars = Some((p, s));
            star = None;
            continue;
        }
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, s));
                continue;
            }
            Some(c) if s < path.len() && (*c == path[s] || (*c == b'?' && path[s] != b'/')) => {
                p += 1;
                s += 1;
                continue;
            }
            _ => {}
        }
        if let Some((back, at)) = star.filter(|(_, at)| *at < path.len() && path[*at] != b'/') {
            star = Some((back, at + 1));
            (p, s) = (back, at + 1);
        } else if let Some((back, at)) = stars.filter(|(_, at)| *at < path.len()) {
            star = None;
            stars = Some((back, at + 1));
            (p, s) = (back, at + 1);
        } else {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_in_a_name_and_double_stars_do_not() {
        for (pattern, path, expected) in [
            ("/etc/redis", "/etc/redis/redis.conf", true),
            ("/etc/red", "/etc/redis", false),
            ("/usr/lib/*.so", "/usr/lib/a.so", true),
            ("/usr/lib/*.so", "/usr/lib/b/a.so", false),
            ("/usr/**/*.so", "/usr/lib/b/a.so", true),
            ("/usr/lib/python3*/test/", "/usr/lib/python3.11/test/a/b", true),
            ("/a?c", "/abc", true),
            ("/a?c", "/a/c", false),
            ("/**", "/x", true),
            ("/*a*b", "/xaxab", true),
            ("/**/x*y", "/a/xb/xcy", true),
        ] {
            assert_eq!(covers(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        assert!(!covers(&format!("/{}c", "*a**".repeat(30)), &format!("/{}b", "a".repeat(3000))));
    }
}
