//! How far `weir export` and `weir import` are: a line on a terminal, and a sentence at the end. Bars of other commands.

use super::{counted, note};
use indicatif::{ProgressBar, ProgressStyle};
use kv::units::short;
use std::time::Instant;

/// A bar on standard error; `None` where that is no terminal.
pub(super) fn bar(template: &'static str) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template(template).expect("a constant that parses");
    let bar = ProgressBar::no_length().with_style(style);
    (!bar.is_hidden()).then_some(bar)
}

pub(super) struct Progress {
    /// `exported`, `imported`.
    done: &'static str,
    keys: u64,
    bytes: u64,
    began: Instant,
    /// On a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn begin(done: &'static str) -> Progress {
        Progress { done, keys: 0, bytes: 0, began: Instant::now(), bar: bar("{wide_msg}") }
    }

    pub(super) fn add(&mut self, keys: u64, bytes: u64) {
        self.keys += keys;
        self.bytes += bytes;
        if let Some(bar) = &self.bar {
            let rate = self.keys as f64 / self.began.elapsed().as_secs_f64().max(0.001);
            let keys = counted(self.keys, "key");
            bar.set_message(format!(
                "{} {keys}, {}B, {} keys/s",
                self.done,
                short(self.bytes as f64),
                short(rate)
            ));
            bar.tick();
        }
    }

    /// Says how much it was, and `more`.
    pub(super) fn end(&self, more: &str) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
        let secs = self.began.elapsed().as_secs_f64();
        let keys = counted(self.keys, "key");
        note(format_args!("{} {keys}, {}B, in {secs:.1} s{more}", self.done, short(self.bytes as f64)));
    }
}
