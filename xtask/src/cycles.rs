//! `cargo run -p xtask -- cycles`: finds files of a crate that use each other in a circle.
//!
//! A file uses another if one of its paths, `crate::…` or `super::…`, leads to something that the other defines; a re-export
//! counts as what it stands for. That a module assembles the modules below it is no use: a table may stand above its rows and
//! the trait that they implement beside it. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A path, or the name of a module, by its parts from the crate's root on.
type Names = Vec<String>;

/// The files of a crate, by module.
type Files = BTreeMap<Names, File>;

struct File {
    path: PathBuf,
    /// Every path in it that counts as a use, from the crate's root on.
    paths: Vec<Names>,
    /// What its paths end in, by the name it has here.
    imports: BTreeMap<String, Names>,
}

/// Prints the cycles of every crate below `crates/`; an error if there are any.
pub(crate) fn run() -> Result<(), String> {
    let mut wrong = Vec::new();
    let crates =
        fs::read_dir("crates").map_err(|error| format!("crates: {error}; run it in the project's root"))?;
    let mut crates: Vec<PathBuf> = crates.flatten().map(|entry| entry.path()).collect();
    crates.sort();
    for folder in crates {
        let files = read(&folder.join("src"))?;
        let cycles = cycles(&uses(&files));
        if !cycles.is_empty() {
            wrong.push(folder.display().to_string());
        }
        for cycle in cycles {
            println!("{}: {} files use each other:", folder.display(), cycle.len());
            for (file, used) in cycle {
                println!("  {} uses {}", file.display(), used.join(", "));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: move what both sides need into a file of its own", wrong.join(", "))),
    }
}

fn read(folder: &Path) -> Result<Files, String> {
    let mut paths = Vec::new();
    walk(folder, &mut paths).map_err(|error| format!("{}: {error}", folder.display()))?;
    let modules: BTreeSet<Names> = paths.iter().map(|path| module(folder, path)).collect();
    let file = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let module = module(folder, &path);
        let (paths, imports) = parse(&code(&text), &module, &modules);
        Ok((module, File { path, paths, imports }))
    };
    paths.into_iter().map(file).collect()
}

/// Source files below `folder`, but tests and binaries: nothing can use them.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            walk(&path, files)?;
        } else if name != "tests.rs" && name != "main.rs" && path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn module(folder: &Path, path: &Path) -> Names {
    let relative = path.strip_prefix(folder).unwrap_or(path).with_extension("");
    let mut names: Names = relative.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod" || name == "lib");
    names
}

/// The text without comments and without `mod tests`, which ends a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// All uses of a file, and what its paths end in.
fn parse(code: &str, module: &Names, modules: &BTreeSet<Names>) -> (Vec<Names>, BTreeMap<String, Names>) {
    let (mut all, mut imports) = (Vec::new(), BTreeMap::new());
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut rest = code;
    while let Some(start) = rest.find(is_name) {
        let before = &rest[..start];
        rest = &rest[start..];
        let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        let first = &rest[..end];
        let base = match first {
            "crate" => Some(Names::new()),
            "super" => Some(above(module)),
            // A macro's or a type's path begins in the middle of a longer one.
            _ if before.ends_with("::") => None,
            "self" => Some(module.clone()),
            name => Some(below(module, name)).filter(|path| modules.contains(path)),
        };
        let is_use = matches!(first, "crate" | "super");
        rest = &rest[end..];
        let (Some(base), Some(tail)) = (base, rest.strip_prefix("::")) else { continue };
        let mut leaves = Vec::new();
        let length = tree(tail, base, &mut leaves);
        rest = &tail[length..];
        for (name, path) in leaves {
            if is_use {
                all.push(path.clone());
            }
            imports.insert(name, path);
        }
    }
    (all, imports)
}

fn above(module: &Names) -> Names {
    module[..module.len().saturating_sub(1)].to_vec()
}

fn below(module: &Names, name: &str) -> Names {
    [module.as_slice(), &[name.to_owned()]].concat()
}

