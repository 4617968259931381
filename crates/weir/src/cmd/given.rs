//! Experiments that are given by flags: commands and URLs, in place of a file.
//!
//! They become the text of an experiment file, which the results keep.

use super::quoted;
use super::usage::check_commands;
use kv::Error;
use lab_data::distinct;
use lab_data::experiment::{Experiment, address, own_flag};
use std::fmt::Write;

/// Where a service is that is started by a command and speaks TLS.
const TLS_ADDRESS: &str = "https://127.0.0.1:{port}";

/// A service as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Its name where there are several.
    pub(super) name: Option<&'static str>,
    /// The command that starts it; `None`: it runs.
    pub(super) command: Option<String>,
    /// `http://HOST:PORT` or `https://HOST:PORT` of one that runs.
    pub(super) base: String,
    /// Whether one that `command` starts speaks TLS.
    tls: bool,
    /// The path of all requests; `None`: those of a workload of `weir load`.
    pub(super) path: Option<String>,
}

/// How it is measured.
pub(super) struct Length<'a> {
    pub(super) levels: &'a [u32],
    pub(super) repetitions: u32,
    pub(super) warmup: String,
    pub(super) window: String,
    /// Whether the generator has to prove that it is accurate and not the limit.
    pub(super) is_checked: bool,
    /// Cores' worth of processor time that the service may use, which is then doubled to see what that brings.
    pub(super) quota: Option<f64>,
}

impl Service {
    /// One that `command` starts, at whose `url` requests are sent: a path, or a whole one with `{port}`.
    pub(super) fn of_command(
        name: Option<&'static str>,
        command: &str,
        url: Option<&str>,
    ) -> Result<Service, Error> {
        if !command.contains("{port}") {
            return Err(Error::input(format_args!("--command {command:?} has no {{port}}")).hint(
                "write {port} where the command takes its port: --command 'python3 app.py --port {port}'",
            ));
        }
        let tls = url
            .and_then(|url| url.strip_prefix(TLS_ADDRESS))
            .filter(|path| path.is_empty() || path.starts_with('/'));
        let path = match url {
            Some(url) => Some(tls.or(url.starts_with('/').then_some(url)).ok_or_else(|| {
                Error::input(format_args!("--url {url} is no path")).hint(format_args!(
                    "the command gets a free port: name the path only, as in --url /api/orders/1; if it speaks TLS, {TLS_ADDRESS}/api/orders/1"
                ))
            })?),
            None => None,
        };
        let path = path.filter(|path| !path.is_empty()).map(str::to_owned);
        Ok(Service { name, command: Some(command.to_owned()), base: String::new(), tls: tls.is_some(), path })
    }

    /// One that runs at `url`.
    pub(super) fn of_url(name: Option<&'static str>, url: &str) -> Result<Service, Error> {
        let after = url.find("://").map_or(0, |at| at + 3);
        let slash = url[after..].find('/').map_or(url.len(), |at| after + at);
        let (base, path) = url.split_at(slash);
        if address(base).is_none() {
            return Err(Error::input(format_args!(
                "--url {url} is not http://HOST:PORT or https://HOST:PORT, with a path or without"
            ))
            .hint("write the port, too: --url http://127.0.0.1:8080/"));
        }
        let path = (!path.is_empty()).then(|| path.to_owned());
        Ok(Service { name, command: None, base: base.to_owned(), tls: false, path })
    }

    /// Its table in the experiment file.
    fn target(&self, quota: Option<f64>) -> String {
        let head = if self.name.is_some() { "[[target]]" } else { "[target]" };
        let mut table = format!("\n{head}\n");
        let mut key = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{name} = {value}");
        };
        if let Some(name) = self.name {
            key("name", quoted(name));
        }
        match &self.command {
            None => {
                key("kind", quoted("url"));
                key("url", quoted(&self.base));
            }
            Some(command) => {
                key("kind", quoted("command"));
                // Of a path with variables only the load knows the values.
                let ready = self.path.as_deref().filter(|path| !path.contains("{{"));
                key("ready", quoted(ready.unwrap_or("/")));
                key("tls", self.tls.to_string());
                quota.into_iter().for_each(|cores| key("quota", format!("{{ server = {cores:?} }}")));
                // Where the user is: commands name files from there.
                let here = std::env::current_dir().unwrap_or_default().display().to_string();
                let script = format!("cd \"$0\" || exit\n{}", in_place_of_shell(command));
                let words = ["sh", "-c", &script, &here].map(str::to_owned);
                let _ = write!(table, "[[target.process]]\npart = \"server\"\ncommand = {}\n", list(&words));
            }
        }
        table
    }
}

