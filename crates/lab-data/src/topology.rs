//! Which part runs on which cores.
//!
//! The rule: the generator's innocence comes first. Wherever there are two cores it has its own, because a generator
//! that competes with what it measures measures itself. [`plan`] is pure; [`siblings`] asks the kernel.

use super::experiment::{Cores, DATABASE, GENERATOR, LINK, SERVER};
use super::results::Placement;
use crate::{distinct, ensure};
use kv::Error;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// To whom the next spare core goes first of those to whom as much is owed; then to the others in their order.
const TURNS: [&str; 2] = [SERVER, GENERATOR];

/// Where the kernel describes its processors.
pub const CPUS: &str = "/sys/devices/system/cpu";

/// Those of `cores` that are hyperthreads of one physical core, as the files below `dir` say: two or more in each set.
pub fn siblings(dir: &Path, cores: &[usize]) -> Vec<Vec<usize>> {
    let mut sets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for core in cores {
        // The same list in the file of each of them, as `0,8` or `0-1`.
        let list = fs::read_to_string(dir.join(format!("cpu{core}/topology/thread_siblings_list")));
        list.into_iter().for_each(|list| sets.entry(list.trim().to_owned()).or_default().push(*core));
    }
    sets.into_values().filter(|set| set.len() > 1).collect()
}

/// `cores` by physical core, where `siblings` are sets of those that one has. If there is a single one, its hyperthreads stand alone:
/// they are all there is to divide.
fn physical(cores: &[usize], siblings: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let set_of = |core: &usize| siblings.iter().position(|set| set.contains(core));
    let mut all: Vec<Vec<usize>> = Vec::new();
    for core in cores {
        let own = set_of(core);
        match all.iter_mut().find(|known| own.is_some() && set_of(&known[0]) == own) {
            Some(known) => known.push(*core),
            None => all.push(vec![*core]),
        }
    }
    if all.len() == 1 { cores.iter().map(|core| vec![*core]).collect() } else { all }
}

/// Places `parts` on `cores` (ascending), of which `siblings` are on one physical core, with `wanted` cores where the experiment names
/// them.
///
/// A link that has no cores of its own in `wanted` has the generator's: it is part of the load's way and takes nothing from the target.
pub fn plan(
    cores: &[usize],
    siblings: &[Vec<usize>],
    parts: &[&str],
    wanted: &Cores,
) -> Result<Vec<Placement>, Error> {
    if cores.is_empty() {
        return Err(Error::new("no core may be used").hint("check the affinity mask this was started with"));
    }
    let shares = |part: &str| part == LINK && parts.contains(&GENERATOR) && !wanted.parts.contains_key(LINK);
    let own: Vec<&str> = parts.iter().copied().filter(|part| !shares(part)).collect();
    let chosen = choose(cores, siblings, &own, wanted)?;
    let of = |part: &str| &chosen[if shares(part) { GENERATOR } else { part }];
    let placement = |part: &&str| {
        let named = |is_so: &dyn Fn(&str) -> bool| -> Vec<String> {
            let others = parts.iter().filter(|other| *other != part && is_so(other));
            others.map(|other| (*other).to_owned()).collect()
        };
        let on = |part: &str, set: &[usize]| of(part).iter().any(|core| set.contains(core));
        let is_beside = |other: &str| siblings.iter().any(|set| on(part, set) && on(other, set));
        Placement {
            part: (*part).to_owned(),
            cores: of(part).clone(),
            shares_with: named(&|other| of(other) == of(part)),
            siblings_with: named(&|other| of(other) != of(part) && is_beside(other)),
        }
    };
    Ok(parts.iter().map(placement).collect())
}

