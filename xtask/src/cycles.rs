//! `cargo run -p xtask -- cycles`: finds files of a crate that use each other in a circle.
//!
//! A file uses another if one of its paths, `crate::…` or `super::…`, leads to something that the other defines; a re-export
//! counts as what it stands for. That a module assembles the modules below it is no use: a table may stand above its rows and
//! the trait that they implement beside it. Tests do not count.
//!
//! All names begin with that of the crate: the module `batcher::queue` of `store` is `store::batcher::queue`.

use crate::files_below;
use kv::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::Path;

/// The code of each file, by its module.
type Modules = BTreeMap<String, String>;

/// The modules that each module uses.
type Uses<'m> = BTreeMap<&'m str, BTreeSet<&'m str>>;

/// The paths in a file.
#[derive(Default)]
struct Paths {
    /// Those that count as a use.
    used: Vec<String>,
    /// All, by the name that the last part has in this file.
    by_name: BTreeMap<String, String>,
}

/// Prints the files below `crates/` that are in cycles; an error if there are any.
pub(crate) fn run() -> Result<(), Error> {
    let cannot = |path: &Path, error| Error::new(format_args!("cannot read {}: {error}", path.display()));
    let root = Path::new("crates");
    let paths =
        files_below(root).map_err(|error| cannot(root, error).hint("run it in the project's root"))?;
    let mut modules = Modules::new();
    for path in paths {
        let Some(module) = module(&path) else { continue };
        let text = fs::read_to_string(&path).map_err(|error| cannot(&path, error))?;
        modules.insert(module, code(&text));
    }
    let found = in_cycles(uses(&modules));
    if found.is_empty() {
        return Ok(());
    }
    for (module, used) in found {
        println!("{module} uses {}", Vec::from_iter(used).join(", "));
    }
    Err(Error::new("these files use each other").hint("move what both sides need into a file of its own"))
}

/// The module of a source file; `None` of tests and binaries, which nothing can use.
fn module(path: &Path) -> Option<String> {
    let path = path.to_str()?.strip_prefix("crates/")?.strip_suffix(".rs")?;
    let (of_crate, file) = path.split_once("/src/")?;
    let mut names: Vec<&str> = [of_crate].into_iter().chain(file.split('/')).collect();
    names.pop_if(|name| ["mod", "lib"].contains(name));
    (!path.ends_with("/tests") && !path.ends_with("/main")).then(|| names.join("::"))
}

/// The words of a file with blanks between them, without comments and without `mod tests`, which ends a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    let spaced = |letter: char| match is_of_word(letter) || letter == ':' {
        true => letter.to_string(),
        false => format!(" {letter} "),
    };
    lines.collect::<Vec<_>>().join(" ").replace("::", " :: ").chars().map(spaced).collect()
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn paths(module: &str, modules: &Modules) -> Paths {
    let mut paths = Paths::default();
    let mut words = modules[module].split_whitespace().peekable();
    while let Some(first) = words.next() {
        if words.next_if_eq(&"::").is_none() {
            continue;
        }
        let base = match first {
            "crate" => module.split("::").next().map(str::to_owned),
            "super" => Some(above(module)),
            "self" => Some(module.to_owned()),
            name => Some(format!("{module}::{name}")).filter(|child| modules.contains_key(child)),
        };
        // Paths into other crates, and of types, are read to their end, too: no other path begins in the middle.
        let ends = tree(&mut words, base.clone().unwrap_or_default());
        if matches!(first, "crate" | "super") {
            paths.used.extend(ends.iter().map(|(_, path)| path.clone()));
        }
        if base.is_some() {
            paths.by_name.extend(ends);
        }
    }
    paths
}

fn above(module: &str) -> String {
    module.rsplit_once("::").map_or(module, |(above, _)| above).to_owned()
}

/// Reads the rest of a path that begins with `path`, or a tree of them in braces: each path, after the name it has here.
fn tree<'w>(words: &mut Peekable<impl Iterator<Item = &'w str>>, path: String) -> Vec<(String, String)> {
    if words.peek() == Some(&"{") {
        let mut ends = Vec::new();
        while matches!(words.next(), Some("{" | ",")) && words.next_if_eq(&"}").is_none() {
            ends.extend(tree(words, path.clone()));
        }
        return ends;
    }
    let path = match words.next_if(|word| word.starts_with(is_of_word) || *word == "*") {
        Some("super") => above(&path),
        Some("self" | "*") | None => path,
        Some(name) => format!("{path}::{name}"),
    };
    if words.next_if_eq(&"::").is_some() {
        return tree(words, path);
    }
    let alias = words.next_if_eq(&"as").and_then(|_| words.next());
    let name = alias.or(path.rsplit("::").next()).unwrap_or_default();
    vec![(name.to_owned(), path)]
}

