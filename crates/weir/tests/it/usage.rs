//! Command lines that are wrong: each is one line with the thing, the cause and the remedy, and exit code 2.

use crate::support::weir;
use std::process::Stdio;

#[test]
fn a_wrong_command_line_is_told_in_one_line_with_a_remedy() {
    const URL: &str = "http://127.0.0.1:1";
    for (words, what, remedy) in [
        ("srve", "weir has no sub-command srve", "Did you mean `weir serve`?"),
        ("frobnicate", "weir has no sub-command frobnicate", "`weir --help` lists what it takes."),
        ("--frobnicate", "weir has no flag --frobnicate", "`weir --help` lists what it takes."),
        ("replica", "weir replica: a sub-command is missing", "`weir replica --help` lists what it takes."),
        ("replica init --x", "weir replica init has no flag --x", "`weir replica init --help` lists"),
        ("replica init", "weir replica init needs --replica", "Write `weir replica init "),
        ("lab", "weir lab needs <EXPERIMENT>: What to measure", "Write `weir lab <EXPERIMENT>`."),
        ("lab --levels x", "--levels x is no whole number", "Write one, as in 4."),
        ("lab f.toml --levels 1,2,y", "--levels y is no whole number", "Write one"),
        ("lab f.toml --scale 2", "--scale 2: a share is a number above 0, up to 1", "`weir lab --help`"),
        ("lab f.toml --window 5", "--window 5: a duration is a number with us, ms, s, m or h", "`weir lab"),
        ("lab f.toml --seed 1e9", "--seed 1e9 is no whole number", "Write one"),
        ("lab f.toml --target a", "weir lab has no flag --target", "Did you mean --targets?"),
        ("lab f.toml g.toml", "weir lab has no use for `g.toml`", "`weir lab --help` lists"),
        ("lab f.toml --out", "--out has no value", "Write --out <DIR>."),
        ("lab f.toml --out a --out b", "--out is given twice", "Give it once."),
        ("load", "weir load needs <URL>: The server", "Write `weir load [OPTIONS] URL`."),
        ("load URL --clients 0", "--clients 0 is out of range", "Write a number from 1 to 100000."),
        ("load URL --keys 0", "--keys 0 is out of range", "Write a number from 1 on."),
        ("load URL --clients few", "--clients few is no whole number", "Write one, as in 4."),
        ("load URL --workload nope", "--workload nope is not known", "Known are get_popular,"),
        ("load URL --json --events", "--json and --events do not go together", "Leave one of them out."),
        ("load URL --schema", "--schema goes together with nothing else", "Leave the rest out, or it."),
        ("load URL --arrivals poisson", "weir load: what is given does nothing without --rate", "Add --rate"),
        ("load URL --rate -5", "weir load: -5 is below 0", "Write a number from 0 on."),
        ("load ftp://h", "ftp://h: only http is spoken", "Write http://host:port"),
        ("score", "weir score needs <", "Write `weir score "),
        ("score --mark f d", "weir score has no flag --mark", "Did you mean --markdown?"),
        ("compare", "weir compare needs <", "Write `weir compare "),
        ("compare a b --out", "--out has no value", "Write --out <DIR>."),
        ("report", "weir report needs <", "Write `weir report "),
        ("report a b", "weir report has no use for `b`", "`weir report --help` lists"),
        ("serve --listen here", "--listen here is no address with a port", "Write one, as in 127.0.0.1:8080"),
        ("serve --workers two", "--workers two is no whole number", "Write one"),
        ("serve --cache-bytes 5Q", "--cache-bytes 5Q: ", "`weir serve --help` lists"),
        ("serve --lab=perhaps", "--lab perhaps is not known", "Known are true, false."),
        ("serve --inject", "--inject has no value", "Write --inject <NAME=VALUE,…>."),
        ("serve here", "weir serve has no use for `here`", "`weir serve --help` lists"),
    ] {
        let words: Vec<String> = words.split(' ').map(|word| word.replace("URL", URL)).collect();
        let output = weir().args(&words).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{words:?}: {said}");
        let (told, hint) =
            said.trim_end().split_once(" | hint: ").unwrap_or_else(|| panic!("{words:?}: {said}"));
        assert!(told.starts_with(&format!("error: {what}")), "{words:?}: {said}");
        assert!(hint.starts_with(remedy), "{words:?}: {said}");
    }
}