/// The cores of each part.
///
/// What was written for a larger machine is scaled down in proportion. With `of`, a number counts our cores rather than the
/// machine's: core 0 is the first that is ours. Two parts have either the same cores or none in common: otherwise no counter could
/// tell how busy the cores of either are.
fn choose<'p>(
    cores: &[usize],
    siblings: &[Vec<usize>],
    parts: &[&'p str],
    wanted: &'p Cores,
) -> Result<BTreeMap<&'p str, Vec<usize>>, Error> {
    let Cores { of, parts: wanted } = wanted;
    if of.is_some_and(|of| of > cores.len()) {
        return Ok(divide(&physical(cores, siblings), parts, wanted));
    }
    let ours = |core: &usize| if of.is_some_and(|of| *core < of) { cores[*core] } else { *core };
    let mut chosen: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (part, own) in wanted {
        let mut own: Vec<usize> = own.iter().map(ours).collect();
        own.sort_unstable();
        let unknown = format_args!("cores.{part}: this experiment starts no {part}");
        ensure(parts.contains(&part.as_str()), unknown, "remove the line")?;
        let is_set = !own.is_empty() && own.is_sorted_by(|a, b| a < b);
        let what = format!("cores.{part} {own:?} is no set of cores");
        ensure(is_set, what, "name at least one, and each once")?;
        let hint =
            format!("use some of {cores:?}, or say with cores.of how many cores the file was written for");
        own.iter().try_for_each(|core| {
            ensure(cores.contains(core), format!("cores.{part}: there is no core {core} here"), &hint)
        })?;
        chosen.insert(part, own);
    }
    let rest: Vec<&str> = parts.iter().copied().filter(|part| !wanted.contains_key(*part)).collect();
    let is_spare = |core: &usize| !chosen.values().flatten().any(|taken| taken == core);
    let spare: Vec<usize> = cores.iter().copied().filter(is_spare).collect();
    // Rather a physical core of which nothing is taken.
    let is_whole = |core: &&usize| siblings.iter().filter(|set| set.contains(core)).flatten().all(is_spare);
    let whole: Vec<usize> = spare.iter().filter(is_whole).copied().collect();
    let spare = if whole.is_empty() { spare } else { whole };
    // With every core spoken for, who is left shares with the part it disturbs least.
    let planned = match chosen.get(SERVER).or(chosen.get(DATABASE)).or(chosen.get(GENERATOR)) {
        Some(host) if spare.is_empty() => rest.iter().map(|part| (*part, host.clone())).collect(),
        _ => divide(&physical(&spare, siblings), &rest, &BTreeMap::new()),
    };
    chosen.extend(planned);
    for (part, own) in &chosen {
        for (other, theirs) in &chosen {
            let is_clear = own == theirs || !own.iter().any(|core| theirs.contains(core));
            let what = format!("cores.{part} {own:?} and cores.{other} {theirs:?} overlap in part");
            ensure(is_clear, what, "give both the same cores, or none in common")?;
        }
    }
    Ok(chosen)
}

/// Divides physical `cores` among `parts`, from the lowest, in the proportions of `wanted`. A part that is not named there counts as one core.
fn divide<'p>(
    cores: &[Vec<usize>],
    parts: &[&'p str],
    wanted: &BTreeMap<String, Vec<usize>>,
) -> BTreeMap<&'p str, Vec<usize>> {
    let weight = |part: &str| wanted.get(part).map_or(1, |own| own.len().max(1));
    let total: usize = parts.iter().map(|part| weight(part)).sum();
    if cores.len() < parts.len() {
        // Too few for everybody: the generator keeps its share to itself, at most half, and the others share the rest.
        let fair = cores.len() * weight(GENERATOR) / total;
        let is_alone = cores.len() > 1 && parts.contains(&GENERATOR);
        let (rest, last) =
            cores.split_at(cores.len() - if is_alone { fair.clamp(1, cores.len() / 2) } else { 0 });
        let of = |part: &str| if is_alone && part == GENERATOR { last } else { rest };
        return parts.iter().map(|part| (*part, ascending(of(part)))).collect();
    }
    // One core each, the others one by one to whom most is owed.
    let turns = distinct(TURNS.iter().filter(|part| parts.contains(part)).chain(parts));
    let mut counts: BTreeMap<&str, usize> = parts.iter().map(|part| (*part, 1)).collect();
    for _ in parts.len()..cores.len() {
        let owed = |part: &str| (weight(part) * cores.len()) as f64 / total as f64 - counts[part] as f64;
        if let Some(most) = turns.iter().rev().max_by(|a, b| owed(a).total_cmp(&owed(b))) {
            *counts.entry(most).or_default() += 1;
        }
    }
    let mut cores = cores;
    let mut take = |part: &&'p str| {
        let (own, rest) = cores.split_at(counts[part]);
        cores = rest;
        (*part, ascending(own))
    };
    parts.iter().map(&mut take).collect()
}

