//! Command lines that are wrong: each is one line with the thing, the cause and the remedy, and exit code 2.

use crate::support::weir;
use std::process::Stdio;

#[test]
fn a_wrong_command_line_is_told_in_one_line_with_a_remedy() {
    const URL: &str = "http://127.0.0.1:1";
    for (words, what, hint) in [
        ("srve", "unrecognized subcommand 'srve'", "a similar subcommand exists: 'serve'"),
        ("frobnicate", "unrecognized subcommand 'frobnicate'", "`weir --help` lists what it takes"),
        ("--frobnicate", "unexpected argument '--frobnicate' found", "`weir --help` lists what it takes"),
        ("replica", "weir replica: a sub-command is missing", "`weir replica --help` lists what it takes"),
        ("replica init --x", "unexpected argument '--x' found", "`weir replica init --help` lists"),
        (
            "replica init",
            "the following required arguments were not provided: --replica",
            "write `weir replica init ",
        ),
        (
            "lab",
            "the following required arguments were not provided: <EXPERIMENT>",
            "write `weir lab <EXPERIMENT>",
        ),
        (
            "lab --levels x",
            "invalid value 'x' for '--levels <CLIENTS,…>': expected a whole number",
            "`weir lab --help`",
        ),
        ("lab f.toml --levels 1,2,y", "invalid value 'y' for '--levels <CLIENTS,…>'", "`weir lab --help`"),
        (
            "lab f.toml --scale 2",
            "invalid value '2' for '--scale <SHARE>': a share is above 0, up to 1",
            "write it as in 0.1",
        ),
        (
            "lab f.toml --window 5",
            "invalid value '5' for '--window <WINDOW>': a duration is a number with us, ms",
            "write it as in 500ms",
        ),
        (
            "lab f.toml --seed 1e9",
            "invalid value '1e9' for '--seed <SEED>': expected a whole number",
            "`weir lab --help`",
        ),
        (
            "lab f.toml --target a",
            "unexpected argument '--target' found",
            "a similar argument exists: '--targets'",
        ),
        ("lab f.toml g.toml", "unexpected argument 'g.toml' found", "`weir lab --help` lists"),
        (
            "lab f.toml --out",
            "a value is required for '--out <DIR>' but none was supplied",
            "`weir lab --help`",
        ),
        (
            "lab f.toml --out a --out b",
            "the argument '--out <DIR>' cannot be used multiple times",
            "`weir lab --help`",
        ),
        ("load", "the following required arguments were not provided: <URL", "write `weir load [OPTIONS] "),
        (
            "load URL --clients 0",
            "invalid value '0' for '--clients <N>': 0 is not in 1..=100000",
            "`weir load --help`",
        ),
        ("load URL --keys 0", "invalid value '0' for '--keys <N>': 0 is not in 1..", "`weir load --help`"),
        ("load URL --clients few", "invalid value 'few' for '--clients <N>'", "`weir load --help`"),
        (
            "load URL --workload nope",
            "invalid value 'nope' for '--workload <NAME>': expected one of: get_popular,",
            "`weir load --list` shows the names",
        ),
        (
            "load URL --dialect none.toml",
            "invalid value 'none.toml' for '--dialect <NAME|FILE.toml>': cannot read it: ",
            "`weir load --list` shows the names",
        ),
        (
            "load URL --workload get_all --workload mixed",
            "the argument '--workload <NAME>' cannot be used multiple times",
            "`weir load --help`",
        ),
        (
            "load URL --json --events",
            "the argument '--json' cannot be used with '--events'",
            "`weir load --help`",
        ),
        ("load URL --schema", "the argument '--schema' cannot be used with", "`weir load --help`"),
        ("load URL --rate -5", "unexpected argument '-5' found", "`weir load --help`"),
        ("load ftp://h", "invalid value 'ftp://h' for '<URL>...': only http and https are spoken", ""),
        (
            "compare",
            "there is nothing to compare",
            "name two results directories, or two services: weir compare ",
        ),
        ("compare a b --out", "a value is required for '--out <DIR>'", "`weir compare --help`"),
        ("report", "the following required arguments were not provided: <DIR>", "write `weir report "),
        ("report a b", "unexpected argument 'b' found", "`weir report --help` lists"),
        (
            "serve --listen here",
            "invalid value 'here' for '--listen <ADDRESS:PORT>': it is no address with a port",
            "write an address or a name with a port",
        ),
        (
            "serve --workers two",
            "invalid value 'two' for '--workers <N>': it has to be 1 or more",
            "write a whole number",
        ),
        (
            "serve --cache-bytes 5Q",
            "invalid value '5Q' for '--cache-bytes <SIZE>': a size is a number of bytes",
            "write it as in 64MiB",
        ),
        (
            "serve --lab=perhaps",
            "invalid value 'perhaps' for '--lab [<true|false>]' [possible values: true, false]",
            "`weir serve --help`",
        ),
        ("serve --inject", "a value is required for '--inject <", "`weir serve --help`"),
        (
            "serve --idle-timeout 9999999999999999999s",
            "invalid value '9999999999999999999s' for '--idle-timeout <TIME>': this duration is longer",
            "`weir serve --help`",
        ),
        (
            "serve --event-log-bytes 1MiB",
            "--event-log-bytes has no effect without --event-log",
            "add --event-log 24h",
        ),
        ("serve --store ", "--store names no store", "write --store file:./weir-data"),
        ("serve here", "unexpected argument 'here' found", "`weir serve --help` lists"),
    ] {
        let words: Vec<String> = words.split(' ').map(|word| word.replace("URL", URL)).collect();
        let output = weir().args(&words).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{words:?}: {said}");
        let (told, hinted) =
            said.trim_end().split_once("; hint: ").unwrap_or_else(|| panic!("{words:?}: {said}"));
        assert!(told.starts_with(&format!("error: {what}")), "{words:?}: {said}");
        assert!(hinted.starts_with(hint), "{words:?}: {said}");
    }
}

