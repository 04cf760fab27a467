// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to one registry (distribution-spec 1.1): scheme, authentication, retries, and limits for all that comes back.

use crate::{
    challenge::{self, Challenge},
    credentials::{CredentialFiles, Credentials},
    error::{ErrorKind, RegistryError, Result, fail},
    settings::{Endpoint, is_local},
};
use serde::Deserialize;
use std::{env, fs, io::Read, path::Path, thread, time::Duration};
use ureq::{
    Agent, Body,
    http::{Response, StatusCode, header},
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

/// The variable that names another limit, in seconds.
const PATIENCE_VARIABLE: &str = "UNILITH_REGISTRY_TIMEOUT";
/// How long a registry may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a request is tried whose connection breaks.
pub(crate) const TRIES: u32 = 3;
/// The first wait between two of them; the next ones are longer.
const PAUSE: Duration = Duration::from_millis(200);
/// Redirections of one request.
const MAX_REDIRECTS: u32 = 5;
/// Bytes of a token service's answer, and of an error's.
const MAX_SMALL: u64 = 256 << 10;
/// Characters of a registry's own words in an error.
const MAX_WORDS: usize = 200;
/// Where this computer's roots of trust are.
const ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// Where docker and podman have those of single registries.
const ROOTS_OF_HOSTS: [&str; 2] = ["/etc/docker/certs.d", "/etc/containers/certs.d"];

/// How long a registry may say nothing, as this user says.
pub(crate) fn patience() -> Result<Duration> {
    let Some(text) = env::var_os(PATIENCE_VARIABLE) else { return Ok(PATIENCE) };
    let seconds = text.to_str().and_then(|t| t.parse().ok()).filter(|s| (1..=3600).contains(s));
    match seconds {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => fail!(Settings, "{PATIENCE_VARIABLE}: it is a number of seconds from 1 to 3600"),
    }
}

/// A connection to a registry, as far as HTTP has one.
pub(crate) struct Session {
    agent: Agent,
    /// `https://HOST`.
    base: String,
    endpoint: Endpoint,
    credentials: Option<Credentials>,
    challenge: Option<Challenge>,
    /// The Authorization header of requests.
    authorization: Option<String>,
    patience: Duration,
}

impl Session {
    /// Finds out how a registry speaks and what it asks for.
    pub(crate) fn open(endpoint: &Endpoint, credentials: &CredentialFiles) -> Result<Session> {
        let found = credentials.find(&endpoint.credentials, &endpoint.repository)?;
        Session::open_as(endpoint, found)
    }

    /// The same with credentials that are in no file.
    pub(crate) fn open_as(endpoint: &Endpoint, credentials: Option<Credentials>) -> Result<Session> {
        let patience = patience()?;
        let schemes: &[&str] = match endpoint.insecure {
            false => &["https"],
            true if is_local(&endpoint.host) => &["http", "https"],
            true => &["https", "http"],
        };
        let agent = agent(endpoint, patience)?;
        let mut first: Option<RegistryError> = None;
        for (number, scheme) in schemes.iter().enumerate() {
            let mut session = Session {
                agent: agent.clone(),
                base: format!("{scheme}://{}", endpoint.host),
                endpoint: endpoint.clone(),
                credentials: credentials.clone(),
                challenge: None,
                authorization: None,
                patience,
            };
            match session.greet() {
                Ok(()) => return Ok(session),
                // The other scheme may be spoken.
                Err(error) if number + 1 < schemes.len() && error.kind == ErrorKind::Network => {
                    first = Some(error);
                }
                // A plain registry answers nothing to TLS: what it said in its own language explains more.
                Err(error) => {
                    return Err(first.filter(|_| error.kind == ErrorKind::Network).unwrap_or(error));
                }
            }
        }
        fail!(Network, "{}: no way to speak to it", endpoint.host)
    }

    /// Asks for the API's version (distribution-spec, "Determining Support").
    fn greet(&mut self) -> Result<()> {
        let response = self.send(&format!("{}/v2/", self.base), &[], true)?;
        let host = &self.endpoint.host;
        match response.status() {
            StatusCode::UNAUTHORIZED => {
                let headers = response.headers().get_all(header::WWW_AUTHENTICATE);
                let texts: Vec<&str> = headers.iter().filter_map(|v| v.to_str().ok()).collect();
                self.challenge = challenge::parse(&texts.join(", "));
                match self.challenge {
                    Some(_) => Ok(()),
                    None => fail!(Denied, "{host} asks for a way of authentication that is not known here"),
                }
            }
            status if status.is_success() => Ok(()),
            // A server of TLS answers so to plain HTTP.
            StatusCode::BAD_REQUEST if self.base.starts_with("http:") => {
                fail!(Network, "{host} does not speak plain HTTP")
            }
            status if status.is_server_error() => fail!(Network, "{host} answers {status}: try again later"),
            status => fail!(NotFound, "{host} is no registry: it answers {status} to GET /v2/"),
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.endpoint.host
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether the registry takes the credentials; it need not want any.
    pub(crate) fn log_in(&mut self) -> Result<()> {
        if self.challenge.is_none() {
            return Ok(());
        }
        self.authorize("")?;
        let response = self.send(&format!("{}/v2/", self.base), &[], true)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied()),
            status => fail!(Network, "{} answers {status}", self.endpoint.host),
        }
    }

    /// Gets something below the repository, authenticated as the registry wants. Answers 200 and 206 only.
    pub(crate) fn get(
        &mut self,
        what: &str,
        path: &str,
        headers: &[(&str, &str)],
        is_small: bool,
    ) -> Result<Response<Body>> {
        let repository = self.endpoint.repository.clone();
        let url = format!("{}/v2/{repository}/{path}", self.base);
        if self.authorization.is_none() && self.challenge.is_some() {
            self.authorize(&format!("repository:{repository}:pull"))?;
        }
        let mut response = self.send(&url, headers, is_small)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // Tokens end, and some registries say only here what they want.
            let asked = response.headers().get(header::WWW_AUTHENTICATE).and_then(|v| v.to_str().ok());
            self.challenge = asked.and_then(challenge::parse).or(self.challenge.take());
            if self.challenge.is_none() {
                return Err(self.denied());
            }
            self.authorize(&format!("repository:{repository}:pull"))?;
            response = self.send(&url, headers, is_small)?;
        }
        let host = &self.endpoint.host;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied()),
            StatusCode::NOT_FOUND => {
                let hint = if self.credentials.is_none() && self.challenge.is_some() {
                    "; if it is not public: unilith login"
                } else {
                    ""
                };
                fail!(NotFound, "{host} has no {what}{hint}")
            }
            StatusCode::TOO_MANY_REQUESTS => fail!(
                Denied,
                "{host} lets nobody fetch more for a while (429 Too Many Requests): wait, or `unilith login`"
            ),
            status if status.is_server_error() => {
                fail!(Network, "{host} answers {status} to {what}{}", words(response))
            }
            status => fail!(NotFound, "{host} answers {status} to {what}{}", words(response)),
        }
    }

    fn denied(&self) -> RegistryError {
        let (host, registry) = (&self.endpoint.host, &self.endpoint.credentials);
        let text = match &self.credentials {
            Some(_) => format!(
                "{host} refuses the user name and password of {registry}, or this image to them: `unilith login {registry}` replaces them"
            ),
            None => format!(
                "{host} wants a user name and a password, or has no such image: `unilith login {registry}`"
            ),
        };
        RegistryError::new(ErrorKind::Denied, text)
    }

    /// Makes the header that the challenge asks for.
    fn authorize(&mut self, scope: &str) -> Result<()> {
        self.authorization = match &self.challenge {
            None => None,
            Some(Challenge::Basic) => match self.credentials.as_ref().and_then(Credentials::basic) {
                Some(basic) => Some(basic),
                None => return Err(self.denied()),
            },
            Some(Challenge::Bearer { realm, service, scope: asked }) => {
                let scope = if scope.is_empty() { asked.as_deref().unwrap_or_default() } else { scope };
                Some(format!("Bearer {}", self.token(realm, service.as_deref(), scope)?))
            }
        };
        Ok(())
    }

    /// A token of the token service (distribution's spec/auth/token.md; oauth.md for refresh tokens).
    fn token(&self, realm: &str, service: Option<&str>, scope: &str) -> Result<String> {
        let host = &self.endpoint.host;
        let plain = realm.starts_with("http://");
        if !plain && !realm.starts_with("https://") {
            fail!(Denied, "{host} sends to `{realm}` for a token, which is no address");
        }
        if plain && !self.endpoint.insecure {
            fail!(Denied, "{host} sends to {realm} for a token: nobody is told a password over plain HTTP");
        }
        let mut parameters: Vec<(&str, &str)> = Vec::new();
        parameters.extend(service.map(|s| ("service", s)));
        if !scope.is_empty() {
            parameters.push(("scope", scope));
        }
        let answer = self.tries(|| match &self.credentials {
            Some(Credentials::Token(token)) => {
                let more =
                    [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", "unilith")];
                let request = self.agent.post(realm).config().timeout_global(Some(self.patience * 2)).build();
                request.send_form(parameters.iter().copied().chain(more))
            }
            credentials => {
                let mut request = self.agent.get(realm).query_pairs(parameters.iter().copied());
                if let Some(basic) = credentials.as_ref().and_then(Credentials::basic) {
                    request = request.header(header::AUTHORIZATION, basic);
                }
                request.config().timeout_global(Some(self.patience * 2)).build().call()
            }
        });
        let mut response = answer.map_err(|e| self.broken(&format!("the token service {realm}"), &e))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                return Err(self.denied());
            }
            status => fail!(Network, "the token service {realm} of {host} answers {status}"),
        }
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let read = response.body_mut().with_config().limit(MAX_SMALL).read_to_vec();
        let bytes = read.map_err(|e| self.broken(&format!("the token service {realm}"), &e))?;
        let answer: Option<Answer> = serde_json::from_slice(&bytes).ok();
        let token = answer.and_then(|a| a.token.filter(|t| !t.is_empty()).or(a.access_token));
        // It becomes a header.
        match token.filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic())) {
            Some(token) => Ok(token),
            None => fail!(Denied, "the token service {realm} of {host} answers without a token"),
        }
    }

    /// One request, tried again where the connection breaks before an answer.
    fn send(&self, url: &str, headers: &[(&str, &str)], is_small: bool) -> Result<Response<Body>> {
        let sent = self.tries(|| {
            let mut request = self.agent.get(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(value) = &self.authorization {
                request = request.header(header::AUTHORIZATION, value);
            }
            // Of a blob's body each read has its limit, and the rate has one.
            let whole = is_small.then_some(self.patience * 2);
            request.config().timeout_global(whole).build().call()
        });
        sent.map_err(|e| self.broken(&self.endpoint.host, &e))
    }

    fn tries(
        &self,
        mut request: impl FnMut() -> std::result::Result<Response<Body>, ureq::Error>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        for attempt in 1.. {
            match request() {
                Ok(response) if response.status().is_server_error() && attempt < TRIES => {}
                Err(error) if attempt < TRIES && is_passing(&error) => {}
                other => return other,
            }
            pause(attempt);
        }
        Err(ureq::Error::ConnectionFailed)
    }

    /// What an error of the connection means.
    pub(crate) fn broken(&self, who: &str, error: &ureq::Error) -> RegistryError {
        let seconds = self.patience.as_secs();
        let text = match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                format!("{who}: no connection within {seconds} s: check the network and the name")
            }
            ureq::Error::Timeout(_) => {
                format!("{who}: stalled: nothing came for {seconds} s ({PATIENCE_VARIABLE} is another limit)")
            }
            ureq::Error::HostNotFound => format!("{who}: no such host: check the network and the name"),
            ureq::Error::BodyExceedsLimit(_) => {
                return RegistryError::new(ErrorKind::Corrupt, format!("{who}: the answer is too long"));
            }
            ureq::Error::Io(e) => format!("{who}: {e}: check the network"),
            other if self.endpoint.insecure => format!("{who}: {other}"),
            other => format!(
                "{who}: {other}; a registry without TLS, or with a certificate that nobody knows, needs `insecure = true` in registries.conf"
            ),
        };
        RegistryError::new(ErrorKind::Network, text)
    }
}