/// The hyperthreads of these physical cores, ascending.
fn ascending(cores: &[Vec<usize>]) -> Vec<usize> {
    let mut all = cores.concat();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[&str] = &[SERVER, GENERATOR];
    const WITH_DATABASE: &[&str] = &[SERVER, DATABASE, GENERATOR];

    fn wanted(of: Option<usize>, pairs: &[(&str, &[usize])]) -> Cores {
        let parts = pairs.iter().map(|(part, cores)| ((*part).to_owned(), cores.to_vec())).collect();
        Cores { of, parts }
    }

    /// The plan as text: `server 0+1 generator 2`, with `*` behind a part that shares its cores.
    fn shown(cores: &[usize], parts: &[&str], own: &[(&str, &[usize])]) -> String {
        shown_of(None, cores, parts, own)
    }

    fn shown_of(of: Option<usize>, cores: &[usize], parts: &[&str], own: &[(&str, &[usize])]) -> String {
        shown_beside(&[], of, cores, parts, own)
    }

    /// Of these hyperthreads of physical cores; a part has a `^` if it is beside another on one of them.
    fn shown_beside(
        siblings: &[Vec<usize>],
        of: Option<usize>,
        cores: &[usize],
        parts: &[&str],
        own: &[(&str, &[usize])],
    ) -> String {
        let text = |placement: Placement| {
            let cores: Vec<_> = placement.cores.iter().map(usize::to_string).collect();
            let star = if placement.shares_with.is_empty() { "" } else { "*" };
            let beside = if placement.siblings_with.is_empty() { "" } else { "^" };
            format!("{}{star}{beside} {}", placement.part, cores.join("+"))
        };
        match plan(cores, siblings, parts, &wanted(of, own)) {
            Ok(placements) => placements.into_iter().map(text).collect::<Vec<_>>().join(" "),
            Err(why) => format!("error {why}"),
        }
    }

    #[test]
    fn the_generator_is_alone_wherever_there_are_two_cores() {
        for (cores, parts, expected) in [
            (1, PLAIN, "server* 0 generator* 0"),
            (1, WITH_DATABASE, "server* 0 database* 0 generator* 0"),
            (2, PLAIN, "server 0 generator 1"),
            (2, WITH_DATABASE, "server* 0 database* 0 generator 1"),
            (3, PLAIN, "server 0+1 generator 2"),
            (3, WITH_DATABASE, "server 0 database 1 generator 2"),
            (4, PLAIN, "server 0+1 generator 2+3"),
            (4, WITH_DATABASE, "server 0+1 database 2 generator 3"),
            (5, WITH_DATABASE, "server 0+1 database 2 generator 3+4"),
            (6, WITH_DATABASE, "server 0+1 database 2+3 generator 4+5"),
            (7, PLAIN, "server 0+1+2+3 generator 4+5+6"),
            (2, &[GENERATOR], "generator 0+1"),
            (2, &[], ""),
        ] {
            let all: Vec<usize> = (0..cores).collect();
            assert_eq!(shown(&all, parts, &[]), expected, "{cores} cores, {parts:?}");
        }
    }

    #[test]
    fn a_link_is_with_the_generator_unless_it_is_placed() {
        const WITH_LINK: &[&str] = &[SERVER, LINK, GENERATOR];
        assert_eq!(shown(&[0], WITH_LINK, &[]), "server* 0 link* 0 generator* 0");
        assert_eq!(shown(&[0, 1], WITH_LINK, &[]), "server 0 link* 1 generator* 1");
        assert_eq!(shown(&[0, 1, 2], WITH_LINK, &[(LINK, &[0])]), "server 1 link 0 generator 2");
        assert_eq!(shown(&[0, 1, 2], WITH_LINK, &[(GENERATOR, &[0])]), "server 1+2 link* 0 generator* 0");
    }

    #[test]
    fn hyperthreads_of_one_physical_core_go_to_one_part() {
        let pairs = |pairs: usize| -> Vec<Vec<usize>> { (0..pairs).map(|at| vec![at, at + pairs]).collect() };
        for (physical, parts, own, expected) in [
            (1, PLAIN, &[][..], "server^ 0 generator^ 1"),
            (2, PLAIN, &[], "server 0+2 generator 1+3"),
            (2, WITH_DATABASE, &[], "server* 0+2 database* 0+2 generator 1+3"),
            (3, WITH_DATABASE, &[], "server 0+3 database 1+4 generator 2+5"),
            (4, PLAIN, &[], "server 0+1+4+5 generator 2+3+6+7"),
            (2, PLAIN, &[(GENERATOR, &[0][..])], "server 1+3 generator 0"),
            // What the experiment says itself is done, and seen.
            (2, PLAIN, &[(GENERATOR, &[0][..]), (SERVER, &[2])], "server^ 2 generator^ 0"),
        ] {
            let all: Vec<usize> = (0..2 * physical).collect();
            assert_eq!(
                shown_beside(&pairs(physical), None, &all, parts, own),
                expected,
                "{physical}, {own:?}"
            );
        }
        let scaled = shown_beside(&pairs(2), Some(8), &[0, 1, 2, 3], PLAIN, &[(SERVER, &[0, 1, 2, 3, 4, 5])]);
        assert_eq!(scaled, "server 0+2 generator 1+3");
    }

    #[test]
    fn siblings_are_read_from_the_files_of_the_kernel() {
        let dir = std::env::temp_dir().join(format!("weir-siblings-{}", std::process::id()));
        for (core, list) in [(0, "0,2\n"), (1, "1,3\n"), (2, "0,2\n"), (3, "1,3\n"), (4, "4\n")] {
            let topology = dir.join(format!("cpu{core}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), list).unwrap();
        }
        assert_eq!(siblings(&dir, &[0, 1, 2, 3, 4, 5]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(siblings(&dir, &[0, 1, 2]), [vec![0, 2]]);
        fs::remove_dir_all(&dir).unwrap();
        assert!(siblings(&dir, &[0, 1]).is_empty());
    }

    #[test]
    fn cores_that_are_not_ours_are_not_used() {
        assert_eq!(shown(&[2, 5, 7], PLAIN, &[]), "server 2+5 generator 7");
        let own: &[(&str, &[usize])] = &[(SERVER, &[0]), (GENERATOR, &[1])];
        assert_eq!(shown_of(Some(2), &[2, 5, 7], PLAIN, own), "server 2 generator 5");
        let complaint = shown_of(Some(2), &[2, 5, 7], PLAIN, &[(SERVER, &[3])]);
        assert!(complaint.starts_with("error cores.server: there is no core 3 here"), "{complaint}");
    }

    #[test]
    fn the_experiment_may_choose() {
        for (own, expected) in [
            (&[("server", &[3][..])][..], "server 3 database 0 generator 1+2"),
            (
                &[("server", &[0][..]), ("database", &[0][..]), ("generator", &[1][..])][..],
                "server* 0 database* 0 generator 1",
            ),
            (&[("server", &[1, 0, 2, 3][..])][..], "server* 0+1+2+3 database* 0+1+2+3 generator* 0+1+2+3"),
            (&[("generator", &[1, 2, 3][..])][..], "server* 0 database* 0 generator 1+2+3"),
        ] {
            assert_eq!(shown(&[0, 1, 2, 3], WITH_DATABASE, own), expected, "{own:?}");
        }
    }

    #[test]
    fn what_was_written_for_a_larger_machine_is_scaled_down() {
        const ALL: &[&str] = &[SERVER, "database-1", "database-2", "replica", GENERATOR];
        let own: &[(&str, &[usize])] = &[
            (SERVER, &[4, 5]),
            ("database-1", &[0, 1]),
            ("database-2", &[2, 3]),
            ("replica", &[15]),
            (GENERATOR, &[6, 7, 8, 9, 10, 11, 12, 13, 14]),
        ];
        for (cores, expected) in [
            (1, "server* 0 database-1* 0 database-2* 0 replica* 0 generator* 0"),
            (2, "server* 0 database-1* 0 database-2* 0 replica* 0 generator 1"),
            (4, "server* 0+1 database-1* 0+1 database-2* 0+1 replica* 0+1 generator 2+3"),
            (5, "server 0 database-1 1 database-2 2 replica 3 generator 4"),
            (8, "server 0 database-1 1 database-2 2 replica 3 generator 4+5+6+7"),
            (16, "server 4+5 database-1 0+1 database-2 2+3 replica 15 generator 6+7+8+9+10+11+12+13+14"),
        ] {
            let all: Vec<usize> = (0..cores).collect();
            assert_eq!(shown_of(Some(16), &all, ALL, own), expected, "{cores} cores");
        }
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        for (own, complaint) in [
            (
                &[("server", &[9][..])][..],
                "error cores.server: there is no core 9 here; hint: use some of [0, 1]",
            ),
            (&[("server", &[][..])][..], "error cores.server [] is no set of cores; hint: name at least one"),
            (
                &[("server", &[0, 0][..])][..],
                "error cores.server [0, 0] is no set of cores; hint: name at least one, and each once",
            ),
            (&[("database", &[0][..])][..], "error cores.database: this experiment starts no database"),
            (
                &[("generator", &[0][..]), ("server", &[0, 1][..])][..],
                "error cores.generator [0] and cores.server",
            ),
        ] {
            let shown = shown(&[0, 1], PLAIN, own);
            assert!(shown.starts_with(complaint), "{own:?}: {shown}");
        }
    }
}
