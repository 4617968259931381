//! Which part runs on which cores.
//!
//! The rule: the generator's innocence comes first. Wherever there are two cores it has its own, because a generator
//! that competes with what it measures measures itself. [`plan`] is pure; [`available`] asks the kernel.

use super::experiment::{DATABASE, GENERATOR, SERVER};
use super::results::Placement;
use std::collections::BTreeMap;
use std::io;

/// Who gets the next spare core.
const TURNS: [&str; 3] = [SERVER, GENERATOR, DATABASE];

/// The cores this process may use, ascending: a container or `taskset` may have taken some away.
pub fn available() -> io::Result<Vec<usize>> {
    let mask = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| mask.is_set(core)).collect())
}

/// Places `parts` on `cores` (ascending, not empty), with `wanted` cores where the experiment names them.
///
/// Low numbers go to the server, high ones to the generator. Two parts have either the same cores or none in common:
/// otherwise no counter could tell how busy the cores of either are.
pub fn plan(
    cores: &[usize],
    parts: &[&str],
    wanted: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<Placement>, String> {
    check(cores, parts, wanted)?;
    let mut chosen: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (part, own) in wanted {
        let mut own = own.clone();
        own.sort_unstable();
        chosen.insert(part, own);
    }
    let rest: Vec<&str> = parts.iter().copied().filter(|part| !wanted.contains_key(*part)).collect();
    let spare: Vec<usize> =
        cores.iter().copied().filter(|core| !chosen.values().flatten().any(|taken| taken == core)).collect();
    // With every core spoken for, who is left shares with the part it disturbs least.
    let planned =
        match (spare.is_empty(), chosen.get(SERVER).or(chosen.get(DATABASE)).or(chosen.get(GENERATOR))) {
            (true, Some(host)) => rest.iter().map(|part| (*part, host.clone())).collect(),
            _ => divide(&spare, &rest),
        };
    chosen.extend(planned);
    for (part, own) in &chosen {
        for (other, theirs) in &chosen {
            if own != theirs && own.iter().any(|core| theirs.contains(core)) {
                return Err(format!(
                    "cores.{part} {own:?} and cores.{other} {theirs:?} overlap in part; \
                     give both the same cores, or none in common"
                ));
            }
        }
    }
    let placement = |part: &&str| Placement {
        part: (*part).to_owned(),
        cores: chosen[part].clone(),
        shares_with: parts
            .iter()
            .filter(|other| *other != part && chosen[*other] == chosen[part])
            .map(|other| (*other).to_owned())
            .collect(),
    };
    Ok(parts.iter().map(placement).collect())
}

/// Divides `cores` among `parts`, none of which the experiment has placed.
fn divide<'p>(cores: &[usize], parts: &[&'p str]) -> Vec<(&'p str, Vec<usize>)> {
    if cores.len() < parts.len() {
        // Too few: the generator keeps one for itself if there are two, the others share what remains.
        return parts
            .iter()
            .map(|part| match (*part, cores) {
                (GENERATOR, [.., _, last]) => (*part, vec![*last]),
                (_, [first @ .., _]) if !first.is_empty() && parts.contains(&GENERATOR) => {
                    (*part, first.to_vec())
                }
                _ => (*part, cores.to_vec()),
            })
            .collect();
    }
    let turns: Vec<&str> = TURNS.into_iter().filter(|part| parts.contains(part)).collect();
    let mut counts: BTreeMap<&str, usize> = turns.iter().map(|part| (*part, 1)).collect();
    for part in turns.iter().cycle().take(cores.len() - parts.len()) {
        *counts.entry(part).or_default() += 1;
    }
    let mut next = 0;
    parts
        .iter()
        .map(|part| {
            let first = next;
            next += counts[part];
            (*part, cores[first..next].to_vec())
        })
        .collect()
}

fn check(cores: &[usize], parts: &[&str], wanted: &BTreeMap<String, Vec<usize>>) -> Result<(), String> {
    if cores.is_empty() {
        return Err("no core may be used; check the affinity mask this was started with".into());
    }
    for (part, own) in wanted {
        if !parts.contains(&part.as_str()) {
            return Err(format!("cores.{part}: this experiment starts no {part}; remove the line"));
        }
        let mut unique = own.clone();
        unique.sort_unstable();
        unique.dedup();
        if own.is_empty() || unique.len() != own.len() {
            return Err(format!("cores.{part} {own:?}: name at least one core, and each once"));
        }
        if let Some(missing) = own.iter().find(|core| !cores.contains(core)) {
            return Err(format!("cores.{part}: there is no core {missing} here; use some of {cores:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[&str] = &[SERVER, GENERATOR];
    const WITH_DATABASE: &[&str] = &[SERVER, DATABASE, GENERATOR];

    fn wanted(pairs: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
        pairs.iter().map(|(part, cores)| ((*part).to_owned(), cores.to_vec())).collect()
    }

    /// The plan as text: `server 0+1 generator 2`, with `*` behind a part that shares its cores.
    fn shown(cores: &[usize], parts: &[&str], own: &[(&str, &[usize])]) -> String {
        let text = |placement: Placement| {
            let cores: Vec<_> = placement.cores.iter().map(usize::to_string).collect();
            let star = if placement.shares_with.is_empty() { "" } else { "*" };
            format!("{}{star} {}", placement.part, cores.join("+"))
        };
        match plan(cores, parts, &wanted(own)) {
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
    fn cores_that_are_not_ours_are_not_used() {
        assert_eq!(shown(&[2, 5, 7], PLAIN, &[]), "server 2+5 generator 7");
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
    fn a_choice_that_cannot_be_is_refused() {
        for (own, complaint) in [
            (&[("server", &[9][..])][..], "error cores.server: there is no core 9 here; use some of [0, 1]"),
            (&[("server", &[][..])][..], "error cores.server []: name at least one"),
            (
                &[("server", &[0, 0][..])][..],
                "error cores.server [0, 0]: name at least one core, and each once",
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

    #[test]
    fn this_machine_has_a_core() {
        assert!(!available().unwrap().is_empty());
    }
}
