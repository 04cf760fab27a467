// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a running Firecracker: HTTP on a UNIX socket, a connection for each.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use unilith_overlay::socket;

/// How long an answer may take. Firecracker answers at once unless it hangs.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read: a status line, a few headers and one sentence.
const MAX_ANSWER: usize = 4096;

/// Presses Ctrl-Alt-Del, which the kernel takes for the request to end.
pub fn ask_for_the_end(socket: &Path) -> io::Result<()> {
    put(socket::connect_at(socket)?, "/actions", r#"{"action_type":"SendCtrlAltDel"}"#)
}

fn put(mut stream: UnixStream, path: &str, body: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request = format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while !answer.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ends in its middle"));
            }
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if answer.len() > MAX_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
        }
    }
    match is_success(&answer) {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// `HTTP/1.1 204 No Content`.
fn is_success(answer: &[u8]) -> bool {
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(1..3)).is_some_and(|code| code == b" 2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// What comes of a request that is answered so, behind which the socket closes.
    fn answered(answer: &'static [u8]) -> io::Result<()> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let mut request = [0; 512];
            let length = theirs.read(&mut request).unwrap();
            // The client may be gone when the answer is long.
            let _ = theirs.write_all(answer);
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let result = put(ours, "/actions", "{}");
        let request = server.join().unwrap();
        assert!(
            request.starts_with("PUT /actions HTTP/1.1\r\n")
                && request.ends_with("Content-Length: 2\r\n\r\n{}")
        );
        result
    }

    #[test]
    fn only_a_whole_answer_of_success_is_one() {
        answered(b"HTTP/1.1 204 \r\nServer: Firecracker API\r\n\r\n").unwrap();
        answered(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
        for answer in [
            &b"HTTP/1.1 400 \r\nContent-Length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 2",
            b"HTTP/1.1 204 \r\nServer: Fire",
            b"",
            b"\r\n\r\n",
            b"HTTP/1.\r\n\r\n",
            &[b'x'; 20_000],
        ] {
            assert!(answered(answer).is_err(), "{}", String::from_utf8_lossy(answer));
        }
    }
}