/// A simple `command` so that it takes the place of its shell, which then ends when it is asked to. Of a list or a pipeline the shell
/// stays, and is ended with all that it has started.
fn in_place_of_shell(command: &str) -> String {
    let (mut quote, mut before, mut words) = (None, ' ', Vec::new());
    for (at, letter) in command.char_indices() {
        if quote.is_none() && before.is_whitespace() && !letter.is_whitespace() {
            words.push(at);
        }
        match (letter, quote) {
            _ if before == '\\' && quote != Some('\'') => {
                before = 'x';
                continue;
            }
            (_, Some(opening)) => quote = quote.filter(|_| letter != opening),
            ('\'' | '"', None) => quote = Some(letter),
            // As in 2>&1.
            ('&', None) if matches!(before, '>' | '<') => {}
            (';' | '|' | '&' | '(' | ')' | '`' | '\n', None) => return command.to_owned(),
            _ => {}
        }
        before = letter;
    }
    let is_name = |text: &str| text.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric());
    // The shell takes no variables behind exec.
    let is_program = |at: &usize| command[*at..].split_once('=').is_none_or(|(name, _)| !is_name(name));
    let at = words.into_iter().find(is_program).unwrap_or(command.len());
    if at == command.len() || command[at..].starts_with("exec ") {
        command.to_owned()
    } else {
        format!("{}exec {}", &command[..at], &command[at..])
    }
}

/// The experiment that measures `services` with further flags of `weir load`.
pub(super) fn experiment(
    name: &str,
    services: &[Service],
    length: &Length,
    flags: &[String],
) -> Result<Experiment, Error> {
    let (workload, flags) = workload_of(flags)?;
    if let Some((flag, _)) = own_flag(&flags) {
        return Err(Error::input(format_args!(
            "the flags behind -- have {flag}, which is set for each trial"
        ))
        .hint(match flag {
            "--clients" | "-c" => "write --levels before --, or --clients of weir compare".to_owned(),
            "--warmup" | "--window" => format!("write {flag} before --"),
            _ => "leave it out".to_owned(),
        }));
    }
    let Length { levels, repetitions, warmup, window, is_checked, quota } = length;
    let titles: Vec<&str> =
        services.iter().map(|of| of.command.as_ref().unwrap_or(&of.base).as_str()).collect();
    let title = titles.join(" and ");
    let targets: String = services.iter().map(|of| of.target(*quota)).collect();
    // A workload has paths of its own, so that `/` behind the port says nothing more, as in `weir load`.
    let path_of = |of: &'_ Service| of.path.clone().filter(|path| workload.is_none() || path != "/");
    let paths = distinct(services.iter().map(path_of));
    let workload = match (&paths[..], &workload) {
        ([Some(path)], Some(name)) => {
            return Err(Error::input(format_args!(
                "--workload {name} cannot be used with the path {path}: the requests of a workload have their own paths"
            ))
            .hint("leave out the path, or --workload"));
        }
        ([Some(path)], None) => format!("name = \"requests\"\nurl = {}\n", quoted(path)),
        ([None], _) => format!("name = {}\n", quoted(workload.as_deref().unwrap_or("get_popular"))),
        _ => {
            return Err(Error::input(
                "the two URLs have different paths; what is compared must be asked the same",
            )
            .hint("name the same path in both"));
        }
    };
    let raised = quota.map_or("", |_| "\n[interventions]\nonly = [\"server_quota\"]\n");
    let text = format!(
        "name = {}\ntitle = {}\nlevels = {levels:?}\nrepetitions = {repetitions}\nwarmup = {}\nwindow = {}\n\
         selftest = {is_checked}\nheadroom = {is_checked}\n{targets}{raised}\n[[workload]]\n{workload}args = {}\n",
        quoted(name),
        quoted(&title),
        quoted(warmup),
        quoted(window),
        list(&flags),
    );
    let experiment = Experiment::parse(&text)?;
    check_commands(&experiment)?;
    Ok(experiment)
}