/// Which file uses which.
fn uses(modules: &Modules) -> Uses<'_> {
    let all = modules.keys().map(|module| (module.as_str(), paths(module, modules)));
    let all: BTreeMap<&str, Paths> = all.collect();
    let mut uses = Uses::new();
    for (&module, paths) in &all {
        let others = paths.used.iter().filter_map(|path| definer(&all, path, 8));
        uses.insert(module, others.filter(|other| *other != module).collect());
    }
    uses
}

/// The module that defines what a path leads to, through so many re-exports.
fn definer<'m>(all: &BTreeMap<&'m str, Paths>, path: &str, depth: usize) -> Option<&'m str> {
    let mut module = path;
    while !all.contains_key(module) {
        module = module.rsplit_once("::")?.0;
    }
    let (module, paths) = all.get_key_value(module)?;
    let mut names = path[module.len()..].split("::").skip(1);
    match names.next().and_then(|name| paths.by_name.get(name)) {
        Some(import) if depth > 0 => {
            let path = names.fold(import.clone(), |path, name| path + "::" + name);
            definer(all, &path, depth - 1)
        }
        _ => Some(module),
    }
}

/// What is left when files that use none of the others, or that none of them uses, are left out again and again: those in
/// cycles and those between two cycles.
fn in_cycles(mut uses: Uses) -> Uses {
    loop {
        let before = uses.len();
        let used: BTreeSet<&str> = uses.values().flatten().copied().collect();
        uses.retain(|module, others| used.contains(module) && !others.is_empty());
        if uses.len() == before {
            return uses;
        }
        let left: BTreeSet<&str> = uses.keys().copied().collect();
        uses.values_mut().for_each(|others| others.retain(|other| left.contains(other)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modules in cycles.
    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let modules = sources.iter().map(|(module, text)| ((*module).to_owned(), code(text))).collect();
        in_cycles(uses(&modules)).into_keys().map(str::to_owned).collect()
    }

    #[test]
    fn files_that_use_each_other_are_found() {
        let circle = [
            ("x", ""),
            ("x::a", "use crate::b::X;"),
            ("x::b", "fn f() { super::c::f(); }"),
            ("x::c", "use super::{\n    self,\n    a::{Y, Z},\n};"),
            ("x::d", "use crate::a::X; use super::e::Y;"),
            ("x::e", ""),
        ];
        assert_eq!(found(&circle), ["x::a", "x::b", "x::c"]);
        assert!(found(&circle[..3]).is_empty());
        assert_eq!(found(&[("y::a", "use super::b::{*};"), ("y::b", "use crate::a;")]), ["y::a", "y::b"]);
    }

    #[test]
    fn a_re_export_counts_as_what_it_stands_for() {
        let facade = ("x", "mod a; mod b; pub use a::X as Renamed;");
        let user = ("x::b", "use super::Renamed;");
        assert!(found(&[facade, ("x::a", ""), user]).is_empty());
        assert_eq!(found(&[facade, ("x::a", "use crate::b::Y;"), user]), ["x::a", "x::b"]);
        assert!(found(&[facade, ("x::a", "use super::Own;"), user]).is_empty());
        assert_eq!(found(&[("x", "use crate::a::X;"), ("x::a", "use super::Own;")]), ["x", "x::a"]);
    }

    #[test]
    fn comments_and_tests_do_not_count() {
        let a = ("x::a", "// crate::b::X\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}");
        assert!(found(&[("x", ""), a, ("x::b", "use crate::a::Y;")]).is_empty());
    }

    #[test]
    fn a_file_is_named_by_its_crate_and_its_module() {
        for (path, expected) in [
            ("crates/lab-data/src/lib.rs", Some("lab-data")),
            ("crates/store/src/batcher/mod.rs", Some("store::batcher")),
            ("crates/store/src/batcher/queue.rs", Some("store::batcher::queue")),
            ("crates/store/src/batcher/tests.rs", None),
            ("crates/weir/src/main.rs", None),
            ("crates/weir/tests/it/serve.rs", None),
            ("crates/store/Cargo.toml", None),
        ] {
            assert_eq!(module(Path::new(path)).as_deref(), expected, "{path}");
        }
    }
}
