// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long work on the terminal: one line that moves; where there is no terminal, one line for each step that takes its time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A step that ends sooner is not worth a line in a log.
const WORTH_A_LINE: Duration = Duration::from_millis(700);

pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    /// Number of the current step.
    step: Arc<AtomicUsize>,
}

impl Progress {
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        bar.set_style(spinner());
        Progress { bar, terminal: std::io::stderr().is_terminal(), step: Arc::default() }
    }

    /// Says nothing.
    pub fn silent() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        Progress { bar, terminal: true, step: Arc::default() }
    }

    /// Something that changes within a step.
    pub fn detail(&self, text: &str) {
        self.bar.set_message(text.to_string());
        self.bar.tick();
    }
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn measured() -> ProgressStyle {
    let style = ProgressStyle::with_template("{spinner} {prefix} [{bar:30}] {percent}% {elapsed}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

impl unilith_image::Progress for Progress {
    fn step(&self, text: &str) {
        let number = self.step.fetch_add(1, Ordering::Relaxed) + 1;
        if self.terminal {
            self.bar.set_style(spinner());
            self.bar.set_length(0);
            self.bar.set_prefix(text.to_string());
            self.bar.set_message("");
            self.bar.enable_steady_tick(Duration::from_millis(120));
        } else {
            let (current, text) = (self.step.clone(), text.to_string());
            std::thread::spawn(move || {
                std::thread::sleep(WORTH_A_LINE);
                if current.load(Ordering::Relaxed) == number {
                    // Points tell it from an error, to readers and to scripts.
                    eprintln!("unilith: {text}...");
                }
            });
        }
    }

    fn advance(&self, done: u64, total: u64) {
        if total > 0 {
            if self.bar.length() != Some(total) {
                self.bar.set_style(measured());
                self.bar.set_length(total);
            }
            self.bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.step.fetch_add(1, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }
}
