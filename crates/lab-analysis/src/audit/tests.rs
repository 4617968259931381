//! What the audit says of the printed rows, and of rows made up to break one law.

use super::*;
use lab_data::published::parse;

fn printed() -> Audit {
    audit(&parse(include_str!("../../../../experiments/reports/printed.csv")).unwrap().rows)
}

/// The only sweep of a table with these rows.
fn sweep(head: &str, rows: &str) -> PublishedSweep {
    audit(&parse(&format!("{head}\n{rows}")).unwrap().rows).sweeps.remove(0)
}

fn law(rows: &str) -> PublishedSweep {
    sweep("clients,throughput_rps,latency_ms", rows)
}

fn causes(sweep: &PublishedSweep) -> Vec<(&str, Vec<u32>)> {
    sweep.findings.iter().map(|of| (of.cause, of.clients.clone())).collect()
}

#[test]
fn of_the_printed_rows_36_of_61_are_off() {
    let audit = printed();
    assert_eq!((audit.off, audit.checked), (36, 61));
    let off: Vec<(&str, &str, u32, u32)> = (audit.sweeps.iter())
        .filter(|sweep| sweep.off() > 0)
        .map(|sweep| (&*sweep.report, &*sweep.workload, sweep.off(), sweep.checked()))
        .collect();
    assert_eq!(
        off,
        [
            ("000", "put_all", 3, 7),
            ("002", "put_all", 10, 10),
            ("003", "get_popular", 6, 9),
            ("003", "put_all_capped", 8, 8),
            ("003", "put_all", 5, 5),
            ("004", "get_all", 1, 1),
            ("004", "put_all", 1, 1),
            ("004", "get_popular", 1, 1),
            ("004", "compute_prime", 1, 1),
        ]
    );
}

#[test]
fn each_report_has_the_cause_that_its_code_has() {
    let audit = printed();
    let of = |report: &str, workload: &str| {
        let its = |sweep: &&PublishedSweep| sweep.report == report && sweep.workload == workload;
        audit.sweeps.iter().find(its).unwrap()
    };
    let (cut, runs, errors) =
        ("whole-millisecond samples", "rows from different runs", "errors counted as throughput");
    assert_eq!(causes(of("000", "put_all")), [(runs, vec![2, 10, 20])]);
    assert_eq!(of("000", "put_all").residuals().unwrap(), "−16.2 to +27.7 %");
    assert_eq!(causes(of("002", "put_all")), [("lost latency", vec![1, 2, 4, 5, 6, 8, 10, 12, 14, 16])]);
    assert_eq!(of("002", "put_all").residuals().unwrap(), "−47.5 to −34.5 %");
    let all = vec![1, 2, 3, 4, 5, 6, 8, 10];
    assert_eq!(causes(of("003", "put_all_capped")), [(cut, all), (errors, vec![10])]);
    assert_eq!(causes(of("003", "put_all")), [(cut, vec![1, 2, 4, 8, 16])]);
    assert_eq!(causes(of("003", "get_popular")), [(cut, vec![4, 8, 12, 16, 20, 32, 64]), (runs, vec![1, 2])]);
    for workload in ["get_all", "get_popular", "compute_prime"] {
        assert_eq!(causes(of("004", workload)), [(cut, vec![40])], "{workload}");
    }
    let off_of_004 = audit.sweeps.iter().filter(|sweep| sweep.report == "004" && sweep.off() > 0);
    for residual in off_of_004.map(|sweep| sweep.rows[0].residual.unwrap().value) {
        assert!((-0.0671..=-0.0544).contains(&residual), "{residual}");
    }
    // Its share of successes, 0.10, has one digit too few to tell.
    assert_eq!(causes(of("004", "put_all")), [("something else", vec![40])]);
    assert!(of("004", "put_all").rows[0].rounding_decides());
}

#[test]
fn errors_that_count_as_throughput_hide_a_falling_goodput() {
    let audit = printed();
    let capped = audit.sweeps.iter().find(|sweep| sweep.workload == "put_all_capped").unwrap();
    let reason = &capped.findings[1].reason;
    for said in
        ["24 % of the requests failed", "921 successes", "throughput changes by +15.6 %, goodput by −12.2 %"]
    {
        assert!(reason.contains(said), "{reason}");
    }
    // A throughput of successes alone is read as such: that closes the law.
    let mixed = &audit.sweeps.iter().find(|of| of.report == "004" && of.workload == "mixed").unwrap().rows[0];
    assert_eq!((mixed.counted, mixed.standing), (Counted::Successes, AuditStanding::Holds));
}