/// A URL of a store, as it is meant and as users mistype it, where it belongs and where it does not.
#[test]
fn no_password_is_ever_printed() {
    const SECRET: &str = "s3cret";
    let forms = [
        "postgres://u:s3cret@127.0.0.1:1/d",
        "postgres:/u:s3cret@127.0.0.1/d",
        "postgresql://u:s3cret@127.0.0.1:1/d",
        "postgresql:/u:s3cret@127.0.0.1/d",
        "mysql://u:s3cret@127.0.0.1:1/d",
        "mysql:/u:s3cret@127.0.0.1/d",
        "u:s3cret@127.0.0.1/d",
        "host=127.0.0.1 port=1 password=s3cret dbname=d",
        "postgres://u@127.0.0.1:1/d?password=s3cret",
        "postgres://u:s3cret@127.0.0.1,127.0.0.2/d",
        "postgres://u:s3cret",
    ];
    let places = [
        "URL",
        "serve URL",
        "serve --listen URL",
        "serve --store URL",
        "serve --store URL --store URL",
        "serve --stor=URL",
        "serve --workers=URL",
        "serve --config URL",
        "serve --compat URL",
        "serve --compat crud=URL",
        "serve --cache-policy URL",
        "serve --shadow-policies lru,URL",
        "serve --lab --inject cpu=1us,URL",
        "serve --lab URL",
        "serve --store memory: --read-fallback URL",
        "serve --store memory:URL",
        "serve --store postgres://127.0.0.1:1/d --read-fallback URL",
        "replica URL",
        "replica init --replica URL --store postgres://127.0.0.1:1/d",
        "replica init --replica postgres://127.0.0.1:1/d --store URL",
        "replica status --replica URL --store URL",
        "load URL",
        "load --clients URL http://127.0.0.1:1",
        "lab URL",
        "report URL",
        "compare URL URL",
        "audit URL",
        "WEIR_LISTEN",
        "WEIR_STORE",
        "WEIR_CONFIG",
        "WEIR_READ_FALLBACK",
    ];
    let mut told = Vec::new();
    for (form, place) in forms.iter().flat_map(|form| places.iter().map(move |place| (form, place))) {
        let mut command = weir();
        match place.starts_with("WEIR_") {
            true => command.arg("serve").env(place, form),
            false => command.args(place.split(' ').map(|word| word.replace("URL", form))),
        };
        if place.starts_with("serve") || place.starts_with("WEIR_") {
            command.args(["--lease-wait", "0s", "--until-stdin-ends"]);
            if !place.contains("--listen") && *place != "WEIR_LISTEN" {
                command.args(["--listen", "127.0.0.1:0"]);
            }
            if !place.contains("--store") && *place != "WEIR_STORE" {
                command.args(["--store", "memory:"]);
            }
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if said.contains(SECRET) {
            told.push(format!("{place} with {form}: {said}"));
        }
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}
