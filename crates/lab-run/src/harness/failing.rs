//! A target that is told to fail some requests: it must not fail those that write and read back the keys.
//!
//! Known of it: how `weir serve` takes `--inject`. When it is told is its owner's matter.

/// The flag that opens a server to the lab.
pub(super) const LAB: &str = "--lab";

/// Whether a flag of a server is [`LAB`], also as it stands in a configuration.
pub(super) fn is_lab(arg: &str) -> bool {
    arg.strip_prefix(LAB).is_some_and(|rest| ["", "=true"].contains(&rest))
}

/// The flags of a server of the lab without the fault `fail`, and that. It is told of it once the keys are there.
pub(super) fn without_fail(args: Vec<String>) -> (Vec<String>, Option<String>) {
    // Any other server reports wrong faults itself.
    if !args.iter().any(|arg| is_lab(arg)) {
        return (args, None);
    }
    let mut failing = None;
    let mut left = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let words = match arg.strip_prefix("--inject") {
            Some("") => args.next().unwrap_or_default(),
            Some(joined) if joined.starts_with('=') => joined[1..].to_owned(),
            _ => {
                left.push(arg);
                continue;
            }
        };
        let (fails, others): (Vec<&str>, Vec<&str>) =
            words.split(',').partition(|word| word.trim().starts_with("fail="));
        failing = fails.last().map(|word| word.trim().to_owned()).or(failing);
        if !others.is_empty() {
            left.extend(["--inject".to_owned(), others.join(",")]);
        }
    }
    (left, failing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fault_that_fails_waits_for_the_keys() {
        for (args, left, failing) in [
            (
                "--lab --inject delay=5ms,fail=4 --workers 2",
                "--lab --inject delay=5ms --workers 2",
                Some("fail=4"),
            ),
            ("--lab --inject=fail=4", "--lab", Some("fail=4")),
            ("--lab --inject fail=4 --inject=cpu=1us", "--lab --inject cpu=1us", Some("fail=4")),
            ("--lab --inject cpu=1us", "--lab --inject cpu=1us", None),
            ("--inject fail=4", "--inject fail=4", None),
        ] {
            let words = args.split(' ').map(str::to_owned).collect();
            let (got, said) = without_fail(words);
            assert_eq!((got.join(" ").as_str(), said.as_deref()), (left, failing), "{args}");
        }
    }
}