/// The workload that `flags` of `weir load` name, if they do, and the others.
fn workload_of(flags: &[String]) -> Result<(Option<String>, Vec<String>), Error> {
    let (mut workload, mut others) = (None, Vec::new());
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match flag.split_once('=') {
            Some(("--workload", name)) => workload = Some(name.to_owned()),
            _ if flag == "--workload" => {
                let name = flags.next().cloned();
                workload = Some(name.ok_or_else(|| {
                    Error::input("--workload has no value").hint("name one, see weir load --help")
                })?);
            }
            _ => others.push(flag.clone()),
        }
    }
    Ok((workload, others))
}

fn list(of: &[String]) -> String {
    format!("[{}]", of.iter().map(|of| quoted(of)).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_measured_where_it_is_named_and_refused_beside_a_path() {
        let planned = |urls: &[&str], flags: &[&str]| {
            let name = |at: usize| (urls.len() > 1).then_some(["base", "new"][at]);
            let services: Vec<Service> =
                urls.iter().enumerate().map(|(at, url)| Service::of_url(name(at), url).unwrap()).collect();
            let (warmup, window) = ("1s".to_owned(), "1s".to_owned());
            let length =
                Length { levels: &[1], repetitions: 1, warmup, window, is_checked: false, quota: None };
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let workload = experiment("given", &services, &length, &flags)?.workloads.remove(0);
            Ok::<_, Error>((workload.name, workload.url, workload.args))
        };
        let of_keys = ["--workload", "put_all", "--keys", "1000"];
        for urls in [&["http://a:1/"][..], &["http://a:1"], &["http://a:1/", "http://b:1"]] {
            let (name, url, args) = planned(urls, &of_keys).unwrap();
            assert_eq!((name.as_str(), url), ("put_all", None), "{urls:?}");
            assert_eq!(args, ["--keys", "1000"]);
        }
        let (name, url, _) = planned(&["http://a:1/"], &[]).unwrap();
        assert_eq!((name.as_str(), url.as_deref()), ("requests", Some("/")));
        assert_eq!(planned(&["http://a:1"], &[]).unwrap().0, "get_popular");
        let refused = planned(&["http://a:1/x"], &["--workload=put_all"]).unwrap_err();
        assert!(refused.is_input());
        assert!(refused.to_string().contains("the requests of a workload have their own paths"), "{refused}");
    }

    #[test]
    fn a_simple_command_takes_the_place_of_its_shell_and_no_other() {
        for (command, expected) in [
            ("./app {port}", "exec ./app {port}"),
            ("A=1 exec ./app {port}", "A=1 exec ./app {port}"),
            ("A=1 B='x y' ./app {port}", "A=1 B='x y' exec ./app {port}"),
            ("A=$B\\ C=1 ./app --flag=1", "A=$B\\ C=1 exec ./app --flag=1"),
            ("./app --a=b {port} > log 2>&1", "exec ./app --a=b {port} > log 2>&1"),
            ("python3 -c 'import a; a.b(1)' {port}", "exec python3 -c 'import a; a.b(1)' {port}"),
            (r#"./app "a\";b" {port}"#, r#"exec ./app "a\";b" {port}"#),
            (r"./app \; {port}", r"exec ./app \; {port}"),
            ("cd d && ./app {port}", "cd d && ./app {port}"),
            ("./a {port}; true", "./a {port}; true"),
            (r"./a '\' {port} | ./b", r"./a '\' {port} | ./b"),
            ("./app {port} &", "./app {port} &"),
        ] {
            assert_eq!(in_place_of_shell(command), expected);
        }
    }
}