/// Reads a path, or a tree of them in braces, and gives its length; `leaves` gets each with the name it has here.
fn tree(text: &str, base: Names, leaves: &mut Vec<(String, Names)>) -> usize {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let rest = &text[end..];
    let path = match &text[..end] {
        "" => base,
        "super" => above(&base),
        "self" => base,
        name => below(&base, name),
    };
    if let Some(deeper) = rest.strip_prefix("::") {
        return end + 2 + tree(deeper, path, leaves);
    }
    if end > 0 || !rest.starts_with('{') {
        let alias = rest.strip_prefix(" as ").and_then(|rest| rest.split([',', ';', '}']).next());
        let name = alias.map(str::trim).or(path.last().map(String::as_str)).unwrap_or_default();
        leaves.push((name.to_owned(), path));
        return end;
    }
    let mut at = 1;
    while let Some(next) = rest[at..].find(|letter: char| letter.is_alphanumeric() || "_}".contains(letter)) {
        at += next;
        if rest[at..].starts_with('}') {
            return at + 1;
        }
        at += tree(&rest[at..], path.clone(), leaves);
        // An alias is not a path.
        at += rest[at..].find([',', '}']).unwrap_or(0);
    }
    rest.len()
}

/// Which file uses which.
fn uses(files: &Files) -> BTreeMap<&Path, BTreeSet<&Path>> {
    let used = |module: &Names, file: &File| {
        let others = file.paths.iter().filter_map(|path| definer(files, path, 8));
        others.filter(|other| *other != module).map(|other| files[other].path.as_path()).collect()
    };
    files.iter().map(|(module, file)| (file.path.as_path(), used(module, file))).collect()
}

/// The module that defines what a path leads to, through so many re-exports.
fn definer<'f>(files: &'f Files, path: &Names, depth: usize) -> Option<&'f Names> {
    let length = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length]))?;
    let (module, file) = files.get_key_value(&path[..length])?;
    match path.get(length).and_then(|name| file.imports.get(name)) {
        Some(import) if depth > 0 => definer(files, &[import, &path[length + 1..]].concat(), depth - 1),
        _ => Some(module),
    }
}

/// Groups of files each of which reaches all others of it, with what each uses within the group.
fn cycles<'f>(uses: &BTreeMap<&'f Path, BTreeSet<&'f Path>>) -> Vec<Vec<(&'f Path, Vec<String>)>> {
    let reach = |from: &'f Path| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(uses[file].iter().filter(|used| reached.insert(**used)));
        }
        reached
    };
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = uses.keys().map(|file| (*file, reach(file))).collect();
    let mut groups = BTreeSet::new();
    for (file, others) in reached.iter().filter(|(file, others)| others.contains(*file)) {
        let group: BTreeSet<&'f Path> =
            others.iter().filter(|other| reached[*other].contains(file)).copied().collect();
        groups.insert(group);
    }
    let name = |file: &&Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let described = |group: BTreeSet<&'f Path>| {
        group.iter().map(|file| (*file, uses[file].intersection(&group).map(name).collect())).collect()
    };
    groups.into_iter().map(described).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cycles of these modules.
    fn found(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let names = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let modules: BTreeSet<Names> = sources.iter().map(|(path, _)| names(path)).collect();
        let file = |(path, text): &(&str, &str)| {
            let (paths, imports) = parse(&code(text), &names(path), &modules);
            (names(path), File { path: PathBuf::from(path), paths, imports })
        };
        let files: Files = sources.iter().map(file).collect();
        let group = |group: Vec<(&Path, Vec<String>)>| {
            group.into_iter().map(|(path, _)| path.display().to_string()).collect()
        };
        cycles(&uses(&files)).into_iter().map(group).collect()
    }

    #[test]
    fn files_that_use_each_other_are_found() {
        let circle = [
            ("", ""),
            ("a", "use crate::b::X;"),
            ("b", "fn f() { super::c::f(); }"),
            ("c", "use super::{a::{Y, Z}};"),
        ];
        assert_eq!(found(&circle), [["a", "b", "c"]]);
        assert!(found(&circle[..3]).is_empty());
    }

    #[test]
    fn a_re_export_counts_as_what_it_stands_for() {
        let facade = ("", "mod a; mod b; pub use a::X as Renamed;");
        let user = ("b", "use super::Renamed;");
        assert!(found(&[facade, ("a", ""), user]).is_empty());
        assert_eq!(found(&[facade, ("a", "use crate::b::Y;"), user]), [["a", "b"]]);
        assert!(found(&[facade, ("a", "use super::Own;"), user]).is_empty());
        assert_eq!(found(&[("", "use crate::a::X;"), ("a", "use super::Own;")]), [["", "a"]]);
    }

    #[test]
    fn comments_and_tests_do_not_count() {
        let a = ("a", "// crate::b::X\n#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}");
        assert!(found(&[("", ""), a, ("b", "use crate::a::Y;")]).is_empty());
    }
}
