// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a registry wants to be authenticated (RFC 9110 11.6.1; the distribution project's token specification).

use http_auth::{ChallengeRef, parser::ChallengeParser};

/// Bytes of a header that is worth reading.
const MAX_HEADER: usize = 8192;

/// What a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    /// A token from elsewhere.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// The challenge to answer among those of a WWW-Authenticate header: a token if one is to be had.
pub fn parse(header: &str) -> Option<Challenge> {
    if header.len() > MAX_HEADER {
        return None;
    }
    // What is damaged behind a challenge does not make that worthless.
    let all: Vec<Challenge> =
        ChallengeParser::new(header).map_while(Result::ok).filter_map(|c| read(&c)).collect();
    let bearer = all.iter().find(|c| matches!(c, Challenge::Bearer { .. }));
    bearer.or(all.first()).cloned()
}

fn read(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    let parameter = |name: &str| {
        let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    match challenge.scheme.to_ascii_lowercase().as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer {
            realm: parameter("realm")?,
            service: parameter("service"),
            scope: parameter("scope"),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_challenges_of_real_registries_are_read() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/redis:pull""#;
        assert_eq!(
            parse(hub),
            Some(Challenge::Bearer {
                realm: "https://auth.docker.io/token".into(),
                service: Some("registry.docker.io".into()),
                scope: Some("repository:library/redis:pull".into())
            })
        );
        assert_eq!(parse(r#"Basic realm="Registry Realm""#), Some(Challenge::Basic));
        let both = parse(r#"Basic realm="x", Bearer realm="https://t""#);
        assert!(matches!(both, Some(Challenge::Bearer { .. })), "{both:?}");
        for nothing in ["", "Bearer", "Digest realm=\"x\", nonce=\"y\"", "Bearer service=\"x\"", "=\"\u{0}"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_a_panic(text in r#"(Basic|Bearer|[ ,="\\a-z\PC]){0,40}"#) {
            let _ = parse(&text);
        }
    }
}
