// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is to print. What a program prints and the kernel's log come by two ways, are read by two threads and
//! meet on the user's standard error; a line of the log does not come in the middle of a line of the program.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long the log waits for the end of a line, counted from the line's beginning: nobody knows when a prompt or a
/// progress bar ends.
const PATIENCE: Duration = Duration::from_millis(500);

/// Shared by the two threads.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { state: Mutex::default(), changed: Condvar::new(), patience: PATIENCE }
    }
}

#[derive(Default)]
struct State {
    /// When the line began that the console is in, or when it began to print what it still prints.
    line: Option<Instant>,
    /// A line of the log waits.
    is_awaited: bool,
}

impl Turns {
    /// A panic of one thread must not stop the other.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The console's turn: gives `take` all of `bytes`, in two parts where the log waits for the end of a line. Nothing is
    /// locked while `take` runs.
    pub fn print(&self, bytes: &[u8], mut take: impl FnMut(&[u8])) {
        let is_awaited = self.begin();
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if is_awaited && end > 0 && end < bytes.len() {
            take(&bytes[..end]);
            self.end();
            self.begin();
            take(&bytes[end..]);
        } else {
            take(bytes);
            if end == bytes.len() {
                self.end();
            }
        }
    }

    /// Begins a line unless one has begun. Lets the log have its turn before that, and says whether it still waits.
    fn begin(&self) -> bool {
        let mut state = self.lock();
        while state.is_awaited && state.line.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.line.get_or_insert_with(Instant::now);
        state.is_awaited
    }

    /// The console is not in a line; so also when it has ended.
    pub fn end(&self) {
        self.lock().line = None;
        self.changed.notify_all();
    }

    /// The log's turn, of which there is one thread: calls `take` when the console's line has ended, or when it has taken
    /// too long. The console waits meanwhile.
    pub fn log(&self, take: impl FnOnce()) {
        let mut state = self.lock();
        state.is_awaited = true;
        while let Some(line) = state.line {
            let Some(left) = self.patience.checked_sub(line.elapsed()) else { break };
            let (woken, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = woken;
        }
        take();
        state.is_awaited = false;
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread};

    /// What both print, in the order in which it was printed.
    type Printed = Mutex<Vec<u8>>;

    fn add(printed: &Printed, bytes: &[u8]) {
        printed.lock().unwrap().extend_from_slice(bytes);
    }

    fn text(printed: &Printed) -> String {
        String::from_utf8(printed.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn the_log_waits_for_the_end_of_a_line_and_has_its_turn_before_the_next() {
        let turns = Turns { patience: Duration::MAX, ..Turns::default() };
        let printed = Printed::default();
        turns.print(b"half ", |bytes| add(&printed, bytes));
        let (waits, has_begun) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                waits.send(()).unwrap();
                turns.log(|| add(&printed, b"log\n"));
            });
            has_begun.recv().unwrap();
            while !turns.lock().is_awaited {
                thread::yield_now();
            }
            turns.print(b"a line\nand ", |bytes| add(&printed, bytes));
            turns.print(b"another\n", |bytes| add(&printed, bytes));
        });
        assert_eq!(text(&printed), "half a line\nlog\nand another\n");
    }

    #[test]
    fn a_line_that_does_not_end_delays_the_log_once() {
        let (turns, printed) = (Turns::default(), Printed::default());
        turns.print(b"login: ", |bytes| add(&printed, bytes));
        let begun = Instant::now();
        for _ in 0..1000 {
            turns.log(|| add(&printed, b"log\n"));
        }
        // A thousand times as much would be eight minutes.
        assert!(begun.elapsed() < 100 * PATIENCE, "{:?}", begun.elapsed());
        turns.end();
        turns.log(|| add(&printed, b"end\n"));
        assert_eq!(text(&printed), format!("login: {}end\n", "log\n".repeat(1000)));
    }

    #[test]
    fn both_print_all_they_have_and_no_line_is_broken() {
        const LINES: usize = 2000;
        let turns = Turns { patience: Duration::MAX, ..Turns::default() };
        let printed = Printed::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..LINES {
                    for part in [&b"one "[..], b"line\none ", b"line\n"] {
                        turns.print(part, |bytes| add(&printed, bytes));
                    }
                }
                turns.end();
            });
            scope.spawn(|| {
                for _ in 0..LINES {
                    turns.log(|| add(&printed, b"log\n"));
                }
            });
        });
        let text = text(&printed);
        let of = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!((of("one line"), of("log"), text.lines().count()), (2 * LINES, LINES, 3 * LINES));
    }
}