#[test]
fn a_sweep_that_closes_has_no_finding() {
    let closes = law("1,1000,1.00\n2,2000,1.00\n4,2500,1.60");
    assert_eq!((closes.off(), closes.findings, closes.remarks), (0, vec![], vec![]));
}

#[test]
fn what_rounding_alone_can_explain_is_said() {
    // 0.9 may be anything from 0.85 to 0.95, which closes the law within 5 %.
    let coarse = law("1,1000,0.9");
    assert!(coarse.rows[0].off() && coarse.rows[0].rounding_decides());
    assert!(coarse.remarks[0].contains("do not decide"), "{:?}", coarse.remarks);
    assert!(coarse.findings[0].reason.contains("rounding"), "{:?}", coarse.findings);
    assert!(!law("1,1000,0.900").rows[0].rounding_decides());
    assert!(law("1,1000,1.0").rows[0].rounding_decides());
}

#[test]
fn a_row_that_rounding_may_have_lifted_is_not_called_impossible() {
    // 1.6 ms, printed in whole milliseconds.
    for rows in ["8,5000,2", "1,1000,1.00\n8,5000,2"] {
        let lifted = law(rows);
        let row = lifted.rows.last().unwrap();
        assert!(row.off() && row.standing == AuditStanding::Above && !row.impossible(), "{row:?}");
        assert_eq!(causes(&lifted), [("something else", vec![8])], "{rows}");
        assert!(lifted.findings[0].reason.contains("rounding"), "{:?}", lifted.findings);
        assert!(lifted.remarks[0].contains("do not decide"), "{:?}", lifted.remarks);
    }
    // Nor is it counted to those that are.
    let mixed = law("1,1000,1.00\n2,2000,1.60\n8,5000,2");
    assert_eq!(causes(&mixed), [("rows from different runs", vec![2]), ("something else", vec![8])]);
    assert!(mixed.rows[1].impossible());
    // What is missing below N is not rounding.
    let both = law("1,1000,0.50\n8,5000,2");
    assert!(both.findings[0].reason.contains("above N the rounding"), "{:?}", both.findings);
}

#[test]
fn rules_do_not_claim_what_does_not_fit() {
    // A pause of 5 ms between requests is no cut sample, nor a lost share.
    assert_eq!(causes(&law("1,100,5.00\n4,400,5.00\n16,1000,11.00")), [("something else", vec![1, 4, 16])]);
    // A lost share that is not the same everywhere is none.
    assert_eq!(causes(&law("1,100,8.00\n4,100,30.00\n16,100,64.00\n32,100,300.00"))[0].0, "something else");
    // All rows above N: nothing says that they are of different runs.
    assert_eq!(causes(&law("1,100,15.00\n2,100,30.00")), [("impossible row", vec![1, 2])]);
}

#[test]
fn a_row_may_be_impossible_although_it_closes() {
    let head = "clients,throughput_rps,latency_ms,p50_ms,p99_ms,disk_util_pct";
    let odd = sweep(head, "1,1000,1.0,0.9,1.2,100\n2,1000,2.0,3.1,2.9,50\n4,1000,4.0,1,9,101.3");
    assert_eq!((odd.off(), causes(&odd)), (0, vec![("impossible row", vec![2, 4])]));
    assert!(odd.findings[0].reason.contains("p50 of 3.1 ms is above the p99 of 2.9 ms"));
}

