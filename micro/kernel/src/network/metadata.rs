// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks the cloud that the computer is in for its name and its user data, before the program starts: what a disk of cloud-init's says
//! elsewhere. What cannot be had costs a warning, and time within bounds.

use super::LOOK_NS;
use abi::{Result, errno::*};
use alloc::{string::ToString, sync::Arc, vec::Vec};
use api_alloc::Reserve;
use api_fs::Inode;
use api_plat::BootConfig;
use api_socket::{Address, Caller, Credentials, Names, Sending, Socket, SocketAddressV4};
use api_user::{Sink, Source};
use metadata::{
    ADDRESS, MAX_BODY, PORT, Service,
    http::{Answer, MAX_HEAD, Question, read},
};
use nocloud::Files;

/// For all questions together, and for one connection: a cloud's server may not be there yet when a computer starts.
const PATIENCE_NS: u64 = 30_000_000_000;
const TRY_NS: u64 = 5_000_000_000;
/// Between a try that failed and the next one.
const PAUSE_NS: u64 = 500_000_000;
/// Bytes of the words of the user data.
const MAX_WORDS: usize = 32 << 10;
const SOCK_STREAM: u32 = 1;

/// The kernel itself, in the machine's own network.
struct Kernel;

impl Names for Kernel {
    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    fn sender(&self) -> Credentials {
        Credentials::default()
    }

    fn may_administer(&self) -> bool {
        true
    }

    fn create(&self, _: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(EINVAL)
    }

    fn find(&self, _: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(EINVAL)
    }
}

/// Why there is no answer, a sentence's end.
type Reason = &'static str;

/// Adds what the cloud says to `config`, where its boot command line names one.
pub fn ask(config: &mut BootConfig) {
    let Some(name) = config.metadata.as_deref() else { return };
    let Some(service) = metadata::by_name(name) else {
        log::warn!("metadata={name}: no such cloud is known");
        return;
    };
    let until = api_plat::now_ns() + PATIENCE_NS;
    if let Err(reason) = add(config, service, until) {
        log::warn!("metadata of {}: {reason}; the program starts without", service.name);
    }
}

fn add(config: &mut BootConfig, service: &'static Service, until: u64) -> core::result::Result<(), Reason> {
    let token = match &service.token {
        Some(token) => {
            let question = Question { method: "PUT", path: token.path, header: token.header, more: None };
            answer(&question, until)?
        }
        None => None,
    };
    let token = token.as_deref().map(|body| metadata::token(body).ok_or("its token is none")).transpose()?;
    let more = service.token.as_ref().zip(token).map(|(token, value)| (token.carrier, value));
    let get = |path| answer(&Question { method: "GET", path, header: service.header, more }, until);
    let (name, user) = (get(service.hostname)?, get(service.user)?);
    let text = |body: &Option<Vec<u8>>, what: &str| {
        let text = core::str::from_utf8(body.as_deref().unwrap_or(&[]));
        text.map(|text| text.to_string()).unwrap_or_else(|_| {
            log::warn!("metadata: {what} is left out: it is not UTF-8");
            Default::default()
        })
    };
    let (name, user) = (text(&name, "the name"), text(&user, "user-data"));
    // Without what ends the name: it goes where a file of NoCloud's has it.
    let meta = match name.trim() {
        "" => Default::default(),
        name => alloc::format!("local-hostname: {}\n", name.lines().next().unwrap_or("")),
    };
    let mut line = Vec::new();
    line.reserve_exact_fallibly(MAX_WORDS).map_err(|_| "there is not enough memory")?;
    line.resize(MAX_WORDS, 0);
    let files = Files { meta: &meta, user: &user, ..Files::default() };
    let length = nocloud::words(&files, "--", &mut line, &mut |text| log::warn!("metadata: {text}"));
    let line = length.and_then(|length| core::str::from_utf8(&line[..length]).ok());
    let told = line.and_then(|line| BootConfig::decode(line).ok()).ok_or("its user data is too long")?;
    if told.hostname.is_some() {
        config.hostname = told.hostname;
    }
    for (name, value) in told.env {
        config.env.retain(|(known, _)| *known != name);
        config.env.push((name, value));
    }
    log::info!("metadata of {}: the name and user data were read", service.name);
    Ok(())
}

