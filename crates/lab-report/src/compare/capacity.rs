//! The line of a comparison that is read first: the ratio of what two sides get through, and whether that is a difference.

use super::page::{times, verdict};
use lab_analysis::Comparison;
use lab_analysis::compare::{Bound, CapacityRatio, ComparedWorkload, Method, Says};

/// `capacity 0.502× (0.490–0.515), weir more, p 0.003`; `None` where one of the sides does not have the workload.
pub(super) fn clause(comparison: &Comparison, workload: &ComparedWorkload, other: usize) -> Option<String> {
    let of = workload.capacities.get(other)?.as_ref()?;
    let what = match of.at_clients {
        None => "capacity".to_owned(),
        Some(1) => "goodput at 1 client".to_owned(),
        Some(clients) => format!("goodput at {clients} clients"),
    };
    Some(format!("{what} {}", said(comparison, of, other)))
}

fn said(comparison: &Comparison, of: &CapacityRatio, other: usize) -> String {
    let lacking = of.lacking.as_deref().unwrap_or("no runs");
    let Some(quotient) = &of.quotient else { return format!("not comparable: {lacking}") };
    let ratio = format!("{}×", times(quotient.ratio));
    let Some((low, high)) = quotient.interval.filter(|_| of.says != Says::NotComparable) else {
        let bound = match of.bound {
            Some(Bound::AtLeast) => "≥ ",
            Some(Bound::AtMost) => "≤ ",
            None => "",
        };
        let says = verdict(comparison, other, of.says);
        return format!("{bound}{ratio}, {says}: {lacking}");
    };
    let says = match of.says {
        Says::NotShown => "not distinguishable".to_owned(),
        says => verdict(comparison, other, says),
    };
    let p = of.p_holm.map_or_else(String::new, |p| format!(", {}", likely(p)));
    let within = match quotient.method {
        Method::Within => ", within one run: says nothing of differences between runs",
        Method::Paired | Method::Welch => "",
    };
    format!("{ratio} ({}–{}), {says}{p}{within}", times(low), times(high))
}

/// `p < 0.001`, `p 0.012`, `p 0.35`.
fn likely(p: f64) -> String {
    match p {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p if p < 0.1 => format!("p {p:.3}"),
        p => format!("p {p:.2}"),
    }
}

/// How to read these lines.
pub(super) fn note() -> String {
    "The lines at the top compare capacities: of each run the mean over the levels of the plateau, or goodput at the highest \
     level that both have where a side has no capacity. p is how likely so large a difference were by chance, corrected by Holm’s \
     method for the number of these lines; below 0.05 it is called a difference. With fewer than three runs the interval is that \
     of the seconds within the runs, counted as as many as there effectively are: what another run would change is not in it."
        .to_owned()
}