#[test]
fn the_same_factor_in_all_rows_is_a_unit() {
    let (unit, minutes, client) = ("wrong unit", "minutes read as seconds", "throughput of one client");
    let ms = "clients,throughput_rps,latency_ms";
    for (head, rows, cause, off, said) in [
        // Of 1000 req/s and 1.00 ms, 2000 and 1.05, 3650 and 1.10 at 1, 2 and 4 clients.
        (ms, "1,1000,0.00100\n2,2000,0.00105\n4,3650,0.00110", unit, vec![1, 2, 4], "in seconds are read"),
        // Their rounding may hide a third.
        (ms, "1,100,0.01\n2,100,0.02\n4,1000,0.00", unit, vec![1, 2, 4], "in seconds are read"),
        (ms, "1,1000,1000\n2,2000,1050\n4,3650,1100", unit, vec![1, 2, 4], "1000·N, as"),
        ("clients,rps,latency_us", "1,1000,1.00\n2,2000,1.05", unit, vec![1, 2], "or milliseconds as micro"),
        ("clients,rps,latency_us", "1,1000,0.00100\n2,2000,0.00105", unit, vec![1, 2], "N/1,000,000, as"),
        ("clients,rps,latency_s", "1,1000,1.00\n2,2000,1.05", unit, vec![1, 2], "milliseconds as seconds"),
        ("clients,rps,latency_s", "1,1000,1000\n2,2000,1050", unit, vec![1, 2], "1,000,000·N"),
        // Below a thousand there is no separator of thousands.
        (ms, "1,950,1.05\n2,1.900,1.05\n4,3.650,1.10", unit, vec![2, 4], "separator of thousands"),
        (ms, "1,60000,1.00\n2,120000,1.05\n4,219000,1.10", minutes, vec![1, 2, 4], "per minute"),
        ("clients,rps,latency_s", "1,10,0.00167\n2,20,0.00170", minutes, vec![1, 2], "in minutes"),
        (ms, "1,1000,1.00\n2,1000,1.00\n4,909,1.10\n8,500,2.00", client, vec![2, 4, 8], "of one client"),
    ] {
        let found = sweep(head, rows);
        assert_eq!(causes(&found), [(cause, off)], "{rows}");
        assert!(found.findings[0].reason.contains(said), "{said}: {:?}", found.findings);
    }
    // One row, or another factor in one of them, shows no unit.
    assert_eq!(causes(&law("1,1000,1000"))[0].0, "impossible row");
    assert_eq!(causes(&law("1,1000,1000\n2,2000,2000"))[0].0, "impossible row");
    assert_eq!(causes(&law("1,1000,1.00\n8,1000,1.00"))[0].0, "something else");
    assert_eq!(causes(&law("2,1000,1.00\n4,1000,1.00\n8,8000,1.00"))[0].0, "something else");
}

#[test]
fn a_mean_fits_its_percentiles() {
    let head = "clients,throughput_rps,latency_ms,p50_ms,p99_ms";
    let odd = sweep(head, "1,1000,1.00,10,20\n2,2000,1.00,1.9,100\n4,3500,1.14,1.0,200\n8,8,1000,1,2");
    assert_eq!((odd.off(), causes(&odd)), (0, vec![("impossible row", vec![1, 4])]));
    for said in [
        "the mean of 1.00 ms is below 50 % of the p50 of 10 ms",
        "the mean of 1.14 ms is below 1 % of the p99",
    ] {
        assert!(odd.findings[0].reason.contains(said), "{said}: {:?}", odd.findings);
    }
    let above = "At 8 clients the mean of 1000 ms is above the p99 of 2 ms: the slowest 1 % of the requests took at least 99702 ms";
    assert!(odd.remarks.iter().any(|remark| remark.starts_with(above)), "{:?}", odd.remarks);
    // As far as the printed digits say: 1.004 ms is half of 2.008 ms.
    let rounded = sweep(head, "1,1000,1.00,2.01,100\n2,2000,1.00,1,1");
    assert_eq!((rounded.findings, rounded.remarks), (vec![], vec![]));
}

#[test]
fn laws_of_bounds_and_utilization_are_remarks() {
    let head = "clients,throughput_rps,latency_ms,server_cpu_pct,disk_util_pct";
    let odd = sweep(
        head,
        "1,100,10.0,20,90\n2,300,6.67,55,91\n2,300,6.67,55,91\n4,280,14.3,70,91\n8,281,28.5,120,91",
    );
    assert_eq!(odd.off(), 0);
    for said in [
        "above N / R(1) at 2 clients",
        "At 1 client the disk is busy for 90 % of the time, and throughput still grows 3.00×",
        "From 2 to 4 clients throughput changes by −6.7 % and the use of the server’s CPU by +27.3 %",
        "over 100 % at 8 clients",
    ] {
        assert!(odd.remarks.iter().any(|remark| remark.contains(said)), "{said}: {:?}", odd.remarks);
    }
}

/// Its last bit made 5 % more than 5 %.
#[test]
fn a_row_that_is_off_by_5_percent_does_not_deviate() {
    let rows = parse("clients,throughput_rps,latency_ms\n20,19.0,1000\n100,95000.0,1.0000\n").unwrap().rows;
    assert_eq!(audit(&rows).off, 0);
}

#[test]
fn odd_rows_divide_by_nothing() {
    let head = "clients,throughput_rps,latency_ms,success_share,server_cpu_pct";
    for rows in ["1,0,0,0,0\n2,0,5,0.5,10\n4,10,0,1,30", ",,,,\n1,,,0.5,\n,5,5,,"] {
        let audit = audit(&parse(&format!("{head}\n{rows}")).unwrap().rows);
        let said =
            format!("{:?}", audit.sweeps.iter().map(|of| (&of.findings, &of.remarks)).collect::<Vec<_>>());
        assert!(!said.contains("NaN") && !said.contains("inf "), "{said}");
    }
}
