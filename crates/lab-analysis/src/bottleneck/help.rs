//! What would help: the throughput if what is named took half of its time, and what would then be the limit.
//!
//! Predicted by the asymptotic bounds: a limit that serves twice as fast lets twice as much through, until the next one is full.
//! Source: Denning & Buzen, The Operational Analysis of Queueing Network Models (1978).

use super::{CONFLICTS, Ceiling, Evidence, Grade};
use crate::compare::Bound;
use crate::rows::{Row, usable};

/// What would follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Help {
    /// Requests per second.
    pub rps: f64,
    /// Of a delay: the clients; a limit has as many as it has.
    pub clients: Option<u32>,
    /// What would then be the limit, where that is known.
    pub then: Option<Evidence>,
}

/// What would follow if what is `named` took half of its time; `None` where nothing is named, or no throughput is known.
pub(super) fn help(
    grade: Grade,
    named: &[&Evidence],
    next: Option<&Evidence>,
    capacity_rps: Option<f64>,
    rows: &[Row],
) -> Option<Help> {
    let (rps, clients) = match grade {
        Grade::Confirmed | Grade::Supported | Grade::Suspected => (2.0 * capacity_rps?, None),
        Grade::Delay => {
            let blocked = named.first()?.blocked.as_ref()?;
            let row = usable(rows).next_back()?;
            // Clients that are delayed are back sooner by half of the delay.
            let delayed = (blocked.count? / f64::from(row.level)).min(1.0);
            (row.rps() / (1.0 - delayed / 2.0), Some(row.level))
        }
        _ => return None,
    };
    // Conflicts take no time of their own that could be halved.
    if named.is_empty() || named.iter().any(|of| of.id == CONFLICTS) {
        return None;
    }
    // One that may carry more stops nothing for sure.
    let is_stop = |at: &Ceiling| at.bound != Some(Bound::AtLeast);
    let ceiling = next.and_then(|of| Some((of.ceiling().filter(is_stop)?.rps, of)));
    Some(match ceiling.filter(|(ceiling, _)| *ceiling < rps) {
        Some((ceiling, then)) => Help { rps: ceiling, clients, then: Some(then.clone()) },
        None => Help { rps, clients, then: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::results::ResourceKind;

    #[test]
    fn a_limit_that_is_twice_as_fast_lets_twice_as_much_through_until_the_next_one_is_full() {
        let lock = Evidence { resource: "lock".into(), ..Evidence::default() };
        let cpu = |ceiling| Evidence {
            resource: "cpu".into(),
            kind: ResourceKind::Station,
            utilization: 0.5,
            ceiling_rps: Some(ceiling),
            ..Evidence::default()
        };
        let helped = |grade, next: Option<&Evidence>| {
            help(grade, &[&lock], next, Some(100.0), &[])
                .map(|of| (of.rps, of.then.map(|then| then.resource)))
        };
        assert_eq!(helped(Grade::Supported, None), Some((200.0, None)));
        assert_eq!(helped(Grade::Suspected, Some(&cpu(500.0))), Some((200.0, None)));
        assert_eq!(helped(Grade::Supported, Some(&cpu(150.0))), Some((150.0, Some("cpu".into()))));
        let grows = Evidence { load_dependent: true, ..cpu(150.0) };
        assert_eq!(helped(Grade::Supported, Some(&grows)), Some((200.0, None)));
        assert_eq!(helped(Grade::NotIdentified, None), None);
        assert_eq!(help(Grade::Supported, &[], None, Some(100.0), &[]), None);
    }
}
