//! The search for an order of the calls of one key that explains all answers.
//!
//! Wing & Gong, Testing and Verifying Concurrent Objects (1993), with Lowe's memory of what was tried before (Testing for
//! Linearizability, 2017): calls take effect one after the other, each not before it was sent and before none that had returned by
//! then; where that ends, the last choice is taken back. A set of calls and a value that were reached once are not tried again.
//!
//! What follows leaves out choices that cannot help, as each value is written once:
//! a read that finds the current value takes effect at once; a value is not replaced while a read of it is to come; of several plain
//! writes with the same effect the one that returned first goes first; and a plain write takes along those whose value nobody names, unless a precondition failed.

use super::NEVER;
use crate::verify::mix;
use std::collections::HashSet;

/// The number of the value of a key that is not there.
pub(super) const ABSENT: u32 = 0;
/// The number of all values that no call names but those that write them.
pub(super) const NOT_NAMED: u32 = 1;
/// All others have numbers of their own.
pub(super) const FIRST_NAMED: u32 = 2;
/// Sets that are tried for one key, in addition to one for each call, before the search is given up.
const TRIED_MAX: usize = 5_000_000;

/// What the key must hold when a call takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Is(u32),
    Not(u32),
}

/// A call with numbers in place of values. One that never returned need not take effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) need: Need,
    /// What the key holds afterwards, if it is changed.
    pub(super) makes: Option<u32>,
}

impl Entry {
    /// The value that it must find, unless that is absence, which may come more than once.
    fn needed(&self) -> Option<u32> {
        match self.need {
            Need::Is(needed) if needed != ABSENT => Some(needed),
            _ => None,
        }
    }

    /// Whether it must take effect.
    fn is_definite(&self) -> bool {
        self.returned != NEVER
    }

    fn is_plain(&self) -> bool {
        self.need == Need::Nothing
    }

    fn fits(&self, value: u32) -> bool {
        match self.need {
            Need::Nothing => true,
            Need::Is(needed) => needed == value,
            Need::Not(other) => other != value,
        }
    }
}

/// A choice: what was the case before it, and the writes that are still to be tried instead.
struct Choice {
    value: u32,
    taken: usize,
    /// Where its writes begin in the list of all.
    others: usize,
}

struct Search {
    entries: Vec<Entry>,
    /// The calls left, in a ring in order of `invoked`; the last place is its head.
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Calls left that returned and need this value.
    needed: Vec<u32>,
    /// Calls left that returned.
    left: usize,
    /// What the key holds.
    value: u32,
    /// Whether no precondition failed.
    all_fit: bool,
    /// Those that took effect, in this order.
    taken: Vec<usize>,
    /// Of the set of those: the sum of a number for each. Two sets have the same with a probability of 2^-128.
    sum: [u64; 2],
}

/// Whether there is such an order for a key that holds `initial`; `None` if the search was given up.
pub(super) fn search((entries, initial): (Vec<Entry>, u32)) -> Option<bool> {
    let mut search = Search::new(entries, initial);
    let mut tried = HashSet::new();
    let mut choices: Vec<Choice> = Vec::new();
    let mut writes = Vec::new();
    loop {
        let (value, others) = (search.value, writes.len());
        search.settle(&mut writes);
        if search.left == 0 {
            return Some(true);
        }
        if tried.len() > TRIED_MAX + search.entries.len() {
            return None;
        }
        if !tried.insert((search.sum, value)) {
            writes.truncate(others);
        }
        choices.push(Choice { value, taken: search.taken.len(), others });
        let write = loop {
            let Some(choice) = choices.last() else { return Some(false) };
            search.undo(choice.taken, choice.value);
            if writes.len() > choice.others
                && let Some(write) = writes.pop()
            {
                break write;
            }
            choices.pop();
        };
        search.write(write);
    }
}