/// The body of an answer; `None`: the server has no such thing. Asks again until the time is over.
fn answer(question: &Question<'_>, until: u64) -> core::result::Result<Option<Vec<u8>>, Reason> {
    loop {
        let end = until.min(api_plat::now_ns() + TRY_NS);
        let reason = match exchange(question, end) {
            Ok(bytes) => match read(&bytes, true)? {
                Answer::Body(body) => return Ok(Some(body.to_vec())),
                Answer::Status(404 | 405 | 403 | 401) => return Ok(None),
                // It is not ready.
                Answer::Status(500..) => "the server answers with an error",
                Answer::Status(_) => return Err("the server answers with a status that is not known"),
                Answer::Part => "the answer ended in its middle",
            },
            Err(reason) => reason,
        };
        let now = api_plat::now_ns();
        if now + PAUSE_NS >= until {
            return Err(reason);
        }
        sleep_until(now + PAUSE_NS);
    }
}

/// One connection, from the question to the answer's end or to the most that is read of one.
fn exchange(question: &Question<'_>, end: u64) -> core::result::Result<Vec<u8>, Reason> {
    const SILENT: Reason = "the server does not answer";
    let caller = Caller { names: &Kernel };
    let family = u32::from(Address::INET);
    let socket = api_socket::create(Credentials::default(), family, SOCK_STREAM, 0);
    let socket = socket.map_err(|_| "there is no socket for it")?;
    let server = Address::v4(SocketAddressV4 { address: ADDRESS, port: PORT });
    let connected = retry(end, || match socket.connect(&caller, &server) {
        Ok(()) | Err(EISCONN) => Ok(()),
        Err(EINPROGRESS | EALREADY) => Err(EAGAIN),
        Err(error) => Err(error),
    });
    connected.map_err(|_| SILENT)?;
    let text = question.to_string();
    let mut sent = 0;
    while sent < text.len() {
        let from = &text.as_bytes()[sent..];
        let send = || socket.send(None, &Sending::default(), &mut Source::kernel(from));
        sent += retry(end, send).map_err(|_| SILENT)?;
    }
    let mut bytes = Vec::new();
    bytes.reserve_exact_fallibly(MAX_HEAD + MAX_BODY + 1).map_err(|_| "there is not enough memory")?;
    let mut piece = [0; 1024];
    loop {
        let got = receive(&*socket, &mut piece, end).map_err(|_| SILENT)?;
        // A byte more than is read: what is longer is seen to be.
        let room = (MAX_HEAD + MAX_BODY + 1).saturating_sub(bytes.len());
        bytes.extend_from_slice(&piece[..got.min(room)]);
        let is_whole = !matches!(read(&bytes, false), Ok(Answer::Part));
        if got == 0 || got > room || is_whole {
            return Ok(bytes);
        }
    }
}

fn receive(socket: &dyn Socket, to: &mut [u8], end: u64) -> Result<usize> {
    retry(end, || socket.receive(&mut Sink::kernel(to), 0).map(|received| received.length))
}

/// Until it answers something else than EAGAIN: `ETIMEDOUT` when that has not come by then.
fn retry<T>(end: u64, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(EAGAIN) => {}
            other => return other,
        }
        let now = api_plat::now_ns();
        if now >= end {
            return Err(ETIMEDOUT);
        }
        api_sched::park(end.min(now + LOOK_NS));
    }
}

fn sleep_until(deadline_ns: u64) {
    // Whoever wakes the thread wakes it for something else.
    while api_plat::now_ns() < deadline_ns {
        api_sched::park(deadline_ns);
    }
}
