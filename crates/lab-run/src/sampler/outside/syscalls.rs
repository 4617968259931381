//! What a blocked thread waits for, by the system call it is in.

use super::Waits;

/// Where a thread is, as far as its system call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It needs no more to be told.
    Known(Waits),
    /// It reads or writes this file.
    File(u64),
    /// It waits for some of so many files, whose list is at this address.
    Poll(u64, u64),
    /// It waits at this address for another thread.
    Futex(u64),
    /// The same, but not beyond a time.
    Timed(u64, Deadline),
}

/// Where the time stands at which a wait for another thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// The address of the time, in the memory of the process.
    pub(super) address: u64,
    /// Whether it is a point of a clock; else a span from the beginning of the wait.
    pub(super) is_absolute: bool,
    /// Whether that is the clock of the day.
    pub(super) is_of_day: bool,
}

/// Of `futex`: what an operation is without its flags, the waits among them, and the flag of the clock of the day.
const OPERATION: u64 = 127;
const WAIT: u64 = 0;
const WAIT_BITSET: u64 = 9;
const CLOCK_REALTIME: u64 = 256;
/// The number of `futex` itself, which has a deadline as its fourth argument.
const FUTEX: i64 = if cfg!(target_arch = "x86_64") { 202 } else { 98 };

/// Reads `/proc/PID/task/TID/syscall`: the number of the call and its arguments.
pub(super) fn parse(text: &str) -> Option<Call> {
    if text.starts_with("running") {
        return Some(Call::Known(Waits::RUNNING));
    }
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let args: Vec<u64> = words.map_while(hex).take(4).collect();
    let name = CALLS.iter().find(|(_, numbers)| numbers.contains(&number)).map(|(name, _)| *name);
    Some(match name {
        Some("futex") => match args[..] {
            [at, operation, _, deadline]
                if number == FUTEX
                    && deadline > 0
                    && [WAIT, WAIT_BITSET].contains(&(operation & OPERATION)) =>
            {
                let is_absolute = operation & OPERATION == WAIT_BITSET;
                let is_of_day = operation & CLOCK_REALTIME > 0;
                Call::Timed(at, Deadline { address: deadline, is_absolute, is_of_day })
            }
            [at, ..] if number == FUTEX => Call::Futex(at),
            _ => Call::Known(Waits::LOCK),
        },
        Some("sleep") => Call::Known(Waits::SLEEP),
        Some("flush") => Call::Known(Waits::DISK),
        Some("file") => Call::File(*args.first()?),
        Some("poll") => Call::Poll(*args.first()?, *args.get(1)?),
        Some("idle") => Call::Known(Waits::IDLE),
        _ => Call::Known(Waits::OTHER),
    })
}

/// Calls by what they do, with their numbers. Source: Linux `asm/unistd_64.h` of x86-64, and `asm-generic/unistd.h`.
const CALLS: &[(&str, &[i64])] = if cfg!(target_arch = "x86_64") {
    &[
        ("futex", &[202, 449, 455]),
        ("sleep", &[35, 230]),
        ("flush", &[26, 74, 75, 162, 277, 306]),
        ("file", &[0, 1, 17, 18, 19, 20, 44, 45, 46, 47, 295, 296]),
        ("poll", &[7, 271]),
        ("idle", &[23, 43, 61, 128, 232, 247, 270, 281, 288, 441]),
    ]
} else {
    &[
        ("futex", &[98, 449, 455]),
        ("sleep", &[101, 115]),
        ("flush", &[81, 82, 83, 84, 227, 267]),
        ("file", &[63, 64, 65, 66, 67, 68, 69, 70, 206, 207, 211, 212]),
        ("poll", &[73]),
        ("idle", &[22, 72, 95, 137, 202, 242, 260, 441]),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_call_is_known_by_its_number() {
        for (text, expected) in [
            ("running", Call::Known(Waits::RUNNING)),
            ("202 0x55d0 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Futex(0x55d0)),
            ("449 0x55d0 0x1 0x0 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Known(Waits::LOCK)),
            (
                "202 0x55d0 0x189 0x0 0x7fe0 0x0 0xffffffff 0x7ffe 0x7f16",
                Call::Timed(0x55d0, Deadline { address: 0x7fe0, is_absolute: true, is_of_day: true }),
            ),
            ("230 0x0 0x0 0x7fff 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Known(Waits::SLEEP)),
            ("45 0x1f 0x5000 0x2000 0x0 0x0 0x0 0x7ffe 0x7f16", Call::File(31)),
            ("7 0x7ffe0 0x1 0xffff 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Poll(0x7ffe0, 1)),
            ("232 0x4 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Known(Waits::IDLE)),
            ("74 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f16", Call::Known(Waits::DISK)),
            ("-1 0x0 0x0", Call::Known(Waits::OTHER)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        assert_eq!(parse(""), None);
    }
}