/// Waits between two tries, longer each time.
pub(crate) fn pause(attempt: u32) {
    thread::sleep(PAUSE * (1 << attempt.min(4)));
}

/// Whether another try may help. Time that ran out was long enough already.
fn is_passing(error: &ureq::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut};
    match error {
        ureq::Error::Io(e) => !matches!(e.kind(), ConnectionRefused | TimedOut),
        ureq::Error::Protocol(_) => false,
        _ => false,
    }
}

/// What the registry says of an error (distribution-spec, "Error Codes").
fn words(mut response: Response<Body>) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        message: String,
    }
    let bytes = response.body_mut().with_config().limit(MAX_SMALL).read_to_vec().unwrap_or_default();
    let errors: Option<Errors> = serde_json::from_slice(&bytes).ok();
    match errors.and_then(|e| e.errors.into_iter().next()).filter(|e| !e.message.is_empty()) {
        Some(one) => format!(": {}", one.message.chars().take(MAX_WORDS).collect::<String>()),
        None => String::new(),
    }
}

fn agent(endpoint: &Endpoint, patience: Duration) -> Result<Agent> {
    let mut tls = TlsConfig::builder().disable_verification(endpoint.insecure);
    let roots = roots(&endpoint.host)?;
    if !roots.is_empty() {
        tls = tls.root_certs(RootCerts::new_with_certs(&roots));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTS)
        // Digests are of what was asked for, not of what is behind an encoding.
        .accept_encoding("identity")
        .user_agent(concat!("unilith/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(patience))
        .timeout_connect(Some(patience))
        .timeout_send_request(Some(patience))
        .timeout_recv_response(Some(patience))
        .timeout_per_read(Some(patience));
    Ok(config.build().new_agent())
}

/// The certificates that this computer trusts for a host; none: those that the command brings.
fn roots(host: &str) -> Result<Vec<Certificate<'static>>> {
    let own = env::var_os("SSL_CERT_FILE").map(Into::into);
    let shared = own.or_else(|| ROOTS.iter().map(Path::new).find(|p| p.is_file()).map(Path::to_path_buf));
    let mut files: Vec<std::path::PathBuf> = shared.into_iter().collect();
    for folder in ROOTS_OF_HOSTS {
        let entries = fs::read_dir(Path::new(folder).join(host)).into_iter().flatten().flatten();
        files.extend(entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "crt")));
    }
    let mut certificates = Vec::new();
    for file in files {
        let mut text = Vec::new();
        let read = fs::File::open(&file).and_then(|f| f.take(16 << 20).read_to_end(&mut text));
        read.map_err(|e| RegistryError::io("read", &file, &e))?;
        for item in parse_pem(&text) {
            match item {
                Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => {}
                Err(e) => fail!(Settings, "{}: {e}", file.display()),
            }
        }
    }
    Ok(certificates)
}
