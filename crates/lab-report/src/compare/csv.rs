//! `compare.csv`: one line for each figure of each side at each level.
//!
//! RFC 4180. The unit stands last in the figure's name.

use super::page::{remarks, said};
use crate::csv::line;
use lab_analysis::compare::{Bound, Method};
use lab_analysis::{Comparison, MEASURES};

const COLUMNS: &[&str] = &[
    "workload",
    "clients",
    "target",
    "figure",
    "value",
    "low",
    "high",
    "runs",
    "compared_with",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_runs",
    "ratio_method",
    "difference",
    "bound",
    "ratio_checks_failed",
    "checks_failed",
    "acknowledges_a_write",
];

/// The table.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut text = String::new();
    line(&mut text, COLUMNS.iter().map(|name| (*name).to_owned()));
    for workload in &comparison.workloads {
        for level in &workload.levels {
            for (i, of) in level.sides.iter().enumerate() {
                let Some(of) = of else { continue };
                let side = &comparison.sides[i];
                let gates: Vec<&str> = of.failed.iter().map(|gate| gate.id).collect();
                for (index, measure) in MEASURES.iter().enumerate() {
                    let figure = of.figures[index].as_ref();
                    let estimate = figure.and_then(|of| of.estimate);
                    let ratio = of.ratios[index].as_ref();
                    let quotient = ratio.and_then(|of| of.quotient);
                    let interval = quotient.and_then(|of| of.interval);
                    let method = quotient.map(|of| match of.method {
                        Method::Paired => "paired",
                        Method::Welch => "welch",
                        Method::Within => "within",
                    });
                    let bound = ratio.and_then(|of| of.bound).map(|of| match of {
                        Bound::AtLeast => "at_least",
                        Bound::AtMost => "at_most",
                    });
                    let cells = [
                        workload.name.clone(),
                        level.clients.to_string(),
                        side.name.clone(),
                        measure.name.to_owned(),
                        number(figure.map(|of| of.value)),
                        number(estimate.map(|of| of.low)),
                        number(estimate.map(|of| of.high)),
                        figure.map_or(0, |of| of.of_runs.len()).to_string(),
                        ratio.map_or_else(String::new, |_| comparison.sides[0].name.clone()),
                        number(quotient.map(|of| of.ratio)),
                        number(interval.map(|(low, _)| low)),
                        number(interval.map(|(_, high)| high)),
                        quotient.map_or_else(String::new, |of| of.runs.to_string()),
                        method.unwrap_or_default().to_owned(),
                        ratio.map_or_else(String::new, |of| said(comparison, i, of)),
                        bound.unwrap_or_default().to_owned(),
                        ratio.map(remarks).unwrap_or_default(),
                        gates.join(" "),
                        side.durability.clone().filter(|_| workload.writes).unwrap_or_default(),
                    ];
                    line(&mut text, cells.into_iter());
                }
            }
        }
    }
    text
}

fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| format!("{value}")).unwrap_or_default()
}
