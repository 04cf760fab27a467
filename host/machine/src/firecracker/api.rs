// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a running Firecracker, and to Cloud Hypervisor, whose server is of the same kind: HTTP on a UNIX socket, a
//! connection for each.

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
    let body = r#"{"action_type":"SendCtrlAltDel"}"#;
    put(socket::connect_at(socket)?, "/actions", body, PATIENCE)
}

/// Puts `body` to `path`, and waits for an answer of success; an error says what the answer says.
pub fn put(mut stream: UnixStream, path: &str, body: &str, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let length = body.len();
    // Without a body there is nothing to say about it: their server would take it for an empty one.
    let about = match length {
        0 => String::new(),
        _ => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    let request = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{about}\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    loop {
        if let Some(end) = end_of_head(&answer) {
            let (head, body) = answer.split_at(end);
            if is_success(head) {
                return Ok(());
            }
            // What the body says is worth its bytes, as far as they come.
            if body.len() >= length_of_body(head) || answer.len() >= MAX_ANSWER {
                return Err(io::Error::other(explanation(head, body)));
            }
        } else if answer.len() > MAX_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
        }
        match stream.read(&mut piece) {
            Ok(0) => match end_of_head(&answer) {
                Some(end) => return Err(io::Error::other(explanation(&answer[..end], &answer[end..]))),
                None => {
                    let why = "the answer ends in its middle";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
            },
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Where the head of an answer ends, behind its empty line.
fn end_of_head(answer: &[u8]) -> Option<usize> {
    Some(answer.windows(4).position(|w| w == b"\r\n\r\n")? + 4)
}

/// What a head says of the length of its body; 0 when it says nothing.
fn length_of_body(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

/// One line of an answer that is no success: its body, or the first line of its head.
fn explanation(head: &[u8], body: &[u8]) -> String {
    let text = String::from_utf8_lossy(if body.is_empty() { head } else { body });
    let line = if body.is_empty() { text.lines().next().unwrap_or_default() } else { &text };
    line.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|w| !w.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
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
        let result = put(ours, "/actions", "{}", PATIENCE);
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

    #[test]
    fn the_body_of_a_refusal_says_why() {
        let refused = |answer| answered(answer).unwrap_err().to_string();
        let answer = b"HTTP/1.1 500 \r\nContent-Length: 13\r\n\r\n[\"no\r\n room\"]";
        assert_eq!(refused(answer), "[\"no room\"]");
        // Also one that ends early, and one without a body.
        assert_eq!(refused(b"HTTP/1.1 500 \r\nContent-Length: 99\r\n\r\n[\"no\"]"), "[\"no\"]");
        assert_eq!(refused(b"HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\n"), "HTTP/1.1 404 Not Found");
    }
}