impl Search {
    fn new(entries: Vec<Entry>, initial: u32) -> Search {
        let count = entries.len();
        let numbers = entries.iter().flat_map(|entry| [entry.makes, entry.needed()]).flatten();
        let mut needed = vec![0; numbers.max().unwrap_or(0).max(initial) as usize + 1];
        let definite = || entries.iter().filter(|entry| entry.is_definite());
        definite().filter_map(Entry::needed).for_each(|value| needed[value as usize] += 1);
        Search {
            left: definite().count(),
            all_fit: !entries.iter().any(|entry| matches!(entry.need, Need::Not(_))),
            next: (1..=count).chain([0]).collect(),
            previous: [count].into_iter().chain(0..count).collect(),
            entries,
            needed,
            value: initial,
            taken: Vec::new(),
            sum: [0; 2],
        }
    }

    /// The calls left of which none had returned before this one of them was sent.
    fn possible(&self) -> impl Iterator<Item = usize> {
        let mut at = self.entries.len();
        let mut until = NEVER;
        std::iter::from_fn(move || {
            at = self.next[at];
            let entry = self.entries.get(at).filter(|entry| entry.invoked <= until)?;
            until = until.min(entry.returned);
            Some(at)
        })
    }

    /// Lets all take effect that change nothing, and appends the writes that may be next to `writes`, the best one last.
    fn settle(&mut self, writes: &mut Vec<usize>) {
        let others = writes.len();
        let mut at = self.next[self.entries.len()];
        let mut until = NEVER;
        while let Some(&entry) = self.entries.get(at).filter(|entry| entry.invoked <= until) {
            match entry.makes {
                None if entry.fits(self.value) => self.take(at),
                _ => {
                    until = until.min(entry.returned);
                    if entry.makes.is_some() && entry.fits(self.value) {
                        writes.push(at);
                    }
                }
            }
            at = self.next[at];
        }
        let entries = &self.entries;
        writes[others..].sort_unstable_by_key(|write| std::cmp::Reverse(entries[*write].returned));
        // The best of those with the same effect.
        let mut later = others;
        while later < writes.len() {
            let entry = entries[writes[later]];
            let same = |write: &usize| entries[*write].is_plain() && entries[*write].makes == entry.makes;
            let is_replaced = entry.is_plain() && writes[later + 1..].iter().any(same);
            let own = u32::from(entry.is_definite() && entry.needed() == Some(self.value));
            if is_replaced || self.needed[self.value as usize] > own {
                writes.remove(later);
            } else {
                later += 1;
            }
        }
    }

    /// Lets a write take effect, and before it those whose values nobody sees then.
    fn write(&mut self, write: usize) {
        if self.entries[write].is_plain() && self.all_fit {
            let hidden = |at: &usize| {
                let entry = &self.entries[*at];
                *at != write && entry.is_plain() && entry.makes == Some(NOT_NAMED) && entry.is_definite()
            };
            let hidden: Vec<usize> = self.possible().filter(hidden).collect();
            hidden.into_iter().for_each(|at| self.take(at));
        }
        self.take(write);
        self.value = self.entries[write].makes.unwrap_or(self.value);
    }

    fn take(&mut self, at: usize) {
        let (previous, next) = (self.previous[at], self.next[at]);
        self.next[previous] = next;
        self.previous[next] = previous;
        self.taken.push(at);
        let entry = self.entries[at];
        if entry.is_definite() {
            self.left -= 1;
            entry.needed().into_iter().for_each(|value| self.needed[value as usize] -= 1);
        }
        self.sum = sum(self.sum, at, u64::wrapping_add);
    }

    /// Takes back all but the first `taken` that took effect; the key held `value` then.
    fn undo(&mut self, taken: usize, value: u32) {
        for at in self.taken.split_off(taken).into_iter().rev() {
            let (previous, next) = (self.previous[at], self.next[at]);
            self.next[previous] = at;
            self.previous[next] = at;
            let entry = self.entries[at];
            if entry.is_definite() {
                self.left += 1;
                entry.needed().into_iter().for_each(|value| self.needed[value as usize] += 1);
            }
            self.sum = sum(self.sum, at, u64::wrapping_sub);
        }
        self.value = value;
    }
}

/// Adds the numbers of call `at` to a sum, or takes them from it.
fn sum([one, other]: [u64; 2], at: usize, add: fn(u64, u64) -> u64) -> [u64; 2] {
    let number = mix(at as u64);
    [add(one, number), add(other, mix(number))]
}
