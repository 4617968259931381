//! What is shown while `weir load` runs, on standard error.

use crate::load::Notice;
use crate::units;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// A bar, or nothing where nobody looks at it.
pub(super) struct Live {
    bar: ProgressBar,
}

impl Live {
    pub(super) fn start() -> Live {
        const STYLE: &str = "{bar:30} {percent:>3} % {msg}";
        if !std::io::stderr().is_terminal() {
            return Live { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template(STYLE).expect("the template is a constant that parses");
        Live { bar: ProgressBar::new(1).with_style(style) }
    }

    pub(super) fn hear(&self, notice: &Notice) {
        match notice {
            Notice::Preloading { requests, of } => {
                self.bar.set_length(*of);
                self.bar.set_position(*requests);
                self.bar.set_message("writing and reading back the keys");
            }
            Notice::Second { second, report } => {
                let rate = units::short(report.successes as f64);
                self.bar.set_message(format!("second {second}: {rate} req/s"));
            }
            Notice::Event(_) => {}
        }
    }

    /// Takes it off the screen.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
